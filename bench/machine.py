"""What the machine is called, for the files in bench/results."""
import platform


def cpu_name():
    """Its name, which alone may say little on a virtual machine, with family, model and widest vectors."""
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        first = f.read().split("\n\n", maxsplit=1)[0]
    about = dict((part.strip() for part in line.split(":", 1)) for line in first.splitlines() if ":" in line)
    if "model name" not in about:
        return platform.machine()
    flags = about.get("flags", "").split()
    widest = [name for flag, name in (("amx_int8", "AMX"), ("avx512_vnni", "AVX-512 VNNI"), ("avx512f", "AVX-512"),
                                      ("avx2", "AVX2")) if flag in flags]
    more = [f"family {about[key]}" if key == "cpu family" else f"model {about[key]}"
            for key in ("cpu family", "model") if key in about] + widest[:1]
    return f"{about['model name']} ({', '.join(more)})"


def cpus_of(records):
    """The machines that made these records of a file, each named once."""
    return " and ".join(dict.fromkeys(r["cpu"] for r in records))

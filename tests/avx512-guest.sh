#!/bin/sh
# Runs a program on a machine with AVX-512, emulated where this one has none:
#     avx512-guest.sh PROGRAM [ARGS...]
# Debian packages: bochs bochsbios vgabios isolinux syslinux-common xorriso busybox-static cpio; the
# kernel is fetched with apt-get download. The emulator decodes every instruction (that of qemu has
# no AVX-512), so the machine code of the tier is what is tested, about 100 times slower than on a
# CPU. The program's libraries are copied with it; its output comes back, and its exit code is this
# script's. 77, and the count of kernels that were not tested, when something is missing or the guest
# does not finish in RKV_GUEST_S seconds (900).
# BOCHS, BOCHS_DISPLAY: another build (3 times faster without its debugger) and its display library.
set -eu
[ $# -ge 1 ] || { echo "usage: avx512-guest.sh PROGRAM [ARGS...]" >&2; exit 2; }
if grep -q -m1 avx512vl /proc/cpuinfo; then
    exec "$@"
fi
prog=$1
shift
skip() {
    n=$("$prog" --list --kernel '*[5n][1n][2i]' 2> /dev/null | grep -c '^rkv_' || true)
    echo "skipped $n kernels: $1" >&2
    exit 77
}
bochs=${BOCHS:-bochs}
for tool in "$bochs" xorriso cpio dpkg-deb /bin/busybox; do
    command -v "$tool" > /dev/null || skip "$tool is not installed"
done
isolinux=/usr/lib/ISOLINUX/isolinux.bin ldlinux=/usr/lib/syslinux/modules/bios/ldlinux.c32
bios=/usr/share/bochs/BIOS-bochs-latest vga=/usr/share/bochs/VGABIOS-lgpl-latest
for file in $isolinux $ldlinux $bios $vga; do
    [ -r "$file" ] || skip "$file is missing (isolinux, syslinux-common, bochsbios, vgabios)"
done

cache=${XDG_CACHE_HOME:-$HOME/.cache}/rkv-guest
mkdir -p "$cache"
if ! ls "$cache"/x/boot/vmlinuz-* > /dev/null 2>&1; then
    k=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends: linux-image/ {print $2; exit}')
    (cd "$cache" && apt-get download -qq "$k" 2> /dev/null && dpkg-deb -x "$k"_*.deb x) ||
        skip "no Debian kernel can be fetched"
fi

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
root=$dir/root
mkdir -p "$root/bin" "$root/dev" "$root/proc" "$root/tmp" "$dir/iso/isolinux"
cp /bin/busybox "$root/bin/"
cp "$prog" "$root/program"
for l in $(ldd "$prog" 2> /dev/null | grep -oE '/[^ ]+' || true); do
    mkdir -p "$root$(dirname "$l")"
    cp -L "$l" "$root$l"
done
# The last line must leave the serial port before the power goes.
{
    echo '#!/bin/busybox sh'
    echo '/bin/busybox mount -t proc proc /proc; /bin/busybox mount -t devtmpfs dev /dev; cd /tmp'
    printf '/program'
    for a in "$@"; do printf " '%s'" "$a"; done
    printf '\necho "guest-exit $?"\n/bin/busybox sleep 2\n/bin/busybox poweroff -f\n'
} > "$root/init"
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc 2> /dev/null | gzip -1 > "$dir/iso/initrd.gz")
cp "$cache"/x/boot/vmlinuz-* "$dir/iso/vmlinuz"
cp $isolinux $ldlinux "$dir/iso/isolinux/"
# The clock runs at the emulator's nominal 20 MHz, not at what CPUID says. bochs 2.7 computes the size
# of the compacted XSAVE area wrongly, upon which the kernel would switch AVX off.
options="console=ttyS0,115200 quiet loglevel=2 panic=-1 mitigations=off nokaslr"
options="$options random.trust_cpu=on tsc=reliable tsc_early_khz=20000 lpj=80000 no_timer_check"
options="$options nopku clearcpuid=xsaves,xsavec"
cat > "$dir/iso/isolinux/isolinux.cfg" << END
DEFAULT guest
PROMPT 0
LABEL guest
  KERNEL /vmlinuz
  APPEND initrd=/initrd.gz $options
END
xorriso -as mkisofs -quiet -o "$dir/boot.iso" -b isolinux/isolinux.bin -c isolinux/boot.cat \
    -no-emul-boot -boot-load-size 4 -boot-info-table "$dir/iso" 2> /dev/null
cat > "$dir/bochsrc" << END
display_library: ${BOCHS_DISPLAY:-rfb, options="timeout=0"}
cpu: model=${RKV_GUEST_CPU:-corei7_skylake_x}, count=1, ips=20000000
memory: guest=512, host=512
romimage: file=$bios
vgaromimage: file=$vga
boot: cdrom
ata0-master: type=cdrom, path=$dir/boot.iso, status=inserted
com1: enabled=1, mode=file, dev=$dir/serial
clock: sync=none
log: $dir/log
panic: action=fatal
END
debugger=
if "$bochs" --help 2>&1 | grep -q -e '-rc '; then
    echo c > "$dir/commands"
    debugger="-rc $dir/commands"
fi
# shellcheck disable=SC2086
timeout "${RKV_GUEST_S:-900}" "$bochs" -q -f "$dir/bochsrc" $debugger \
    < /dev/null > "$dir/out" 2>&1 || true
touch "$dir/serial"
tr -d '\r' < "$dir/serial" | grep -v '^guest-exit' || true
rc=$(tr -d '\r' < "$dir/serial" | sed -n 's/^guest-exit \([0-9]*\)$/\1/p')
[ -n "$rc" ] || skip "the guest did not finish in ${RKV_GUEST_S:-900} s"
exit "$rc"

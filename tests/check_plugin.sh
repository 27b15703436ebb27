#!/bin/sh
# The CUDA plug-in as nvcc built it, with or without a GPU: what it holds and needs, that nothing else
# needs CUDA, and what rkv says. Runs in a build folder that was configured --with-cuda --enable-shared
# NVCCFLAGS=-no-compress, after make rkv check_cuda libripplekv-cuda.so.
set -u
plugin=libripplekv-cuda.so
passed=0 failed=0
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
try() { # try WHAT COMMAND...
    what=$1; shift
    if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "check_plugin: failed: $what" >&2; fi
}
holds() { grep -qE -- "$1" "$work/strings"; }
# needs FILE PATTERN: a library that the file asks the loader for
needs() { readelf -d "$1" | grep NEEDED | grep -q "$2"; }
no_cuda() { needs "$1" libc.so && ! needs "$1" 'libcu\|libnv'; }

try "libripplekv.so needs no CUDA" no_cuda .libs/libripplekv.so
if [ -f .libs/rkv ]; then try "rkv needs no CUDA" no_cuda .libs/rkv; else try "rkv needs no CUDA" no_cuda rkv; fi
try "the plug-in needs neither driver nor runtime to load" no_cuda $plugin
nm -D --defined-only $plugin | sed 's/.* //' > "$work/exported"
try "the plug-in exports its table alone" test "$(cat "$work/exported")" = rkv_cuda_plugin_v1

strings -a $plugin > "$work/strings"
try "machine code for sm_80" holds '-arch sm_80 '
try "machine code for sm_90" holds '-arch sm_90 '
try "PTX for sm_90" holds '^\.target sm_90$'
try "PTX of the noise kernel" holds '^\.(visible )?\.?entry .*rkv_noise_normal_kernel'

make -s install-pluginexecDATA DESTDIR="$work/root" > /dev/null
try "make install puts it beside the library" test -n "$(find "$work/root" -path '*/ripplekv/*' -name $plugin)"

if ldconfig -p 2> /dev/null | grep -q 'libcuda\.so\.1 '; then
    expected='"devices":\[\{|"no_device":"CUDA: the driver|"no_device":"CUDA: no driver'
else
    expected='"devices":\[\],"no_device":"CUDA: no driver on this machine"'
fi
said=$(RKV_CUDA_PLUGIN=./$plugin ./rkv inspect --json)
try "rkv inspect succeeds" test $? = 0
echo "$said" > "$work/strings"
try "rkv inspect says $expected: $said" holds "$expected"
echo "check_plugin: $passed passed, $failed failed, 0 skipped"
RKV_CUDA_PLUGIN=./$plugin ./check_cuda && [ "$failed" = 0 ]

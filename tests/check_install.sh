#!/bin/sh
# The installed library, from outside: header, pkg-config file, exported names, and a program built
# with them: shared, static, and as C++. Runs in the build folder, from make installcheck:
#   CC=... CXX=... check_install.sh ROOT LIBDIR INCLUDEDIR BINDIR     ROOT: what DESTDIR was, or ""
set -u
root=$1 libdir=$1$2 header=$1$3/rkv.h bin=$1$4
src=$(dirname "$0")
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
passed=0 failed=0 skipped=0
ok() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); echo "check_install: failed: $*" >&2; }
skip() { skipped=$((skipped + $1)); shift; echo "check_install: skipped: $*" >&2; }
try() { # try WHAT COMMAND...
    what=$1; shift
    if "$@"; then ok; else bad "$what"; false; fi
}

# The file names its final place; behind a DESTDIR the prefix is moved.
PKG_CONFIG_PATH=$libdir/pkgconfig export PKG_CONFIG_PATH
prefix=$root$(pkg-config --variable=prefix ripplekv)
pc() { pkg-config --define-variable=prefix="$prefix" "$@" ripplekv; }
try "ripplekv.pc has the version of rkv" test "rkv $(pc --modversion)," = "$("$bin/rkv" --version | cut -d' ' -f1-2)"

# build OUT COMPILER LANGUAGE-FLAGS LIBS: the consumer, without a warning
build() {
    # shellcheck disable=SC2046,SC2086
    $2 $3 -Wall -Wextra -Wpedantic -Werror -o "$work/$1" $(pc --cflags) "$src/consumer.c" -x none $4
}
run() { # run NAME: its output, in NAME.out
    LD_LIBRARY_PATH=$libdir "$work/$1" "$work/m.gguf" > "$work/$1.out" && [ "$(wc -l < "$work/$1.out")" = 10 ]
}
needs() { readelf -d "$work/$1" | grep -q 'NEEDED.*libripplekv'; }

./make_model --out "$work/m.gguf" || exit 1
static=$(pc --static --libs | sed 's/-lripplekv/-l:libripplekv.a/')
if try "static build" build static "$CC" "-std=c11" "$static" && try "static run" run static; then
    if needs static; then bad "the static program needs libripplekv.so"; else ok; fi
fi
"$bin/rkv" run -m "$work/m.gguf" -p "hello world, once more" -n 8 --json > "$work/run.json" 2> /dev/null
try "the answer of rkv" grep -q "\"tokens\":\[$(sed -n '2,9s/ .*//p' "$work/static.out" | paste -sd,)\]" "$work/run.json"

if [ -e "$libdir/libripplekv.so" ]; then
    try "shared build" build shared "$CC" "-std=c11" "$(pc --libs)" && try "shared run" run shared &&
        try "the shared program needs libripplekv.so" needs shared
    try "shared and static: the same output" cmp -s "$work/shared.out" "$work/static.out"
    sed -n 's/^RKV_API .*\(rkv_[a-z0-9_]*\)(.*/\1/p' "$header" | sort > "$work/declared"
    nm -D --defined-only "$libdir/libripplekv.so" | sed 's/.* //; s/@.*//' | sort > "$work/exported"
    try "rkv.h declares functions" test "$(wc -l < "$work/declared")" -gt 30
    try "the exported names are those of rkv.h" diff "$work/declared" "$work/exported" >&2
else
    skip 6 "no shared library in this build"
fi

link=$(pc --libs)
[ -e "$libdir/libripplekv.so" ] || link=$static
if command -v "${CXX:-g++}" > /dev/null; then
    try "C++ build" build cxx "${CXX:-g++}" "-x c++ -std=c++11" "$link" && try "C++ run" run cxx
    try "C and C++: the same output" cmp -s "$work/cxx.out" "$work/static.out"
else
    skip 3 "no C++ compiler"
fi
echo "check_install: $passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]

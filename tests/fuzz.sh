#!/bin/sh
# fuzz.sh TARGET SECONDS: builds tests/fuzz_TARGET.c with libFuzzer, ASan and UBSan (clang; no configure
# needed) and runs it from the corpus tests/corpus/TARGET. An input that crashes is left in the corpus,
# where make check replays it; the other inputs that were found are kept in the folder named at the end.
set -eu
test $# -eq 2 || { echo "usage: $0 TARGET SECONDS" >&2; exit 2; }
target=$1 seconds=$2
top=$(cd "$(dirname "$0")/.." && pwd)
corpus=$top/tests/corpus/$target
work=${TMPDIR:-/tmp}/rkv-fuzz-$target
test -f "$top/tests/fuzz_$target.c" || { echo "$0: no target $target" >&2; exit 2; }
clang=${CLANG:-$(command -v clang || command -v clang-14)}
mkdir -p "$work/found" "$corpus"
echo '#define PACKAGE_VERSION "fuzz"
#define _GNU_SOURCE 1' > "$work/config.h"
libraries="libcjson libutf8proc"
if pkg-config --exists libpcre2-8; then
    libraries="$libraries libpcre2-8"
    echo '#define HAVE_PCRE2 1' >> "$work/config.h"
fi
sources=$(find "$top/src/base" "$top/src/file" "$top/src/text" "$top/tests/tiny" -name '*.c' \
    -exec grep -L '^int main(' {} +)
# The seeds are small and every found input too: lengths beyond 4 KB only cost time.
"$clang" -std=c11 -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
    -I"$work" -I"$top/src" -I"$top/simd" -I"$top/tests" \
    $(pkg-config --cflags $libraries) \
    "$top/tests/fuzz_$target.c" $sources "$top/simd/dtypes.c" \
    $(pkg-config --libs $libraries) -lm -lpthread -o "$work/fuzz"
dictionary=
test -f "$top/tests/corpus/$target.dict" && dictionary=-dict=$top/tests/corpus/$target.dict
"$work/fuzz" $dictionary -max_total_time="$seconds" -max_len=4096 -timeout=10 -rss_limit_mb=2048 \
    -use_value_profile=1 -print_final_stats=1 -artifact_prefix="$corpus/" "$work/found" "$corpus"
echo "$0: inputs found are in $work/found"

#!/bin/sh
# Structure of the tree: every source file is in a makefile list, sizes stay within bounds, and folders
# include only what src/DESIGN.md allows them. Prints the line that tests/run counts.
set -u
cd "${srcdir:-.}" || exit 1
passed=0 failed=0
ok() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); echo "check_lists: $*" >&2; }

# every file on disk is named in the Makefile.inc of its folder or one above
for f in $(find src simd tools tests bench cuda -name '*.[ch]' -o -name '*.def' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cc'); do
    dir=$(dirname "$f") found=
    while [ "$dir" != . ]; do
        inc=$dir/Makefile.inc
        if [ -f "$inc" ] && grep -q "%D%/${f#"$dir"/}" "$inc"; then found=1; break; fi
        dir=$(dirname "$dir")
    done
    if [ -n "$found" ]; then ok; else bad "$f is in no Makefile.inc"; fi
done

# files of code up to 600 lines, lines up to 100 columns
for f in $(find src simd tools tests bench cuda -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cc'); do
    if [ "$(wc -l < "$f")" -le 600 ]; then ok; else bad "$f has $(wc -l < "$f") lines, at most 600"; fi
    long=$(awk 'length($0) > 100 {n++} END {print n + 0}' "$f")
    if [ "$long" = 0 ]; then ok; else bad "$f has $long lines over 100 columns"; fi
    if grep -qP '\t| +$' "$f"; then bad "$f has tabs or trailing blanks"; else ok; fi
done

# who may include whom: folder, then the folders it may name
may() {
    folder=$1; shift
    allowed=" $folder $* "
    for f in "src/$folder"/*.[ch]; do
        for to in $(sed -n 's/^#include "\([a-z]*\)\/.*/\1/p' "$f" | sort -u); do
            case $allowed in *" $to "*) ok ;; *) bad "$f includes $to/, allowed:$allowed" ;; esac
        done
    done
}
may base
may file base
may text base file
may backend base
may kv base backend
may model base file text backend
may policy base backend kv
may engine base file text backend kv model policy
may report base
may profile base file text backend kv model policy engine report
may eval base file text backend kv model policy engine profile report
may logits base
for f in simd/*.[ch] simd/*/*.[ch]; do
    if grep -qE '^#include "(base|file|text|backend|kv|model|policy|engine|report|profile|rkv)' "$f"; then
        bad "$f includes something of src"; else ok; fi
    if grep -qE '\b(malloc|calloc|realloc|free)\(|#pragma omp' "$f"; then
        bad "$f allocates or starts threads"; else ok; fi
done
for f in cuda/*; do
    if grep '^#include "' "$f" | grep -qvE '"(noise|backend/cuda_plugin|runtime|[a-z_0-9]+\.cuh)(\.h)?"'; then
        bad "$f includes more than it may"; else ok; fi
done
for f in tools/*.[ch]; do
    if grep '^#include "' "$f" | grep -qvE '"(config|rkv|opts|common|eval/eval)\.h"'; then
        bad "$f includes more than rkv.h and eval/eval.h"; else ok; fi
done

# words that promise later work
if grep -rnIE '\b(TODO|FIXME|XXX|HACK)\b' src simd tools bench cuda --include='*.[ch]' --include='*.cu' --include='*.cuh' \
    --include='*.sh'; then
    bad "promises of later work"; else ok; fi

echo "lists: $passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]

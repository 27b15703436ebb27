#!/bin/sh
# The machine code of the amx and vnni tiers, since no test may be able to run it: it holds the
# instructions, and no other tier does. Run in the build folder.
set -u
passed=0 failed=0
check() { # check TEXT COMMAND...
    text=$1
    shift
    if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "check_tier_code: $text" >&2; fi
}
end() { echo "tier code: $passed passed, $failed failed, $1 skipped"; [ "$failed" = 0 ] && exit "$2"; exit 1; }
objects() { find simd -name "$1" | grep -v /.libs/ ; }
amx=$(objects 'librkv_amx_la-*.o') vnni=$(objects 'librkv_vnni_la-*.o')
command -v objdump > /dev/null && [ -n "$amx" ] && [ -n "$vnni" ] || end 1 77
code() { objdump -d "$@" | sed -nE 's/.*\t(ldtilecfg|tilerelease|tilezero|tileloadd|tilestored|tdpbf16ps|vpdpwssd|vpdpbusd).*/\1/p'; }
[ "$(objdump -d $amx | grep -c '(bad)')" = 0 ] || end 1 77       # binutils before 2.35
for i in ldtilecfg tilerelease tileloadd tilezero tilestored; do
    check "no $i in $amx" [ "$(code $amx | grep -c "^$i")" -gt 0 ]
done
check "a block of 2 x 2 tiles and its edges take 9 products" [ "$(code $amx | grep -c tdpbf16ps)" -ge 9 ]
for o in $(objects '*.o' | grep -v librkv_amx_la); do
    check "$o has instructions of AMX" [ "$(code "$o" | grep -vc vpdp)" = 0 ]
done
for i in vpdpwssd vpdpbusd; do
    check "no $i in $vnni" [ "$(code $vnni | grep -c "^$i")" -gt 0 ]
done
for o in $(objects '*.o' | grep -v librkv_vnni_la); do
    check "$o has instructions of VNNI" [ "$(code "$o" | grep -c vpdp)" = 0 ]
done
end 0 0

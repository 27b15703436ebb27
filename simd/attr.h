/* What the compilers call differently. */
#ifndef RKV_ATTR_H
#define RKV_ATTR_H

#if defined __GNUC__
#define RKV_ALWAYS_INLINE inline __attribute__((always_inline))
#else
#define RKV_ALWAYS_INLINE inline
#endif

/* Before a loop: n rounds at a time. */
#define RKV_PRAGMA(text) _Pragma(#text)
#if defined __clang__
#define RKV_UNROLL(n) RKV_PRAGMA(clang loop unroll(full))
#elif defined __GNUC__
#define RKV_UNROLL(n) RKV_PRAGMA(GCC unroll n)
#else
#define RKV_UNROLL(n)
#endif

#endif

/* What the compilers call differently. */
#ifndef RKV_ATTR_H
#define RKV_ATTR_H

#if defined __GNUC__
#define RKV_ALWAYS_INLINE inline __attribute__((always_inline))
#else
#define RKV_ALWAYS_INLINE inline
#endif

/* Keeps two numbers in integer registers, of which there are plenty where they are put together:
 * gcc would do it in vectors, by shuffles. */
#if defined __GNUC__
#define RKV_INTEGERS(a, b) __asm__("" : "+r"(a), "+r"(b))
#else
#define RKV_INTEGERS(a, b) ((void)0)
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

/* Well-formed UTF-8, as RFC 3629 has it. */
#ifndef RKV_UTF8_H
#define RKV_UTF8_H

#include <stddef.h>

/* Bytes of the well-formed character at p, of which n >= 1 bytes are there; 0 when there is none.
 */
static inline size_t rkv_utf8_length(const unsigned char *p, size_t n)
{
    if (p[0] < 0x80)
        return 1;
    const size_t len = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    if (p[0] < 0xc2 || p[0] > 0xf4 || len > n)
        return 0;
    for (size_t i = 1; i < len; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    const int overlong = (p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xf0 && p[1] < 0x90);
    const int surrogate = p[0] == 0xed && p[1] > 0x9f;
    const int beyond = p[0] == 0xf4 && p[1] > 0x8f;
    return overlong || surrogate || beyond ? 0 : len;
}

/* Position of the first byte of n that is a NUL or no well-formed character; n when there is none.
 */
static inline size_t rkv_utf8_check(const void *text, size_t n)
{
    const unsigned char *p = text;
    size_t i = 0;
    while (i < n) {
        const size_t len = p[i] ? rkv_utf8_length(p + i, n - i) : 0;
        if (!len)
            break;
        i += len;
    }
    return i;
}

#endif

#include "config.h"
#include "text/unicode.h"

#include <utf8proc.h>

#include "base/utf8.h"

enum { L = RKV_CLASS_LETTER, N = RKV_CLASS_NUMBER, S = RKV_CLASS_SPACE, o = RKV_CLASS_OTHER };

const char rkv_ascii_class[128] = {
    o, o, o, o, o, o, o, o, o, S, S, S, S, S, o, o,     /* tab to carriage return */
    o, o, o, o, o, o, o, o, o, o, o, o, o, o, o, o,
    S, o, o, o, o, o, o, o, o, o, o, o, o, o, o, o,
    N, N, N, N, N, N, N, N, N, N, o, o, o, o, o, o,
    o, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L,
    L, L, L, L, L, L, L, L, L, L, L, o, o, o, o, o,
    o, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L,
    L, L, L, L, L, L, L, L, L, L, L, o, o, o, o, o,
};

static unsigned char class_of(uint32_t c)
{
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_LU: case UTF8PROC_CATEGORY_LL: case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM: case UTF8PROC_CATEGORY_LO:
        return L;
    case UTF8PROC_CATEGORY_ND: case UTF8PROC_CATEGORY_NL: case UTF8PROC_CATEGORY_NO:
        return N;
    case UTF8PROC_CATEGORY_ZS: case UTF8PROC_CATEGORY_ZL: case UTF8PROC_CATEGORY_ZP:
        return S;
    default:
        return c == 0x85 ? S : o;               /* NEXT LINE is white space by property only */
    }
}

rkv_char rkv_char_wide(const unsigned char *p, size_t n)
{
    const size_t len = rkv_utf8_length(p, n);
    if (!len)
        return (rkv_char){o, 1};
    return (rkv_char){class_of(rkv_utf8_decode(p, len)), (unsigned char)len};
}

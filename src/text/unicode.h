/* Characters and their classes, as far as pre-tokenizers tell them apart.
 * Any bytes are text: one that belongs to no well-formed character is a character of its own, of
 * class RKV_CLASS_OTHER. */
#ifndef RKV_UNICODE_H
#define RKV_UNICODE_H

#include <stddef.h>
#include <stdint.h>

/* \p{L}, \p{N}, the property White_Space, and the rest. */
enum {
    RKV_CLASS_LETTER = 'L',
    RKV_CLASS_NUMBER = 'N',
    RKV_CLASS_SPACE = 'S',
    RKV_CLASS_OTHER = 'o'
};

typedef struct rkv_char {
    unsigned char class, length;        /* length in bytes, >= 1 */
} rkv_char;

extern const char rkv_ascii_class[128];

/* The character at p, of which n >= 1 bytes are there; p[0] >= 0x80. */
rkv_char rkv_char_wide(const unsigned char *p, size_t n);

/* The character at text[pos], pos < end. */
static inline rkv_char rkv_char_at(const char *text, size_t pos, size_t end)
{
    const unsigned char c = (unsigned char)text[pos];
    if (c < 0x80)
        return (rkv_char){(unsigned char)rkv_ascii_class[c], 1};
    return rkv_char_wide((const unsigned char *)text + pos, end - pos);
}

/* Code point of a well-formed character of len bytes. */
static inline uint32_t rkv_utf8_decode(const unsigned char *p, size_t len)
{
    static const unsigned char lead[5] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    uint32_t c = p[0] & lead[len];
    for (size_t i = 1; i < len; i++)
        c = c << 6 | (p[i] & 0x3f);
    return c;
}

#endif

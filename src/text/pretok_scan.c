/* The frequent pre-tokenizers by hand: one pass, one character of lookahead, no backtracking. */
#include "config.h"
#include "text/pretok_table.h"

#include "text/unicode.h"

static size_t class_end(const char *text, size_t pos, size_t end, int class)
{
    while (pos < end) {
        const rkv_char c = rkv_char_at(text, pos, end);
        if (c.class != class)
            break;
        pos += c.length;
    }
    return pos;
}

static int is_newline(char c)
{
    return c == '\n' || c == '\r';
}

/* Length of 's 't 'm 'd 're 've 'll at pos; 0: none. fold is 0x20 to take capitals too, or 0. */
static size_t contraction(const char *text, size_t pos, size_t end, int fold)
{
    if (text[pos] != '\'' || end - pos < 2)
        return 0;
    const int a = text[pos + 1] | fold;
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    if (end - pos < 3)
        return 0;
    const int b = text[pos + 2] | fold;
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

/* White space at pos: all of it at the end of the text, else all but the last character, which goes
 * to the word that follows, unless it is alone. With lines, up to the last line break if any.
 * Expressions: \s*[\r\n]+|\s+(?!\S)|\s+ */
static size_t space_end(const char *text, size_t pos, size_t end, int lines)
{
    size_t p = pos, last = pos, newline = 0;
    while (p < end) {
        const rkv_char c = rkv_char_at(text, p, end);
        if (c.class != RKV_CLASS_SPACE)
            break;
        last = p;
        p += c.length;
        if (is_newline(text[last]))
            newline = p;
    }
    if (lines && newline)
        return newline;
    return p == end || last == pos ? p : last;
}

size_t rkv_pretok_scan_gpt2(const char *text, size_t pos, size_t end)
{
    const size_t apostrophe = contraction(text, pos, end, 0);
    if (apostrophe)
        return pos + apostrophe;
    const size_t p = pos + (text[pos] == ' ');
    if (p < end) {
        const rkv_char c = rkv_char_at(text, p, end);
        if (c.class != RKV_CLASS_SPACE)
            return class_end(text, p + c.length, end, c.class);
    }
    return space_end(text, pos, end, 0);
}

size_t rkv_pretok_scan_digit(const char *text, size_t pos, size_t end)
{
    rkv_char c = rkv_char_at(text, pos, end);
    if (c.class == RKV_CLASS_NUMBER)
        return pos + c.length;
    do {
        pos += c.length;
        if (pos == end)
            break;
        c = rkv_char_at(text, pos, end);
    } while (c.class != RKV_CLASS_NUMBER);
    return pos;
}

/* The expressions of Llama 3 and Qwen 2, which differ in how many digits make a word. */
static size_t scan_lines(const char *text, size_t pos, size_t end, int max_digits)
{
    const size_t apostrophe = contraction(text, pos, end, 0x20);
    if (apostrophe)
        return pos + apostrophe;
    const rkv_char c = rkv_char_at(text, pos, end);
    size_t p = pos + c.length;
    if (c.class == RKV_CLASS_NUMBER) {
        for (int i = 1; i < max_digits && p < end; i++) {
            const rkv_char d = rkv_char_at(text, p, end);
            if (d.class != RKV_CLASS_NUMBER)
                break;
            p += d.length;
        }
        return p;
    }
    const int next = p < end ? rkv_char_at(text, p, end).class : 0;
    if (c.class == RKV_CLASS_LETTER || (next == RKV_CLASS_LETTER && !is_newline(text[pos])))
        return class_end(text, p, end, RKV_CLASS_LETTER);
    if (c.class == RKV_CLASS_OTHER || (text[pos] == ' ' && next == RKV_CLASS_OTHER)) {
        p = class_end(text, p, end, RKV_CLASS_OTHER);
        while (p < end && is_newline(text[p]))
            p++;
        return p;
    }
    return space_end(text, pos, end, 1);
}

size_t rkv_pretok_scan_llama3(const char *text, size_t pos, size_t end)
{
    return scan_lines(text, pos, end, 3);
}

size_t rkv_pretok_scan_qwen2(const char *text, size_t pos, size_t end)
{
    return scan_lines(text, pos, end, 1);
}

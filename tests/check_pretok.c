/* Pre-tokenizers: the hand-written scanners against PCRE2 running the expressions they stand for,
 * and the classes of characters against PCRE2's. */
#include "config.h"
#include "check.h"

#include <string.h>

#include "base/mem.h"
#include "noise.h"
#include "text/pretok.h"
#include "text/regex.h"
#include "text/unicode.h"

#ifdef HAVE_PCRE2
static uint64_t seed_word;
static unsigned char *known;    /* [0x110000]: both libraries put the character into one class */

static size_t below(size_t n)
{
    return (size_t)(rkv_noise_word(23, seed_word++) % n);
}

static size_t put_utf8(char *p, uint32_t c)
{
    if (c < 0x80) {
        p[0] = (char)c;
        return 1;
    }
    const int n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (int i = n - 1; i > 0; i--, c >>= 6)
        p[i] = (char)(0x80 | (c & 0x3f));
    p[0] = (char)((0xf00 >> n & 0xff) | c);
    return (size_t)n;
}

/* Which of the expressions matches the character: one letter per class. */
static int class_by_regex(rkv_regex **r, rkv_regex_work *w, const char *p, size_t n)
{
    static const char class[] = "LNSo?";
    for (int i = 0; i < 4; i++) {
        size_t begin, end;
        if (!rkv_regex_find(r[i], w, p, n, 0, &begin, &end, NULL) && begin < end)
            return class[i];
    }
    return class[4];
}

/* Compares all characters; those that one library does not know yet are kept out of texts. */
static void check_classes(void)
{
    static const char space[] = "[\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}"
                                "\\x{2029}\\x{202f}\\x{205f}\\x{3000}]";
    static const char *const pattern[] = {"\\p{L}", "\\p{N}", space, "\\P{Cn}"};
    rkv_regex *r[4] = {NULL};
    rkv_regex_work *w = NULL;
    rkv_error e = {0};
    for (int i = 0; i < 4; i++)
        CHECK(!rkv_regex_create(&r[i], pattern[i], "classes", &e), "%s", e.text);
    CHECK(!rkv_regex_work_create(&w, &e), "%s", e.text);
    int differ = 0, unknown = 0;
    for (uint32_t c = 0; c < 0x110000; c++) {
        char p[4];
        if (c >= 0xd800 && c < 0xe000)
            continue;
        const size_t n = put_utf8(p, c);
        const rkv_char got = rkv_char_at(p, 0, n);
        const int want = class_by_regex(r, w, p, n);
        known[c] = got.class == want && got.length == n;
        unknown += want == '?';
        /* PCRE2 does not know it (yet), or we do not; anything else is a mistake. */
        differ += !known[c] && want != '?' && got.class != RKV_CLASS_OTHER;
    }
    CHECK(differ == 0, "%d characters are in another class", differ);
    CHECK(unknown < 0x110000 - 200000, "%d characters unknown", unknown);
    for (int i = 0; i < 4; i++)
        rkv_regex_free(r[i]);
    rkv_regex_work_free(w);
}

/* A text of one of several flavours; returns its length. */
static size_t random_text(char *text, size_t room)
{
    static const char ascii[] = "aZ09 \t\n\r'stdmrevlSTREVL.,!<|>_\x0b\x0c\x1f\x7f";
    static const uint32_t wide[] = {0x85,   0xa0,     0x180e, 0x2000,  0x2028, 0x3000,  0xe9,
                                    0xc9,   0x1c5,    0x2b0,  0x301,   0x660,  0x2163,  0xbd,
                                    0x4e2d, 0x3042,   0xac00, 0x1f642, 0x200d, 0x1d7ce, 0x20ac,
                                    0xfffd, 0x10ffff, 0xe000, 0xfeff,  0x17f,  0x212a,  0x130};
    const size_t flavour = below(5), n_char = below(24);
    size_t n = 0;
    for (size_t i = 0; i < n_char && n + 4 <= room; i++) {
        if (flavour == 0 || (flavour < 3 && below(2)))
            text[n++] = ascii[below(sizeof ascii - 1)];
        else if (flavour == 4 && below(2))
            text[n++] = (char)below(256);               /* mostly stray bytes */
        else if (flavour == 3) {
            const uint32_t c = (uint32_t)below(0x110000);
            n += known[c] ? put_utf8(text + n, c) : 0;
        } else
            n += put_utf8(text + n, wide[below(sizeof wide / sizeof *wide)]);
    }
    return n;
}

/* Both cut the text alike, and into pieces that make up the whole. */
static int same_words(rkv_pretok_run *a, rkv_pretok_run *b, const char *text, size_t n,
                      rkv_error *e)
{
    if (rkv_pretok_start(a, text, n, e) || rkv_pretok_start(b, text, n, e))
        return 0;
    size_t at = 0, begin, end, other, other_end;
    do {
        if (rkv_pretok_next(a, &begin, &end, e) || rkv_pretok_next(b, &other, &other_end, e) ||
            begin != at || begin != other || end != other_end)
            return 0;
        at = end;
    } while (begin < end);
    return at == n;
}

static int has_unknown(const char *text, size_t n)
{
    for (size_t i = 0; i < n;) {
        const rkv_char c = rkv_char_at(text, i, n);
        if (c.length > 1 && !known[rkv_utf8_decode((const unsigned char *)text + i, c.length)])
            return 1;
        i += c.length;
    }
    return 0;
}

static void check_scanner(const char *name)
{
    const rkv_pretok_desc *d = rkv_pretok_find(name, strlen(name));
    rkv_pretok *by_hand = NULL, *by_regex = NULL;
    rkv_pretok_run *a = NULL, *b = NULL;
    rkv_error e = {0};
    CHECK(d && rkv_pretok_scanner(d->pass[0]), "%s has no scanner", name);
    CHECK(!rkv_pretok_create(&by_hand, d, 0, name, &e) && !rkv_pretok_run_create(&a, by_hand, &e),
          "%s", e.text);
    CHECK(!rkv_pretok_create(&by_regex, d, 1, name, &e) && !rkv_pretok_run_create(&b, by_regex, &e),
          "%s", e.text);
    for (int i = 0; a && b && i < 60000; i++) {
        char text[128];
        const size_t n = random_text(text, sizeof text);
        if (has_unknown(text, n))
            continue;
        CHECK(same_words(a, b, text, n, &e), "%s cuts '%.*s' differently %s", name, (int)n, text,
              e.text);
    }
    rkv_pretok_run_free(a);
    rkv_pretok_run_free(b);
    rkv_pretok_free(by_hand);
    rkv_pretok_free(by_regex);
}

#endif

/* Words that the expressions of a name cut a text into, with '|' between. */
static void check_words(const char *name, const char *text, const char *want)
{
    const rkv_pretok_desc *d = rkv_pretok_find(name, strlen(name));
    rkv_pretok *p = NULL;
    rkv_pretok_run *r = NULL;
    rkv_error e = {0};
    const rkv_status s = d ? rkv_pretok_create(&p, d, 0, name, &e) : RKV_E_ARG;
    if (s == RKV_E_UNSUPPORTED) {
        SKIP(1, "%s", e.text);
        return;
    }
    CHECK(!s && !rkv_pretok_run_create(&r, p, &e) && !rkv_pretok_start(r, text, strlen(text), &e),
          "%s: %s", name, e.text);
    char got[256];
    size_t n = 0, begin = 0, end = 0;
    while (r && !rkv_pretok_next(r, &begin, &end, &e) && begin < end)
        n += (size_t)snprintf(got + n, sizeof got - n, "%s%.*s", n ? "|" : "", (int)(end - begin),
                              text + begin);
    CHECK(end == strlen(text) && !strcmp(got, want), "%s: '%s', expected '%s'", name, got, want);
    rkv_pretok_run_free(r);
    rkv_pretok_free(p);
}

int main(void)
{
    check_words("gpt-2", "I'll  say 'Tis 1234!!\n\n x", "I|'ll| | say| '|Tis| 1234|!!|\n\n| x");
    check_words("smollm", "in 1234.\n", "in| |1|2|3|4|.|\n");
    check_words("llama3", "I'LL say\n\n  1234!\n\nx\t(y",
                "I|'LL| say|\n\n| | |123|4|!\n\n|x|\t|(y");
    check_words("qwen2", "a 12\r\n  b", "a| |1|2|\r\n| | b");
    check_words("default", "a-b 12345", "a|-|b| |123|45");
    check_words("falcon", "a`b 12345", "a|`|b| |123|45");
    check_words("gpt-4o", "HelloWORLDs it's 1234", "Hello|WORLDs| it's| |123|4");
    check_words("tekken", "\xc3\x89""COLE it's 12", "\xc3\x89""COLE| it|'s| |1|2");
    check_words("deepseek-llm", "a, b\n  c  ", "a|,| b|\n| | c|  ");
    check_words("deepseek-v3", "x.1234 y\n", "x|.|123|4| y|\n");
    CHECK(!rkv_pretok_find("gpt", 3) && !rkv_pretok_find("", 0) && !rkv_pretok_find("gpt-2 ", 6),
          "names");
    CHECK(rkv_pretok_find("phi-2", 5) == rkv_pretok_find("exaone4", 7), "aliases");
#ifdef HAVE_PCRE2
    known = rkv_mem_calloc(0x110000, 1);
    if (!known)
        return 1;
    check_classes();
    check_scanner("gpt-2");
    check_scanner("smollm");
    check_scanner("llama-bpe");
    check_scanner("qwen2");
    rkv_mem_free(known);
#else
    SKIP(4, "built without PCRE2, which is what the scanners are compared with");
#endif
    return check_end("pretok");
}

/* Template text to tokens, with the whitespace control of jinja2 (trim_blocks, lstrip_blocks). */
#include "config.h"
#include "text/chat_ast.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include <utf8proc.h>

#include "base/hash.h"
#include "base/mem.h"

typedef struct lexer {
    jctx *c;
    const char *s;              /* the text with all newlines as \n */
    size_t n, pos;
    jtoken *t;
    size_t n_t, cap_t;
    char bracket[RKV_CHAT_MAX_NESTING];         /* the closing ones that are due */
    int n_bracket;
} lexer;

static rkv_status lex_fail(lexer *x, const char *what)
{
    return rkv_j_fail(x->c, RKV_E_FORMAT, "%s", what);
}

/* The slot of a name in a table of cap slots: its own, or the empty one where it belongs. */
static rkv_status find_slot(jctx *c, jname **table, size_t cap, const char *s, size_t n,
                            jname ***out)
{
    rkv_hash h = rkv_hash_init();
    rkv_hash_add(&h, s, n);
    for (size_t at = rkv_hash_end(&h);; at++) {
        jname **slot = &table[at & (cap - 1)];
        if (!*slot || ((*slot)->n == n && !memcmp((*slot)->s, s, n))) {
            *out = slot;
            return RKV_OK;
        }
        RKV_TRY(rkv_j_step(c, 1));              /* names may be chosen to collide */
    }
}

static rkv_status grow_names(jctx *c)
{
    const size_t cap = c->cap_name ? c->cap_name * 2 : 64;
    jname **table = rkv_mem_calloc(cap, sizeof *table);
    if (!table)
        return rkv_j_fail(c, RKV_E_MEM, "out of memory for %zu names", cap);
    rkv_status s = RKV_OK;
    for (size_t i = 0; i < c->cap_name && !s; i++) {
        jname **slot, *name = c->names[i];
        if (name && !(s = find_slot(c, table, cap, name->s, name->n, &slot)))
            *slot = name;
    }
    rkv_mem_free(c->names);
    c->names = table;
    c->cap_name = cap;
    return s;
}

rkv_status rkv_j_intern(jctx *c, const char *s, size_t n, const jname **out)
{
    jname **slot;
    if (c->n_name * 2 >= c->cap_name)
        RKV_TRY(grow_names(c));
    RKV_TRY(find_slot(c, c->names, c->cap_name, s, n, &slot));
    if (!*slot) {
        jname *name = rkv_j_alloc(c, sizeof *name + n + 1);
        if (!name)
            return c->status;
        name->n = n;
        memcpy(name->s, s, n);
        name->s[n] = 0;
        *slot = name;
        c->n_name++;
    }
    *out = *slot;
    return RKV_OK;
}

static rkv_status add(lexer *x, int type, const jval *val, jtoken **out)
{
    if (x->n_t == x->cap_t) {
        const size_t cap = x->cap_t * 2 + 64;
        jtoken *t = rkv_j_alloc(x->c, cap * sizeof *t);
        if (!t)
            return x->c->status;
        if (x->n_t)
            memcpy(t, x->t, x->n_t * sizeof *t);
        x->t = t;
        x->cap_t = cap;
    }
    jtoken *t = &x->t[x->n_t++];
    *t = (jtoken){.type = type, .line = x->c->line};
    if (val)
        t->val = *val;
    if (out)
        *out = t;
    return RKV_OK;
}

/* ---- moving through the text ----------------------------------------------------------------- */

static void advance(lexer *x, size_t to)
{
    for (; x->pos < to; x->pos++)
        x->c->line += x->s[x->pos] == '\n';
}

static int starts(const lexer *x, size_t pos, const char *with)
{
    const size_t n = strlen(with);
    return x->n - pos >= n && !memcmp(x->s + pos, with, n);
}

static size_t skip_space(const lexer *x, size_t pos)
{
    uint32_t cp;
    while (pos < x->n) {
        const size_t len = rkv_j_decode(x->s + pos, x->n - pos, &cp);
        if (!rkv_j_is_space(cp))
            break;
        pos += len;
    }
    return pos;
}

/* End of a closing mark ("%}") at pos with its whitespace control; 0 when there is none. */
static size_t closing(const lexer *x, size_t pos, const char *mark)
{
    const int is_print = *mark == '}';
    if (starts(x, pos, mark))
        return pos + 2 + (!is_print && pos + 2 < x->n && x->s[pos + 2] == '\n');
    if (pos >= x->n || !starts(x, pos + 1, mark))
        return 0;
    if (x->s[pos] == '-')
        return skip_space(x, pos + 3);
    return x->s[pos] == '+' && !is_print ? pos + 3 : 0;
}

/* Position of the next closing mark at or after pos, x->n when there is none. */
static size_t find_closing(const lexer *x, size_t pos, const char *mark)
{
    while (pos < x->n && !closing(x, pos, mark))
        pos++;
    return pos;
}

/* ---- literals -------------------------------------------------------------------------------- */

static int hex_digits(const char *p, const char *end, int n, uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < n; i++) {
        if (p + i >= end || !isxdigit((unsigned char)p[i]))
            return 0;
        *out = *out << 4 | (uint32_t)(isdigit((unsigned char)p[i]) ? p[i] - '0' : (p[i] & 7) + 9);
    }
    return 1;
}

/* The escape after a backslash at p; what Python's codec "unicode-escape" makes of the text with
 * its other characters written as escapes beforehand, which is how jinja2 gets there. */
static rkv_status unescape(lexer *x, const char **at, const char *end)
{
    static const char letters[] = "abfnrtv\\'\"", meaning[] = "\a\b\f\n\r\t\v\\'\"";
    const char *p = *at, *known = *p ? strchr(letters, *p) : NULL;
    jctx *c = x->c;
    if (known) {
        *at = p + 1;
        return rkv_j_put_char(c, (uint32_t)meaning[known - letters]);
    }
    if (*p == '\n') {
        *at = p + 1;
        return RKV_OK;
    }
    uint32_t cp = 0;
    if (*p >= '0' && *p <= '7') {
        for (int i = 0; i < 3 && p < end && *p >= '0' && *p <= '7'; i++)
            cp = cp << 3 | (uint32_t)(*p++ - '0');
        *at = p;
        return rkv_j_put_char(c, cp);
    }
    if (*p == 'x' || *p == 'u' || *p == 'U') {
        const int n = *p == 'x' ? 2 : *p == 'u' ? 4 : 8;
        if (!hex_digits(p + 1, end, n, &cp) || cp > 0x10ffff)
            return lex_fail(x, "bad \\x, \\u or \\U escape in a string");
        if (cp >= 0xd800 && cp < 0xe000)
            return rkv_j_fail(c, RKV_E_UNSUPPORTED, "a lone surrogate in a string");
        *at = p + 1 + n;
        return rkv_j_put_char(c, cp);
    }
    if (*p == 'N')
        return rkv_j_fail(c, RKV_E_UNSUPPORTED, "a \\N{...} escape in a string");
    *at = p + rkv_j_decode(p, (size_t)(end - p), &cp);
    RKV_TRY(rkv_j_put(c, "\\", 1));
    if (cp < 0x80)
        return rkv_j_put_char(c, cp);
    char hex[12];
    snprintf(hex, sizeof hex,
             cp < 0x100     ? "x%02x"
             : cp < 0x10000 ? "u%04x"
                            : "U%08x",
             (unsigned)cp);
    return rkv_j_put(c, hex, strlen(hex));
}

static rkv_status string(lexer *x, size_t end)
{
    const char *p = x->s + x->pos + 1, *stop = x->s + end - 1;
    jval v = rkv_j_string(p, (size_t)(stop - p));
    if (memchr(p, '\\', v.n)) {
        const size_t mark = x->c->out.n;
        while (p < stop) {
            const char *q = memchr(p, '\\', (size_t)(stop - p));
            RKV_TRY(rkv_j_put(x->c, p, (size_t)((q ? q : stop) - p)));
            p = q ? q + 1 : stop;
            if (q)
                RKV_TRY(unescape(x, &p, stop));
        }
        RKV_TRY(rkv_j_take(x->c, mark, &v));
    }
    RKV_TRY(add(x, T_STRING, &v, NULL));
    advance(x, end);
    return RKV_OK;
}

/* End of the string literal at pos, 0 when it is not closed. */
static size_t string_end(const lexer *x, size_t pos)
{
    const char quote = x->s[pos++];
    for (; pos < x->n; pos++) {
        if (x->s[pos] == quote)
            return pos + 1;
        pos += x->s[pos] == '\\';
    }
    return 0;
}

/* Length of digits with single underscores between them. */
static size_t digits(const lexer *x, size_t pos)
{
    size_t p = pos;
    while (p < x->n && ((x->s[p] >= '0' && x->s[p] <= '9') ||
                        (x->s[p] == '_' && p > pos && x->s[p - 1] != '_' && p + 1 < x->n &&
                         x->s[p + 1] >= '0' && x->s[p + 1] <= '9')))
        p++;
    return p - pos;
}

/* Length of a literal with a fraction or an exponent at pos, else 0. */
static size_t float_length(const lexer *x, size_t pos)
{
    size_t p = pos + digits(x, pos), n;
    if (p == pos || (pos > 0 && x->s[pos - 1] == '.'))
        return 0;
    int is_float = 0;
    if (p < x->n && x->s[p] == '.' && (n = digits(x, p + 1))) {
        p += 1 + n;
        is_float = 1;
    }
    if (p < x->n && (x->s[p] | 0x20) == 'e') {
        const size_t sign = p + 1 < x->n && (x->s[p + 1] == '+' || x->s[p + 1] == '-');
        if ((n = digits(x, p + 1 + sign))) {
            p += 1 + sign + n;
            is_float = 1;
        }
    }
    return is_float ? p - pos : 0;
}

static size_t integer_length(const lexer *x, size_t pos)
{
    static const char *const prefix[] = {"xX", "oO", "bB"},
                      *const digit[] = {"0123456789abcdefABCDEF", "01234567", "01"};
    for (size_t k = 0; k < 3 && x->s[pos] == '0' && pos + 1 < x->n; k++) {
        size_t p = pos + 2;
        if (!x->s[pos + 1] || !strchr(prefix[k], x->s[pos + 1]))
            continue;
        for (;;) {
            const size_t q = p + (p < x->n && x->s[p] == '_');
            if (q >= x->n || !x->s[q] || !strchr(digit[k], x->s[q]))
                break;
            p = q + 1;
        }
        if (p > pos + 2)
            return p - pos;
    }
    size_t n = digits(x, pos);
    if (x->s[pos] == '0') {                     /* zeros only */
        size_t p = pos + 1;
        while (p < pos + n && (x->s[p] == '0' || (x->s[p] == '_' && x->s[p + 1] == '0')))
            p++;
        n = p - pos;
    }
    return n;
}

static rkv_status number(lexer *x)
{
    const char *p = x->s + x->pos;
    size_t n = float_length(x, x->pos);
    jval v;
    if (n) {
        double f;
        if (!rkv_j_parse_float(p, n, &f) || f > 1.7976931348623157e308)
            return lex_fail(x, "a number is out of range");
        v = rkv_j_float(f);
    } else {
        int64_t i = 0;
        n = integer_length(x, x->pos);
        const int ok = rkv_j_parse_int(p, n, 0, &i);
        if (ok <= 0)
            return ok ? rkv_j_fail(x->c, RKV_E_ARG, "an integer is beyond 64 bits")
                      : lex_fail(x, "not an integer");
        v = rkv_j_int(i);
    }
    x->pos += n;
    return add(x, T_NUMBER, &v, NULL);
}

/* ---- names and operators --------------------------------------------------------------------- */

/* 0: not part of a name, 1: part, 2: may also start one. */
static int name_char(uint32_t cp)
{
    if (cp < 0x80) {
        const int letter = (cp | 0x20) >= 'a' && (cp | 0x20) <= 'z';
        return letter || cp == '_' ? 2 : cp >= '0' && cp <= '9';
    }
    const utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)cp);
    if (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO)
        return 2;
    return (k >= UTF8PROC_CATEGORY_MN && k <= UTF8PROC_CATEGORY_NO) || k == UTF8PROC_CATEGORY_PC;
}

static rkv_status name(lexer *x, int *found)
{
    uint32_t cp;
    size_t p = x->pos;
    int first = 0;
    while (p < x->n) {
        const size_t len = rkv_j_decode(x->s + p, x->n - p, &cp);
        const int kind = name_char(cp);
        if (!kind)
            break;
        if (p == x->pos)
            first = kind;
        p += len;
    }
    *found = p > x->pos;
    if (!*found)
        return RKV_OK;
    if (first != 2)
        return lex_fail(x, "invalid character in identifier");
    jtoken *t;
    RKV_TRY(add(x, T_NAME, NULL, &t));
    RKV_TRY(rkv_j_intern(x->c, x->s + x->pos, p - x->pos, &t->name));
    x->pos = p;
    return RKV_OK;
}

static rkv_status bracket(lexer *x, char ch)
{
    static const char opening[] = "([{", shutting[] = ")]}";
    const char *open = strchr(opening, ch), *shut = strchr(shutting, ch);
    if (open) {
        if (x->n_bracket == RKV_CHAT_MAX_NESTING)
            return RKV_J_LIMIT(x->c, NESTING);
        x->bracket[x->n_bracket++] = shutting[open - opening];
    } else if (shut && (!x->n_bracket || x->bracket[--x->n_bracket] != ch)) {
        return rkv_j_fail(x->c, RKV_E_FORMAT, "unexpected '%c'", ch);
    }
    return RKV_OK;
}

static rkv_status operator(lexer *x)
{
    static const struct {
        char text[3];
        int type;
    } twice[] = {{"//", T_FLOORDIV}, {"**", T_POW}, {"==", T_EQ},
                 {"!=", T_NE},       {">=", T_GE},  {"<=", T_LE}};
    for (size_t i = 0; i < sizeof twice / sizeof *twice; i++)
        if (starts(x, x->pos, twice[i].text)) {
            x->pos += 2;
            return add(x, twice[i].type, NULL, NULL);
        }
    const char ch = x->s[x->pos];
    if (!ch || !strchr("+-/*%~[](){}><=.:|,;", ch))
        return rkv_j_fail(x->c, RKV_E_FORMAT, "unexpected character '%c'",
                          ch >= ' ' && ch < 0x7f ? ch : '?');
    RKV_TRY(bracket(x, ch));
    x->pos++;
    return add(x, ch, NULL, NULL);
}

/* ---- the parts of a template ----------------------------------------------------------------- */

static rkv_status token(lexer *x)
{
    const char ch = x->s[x->pos];
    if (ch >= '0' && ch <= '9')
        return number(x);
    const size_t end = ch == '\'' || ch == '"' ? string_end(x, x->pos) : 0;
    if (end)
        return string(x, end);
    int found;
    RKV_TRY(name(x, &found));
    return found ? RKV_OK : operator(x);
}

/* Inside {% %} or {{ }}, up to and with its end. */
static rkv_status tag(lexer *x, const char *mark, int end_type)
{
    x->n_bracket = 0;
    while (x->pos < x->n) {
        const size_t end = x->n_bracket ? 0 : closing(x, x->pos, mark);
        if (end) {
            RKV_TRY(add(x, end_type, NULL, NULL));
            advance(x, end);
            return RKV_OK;
        }
        const size_t next = skip_space(x, x->pos);
        if (next > x->pos)
            advance(x, next);
        else
            RKV_TRY(token(x));
    }
    return RKV_OK;                              /* the parser finds the end missing */
}

/* Data before a tag whose whitespace sign is sign. */
static rkv_status data(lexer *x, size_t end, char sign, int is_print)
{
    jval v = rkv_j_string(x->s + x->pos, end - x->pos);
    if (sign == '-') {
        v = rkv_j_strip(&v, NULL, 2);
    } else if (sign != '+' && !is_print && v.n) {
        size_t line = v.n;
        while (line && v.s[line - 1] != '\n')
            line--;
        const int at_start = line > 0 || x->pos == 0 || x->s[x->pos - 1] == '\n';
        if (at_start && skip_space(x, x->pos + line) >= end)
            v.n = line;
    }
    if (v.n)
        RKV_TRY(add(x, T_DATA, &v, NULL));
    advance(x, end);
    return RKV_OK;
}

static char sign_at(const lexer *x, size_t pos)
{
    return pos < x->n && (x->s[pos] == '-' || x->s[pos] == '+') ? x->s[pos] : 0;
}

/* End of "{%- word" at pos followed by a closing mark; 0: something else. *close: where that
 * stands. */
static size_t word_tag(const lexer *x, size_t pos, const char *word, size_t *close)
{
    if (!starts(x, pos, "{%"))
        return 0;
    size_t p = skip_space(x, pos + 2 + !!sign_at(x, pos + 2));
    if (!starts(x, p, word))
        return 0;
    *close = p = skip_space(x, p + strlen(word));
    return closing(x, p, "%}");
}

static rkv_status raw(lexer *x, size_t end)
{
    advance(x, end);
    size_t close;
    for (size_t p = x->pos; p < x->n; p++) {
        if ((end = word_tag(x, p, "endraw", &close))) {
            RKV_TRY(data(x, p, sign_at(x, p + 2), 0));
            advance(x, end);
            return RKV_OK;
        }
    }
    return x->pos < x->n ? lex_fail(x, "missing end of raw directive") : RKV_OK;
}

static rkv_status comment(lexer *x, size_t begin)
{
    advance(x, begin);
    const size_t p = find_closing(x, x->pos, "#}");
    if (p >= x->n && x->pos < x->n)
        return lex_fail(x, "missing end of comment tag");
    if (p < x->n)
        advance(x, closing(x, p, "#}"));
    return RKV_OK;
}

/* One stretch of data and the tag after it. */
static rkv_status part(lexer *x)
{
    size_t p = x->pos;
    while (p < x->n &&
           !(x->s[p] == '{' && p + 1 < x->n && x->s[p + 1] && strchr("%{#", x->s[p + 1])))
        p++;
    if (p >= x->n)
        return data(x, x->n, '+', 0);
    const char kind = x->s[p + 1], sign = sign_at(x, p + 2);
    const size_t begin = p + 2 + !!sign;
    size_t close = 0, end = word_tag(x, p, "raw", &close);
    RKV_TRY(data(x, p, sign, kind == '{'));
    if (end && x->s[close] != '+')              /* raw knows no trim_blocks and no + at its begin */
        return raw(x, x->s[close] == '-' ? end : close + 2);
    if (kind == '#')
        return comment(x, begin);
    RKV_TRY(add(x, kind == '{' ? T_PRINT_BEGIN : T_BLOCK_BEGIN, NULL, NULL));
    advance(x, begin);
    return kind == '{' ? tag(x, "}}", T_PRINT_END) : tag(x, "%}", T_BLOCK_END);
}

/* All newlines become \n, and one at the very end is dropped. */
static rkv_status normalize(jctx *c, const char *text, size_t n, lexer *x)
{
    char *s = rkv_j_alloc(c, n);
    if (!s)
        return c->status;
    size_t m = 0;
    for (size_t i = 0; i < n; i++) {
        s[m++] = text[i] == '\r' ? '\n' : text[i];
        i += text[i] == '\r' && i + 1 < n && text[i + 1] == '\n';
    }
    m -= m > 0 && s[m - 1] == '\n';
    x->s = s;
    x->n = m;
    return RKV_OK;
}

rkv_status rkv_j_lex(jctx *c, const char *text, size_t n, jtoken **tokens)
{
    c->line = 1;
    if (n > RKV_CHAT_MAX_TEMPLATE)
        return RKV_J_LIMIT(c, TEMPLATE);
    lexer x = {.c = c};
    RKV_TRY(normalize(c, text, n, &x));
    while (x.pos < x.n)
        RKV_TRY(part(&x));
    RKV_TRY(add(&x, T_EOF, NULL, NULL));
    *tokens = x.t;
    return RKV_OK;
}

/* Text: strings in the making, Python's str() and repr(), numbers, code points. */
#include "config.h"
#include "text/chat_value.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "text/chat_ast.h"
#include "text/chat_ops.h"

/* ---- making strings -------------------------------------------------------------------------- */

rkv_status rkv_j_put(jctx *c, const char *s, size_t n)
{
    if (n > RKV_CHAT_MAX_OUTPUT - c->out.n)
        return RKV_J_LIMIT(c, OUTPUT);
    RKV_TRY(rkv_j_step(c, n >> 8));
    rkv_text_add(&c->out, s, n);
    return c->out.bad ? rkv_j_fail(c, RKV_E_MEM, "out of memory for the output") : RKV_OK;
}

rkv_status rkv_j_put_times(jctx *c, const char *s, size_t n, int64_t times)
{
    if (n && times > RKV_CHAT_MAX_OUTPUT / (int64_t)n)
        return RKV_J_LIMIT(c, OUTPUT);
    if (n && times > 0)
        RKV_TRY(rkv_j_step(c, (size_t)times));
    for (int64_t i = 0; n && i < times; i++)
        RKV_TRY(rkv_j_put(c, s, n));
    return RKV_OK;
}

rkv_status rkv_j_put_char(jctx *c, uint32_t cp)
{
    char buf[4];
    return rkv_j_put(c, buf, rkv_j_encode(cp, buf));
}

rkv_status rkv_j_take(jctx *c, size_t mark, jval *out)
{
    const size_t n = c->out.n - mark;
    if (n > RKV_CHAT_MAX_STRING)
        return RKV_J_LIMIT(c, STRING);
    RKV_TRY(rkv_j_copy(c, n ? c->out.data + mark : "", n, out));
    c->out.n = mark;
    return RKV_OK;
}

/* ---- str() and repr() ------------------------------------------------------------------------ */

static rkv_status put_text(jctx *c, const char *s)
{
    return rkv_j_put(c, s, strlen(s));
}

static rkv_status put_escaped(jctx *c, uint32_t cp, const char *raw, size_t n, char quote)
{
    static const char plain[] = "\t\n\r\\", letter[] = "tnr\\";
    const char *p = cp < 0x80 && cp ? strchr(plain, (int)cp) : NULL;
    char buf[12];
    if (p || cp == (uint32_t)quote)
        snprintf(buf, sizeof buf, "\\%c", p ? letter[p - plain] : quote);
    else if (rkv_j_is_printable(cp))
        return rkv_j_put(c, raw, n);
    else if (cp < 0x100)
        snprintf(buf, sizeof buf, "\\x%02x", (unsigned)cp);
    else if (cp < 0x10000)
        snprintf(buf, sizeof buf, "\\u%04x", (unsigned)cp);
    else
        snprintf(buf, sizeof buf, "\\U%08x", (unsigned)cp);
    return put_text(c, buf);
}

static rkv_status put_quoted(jctx *c, const jval *v)
{
    const int single = v->n && memchr(v->s, '\'', v->n) && !memchr(v->s, '"', v->n);
    const char quote = single ? '"' : '\'';
    RKV_TRY(rkv_j_step(c, v->n >> 3));
    RKV_TRY(put_text(c, v->safe ? "Markup(" : ""));
    RKV_TRY(rkv_j_put(c, &quote, 1));
    for (size_t i = 0; i < v->n;) {
        uint32_t cp;
        const size_t len = rkv_j_decode(v->s + i, v->n - i, &cp);
        RKV_TRY(put_escaped(c, cp, v->s + i, len, quote));
        i += len;
    }
    RKV_TRY(rkv_j_put(c, &quote, 1));
    return put_text(c, v->safe ? ")" : "");
}

static rkv_status put_sequence(jctx *c, const jlist *l, const char *open, const char *close)
{
    RKV_TRY(put_text(c, open));
    for (size_t i = 0; i < l->n; i++) {
        RKV_TRY(put_text(c, i ? ", " : ""));
        RKV_TRY(rkv_j_put_repr(c, &l->v[i]));
    }
    return put_text(c, close);
}

static rkv_status put_pairs(jctx *c, const jdict *d, const char *open, const char *close)
{
    RKV_TRY(put_text(c, open));
    for (size_t i = 0; i < d->n; i++) {
        RKV_TRY(put_text(c, i ? ", " : ""));
        RKV_TRY(rkv_j_put_repr(c, &d->v[i].key));
        RKV_TRY(put_text(c, ": "));
        RKV_TRY(rkv_j_put_repr(c, &d->v[i].value));
    }
    return put_text(c, close);
}

static rkv_status put_view(jctx *c, const jval *v)
{
    jval items;
    RKV_TRY(rkv_j_to_list(c, v, &items));
    RKV_TRY(put_text(c, rkv_j_type(v)));
    return put_sequence(c, items.list, "([", "])");
}

static rkv_status put_range(jctx *c, const jrange *r)
{
    char buf[80];
    if (r->step == 1)
        snprintf(buf, sizeof buf, "range(%lld, %lld)", (long long)r->start, (long long)r->stop);
    else
        snprintf(buf, sizeof buf, "range(%lld, %lld, %lld)", (long long)r->start,
                 (long long)r->stop, (long long)r->step);
    return put_text(c, buf);
}

static rkv_status put_container(jctx *c, const jval *v)
{
    RKV_TRY(rkv_j_enter(c));
    rkv_status s;
    if (v->kind == J_DICT)
        s = put_pairs(c, v->dict, "{", "}");
    else if (v->kind == J_NAMESPACE)
        s = put_pairs(c, v->dict, "<Namespace {", "}>");
    else if (v->kind == J_VIEW)
        s = put_view(c, v);
    else if (v->kind == J_LIST)
        s = put_sequence(c, v->list, "[", "]");
    else
        s = put_sequence(c, v->list, "(", v->list->n == 1 ? ",)" : ")");
    c->data_depth--;
    return s;
}

/* What Python would show with an address. */
static rkv_status put_object(jctx *c, const jval *v)
{
    char buf[160];
    size_t n = 0;
    if (v->kind == J_LOOP) {
        RKV_TRY(rkv_j_len(c, v, &n));
        snprintf(buf, sizeof buf, "<LoopContext %lld/%zu>", (long long)v->loop->index0 + 1, n);
    } else if (v->kind == J_MACRO && v->macro->node->name) {
        snprintf(buf, sizeof buf, "<Macro '%.100s'>", v->macro->node->name->s);
    } else if (v->kind == J_MACRO) {
        snprintf(buf, sizeof buf, "<Macro anonymous>");
    } else {
        snprintf(buf, sizeof buf, "<%s object>", rkv_j_type(v));
    }
    return put_text(c, buf);
}

rkv_status rkv_j_put_repr(jctx *c, const jval *v)
{
    char buf[32];
    RKV_TRY(rkv_j_step(c, 1));
    switch (v->kind) {
    case J_ABSENT:
    case J_UNDEFINED:
        return put_text(c, "Undefined");
    case J_NONE:
        return put_text(c, "None");
    case J_BOOL:
        return put_text(c, v->i ? "True" : "False");
    case J_INT:
        snprintf(buf, sizeof buf, "%lld", (long long)v->i);
        return put_text(c, buf);
    case J_FLOAT:
        rkv_j_float_text(v->f, buf);
        return put_text(c, buf);
    case J_STRING:
        return put_quoted(c, v);
    case J_LIST:
    case J_TUPLE:
    case J_DICT:
    case J_NAMESPACE:
    case J_VIEW:
        return put_container(c, v);
    case J_RANGE:
        return put_range(c, v->range);
    default:
        return put_object(c, v);
    }
}

rkv_status rkv_j_put_str(jctx *c, const jval *v)
{
    if (v->kind == J_STRING)
        return rkv_j_put(c, v->s, v->n);
    return v->kind == J_UNDEFINED ? RKV_OK : rkv_j_put_repr(c, v);
}

rkv_status rkv_j_to_string(jctx *c, const jval *v, jval *out)
{
    if (v->kind == J_STRING) {
        *out = *v;
        return RKV_OK;
    }
    const size_t mark = c->out.n;
    RKV_TRY(rkv_j_put_str(c, v));
    return rkv_j_take(c, mark, out);
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* Digits without a point, and the power of ten of the first one. */
static int shortest_digits(double f, char *digits, int *power)
{
    char buf[40];
    for (int precision = 14; precision <= 16; precision++) {
        snprintf(buf, sizeof buf, "%.*e", precision, f);
        if (strtod(buf, NULL) == f)
            break;
    }
    int n = 0;
    char *p = buf;
    for (; *p && *p != 'e'; p++)                /* skips the point of whatever locale */
        if (*p >= '0' && *p <= '9')
            digits[n++] = *p;
    *power = atoi(p + 1);
    while (n > 1 && digits[n - 1] == '0')
        n--;
    digits[n] = 0;
    return n;
}

void rkv_j_float_text(double f, char *buf)
{
    char digits[24];
    int power;
    if (signbit(f) && !isnan(f))
        *buf++ = '-';
    f = fabs(f);
    if (!isfinite(f)) {
        strcpy(buf, isnan(f) ? "nan" : "inf");
        return;
    }
    const int n = shortest_digits(f, digits, &power);
    if (power < -4 || power >= 16) {
        sprintf(buf, "%c%s%se%c%02d", digits[0], n > 1 ? "." : "", digits + 1,
                power < 0 ? '-' : '+', abs(power));
    } else if (power < 0) {
        sprintf(buf, "0.%.*s%s", -power - 1, "000", digits);
    } else {
        const int whole = n < power + 1 ? n : power + 1;
        sprintf(buf, "%.*s%.*s.%s", whole, digits, power + 1 - whole, "0000000000000000",
                n > whole ? digits + whole : "0");
    }
}

static void trim(const char **s, size_t *n)
{
    const jval all = rkv_j_string(*s, *n), t = rkv_j_strip(&all, NULL, 3);
    *s = t.s;
    *n = t.n;
}

/* Copies n bytes without the underscores that stand between two digits; 0 when one stands
 * elsewhere. */
static int drop_underscores(char *buf, size_t size, const char *s, size_t n, int (*is_digit)(int))
{
    size_t m = 0;
    if (n >= size)
        return 0;
    for (size_t i = 0; i < n; i++) {
        if (s[i] != '_')
            buf[m++] = s[i];
        else if (i == 0 || i + 1 == n || !is_digit((unsigned char)s[i - 1]) ||
                 !is_digit((unsigned char)s[i + 1]))
            return 0;
    }
    buf[m] = 0;
    return 1;
}

/* [+-] (digits [. digits] | . digits) [e [+-] digits] */
static int is_decimal(const char *p)
{
    p += *p == '+' || *p == '-';
    const size_t whole = strspn(p, "0123456789");
    p += whole;
    const int point = *p == '.';
    p += point;
    const size_t part = point ? strspn(p, "0123456789") : 0;
    p += part;
    if (whole + part == 0)
        return 0;
    if (*p == 'e' || *p == 'E') {
        p++;
        p += *p == '+' || *p == '-';
        const size_t n = strspn(p, "0123456789");
        if (!n)
            return 0;
        p += n;
    }
    return *p == 0;
}

static int is_special(const char *p)
{
    static const char *const name[] = {"inf", "infinity", "nan"};
    char low[12];
    p += *p == '+' || *p == '-';
    if (strlen(p) >= sizeof low)
        return 0;
    size_t n = 0;
    for (; p[n]; n++)
        low[n] = (char)tolower((unsigned char)p[n]);
    low[n] = 0;
    for (size_t i = 0; i < sizeof name / sizeof *name; i++)
        if (!strcmp(low, name[i]))
            return 1;
    return 0;
}

int rkv_j_parse_float(const char *s, size_t n, double *f)
{
    char buf[512], *end;
    trim(&s, &n);
    if (!n || memchr(s, 0, n) || !drop_underscores(buf, sizeof buf, s, n, isdigit))
        return 0;
    if (!is_decimal(buf) && !is_special(buf))
        return 0;
    *f = strtod(buf, &end);
    if (*end == '.') {                          /* a locale with a decimal comma */
        *end = ',';
        *f = strtod(buf, NULL);
    }
    return 1;
}

static int digit_value(char ch)
{
    const int x = (unsigned char)ch;
    return isdigit(x) ? x - '0' : isalpha(x) ? tolower(x) - 'a' + 10 : 99;
}

/* Skips the prefix that belongs to a base; *base 0 becomes the base that the prefix names. */
static const char *skip_prefix(const char *p, int *base)
{
    static const struct {
        char letter;
        int base;
    } row[] = {{'x', 16}, {'o', 8}, {'b', 2}};
    const int had = *base;
    for (size_t i = 0; i < 3; i++)
        if (p[0] == '0' && tolower((unsigned char)p[1]) == row[i].letter &&
            (had == 0 || had == row[i].base)) {
            *base = row[i].base;
            p += 2;
            return p + (*p == '_');
        }
    if (had == 0)
        *base = p[0] == '0' && p[strspn(p, "0")] ? -1 : 10;     /* no leading zeros then */
    return p;
}

int rkv_j_parse_int(const char *s, size_t n, int base, int64_t *out)
{
    char buf[512];
    trim(&s, &n);
    if (!n || memchr(s, 0, n))
        return 0;
    const int negative = *s == '-';
    if (*s == '-' || *s == '+')
        s++, n--;
    if (n >= sizeof buf - 1)
        return -1;
    memcpy(buf, s, n);
    buf[n] = 0;
    const char *p = skip_prefix(buf, &base);
    char digits[512];
    if (base < 0 || !*p || !drop_underscores(digits, sizeof digits, p, strlen(p), isalnum))
        return 0;
    uint64_t v = 0;
    int over = 0;
    for (const char *d = digits; *d; d++) {
        const int x = digit_value(*d);
        if (x >= base)
            return 0;
        over |= v > (UINT64_MAX - (uint64_t)x) / (uint64_t)base;
        v = v * (uint64_t)base + (uint64_t)x;
    }
    if (over || v > (uint64_t)INT64_MAX)
        return -1;
    *out = negative ? -(int64_t)v : (int64_t)v;
    return 1;
}

/* ---- code points ----------------------------------------------------------------------------- */

size_t rkv_j_decode(const char *s, size_t n, uint32_t *cp)
{
    const unsigned char first = (unsigned char)*s;
    if (first < 0x80) {
        *cp = first;
        return 1;
    }
    utf8proc_int32_t x;
    const utf8proc_ssize_t len =
        utf8proc_iterate((const utf8proc_uint8_t *)s, n > 4 ? 4 : (utf8proc_ssize_t)n, &x);
    if (len > 0) {
        *cp = (uint32_t)x;
        return (size_t)len;
    }
    *cp = 0xdc00u + first;
    return 1;
}

size_t rkv_j_encode(uint32_t cp, char *buf)
{
    if (cp >= 0xdc80 && cp < 0xdd00) {
        *buf = (char)(cp & 0xff);
        return 1;
    }
    return (size_t)utf8proc_encode_char((utf8proc_int32_t)cp, (utf8proc_uint8_t *)buf);
}

size_t rkv_j_length(const char *s, size_t n)
{
    size_t count = 0;
    uint32_t cp;
    for (size_t i = 0; i < n; count++)
        i += (unsigned char)s[i] < 0x80 ? 1 : rkv_j_decode(s + i, n - i, &cp);
    return count;
}

size_t rkv_j_offset(const char *s, size_t n, size_t index)
{
    uint32_t cp;
    size_t i = 0;
    for (; i < n && index; index--)
        i += (unsigned char)s[i] < 0x80 ? 1 : rkv_j_decode(s + i, n - i, &cp);
    return i;
}

/* Python's str.isspace: White_Space, and the four information separators. */
int rkv_j_is_space(uint32_t cp)
{
    if (cp < 0x80)
        return (cp >= 9 && cp <= 13) || (cp >= 28 && cp <= 32);
    return cp == 0x85 || cp == 0xa0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) ||
           cp == 0x2028 || cp == 0x2029 || cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

int rkv_j_is_printable(uint32_t cp)
{
    if (cp < 0x80)
        return cp >= ' ' && cp < 0x7f;
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return 0;
    default:
        return 1;
    }
}

/* text % values and str.format: Python's two ways to format. */
#include "config.h"
#include "text/chat_ops.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PRECISION = 400 };

/* How to write one value. */
typedef struct spec {
    char fill[4];
    size_t n_fill;
    char align;                 /* < > ^ = or 0 */
    char sign;                  /* + - space or 0 */
    char group;                 /* , _ or 0 */
    char type;                  /* a letter or 0 */
    int alternate, zero;
    int64_t width, precision;   /* precision -1: none */
} spec;

static rkv_status bad(jctx *c, const char *what)
{
    return rkv_j_fail(c, RKV_E_FORMAT, "%s", what);
}

/* ---- writing --------------------------------------------------------------------------------- */

/* prefix (sign and base) and body, filled up to the width. */
static rkv_status put_padded(jctx *c, const spec *f, const char *prefix, const char *body, size_t n,
                             char dflt)
{
    const char align = f->align ? f->align : f->zero ? '=' : dflt;
    const char *fill = f->n_fill ? f->fill : f->zero ? "0" : " ";
    const size_t n_fill = f->n_fill ? f->n_fill : 1, used = strlen(prefix) + rkv_j_length(body, n);
    const int64_t room = f->width > (int64_t)used ? f->width - (int64_t)used : 0;
    const int64_t left = align == '>' ? room : align == '^' ? room / 2 : 0;
    const int64_t middle = align == '=' ? room : 0;
    RKV_TRY(rkv_j_put_times(c, fill, n_fill, left));
    RKV_TRY(rkv_j_put(c, prefix, strlen(prefix)));
    RKV_TRY(rkv_j_put_times(c, fill, n_fill, middle));
    RKV_TRY(rkv_j_put(c, body, n));
    return rkv_j_put_times(c, fill, n_fill, room - left - middle);
}

static rkv_status put_text(jctx *c, const spec *f, const jval *v, char dflt)
{
    size_t n = v->n;
    if (f->precision >= 0)
        n = rkv_j_offset(v->s, v->n, (size_t)f->precision);
    return put_padded(c, f, "", v->s, n, dflt);
}

/* Puts a separator between groups of digits, counted from the right; the rest after them stays. */
static size_t group_digits(char *to, const char *from, char separator, size_t every)
{
    const size_t n = strspn(from, "0123456789abcdefABCDEF"), rest = strlen(from + n);
    size_t m = 0;
    for (size_t i = 0; i < n; i++) {
        if (i && (n - i) % every == 0)
            to[m++] = separator;
        to[m++] = from[i];
    }
    memcpy(to + m, from + n, rest + 1);
    return m + rest;
}

static const char *sign_of(const spec *f, int negative)
{
    return negative ? "-" : f->sign == '+' ? "+" : f->sign == ' ' ? " " : "";
}

static rkv_status put_number(jctx *c, const spec *f, const char *sign, const char *base,
                             const char *digits, size_t every)
{
    char prefix[8], body[2048];
    snprintf(prefix, sizeof prefix, "%s%s", sign, base);
    size_t n = strlen(digits);
    if (f->group && f->zero && f->width > 0)
        return rkv_j_fail(c, RKV_E_UNSUPPORTED, "a format with both grouping and leading zeros");
    if (f->group)
        n = group_digits(body, digits, f->group, every);
    else
        memcpy(body, digits, n + 1);
    return put_padded(c, f, prefix, body, n, '>');
}

/* b c d o x X */
static rkv_status put_int(jctx *c, const spec *f, int64_t v)
{
    const char type = f->type ? f->type : 'd';
    const unsigned base = type == 'b' ? 2 : type == 'o' ? 8 : type == 'x' || type == 'X' ? 16 : 10;
    const char *const names = type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
    uint64_t size = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    char digits[MAX_PRECISION + 72], mark[3] = {0};
    size_t at = sizeof digits - 1, least = f->precision > 0 ? (size_t)f->precision : 1;
    digits[at] = 0;
    if (f->precision > MAX_PRECISION)
        return rkv_j_fail(c, RKV_E_UNSUPPORTED, "a precision above %d", MAX_PRECISION);
    for (; size || sizeof digits - 1 - at < least; size /= base)
        digits[--at] = names[size % base];
    if (f->alternate && base != 10) {
        mark[0] = '0';
        mark[1] = type;
    }
    return put_number(c, f, sign_of(f, v < 0), mark, digits + at, base == 10 ? 3 : 4);
}

/* A float's digits as type e, f or g write them; type 0 is g with a point. */
static void float_digits(const spec *f, double v, char *buf, size_t size)
{
    static const char *const format[2][6] = {
        {"%.*e", "%.*f", "%.*g", "%.*E", "%.*F", "%.*G"},
        {"%#.*e", "%#.*f", "%#.*g", "%#.*E", "%#.*F", "%#.*G"}};
    static const char letters[] = "efgEFG";
    int precision = f->precision < 0 ? 6 : (int)f->precision;
    const char type = f->type == '%' ? 'f' : f->type == 'n' || !f->type ? 'g' : f->type;
    if (!f->type && f->precision < 0) {
        rkv_j_float_text(v, buf);
        return;
    }
    if (!f->type) {                             /* one digit sooner to the exponent than g */
        precision = precision ? precision : 1;
        snprintf(buf, size, "%.*e", precision - 1, v);
        const int power = atoi(strchr(buf, 'e') ? strchr(buf, 'e') + 1 : "0");
        if (power == precision - 1 && isfinite(v)) {
            char *e = strchr(buf, 'e'), *end = e;
            while (precision > 1 && end[-1] == '0')
                end--;
            end -= end[-1] == '.' || end[-1] == ',';
            memmove(end, e, strlen(e) + 1);
            return;
        }
    }
    snprintf(buf, size, format[f->alternate][strchr(letters, type) - letters], precision, v);
    if (!f->type && isfinite(v) && !strpbrk(buf, ".,e"))
        strcat(buf, ".0");
}

static rkv_status put_float(jctx *c, const spec *f, double v)
{
    char buf[1024];
    if (f->precision > MAX_PRECISION)
        return rkv_j_fail(c, RKV_E_UNSUPPORTED, "a precision above %d", MAX_PRECISION);
    if (f->type == '%')
        v *= 100.0;
    float_digits(f, fabs(v), buf, sizeof buf - 4);
    for (char *p = buf; *p; p++)                /* whatever the locale */
        if (*p == ',')
            *p = '.';
    if (f->type == '%')
        strcat(buf, "%");
    return put_number(c, f, sign_of(f, signbit(v) && !isnan(v)), "", buf, 3);
}

/* ---- % --------------------------------------------------------------------------------------- */

typedef struct percent {
    jctx *c;
    const jval *values;
    const jval *current;        /* of %(key)s, or NULL */
    size_t used;
    int safe;
} percent;

static rkv_status next_value(percent *p, jval *out)
{
    const int many = p->values->kind == J_TUPLE;
    const size_t n = many ? p->values->list->n : 1;
    if (p->current) {
        *out = *p->current;
        return RKV_OK;
    }
    if (p->used >= n)
        return bad(p->c, "not enough arguments for format string");
    *out = many ? p->values->list->v[p->used] : *p->values;
    p->used++;
    return RKV_OK;
}

/* A width or precision: digits, or * and an argument. */
static rkv_status read_size(percent *p, const char **s, const char *end, int64_t *out)
{
    jval v;
    if (*s < end && **s == '*') {
        ++*s;
        RKV_TRY(next_value(p, &v));
        return rkv_j_want_int(p->c, &v, out);
    }
    for (*out = 0; *s < end && **s >= '0' && **s <= '9'; ++*s)
        if ((*out = *out * 10 + (**s - '0')) > RKV_CHAT_MAX_OUTPUT)
            return RKV_J_LIMIT(p->c, OUTPUT);
    return RKV_OK;
}

static rkv_status read_key(percent *p, const char **s, const char *end)
{
    p->current = NULL;
    if (*s == end || **s != '(')
        return RKV_OK;
    const char *from = ++*s;
    for (int depth = 1; *s < end; ++*s) {
        depth += (**s == '(') - (**s == ')');
        if (!depth)
            break;
    }
    if (*s == end)
        return bad(p->c, "incomplete format key");
    if (p->values->kind != J_DICT)
        return bad(p->c, "format requires a mapping");
    const jval *v = rkv_j_find_string(p->values->dict, from, (size_t)(*s - from));
    if (!v)
        return rkv_j_fail(p->c, RKV_E_FORMAT, "the format key '%.*s' is missing",
                          *s - from > 60 ? 60 : (int)(*s - from), from);
    ++*s;
    p->current = v;
    return RKV_OK;
}

static rkv_status read_flags(percent *p, const char **s, const char *end, spec *f)
{
    for (; *s < end && **s && strchr("-+ #0", **s); ++*s) {
        if (**s == '-')
            f->align = '<';
        else if (**s == '#')
            f->alternate = 1;
        else if (**s == '0')
            f->zero = 1;
        else if (f->sign != '+')
            f->sign = **s;
    }
    RKV_TRY(read_size(p, s, end, &f->width));
    if (f->width < 0) {
        f->align = '<';
        f->width = f->width < -RKV_CHAT_MAX_OUTPUT ? RKV_CHAT_MAX_OUTPUT : -f->width;
    }
    if (*s < end && **s == '.') {
        ++*s;
        RKV_TRY(read_size(p, s, end, &f->precision));
        if (f->precision < 0)
            f->precision = 0;
    }
    *s += *s < end && **s && strchr("hlL", **s);
    if (f->align == '<')
        f->zero = 0;
    return RKV_OK;
}

static rkv_status put_percent_text(percent *p, const spec *f, const jval *v)
{
    const size_t mark = p->c->out.n;
    jval s;
    if (f->type == 'a')
        return rkv_j_fail(p->c, RKV_E_UNSUPPORTED, "the format %%a");
    RKV_TRY(f->type == 'r' ? rkv_j_put_repr(p->c, v) : rkv_j_put_str(p->c, v));
    RKV_TRY(rkv_j_take(p->c, mark, &s));
    s.safe = v->kind == J_STRING && v->safe;
    if (p->safe)
        RKV_TRY(rkv_j_escape(p->c, &s, &s));
    spec plain = *f;
    plain.zero = 0;
    return put_text(p->c, &plain, &s, '>');
}

static rkv_status put_percent_char(percent *p, const spec *f, const jval *v)
{
    char buf[4];
    if (v->kind == J_STRING && rkv_j_length(v->s, v->n) == 1)
        return put_padded(p->c, f, "", v->s, v->n, '>');
    if (!(v->kind == J_INT || v->kind == J_BOOL) || v->i < 0 || v->i > 0x10ffff ||
        (v->i >= 0xd800 && v->i < 0xe000))
        return bad(p->c, "%c requires an integer in range(0x110000) or a single character");
    const size_t n = rkv_j_encode((uint32_t)v->i, buf);
    return put_padded(p->c, f, "", buf, n, '>');
}

static rkv_status put_percent(percent *p, spec *f, const jval *v)
{
    jctx *c = p->c;
    if (f->type == 's' || f->type == 'r' || f->type == 'a')
        return put_percent_text(p, f, v);
    if (f->type == 'c')
        return put_percent_char(p, f, v);
    const int is_int = strchr("diuoxX", f->type) != NULL,
              truncates = strchr("diu", f->type) != NULL;
    if (v->kind == J_UNDEFINED)
        return rkv_j_undefined(c, v);
    if (!rkv_j_is_number(v) || (is_int && !truncates && v->kind == J_FLOAT))
        return rkv_j_fail(c, RKV_E_FORMAT, "%%%c format: a number is required, not %s", f->type,
                          rkv_j_type(v));
    if (!is_int)
        return put_float(c, f, v->kind == J_FLOAT ? v->f : (double)v->i);
    if (v->kind == J_FLOAT && !(fabs(v->f) < 0x1p63))
        return rkv_j_fail(c, isfinite(v->f) ? RKV_E_ARG : RKV_E_FORMAT,
                          "cannot convert the float %g to an integer", v->f);
    f->type = truncates ? 'd' : f->type;
    return put_int(c, f, v->kind == J_FLOAT ? (int64_t)v->f : v->i);
}

static rkv_status put_directive(percent *p, const char **s, const char *end)
{
    spec f = {.precision = -1};
    jval v;
    if (*s < end && **s == '%')
        return rkv_j_put(p->c, (*s)++, 1);
    RKV_TRY(read_key(p, s, end));
    RKV_TRY(read_flags(p, s, end, &f));
    if (*s == end)
        return bad(p->c, "incomplete format");
    f.type = *(*s)++;
    if (!f.type || !strchr("diuoxXeEfFgGcrsa", f.type))
        return rkv_j_fail(p->c, RKV_E_FORMAT, "unsupported format character '%c'", f.type);
    RKV_TRY(next_value(p, &v));
    return put_percent(p, &f, &v);
}

rkv_status rkv_j_percent(jctx *c, const jval *text, const jval *values, jval *out)
{
    percent p = {.c = c, .values = values, .safe = text->safe};
    const char *s = text->s, *end = text->s + text->n;
    const size_t mark = c->out.n;
    while (s < end) {
        const char *next = memchr(s, '%', (size_t)(end - s));
        RKV_TRY(rkv_j_put(c, s, (size_t)((next ? next : end) - s)));
        s = next ? next + 1 : end;
        if (next)
            RKV_TRY(put_directive(&p, &s, end));
    }
    /* What could be a mapping may be left over. */
    const int kind = values->kind,
              mapping = kind == J_DICT || kind == J_LIST || kind == J_RANGE || kind == J_UNDEFINED;
    if (!mapping && p.used < (kind == J_TUPLE ? values->list->n : 1))
        return bad(c, "not all arguments converted during string formatting");
    RKV_TRY(rkv_j_take(c, mark, out));
    out->safe = (uint8_t)p.safe;
    return RKV_OK;
}

/* ---- str.format ------------------------------------------------------------------------------ */

typedef struct formatter {
    jctx *c;
    const jargs *a;
    int automatic;              /* fields numbered so far; -1: the text numbers them */
    int safe;
} formatter;

static int is_align(char ch)
{
    return ch == '<' || ch == '>' || ch == '^' || ch == '=';
}

static int64_t read_digits(const char **s, const char *end)
{
    int64_t v = 0;
    for (; *s < end && **s >= '0' && **s <= '9'; ++*s)
        v = v > RKV_CHAT_MAX_OUTPUT ? v : v * 10 + (**s - '0');
    return v;
}

/* [[fill]align][sign][#][0][width][group][.precision][type] */
static rkv_status read_spec(jctx *c, const char *s, size_t n, spec *f)
{
    const char *end = s + n;
    uint32_t cp;
    *f = (spec){.precision = -1};
    const size_t first = n ? rkv_j_decode(s, n, &cp) : 0;
    if (first && first < n && is_align(s[first])) {
        memcpy(f->fill, s, first);
        f->n_fill = first;
        s += first;
    }
    if (s < end && is_align(*s))
        f->align = *s++;
    if (s < end && (*s == '+' || *s == '-' || *s == ' '))
        f->sign = *s++;
    if (s < end && *s == '#')
        f->alternate = !!s++;
    if (s < end && *s == '0')
        f->zero = !!s++;
    f->width = read_digits(&s, end);
    if (s < end && (*s == ',' || *s == '_'))
        f->group = *s++;
    if (s < end && *s == '.') {
        const char *from = ++s;
        f->precision = read_digits(&s, end);
        if (s == from)
            return bad(c, "format specifier misses its precision");
    }
    if (s < end)
        f->type = *s++;
    return s < end ? bad(c, "invalid format specifier") : RKV_OK;
}

static rkv_status put_formatted_number(jctx *c, spec *f, const jval *v)
{
    const int is_int = v->kind != J_FLOAT && (!f->type || strchr("bcdoxXn", f->type));
    if (f->type && !strchr(v->kind == J_FLOAT ? "eEfFgGn%" : "bcdoxXneEfFgG%", f->type))
        return rkv_j_fail(c, RKV_E_FORMAT, "unknown format code '%c' for a number", f->type);
    if (!is_int)
        return put_float(c, f, v->kind == J_FLOAT ? v->f : (double)v->i);
    if (f->precision >= 0)
        return bad(c, "precision not allowed in integer format specifier");
    if (f->group == ',' && f->type && f->type != 'd')
        return bad(c, "cannot group these digits with ','");
    if (f->type == 'n')
        f->type = 'd';
    if (f->type != 'c')
        return put_int(c, f, v->i);
    char buf[4];
    if (v->i < 0 || v->i > 0x10ffff || (v->i >= 0xd800 && v->i < 0xe000) || f->sign)
        return bad(c, "%c requires an integer in range(0x110000)");
    const size_t n = rkv_j_encode((uint32_t)v->i, buf);
    return put_padded(c, f, "", buf, n, '<');
}

static rkv_status put_formatted(formatter *x, const jval *v, const char *s, size_t n)
{
    jctx *c = x->c;
    spec f;
    if (x->safe || !n) {
        jval text;
        if (n && x->safe)
            return rkv_j_fail(c, RKV_E_UNSUPPORTED, "a format specifier in safe text");
        if (!x->safe)
            return rkv_j_put_str(c, v);
        RKV_TRY(rkv_j_escape(c, v, &text));
        return rkv_j_put_str(c, &text);
    }
    RKV_TRY(read_spec(c, s, n, &f));
    if (rkv_j_is_number(v))
        return put_formatted_number(c, &f, v);
    if (v->kind != J_STRING)
        return rkv_j_fail(c, RKV_E_FORMAT, "unsupported format string passed to %s.__format__",
                          rkv_j_type(v));
    if ((f.type && f.type != 's') || f.align == '=' || f.sign || f.alternate || f.group)
        return bad(c, "this format specifier is not allowed for a string");
    if (f.zero && !f.n_fill) {
        f.fill[0] = '0';
        f.n_fill = 1;
    }
    f.zero = 0;
    return put_text(c, &f, v, '<');
}

/* The argument that the first part of a field names. Only a field that is all digits counts as
 * numbered by hand, only an empty one is numbered automatically (string.Formatter, which jinja2
 * uses). */
static rkv_status field_start(formatter *x, const char *s, size_t n, int whole, jval *out)
{
    int digits = n > 0 && n < 10;
    int64_t at = -1;
    for (size_t i = 0; i < n && digits; i++)
        digits = s[i] >= '0' && s[i] <= '9';
    if (n == 0 && whole) {
        if (x->automatic < 0)
            return bad(
                x->c, "cannot switch from manual field specification to automatic field numbering");
        at = x->automatic++;
    } else if (digits) {
        if (whole && x->automatic > 0)
            return bad(
                x->c, "cannot switch from automatic field numbering to manual field specification");
        if (whole)
            x->automatic = -1;
        const char *p = s;
        at = read_digits(&p, s + n);
    }
    if (at >= x->a->n)
        return bad(x->c, "the format has more fields than there are arguments");
    if (at >= 0) {
        *out = x->a->v[at];
        return RKV_OK;
    }
    for (int i = 0; i < x->a->n_kw; i++)
        if (x->a->kw[i].n == n && !memcmp(x->a->kw[i].s, s, n)) {
            *out = x->a->kw[i].v;
            return RKV_OK;
        }
    return rkv_j_fail(x->c, RKV_E_FORMAT, "the format field '%.*s' is missing",
                      n > 60 ? 60 : (int)n, s);
}

/* name {.attribute | [index]} */
static rkv_status field_value(formatter *x, const char *s, const char *end, jval *out)
{
    const char *p = s;
    while (p < end && *p != '.' && *p != '[')
        p++;
    RKV_TRY(field_start(x, s, (size_t)(p - s), p == end, out));
    while (p < end) {
        const char kind = *p++, *from = p;
        while (p < end && (kind == '[' ? *p != ']' : *p != '.' && *p != '['))
            p++;
        const size_t n = (size_t)(p - from);
        if (!n || (kind != '.' && kind != '[') || (kind == '[' && p++ == end))
            return bad(x->c, "malformed format field");
        int64_t i = 0;
        jval key = rkv_j_string(from, n);
        if (kind == '[' && rkv_j_parse_int(from, n, 10, &i) > 0 && *from >= '0' && *from <= '9')
            key = rkv_j_int(i);
        const jval object = *out;
        RKV_TRY(kind == '[' ? rkv_j_item(x->c, &object, &key, out)
                            : rkv_j_attribute(x->c, &object, from, n, out));
    }
    return RKV_OK;
}

static rkv_status put_fields(formatter *x, const char *s, const char *end, int depth);

/* The inside of a pair of braces. */
static rkv_status put_field(formatter *x, const char *s, const char *end, int depth)
{
    const char *name_end = s;
    while (name_end < end && *name_end != '!' && *name_end != ':') {
        if (*name_end == '[')
            while (name_end + 1 < end && *name_end != ']')
                name_end++;
        name_end++;
    }
    jval v, spec_text = rkv_j_literal("");
    RKV_TRY(field_value(x, s, name_end, &v));
    const char *p = name_end;
    if (p < end && *p == '!') {
        if (end - p < 2 || (p + 2 < end && p[2] != ':') || !p[1] || !strchr("rsa", p[1]))
            return bad(x->c, "malformed conversion in a format field");
        if (p[1] == 'a')
            return rkv_j_fail(x->c, RKV_E_UNSUPPORTED, "the conversion !a");
        const size_t mark = x->c->out.n;
        RKV_TRY(p[1] == 'r' ? rkv_j_put_repr(x->c, &v) : rkv_j_put_str(x->c, &v));
        RKV_TRY(rkv_j_take(x->c, mark, &v));
        p += 2;
    }
    if (p < end) {
        const size_t mark = x->c->out.n;
        RKV_TRY(put_fields(x, p + 1, end, depth + 1));
        RKV_TRY(rkv_j_take(x->c, mark, &spec_text));
    }
    return put_formatted(x, &v, spec_text.s, spec_text.n);
}

static rkv_status put_fields(formatter *x, const char *s, const char *end, int depth)
{
    if (depth > 1)
        return bad(x->c, "format fields are nested too deeply");
    while (s < end) {
        const char *from = s;
        while (s < end && *s != '{' && *s != '}')
            s++;
        RKV_TRY(rkv_j_put(x->c, from, (size_t)(s - from)));
        if (s == end)
            break;
        if (depth == 0 && s + 1 < end && s[1] == *s) {
            RKV_TRY(rkv_j_put(x->c, s, 1));
            s += 2;
            continue;
        }
        if (*s == '}')
            return bad(x->c, "single '}' encountered in format string");
        from = ++s;
        for (int open = 1; s < end; s++) {
            open += (*s == '{') - (*s == '}');
            if (!open)
                break;
        }
        if (s == end)
            return bad(x->c, "single '{' encountered in format string");
        RKV_TRY(put_field(x, from, s, depth));
        s++;
    }
    return RKV_OK;
}

rkv_status rkv_j_format(jctx *c, const jval *text, const jargs *a, jval *out)
{
    formatter x = {.c = c, .a = a, .safe = text->safe};
    const size_t mark = c->out.n;
    RKV_TRY(put_fields(&x, text->s, text->s + text->n, 0));
    RKV_TRY(rkv_j_take(c, mark, out));
    out->safe = (uint8_t)x.safe;
    return RKV_OK;
}

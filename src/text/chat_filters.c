/* Filters on text and single values. */
#include "config.h"
#include "text/chat_ops.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#include <utf8proc.h>

static int given(const jval *v)
{
    return v->kind != J_ABSENT && v->kind != J_NONE;
}

/* ---- text ------------------------------------------------------------------------------------ */

/* Words start after whitespace and - ( { [ <, not after other punctuation as with str.title(). */
static rkv_status f_title(jctx *c, const jval *self, const jargs *a, jval *out)
{
    (void)a;
    const size_t mark = c->out.n;
    const char *s = self->s;
    uint32_t cp;
    for (size_t i = 0; i < self->n;) {
        const size_t first = i;
        size_t len = rkv_j_decode(s + i, self->n - i, &cp);
        const int gap = rkv_j_is_space(cp) || (cp < 0x80 && cp && strchr("-({[<", (int)cp));
        i += len;
        if (gap) {
            RKV_TRY(rkv_j_put(c, s + first, len));
            continue;
        }
        const size_t rest = i;
        while (i < self->n) {
            const size_t next = rkv_j_decode(s + i, self->n - i, &cp);
            if (rkv_j_is_space(cp) || (cp < 0x80 && cp && strchr("-({[<", (int)cp)))
                break;
            i += next;
        }
        RKV_TRY(rkv_j_put_case(c, s + first, len, J_UPPER));
        RKV_TRY(rkv_j_put_case(c, s + rest, i - rest, J_LOWER));
    }
    return rkv_j_take(c, mark, out);
}

static rkv_status f_replace(jctx *c, const jval *self, const jargs *a, jval *out)
{
    int64_t count = -1;
    jval old, text;
    RKV_TRY(rkv_j_to_string(c, &a->v[0], &old));
    RKV_TRY(rkv_j_to_string(c, &a->v[1], &text));
    if (given(&a->v[2]))
        RKV_TRY(rkv_j_want_int(c, &a->v[2], &count));
    return rkv_j_replace(c, self, &old, &text, count < 0 ? -1 : count, out);
}

static rkv_status f_indent(jctx *c, const jval *self, const jargs *a, jval *out)
{
    jval lines, by = rkv_j_literal("    "), text;
    int64_t width;
    const int first = rkv_j_truth(&a->v[1]), blank = rkv_j_truth(&a->v[2]);
    if (self->kind == J_UNDEFINED)
        return rkv_j_undefined(c, self);
    RKV_TRY(rkv_j_want_string(c, self));
    if (a->v[0].kind == J_STRING) {
        by = a->v[0];
    } else if (a->v[0].kind != J_ABSENT) {
        const jval space = rkv_j_literal(" ");
        RKV_TRY(rkv_j_want_int(c, &a->v[0], &width));
        RKV_TRY(rkv_j_repeat(c, &space, width, &by));
    }
    const jval newline = rkv_j_literal("\n");   /* splitlines() drops one at the end */
    const uint8_t safe = self->safe;
    RKV_TRY(rkv_j_concat(c, self, &newline, &text));
    RKV_TRY(rkv_j_split_lines(c, &text, 0, &lines));
    const size_t mark = c->out.n;
    for (size_t i = 0; i < lines.list->n; i++) {
        const jval *line = &lines.list->v[i];
        RKV_TRY(rkv_j_put(c, "\n", i > 0));
        if (i ? blank || line->n : first)
            RKV_TRY(rkv_j_put(c, by.s, by.n));
        RKV_TRY(rkv_j_put(c, line->s, line->n));
    }
    RKV_TRY(rkv_j_take(c, mark, out));
    out->safe = safe;
    return RKV_OK;
}

static rkv_status f_center(jctx *c, const jval *self, const jargs *a, jval *out)
{
    jval v[2] = {a->v[0].kind == J_ABSENT ? rkv_j_int(80) : a->v[0], {.kind = J_ABSENT}};
    const jargs pad = {.v = v, .n = 2};
    return rkv_j_str_center(c, self, &pad, out);
}

static rkv_status f_truncate(jctx *c, const jval *self, const jargs *a, jval *out)
{
    int64_t length = 255, leeway = 5;
    const jval end = a->v[2].kind == J_ABSENT ? rkv_j_literal("...") : a->v[2];
    size_t size;
    RKV_TRY(rkv_j_want_string(c, &end));
    RKV_TRY(rkv_j_len(c, self, &size));
    if (a->v[0].kind != J_ABSENT)
        RKV_TRY(rkv_j_want_int(c, &a->v[0], &length));
    if (given(&a->v[3]))
        RKV_TRY(rkv_j_want_int(c, &a->v[3], &leeway));
    const int64_t n = (int64_t)size, n_end = (int64_t)rkv_j_length(end.s, end.n);
    if (length < n_end || leeway < 0)
        return rkv_j_fail(c, RKV_E_FORMAT, "truncate: expected length >= %lld and leeway >= 0",
                          (long long)n_end);
    *out = *self;
    if (length >= n || leeway >= n - length)
        return RKV_OK;
    RKV_TRY(rkv_j_want_string(c, self));
    jval part = rkv_j_string(self->s, rkv_j_offset(self->s, self->n, (size_t)(length - n_end)));
    const jval space = rkv_j_literal(" ");
    size_t at = part.n + 1;
    if (!rkv_j_truth(&a->v[1]))
        RKV_TRY(rkv_j_search_back(c, &part, &space, part.n, &at));
    if (at <= part.n)
        part.n = at;
    return rkv_j_concat(c, &part, &end, out);
}

static rkv_status f_wordcount(jctx *c, const jval *self, const jargs *a, jval *out)
{
    (void)a;
    int64_t n = 0;
    int inside = 0;
    uint32_t cp;
    RKV_TRY(rkv_j_step(c, self->n >> 3));
    for (size_t i = 0; i < self->n;) {
        i += rkv_j_decode(self->s + i, self->n - i, &cp);
        const utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)cp);
        const int word = cp == '_' || (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO) ||
                         (k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO);
        n += word && !inside;
        inside = word;
    }
    *out = rkv_j_int(n);
    return RKV_OK;
}

static rkv_status put_quoted(jctx *c, const jval *v, int query)
{
    static const char hex[] = "0123456789ABCDEF";
    jval s;
    RKV_TRY(rkv_j_to_string(c, v, &s));
    for (size_t i = 0; i < s.n; i++) {
        const unsigned char x = (unsigned char)s.s[i];
        const char escape[3] = {'%', hex[x >> 4], hex[x & 15]};
        if ((x < 0x80 && isalnum(x)) || (x && strchr(query ? "_.-~" : "_.-~/", x)))
            RKV_TRY(rkv_j_put(c, s.s + i, 1));
        else if (x == ' ' && query)
            RKV_TRY(rkv_j_put(c, "+", 1));
        else
            RKV_TRY(rkv_j_put(c, escape, 3));
    }
    return RKV_OK;
}

/* A string is quoted; pairs become a query. */
static rkv_status f_urlencode(jctx *c, const jval *self, const jargs *a, jval *out)
{
    (void)a;
    jval items = *self, pair;
    const size_t mark = c->out.n;
    if (self->kind == J_STRING || !rkv_j_is_iterable(self)) {
        RKV_TRY(put_quoted(c, self, 0));
        return rkv_j_take(c, mark, out);
    }
    if (self->kind == J_DICT)
        items = (jval){.kind = J_VIEW, .sub = J_ITEMS, .dict = self->dict};
    RKV_TRY(rkv_j_to_list(c, &items, &items));
    for (size_t i = 0; i < items.list->n; i++) {
        RKV_TRY(rkv_j_to_list(c, &items.list->v[i], &pair));
        if (pair.list->n != 2)
            return rkv_j_fail(c, RKV_E_FORMAT, "urlencode: expected pairs");
        RKV_TRY(rkv_j_put(c, "&", i > 0));
        RKV_TRY(put_quoted(c, &pair.list->v[0], 1));
        RKV_TRY(rkv_j_put(c, "=", 1));
        RKV_TRY(put_quoted(c, &pair.list->v[1], 1));
    }
    return rkv_j_take(c, mark, out);
}

static rkv_status f_string(jctx *c, const jval *self, const jargs *a, jval *out)
{
    (void)c, (void)a;
    *out = *self;
    return RKV_OK;
}

static rkv_status f_safe(jctx *c, const jval *self, const jargs *a, jval *out)
{
    (void)c, (void)a;
    *out = *self;
    out->safe = 1;
    return RKV_OK;
}

static rkv_status f_escape(jctx *c, const jval *self, const jargs *a, jval *out)
{
    (void)a;
    return rkv_j_escape(c, self, out);
}

static rkv_status f_forceescape(jctx *c, const jval *self, const jargs *a, jval *out)
{
    (void)a;
    jval plain = *self;
    plain.safe = 0;
    return rkv_j_escape(c, &plain, out);
}

static rkv_status f_format(jctx *c, const jval *self, const jargs *a, jval *out)
{
    jval values;
    if (a->n && a->n_kw)
        return rkv_j_fail(c, RKV_E_FORMAT, "format takes either positional or keyword arguments");
    RKV_TRY(rkv_j_list(c, J_TUPLE, (size_t)a->n, &values));
    for (int i = 0; i < a->n; i++)
        RKV_TRY(rkv_j_append(c, values.list, &a->v[i]));
    if (a->n_kw) {
        RKV_TRY(rkv_j_dict(c, J_DICT, (size_t)a->n_kw, &values));
        RKV_TRY(rkv_j_update(c, values.dict, a));
    }
    return rkv_j_percent(c, self, &values, out);
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* int(f); 0 when Python refuses the value, -1 when it is beyond 64 bits. */
static int whole(double f, int64_t *i)
{
    if (!isfinite(f))
        return 0;
    if (fabs(f) >= 0x1p63)
        return -1;
    *i = (int64_t)f;
    return 1;
}

static rkv_status f_int(jctx *c, const jval *self, const jargs *a, jval *out)
{
    int64_t base = 10, i = 0;
    double f;
    int ok = 0;
    if (a->v[1].kind != J_ABSENT)
        RKV_TRY(rkv_j_want_int(c, &a->v[1], &base));
    if (self->kind == J_UNDEFINED)
        return rkv_j_undefined(c, self);
    if (self->kind == J_FLOAT && isinf(self->f))
        return rkv_j_fail(c, RKV_E_FORMAT, "cannot convert float infinity to integer");
    if (self->kind == J_INT || self->kind == J_BOOL)
        i = self->i, ok = 1;
    else if (self->kind == J_FLOAT)
        ok = whole(self->f, &i);
    else if (self->kind == J_STRING && (base == 0 || (base >= 2 && base <= 36)))
        ok = rkv_j_parse_int(self->s, self->n, (int)base, &i);
    if (!ok && self->kind == J_STRING && rkv_j_parse_float(self->s, self->n, &f))
        ok = whole(f, &i);
    if (ok < 0)
        return rkv_j_fail(c, RKV_E_ARG, "an integer is beyond 64 bits");
    *out = ok ? rkv_j_int(i) : a->v[0].kind == J_ABSENT ? rkv_j_int(0) : a->v[0];
    return RKV_OK;
}

static rkv_status f_float(jctx *c, const jval *self, const jargs *a, jval *out)
{
    double f = 0.0;
    int ok = 1;
    if (self->kind == J_UNDEFINED)
        return rkv_j_undefined(c, self);
    if (self->kind == J_FLOAT)
        f = self->f;
    else if (self->kind == J_INT || self->kind == J_BOOL)
        f = (double)self->i;
    else
        ok = self->kind == J_STRING && rkv_j_parse_float(self->s, self->n, &f);
    *out = ok ? rkv_j_float(f) : a->v[0].kind == J_ABSENT ? rkv_j_float(0.0) : a->v[0];
    return RKV_OK;
}

static rkv_status f_abs(jctx *c, const jval *self, const jargs *a, jval *out)
{
    (void)a;
    if (self->kind == J_FLOAT) {
        *out = rkv_j_float(fabs(self->f));
        return RKV_OK;
    }
    return rkv_j_negate(c, self, rkv_j_is_number(self) && self->i < 0, out);
}

/* Integers rounded to tens, hundreds, ...: half to even. */
static rkv_status round_int(jctx *c, int64_t i, int64_t digits, jval *out)
{
    int64_t unit = 1;
    for (; digits < 0 && unit < INT64_MAX / 10; digits++)
        unit *= 10;
    if (digits < 0) {
        *out = rkv_j_int(0);
        return RKV_OK;
    }
    const int64_t rest = i % unit, size = rest < 0 ? -rest : rest, half = unit / 2;
    int64_t q = i / unit;
    if (size > half || (unit > 1 && size == half && q % 2))
        q += i < 0 ? -1 : 1;
    const jval a = rkv_j_int(q), b = rkv_j_int(unit);
    return rkv_j_binary(c, J_MUL, &a, &b, out);
}

/* ceil and floor: func(value * 10 ** precision) / 10 ** precision */
static rkv_status round_to(jctx *c, const jval *self, int64_t precision, int up, jval *out)
{
    const jval ten = rkv_j_int(10), exponent = rkv_j_int(precision);
    jval unit, v;
    int64_t i;
    RKV_TRY(rkv_j_binary(c, J_POW, &ten, &exponent, &unit));
    RKV_TRY(rkv_j_binary(c, J_MUL, self, &unit, &v));
    if (v.kind == J_FLOAT) {
        const int ok = whole(up ? ceil(v.f) : floor(v.f), &i);
        if (ok <= 0)
            return ok ? rkv_j_fail(c, RKV_E_ARG, "an integer is beyond 64 bits")
                      : rkv_j_fail(c, RKV_E_FORMAT, "cannot convert float to integer");
        v = rkv_j_int(i);
    }
    return rkv_j_binary(c, J_DIV, &v, &unit, out);
}

static rkv_status f_round(jctx *c, const jval *self, const jargs *a, jval *out)
{
    int64_t precision = 0, i = 0;
    const jval method = a->v[1].kind == J_ABSENT ? rkv_j_literal("common") : a->v[1];
    static const char *const name[] = {"common", "ceil", "floor"};
    int which = 0;
    while (which < 3 && (method.kind != J_STRING || method.n != strlen(name[which]) ||
                         memcmp(method.s, name[which], method.n)))
        which++;
    if (which == 3)
        return rkv_j_fail(c, RKV_E_FORMAT, "round: the method must be common, ceil or floor");
    if (self->kind == J_UNDEFINED)
        return rkv_j_undefined(c, self);
    if (!rkv_j_is_number(self))
        return rkv_j_fail(c, RKV_E_FORMAT, "type %s cannot be rounded", rkv_j_type(self));
    if (a->v[0].kind != J_ABSENT && !(which == 0 && a->v[0].kind == J_NONE))
        RKV_TRY(rkv_j_want_int(c, &a->v[0], &precision));
    if (which)
        return round_to(c, self, precision, which == 1, out);
    if (self->kind != J_FLOAT)
        return round_int(c, self->i, precision, out);
    const int limited = precision > 400 ? 400 : precision < -400 ? -400 : (int)precision;
    *out = rkv_j_float(rkv_j_round(self->f, limited));
    if (a->v[0].kind != J_NONE)
        return RKV_OK;
    if (whole(out->f, &i) <= 0)
        return rkv_j_fail(c, RKV_E_FORMAT, "cannot convert float to integer");
    *out = rkv_j_int(i);
    return RKV_OK;
}

/* ---- any value ------------------------------------------------------------------------------- */

static rkv_status f_default(jctx *c, const jval *self, const jargs *a, jval *out)
{
    (void)c;
    *out = *self;
    if (self->kind == J_UNDEFINED || (rkv_j_truth(&a->v[1]) && !rkv_j_truth(self)))
        *out = a->v[0].kind == J_ABSENT ? rkv_j_literal("") : a->v[0];
    return RKV_OK;
}

static rkv_status f_length(jctx *c, const jval *self, const jargs *a, jval *out)
{
    (void)a;
    size_t n;
    RKV_TRY(rkv_j_len(c, self, &n));
    *out = rkv_j_int((int64_t)n);
    return RKV_OK;
}

static rkv_status f_attr(jctx *c, const jval *self, const jargs *a, jval *out)
{
    RKV_TRY(rkv_j_want_string(c, &a->v[0]));
    RKV_TRY(rkv_j_own_attribute(c, self, a->v[0].s, a->v[0].n, out));
    if (out->kind == J_ABSENT)
        *out = rkv_j_missing(J_NO_ATTRIBUTE, self, a->v[0].s, a->v[0].n);
    return RKV_OK;
}

static rkv_status f_tojson(jctx *c, const jval *self, const jargs *a, jval *out)
{
    const jval *indent = &a->v[1];
    jval by = rkv_j_literal(""), item = rkv_j_literal(given(indent) ? "," : ", "),
         key = rkv_j_literal(": ");
    const jval space = rkv_j_literal(" ");
    int flags = a->v[0].kind != J_ABSENT && rkv_j_truth(&a->v[0]) ? J_JSON_ASCII : 0;
    int64_t width = 0;
    if (indent->kind == J_STRING) {
        by = *indent;
    } else if (given(indent)) {
        RKV_TRY(rkv_j_want_int(c, indent, &width));
        RKV_TRY(rkv_j_repeat(c, &space, width, &by));
    }
    if (given(&a->v[2])) {
        jval pair;
        RKV_TRY(rkv_j_to_list(c, &a->v[2], &pair));
        if (pair.list->n != 2 || pair.list->v[0].kind != J_STRING ||
            pair.list->v[1].kind != J_STRING)
            return rkv_j_fail(c, RKV_E_FORMAT, "tojson: separators must be two strings");
        item = pair.list->v[0];
        key = pair.list->v[1];
    }
    if (rkv_j_truth(&a->v[3]))
        flags |= J_JSON_SORT;
    const size_t mark = c->out.n;
    RKV_TRY(rkv_j_put_json(c, self, given(indent) ? &by : NULL, &item, &key, flags));
    return rkv_j_take(c, mark, out);
}

const jdef rkv_j_text_filters[] = {
    {"trim", rkv_j_str_strip, "chars?", 1},
    {"tojson", f_tojson, "ensure_ascii?,indent?,separators?,sort_keys?", 0},
    {"length", f_length, "", 0},
    {"count", f_length, "", 0},
    {"default", f_default, "default_value?,boolean?", 0},
    {"d", f_default, "default_value?,boolean?", 0},
    {"upper", rkv_j_str_upper, "", 1},
    {"lower", rkv_j_str_lower, "", 1},
    {"capitalize", rkv_j_str_capitalize, "", 1},
    {"title", f_title, "", 1},
    {"replace", f_replace, "old,new,count?", 1},
    {"indent", f_indent, "width?,first?,blank?", 0},
    {"center", f_center, "width?", 1},
    {"truncate", f_truncate, "length?,killwords?,end?,leeway?", 0},
    {"wordcount", f_wordcount, "", 1},
    {"urlencode", f_urlencode, "", 0},
    {"string", f_string, "", 1},
    {"safe", f_safe, "", 1},
    {"escape", f_escape, "", 0},
    {"e", f_escape, "", 0},
    {"forceescape", f_forceescape, "", 1},
    {"format", f_format, "*", 1},
    {"int", f_int, "default?,base?", 0},
    {"float", f_float, "default?", 0},
    {"abs", f_abs, "", 0},
    {"round", f_round, "precision?,method?", 0},
    {"attr", f_attr, "name", 0},
    {"filesizeformat", NULL, "*", 0},
    {"pprint", NULL, "*", 0},
    {"random", NULL, "*", 0},
    {"striptags", NULL, "*", 0},
    {"urlize", NULL, "*", 0},
    {"wordwrap", NULL, "*", 0},
    {"xmlattr", NULL, "*", 0},
    {NULL, NULL, NULL, 0}};

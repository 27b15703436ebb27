/* Methods of strings. Positions and widths count code points. */
#include "config.h"
#include "text/chat_ops.h"

#include <string.h>

#include <utf8proc.h>

/* ---- searching and stripping ----------------------------------------------------------------- */

size_t rkv_j_search(const jval *s, const jval *needle, size_t from)
{
    if (from > s->n)
        return s->n + 1;
    if (!needle->n)
        return from;
    const char *p = NULL;
    if (needle->n == 1)                         /* memmem of sanitizers looks at the whole text */
        p = memchr(s->s + from, *needle->s, s->n - from);
    else if (s->n > from)
        p = memmem(s->s + from, s->n - from, needle->s, needle->n);
    return p ? (size_t)(p - s->s) : s->n + 1;
}

rkv_status rkv_j_search_back(jctx *c, const jval *s, const jval *needle, size_t to, size_t *out)
{
    size_t work = 0;
    *out = s->n + 1;
    for (size_t at = to >= needle->n ? to - needle->n + 1 : 0; at-- > 0;) {
        size_t k = 0;
        while (k < needle->n && s->s[at + k] == needle->s[k])
            k++;
        work += k + 1;
        if (k == needle->n) {
            *out = at;
            break;
        }
        if (work > 1 << 16) {                   /* the time is their product at worst */
            RKV_TRY(rkv_j_step(c, work >> 6));
            work = 0;
        }
    }
    return rkv_j_step(c, work >> 6);
}

static int strips(uint32_t cp, const char *raw, size_t len, const jval *chars)
{
    if (!chars)
        return rkv_j_is_space(cp);
    const jval one = rkv_j_string(raw, len);
    return rkv_j_search(chars, &one, 0) <= chars->n;
}

/* Length of the code point that ends at s + n, n >= 1. */
static size_t last_length(const char *s, size_t n)
{
    uint32_t cp;
    for (size_t len = n < 4 ? n : 4; len > 1; len--)
        if (rkv_j_decode(s + n - len, len, &cp) == len)
            return len;
    return 1;
}

jval rkv_j_strip(const jval *s, const jval *chars, int sides)
{
    jval v = *s;
    uint32_t cp;
    while ((sides & 1) && v.n) {
        const size_t len = rkv_j_decode(v.s, v.n, &cp);
        if (!strips(cp, v.s, len, chars))
            break;
        v.s += len;
        v.n -= len;
    }
    while ((sides & 2) && v.n) {
        const size_t len = last_length(v.s, v.n);
        rkv_j_decode(v.s + v.n - len, len, &cp);
        if (!strips(cp, v.s + v.n - len, len, chars))
            break;
        v.n -= len;
    }
    return v;
}

static rkv_status strip(jctx *c, const jval *self, const jargs *a, int sides, jval *out)
{
    const jval *chars = a->v[0].kind == J_ABSENT || a->v[0].kind == J_NONE ? NULL : &a->v[0];
    if (chars)
        RKV_TRY(rkv_j_want_string(c, chars));
    RKV_TRY(rkv_j_step(c, chars ? self->n * (chars->n + 1) >> 6 : 0));
    *out = rkv_j_strip(self, chars, sides);
    return RKV_OK;
}

rkv_status rkv_j_str_strip(jctx *c, const jval *self, const jargs *a, jval *out)
{
    return strip(c, self, a, 3, out);
}

static rkv_status s_lstrip(jctx *c, const jval *self, const jargs *a, jval *out)
{
    return strip(c, self, a, 1, out);
}

static rkv_status s_rstrip(jctx *c, const jval *self, const jargs *a, jval *out)
{
    return strip(c, self, a, 2, out);
}

/* ---- splitting ------------------------------------------------------------------------------- */

static rkv_status add_part(jctx *c, jlist *l, const jval *s, size_t from, size_t to)
{
    jval part = rkv_j_string(s->s + from, to - from);
    part.safe = s->safe;
    return rkv_j_append(c, l, &part);
}

static rkv_status split_by(jctx *c, const jval *s, const jval *sep, int64_t most, int back,
                           jlist *l)
{
    size_t from = 0, to = s->n;
    RKV_TRY(rkv_j_want_string(c, sep));
    if (!sep->n)
        return rkv_j_fail(c, RKV_E_FORMAT, "empty separator");
    RKV_TRY(rkv_j_step(c, s->n >> 6));
    for (; most; most--) {
        size_t at = back ? 0 : rkv_j_search(s, sep, from);
        if (back)
            RKV_TRY(rkv_j_search_back(c, s, sep, to, &at));
        if (at > s->n)
            break;
        RKV_TRY(back ? add_part(c, l, s, at + sep->n, to) : add_part(c, l, s, from, at));
        from = back ? from : at + sep->n;
        to = back ? at : to;
    }
    return add_part(c, l, s, from, to);
}

static size_t next_space(const jval *s, size_t from, int space)
{
    uint32_t cp;
    while (from < s->n) {
        const size_t len = rkv_j_decode(s->s + from, s->n - from, &cp);
        if (rkv_j_is_space(cp) == space)
            break;
        from += len;
    }
    return from;
}

static size_t previous_space(const jval *s, size_t to, int space)
{
    uint32_t cp;
    while (to > 0) {
        const size_t len = last_length(s->s, to);
        rkv_j_decode(s->s + to - len, len, &cp);
        if (rkv_j_is_space(cp) == space)
            break;
        to -= len;
    }
    return to;
}

/* At runs of whitespace, without empty parts. */
static rkv_status split_words(jctx *c, const jval *s, int64_t most, int back, jlist *l)
{
    RKV_TRY(rkv_j_step(c, s->n >> 4));
    if (back) {
        for (size_t to = previous_space(s, s->n, 0); to > 0; most--) {
            const size_t from = most ? previous_space(s, to, 1) : 0;
            RKV_TRY(add_part(c, l, s, from, to));
            to = most ? previous_space(s, from, 0) : 0;
        }
        return RKV_OK;
    }
    for (size_t from = next_space(s, 0, 0); from < s->n; most--) {
        const size_t to = most ? next_space(s, from, 1) : s->n;
        RKV_TRY(add_part(c, l, s, from, to));
        from = next_space(s, to, 0);
    }
    return RKV_OK;
}

static rkv_status split(jctx *c, const jval *self, const jargs *a, int back, jval *out)
{
    int64_t most = -1;
    jval l;
    if (a->v[1].kind != J_ABSENT)
        RKV_TRY(rkv_j_want_int(c, &a->v[1], &most));
    RKV_TRY(rkv_j_list(c, J_LIST, 0, &l));
    if (a->v[0].kind == J_ABSENT || a->v[0].kind == J_NONE)
        RKV_TRY(split_words(c, self, most < 0 ? -1 : most, back, l.list));
    else
        RKV_TRY(split_by(c, self, &a->v[0], most < 0 ? -1 : most, back, l.list));
    if (back)
        rkv_j_reverse(l.list);
    *out = l;
    return RKV_OK;
}

static rkv_status s_split(jctx *c, const jval *self, const jargs *a, jval *out)
{
    return split(c, self, a, 0, out);
}

static rkv_status s_rsplit(jctx *c, const jval *self, const jargs *a, jval *out)
{
    return split(c, self, a, 1, out);
}

/* Python's line boundaries. */
static int is_line_end(uint32_t cp)
{
    return (cp >= 10 && cp <= 13) || (cp >= 28 && cp <= 30) || cp == 0x85 || cp == 0x2028 ||
           cp == 0x2029;
}

rkv_status rkv_j_split_lines(jctx *c, const jval *s, int keep, jval *out)
{
    jval l;
    uint32_t cp;
    size_t from = 0;
    RKV_TRY(rkv_j_list(c, J_LIST, 0, &l));
    RKV_TRY(rkv_j_step(c, s->n >> 4));
    for (size_t i = 0; i < s->n;) {
        const size_t at = i;
        i += rkv_j_decode(s->s + i, s->n - i, &cp);
        if (!is_line_end(cp))
            continue;
        if (cp == '\r' && i < s->n && s->s[i] == '\n')
            i++;
        RKV_TRY(add_part(c, l.list, s, from, keep ? i : at));
        from = i;
    }
    if (from < s->n)
        RKV_TRY(add_part(c, l.list, s, from, s->n));
    *out = l;
    return RKV_OK;
}

static rkv_status s_splitlines(jctx *c, const jval *self, const jargs *a, jval *out)
{
    int keep;
    RKV_TRY(rkv_j_want_flag(c, &a->v[0], &keep));
    return rkv_j_split_lines(c, self, keep, out);
}

static rkv_status partition(jctx *c, const jval *self, const jargs *a, int back, jval *out)
{
    const jval *sep = &a->v[0];
    jval l;
    RKV_TRY(rkv_j_want_string(c, sep));
    if (!sep->n)
        return rkv_j_fail(c, RKV_E_FORMAT, "empty separator");
    RKV_TRY(rkv_j_list(c, J_TUPLE, 3, &l));
    RKV_TRY(rkv_j_step(c, self->n >> 6));
    size_t at = back ? 0 : rkv_j_search(self, sep, 0);
    if (back)
        RKV_TRY(rkv_j_search_back(c, self, sep, self->n, &at));
    const int found = at <= self->n;
    const size_t from = found ? at : back ? 0 : self->n, to = found ? at + sep->n : from;
    RKV_TRY(add_part(c, l.list, self, 0, from));
    RKV_TRY(add_part(c, l.list, self, from, to));
    RKV_TRY(add_part(c, l.list, self, to, self->n));
    *out = l;
    return RKV_OK;
}

static rkv_status s_partition(jctx *c, const jval *self, const jargs *a, jval *out)
{
    return partition(c, self, a, 0, out);
}

static rkv_status s_rpartition(jctx *c, const jval *self, const jargs *a, jval *out)
{
    return partition(c, self, a, 1, out);
}

/* ---- joining, replacing, escaping ------------------------------------------------------------ */

static rkv_status s_join(jctx *c, const jval *self, const jargs *a, jval *out)
{
    jval l, sep = *self;
    RKV_TRY(rkv_j_to_list(c, &a->v[0], &l));
    const size_t mark = c->out.n;
    for (size_t i = 0; i < l.list->n; i++) {
        jval part = l.list->v[i];
        RKV_TRY(rkv_j_want_string(c, &part));
        if (sep.safe)
            RKV_TRY(rkv_j_escape(c, &part, &part));
        if (i)
            RKV_TRY(rkv_j_put(c, sep.s, sep.n));
        RKV_TRY(rkv_j_put(c, part.s, part.n));
    }
    RKV_TRY(rkv_j_take(c, mark, out));
    out->safe = sep.safe;
    return RKV_OK;
}

/* An empty old text stands before each code point and at the end. */
static rkv_status insert_between(jctx *c, const jval *s, const jval *text, int64_t count)
{
    uint32_t cp;
    size_t i = 0;
    for (; count && i <= s->n; count--) {
        RKV_TRY(rkv_j_step(c, 1));
        RKV_TRY(rkv_j_put(c, text->s, text->n));
        const size_t len = i < s->n ? rkv_j_decode(s->s + i, s->n - i, &cp) : 0;
        RKV_TRY(rkv_j_put(c, s->s + i, len));
        i += len ? len : 1;
    }
    return i < s->n ? rkv_j_put(c, s->s + i, s->n - i) : RKV_OK;
}

rkv_status rkv_j_replace(jctx *c, const jval *s, const jval *old, const jval *new_, int64_t count,
                         jval *out)
{
    const size_t mark = c->out.n;
    RKV_TRY(rkv_j_step(c, s->n >> 6));
    if (!old->n) {
        RKV_TRY(insert_between(c, s, new_, count));
    } else {
        size_t from = 0;
        for (; count; count--) {
            const size_t at = rkv_j_search(s, old, from);
            if (at > s->n)
                break;
            RKV_TRY(rkv_j_step(c, 1));
            RKV_TRY(rkv_j_put(c, s->s + from, at - from));
            RKV_TRY(rkv_j_put(c, new_->s, new_->n));
            from = at + old->n;
        }
        RKV_TRY(rkv_j_put(c, s->s + from, s->n - from));
    }
    return rkv_j_take(c, mark, out);
}

static rkv_status s_replace(jctx *c, const jval *self, const jargs *a, jval *out)
{
    int64_t count = -1;
    jval text = a->v[1];
    const uint8_t safe = self->safe;
    RKV_TRY(rkv_j_want_string(c, &a->v[0]));
    RKV_TRY(rkv_j_want_string(c, &text));
    if (a->v[2].kind != J_ABSENT)
        RKV_TRY(rkv_j_want_int(c, &a->v[2], &count));
    if (safe)
        RKV_TRY(rkv_j_escape(c, &text, &text));
    RKV_TRY(rkv_j_replace(c, self, &a->v[0], &text, count < 0 ? -1 : count, out));
    out->safe = safe;
    return RKV_OK;
}

rkv_status rkv_j_escape(jctx *c, const jval *v, jval *out)
{
    static const char from[] = "&<>\"'";
    static const char *const to[] = {"&amp;", "&lt;", "&gt;", "&#34;", "&#39;"};
    jval s;
    RKV_TRY(rkv_j_to_string(c, v, &s));
    if (!s.safe) {
        const size_t mark = c->out.n;
        RKV_TRY(rkv_j_step(c, s.n >> 4));
        for (size_t i = 0; i < s.n; i++) {
            const char *p = s.s[i] ? strchr(from, s.s[i]) : NULL;
            RKV_TRY(p ? rkv_j_put(c, to[p - from], strlen(to[p - from]))
                      : rkv_j_put(c, s.s + i, 1));
        }
        RKV_TRY(rkv_j_take(c, mark, &s));
        s.safe = 1;
    }
    *out = s;
    return RKV_OK;
}

/* ---- padding --------------------------------------------------------------------------------- */

static rkv_status pad(jctx *c, const jval *self, const jargs *a, int side, jval *out)
{
    int64_t width;
    jval fill = a->v[1].kind == J_ABSENT ? rkv_j_literal(" ") : a->v[1];
    RKV_TRY(rkv_j_want_int(c, &a->v[0], &width));
    RKV_TRY(rkv_j_want_string(c, &fill));
    if (rkv_j_length(fill.s, fill.n) != 1)
        return rkv_j_fail(c, RKV_E_FORMAT, "the fill character must be exactly one character long");
    const int64_t length = (int64_t)rkv_j_length(self->s, self->n);
    *out = *self;
    if (width <= length)
        return RKV_OK;
    const int64_t room = width - length;
    const int64_t before = side < 0 ? 0 : side > 0 ? room : room / 2 + (room & width & 1);
    const size_t mark = c->out.n;
    const uint8_t safe = self->safe;
    const jval text = *self;
    RKV_TRY(rkv_j_put_times(c, fill.s, fill.n, before));
    RKV_TRY(rkv_j_put(c, text.s, text.n));
    RKV_TRY(rkv_j_put_times(c, fill.s, fill.n, room - before));
    RKV_TRY(rkv_j_take(c, mark, out));
    out->safe = safe;
    return RKV_OK;
}

static rkv_status s_ljust(jctx *c, const jval *self, const jargs *a, jval *out)
{
    return pad(c, self, a, -1, out);
}

static rkv_status s_rjust(jctx *c, const jval *self, const jargs *a, jval *out)
{
    return pad(c, self, a, 1, out);
}

rkv_status rkv_j_str_center(jctx *c, const jval *self, const jargs *a, jval *out)
{
    return pad(c, self, a, 0, out);
}

static rkv_status s_zfill(jctx *c, const jval *self, const jargs *a, jval *out)
{
    int64_t width;
    RKV_TRY(rkv_j_want_int(c, &a->v[0], &width));
    const int64_t length = (int64_t)rkv_j_length(self->s, self->n);
    const size_t sign = self->n && (self->s[0] == '+' || self->s[0] == '-');
    const size_t mark = c->out.n;
    RKV_TRY(rkv_j_put(c, self->s, sign));
    RKV_TRY(rkv_j_put_times(c, "0", 1, width > length ? width - length : 0));
    RKV_TRY(rkv_j_put(c, self->s + sign, self->n - sign));
    return rkv_j_take(c, mark, out);
}

static rkv_status s_expandtabs(jctx *c, const jval *self, const jargs *a, jval *out)
{
    int64_t size = 8, column = 0;
    uint32_t cp;
    if (a->v[0].kind != J_ABSENT)
        RKV_TRY(rkv_j_want_int(c, &a->v[0], &size));
    const size_t mark = c->out.n;
    RKV_TRY(rkv_j_step(c, self->n >> 3));
    for (size_t i = 0; i < self->n;) {
        const size_t len = rkv_j_decode(self->s + i, self->n - i, &cp);
        const int64_t spaces = cp == '\t' && size > 0 ? size - column % size : 0;
        if (cp == '\t')
            RKV_TRY(rkv_j_put_times(c, " ", 1, spaces));
        else
            RKV_TRY(rkv_j_put(c, self->s + i, len));
        column = cp == '\n' || cp == '\r' ? 0 : cp == '\t' ? column + spaces : column + 1;
        i += len;
    }
    return rkv_j_take(c, mark, out);
}

static rkv_status s_removeprefix(jctx *c, const jval *self, const jargs *a, jval *out)
{
    RKV_TRY(rkv_j_want_string(c, &a->v[0]));
    const size_t n = a->v[0].n;
    *out = *self;
    if (n <= self->n && !memcmp(self->s, a->v[0].s, n)) {
        out->s += n;
        out->n -= n;
    }
    return RKV_OK;
}

static rkv_status s_removesuffix(jctx *c, const jval *self, const jargs *a, jval *out)
{
    RKV_TRY(rkv_j_want_string(c, &a->v[0]));
    const size_t n = a->v[0].n;
    *out = *self;
    if (n && n <= self->n && !memcmp(self->s + self->n - n, a->v[0].s, n))
        out->n -= n;
    return RKV_OK;
}

/* ---- case and format ------------------------------------------------------------------------- */

#define CASE(name, how) \
    rkv_status name(jctx *c, const jval *self, const jargs *a, jval *out) \
    { \
        (void)a; \
        return rkv_j_case(c, self, how, out); \
    }
CASE(rkv_j_str_upper, J_UPPER)
CASE(rkv_j_str_lower, J_LOWER)
static CASE(s_title, J_TITLE)
CASE(rkv_j_str_capitalize, J_CAPITALIZE)
static CASE(s_swapcase, J_SWAPCASE)
static CASE(s_casefold, J_FOLD)

static rkv_status s_format(jctx *c, const jval *self, const jargs *a, jval *out)
{
    return rkv_j_format(c, self, a, out);
}

/* The methods that search or ask are in chat_find.c. */
const jdef rkv_j_string_methods[] = {{"strip", rkv_j_str_strip, "1?", 0},
                                     {"lstrip", s_lstrip, "1?", 0},
                                     {"rstrip", s_rstrip, "1?", 0},
                                     {"split", s_split, "sep?,maxsplit?", 0},
                                     {"rsplit", s_rsplit, "sep?,maxsplit?", 0},
                                     {"splitlines", s_splitlines, "keepends?", 0},
                                     {"partition", s_partition, "1", 0},
                                     {"rpartition", s_rpartition, "1", 0},
                                     {"join", s_join, "1", 0},
                                     {"replace", s_replace, "1,2,3?", 0},
                                     {"ljust", s_ljust, "1,2?", 0},
                                     {"rjust", s_rjust, "1,2?", 0},
                                     {"center", rkv_j_str_center, "1,2?", 0},
                                     {"zfill", s_zfill, "1", 0},
                                     {"expandtabs", s_expandtabs, "tabsize?", 0},
                                     {"removeprefix", s_removeprefix, "1", 0},
                                     {"removesuffix", s_removesuffix, "1", 0},
                                     {"upper", rkv_j_str_upper, "", 0},
                                     {"lower", rkv_j_str_lower, "", 0},
                                     {"title", s_title, "", 0},
                                     {"capitalize", rkv_j_str_capitalize, "", 0},
                                     {"swapcase", s_swapcase, "", 0},
                                     {"casefold", s_casefold, "", 0},
                                     {"format", s_format, "*", 0},
                                     {"encode", NULL, "*", 0},
                                     {"format_map", NULL, "*", 0},
                                     {"maketrans", NULL, "*", 0},
                                     {"translate", NULL, "*", 0},
                                     {NULL, NULL, NULL, 0}};

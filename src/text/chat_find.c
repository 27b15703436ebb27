/* Methods of strings that search or ask. */
#include "config.h"
#include "text/chat_ops.h"

#include <string.h>

#include <utf8proc.h>

/* The stretch of self that the optional arguments start and end (1 and 2) leave; *first is its
 * position in code points; *valid = 0 when start lies behind the end. */
static rkv_status stretch(jctx *c, const jval *self, const jargs *a, jval *out, int64_t *first,
                          int *valid)
{
    *out = *self;
    *first = 0;
    *valid = 1;
    if (a->v[1].kind == J_ABSENT && a->v[2].kind == J_ABSENT)
        return rkv_j_step(c, self->n >> 8);
    const jval bound[3] = {a->v[1], a->v[2], rkv_j_none()};
    const int64_t length = (int64_t)rkv_j_length(self->s, self->n);
    jrange r;
    RKV_TRY(rkv_j_step(c, self->n >> 4));
    RKV_TRY(rkv_j_slice_indices(c, bound, length, &r));
    /* Where slices clip to the end, searches notice. */
    *valid = !(bound[0].kind == J_INT && bound[0].i > length) && r.start <= r.stop;
    const size_t from = rkv_j_offset(self->s, self->n, (size_t)r.start);
    const size_t n = r.stop > r.start
                         ? rkv_j_offset(self->s + from, self->n - from, (size_t)(r.stop - r.start))
                         : 0;
    *out = rkv_j_string(self->s + from, n);
    *first = r.start;
    return RKV_OK;
}

static rkv_status find(jctx *c, const jval *self, const jargs *a, int back, int must, jval *out)
{
    jval part;
    int64_t first;
    int valid;
    RKV_TRY(rkv_j_want_string(c, &a->v[0]));
    RKV_TRY(stretch(c, self, a, &part, &first, &valid));
    size_t at = part.n + 1;
    if (valid && back)
        RKV_TRY(rkv_j_search_back(c, &part, &a->v[0], part.n, &at));
    else if (valid)
        at = rkv_j_search(&part, &a->v[0], 0);
    const int found = at <= part.n;
    if (!found && must)
        return rkv_j_fail(c, RKV_E_FORMAT, "substring not found");
    *out = rkv_j_int(found ? first + (int64_t)rkv_j_length(part.s, at) : -1);
    return RKV_OK;
}

static rkv_status s_find(jctx *c, const jval *self, const jargs *a, jval *out)
{
    return find(c, self, a, 0, 0, out);
}

static rkv_status s_rfind(jctx *c, const jval *self, const jargs *a, jval *out)
{
    return find(c, self, a, 1, 0, out);
}

static rkv_status s_index(jctx *c, const jval *self, const jargs *a, jval *out)
{
    return find(c, self, a, 0, 1, out);
}

static rkv_status s_rindex(jctx *c, const jval *self, const jargs *a, jval *out)
{
    return find(c, self, a, 1, 1, out);
}

static rkv_status s_count(jctx *c, const jval *self, const jargs *a, jval *out)
{
    jval part;
    int64_t first, n = 0;
    int valid;
    RKV_TRY(rkv_j_want_string(c, &a->v[0]));
    RKV_TRY(stretch(c, self, a, &part, &first, &valid));
    if (valid && !a->v[0].n)
        n = (int64_t)rkv_j_length(part.s, part.n) + 1;
    for (size_t at = 0; valid && a->v[0].n; n++) {
        at = rkv_j_search(&part, &a->v[0], at);
        if (at > part.n)
            break;
        RKV_TRY(rkv_j_step(c, 1));
        at += a->v[0].n;
    }
    *out = rkv_j_int(n);
    return RKV_OK;
}

static int has_affix(const jval *s, const jval *affix, int at_end)
{
    return affix->n <= s->n && !memcmp(at_end ? s->s + s->n - affix->n : s->s, affix->s, affix->n);
}

/* The affix may be a tuple: any of its strings. */
static rkv_status affix(jctx *c, const jval *self, const jargs *a, int at_end, jval *out)
{
    const jval *one = &a->v[0];
    size_t n = 1;
    jval part;
    int64_t first;
    int valid, yes = 0;
    RKV_TRY(stretch(c, self, a, &part, &first, &valid));
    if (one->kind == J_TUPLE) {
        n = one->list->n;
        one = one->list->v;
    }
    for (size_t i = 0; i < n && !yes; i++) {
        RKV_TRY(rkv_j_want_string(c, &one[i]));
        yes = valid && has_affix(&part, &one[i], at_end);
    }
    *out = rkv_j_bool(yes);
    return RKV_OK;
}

static rkv_status s_startswith(jctx *c, const jval *self, const jargs *a, jval *out)
{
    return affix(c, self, a, 0, out);
}

static rkv_status s_endswith(jctx *c, const jval *self, const jargs *a, jval *out)
{
    return affix(c, self, a, 1, out);
}

/* ---- isalpha and so on ----------------------------------------------------------------------- */

typedef int property(uint32_t cp);

static int is_alpha(uint32_t cp)
{
    const utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)cp);
    return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

static int is_decimal(uint32_t cp)
{
    return utf8proc_category((utf8proc_int32_t)cp) == UTF8PROC_CATEGORY_ND;
}

/* Decimal digits, superscripts, subscripts and encircled ones. */
static int is_digit(uint32_t cp)
{
    return is_decimal(cp) || cp == 0xb2 || cp == 0xb3 || cp == 0xb9 || cp == 0x2070 ||
           (cp >= 0x2074 && cp <= 0x2079) || (cp >= 0x2080 && cp <= 0x2089) ||
           (cp >= 0x2460 && cp <= 0x2468) || (cp >= 0x2474 && cp <= 0x247c);
}

static int is_numeric(uint32_t cp)
{
    const utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)cp);
    return k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO;
}

static int is_alnum(uint32_t cp)
{
    return is_alpha(cp) || is_numeric(cp);
}

static int is_ascii(uint32_t cp)
{
    return cp < 0x80;
}

/* Every code point has the property; an empty string has it when empty says so. */
static rkv_status all(jctx *c, const jval *s, property *has, int empty, jval *out)
{
    uint32_t cp;
    int yes = s->n ? 1 : empty;
    RKV_TRY(rkv_j_step(c, s->n >> 3));
    for (size_t i = 0; i < s->n && yes;) {
        i += rkv_j_decode(s->s + i, s->n - i, &cp);
        yes = has(cp);
    }
    *out = rkv_j_bool(yes);
    return RKV_OK;
}

#define ALL(name, has, empty) \
    static rkv_status name(jctx *c, const jval *self, const jargs *a, jval *out) \
    { \
        (void)a; \
        return all(c, self, has, empty, out); \
    }
ALL(s_isalpha, is_alpha, 0)
ALL(s_isalnum, is_alnum, 0)
ALL(s_isdecimal, is_decimal, 0)
ALL(s_isdigit, is_digit, 0)
ALL(s_isnumeric, is_numeric, 0)
ALL(s_isspace, rkv_j_is_space, 0)
ALL(s_isascii, is_ascii, 1)
ALL(s_isprintable, rkv_j_is_printable, 1)

static int all_case(const jval *s, int upper)
{
    uint32_t cp;
    int cased = 0;
    for (size_t i = 0; i < s->n;) {
        i += rkv_j_decode(s->s + i, s->n - i, &cp);
        if (!rkv_j_is_cased(cp))
            continue;
        if (!(upper ? rkv_j_is_upper(cp) : rkv_j_is_lower(cp)))
            return 0;
        cased = 1;
    }
    return cased;
}

rkv_status rkv_j_str_isupper(jctx *c, const jval *self, const jargs *a, jval *out)
{
    (void)a;
    *out = rkv_j_bool(all_case(self, 1));
    return rkv_j_step(c, self->n >> 3);
}

rkv_status rkv_j_str_islower(jctx *c, const jval *self, const jargs *a, jval *out)
{
    (void)a;
    *out = rkv_j_bool(all_case(self, 0));
    return rkv_j_step(c, self->n >> 3);
}

static rkv_status s_istitle(jctx *c, const jval *self, const jargs *a, jval *out)
{
    (void)a;
    uint32_t cp;
    int after_cased = 0, any = 0, yes = 1;
    for (size_t i = 0; i < self->n && yes;) {
        i += rkv_j_decode(self->s + i, self->n - i, &cp);
        const int cased = rkv_j_is_cased(cp), lower = rkv_j_is_lower(cp);
        yes = !cased || lower == after_cased;
        any |= cased;
        after_cased = cased;
    }
    *out = rkv_j_bool(any && yes);
    return rkv_j_step(c, self->n >> 3);
}

const jdef rkv_j_find_methods[] = {{"startswith", s_startswith, "1,2?,3?", 0},
                                   {"endswith", s_endswith, "1,2?,3?", 0},
                                   {"find", s_find, "1,2?,3?", 0},
                                   {"rfind", s_rfind, "1,2?,3?", 0},
                                   {"index", s_index, "1,2?,3?", 0},
                                   {"rindex", s_rindex, "1,2?,3?", 0},
                                   {"count", s_count, "1,2?,3?", 0},
                                   {"isalpha", s_isalpha, "", 0},
                                   {"isalnum", s_isalnum, "", 0},
                                   {"isdecimal", s_isdecimal, "", 0},
                                   {"isdigit", s_isdigit, "", 0},
                                   {"isnumeric", s_isnumeric, "", 0},
                                   {"isspace", s_isspace, "", 0},
                                   {"isascii", s_isascii, "", 0},
                                   {"isprintable", s_isprintable, "", 0},
                                   {"isupper", rkv_j_str_isupper, "", 0},
                                   {"islower", rkv_j_str_islower, "", 0},
                                   {"istitle", s_istitle, "", 0},
                                   {"isidentifier", NULL, "*", 0},
                                   {NULL, NULL, NULL, 0}};

/* Truth, equality, order and membership, as in Python. */
#include "config.h"
#include "text/chat_ast.h"

#include <math.h>
#include <string.h>

int rkv_j_truth(const jval *v)
{
    switch (v->kind) {
    case J_ABSENT:
    case J_UNDEFINED:
    case J_NONE:
        return 0;
    case J_BOOL:
    case J_INT:
        return v->i != 0;
    case J_FLOAT:
        return v->f != 0.0;
    case J_STRING:
        return v->n != 0;
    case J_LIST:
    case J_TUPLE:
        return v->list->n != 0;
    case J_DICT:
    case J_VIEW:
        return v->dict->n != 0;
    case J_RANGE:
        return rkv_j_range_length(v->range) != 0;
    default:
        return 1;
    }
}

int rkv_j_is_number(const jval *v)
{
    return v->kind == J_BOOL || v->kind == J_INT || v->kind == J_FLOAT;
}

rkv_status rkv_j_undefined(jctx *c, const jval *v)
{
    const int n = v->n > 200 ? 200 : (int)v->n;
    const jval of = {.kind = v->of};
    switch (v->sub) {
    case J_NO_NAME:
        return rkv_j_fail(c, RKV_E_FORMAT, "'%.*s' is undefined", n, v->s);
    case J_NO_ATTRIBUTE:
        return rkv_j_fail(c, RKV_E_FORMAT, "'%s object' has no attribute '%.*s'", rkv_j_type(&of),
                          n, v->s);
    case J_NO_ELEMENT:
        return rkv_j_fail(c, RKV_E_FORMAT, "%s object has no element %lld", rkv_j_type(&of),
                          (long long)v->i);
    default:
        return rkv_j_fail(c, RKV_E_FORMAT, "%.*s", n, v->s);
    }
}

uint64_t rkv_j_range_length(const jrange *r)
{
    if (r->step > 0)
        return r->stop > r->start
                   ? ((uint64_t)r->stop - (uint64_t)r->start - 1) / (uint64_t)r->step + 1
                   : 0;
    return r->start > r->stop
               ? ((uint64_t)r->start - (uint64_t)r->stop - 1) / (0 - (uint64_t)r->step) + 1
               : 0;
}

int rkv_j_has_length(const jval *v)
{
    return (v->kind >= J_STRING && v->kind <= J_RANGE) || v->kind == J_UNDEFINED ||
           v->kind == J_LOOP;
}

rkv_status rkv_j_len(jctx *c, const jval *v, size_t *n)
{
    int64_t length = 0;
    switch (v->kind) {
    case J_UNDEFINED:
        break;
    case J_STRING:
        RKV_TRY(rkv_j_step(c, v->n >> 4));
        length = (int64_t)rkv_j_length(v->s, v->n);
        break;
    case J_LIST:
    case J_TUPLE:
        length = (int64_t)v->list->n;
        break;
    case J_DICT:
    case J_VIEW:
        length = (int64_t)v->dict->n;
        break;
    case J_RANGE:
        length = (int64_t)rkv_j_range_length(v->range);
        break;
    case J_LOOP:
        RKV_TRY(rkv_j_loop_length(c, v->loop, &length));
        break;
    default:
        return rkv_j_fail(c, RKV_E_FORMAT, "object of type '%s' has no len()", rkv_j_type(v));
    }
    *n = (size_t)length;
    return RKV_OK;
}

rkv_status rkv_j_want_int(jctx *c, const jval *v, int64_t *i)
{
    if (v->kind != J_INT && v->kind != J_BOOL)
        return rkv_j_fail(c, RKV_E_FORMAT, "'%s' object cannot be interpreted as an integer",
                          rkv_j_type(v));
    *i = v->i;
    return RKV_OK;
}

rkv_status rkv_j_want_flag(jctx *c, const jval *v, int *flag)
{
    int64_t i = 0;
    if (v->kind != J_ABSENT)
        RKV_TRY(rkv_j_want_int(c, v, &i));
    *flag = i != 0;
    return RKV_OK;
}

rkv_status rkv_j_want_string(jctx *c, const jval *v)
{
    return v->kind == J_STRING ? RKV_OK
                               : rkv_j_fail(c, RKV_E_FORMAT, "expected str, not %s", rkv_j_type(v));
}

/* ---- equality -------------------------------------------------------------------------------- */

/* -1, 0, 1, or 2 when one is NaN. Both are exact in a long double of at least 64 bits of mantissa.
 */
static int order_numbers(const jval *a, const jval *b)
{
    const long double x = a->kind == J_FLOAT ? (long double)a->f : (long double)a->i;
    const long double y = b->kind == J_FLOAT ? (long double)b->f : (long double)b->i;
    return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2;
}

static rkv_status equal_lists(jctx *c, const jlist *a, const jlist *b, int *out)
{
    *out = a == b;
    if (a == b || a->n != b->n)
        return RKV_OK;
    RKV_TRY(rkv_j_enter(c));
    *out = 1;
    for (size_t i = 0; i < a->n && *out; i++)
        RKV_TRY(rkv_j_equal(c, &a->v[i], &b->v[i], out));
    c->data_depth--;
    return RKV_OK;
}

static rkv_status equal_dicts(jctx *c, const jdict *a, const jdict *b, int *out)
{
    *out = a == b;
    if (a == b || a->n != b->n)
        return RKV_OK;
    RKV_TRY(rkv_j_enter(c));
    *out = 1;
    for (size_t i = 0; i < a->n && *out; i++) {
        jval *other;
        RKV_TRY(rkv_j_find(c, b, &a->v[i].key, &other));
        *out = other != NULL;
        if (other)
            RKV_TRY(rkv_j_equal(c, &a->v[i].value, other, out));
    }
    c->data_depth--;
    return RKV_OK;
}

static int equal_ranges(const jrange *a, const jrange *b)
{
    const uint64_t n = rkv_j_range_length(a);
    return n == rkv_j_range_length(b) &&
           (n == 0 || (a->start == b->start && (n == 1 || a->step == b->step)));
}

/* Views of keys and items compare as sets. */
static rkv_status equal_views(jctx *c, const jval *a, const jval *b, int *out)
{
    *out = 0;
    if (a->sub != b->sub || a->sub == J_VALUES || a->dict->n != b->dict->n)
        return RKV_OK;
    if (a->sub == J_ITEMS)
        return equal_dicts(c, a->dict, b->dict, out);
    *out = 1;
    for (size_t i = 0; i < a->dict->n && *out; i++) {
        jval *other;
        RKV_TRY(rkv_j_find(c, b->dict, &a->dict->v[i].key, &other));
        *out = other != NULL;
    }
    return RKV_OK;
}

rkv_status rkv_j_equal(jctx *c, const jval *a, const jval *b, int *out)
{
    RKV_TRY(rkv_j_step(c, 1));
    if (rkv_j_is_number(a) && rkv_j_is_number(b)) {
        *out = order_numbers(a, b) == 0;
        return RKV_OK;
    }
    *out = 0;
    if (a->kind != b->kind)
        return RKV_OK;
    switch (a->kind) {
    case J_UNDEFINED:
    case J_NONE:
        *out = 1;
        return RKV_OK;
    case J_STRING:
        *out = a->n == b->n && !memcmp(a->s, b->s, a->n);
        return rkv_j_step(c, *out ? a->n >> 8 : 0);
    case J_LIST:
    case J_TUPLE:
        return equal_lists(c, a->list, b->list, out);
    case J_DICT:
        return equal_dicts(c, a->dict, b->dict, out);
    case J_VIEW:
        return equal_views(c, a, b, out);
    case J_RANGE:
        *out = equal_ranges(a->range, b->range);
        return RKV_OK;
    default:
        *out = a->p == b->p;
        return RKV_OK;
    }
}

/* ---- order ----------------------------------------------------------------------------------- */

static int holds(jop op, int order)
{
    switch (op) {
    case J_LT:
        return order == -1;
    case J_LE:
        return order == -1 || order == 0;
    case J_GT:
        return order == 1;
    default:
        return order == 1 || order == 0;
    }
}

static rkv_status order_lists(jctx *c, jop op, const jlist *a, const jlist *b, int *out)
{
    RKV_TRY(rkv_j_enter(c));
    size_t i = 0;
    int same = 1;
    for (; i < a->n && i < b->n; i++) {
        RKV_TRY(rkv_j_equal(c, &a->v[i], &b->v[i], &same));
        if (!same)
            break;
    }
    if (same)
        *out = holds(op, a->n < b->n ? -1 : a->n > b->n);
    else
        RKV_TRY(rkv_j_compare(c, op, &a->v[i], &b->v[i], out));
    c->data_depth--;
    return RKV_OK;
}

static rkv_status compare_order(jctx *c, jop op, const jval *a, const jval *b, int *out)
{
    static const char *const sign[] = {"<", "<=", ">", ">="};
    RKV_TRY(rkv_j_step(c, 1));
    if (rkv_j_is_number(a) && rkv_j_is_number(b)) {
        *out = holds(op, order_numbers(a, b));
        return RKV_OK;
    }
    if (a->kind == J_UNDEFINED || b->kind == J_UNDEFINED)
        return rkv_j_undefined(c, a->kind == J_UNDEFINED ? a : b);
    if (a->kind == J_STRING && b->kind == J_STRING) {   /* UTF-8 sorts as its code points do */
        const int order = memcmp(a->s, b->s, a->n < b->n ? a->n : b->n);
        *out = holds(op, order < 0 ? -1 : order > 0 ? 1 : a->n < b->n ? -1 : a->n > b->n);
        return RKV_OK;
    }
    if (a->kind == b->kind && (a->kind == J_LIST || a->kind == J_TUPLE))
        return order_lists(c, op, a->list, b->list, out);
    return rkv_j_fail(c, RKV_E_FORMAT, "'%s' not supported between instances of '%s' and '%s'",
                      sign[op - J_LT], rkv_j_type(a), rkv_j_type(b));
}

/* ---- membership ------------------------------------------------------------------------------ */

static rkv_status in_text(jctx *c, const jval *item, const jval *text, int *out)
{
    if (item->kind != J_STRING)
        return rkv_j_fail(c, RKV_E_FORMAT, "'in <string>' requires string as left operand, not %s",
                          rkv_j_type(item));
    RKV_TRY(rkv_j_step(c, text->n >> 6));
    *out = rkv_j_search(text, item, 0) <= text->n;
    return RKV_OK;
}

static rkv_status in_items(jctx *c, const jval *item, const jval *all, int *out)
{
    jiter *it;
    int more = 1;
    RKV_TRY(rkv_j_iterate(c, all, &it));
    *out = 0;
    while (!*out) {
        jval v;
        RKV_TRY(rkv_j_next(c, it, &v, &more));
        if (!more)
            break;
        RKV_TRY(rkv_j_equal(c, &v, item, out));
    }
    return RKV_OK;
}

static rkv_status compare_in(jctx *c, const jval *item, const jval *all, int *out)
{
    if (all->kind == J_STRING)
        return in_text(c, item, all, out);
    if (all->kind == J_DICT || (all->kind == J_VIEW && all->sub == J_KEYS)) {
        jval *v;
        RKV_TRY(rkv_j_find(c, all->dict, item, &v));
        *out = v != NULL;
        return RKV_OK;
    }
    if (!rkv_j_is_iterable(all))
        return rkv_j_fail(c, RKV_E_FORMAT, "argument of type '%s' is not iterable",
                          rkv_j_type(all));
    return in_items(c, item, all, out);
}

rkv_status rkv_j_compare(jctx *c, jop op, const jval *a, const jval *b, int *out)
{
    if (op == J_IN || op == J_NOT_IN) {
        RKV_TRY(compare_in(c, a, b, out));
        *out ^= op == J_NOT_IN;
        return RKV_OK;
    }
    if (op != J_EQ && op != J_NE)
        return compare_order(c, op, a, b, out);
    RKV_TRY(rkv_j_equal(c, a, b, out));
    *out ^= op == J_NE;
    return RKV_OK;
}

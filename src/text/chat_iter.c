/* Iteration, the variable loop, sorting. */
#include "config.h"
#include "text/chat_ast.h"

#include <string.h>

/* ---- over containers ------------------------------------------------------------------------- */

static rkv_status next_of_list(jctx *c, jiter *it, jval *out, int *more)
{
    (void)c;
    *more = it->at < it->over.list->n;
    if (*more)
        *out = it->over.list->v[it->at++];
    return RKV_OK;
}

static rkv_status next_of_dict(jctx *c, jiter *it, jval *out, int *more)
{
    const jdict *d = it->over.dict;
    const int what = it->over.kind == J_VIEW ? it->over.sub : J_KEYS;
    if ((size_t)it->value != d->n)
        return rkv_j_fail(c, RKV_E_FORMAT, "dictionary changed size during iteration");
    *more = it->at < d->n;
    if (!*more)
        return RKV_OK;
    const jpair *p = &d->v[it->at++];
    if (what == J_ITEMS)
        return rkv_j_pair(c, &p->key, &p->value, out);
    *out = what == J_KEYS ? p->key : p->value;
    return RKV_OK;
}

static rkv_status next_of_string(jctx *c, jiter *it, jval *out, int *more)
{
    (void)c;
    uint32_t cp;
    *more = it->at < it->over.n;
    if (!*more)
        return RKV_OK;
    const char *s = it->over.s + it->at;
    const size_t n = rkv_j_decode(s, it->over.n - it->at, &cp);
    *out = rkv_j_string(s, n);
    it->at += n;
    return RKV_OK;
}

static rkv_status next_of_range(jctx *c, jiter *it, jval *out, int *more)
{
    (void)c;
    const jrange *r = it->over.range;
    *more = it->at < rkv_j_range_length(r);
    *out = rkv_j_int(*more ? r->start + (int64_t)it->at * r->step : 0);
    it->at++;
    return RKV_OK;
}

static rkv_status next_of_nothing(jctx *c, jiter *it, jval *out, int *more)
{
    (void)c, (void)it, (void)out;
    *more = 0;
    return RKV_OK;
}

static jnext *next_for(jkind kind)
{
    switch (kind) {
    case J_LIST:
    case J_TUPLE:
        return next_of_list;
    case J_DICT:
    case J_VIEW:
        return next_of_dict;
    case J_STRING:
        return next_of_string;
    case J_RANGE:
        return next_of_range;
    case J_UNDEFINED:
        return next_of_nothing;
    default:
        return NULL;
    }
}

int rkv_j_is_iterable(const jval *v)
{
    return v->kind == J_ITERATOR || next_for((jkind)v->kind);
}

rkv_status rkv_j_iterate(jctx *c, const jval *v, jiter **out)
{
    if (v->kind == J_ITERATOR) {
        *out = v->iter;
        return RKV_OK;
    }
    jnext *next = next_for((jkind)v->kind);
    if (!next)
        return rkv_j_fail(c, RKV_E_FORMAT, "'%s' object is not iterable", rkv_j_type(v));
    jiter *it = rkv_j_alloc(c, sizeof *it);
    if (!it)
        return c->status;
    *it = (jiter){.next = next, .over = *v};
    if (next == next_of_dict)
        it->value = (int64_t)v->dict->n;
    *out = it;
    return RKV_OK;
}

rkv_status rkv_j_next(jctx *c, jiter *it, jval *out, int *more)
{
    RKV_TRY(rkv_j_step(c, 1));
    RKV_TRY(rkv_j_enter(c));                    /* lazy filters stack up */
    RKV_TRY(it->next(c, it, out, more));
    c->data_depth--;
    if (!*more)
        it->next = next_of_nothing;
    return RKV_OK;
}

rkv_status rkv_j_to_list(jctx *c, const jval *v, jval *out)
{
    jiter *it;
    jval l, item;
    int more;
    RKV_TRY(rkv_j_iterate(c, v, &it));
    RKV_TRY(rkv_j_list(c, J_LIST, 0, &l));
    for (;;) {
        RKV_TRY(rkv_j_next(c, it, &item, &more));
        if (!more)
            break;
        RKV_TRY(rkv_j_append(c, l.list, &item));
    }
    *out = l;
    return RKV_OK;
}

rkv_status rkv_j_lazy(jctx *c, const jval *v, jnext *next, jval *out)
{
    jiter *it = rkv_j_alloc(c, sizeof *it);
    if (!it)
        return c->status;
    *it = (jiter){.next = next, .over = *v};
    RKV_TRY(rkv_j_iterate(c, v, &it->from));
    *out = (jval){.kind = J_ITERATOR, .iter = it};
    return RKV_OK;
}

/* ---- loop ------------------------------------------------------------------------------------ */

static rkv_status look_ahead(jctx *c, jloop *l)
{
    int more = 0;
    if (l->after.kind != J_ABSENT || l->ended)
        return RKV_OK;
    RKV_TRY(rkv_j_next(c, l->iter, &l->after, &more));
    if (!more) {
        l->after = (jval){.kind = J_ABSENT};
        l->ended = 1;
    }
    return RKV_OK;
}

rkv_status rkv_j_loop_next(jctx *c, jloop *l, jval *out, int *more)
{
    RKV_TRY(look_ahead(c, l));
    *more = l->after.kind != J_ABSENT;
    if (!*more)
        return RKV_OK;
    l->before = l->current;
    l->current = *out = l->after;
    l->after = (jval){.kind = J_ABSENT};
    l->index0++;
    return RKV_OK;
}

/* The length of what is iterated; what has none is read to its end. */
rkv_status rkv_j_loop_length(jctx *c, jloop *l, int64_t *n)
{
    if (l->length < 0 && rkv_j_has_length(&l->over)) {
        size_t length;
        RKV_TRY(rkv_j_len(c, &l->over, &length));
        l->length = (int64_t)length;
    } else if (l->length < 0) {
        jval rest, source = {.kind = J_ITERATOR, .iter = l->iter};
        RKV_TRY(rkv_j_to_list(c, &source, &rest));
        RKV_TRY(rkv_j_iterate(c, &rest, &l->iter));
        l->length = (int64_t)rest.list->n + l->index0 + 1 + (l->after.kind != J_ABSENT);
    }
    *n = l->length;
    return RKV_OK;
}

static jval neighbour(const jval *v, const char *hint)
{
    return v->kind == J_ABSENT ? rkv_j_missing(J_HINT, NULL, hint, strlen(hint)) : *v;
}

rkv_status rkv_j_loop_attribute(jctx *c, jloop *l, const char *s, size_t n, jval *out)
{
    enum {
        INDEX,
        INDEX0,
        FIRST,
        DEPTH,
        DEPTH0,
        LAST,
        NEXT,
        PREVIOUS,
        LENGTH,
        REVERSE,
        REVERSE0,
        COUNT
    };
    static const char *const names[COUNT] = {
        [INDEX] = "index", [INDEX0] = "index0", [FIRST] = "first", [DEPTH] = "depth",
        [DEPTH0] = "depth0", [LAST] = "last", [NEXT] = "nextitem", [PREVIOUS] = "previtem",
        [LENGTH] = "length", [REVERSE] = "revindex", [REVERSE0] = "revindex0"};
    int which = 0;
    while (which < COUNT && (strlen(names[which]) != n || memcmp(names[which], s, n)))
        which++;
    int64_t length = 0;
    if (which == LAST || which == NEXT)
        RKV_TRY(look_ahead(c, l));
    if (which == LENGTH || which == REVERSE || which == REVERSE0)
        RKV_TRY(rkv_j_loop_length(c, l, &length));
    const jval value[COUNT] = {[INDEX] = rkv_j_int(l->index0 + 1),
                               [INDEX0] = rkv_j_int(l->index0),
                               [FIRST] = rkv_j_bool(l->index0 == 0),
                               [DEPTH] = rkv_j_int(1),
                               [DEPTH0] = rkv_j_int(0),
                               [LAST] = rkv_j_bool(l->after.kind == J_ABSENT),
                               [NEXT] = neighbour(&l->after, "there is no next item"),
                               [PREVIOUS] = neighbour(&l->before, "there is no previous item"),
                               [LENGTH] = rkv_j_int(length),
                               [REVERSE] = rkv_j_int(length - l->index0),
                               [REVERSE0] = rkv_j_int(length - l->index0 - 1)};
    if (which < COUNT)
        *out = value[which];
    return RKV_OK;
}

/* ---- sorting --------------------------------------------------------------------------------- */

/* Merges the sorted order[lo, mid) and order[mid, hi) into to[lo, hi). */
static rkv_status merge(jctx *c, const jval *keys, const uint32_t *order, uint32_t *to,
                        const size_t at[3], int reverse)
{
    size_t i = at[0], j = at[1], k = at[0];
    while (i < at[1] && j < at[2]) {
        const jval *left = &keys[order[i]], *right = &keys[order[j]];
        int take_right;
        RKV_TRY(
            rkv_j_compare(c, J_LT, reverse ? left : right, reverse ? right : left, &take_right));
        to[k++] = take_right ? order[j++] : order[i++];
    }
    while (i < at[1])
        to[k++] = order[i++];
    while (j < at[2])
        to[k++] = order[j++];
    return RKV_OK;
}

rkv_status rkv_j_sort(jctx *c, jval *v, jval *keys, size_t n, int reverse)
{
    uint32_t *order = rkv_j_alloc(c, n * sizeof *order), *to = NULL;
    jval *copy = NULL;
    if (!order || !(to = rkv_j_alloc(c, n * sizeof *to)) ||
        !(copy = rkv_j_alloc(c, n * sizeof *copy)))
        return c->status;
    for (size_t i = 0; i < n; i++)
        order[i] = (uint32_t)i;
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t lo = 0; lo < n; lo += 2 * width) {
            const size_t mid = lo + width < n ? lo + width : n,
                         hi = mid + width < n ? mid + width : n;
            const size_t at[3] = {lo, mid, hi};
            RKV_TRY(merge(c, keys, order, to, at, reverse));
        }
        uint32_t *const swap = order;
        order = to;
        to = swap;
    }
    for (size_t i = 0; i < n; i++)
        copy[i] = v[order[i]];
    if (n)
        memcpy(v, copy, n * sizeof *v);
    return RKV_OK;
}

/* Methods of lists, tuples, dicts, and of jinja2's own objects. */
#include "config.h"
#include "text/chat_ast.h"

#include <string.h>

/* ---- lists and tuples ------------------------------------------------------------------------ */

static rkv_status l_append(jctx *c, const jval *self, const jargs *a, jval *out)
{
    *out = rkv_j_none();
    return rkv_j_append(c, self->list, &a->v[0]);
}

static rkv_status l_extend(jctx *c, const jval *self, const jargs *a, jval *out)
{
    jval l;
    RKV_TRY(rkv_j_to_list(c, &a->v[0], &l));
    for (size_t i = 0; i < l.list->n; i++)
        RKV_TRY(rkv_j_append(c, self->list, &l.list->v[i]));
    *out = rkv_j_none();
    return RKV_OK;
}

static rkv_status l_insert(jctx *c, const jval *self, const jargs *a, jval *out)
{
    jlist *l = self->list;
    int64_t at, n = (int64_t)l->n;
    RKV_TRY(rkv_j_want_int(c, &a->v[0], &at));
    RKV_TRY(rkv_j_append(c, l, &a->v[1]));
    RKV_TRY(rkv_j_step(c, l->n >> 4));
    at = at < -n ? 0 : at < 0 ? at + n : at > n ? n : at;
    memmove(l->v + at + 1, l->v + at, (size_t)(n - at) * sizeof *l->v);
    l->v[at] = a->v[1];
    *out = rkv_j_none();
    return RKV_OK;
}

static void take_out(jlist *l, size_t at)
{
    l->n--;
    memmove(l->v + at, l->v + at + 1, (l->n - at) * sizeof *l->v);
}

static rkv_status l_pop(jctx *c, const jval *self, const jargs *a, jval *out)
{
    jlist *l = self->list;
    int64_t at = -1;
    if (a->v[0].kind != J_ABSENT)
        RKV_TRY(rkv_j_want_int(c, &a->v[0], &at));
    if (at < 0)
        at += (int64_t)l->n;
    if (at < 0 || (uint64_t)at >= l->n)
        return rkv_j_fail(c, RKV_E_FORMAT, l->n ? "pop index out of range" : "pop from empty list");
    RKV_TRY(rkv_j_step(c, l->n >> 4));
    *out = l->v[at];
    take_out(l, (size_t)at);
    return RKV_OK;
}

/* Index of the first item that equals v between two optional bounds; -1: none. */
static rkv_status index_of(jctx *c, const jlist *l, const jargs *a, int64_t *at)
{
    const jval bound[3] = {a->v[1], a->v[2], rkv_j_none()};
    jrange r;
    RKV_TRY(rkv_j_slice_indices(c, bound, (int64_t)l->n, &r));
    for (*at = r.start; *at < r.stop; ++*at) {
        int same;
        RKV_TRY(rkv_j_equal(c, &l->v[*at], &a->v[0], &same));
        if (same)
            return RKV_OK;
    }
    *at = -1;
    return RKV_OK;
}

static rkv_status l_index(jctx *c, const jval *self, const jargs *a, jval *out)
{
    int64_t at;
    RKV_TRY(index_of(c, self->list, a, &at));
    if (at < 0)
        return rkv_j_fail(c, RKV_E_FORMAT, "the value is not in the %s", rkv_j_type(self));
    *out = rkv_j_int(at);
    return RKV_OK;
}

static rkv_status l_remove(jctx *c, const jval *self, const jargs *a, jval *out)
{
    jval v[3] = {a->v[0], {.kind = J_ABSENT}, {.kind = J_ABSENT}};
    const jargs whole = {.v = v, .n = 3};
    int64_t at;
    RKV_TRY(index_of(c, self->list, &whole, &at));
    if (at < 0)
        return rkv_j_fail(c, RKV_E_FORMAT, "the value is not in the list");
    take_out(self->list, (size_t)at);
    *out = rkv_j_none();
    return RKV_OK;
}

static rkv_status l_count(jctx *c, const jval *self, const jargs *a, jval *out)
{
    int64_t n = 0;
    for (size_t i = 0; i < self->list->n; i++) {
        int same;
        RKV_TRY(rkv_j_equal(c, &self->list->v[i], &a->v[0], &same));
        n += same;
    }
    *out = rkv_j_int(n);
    return RKV_OK;
}

static rkv_status l_copy(jctx *c, const jval *self, const jargs *a, jval *out)
{
    (void)a;
    return rkv_j_to_list(c, self, out);
}

static rkv_status l_clear(jctx *c, const jval *self, const jargs *a, jval *out)
{
    (void)c, (void)a;
    self->list->n = 0;
    *out = rkv_j_none();
    return RKV_OK;
}

static rkv_status l_reverse(jctx *c, const jval *self, const jargs *a, jval *out)
{
    (void)a;
    RKV_TRY(rkv_j_step(c, self->list->n));
    rkv_j_reverse(self->list);
    *out = rkv_j_none();
    return RKV_OK;
}

static rkv_status l_sort(jctx *c, const jval *self, const jargs *a, jval *out)
{
    jval keys;
    int reverse;
    RKV_TRY(rkv_j_want_flag(c, &a->v[0], &reverse));
    RKV_TRY(rkv_j_to_list(c, self, &keys));
    RKV_TRY(rkv_j_sort(c, self->list->v, keys.list->v, self->list->n, reverse));
    *out = rkv_j_none();
    return RKV_OK;
}

/* ---- dicts ----------------------------------------------------------------------------------- */

static rkv_status d_get(jctx *c, const jval *self, const jargs *a, jval *out)
{
    jval *v;
    RKV_TRY(rkv_j_find(c, self->dict, &a->v[0], &v));
    *out = v ? *v : a->v[1].kind == J_ABSENT ? rkv_j_none() : a->v[1];
    return RKV_OK;
}

static rkv_status view(const jval *self, jview what, jval *out)
{
    *out = (jval){.kind = J_VIEW, .sub = (uint8_t)what, .dict = self->dict};
    return RKV_OK;
}

static rkv_status d_keys(jctx *c, const jval *self, const jargs *a, jval *out)
{
    (void)c, (void)a;
    return view(self, J_KEYS, out);
}

static rkv_status d_values(jctx *c, const jval *self, const jargs *a, jval *out)
{
    (void)c, (void)a;
    return view(self, J_VALUES, out);
}

static rkv_status d_items(jctx *c, const jval *self, const jargs *a, jval *out)
{
    (void)c, (void)a;
    return view(self, J_ITEMS, out);
}

static void remove_pair(jdict *d, size_t at)
{
    d->n--;
    memmove(d->v + at, d->v + at + 1, (d->n - at) * sizeof *d->v);
}

static size_t pair_of(const jdict *d, const jval *value)
{
    return (size_t)((const jpair *)((const char *)value - offsetof(jpair, value)) - d->v);
}

static rkv_status d_pop(jctx *c, const jval *self, const jargs *a, jval *out)
{
    jval *v;
    RKV_TRY(rkv_j_find(c, self->dict, &a->v[0], &v));
    if (!v && a->v[1].kind == J_ABSENT)
        return rkv_j_fail(c, RKV_E_FORMAT, "pop: the key is not in the dict");
    *out = v ? *v : a->v[1];
    if (v)
        remove_pair(self->dict, pair_of(self->dict, v));
    return RKV_OK;
}

static rkv_status d_popitem(jctx *c, const jval *self, const jargs *a, jval *out)
{
    (void)a;
    jdict *d = self->dict;
    if (!d->n)
        return rkv_j_fail(c, RKV_E_FORMAT, "popitem: the dict is empty");
    d->n--;
    return rkv_j_pair(c, &d->v[d->n].key, &d->v[d->n].value, out);
}

static rkv_status d_setdefault(jctx *c, const jval *self, const jargs *a, jval *out)
{
    jval *v;
    RKV_TRY(rkv_j_find(c, self->dict, &a->v[0], &v));
    *out = v ? *v : a->v[1].kind == J_ABSENT ? rkv_j_none() : a->v[1];
    return v ? RKV_OK : rkv_j_set_item(c, self->dict, &a->v[0], out);
}

static rkv_status d_update(jctx *c, const jval *self, const jargs *a, jval *out)
{
    *out = rkv_j_none();
    return rkv_j_update(c, self->dict, a);
}

static rkv_status d_copy(jctx *c, const jval *self, const jargs *a, jval *out)
{
    (void)a;
    jval d;
    RKV_TRY(rkv_j_step(c, self->dict->n));
    RKV_TRY(rkv_j_dict(c, J_DICT, self->dict->n, &d));
    if (self->dict->n)
        memcpy(d.dict->v, self->dict->v, self->dict->n * sizeof *d.dict->v);
    d.dict->n = self->dict->n;
    *out = d;
    return RKV_OK;
}

static rkv_status d_clear(jctx *c, const jval *self, const jargs *a, jval *out)
{
    (void)c, (void)a;
    self->dict->n = 0;
    *out = rkv_j_none();
    return RKV_OK;
}

/* ---- loop, cycler, float --------------------------------------------------------------------- */

static rkv_status o_cycle(jctx *c, const jval *self, const jargs *a, jval *out)
{
    if (!a->n || a->n_kw)
        return rkv_j_fail(c, RKV_E_FORMAT, "no items for cycling given");
    *out = a->v[self->loop->index0 % a->n];
    return RKV_OK;
}

static rkv_status o_changed(jctx *c, const jval *self, const jargs *a, jval *out)
{
    jval now;
    int same = 0;
    jloop *l = self->loop;
    RKV_TRY(rkv_j_list(c, J_TUPLE, (size_t)a->n, &now));
    for (int i = 0; i < a->n; i++)
        RKV_TRY(rkv_j_append(c, now.list, &a->v[i]));
    if (l->last_changed.kind != J_ABSENT)
        RKV_TRY(rkv_j_equal(c, &l->last_changed, &now, &same));
    l->last_changed = now;
    *out = rkv_j_bool(!same);
    return RKV_OK;
}

static rkv_status o_next(jctx *c, const jval *self, const jargs *a, jval *out)
{
    (void)c, (void)a;
    jlist *l = self->list;
    *out = l->v[l->pos];
    l->pos = (l->pos + 1) % l->n;
    return RKV_OK;
}

static rkv_status o_reset(jctx *c, const jval *self, const jargs *a, jval *out)
{
    (void)c, (void)a;
    self->list->pos = 0;
    *out = rkv_j_none();
    return RKV_OK;
}

static rkv_status o_is_integer(jctx *c, const jval *self, const jargs *a, jval *out)
{
    (void)c, (void)a;
    *out = rkv_j_bool(self->kind != J_FLOAT ||
                      (self->f - self->f == 0.0 && rkv_j_round(self->f, 0) == self->f));
    return RKV_OK;
}

static const jdef list_methods[] = {
    {"append", l_append, "1", 0}, {"extend", l_extend, "1", 0}, {"insert", l_insert, "1,2", 0},
    {"pop", l_pop, "1?", 0}, {"index", l_index, "1,2?,3?", 0}, {"remove", l_remove, "1", 0},
    {"count", l_count, "1", 0}, {"copy", l_copy, "", 0}, {"clear", l_clear, "", 0},
    {"reverse", l_reverse, "", 0}, {"sort", l_sort, "reverse?", 0}, {NULL, NULL, NULL, 0}};
static const jdef tuple_methods[] = {
    {"index", l_index, "1,2?,3?", 0}, {"count", l_count, "1", 0}, {NULL, NULL, NULL, 0}};
static const jdef dict_methods[] = {
    {"get", d_get, "1,2?", 0}, {"keys", d_keys, "", 0}, {"values", d_values, "", 0},
    {"items", d_items, "", 0}, {"pop", d_pop, "1,2?", 0}, {"popitem", d_popitem, "", 0},
    {"setdefault", d_setdefault, "1,2?", 0}, {"update", d_update, "*", 0}, {"copy", d_copy, "", 0},
    {"clear", d_clear, "", 0}, {"fromkeys", NULL, "*", 0}, {NULL, NULL, NULL, 0}};
static const jdef loop_methods[] = {
    {"cycle", o_cycle, "*", 0}, {"changed", o_changed, "*", 0}, {NULL, NULL, NULL, 0}};
static const jdef cycler_methods[] = {
    {"next", o_next, "", 0}, {"reset", o_reset, "", 0}, {NULL, NULL, NULL, 0}};
static const jdef float_methods[] = {
    {"is_integer", o_is_integer, "", 0},
    {NULL, NULL, NULL, 0}};

const jdef *rkv_j_method(const jval *v, const char *s, size_t n)
{
    static const jdef *const table[J_N_KIND][2] = {
        [J_STRING] = {rkv_j_string_methods, rkv_j_find_methods}, [J_LIST] = {list_methods},
        [J_TUPLE] = {tuple_methods}, [J_DICT] = {dict_methods}, [J_LOOP] = {loop_methods},
        [J_CYCLER] = {cycler_methods}, [J_FLOAT] = {float_methods}};
    for (int i = 0; i < 2; i++) {
        const jdef *t = table[v->kind][i], *def = t ? rkv_j_find_def(t, s, n) : NULL;
        if (def)
            return def;
    }
    return NULL;
}

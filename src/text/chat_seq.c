/* Filters on sequences. Those that are generators in jinja2 are lazy here too: an item is worked on
 * when it is asked for, and what was read is gone. */
#include "config.h"
#include "text/chat_ops.h"

#include <string.h>

static int given(const jval *v)
{
    return v->kind != J_ABSENT && v->kind != J_NONE;
}

static jval hint(const char *text)
{
    return rkv_j_missing(J_HINT, NULL, text, strlen(text));
}

/* ---- keys ------------------------------------------------------------------------------------ */

/* What a filter compares an item by: its attribute, strings in lower case unless case matters. */
static rkv_status key_of(jctx *c, const jval *item, const jval *attribute, const jval *dflt,
                         int cased, jval *out)
{
    RKV_TRY(rkv_j_path(c, item, attribute, dflt, out));
    return !cased && out->kind == J_STRING ? rkv_j_case(c, out, J_LOWER, out) : RKV_OK;
}

/* "a,b" names two attributes: the key is then a list of both. */
static rkv_status sort_key(jctx *c, const jval *item, const jval *attribute, int cased, jval *out)
{
    jval l, v;
    RKV_TRY(rkv_j_list(c, J_LIST, 1, &l));
    const int is_text = attribute->kind == J_STRING;
    for (size_t at = 0;;) {
        jval path = *attribute;
        const char *comma = is_text ? memchr(path.s + at, ',', path.n - at) : NULL;
        if (is_text)
            path = rkv_j_string(path.s + at, comma ? (size_t)(comma - path.s) - at : path.n - at);
        RKV_TRY(key_of(c, item, &path, NULL, cased, &v));
        RKV_TRY(rkv_j_append(c, l.list, &v));
        if (!comma)
            break;
        at += path.n + 1;
    }
    *out = l;
    return RKV_OK;
}

static rkv_status f_sort(jctx *c, const jval *self, const jargs *a, jval *out)
{
    jval l, keys;
    int reverse;
    RKV_TRY(rkv_j_want_flag(c, &a->v[0], &reverse));
    RKV_TRY(rkv_j_to_list(c, self, &l));
    RKV_TRY(rkv_j_list(c, J_LIST, l.list->n, &keys));
    for (size_t i = 0; i < l.list->n; i++) {
        jval key;
        RKV_TRY(sort_key(c, &l.list->v[i], &a->v[2], rkv_j_truth(&a->v[1]), &key));
        RKV_TRY(rkv_j_append(c, keys.list, &key));
    }
    RKV_TRY(rkv_j_sort(c, l.list->v, keys.list->v, l.list->n, reverse));
    *out = l;
    return RKV_OK;
}

static rkv_status f_dictsort(jctx *c, const jval *self, const jargs *a, jval *out)
{
    const jval view = {.kind = J_VIEW, .sub = J_ITEMS, .dict = self->dict};
    const jval by = a->v[1].kind == J_ABSENT ? rkv_j_literal("key") : a->v[1];
    if (self->kind == J_UNDEFINED)
        return rkv_j_undefined(c, self);
    if (self->kind != J_DICT)
        return rkv_j_fail(c, RKV_E_FORMAT, "dictsort: expected a mapping, not %s",
                          rkv_j_type(self));
    const int is_key = by.kind == J_STRING && by.n == 3 && !memcmp(by.s, "key", 3);
    if (!is_key && !(by.kind == J_STRING && by.n == 5 && !memcmp(by.s, "value", 5)))
        return rkv_j_fail(c, RKV_E_FORMAT,
                          "dictsort: you can only sort by either \"key\" or \"value\"");
    jval l, keys;
    int reverse;
    const jval none = {.kind = J_ABSENT};
    RKV_TRY(rkv_j_want_flag(c, &a->v[2], &reverse));
    RKV_TRY(rkv_j_to_list(c, &view, &l));
    RKV_TRY(rkv_j_list(c, J_LIST, l.list->n, &keys));
    for (size_t i = 0; i < l.list->n; i++) {
        jval key;
        RKV_TRY(key_of(c, &l.list->v[i].list->v[is_key ? 0 : 1], &none, NULL, rkv_j_truth(&a->v[0]),
                       &key));
        RKV_TRY(rkv_j_append(c, keys.list, &key));
    }
    RKV_TRY(rkv_j_sort(c, l.list->v, keys.list->v, l.list->n, reverse));
    *out = l;
    return RKV_OK;
}

static rkv_status next_unique(jctx *c, jiter *it, jval *out, int *more)
{
    for (;;) {
        jval key, *old;
        const jval none = rkv_j_none();
        RKV_TRY(rkv_j_next(c, it->from, out, more));
        if (!*more)
            return RKV_OK;
        RKV_TRY(key_of(c, out, &it->args.v[1], NULL, rkv_j_truth(&it->args.v[0]), &key));
        RKV_TRY(rkv_j_find(c, it->extra.dict, &key, &old));
        if (!old)
            return rkv_j_set_item(c, it->extra.dict, &key, &none);
    }
}

/* A copy that outlives the call. */
static rkv_status keep_args(jctx *c, const jargs *a, jargs *out)
{
    *out = *a;
    if (!(out->v = rkv_j_alloc(c, (size_t)a->n * sizeof *out->v)) ||
        !(out->kw = rkv_j_alloc(c, (size_t)a->n_kw * sizeof *out->kw)))
        return c->status;
    if (a->n)
        memcpy(out->v, a->v, (size_t)a->n * sizeof *out->v);
    if (a->n_kw)
        memcpy(out->kw, a->kw, (size_t)a->n_kw * sizeof *out->kw);
    return RKV_OK;
}

static rkv_status f_unique(jctx *c, const jval *self, const jargs *a, jval *out)
{
    RKV_TRY(rkv_j_lazy(c, self, next_unique, out));
    RKV_TRY(keep_args(c, a, &out->iter->args));
    return rkv_j_dict(c, J_DICT, 0, &out->iter->extra);
}

static rkv_status extreme(jctx *c, const jval *self, const jargs *a, jop better, jval *out)
{
    jiter *it;
    jval item, key, best_key = {.kind = J_ABSENT},
                    best = hint("No aggregated item, sequence was empty.");
    int more;
    RKV_TRY(rkv_j_iterate(c, self, &it));
    for (;;) {
        int take = best_key.kind == J_ABSENT;
        RKV_TRY(rkv_j_next(c, it, &item, &more));
        if (!more)
            break;
        RKV_TRY(key_of(c, &item, &a->v[1], NULL, rkv_j_truth(&a->v[0]), &key));
        if (!take)
            RKV_TRY(rkv_j_compare(c, better, &key, &best_key, &take));
        if (take) {
            best = item;
            best_key = key;
        }
    }
    *out = best;
    return RKV_OK;
}

static rkv_status f_min(jctx *c, const jval *self, const jargs *a, jval *out)
{
    return extreme(c, self, a, J_LT, out);
}

static rkv_status f_max(jctx *c, const jval *self, const jargs *a, jval *out)
{
    return extreme(c, self, a, J_GT, out);
}

static rkv_status f_sum(jctx *c, const jval *self, const jargs *a, jval *out)
{
    jiter *it;
    jval item, sum = a->v[1].kind == J_ABSENT ? rkv_j_int(0) : a->v[1];
    int more;
    if (sum.kind == J_STRING)
        return rkv_j_fail(c, RKV_E_FORMAT, "sum: strings cannot be summed up, use join");
    RKV_TRY(rkv_j_iterate(c, self, &it));
    for (;;) {
        RKV_TRY(rkv_j_next(c, it, &item, &more));
        if (!more)
            break;
        RKV_TRY(rkv_j_path(c, &item, &a->v[0], NULL, &item));
        RKV_TRY(rkv_j_binary(c, J_ADD, &sum, &item, &sum));
    }
    *out = sum;
    return RKV_OK;
}

/* ---- map, select, reject --------------------------------------------------------------------- */

/* Whether the filter has to run at all: jinja2 asks for the truth of its input first. */
static rkv_status start(jctx *c, const jval *self, const jargs *a, jnext *next, jval *out)
{
    const jval nothing = rkv_j_literal("");
    RKV_TRY(rkv_j_lazy(c, rkv_j_truth(self) ? self : &nothing, next, out));
    return keep_args(c, a, &out->iter->args);
}

/* The arguments behind the first skip ones. */
static jargs rest(const jargs *a, int skip)
{
    return (jargs){a->v + skip, a->n - skip, a->kw, a->n_kw};
}

static rkv_status take_def(jctx *c, jiter *it, const jval *name, int is_filter)
{
    const char *const what = is_filter ? "filter" : "test";
    if (name->kind == J_STRING)
        it->def = is_filter ? rkv_j_filter(name->s, name->n) : rkv_j_test(name->s, name->n);
    if (it->def)
        return RKV_OK;
    const int n = name->kind != J_STRING ? 0 : name->n > 60 ? 60 : (int)name->n;
    return rkv_j_fail(c, RKV_E_UNSUPPORTED, "no %s named '%.*s'", what, n, n ? name->s : "");
}

/* map(attribute="a.b", default=...) */
static rkv_status map_attribute(jctx *c, jiter *it, const jval *item, jval *out)
{
    jval path = {.kind = J_ABSENT}, dflt = path;
    for (int i = 0; i < it->args.n_kw; i++) {
        const jkeyword *kw = &it->args.kw[i];
        if (kw->n == 9 && !memcmp(kw->s, "attribute", 9))
            path = kw->v;
        else if (kw->n == 7 && !memcmp(kw->s, "default", 7))
            dflt = kw->v;
        else
            return rkv_j_fail(c, RKV_E_FORMAT, "map: unexpected keyword argument '%.*s'",
                              kw->n > 60 ? 60 : (int)kw->n, kw->s);
    }
    if (path.kind == J_ABSENT)
        return rkv_j_fail(c, RKV_E_FORMAT, "map requires a filter argument");
    return rkv_j_path(c, item, &path, &dflt, out);
}

static rkv_status next_mapped(jctx *c, jiter *it, jval *out, int *more)
{
    jval item;
    RKV_TRY(rkv_j_next(c, it->from, &item, more));
    if (!*more)
        return RKV_OK;
    if (!it->args.n)
        return map_attribute(c, it, &item, out);
    if (!it->def)
        RKV_TRY(take_def(c, it, &it->args.v[0], 1));
    const jargs a = rest(&it->args, 1);
    return rkv_j_call_def(c, it->def, "filter", &item, &a, out);
}

static rkv_status f_map(jctx *c, const jval *self, const jargs *a, jval *out)
{
    return start(c, self, a, next_mapped, out);
}

static rkv_status next_selected(jctx *c, jiter *it, jval *out, int *more)
{
    const int skip = it->attribute;             /* the name of the attribute comes first */
    if (it->args.n < skip)
        return rkv_j_fail(c, RKV_E_FORMAT, "Missing parameter for attribute name");
    for (;;) {
        jval v, yes;
        RKV_TRY(rkv_j_next(c, it->from, out, more));
        if (!*more)
            return RKV_OK;
        v = *out;
        if (it->attribute)
            RKV_TRY(rkv_j_path(c, out, &it->args.v[0], NULL, &v));
        yes = v;
        if (it->args.n > skip) {
            if (!it->def)
                RKV_TRY(take_def(c, it, &it->args.v[skip], 0));
            const jargs a = rest(&it->args, skip + 1);
            RKV_TRY(rkv_j_call_def(c, it->def, "test", &v, &a, &yes));
        }
        if (rkv_j_truth(&yes) != it->negate)
            return RKV_OK;
    }
}

static rkv_status choose(jctx *c, const jval *self, const jargs *a, int attribute, int negate,
                         jval *out)
{
    RKV_TRY(start(c, self, a, next_selected, out));
    out->iter->attribute = attribute;
    out->iter->negate = negate;
    return RKV_OK;
}

static rkv_status f_select(jctx *c, const jval *self, const jargs *a, jval *out)
{
    return choose(c, self, a, 0, 0, out);
}

static rkv_status f_reject(jctx *c, const jval *self, const jargs *a, jval *out)
{
    return choose(c, self, a, 0, 1, out);
}

static rkv_status f_selectattr(jctx *c, const jval *self, const jargs *a, jval *out)
{
    return choose(c, self, a, 1, 0, out);
}

static rkv_status f_rejectattr(jctx *c, const jval *self, const jargs *a, jval *out)
{
    return choose(c, self, a, 1, 1, out);
}

/* ---- parts and wholes ------------------------------------------------------------------------ */

static rkv_status f_first(jctx *c, const jval *self, const jargs *a, jval *out)
{
    (void)a;
    jiter *it;
    int more;
    RKV_TRY(rkv_j_iterate(c, self, &it));
    RKV_TRY(rkv_j_next(c, it, out, &more));
    if (!more)
        *out = hint("No first item, sequence was empty.");
    return RKV_OK;
}

static rkv_status reversed(jctx *c, const jval *self, jval *out)
{
    RKV_TRY(rkv_j_to_list(c, self, out));
    rkv_j_reverse(out->list);
    return RKV_OK;
}

static rkv_status f_last(jctx *c, const jval *self, const jargs *a, jval *out)
{
    (void)a;
    jval l;
    if (!rkv_j_has_length(self) || self->kind == J_LOOP)
        return rkv_j_fail(c, RKV_E_FORMAT, "'%s' object is not reversible", rkv_j_type(self));
    RKV_TRY(reversed(c, self, &l));
    *out = l.list->n ? l.list->v[0] : hint("No last item, sequence was empty.");
    return RKV_OK;
}

/* An iterator, but a list of what cannot be reversed without reading it. */
static rkv_status f_reverse(jctx *c, const jval *self, const jargs *a, jval *out)
{
    (void)a;
    const jval back[3] = {{.kind = J_NONE}, {.kind = J_NONE}, {.kind = J_INT, .i = -1}};
    jval l;
    if (self->kind == J_STRING)
        return rkv_j_slice(c, self, back, out);
    RKV_TRY(reversed(c, self, &l));
    *out = l;
    if (self->kind == J_ITERATOR)
        return RKV_OK;
    out->kind = J_ITERATOR;
    return rkv_j_iterate(c, &l, &out->iter);
}

static rkv_status f_list(jctx *c, const jval *self, const jargs *a, jval *out)
{
    (void)a;
    return rkv_j_to_list(c, self, out);
}

static rkv_status f_items(jctx *c, const jval *self, const jargs *a, jval *out)
{
    (void)a;
    jval view = rkv_j_literal("");
    if (self->kind == J_DICT)
        view = (jval){.kind = J_VIEW, .sub = J_ITEMS, .dict = self->dict};
    else if (self->kind != J_UNDEFINED)
        return rkv_j_fail(c, RKV_E_FORMAT, "items: can only get item pairs from a mapping, not %s",
                          rkv_j_type(self));
    *out = (jval){.kind = J_ITERATOR};
    return rkv_j_iterate(c, &view, &out->iter);
}

static rkv_status f_join(jctx *c, const jval *self, const jargs *a, jval *out)
{
    jval sep = rkv_j_literal(""), item;
    jiter *it;
    int more;
    if (a->v[0].kind != J_ABSENT)
        RKV_TRY(rkv_j_to_string(c, &a->v[0], &sep));
    RKV_TRY(rkv_j_iterate(c, self, &it));
    const size_t mark = c->out.n;
    for (int first = 1;; first = 0) {
        RKV_TRY(rkv_j_next(c, it, &item, &more));
        if (!more)
            break;
        if (given(&a->v[1]))
            RKV_TRY(rkv_j_path(c, &item, &a->v[1], NULL, &item));
        RKV_TRY(rkv_j_put(c, sep.s, first ? 0 : sep.n));
        RKV_TRY(rkv_j_put_str(c, &item));
    }
    return rkv_j_take(c, mark, out);
}

/* Wraps a finished list as the generator that it is in jinja2. */
static rkv_status generate(jctx *c, const jval *l, jval *out)
{
    *out = (jval){.kind = J_ITERATOR};
    return rkv_j_iterate(c, l, &out->iter);
}

static rkv_status f_batch(jctx *c, const jval *self, const jargs *a, jval *out)
{
    jval items, all, row = {.kind = J_ABSENT};
    int64_t width;
    RKV_TRY(rkv_j_want_int(c, &a->v[0], &width));
    RKV_TRY(rkv_j_to_list(c, self, &items));
    RKV_TRY(rkv_j_list(c, J_LIST, 0, &all));
    for (size_t i = 0; i < items.list->n; i++) {
        if (row.kind == J_ABSENT || (int64_t)row.list->n == width) {
            if (row.kind == J_ABSENT && width == 0) {   /* an empty row comes first then */
                RKV_TRY(rkv_j_list(c, J_LIST, 0, &row));
                RKV_TRY(rkv_j_append(c, all.list, &row));
            }
            RKV_TRY(rkv_j_list(c, J_LIST, 0, &row));
            RKV_TRY(rkv_j_append(c, all.list, &row));
        }
        RKV_TRY(rkv_j_append(c, row.list, &items.list->v[i]));
    }
    while (row.kind == J_LIST && given(&a->v[1]) && (int64_t)row.list->n < width)
        RKV_TRY(rkv_j_append(c, row.list, &a->v[1]));
    return generate(c, &all, out);
}

static rkv_status f_slice(jctx *c, const jval *self, const jargs *a, jval *out)
{
    jval items, all;
    int64_t n;
    RKV_TRY(rkv_j_want_int(c, &a->v[0], &n));
    RKV_TRY(rkv_j_to_list(c, self, &items));
    if (n == 0)
        return rkv_j_fail(c, RKV_E_FORMAT, "division by zero");
    RKV_TRY(rkv_j_list(c, J_LIST, 0, &all));
    const int64_t count = (int64_t)items.list->n, each = n > 0 ? count / n : 0,
                  extra = n > 0 ? count % n : 0;
    int64_t at = 0;
    for (int64_t k = 0; k < n; k++) {
        jval row;
        RKV_TRY(rkv_j_list(c, J_LIST, 0, &row));
        for (int64_t end = at + each + (k < extra); at < end; at++)
            RKV_TRY(rkv_j_append(c, row.list, &items.list->v[at]));
        if (given(&a->v[1]) && k >= extra)
            RKV_TRY(rkv_j_append(c, row.list, &a->v[1]));
        RKV_TRY(rkv_j_append(c, all.list, &row));
    }
    return generate(c, &all, out);
}

/* Pairs (grouper, list) in the order of the keys; the first item of a group gives the grouper. */
static rkv_status f_groupby(jctx *c, const jval *self, const jargs *a, jval *out)
{
    const int cased = rkv_j_truth(&a->v[2]);
    jval items, keys, all, last = {.kind = J_ABSENT};
    RKV_TRY(rkv_j_to_list(c, self, &items));
    RKV_TRY(rkv_j_list(c, J_LIST, items.list->n, &keys));
    for (size_t i = 0; i < items.list->n; i++) {
        jval key;
        RKV_TRY(key_of(c, &items.list->v[i], &a->v[0], &a->v[1], cased, &key));
        RKV_TRY(rkv_j_append(c, keys.list, &key));
    }
    RKV_TRY(rkv_j_sort(c, items.list->v, keys.list->v, items.list->n, 0));
    RKV_TRY(rkv_j_list(c, J_LIST, 0, &all));
    for (size_t i = 0; i < items.list->n; i++) {
        jval key, name, group, pair;
        int same = 0;
        RKV_TRY(key_of(c, &items.list->v[i], &a->v[0], &a->v[1], cased, &key));
        if (last.kind != J_ABSENT)
            RKV_TRY(rkv_j_equal(c, &last, &key, &same));
        if (!same) {
            RKV_TRY(key_of(c, &items.list->v[i], &a->v[0], &a->v[1], 1, &name));
            RKV_TRY(rkv_j_list(c, J_LIST, 0, &group));
            RKV_TRY(rkv_j_pair(c, &name, &group, &pair));
            pair.sub = 1;
            RKV_TRY(rkv_j_append(c, all.list, &pair));
        }
        last = key;
        const jlist *newest = all.list->v[all.list->n - 1].list;
        RKV_TRY(rkv_j_append(c, newest->v[1].list, &items.list->v[i]));
    }
    *out = all;
    return RKV_OK;
}

const jdef rkv_j_seq_filters[] = {
    {"join", f_join, "d?,attribute?", 0},
    {"list", f_list, "", 0},
    {"items", f_items, "", 0},
    {"first", f_first, "", 0},
    {"last", f_last, "", 0},
    {"map", f_map, "*", 0},
    {"select", f_select, "*", 0},
    {"reject", f_reject, "*", 0},
    {"selectattr", f_selectattr, "*", 0},
    {"rejectattr", f_rejectattr, "*", 0},
    {"sort", f_sort, "reverse?,case_sensitive?,attribute?", 0},
    {"dictsort", f_dictsort, "case_sensitive?,by?,reverse?", 0},
    {"unique", f_unique, "case_sensitive?,attribute?", 0},
    {"min", f_min, "case_sensitive?,attribute?", 0},
    {"max", f_max, "case_sensitive?,attribute?", 0},
    {"sum", f_sum, "attribute?,start?", 0},
    {"reverse", f_reverse, "", 0},
    {"batch", f_batch, "linecount,fill_with?", 0},
    {"slice", f_slice, "slices,fill_with?", 0},
    {"groupby", f_groupby, "attribute,default?,case_sensitive?", 0},
    {NULL, NULL, NULL, 0}};

const jdef *rkv_j_filter(const char *s, size_t n)
{
    const jdef *def = rkv_j_find_def(rkv_j_text_filters, s, n);
    return def ? def : rkv_j_find_def(rkv_j_seq_filters, s, n);
}

/* Attributes, items and slices. */
#include "config.h"
#include "text/chat_ast.h"

#include <string.h>

jval rkv_j_missing(jmissing how, const jval *of, const char *s, size_t n)
{
    return (jval){
        .kind = J_UNDEFINED, .sub = (uint8_t)how, .of = of ? of->kind : J_ABSENT, .n = n, .s = s};
}

static int is(const char *s, size_t n, const char *word)
{
    return n == strlen(word) && !memcmp(s, word, n);
}

/* ---- attributes ------------------------------------------------------------------------------ */

static rkv_status macro_attribute(jctx *c, const jnode *m, const char *s, size_t n, jval *out)
{
    static const struct {
        const char *name;
        int use;
    } row[] = {
        {"caller", USES_CALLER}, {"catch_kwargs", USES_KWARGS}, {"catch_varargs", USES_VARARGS}};
    for (int i = 0; i < 3; i++)
        if (is(s, n, row[i].name))
            *out = rkv_j_bool(m->uses & row[i].use);
    if (is(s, n, "name"))
        *out = m->name ? rkv_j_string(m->name->s, m->name->n) : rkv_j_none();
    if (!is(s, n, "arguments"))
        return RKV_OK;
    jval l;
    RKV_TRY(rkv_j_list(c, J_TUPLE, (size_t)m->n_name, &l));
    for (int i = 0; i < m->n_name; i++) {
        const jval name = rkv_j_string(m->names[i]->s, m->names[i]->n);
        RKV_TRY(rkv_j_append(c, l.list, &name));
    }
    *out = l;
    return RKV_OK;
}

static rkv_status bind_method(jctx *c, const jval *obj, const jdef *def, jval *out)
{
    jmethod *m = rkv_j_alloc(c, sizeof *m);
    if (!m)
        return c->status;
    *m = (jmethod){def, *obj};
    *out = (jval){.kind = J_METHOD, .method = m};
    return RKV_OK;
}

static void range_attribute(const jrange *r, const char *s, size_t n, jval *out)
{
    if (is(s, n, "start"))
        *out = rkv_j_int(r->start);
    else if (is(s, n, "stop"))
        *out = rkv_j_int(r->stop);
    else if (is(s, n, "step"))
        *out = rkv_j_int(r->step);
}

rkv_status rkv_j_own_attribute(jctx *c, const jval *obj, const char *s, size_t n, jval *out)
{
    *out = (jval){.kind = J_ABSENT};
    if (obj->kind == J_UNDEFINED)
        return rkv_j_undefined(c, obj);
    if (obj->kind == J_NAMESPACE) {
        RKV_TRY(rkv_j_step(c, obj->dict->n >> 3));
        const jval *v = rkv_j_find_string(obj->dict, s, n);
        if (v)
            *out = *v;
        return RKV_OK;
    }
    const jdef *def = rkv_j_method(obj, s, n);
    if (def)
        return bind_method(c, obj, def, out);
    if (obj->kind == J_LOOP)
        return rkv_j_loop_attribute(c, obj->loop, s, n, out);
    if (obj->kind == J_MACRO)
        return macro_attribute(c, obj->macro->node, s, n, out);
    if (obj->kind == J_RANGE)
        range_attribute(obj->range, s, n, out);
    if (obj->kind == J_TUPLE && obj->sub && (is(s, n, "grouper") || is(s, n, "list")))
        *out = obj->list->v[is(s, n, "list")];
    if (obj->kind == J_CYCLER && is(s, n, "current"))
        *out = obj->list->v[obj->list->pos];
    return RKV_OK;
}

rkv_status rkv_j_attribute(jctx *c, const jval *obj, const char *s, size_t n, jval *out)
{
    RKV_TRY(rkv_j_own_attribute(c, obj, s, n, out));
    if (out->kind != J_ABSENT)
        return RKV_OK;
    const jval *v = NULL;
    if (obj->kind == J_DICT) {
        RKV_TRY(rkv_j_step(c, obj->dict->n >> 3));
        v = rkv_j_find_string(obj->dict, s, n);
    }
    *out = v ? *v : rkv_j_missing(J_NO_ATTRIBUTE, obj, s, n);
    return RKV_OK;
}

/* ---- items ----------------------------------------------------------------------------------- */

/* obj[i] of a sequence; *out stays as it is when there is none. */
static rkv_status element(jctx *c, const jval *obj, int64_t i, jval *out)
{
    size_t n;
    RKV_TRY(rkv_j_len(c, obj, &n));
    if (i < 0)
        i += (int64_t)n;
    if (i < 0 || (uint64_t)i >= n)
        return RKV_OK;
    if (obj->kind == J_RANGE) {
        *out = rkv_j_int(obj->range->start + i * obj->range->step);
    } else if (obj->kind == J_STRING) {
        uint32_t cp;
        const size_t at = rkv_j_offset(obj->s, obj->n, (size_t)i);
        const uint8_t safe = obj->safe;
        *out = rkv_j_string(obj->s + at, rkv_j_decode(obj->s + at, obj->n - at, &cp));
        out->safe = safe;
    } else {
        *out = obj->list->v[i];
    }
    return RKV_OK;
}

rkv_status rkv_j_item(jctx *c, const jval *obj, const jval *key, jval *out)
{
    jval v = {.kind = J_ABSENT};
    if (obj->kind == J_UNDEFINED)
        return rkv_j_undefined(c, obj);
    const int sequence = obj->kind == J_LIST || obj->kind == J_TUPLE || obj->kind == J_STRING ||
                         obj->kind == J_RANGE;
    if (obj->kind == J_DICT && rkv_j_is_hashable(key)) {
        jval *found;
        RKV_TRY(rkv_j_find(c, obj->dict, key, &found));
        if (found)
            v = *found;
    } else if (sequence && (key->kind == J_INT || key->kind == J_BOOL)) {
        RKV_TRY(element(c, obj, key->i, &v));
    }
    if (v.kind == J_ABSENT && key->kind == J_STRING)
        RKV_TRY(rkv_j_own_attribute(c, obj, key->s, key->n, &v));
    if (v.kind != J_ABSENT)
        *out = v;
    else if (key->kind == J_STRING)
        *out = rkv_j_missing(J_NO_ATTRIBUTE, obj, key->s, key->n);
    else
        *out = (jval){.kind = J_UNDEFINED, .sub = J_NO_ELEMENT, .of = obj->kind,
                      .i = key->kind == J_INT ? key->i : 0};
    return RKV_OK;
}

rkv_status rkv_j_path(jctx *c, const jval *obj, const jval *path, const jval *dflt, jval *out)
{
    jval v = *obj;
    const int is_text = path->kind == J_STRING;
    size_t at = 0;
    while (path->kind != J_ABSENT && path->kind != J_NONE) {
        jval key = *path;
        const char *dot = is_text ? memchr(path->s + at, '.', path->n - at) : NULL;
        if (is_text) {
            const size_t n = dot ? (size_t)(dot - path->s) - at : path->n - at;
            key = rkv_j_string(path->s + at, n);
            int digits = n > 0 && n < 18;
            int64_t i = 0;
            for (size_t k = 0; k < n && digits; k++) {
                digits = key.s[k] >= '0' && key.s[k] <= '9';
                i = i * 10 + key.s[k] - '0';
            }
            if (digits)
                key = rkv_j_int(i);
            at += n + 1;
        }
        RKV_TRY(rkv_j_step(c, 1));
        RKV_TRY(rkv_j_item(c, &v, &key, &v));
        if (v.kind == J_UNDEFINED && dflt && dflt->kind != J_ABSENT && dflt->kind != J_NONE)
            v = *dflt;
        if (!dot)
            break;
    }
    *out = v;
    return RKV_OK;
}

/* ---- slices ---------------------------------------------------------------------------------- */

static rkv_status bound_value(jctx *c, const jval *v, int64_t dflt, int64_t *out)
{
    *out = dflt;
    if (v->kind == J_NONE || v->kind == J_ABSENT)
        return RKV_OK;
    if (v->kind != J_INT && v->kind != J_BOOL)
        return rkv_j_fail(c, RKV_E_FORMAT, "slice indices must be integers or None, not %s",
                          rkv_j_type(v));
    *out = v->i;
    return RKV_OK;
}

static int64_t clip(int64_t v, int64_t length, int64_t low, int64_t high)
{
    if (v < 0)
        v = v < -length ? low : v + length;
    return v < low ? low : v > high ? high : v;
}

rkv_status rkv_j_slice_indices(jctx *c, const jval bound[3], int64_t length, jrange *out)
{
    RKV_TRY(bound_value(c, &bound[2], 1, &out->step));
    if (out->step == 0)
        return rkv_j_fail(c, RKV_E_FORMAT, "slice step cannot be zero");
    if (out->step < -INT64_MAX)
        out->step = -INT64_MAX;
    const int back = out->step < 0;
    const int64_t low = back ? -1 : 0, high = back ? length - 1 : length;
    RKV_TRY(bound_value(c, &bound[0], back ? INT64_MAX : 0, &out->start));
    RKV_TRY(bound_value(c, &bound[1], back ? INT64_MIN : INT64_MAX, &out->stop));
    out->start = clip(out->start, length, low, high);
    out->stop = clip(out->stop, length, low, high);
    return RKV_OK;
}

static rkv_status slice_string(jctx *c, const jval *v, const jrange *r, size_t n, jval *out)
{
    const size_t count = (size_t)rkv_j_range_length(r);
    const jval text = *v;
    if (r->step == 1 || count <= 1) {
        const size_t from = rkv_j_offset(text.s, text.n, count ? (size_t)r->start : 0);
        const size_t to = rkv_j_offset(text.s + from, text.n - from, count);
        *out = rkv_j_string(text.s + from, to);
        out->safe = text.safe;
        return RKV_OK;
    }
    size_t *offset = rkv_j_alloc(c, (n + 1) * sizeof *offset);
    if (!offset)
        return c->status;
    RKV_TRY(rkv_j_step(c, n));
    uint32_t cp;
    offset[0] = 0;
    for (size_t i = 0; i < n; i++)
        offset[i + 1] = offset[i] + rkv_j_decode(text.s + offset[i], text.n - offset[i], &cp);
    const size_t mark = c->out.n;
    for (size_t k = 0; k < count; k++) {
        const size_t i = (size_t)(r->start + (int64_t)k * r->step);
        RKV_TRY(rkv_j_put(c, text.s + offset[i], offset[i + 1] - offset[i]));
    }
    RKV_TRY(rkv_j_take(c, mark, out));
    out->safe = text.safe;
    return RKV_OK;
}

static rkv_status slice_range(jctx *c, const jrange *of, const jrange *r, jval *out)
{
    jrange *n = rkv_j_alloc(c, sizeof *n);
    if (!n)
        return c->status;
    /* Lengths are at most RKV_CHAT_MAX_RANGE, so that nothing below overflows. */
    const int64_t most = (INT64_C(1) << 60) / RKV_CHAT_MAX_RANGE;
    if (of->step > most || of->step < -most || r->step > RKV_CHAT_MAX_RANGE ||
        r->step < -RKV_CHAT_MAX_RANGE)
        return RKV_J_LIMIT(c, RANGE);
    *n = (jrange){of->start + r->start * of->step, of->start + r->stop * of->step,
                  of->step * r->step};
    if (n->start > INT64_C(1) << 60 || n->start < -(INT64_C(1) << 60))
        return RKV_J_LIMIT(c, RANGE);
    *out = (jval){.kind = J_RANGE, .range = n};
    return RKV_OK;
}

rkv_status rkv_j_slice(jctx *c, const jval *obj, const jval bound[3], jval *out)
{
    size_t n;
    jrange r;
    if (obj->kind == J_UNDEFINED)
        return rkv_j_undefined(c, obj);
    if (obj->kind != J_STRING && obj->kind != J_LIST && obj->kind != J_TUPLE &&
        obj->kind != J_RANGE)
        return rkv_j_fail(c, RKV_E_FORMAT, "'%s' object cannot be sliced", rkv_j_type(obj));
    RKV_TRY(rkv_j_len(c, obj, &n));
    RKV_TRY(rkv_j_slice_indices(c, bound, (int64_t)n, &r));
    if (obj->kind == J_STRING)
        return slice_string(c, obj, &r, n, out);
    if (obj->kind == J_RANGE)
        return slice_range(c, obj->range, &r, out);
    jval l;
    const size_t count = (size_t)rkv_j_range_length(&r);
    RKV_TRY(rkv_j_list(c, (jkind)obj->kind, count, &l));
    for (size_t k = 0; k < count; k++)
        RKV_TRY(rkv_j_append(c, l.list, &obj->list->v[r.start + (int64_t)k * r.step]));
    *out = l;
    return RKV_OK;
}

/* The filter tojson: Python's json.dumps. */
#include "config.h"
#include "text/chat_ops.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct writer {
    jctx *c;
    const jval *indent, *item, *key;
    int flags, level;
} writer;

static rkv_status put_value(writer *w, const jval *v);

static rkv_status put_text(writer *w, const char *s)
{
    return rkv_j_put(w->c, s, strlen(s));
}

static rkv_status put_escape(writer *w, uint32_t cp)
{
    static const char plain[] = "\"\\\n\r\t\f\b", letter[] = "\"\\nrtfb";
    const char *p = cp && cp < 0x80 ? strchr(plain, (int)cp) : NULL;
    char buf[16];
    if (p)
        snprintf(buf, sizeof buf, "\\%c", letter[p - plain]);
    else if (cp < 0x10000)
        snprintf(buf, sizeof buf, "\\u%04x", (unsigned)cp);
    else
        snprintf(buf, sizeof buf, "\\u%04x\\u%04x", (unsigned)(0xd7c0 + (cp >> 10)),
                 (unsigned)(0xdc00 + (cp & 0x3ff)));
    return put_text(w, buf);
}

static rkv_status put_string(writer *w, const jval *v)
{
    RKV_TRY(put_text(w, "\""));
    RKV_TRY(rkv_j_step(w->c, v->n >> 3));
    size_t from = 0;                            /* of a stretch that needs no escape */
    for (size_t i = 0; i < v->n;) {
        uint32_t cp;
        const size_t len = rkv_j_decode(v->s + i, v->n - i, &cp);
        if (cp < ' ' || cp == '"' || cp == '\\' || (cp >= 0x7f && (w->flags & J_JSON_ASCII))) {
            RKV_TRY(rkv_j_put(w->c, v->s + from, i - from));
            RKV_TRY(put_escape(w, cp));
            from = i + len;
        }
        i += len;
    }
    RKV_TRY(rkv_j_put(w->c, v->s + from, v->n - from));
    return put_text(w, "\"");
}

static rkv_status put_scalar(writer *w, const jval *v)
{
    char buf[32];
    switch (v->kind) {
    case J_NONE:
        return put_text(w, "null");
    case J_BOOL:
        return put_text(w, v->i ? "true" : "false");
    case J_INT:
        snprintf(buf, sizeof buf, "%lld", (long long)v->i);
        return put_text(w, buf);
    case J_FLOAT:
        if (!isfinite(v->f))
            return put_text(w, isnan(v->f) ? "NaN" : v->f > 0 ? "Infinity" : "-Infinity");
        rkv_j_float_text(v->f, buf);
        return put_text(w, buf);
    default:
        return rkv_j_fail(w->c, RKV_E_FORMAT, "Object of type %s is not JSON serializable",
                          rkv_j_type(v));
    }
}

/* A line break and the indentation of this level, when there is one. */
static rkv_status put_break(writer *w)
{
    if (!w->indent)
        return RKV_OK;
    RKV_TRY(put_text(w, "\n"));
    return rkv_j_put_times(w->c, w->indent->s, w->indent->n, w->level);
}

static rkv_status put_separator(writer *w, size_t i)
{
    if (i)
        RKV_TRY(rkv_j_put(w->c, w->item->s, w->item->n));
    return put_break(w);
}

static rkv_status put_list(writer *w, const jlist *l)
{
    RKV_TRY(put_text(w, "["));
    w->level++;
    for (size_t i = 0; i < l->n; i++) {
        RKV_TRY(put_separator(w, i));
        RKV_TRY(put_value(w, &l->v[i]));
    }
    w->level--;
    if (l->n)
        RKV_TRY(put_break(w));
    return put_text(w, "]");
}

/* Keys that are no strings become ones, as far as Python does that. */
static rkv_status put_key(writer *w, const jval *key)
{
    if (key->kind == J_STRING)
        return put_string(w, key);
    if (!rkv_j_is_number(key) && key->kind != J_NONE)
        return rkv_j_fail(w->c, RKV_E_FORMAT,
                          "tojson: keys must be str, int, float, bool or None, not %s",
                          rkv_j_type(key));
    RKV_TRY(put_text(w, "\""));
    RKV_TRY(put_scalar(w, key));
    return put_text(w, "\"");
}

static rkv_status sorted(writer *w, const jdict *d, jval *out)
{
    const jval items = {.kind = J_VIEW, .sub = J_ITEMS, .dict = (jdict *)d},
               names = {.kind = J_VIEW, .sub = J_KEYS, .dict = (jdict *)d};
    jval keys;
    RKV_TRY(rkv_j_to_list(w->c, &items, out));
    RKV_TRY(rkv_j_to_list(w->c, &names, &keys));
    return rkv_j_sort(w->c, out->list->v, keys.list->v, keys.list->n, 0);
}

static rkv_status put_dict(writer *w, const jdict *d)
{
    jval order = {.kind = J_NONE};
    if (w->flags & J_JSON_SORT)
        RKV_TRY(sorted(w, d, &order));
    RKV_TRY(put_text(w, "{"));
    w->level++;
    for (size_t i = 0; i < d->n; i++) {
        const jval *pair = order.kind == J_LIST ? order.list->v[i].list->v : NULL;
        RKV_TRY(put_separator(w, i));
        RKV_TRY(put_key(w, pair ? &pair[0] : &d->v[i].key));
        RKV_TRY(rkv_j_put(w->c, w->key->s, w->key->n));
        RKV_TRY(put_value(w, pair ? &pair[1] : &d->v[i].value));
    }
    w->level--;
    if (d->n)
        RKV_TRY(put_break(w));
    return put_text(w, "}");
}

static rkv_status put_value(writer *w, const jval *v)
{
    if (v->kind == J_STRING)
        return put_string(w, v);
    RKV_TRY(rkv_j_enter(w->c));
    if (v->kind == J_LIST || v->kind == J_TUPLE)
        RKV_TRY(put_list(w, v->list));
    else if (v->kind == J_DICT)
        RKV_TRY(put_dict(w, v->dict));
    else
        RKV_TRY(put_scalar(w, v));
    w->c->data_depth--;
    return RKV_OK;
}

rkv_status rkv_j_put_json(jctx *c, const jval *v, const jval *indent, const jval *item,
                          const jval *key, int flags)
{
    writer w = {.c = c, .indent = indent, .item = item, .key = key, .flags = flags};
    return put_value(&w, v);
}

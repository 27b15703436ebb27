/* Failing, memory and the making of values. */
#include "config.h"
#include "text/chat_value.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "text/chat_ops.h"

/* Under AddressSanitizer each piece of the arena is fenced off, so that a read past a value is
 * seen. */
#if defined __SANITIZE_ADDRESS__
#define FENCED 1
#elif defined __has_feature
#if __has_feature(address_sanitizer)
#define FENCED 1
#endif
#endif
#ifdef FENCED
#include <sanitizer/asan_interface.h>
enum { FENCE = 16 };
#define CLOSE(p, n) ASAN_POISON_MEMORY_REGION(p, n)
#define OPEN(p, n) ASAN_UNPOISON_MEMORY_REGION(p, n)
#else
enum { FENCE = 0 };
#define CLOSE(p, n) ((void)(p), (void)(n))
#define OPEN(p, n) ((void)(p), (void)(n))
#endif

enum { ALIGN = 16, BLOCK_MIN = 16 << 10, BLOCK_MAX = 1 << 20 };

struct jblock {
    jblock *next;
    size_t n, cap;
    _Alignas(ALIGN) char data[];
};

/* ---- failing --------------------------------------------------------------------------------- */

rkv_status rkv_j_fail(jctx *c, rkv_status s, const char *format, ...)
{
    char text[sizeof c->e->text];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    c->status = rkv_fail(c->e, s, "chat template line %d: %s", c->line, text);
    return s;
}

rkv_status rkv_j_limit(jctx *c, const char *name, int value)
{
    return rkv_j_fail(c, RKV_E_ARG, "beyond the limit RKV_CHAT_MAX_%s = %d", name, value);
}

rkv_status rkv_j_step(jctx *c, size_t n)
{
    if (n > (size_t)(RKV_CHAT_MAX_STEPS - c->steps))
        return RKV_J_LIMIT(c, STEPS);
    c->steps += (int64_t)n;
    return RKV_OK;
}

rkv_status rkv_j_enter(jctx *c)
{
    return ++c->data_depth > RKV_CHAT_MAX_NESTING ? RKV_J_LIMIT(c, NESTING) : rkv_j_step(c, 1);
}

const char *rkv_j_type(const jval *v)
{
    static const char *const name[J_N_KIND] = {
        "missing",     "Undefined", "NoneType", "bool",      "int",    "float",     "str",
        "list",        "tuple",     "dict",     "dict view", "range",  "generator", "Namespace",
        "LoopContext", "Macro",     "function", "method",    "Cycler", "Joiner"};
    static const char *const view[] = {"dict_keys", "dict_values", "dict_items"};
    return v->kind == J_VIEW                ? view[v->sub]
           : v->kind == J_STRING && v->safe ? "Markup"
                                            : name[v->kind];
}

/* ---- arena ----------------------------------------------------------------------------------- */

static jblock *new_block(jctx *c, size_t need)
{
    size_t cap = c->block ? c->block->cap * 2 : BLOCK_MIN;
    if (cap > BLOCK_MAX)
        cap = BLOCK_MAX;
    if (cap < need)
        cap = need;
    if (cap > RKV_CHAT_MAX_MEMORY - c->memory) {
        RKV_J_LIMIT(c, MEMORY);
        return NULL;
    }
    jblock *b = rkv_mem_alloc(sizeof *b + cap);
    if (!b) {
        rkv_j_fail(c, RKV_E_MEM, "out of memory for %zu bytes", cap);
        return NULL;
    }
    b->n = 0;
    b->cap = cap;
    b->next = c->block;
    c->block = b;
    c->memory += cap;
    CLOSE(b->data, cap);
    return b;
}

void *rkv_j_alloc(jctx *c, size_t n)
{
    jblock *b = c->block;
    if (n > RKV_CHAT_MAX_MEMORY) {
        RKV_J_LIMIT(c, MEMORY);
        return NULL;
    }
    size_t at = b ? (b->n + FENCE + ALIGN - 1) / ALIGN * ALIGN : 0;
    if (!b || at > b->cap || n > b->cap - at) {
        if (!(b = new_block(c, n)))
            return NULL;
        at = 0;
    }
    OPEN(b->data + at, n);
    b->n = at + n;
    return b->data + at;
}

void rkv_j_free_all(jctx *c)
{
    while (c->block) {
        jblock *next = c->block->next;
        OPEN(c->block->data, c->block->cap);
        rkv_mem_free(c->block);
        c->block = next;
    }
    rkv_mem_free(c->names);
    rkv_text_free(&c->out);
}

/* ---- scalars and strings --------------------------------------------------------------------- */

jval rkv_j_none(void)
{
    return (jval){.kind = J_NONE};
}

jval rkv_j_bool(int b)
{
    return (jval){.kind = J_BOOL, .i = !!b};
}

jval rkv_j_int(int64_t i)
{
    return (jval){.kind = J_INT, .i = i};
}

jval rkv_j_float(double f)
{
    return (jval){.kind = J_FLOAT, .f = f};
}

jval rkv_j_string(const char *s, size_t n)
{
    return (jval){.kind = J_STRING, .n = n, .s = s};
}

jval rkv_j_literal(const char *s)
{
    return rkv_j_string(s, strlen(s));
}

rkv_status rkv_j_copy(jctx *c, const char *s, size_t n, jval *out)
{
    char *p = rkv_j_alloc(c, n);
    if (!p)
        return c->status;
    if (n)
        memcpy(p, s, n);
    *out = rkv_j_string(p, n);
    return RKV_OK;
}

rkv_status rkv_j_concat(jctx *c, const jval *a, const jval *b, jval *out)
{
    const size_t n = a->n + b->n;
    if (n > RKV_CHAT_MAX_STRING)
        return RKV_J_LIMIT(c, STRING);
    RKV_TRY(rkv_j_step(c, b->n >> 8));
    jblock *top = c->block;
    const int newest =
        top && a->n && a->s + a->n == top->data + top->n && b->n <= top->cap - top->n;
    char *p;
    if (newest) {
        p = top->data + top->n - a->n;
        OPEN(p + a->n, b->n);
        top->n += b->n;
    } else {
        RKV_TRY(rkv_j_step(c, a->n >> 8));
        if (!(p = rkv_j_alloc(c, n)))
            return c->status;
        if (a->n)
            memcpy(p, a->s, a->n);
    }
    if (b->n)
        memcpy(p + a->n, b->s, b->n);
    *out = rkv_j_string(p, n);
    return RKV_OK;
}

/* ---- containers ------------------------------------------------------------------------------ */

rkv_status rkv_j_list(jctx *c, jkind kind, size_t cap, jval *out)
{
    if (cap > RKV_CHAT_MAX_ITEMS)
        return RKV_J_LIMIT(c, ITEMS);
    jlist *l = rkv_j_alloc(c, sizeof *l);
    jval *v = l ? rkv_j_alloc(c, cap * sizeof *v) : NULL;
    if (!v)
        return c->status;
    *l = (jlist){v, 0, cap, 0};
    *out = (jval){.kind = (uint8_t)kind, .list = l};
    return RKV_OK;
}

rkv_status rkv_j_append(jctx *c, jlist *l, const jval *v)
{
    RKV_TRY(rkv_j_step(c, 1));
    if (l->n == l->cap) {
        if (l->n >= RKV_CHAT_MAX_ITEMS)
            return RKV_J_LIMIT(c, ITEMS);
        const size_t cap = l->cap * 2 + 4;
        jval *p = rkv_j_alloc(c, cap * sizeof *p);
        if (!p)
            return c->status;
        if (l->n)
            memcpy(p, l->v, l->n * sizeof *p);
        l->v = p;
        l->cap = cap;
    }
    l->v[l->n++] = *v;
    return RKV_OK;
}

void rkv_j_reverse(jlist *l)
{
    for (size_t i = 0, j = l->n; i + 1 < j; i++) {
        const jval v = l->v[i];
        l->v[i] = l->v[--j];
        l->v[j] = v;
    }
}

rkv_status rkv_j_dict(jctx *c, jkind kind, size_t cap, jval *out)
{
    if (cap > RKV_CHAT_MAX_ITEMS)
        return RKV_J_LIMIT(c, ITEMS);
    jdict *d = rkv_j_alloc(c, sizeof *d);
    jpair *v = d ? rkv_j_alloc(c, cap * sizeof *v) : NULL;
    if (!v)
        return c->status;
    *d = (jdict){v, 0, cap};
    *out = (jval){.kind = (uint8_t)kind, .dict = d};
    return RKV_OK;
}

jval *rkv_j_find_string(const jdict *d, const char *s, size_t n)
{
    for (size_t i = 0; i < d->n; i++) {
        const jval *k = &d->v[i].key;
        if (k->kind == J_STRING && k->n == n && !memcmp(k->s, s, n))
            return &d->v[i].value;
    }
    return NULL;
}

static int hashable(const jval *key, int depth)
{
    if (key->kind == J_LIST || key->kind == J_DICT ||
        (key->kind == J_VIEW && key->sub != J_VALUES) || !depth)
        return 0;
    for (size_t i = 0; key->kind == J_TUPLE && i < key->list->n; i++)
        if (!hashable(&key->list->v[i], depth - 1))
            return 0;
    return 1;
}

int rkv_j_is_hashable(const jval *key)
{
    return hashable(key, RKV_CHAT_MAX_NESTING);
}

rkv_status rkv_j_find(jctx *c, const jdict *d, const jval *key, jval **out)
{
    *out = NULL;
    RKV_TRY(rkv_j_step(c, d->n >> 3));
    if (key->kind == J_STRING) {
        *out = rkv_j_find_string(d, key->s, key->n);
        return RKV_OK;
    }
    if (!rkv_j_is_hashable(key))
        return rkv_j_fail(c, RKV_E_FORMAT, "unhashable type: '%s'", rkv_j_type(key));
    for (size_t i = 0; i < d->n; i++) {
        int same;
        RKV_TRY(rkv_j_equal(c, &d->v[i].key, key, &same));
        if (same) {
            *out = &d->v[i].value;
            break;
        }
    }
    return RKV_OK;
}

rkv_status rkv_j_set_item(jctx *c, jdict *d, const jval *key, const jval *value)
{
    jval *old;
    RKV_TRY(rkv_j_find(c, d, key, &old));
    if (old) {
        *old = *value;
        return RKV_OK;
    }
    if (d->n == d->cap) {
        if (d->n >= RKV_CHAT_MAX_ITEMS)
            return RKV_J_LIMIT(c, ITEMS);
        const size_t cap = d->cap * 2 + 4;
        jpair *p = rkv_j_alloc(c, cap * sizeof *p);
        if (!p)
            return c->status;
        if (d->n)
            memcpy(p, d->v, d->n * sizeof *p);
        d->v = p;
        d->cap = cap;
    }
    d->v[d->n++] = (jpair){*key, *value};
    return RKV_OK;
}

rkv_status rkv_j_pair(jctx *c, const jval *a, const jval *b, jval *out)
{
    RKV_TRY(rkv_j_list(c, J_TUPLE, 2, out));
    out->list->v[0] = *a;
    out->list->v[1] = *b;
    out->list->n = 2;
    return RKV_OK;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static size_t count(const cJSON *json)
{
    size_t n = 0;
    for (const cJSON *p = json->child; p; p = p->next)
        n++;
    return n;
}

/* cJSON keeps numbers as doubles: whole ones are taken for integers. */
static jval number(double d)
{
    return d == floor(d) && fabs(d) < 0x1p63 ? rkv_j_int((int64_t)d) : rkv_j_float(d);
}

static rkv_status from_container(jctx *c, const cJSON *json, jval *out)
{
    RKV_TRY(rkv_j_enter(c));
    const size_t n = count(json);
    if (cJSON_IsArray(json))
        RKV_TRY(rkv_j_list(c, J_LIST, n, out));
    else
        RKV_TRY(rkv_j_dict(c, J_DICT, n, out));
    for (const cJSON *p = json->child; p; p = p->next) {
        jval v;
        RKV_TRY(rkv_j_from_json(c, p, &v));
        if (out->kind == J_LIST) {
            out->list->v[out->list->n++] = v;
        } else {
            const jval key = rkv_j_literal(p->string);
            RKV_TRY(rkv_j_set_item(c, out->dict, &key, &v));
        }
    }
    c->data_depth--;
    return RKV_OK;
}

rkv_status rkv_j_from_json(jctx *c, const cJSON *json, jval *out)
{
    if (cJSON_IsArray(json) || cJSON_IsObject(json))
        return from_container(c, json, out);
    if (cJSON_IsString(json))
        *out = rkv_j_literal(json->valuestring);
    else if (cJSON_IsNumber(json))
        *out = number(json->valuedouble);
    else if (cJSON_IsBool(json))
        *out = rkv_j_bool(cJSON_IsTrue(json));
    else
        *out = rkv_j_none();
    return RKV_OK;
}

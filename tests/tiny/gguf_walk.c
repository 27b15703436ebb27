#include "config.h"
#include "tiny/gguf_walk.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

static void walk_array(rkv_hash *h, const rkv_gguf *g, const char *name, const rkv_gguf_key *k)
{
    size_t count = 0, n;
    float *f = malloc(k->count * sizeof *f + 1);
    int64_t *v = malloc(k->count * sizeof *v + 1);
    if (f && !rkv_gguf_floats(g, name, f, k->count, NULL))
        rkv_hash_add(h, f, k->count * sizeof *f);
    if (v && !rkv_gguf_ints(g, name, v, k->count, NULL))
        rkv_hash_add(h, v, k->count * sizeof *v);
    free(f);
    free(v);
    if (rkv_gguf_strings(g, name, &count, NULL))
        return;
    for (size_t i = 0; i < count; i++) {
        const char *s = rkv_gguf_strings_at(g, name, i, &n);
        rkv_hash_add(h, s, n);
    }
}

static void walk_key(rkv_hash *h, const rkv_gguf *g, const rkv_gguf_key *k)
{
    char *name = malloc(k->n_name + 1);
    if (!name)
        return;
    memcpy(name, k->name, k->n_name);
    name[k->n_name] = 0;
    int64_t v;
    double d;
    int b;
    const char *s;
    size_t n;
    if (!rkv_gguf_int(g, name, INT64_MIN, INT64_MAX, &v, NULL))
        rkv_hash_add(h, &v, sizeof v);
    if (!rkv_gguf_float(g, name, -1e308, 1e308, &d, NULL))
        rkv_hash_add(h, &d, sizeof d);
    if (!rkv_gguf_bool(g, name, &b, NULL))
        rkv_hash_add(h, &b, sizeof b);
    if (!rkv_gguf_string(g, name, &s, &n, NULL))
        rkv_hash_add(h, s, n);
    n = rkv_gguf_has(g, name) ? rkv_gguf_array_count(g, name) : 0;
    rkv_hash_add(h, &n, sizeof n);
    walk_array(h, g, name, k);
    free(name);
}

uint64_t gguf_walk(const rkv_gguf *g)
{
    rkv_hash h = rkv_hash_init();
    for (int i = 0; i < g->keys.n; i++)
        walk_key(&h, g, &g->keys.key[i]);
    for (int i = 0; i < rkv_gguf_n_tensor(g); i++) {
        const rkv_tensor *t = rkv_gguf_tensor_at(g, i);
        if (rkv_gguf_tensor(g, t->name) != t)
            abort();                            /* names are unique, so each finds itself */
        if (t->data)
            rkv_hash_add(&h, t->data, t->bytes);
    }
    return rkv_hash_end(&h);
}

rkv_status gguf_try(const void *data, size_t n, rkv_error *e)
{
    rkv_gguf *g = NULL;
    char *copy = malloc(n ? n : 1);
    if (!copy)
        return rkv_fail(e, RKV_E_MEM, "out of memory");
    if (n)
        memcpy(copy, data, n);
    const rkv_status s = rkv_gguf_open_memory(&g, copy, n, "x.gguf", e);
    if (!s)
        gguf_walk(g);
    rkv_gguf_close(g);
    free(copy);
    return s;
}

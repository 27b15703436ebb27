/* Opening a model file, in one or several shards, and its tensors. */
#include "config.h"
#include "file/gguf_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"

/* The end of a shard's name: "-00001-of-00003.gguf". */
enum { SHARD_DIGITS = 5, SHARD_SUFFIX = 20, SHARD_NO_AT = 1, SHARD_COUNT_AT = 10 };

/* Number written by exactly five digits; -1: something else. */
static int five_digits(const char *p)
{
    int v = 0;
    for (int i = 0; i < SHARD_DIGITS; i++) {
        if (p[i] < '0' || p[i] > '9')
            return -1;
        v = v * 10 + (p[i] - '0');
    }
    return v;
}

/* Path of shard i (from 0), which is the first one's with another number: nothing that stands in a
 * file can lead out of its folder. From rkv_mem_alloc; NULL: out of memory. */
static char *shard_path(const rkv_gguf *g, int i)
{
    char *path = rkv_mem_strdup(g->path);
    if (path && g->n_map > 1) {
        char *digits = path + strlen(path) - SHARD_SUFFIX + SHARD_NO_AT;
        for (int d = SHARD_DIGITS - 1, no = i + 1; d >= 0; d--, no /= 10)
            digits[d] = (char)('0' + no % 10);
    }
    return path;
}

/* The first shard's name must say what its keys say, else the others cannot be found. */
static rkv_status check_shard_name(const rkv_gguf *g, int64_t no, int64_t count, rkv_error *e)
{
    const size_t n = strlen(g->path);
    const char *s = n > SHARD_SUFFIX ? g->path + n - SHARD_SUFFIX : "";
    const char *shown = rkv_path_end(g->path);
    const int is_shard = *s == '-' && !strncmp(s + 6, "-of-", 4) && !strcmp(s + 15, ".gguf");
    if (!is_shard || five_digits(s + SHARD_NO_AT) != no + 1 ||
        five_digits(s + SHARD_COUNT_AT) != count)
        return rkv_fail(e, RKV_E_FORMAT,
                        "%s: part %" PRId64 " of %" PRId64 " by its keys, expected a "
                        "name that ends in -%05" PRId64 "-of-%05" PRId64 ".gguf",
                        shown, no + 1, count, no + 1, count);
    if (no)
        return rkv_fail(e, RKV_E_FORMAT,
                        "%s: part %" PRId64 " of %" PRId64 ", expected the first one; "
                        "open -00001-of-%05" PRId64 ".gguf",
                        shown, no + 1, count, count);
    return RKV_OK;
}

/* Keys that a shard shares with the first one have the same values there, but for its own number
 * and layout; another model's part is told by that, by its counts or by its tensors' names. */
static rkv_status check_same_keys(const rkv_gguf *g, const rkv_gguf_keys *keys, const char *path,
                                  rkv_error *e)
{
    static const char *const own[] = {"split.no", "general.alignment"};
    for (int i = 0; i < keys->n; i++) {
        const rkv_gguf_key *k = &keys->key[i];
        int skip = 0;
        for (size_t j = 0; j < sizeof own / sizeof *own; j++)
            skip |= k->n_name == strlen(own[j]) && !memcmp(k->name, own[j], k->n_name);
        const rkv_gguf_key *first = skip ? NULL : rkv_gguf_key_find(&g->keys, k->name, k->n_name);
        if (!first)
            continue;
        const size_t n = (size_t)(k->end - k->data), n_first = (size_t)(first->end - first->data);
        if (k->type == first->type && k->is_array == first->is_array && k->count == first->count &&
            n == n_first && !memcmp(k->data, first->data, n))
            continue;
        char where[RKV_GGUF_WHERE];
        rkv_gguf_where(where, path, "key", k->name, k->n_name, k->index, k->at);
        return rkv_fail(e, RKV_E_FORMAT, "%s: another value than in the first part; it belongs to "
                        "another model", where);
    }
    return RKV_OK;
}

static rkv_status load_shard(rkv_gguf *g, int i, int64_t n_tensor, rkv_error *e)
{
    rkv_gguf_keys keys = {0};
    rkv_map *map = &g->map[i];
    rkv_status s = RKV_E_MEM;
    int64_t v;
    char *path = shard_path(g, i);
    if (!path) {
        rkv_fail(e, s, "%s: out of memory", g->path);
        goto done;
    }
    if (access(path, R_OK)) {
        s = rkv_fail(e, RKV_E_IO, "%s: part %d of %d is missing: %s", rkv_path_end(path), i + 1,
                     g->n_map, strerror(errno));
        goto done;
    }
    if ((s = rkv_map_open(map, path, e)) || (s = rkv_gguf_parse(g, &keys, map, path, e)) ||
        (s = rkv_gguf_keys_int(&keys, path, "split.no", i, i, &v, e)) ||
        (s = rkv_gguf_keys_int(&keys, path, "split.count", g->n_map, g->n_map, &v, e)) ||
        (s = rkv_gguf_keys_int(&keys, path, "split.tensors.count", n_tensor, n_tensor, &v, e)) ||
        (s = check_same_keys(g, &keys, path, e)))
        goto done;
    s = rkv_map_confirm(map, path, e);
done:
    rkv_gguf_keys_free(&keys);
    rkv_mem_free(path);
    return s;
}

/* The other shards, when the first one's keys name some. */
static rkv_status load_shards(rkv_gguf *g, rkv_error *e)
{
    int64_t count = 1, no, n_tensor;
    if (rkv_gguf_has(g, "split.count"))
        RKV_TRY(rkv_gguf_int(g, "split.count", 0, RKV_GGUF_MAX_SHARD, &count, e));
    if (count < 2)
        return RKV_OK;
    RKV_TRY(rkv_gguf_int(g, "split.no", 0, count - 1, &no, e));
    RKV_TRY(rkv_gguf_int(g, "split.tensors.count", 0, INT32_MAX, &n_tensor, e));
    RKV_TRY(check_shard_name(g, no, count, e));
    rkv_map *map = rkv_mem_realloc(g->map, (size_t)count * sizeof *map);
    if (!map)
        return rkv_fail(e, RKV_E_MEM, "%s: out of memory for %" PRId64 " parts", g->path, count);
    g->map = map;
    memset(map + 1, 0, (size_t)(count - 1) * sizeof *map);
    g->n_map = (int)count;
    for (int i = 1; i < g->n_map; i++) {
        const int before = g->n_tensor;
        RKV_TRY(load_shard(g, i, n_tensor, e));
        for (int j = before; j < g->n_tensor; j++)
            g->tensor[j].shard = i;
    }
    if (g->n_tensor != n_tensor)
        return rkv_fail(e, RKV_E_FORMAT, "%s: %d tensors in %d parts, expected %" PRId64, g->path,
                        g->n_tensor, g->n_map, n_tensor);
    return RKV_OK;
}

static int compare_entries(const void *a, const void *b)
{
    const rkv_gguf_entry *x = *(const rkv_gguf_entry *const *)a;
    const rkv_gguf_entry *y = *(const rkv_gguf_entry *const *)b;
    const int c = strcmp(x->name, y->name);
    return c ? c : (x > y) - (x < y);
}

static rkv_status sort_tensors(rkv_gguf *g, rkv_error *e)
{
    const rkv_gguf_entry **list = rkv_mem_calloc((size_t)g->n_tensor, sizeof *list);
    if (!list)
        return rkv_fail(e, RKV_E_MEM, "%s: out of memory for %d tensors", g->path, g->n_tensor);
    g->by_name = list;
    for (int i = 0; i < g->n_tensor; i++) {
        g->tensor[i].view.name = g->tensor[i].name;
        list[i] = &g->tensor[i];
    }
    qsort(list, (size_t)g->n_tensor, sizeof *list, compare_entries);
    for (int i = 1; i < g->n_tensor; i++) {
        const rkv_gguf_entry *a = list[i - 1], *b = list[i];
        if (strcmp(a->name, b->name))
            continue;
        char where[RKV_GGUF_WHERE], *path = shard_path(g, b->shard);
        rkv_gguf_where(where, path ? path : g->path, "tensor", b->name, strlen(b->name), b->index,
                       b->at);
        rkv_mem_free(path);
        return rkv_fail(e, RKV_E_FORMAT, "%s: occurs before, as #%d of part %d, expected once",
                        where, a->index, a->shard + 1);
    }
    return RKV_OK;
}

/* Kernels may read any element type at its own alignment. Files with an alignment below 8 are legal
 * but nobody writes them, so what they keep at odd places is simply copied. */
static rkv_status align_tensors(rkv_gguf *g, rkv_error *e)
{
    for (int i = 0; i < g->n_tensor; i++) {
        rkv_gguf_entry *t = &g->tensor[i];
        if ((uintptr_t)t->view.data % 8 == 0)
            continue;
        t->copy = rkv_mem_alloc(t->view.bytes);
        if (!t->copy)
            return rkv_fail(e, RKV_E_MEM, "%s: tensor '%s': out of memory for %zu bytes", g->path,
                            t->name, t->view.bytes);
        t->view.data = memcpy(t->copy, t->view.data, t->view.bytes);
    }
    return RKV_OK;
}

static rkv_status load(rkv_gguf *g, rkv_error *e)
{
    RKV_TRY(rkv_gguf_parse(g, &g->keys, &g->map[0], g->path, e));
    RKV_TRY(load_shards(g, e));
    RKV_TRY(sort_tensors(g, e));
    RKV_TRY(align_tensors(g, e));
    for (int i = 0; i < g->n_map; i++)
        g->file_bytes += g->map[i].size;
    return rkv_map_confirm(&g->map[0], g->path, e);
}

/* Takes the map over, whatever comes of it. */
static rkv_status open_map(rkv_gguf **out, rkv_map map, const char *path, rkv_error *e)
{
    rkv_status s = RKV_E_MEM;
    rkv_gguf *g = rkv_mem_calloc(1, sizeof *g);
    if (g) {
        g->path = rkv_mem_strdup(path);
        g->map = rkv_mem_alloc(sizeof *g->map);
    }
    if (!g || !g->path || !g->map) {
        rkv_fail(e, s, "%s: out of memory", path);
        rkv_map_close(&map);
        goto done;
    }
    g->map[0] = map;
    g->n_map = 1;
    if ((s = load(g, e)))
        goto done;
    *out = g;
    g = NULL;                                   /* the caller owns it now */
done:
    rkv_gguf_close(g);
    return s;
}

rkv_status rkv_gguf_open(rkv_gguf **out, const char *path, rkv_error *e)
{
    rkv_map map;
    RKV_TRY(rkv_map_open(&map, path, e));
    return open_map(out, map, path, e);
}

rkv_status rkv_gguf_open_memory(rkv_gguf **out, const void *data, size_t n, const char *name,
                                rkv_error *e)
{
    rkv_map map;
    rkv_map_borrow(&map, data, n);
    return open_map(out, map, name, e);
}

void rkv_gguf_close(rkv_gguf *g)
{
    if (!g)
        return;
    for (int i = 0; i < g->n_tensor; i++)
        rkv_mem_free(g->tensor[i].copy);
    rkv_mem_free(g->block);
    rkv_mem_free(g->by_name);
    rkv_mem_free(g->tensor);
    rkv_gguf_keys_free(&g->keys);
    for (int i = 0; i < g->n_map; i++)
        rkv_map_close(&g->map[i]);
    rkv_mem_free(g->map);
    rkv_mem_free(g->path);
    rkv_mem_free(g);
}

rkv_status rkv_gguf_lock(const rkv_gguf *g, rkv_error *e)
{
    rkv_status s = RKV_OK;
    for (int i = 0; !s && i < g->n_map; i++) {
        char *path = shard_path(g, i);
        s = rkv_map_lock(&g->map[i], path ? path : g->path, e);
        rkv_mem_free(path);
    }
    return s;
}

rkv_status rkv_gguf_stream(rkv_gguf *g, rkv_error *e)
{
    rkv_status s = RKV_OK;
    for (int i = 0; !s && i < g->n_map; i++) {
        char *path = shard_path(g, i);
        s = path ? rkv_map_stream(&g->map[i], path, e)
                 : rkv_fail(e, RKV_E_MEM, "%s: out of memory", g->path);
        rkv_mem_free(path);
    }
    return s;
}

/* The map that p lies in; NULL: none. */
static const rkv_map *map_of(const rkv_gguf *g, const void *p)
{
    for (int i = 0; i < g->n_map; i++)
        if ((uintptr_t)p - (uintptr_t)g->map[i].data < g->map[i].size)
            return &g->map[i];
    return NULL;
}

void rkv_gguf_ahead(const rkv_gguf *g, const void *p, size_t n)
{
    const rkv_map *m = map_of(g, p);
    if (m)
        rkv_map_ahead(m, p, n);
}

void rkv_gguf_drop(const rkv_gguf *g, const void *p, size_t n)
{
    const rkv_map *m = map_of(g, p);
    if (m)
        rkv_map_drop(m, p, n);
}

const char *rkv_gguf_path(const rkv_gguf *g)
{
    return g->path;
}

uint64_t rkv_gguf_file_bytes(const rkv_gguf *g)
{
    return g->file_bytes;
}

int rkv_gguf_n_tensor(const rkv_gguf *g)
{
    return g->n_tensor;
}

const rkv_tensor *rkv_gguf_tensor_at(const rkv_gguf *g, int i)
{
    return &g->tensor[i].view;
}

const rkv_tensor *rkv_gguf_tensor(const rkv_gguf *g, const char *name)
{
    int low = 0, high = g->n_tensor;
    while (low < high) {
        const int mid = low + (high - low) / 2;
        const int c = strcmp(name, g->by_name[mid]->name);
        if (!c)
            return &g->by_name[mid]->view;
        if (c < 0)
            high = mid;
        else
            low = mid + 1;
    }
    return NULL;
}

uint32_t rkv_gguf_tensor_type_id(const rkv_gguf *g, int i)
{
    return g->tensor[i].type_id;
}

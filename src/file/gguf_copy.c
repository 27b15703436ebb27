/* A file's content in memory of our own instead of its mapping. */
#include "config.h"
#include "file/gguf_file.h"

#include <string.h>

#include "base/mem.h"
#include "base/team.h"
#include "base/thread.h"

enum {
    ALIGN = 64,                 /* of a tensor: a cache line */
    PART = 2 << 20              /* bytes that a thread copies at a time: a huge page */
};

/* Bytes from the start of the first shard to the end of its keys. */
static size_t head_bytes(const rkv_gguf *g)
{
    return g->keys.n ? (size_t)(g->keys.key[g->keys.n - 1].end - g->map[0].data) : 0;
}

static size_t aligned(size_t n)
{
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

static int is_copied(const rkv_gguf_entry *t, const char *stays)
{
    return t->view.data && !(stays && !strcmp(t->name, stays));
}

uint64_t rkv_gguf_copy_bytes(const rkv_gguf *g, const char *stays)
{
    uint64_t n = aligned(head_bytes(g));
    for (int i = 0; i < g->n_tensor; i++)
        if (is_copied(&g->tensor[i], stays))
            n += aligned(g->tensor[i].view.bytes);
    return n;
}

typedef struct copy {
    char *to;
    const void *from;
    size_t n;
    const rkv_map *map;         /* that holds the source; NULL: it lies elsewhere */
} copy;

/* The source's pages go as soon as they are read, so that no more than the threads' parts are there
 * twice. */
static void copy_part(void *ctx, int part, int thread)
{
    const copy *c = ctx;
    const size_t at = (size_t)part * PART, n = c->n - at < PART ? c->n - at : PART;
    (void)thread;
    memcpy(c->to + at, (const char *)c->from + at, n);
    if (c->map)
        rkv_map_drop(c->map, (const char *)c->from + at, n);
}

static void run(copy c, rkv_team *team)
{
    rkv_team_run(team, copy_part, &c, (int)(c.n / PART + (c.n % PART != 0)));
}

/* Everything that points into the head now points to the same place of its copy. */
static void move_keys(rkv_gguf *g, const unsigned char *to)
{
    const unsigned char *from = g->map[0].data;
    for (int i = 0; i < g->keys.n; i++) {
        rkv_gguf_key *k = &g->keys.key[i];
        k->name = (const char *)to + ((const unsigned char *)k->name - from);
        k->data = to + (k->data - from);
        k->end = to + (k->end - from);
        for (size_t j = 0; k->string && j < k->count; j++)
            k->string[j] = to + (k->string[j] - from);
    }
}

rkv_status rkv_gguf_copy(rkv_gguf *g, const char *stays, rkv_error *e)
{
    const uint64_t bytes = rkv_gguf_copy_bytes(g, stays);
    rkv_team *team = NULL;
    if (bytes > (uint64_t)8 * PART)             /* else threads cost more than they save */
        RKV_TRY(rkv_team_create(&team, rkv_thread_available(), e));
    char *block = bytes < SIZE_MAX ? rkv_mem_alloc((size_t)bytes) : NULL;
    if (!block) {
        rkv_team_free(team);
        return rkv_fail(e, RKV_E_MEM, "%s: out of memory for a copy of %.1f MiB",
                        rkv_path_end(g->path), (double)bytes / 0x1p20);
    }
    char *to = block + aligned(head_bytes(g));
    run((copy){block, g->map[0].data, head_bytes(g), &g->map[0]}, team);
    move_keys(g, (const unsigned char *)block);
    for (int i = 0; i < g->n_tensor; i++) {
        rkv_gguf_entry *t = &g->tensor[i];
        if (!is_copied(t, stays))
            continue;
        const rkv_map *map = t->copy ? NULL : &g->map[t->shard];
        run((copy){to, t->view.data, t->view.bytes, map}, team);
        t->view.data = to;
        to += aligned(t->view.bytes);
        rkv_mem_free(t->copy);
        t->copy = NULL;
    }
    g->block = block;
    rkv_team_free(team);
    return RKV_OK;
}

/* One profile by the ranks of an mpirun: each measures its part of the examples, rank 0 joins the
 * parts as if they were files. */
#include "config.h"
#include "profile/table.h"

#include <stdio.h>

#include "base/mem.h"

enum { NAME = 16 };             /* "rank 12345" */

typedef struct part {
    const rkv_world *ranks;
    const rkv_profile_options *o;
    rkv_table *mine;            /* at rank 0 the whole in the end */
    char *text;                 /* of it, at the other ranks */
    size_t n;
    rkv_table **table;          /* [size] at rank 0, and what they are called */
    char (*name)[NAME];
    const char **names;
} part;

rkv_status rkv_world_get(int *rank, int *size, rkv_error *e)
{
    rkv_world r;
    RKV_TRY(rkv_world_open(&r, e));
    *rank = r.rank;
    *size = r.size;
    return RKV_OK;
}

static int progress(void *ctx, const char *phase, int64_t done, int64_t total)
{
    const part *p = ctx;
    return rkv_world_failed(p->ranks) ||
           (p->o->progress && p->o->progress(p->o->progress_ctx, phase, done, total));
}

/* The examples of this rank. */
static rkv_status run_part(part *p, const rkv_model *m, const char *jsonl_path, rkv_error *e)
{
    rkv_profile_options mine = *p->o;
    mine.shard = p->ranks->rank + 1;
    mine.n_shard = p->ranks->size;
    mine.progress = progress;
    mine.progress_ctx = p;
    return rkv_table_run(&p->mine, m, jsonl_path, &mine, e);
}

/* What the ranks need to hand their parts over: text of them, and at rank 0 places for tables. */
static rkv_status prepare(part *p, rkv_error *e)
{
    const size_t size = (size_t)p->ranks->size;
    if (p->ranks->rank)
        return rkv_table_print(p->mine, &p->text, &p->n, e);
    p->table = rkv_mem_calloc(size, sizeof(rkv_table *));
    p->name = rkv_mem_calloc(size, sizeof *p->name);
    p->names = rkv_mem_calloc(size, sizeof *p->names);
    if (!p->table || !p->name || !p->names)
        return rkv_fail(e, RKV_E_MEM, "profile: out of memory for %zu ranks", size);
    for (size_t i = 0; i < size; i++) {
        snprintf(p->name[i], sizeof *p->name, "rank %d", (int)i);
        p->names[i] = p->name[i];
    }
    return RKV_OK;
}

static rkv_status receive(void *ctx, int rank, const void *bytes, size_t n, rkv_error *e)
{
    const part *p = ctx;
    return rkv_table_parse(&p->table[rank], bytes, n, p->name[rank], e);
}

/* All parts at rank 0, as one. */
static rkv_status join(part *p, rkv_error *e)
{
    RKV_TRY(rkv_world_gather(p->ranks, p->text, p->n, receive, p, e));
    if (p->ranks->rank)
        return RKV_OK;
    p->table[0] = p->mine;
    return rkv_table_join(p->table, p->names, p->ranks->size, e);
}

static void free_part(part *p)
{
    for (int i = 1; p->table && i < p->ranks->size; i++)
        rkv_table_free(p->table[i]);
    rkv_mem_free(p->table);
    rkv_mem_free(p->name);
    rkv_mem_free(p->names);
    rkv_mem_free(p->text);
}

/* The ranks meet twice: once all have measured, or one of them has failed, which ends the work of
 * all; and once rank 0 has joined the parts. */
rkv_status rkv_table_share(rkv_table **out, const rkv_world *r, const rkv_model *m,
                           const char *jsonl_path, const rkv_profile_options *o, rkv_error *e)
{
    part p = {.ranks = r, .o = o};
    *out = NULL;
    rkv_status s = run_part(&p, m, jsonl_path, e);
    if (!s)
        s = prepare(&p, e);
    if (s && !rkv_world_failed(r))
        rkv_world_fail(r);
    s = rkv_world_agree(r, s, e);
    if (!s)
        s = rkv_world_agree(r, join(&p, e), e);
    free_part(&p);
    if (s || r->rank)
        rkv_table_free(p.mine);
    else
        *out = p.mine;
    return s;
}

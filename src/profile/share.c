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
    rkv_table **table;          /* [size] at rank 0 */
    char (*name)[NAME];
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

/* The examples of this rank; a failure of any rank ends the work of all. */
static rkv_status run_part(rkv_table **out, part *p, const rkv_model *m, const char *jsonl_path,
                           rkv_error *e)
{
    rkv_profile_options mine = *p->o;
    mine.shard = p->ranks->rank + 1;
    mine.n_shard = p->ranks->size;
    mine.progress = progress;
    mine.progress_ctx = p;
    const rkv_status s = rkv_table_run(out, m, jsonl_path, &mine, e);
    if (s && !rkv_world_failed(p->ranks))
        rkv_world_fail(p->ranks);
    const rkv_status all = rkv_world_agree(p->ranks, s, e);
    if (all && !s)
        rkv_table_free(*out);
    return all;
}

static rkv_status receive(void *ctx, int rank, const void *bytes, size_t n, rkv_error *e)
{
    const part *p = ctx;
    return rkv_table_parse(&p->table[rank], bytes, n, p->name[rank], e);
}

/* Text of the own part to rank 0, which makes tables of them. */
static rkv_status gather(part *p, const rkv_table *mine, rkv_error *e)
{
    char *text = NULL;
    size_t n = 0;
    rkv_status s = p->ranks->rank ? rkv_table_print(mine, &text, &n, e) : RKV_OK;
    s = rkv_world_agree(p->ranks, s, e);
    if (!s)
        s = rkv_world_gather(p->ranks, text, n, receive, p, e);
    rkv_mem_free(text);
    return s;
}

static rkv_status join(part *p, rkv_table **mine, rkv_error *e)
{
    const size_t size = (size_t)p->ranks->size;
    const char **name = rkv_mem_calloc(size, sizeof *name);
    rkv_status s = RKV_OK;
    p->table = rkv_mem_calloc(size, sizeof(rkv_table *));
    p->name = rkv_mem_calloc(size, sizeof *p->name);
    if (!p->table || !p->name || !name)
        s = rkv_fail(e, RKV_E_MEM, "profile: out of memory for %zu ranks", size);
    for (size_t i = 0; !s && i < size; i++) {
        snprintf(p->name[i], sizeof *p->name, "rank %d", (int)i);
        name[i] = p->name[i];
    }
    s = rkv_world_agree(p->ranks, s, e);
    if (!s)
        s = gather(p, *mine, e);
    if (!s && p->ranks->rank == 0) {
        p->table[0] = *mine;
        s = rkv_table_join(p->table, name, (int)size, e);
        *mine = p->table[0];
    }
    for (size_t i = 1; p->table && i < size; i++)
        rkv_table_free(p->table[i]);
    rkv_mem_free(p->table);
    rkv_mem_free(p->name);
    rkv_mem_free(name);
    return rkv_world_agree(p->ranks, s, e);
}

rkv_status rkv_table_share(rkv_table **out, const rkv_world *r, const rkv_model *m,
                           const char *jsonl_path, const rkv_profile_options *o, rkv_error *e)
{
    part p = {.ranks = r, .o = o};
    rkv_table *mine;
    *out = NULL;
    RKV_TRY(run_part(&mine, &p, m, jsonl_path, e));
    const rkv_status s = join(&p, &mine, e);
    if (s || r->rank) {
        rkv_table_free(mine);
        return s;
    }
    *out = mine;
    return RKV_OK;
}

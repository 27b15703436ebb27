/* The samples of a run in order, those that share a context together; what is stored is not
 * measured again. Also: scores of stored predictions. */
#include "config.h"
#include "eval/eval.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"
#include "eval/made.h"
#include "eval/report.h"
#include "eval/store.h"
#include "policy/policy.h"
#include "profile/world.h"

typedef struct run {
    const rkv_model *m;
    const rkv_eval_options *o;  /* asked, with the part of this rank */
    const rkv_eval_options *asked;
    const char *against;
    const rkv_world *world;
    rkv_samples samples;
    rkv_eval_row *row;          /* [n][n_column] */
    rkv_store *store;
    int n_column, n_vocab;
    double done, total;         /* weight of samples */
} run;

/* ---- before the work ---- */

static rkv_status check_policies(const rkv_model *m, const rkv_eval_options *o, rkv_error *e)
{
    for (int i = 0; i < o->n_policy; i++) {     /* a session looks at policy and profile */
        rkv_session_options so = rkv_session_options_default();
        rkv_session *s;
        so.n_ctx = 64;
        so.n_thread = 1;
        so.policy = o->policy[i].policy;
        RKV_TRY(rkv_session_create(&s, m, &so, e));
        rkv_session_free(s);
    }
    return RKV_OK;
}

/* The policy that others are compared with is measured. */
static int is_there(const rkv_eval_options *o, const char *against)
{
    for (int c = 0; c <= o->n_policy; c++)
        if (rkv_eval_against(o, against, c) >= 0)
            return 1;
    return 0;
}

static rkv_status check(const rkv_model *m, const rkv_eval_options *o, const char *against,
                        rkv_error *e)
{
    if (against && !is_there(o, against))
        return rkv_fail(e, RKV_E_ARG, "against '%.60s': not among the policies and budgets of "
                        "this run", against);
    if (o->protocol != 'Q' && o->protocol != 'A')
        return rkv_fail(e, RKV_E_ARG, "protocol '%c', expected Q or A", o->protocol);
    if (o->shard < 0 || o->shard > o->n_shard)
        return rkv_fail(e, RKV_E_ARG, "shard %d of %d", o->shard, o->n_shard);
    return check_policies(m, o, e);
}

static void hash_curves(rkv_hash *h, const rkv_profile *p, int l, int n_head)
{
    const double *grid, *damage;
    for (int measured = 0; measured < 2; measured++)
        for (int head = -1; head < n_head; head++) {
            const int n = rkv_profile_curve(p, measured, l, head, &grid, &damage);
            if (n) {
                rkv_hash_add(h, grid, (size_t)n * sizeof *grid);
                rkv_hash_add(h, damage, (size_t)n * sizeof *damage);
            }
        }
}

static uint64_t hash_profile(const rkv_profile *p)
{
    rkv_hash h = rkv_hash_init();
    for (int l = 0; p && l < rkv_profile_n_layer(p); l++) {
        const double s = rkv_profile_sensitivity(p, l);
        const double local = rkv_profile_local(p, l);
        rkv_hash_add(&h, &s, sizeof s);
        rkv_hash_add(&h, &local, sizeof local);
        hash_curves(&h, p, l, rkv_profile_n_kv_head(p));
    }
    return rkv_hash_end(&h);
}

/* Everything that a result depends on beside the sample, the policy's name and its budget. */
static rkv_status open_store(run *r, rkv_error *e)
{
    const rkv_model_info *info = rkv_model_get_info(r->m);
    const rkv_eval_options *o = r->o;
    /* All policies have the same files. */
    const rkv_policy *p = o->n_policy ? &o->policy[0].policy : NULL;
    rkv_text t = {0};
    if (!o->db)
        return RKV_OK;
    rkv_text_printf(&t, "model %s, protocol %c, context %d, length %d, response %d, raw %d, "
                    "cache %s %s, profile %016llx, budgets %016llx, %s", info->fingerprint,
                    o->protocol, o->n_ctx, o->max_length, o->response, o->raw, o->k_type, o->v_type,
                    (unsigned long long)hash_profile(p ? p->profile : NULL),
                    (unsigned long long)rkv_budgets_hash(p ? p->budgets : NULL),
                    o->settings ? o->settings : "");
    const rkv_status s = t.bad ? rkv_fail(e, RKV_E_MEM, "eval: out of memory")
                               : rkv_store_open(&r->store, o->db, t.data, info, o->protocol, e);
    rkv_text_free(&t);
    return s;
}

static rkv_status load(rkv_samples *out, const rkv_model *m, const rkv_eval_options *o,
                       rkv_error *e)
{
    const int n_vocab = rkv_model_get_info(m)->n_vocab;
    char *text;
    size_t n;
    if (o->data)
        return rkv_samples_load(out, o->data, o->tasks, o->limit, n_vocab, e);
    RKV_TRY(rkv_eval_write(&text, &n, m, o, e));
    return rkv_samples_take(out, text, n, "made samples", n_vocab, e);
}

/* ---- the work ---- */

static rkv_eval_row *rows_of(const run *r, int i)
{
    return r->row + (ptrdiff_t)i * r->n_column;
}

static int is_mine(const run *r, int i)
{
    return !r->o->n_shard || i % r->o->n_shard == r->o->shard - 1;
}

static int is_missing(const run *r, int i)
{
    for (int c = 0; c < r->n_column; c++)
        if (rows_of(r, i)[c].state == RKV_EVAL_MISSING)
            return 1;
    return 0;
}

/* Of a sample's work: bytes of its prompt, as far as they are not cut out. */
static double weight_of(const run *r, int i)
{
    const int most = r->o->max_length ? r->o->max_length : rkv_model_get_info(r->m)->n_ctx_train;
    return fmin((double)r->samples.at[i].weight, 5.0 * most);
}

static rkv_status read_store(run *r, rkv_error *e)
{
    for (int i = 0; i < r->samples.n; i++) {
        RKV_TRY(rkv_store_get(r->store, rows_of(r, i), r->samples.at[i].hash, r->o, e));
        if (is_mine(r, i) && is_missing(r, i))
            r->total += weight_of(r, i);
    }
    return RKV_OK;
}

typedef struct group {          /* samples with one context */
    rkv_sample *x;
    rkv_eval_prompt *p;
    rkv_eval_row *row;          /* [n][n_column] moved here for the work */
    int *at, n;
} group;

static void free_group(group *g)
{
    for (int i = 0; g->x && i < g->n; i++)
        rkv_sample_free(&g->x[i]);
    for (int i = 0; g->p && i < g->n; i++)
        rkv_eval_prompt_free(&g->p[i]);
    rkv_mem_free(g->x);
    rkv_mem_free(g->p);
    rkv_mem_free(g->row);
    rkv_mem_free(g->at);
    *g = (group){0};
}

/* Sample first, and with protocol A the later ones that follow the same context. */
static rkv_status gather(group *g, const run *r, int first, rkv_error *e)
{
    const int most = r->o->protocol == 'A' ? r->samples.n - first : 1;
    g->at = rkv_mem_calloc((size_t)most, sizeof *g->at);
    if (!g->at)
        return rkv_fail(e, RKV_E_MEM, "eval: out of memory");
    for (int i = first; i < first + most; i++)
        if (i == first || (r->samples.at[i].context == r->samples.at[first].context &&
                           is_mine(r, i) && is_missing(r, i)))
            g->at[g->n++] = i;
    const size_t n = (size_t)g->n;
    g->x = rkv_mem_calloc(n, sizeof *g->x);
    g->p = rkv_mem_calloc(n, sizeof *g->p);
    g->row = rkv_mem_calloc(n * (size_t)r->n_column, sizeof *g->row);
    return g->x && g->p && g->row ? RKV_OK : rkv_fail(e, RKV_E_MEM, "eval: out of memory");
}

/* Those whose prompt came out as another one (cut elsewhere, since the questions differ in length)
 * wait for a group of their own. */
static rkv_status make_prompts(group *g, const run *r, rkv_error *e)
{
    int n = 0;
    for (int i = 0; i < g->n; i++) {
        rkv_sample x;
        rkv_eval_prompt p = {0};
        RKV_TRY(rkv_samples_get(&x, &r->samples, g->at[i], r->n_vocab, e));
        const rkv_status s = rkv_eval_prompt_make(&p, &x, r->m, r->o, e);
        const int same = !s && (!n || (p.n == g->p->n &&
                                       !memcmp(p.ids, g->p->ids, p.n * sizeof *p.ids)));
        if (!same) {
            rkv_sample_free(&x);
            rkv_eval_prompt_free(&p);
            RKV_TRY(s);
            continue;
        }
        g->x[n] = x;
        g->p[n] = p;
        g->at[n++] = g->at[i];
    }
    g->n = n;
    return RKV_OK;
}

static void move_rows(group *g, const run *r, int back)
{
    const size_t bytes = (size_t)r->n_column * sizeof *g->row;
    for (int i = 0; i < g->n; i++) {
        rkv_eval_row *here = g->row + (ptrdiff_t)i * r->n_column, *there = rows_of(r, g->at[i]);
        memcpy(back ? there : here, back ? here : there, bytes);
    }
}

static rkv_status measure_group(run *r, group *g, rkv_error *e)
{
    double weight = 0.0;
    RKV_TRY(make_prompts(g, r, e));
    for (int i = 0; i < g->n; i++)
        weight += weight_of(r, g->at[i]);
    const double place[] = {r->done, weight, r->total};
    move_rows(g, r, 0);
    rkv_status s = rkv_eval_measure(g->row, g->x, g->p, g->n, r->m, r->o, place, e);
    move_rows(g, r, 1);
    for (int i = 0; !s && i < g->n; i++)
        s = rkv_store_put(r->store, rows_of(r, g->at[i]), &g->x[i], r->o, e);
    r->done += weight;
    return s;
}

static rkv_status measure_all(run *r, rkv_error *e)
{
    for (int i = 0; i < r->samples.n; i++) {
        if (!is_mine(r, i) || !is_missing(r, i))
            continue;
        group g = {0};
        rkv_status s = gather(&g, r, i, e);
        if (!s)
            s = measure_group(r, &g, e);
        free_group(&g);
        RKV_TRY(s);
    }
    return RKV_OK;
}

static rkv_status run_all(run *r, rkv_error *e)
{
    RKV_TRY(check(r->m, r->o, r->against, e));
    RKV_TRY(load(&r->samples, r->m, r->o, e));
    r->row = rkv_mem_calloc(rkv_mem_product((size_t)r->samples.n, (size_t)r->n_column),
                            sizeof *r->row);
    if (!r->row)
        return rkv_fail(e, RKV_E_MEM, "eval: out of memory for %d samples", r->samples.n);
    RKV_TRY(open_store(r, e));
    RKV_TRY(read_store(r, e));
    return measure_all(r, e);
}

/* Progress of a rank, which ends when another one has given up. */
static int progress(void *ctx, const char *phase, int64_t done, int64_t total)
{
    const run *r = ctx;
    return rkv_world_failed(r->world) ||
           (r->asked->progress && r->asked->progress(r->asked->progress_ctx, phase, done, total));
}

/* Each rank measures a part; when all are done, the first finds everything in the store. */
static rkv_status run_ranks(run *r, rkv_eval_options *o, rkv_error *e)
{
    if (r->world->size == 1)
        return run_all(r, e);
    o->shard = r->world->rank + 1;
    o->n_shard = r->world->size;
    o->progress = progress;
    o->progress_ctx = r;
    rkv_status s = o->db ? run_all(r, e)
                         : rkv_fail(e, RKV_E_ARG, "eval: ranks share their samples by a database, "
                                    "and none is named");
    if (s && !rkv_world_failed(r->world))
        rkv_world_fail(r->world);
    s = rkv_world_agree(r->world, s, e);
    return s || r->world->rank ? s : read_store(r, e);
}

rkv_status rkv_eval_run(char **text, char **html, const rkv_model *m, const rkv_eval_options *o,
                        int format, const char *against, rkv_error *e)
{
    rkv_eval_options mine = *o;
    rkv_world world = {.size = 1};
    run r = {.m = m, .o = &mine, .asked = o, .against = against, .world = &world,
             .n_column = 1 + o->n_policy, .n_vocab = rkv_model_get_info(m)->n_vocab};
    *text = NULL;
    if (html)
        *html = NULL;
    if (o->ranks)
        RKV_TRY(rkv_world_open(&world, e));
    rkv_status s = run_ranks(&r, &mine, e);
    const rkv_eval_result result = {o, m, &r.samples, r.row, against};
    if (!s && !world.rank)
        s = rkv_eval_report(text, html, &result, format, e);
    for (int i = 0; r.row && i < r.samples.n * r.n_column; i++)
        rkv_eval_row_free(&r.row[i]);
    rkv_mem_free(r.row);
    rkv_samples_free(&r.samples);
    rkv_store_close(r.store);
    return s;
}

rkv_status rkv_eval_save(const char *path, const char *text, size_t n, rkv_error *e)
{
    return rkv_file_replace(path, text, n, e);
}

/* ---- stored predictions ---- */

/* A line as a sample, its prompt not asked for. */
static rkv_status score_line(rkv_text *out, const char *line, const char *where, rkv_error *e)
{
    cJSON *root;
    const char *prediction;
    double score = (double)NAN;
    rkv_sample x;
    RKV_TRY(rkv_json_parse(&root, line, strlen(line), where, e));
    rkv_status s = rkv_json_string(&prediction, root, "prediction", where, e);
    if (!s && !rkv_json_has(root, "prompt") && !cJSON_AddStringToObject(root, "prompt", "-"))
        s = rkv_fail(e, RKV_E_MEM, "%s: out of memory", where);
    char *text = s ? NULL : cJSON_PrintUnformatted(root);
    if (!s && !text)
        s = rkv_fail(e, RKV_E_MEM, "%s: out of memory", where);
    if (!s)
        s = rkv_sample_parse(&x, text, NULL, where, 1, e);
    cJSON_free(text);
    if (!s) {
        rkv_error why = {0};
        s = rkv_task_score(&score, x.task, prediction, &x.reference, &why);
        rkv_text_printf(out, "{\"id\":");
        rkv_text_json(out, x.id, strlen(x.id));
        rkv_text_printf(out, ",\"task\":\"%s\",\"score\":", x.task->name);
        rkv_text_number(out, score);
        if (s == RKV_E_UNSUPPORTED) {
            rkv_text_printf(out, ",\"unsupported\":");
            rkv_text_json(out, why.text, strlen(why.text));
        }
        rkv_text_add(out, "}", 1);
        if (s && s != RKV_E_UNSUPPORTED)
            rkv_fail(e, s, "%s: %.400s", where, why.text);
        s = s == RKV_E_UNSUPPORTED ? RKV_OK : s;
        rkv_sample_free(&x);
    }
    cJSON_Delete(root);
    return s;
}

rkv_status rkv_eval_score(char **text, const char *path, rkv_error *e)
{
    rkv_data d;
    rkv_text t = {0};
    rkv_status s = RKV_OK;
    RKV_TRY(rkv_data_load(&d, path, e));
    rkv_text_printf(&t, "{\"rows\":[");
    for (int i = 0; !s && i < d.n_line; i++) {
        char where[300];
        snprintf(where, sizeof where, "%.200s: line %d", path, d.number[i]);
        if (i)
            rkv_text_add(&t, ",", 1);
        s = score_line(&t, d.line[i], where, e);
    }
    rkv_text_printf(&t, "]}");
    rkv_data_free(&d);
    if (s)
        rkv_text_free(&t);
    else if (!rkv_text_take(&t, text, NULL))
        s = rkv_fail(e, RKV_E_MEM, "%s: out of memory", path);
    return s;
}

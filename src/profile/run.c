/* A table of numbers from a file of examples: checks, the loop, when to stop. */
#include "config.h"
#include "profile/table.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "profile/data.h"
#include "profile/measure.h"
#include "profile/world.h"

enum { MIN_STABLE = 4 };        /* examples before their spread says anything */

static const double usual_grid[] = {0.03, 0.05, 0.1, 0.2, 0.3, 0.5};
static const double usual_head_grid[] = {0.03, 0.1, 0.3};

rkv_profile_options rkv_profile_options_default(void)
{
    return (rkv_profile_options){.n_response = 32, .noise = 0.5, .n_seed = 4,
                                 .signals = RKV_SIGNAL_VALUES | RKV_SIGNAL_CURVES,
                                 .damage_budget = 0.1, .selector = "blend"};
}

typedef struct job {
    const rkv_model *m;
    const rkv_profile_options *o;
    rkv_data data;
    rkv_resume *resume;
    rkv_table *table;
    rkv_measurer measurer;
    int at, end, n_used;        /* examples at work: [at, end); used so far */
    int batch;                  /* examples that go together at most */
    rkv_to_measure *x;          /* [batch] */
    int n_line;                 /* of the data that are looked at */
    rkv_example *example;       /* [n_line] those of this shard, until they are measured */
    size_t longest;             /* prompt that is used, in tokens */
    int64_t *units;             /* [n_line + 1] of the examples before; the last: of all */
    int64_t found;              /* units that needed no work: resume had them */
} job;

/* ---- options ---- */

static rkv_status check_grid(const rkv_profile_options *o, rkv_error *e)
{
    if (o->n_grid < 0 || o->n_grid > RKV_MAX_GRID)
        return rkv_fail(e, RKV_E_ARG, "profile: a grid of %d shares, expected at most %d",
                        o->n_grid, RKV_MAX_GRID);
    const int i = rkv_profile_bad_share(o->grid, o->n_grid);
    if (i >= 0)
        return rkv_fail(e, RKV_E_ARG, "profile: share %d of the grid is %g, expected ascending "
                        "ones between 0 and 1", i + 1, o->grid[i]);
    return RKV_OK;
}

static rkv_status check_parts(const rkv_profile_options *o, rkv_error *e)
{
    if (o->batch_rows < 0)
        return rkv_fail(e, RKV_E_ARG, "profile: %d rows at a time, expected 0 (all) or more",
                        o->batch_rows);
    if (o->n_shard < 0 || o->shard < (o->n_shard > 0) || o->shard > o->n_shard)
        return rkv_fail(e, RKV_E_ARG, "profile: shard %d of %d, expected 1 of 1 or more", o->shard,
                        o->n_shard);
    if (o->n_shard > 1 && (o->until_stable || o->n_used_max))
        return rkv_fail(e, RKV_E_ARG, "profile: a shard cannot know when all are stable; give "
                        "every shard the same number of examples");
    return RKV_OK;
}

static rkv_status check(const rkv_profile_options *o, rkv_error *e)
{
    if (o->n_example_max < 0)
        return rkv_fail(e, RKV_E_ARG, "profile: %d examples, expected 0 (all) or more",
                        o->n_example_max);
    if (o->n_response < RKV_MIN_RESPONSE || o->n_response > 4096)
        return rkv_fail(e, RKV_E_ARG, "profile: %d response tokens, expected %d to 4096",
                        o->n_response, RKV_MIN_RESPONSE);
    if (!(o->noise > 0.0 && o->noise <= 100.0))
        return rkv_fail(e, RKV_E_ARG, "profile: noise of %g, expected more than 0 and at most 100",
                        o->noise);
    if (o->n_seed < 1 || o->n_seed > 1000)
        return rkv_fail(e, RKV_E_ARG, "profile: %d noise seeds, expected 1 to 1000", o->n_seed);
    if (o->n_ctx < 0)
        return rkv_fail(e, RKV_E_ARG,
                        "profile: context of %d tokens, expected 0 (the model's) or more",
                        o->n_ctx);
    if (!(o->damage_budget > 0.0 && o->damage_budget < 1.0))
        return rkv_fail(e, RKV_E_ARG, "profile: damage at a share of %g, expected between 0 and 1",
                        o->damage_budget);
    RKV_TRY(check_grid(o, e));
    return check_parts(o, e);
}

static rkv_status set_policy(rkv_policy *p, const rkv_profile_options *o, rkv_error *e)
{
    static const char names[] = ""
#define RKV_SELECTOR(name) ", " #name
#include "policy/policy.def"
#undef RKV_SELECTOR
        ;
    const rkv_selector *s = rkv_selector_find(o->selector);
    if (!s || !strcmp(s->name, "full"))
        return rkv_fail(e, RKV_E_ARG, "profile: selector '%.40s', expected one of %s (full drops "
                        "nothing, and is not for it)", o->selector, names + 2);
    *p = rkv_policy_default();
    p->selector = s->name;
    p->budget_kind = RKV_BUDGET_SHARE;
    p->budget = o->damage_budget;
    return RKV_OK;
}

static rkv_status check_model(const rkv_model *m, const rkv_profile_options *o, rkv_error *e)
{
    if (!m->arch)
        return rkv_fail(e, RKV_E_ARG, "profile: a model loaded for its tokenizer only");
    const int n_sliding = rkv_model_get_info(m)->n_layer_sliding;
    if (n_sliding == m->config.n_layer)
        return rkv_fail(e, RKV_E_UNSUPPORTED, "profile: every layer has a sliding window: no cache "
                        "to divide, no profile is needed");
    /* A longer answer would push prompt tokens out of sliding layers before the walk needs them. */
    if (n_sliding && !o->from_answers && o->n_response > RKV_SLIDING_ROOM)
        return rkv_fail(e, RKV_E_ARG,
                        "profile: %d response tokens, at most %d of the model's own answer with "
                        "sliding-window layers",
                        o->n_response, RKV_SLIDING_ROOM);
    return RKV_OK;
}

/* ---- some examples at a time ---- */

static int report(void *ctx, int64_t done)
{
    const job *j = ctx;
    const int64_t most = j->units[j->end] - j->units[j->at];
    const rkv_profile_options *o = j->o;
    return o->progress
               ? o->progress(o->progress_ctx, "profile",
                             j->units[j->at] + (done < most ? done : most) - j->found,
                             j->units[j->n_line] - j->found)
               : 0;
}

/* The next examples to be measured into j->x[n]; those before j->end that are not among them are of
 * another shard, or too long. */
static int take(job *j)
{
    int n = 0;
    for (j->end = j->at; j->end < j->table->n_example && n < j->batch; j->end++) {
        rkv_measured *row = &j->table->row[j->end];
        if (!rkv_table_has(j->table, j->end) || row->state == RKV_EXAMPLE_LONG)
            continue;
        j->x[n++] = (rkv_to_measure){j->end, j->example[j->end], row};
        j->example[j->end] = (rkv_example){0};
    }
    return n;
}

static rkv_status run_batch(job *j, rkv_error *e)
{
    const int n = take(j);
    const rkv_status s = n ? rkv_measure(&j->measurer, j->x, n, e) : RKV_OK;
    if (!s && n)
        j->found += j->measurer.skipped;
    for (int i = 0; i < n; i++)
        rkv_example_free(&j->x[i].x);
    return s;
}

/* Enough is known from the rows up to i, which become the table then. */
static rkv_status enough(job *j, int i, int *stop, rkv_error *e)
{
    rkv_table *t = j->table;
    const int n_example = t->n_example, used = t->row[i].state == RKV_EXAMPLE_USED;
    double widest;
    int layer;
    j->n_used += used;
    *stop = j->o->n_used_max && j->n_used >= j->o->n_used_max;
    rkv_status s = RKV_OK;
    t->n_example = i + 1;
    if (!*stop && j->o->until_stable && used && j->n_used >= MIN_STABLE) {
        s = rkv_table_widest(&widest, &layer, t, e);
        *stop = !s && widest <= RKV_STABLE;
        if (!s)
            rkv_log(RKV_LOG_INFO, "after %d examples the widest interval of a budget, that of "
                    "layer %d, is +-%.2f %% of the mean", j->n_used, layer, 100.0 * widest);
    }
    if (!*stop)
        t->n_example = n_example;
    for (int k = t->n_example; k < n_example; k++)      /* of the same batch, and not needed */
        rkv_measured_free(&t->row[k]);
    return s;
}

static rkv_status run_all(job *j, rkv_error *e)
{
    rkv_table *t = j->table;
    int stop = 0;
    for (j->at = 0; j->at < t->n_example && !stop; j->at = j->end) {
        const int n_row = t->n_example;
        RKV_TRY(run_batch(j, e));
        for (int i = j->at; i < j->end && !stop; i++)
            if (rkv_table_has(t, i))
                RKV_TRY(enough(j, i, &stop, e));
        if (!stop && report(j, INT64_MAX))
            return rkv_fail(e, RKV_E_CANCELLED, "interrupted after example %d of %d", j->end,
                            n_row);
    }
    return RKV_OK;
}

/* How many examples go together, and their places. */
static rkv_status set_batch(job *j, rkv_error *e)
{
    int n_row = 0;
    for (int i = 0; i < j->n_line; i++)
        n_row += j->example[i].prompt != NULL;
    j->batch = 1;
    if (j->longest)
        RKV_TRY(rkv_measure_fit(&j->batch, &j->measurer, j->longest, n_row, e));
    j->x = rkv_mem_calloc((size_t)j->batch, sizeof *j->x);
    return j->x ? RKV_OK : rkv_fail(e, RKV_E_MEM, "profile: out of memory for %d examples",
                                    j->batch);
}

/* ---- before it ---- */

/* One line of this shard, into j->example. *n: those that are sure to be measured so far. */
static rkv_status look_at_line(job *j, int i, int *n, rkv_error *e)
{
    const rkv_table *t = j->table;
    const int most = j->o->n_used_max;
    rkv_example *x = &j->example[i];
    RKV_TRY(rkv_data_example(x, &j->data, i, j->m, j->o->from_answers, e));
    if (x->n_prompt > (size_t)t->head->n_ctx) {
        t->row[i].state = RKV_EXAMPLE_LONG;
        rkv_example_free(x);
    } else if (!most || *n < most) {
        ++*n;
        j->units[i + 1] = rkv_measure_units(&t->plan, j->o, x->n_prompt);
        if (x->n_prompt > j->longest)
            j->longest = x->n_prompt;
    }
    return RKV_OK;
}

/* Each line of this shard is read once, before the work begins: a bad one is told now, and how much
 * work there is. */
static rkv_status look_at_lines(job *j, rkv_error *e)
{
    const rkv_table *t = j->table;
    int n = 0;
    j->units = rkv_mem_calloc((size_t)j->n_line + 1, sizeof *j->units);
    j->example = rkv_mem_calloc((size_t)j->n_line, sizeof *j->example);
    if (!j->units || !j->example)
        return rkv_fail(e, RKV_E_MEM, "profile: out of memory for %d examples", j->n_line);
    for (int i = 0; i < j->n_line; i++) {
        if (rkv_table_has(t, i))
            RKV_TRY(look_at_line(j, i, &n, e));
        j->units[i + 1] += j->units[i];
        if (j->o->progress && j->o->progress(j->o->progress_ctx, "data", i + 1, j->n_line))
            return rkv_fail(e, RKV_E_CANCELLED, "interrupted at line %d of the data",
                            j->data.number[i]);
    }
    return RKV_OK;
}

/* Every selector keeps the window: prompts within the floor make curves of zeros. */
static void warn_of_short_prompts(const job *j)
{
    const rkv_profile *h = j->table->head;
    const int least = rkv_policy_floor(&j->measurer.policy);
    if (!j->longest || !(h->signals & (RKV_SIGNAL_CURVES | RKV_SIGNAL_LAYER_CURVES |
                                       RKV_SIGNAL_HEAD_CURVES | RKV_SIGNAL_DAMAGE)))
        return;
    if (j->longest <= (size_t)least)
        rkv_log(RKV_LOG_WARN, "the longest prompt has %zu tokens, and %d always stay: damage and "
                "curves say nothing; use longer prompts", j->longest, least);
    else
        rkv_log(RKV_LOG_INFO, "the longest prompt has %zu tokens, of which %d always stay: shares "
                "under %.3g %% give the same numbers", j->longest, least,
                100.0 * least / (double)j->longest);
}

/* All that the numbers depend on, as items with a comma between them. */
static void sign(char *signature, size_t size, const job *j)
{
    char signals[128], grid[512] = "";
    const rkv_model_info *i = rkv_model_get_info(j->m);
    const rkv_profile_options *o = j->o;
    const rkv_profile *h = j->table->head;
    rkv_signals_print(signals, h->signals);
    for (char *c = signals; *c; c++)            /* a comma ends an item of the signature */
        *c = *c == ',' ? ' ' : *c;
    for (int g = 0, n = 0; g < h->n_grid; g++)
        n += snprintf(grid + n, sizeof grid - (size_t)n, " %.9g", h->grid[g]);
    snprintf(signature, size,
             "model %s, data %016llx, response %s %d, noise %.17g, seeds %d, context %d, tier %s, "
             "arithmetic %s, signals %s, selector %s, damage %.17g, grid%s, layout 3",
             i->fingerprint, (unsigned long long)j->data.hash,
             o->from_answers ? "answers" : "greedy", o->n_response, o->noise, o->n_seed, o->n_ctx,
             i->tier, i->arithmetic, signals, h->selector, o->damage_budget, grid);
}

static rkv_status open_resume(job *j, rkv_error *e)
{
    char signature[1024];
    const rkv_profile_options *o = j->o;
    if (!o->resume_dir)
        return RKV_OK;
    sign(signature, sizeof signature, j);
    /* Ranks cannot share a database: some file systems of clusters do not lock. */
    char name[48] = "profile";
    if (o->ranks && o->n_shard > 1)
        snprintf(name, sizeof name, "profile-%d-of-%d", o->shard, o->n_shard);
    return rkv_resume_open(&j->resume, o->resume_dir, name, signature, e);
}

/* The longest prompt that is used: its answer must fit into the context, too. */
static int longest_prompt(const job *j)
{
    const rkv_config *c = &j->m->config;
    const int n_ctx = j->o->n_ctx ? j->o->n_ctx : c->n_ctx_train;
    const int most = c->n_ctx_most - j->o->n_response;
    return most < 0 ? 0 : most < n_ctx ? most : n_ctx;
}

static void set_grids(rkv_profile *p, const rkv_profile_options *o)
{
    const double *grid = o->n_grid ? o->grid : usual_grid;
    const double *head = o->n_grid ? o->grid : usual_head_grid;
    p->n_grid = o->n_grid ? o->n_grid : (int)(sizeof usual_grid / sizeof *usual_grid);
    p->n_head_grid =
        o->n_grid ? o->n_grid : (int)(sizeof usual_head_grid / sizeof *usual_head_grid);
    memcpy(p->grid, grid, (size_t)p->n_grid * sizeof *grid);
    memcpy(p->head_grid, head, (size_t)p->n_head_grid * sizeof *head);
}

/* What the profile is made of, without a number. */
static rkv_status make_head(rkv_profile **out, const job *j, rkv_error *e)
{
    const rkv_profile_options *o = j->o;
    rkv_profile *p;
    RKV_TRY(rkv_profile_create(&p, rkv_model_get_info(j->m), e));
    p->noise = o->noise;
    p->n_seed = o->n_seed;
    p->n_response = o->n_response;
    p->from_answers = o->from_answers;
    p->signals = o->signals | RKV_SIGNAL_VALUES;
    p->damage_budget = o->damage_budget;
    p->n_ctx = longest_prompt(j);
    p->data_hash = j->data.hash;
    set_grids(p, o);
    for (int l = 0; l < p->n_layer; l++)
        p->sensitivity[l].in_budget = !j->m->layer[l].sliding;
    p->selector = rkv_mem_strdup(o->selector);
    if (!p->selector) {
        rkv_profile_free(p);
        return rkv_fail(e, RKV_E_MEM, "profile: out of memory");
    }
    *out = p;
    return RKV_OK;
}

static rkv_status start(job *j, rkv_error *e)
{
    const rkv_profile_options *o = j->o;
    rkv_profile *head = NULL;
    const int n = o->n_example_max && o->n_example_max < j->data.n_line ? o->n_example_max
                                                                        : j->data.n_line;
    RKV_TRY(make_head(&head, j, e));
    RKV_TRY(rkv_table_create(&j->table, head, n, e));
    j->n_line = n;
    if (o->n_shard) {
        j->table->shard = o->shard;
        j->table->n_shard = o->n_shard;
    }
    RKV_TRY(look_at_lines(j, e));
    warn_of_short_prompts(j);
    RKV_TRY(open_resume(j, e));
    j->measurer.m = j->m;
    j->measurer.o = o;
    j->measurer.plan = &j->table->plan;
    j->measurer.resume = j->resume;
    j->measurer.report = report;
    j->measurer.ctx = j;
    return set_batch(j, e);
}

/* All but the table. */
static void end(job *j)
{
    rkv_resume_close(j->resume);
    rkv_data_free(&j->data);
    for (int i = 0; j->example && i < j->n_line; i++)
        rkv_example_free(&j->example[i]);
    rkv_mem_free(j->example);
    rkv_mem_free(j->units);
    rkv_mem_free(j->x);
}

rkv_status rkv_table_run(rkv_table **out, const rkv_model *m, const char *jsonl_path,
                         const rkv_profile_options *options, rkv_error *e)
{
    const rkv_profile_options def = rkv_profile_options_default();
    job j = {.m = m, .o = options ? options : &def};
    RKV_TRY(check(j.o, e));
    RKV_TRY(set_policy(&j.measurer.policy, j.o, e));
    RKV_TRY(check_model(m, j.o, e));
    RKV_TRY(rkv_data_load(&j.data, jsonl_path, e));
    rkv_status s = start(&j, e);
    if (!s)
        s = run_all(&j, e);
    end(&j);
    if (s) {
        rkv_table_free(j.table);
        return s;
    }
    *out = j.table;
    return RKV_OK;
}

/* ---- the public calls ---- */

rkv_status rkv_profile_run(rkv_profile **out, const rkv_model *m, const char *jsonl_path,
                           const rkv_profile_options *o, rkv_error *e)
{
    rkv_table *t;
    rkv_world ranks = {.size = 1};
    if (o && o->n_shard > 1)
        return rkv_fail(e, RKV_E_ARG, "profile: shard %d of %d is no profile", o->shard,
                        o->n_shard);
    if (o && o->ranks)
        RKV_TRY(rkv_world_open(&ranks, e));
    *out = NULL;
    RKV_TRY(ranks.size > 1 ? rkv_table_share(&t, &ranks, m, jsonl_path, o, e)
                           : rkv_table_run(&t, m, jsonl_path, o, e));
    if (!t)
        return RKV_OK;
    const rkv_status s = rkv_table_summarize(out, t, jsonl_path, e);
    rkv_table_free(t);
    return s;
}

rkv_status rkv_profile_run_shard(const char *path, const rkv_model *m, const char *jsonl_path,
                                 const rkv_profile_options *o, rkv_error *e)
{
    rkv_table *t;
    RKV_TRY(rkv_table_run(&t, m, jsonl_path, o, e));
    const rkv_status s = rkv_table_save(t, path, e);
    rkv_table_free(t);
    return s;
}

rkv_status rkv_profile_merge(rkv_profile **out, const char *const *path, int n_path, rkv_error *e)
{
    rkv_table *t;
    RKV_TRY(rkv_table_merge(&t, path, n_path, e));
    const rkv_status s = rkv_table_summarize(out, t, path[0], e);
    rkv_table_free(t);
    return s;
}

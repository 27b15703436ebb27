/* A profile from a file of examples: prefill, the model's own answer, one sweep each, then the
 * means. */
#include "config.h"
#include "profile/profile.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "profile/data.h"
#include "profile/resume.h"
#include "profile/walk.h"

enum { MIN_RESPONSE = 8 };

rkv_profile_options rkv_profile_options_default(void)
{
    return (rkv_profile_options){.n_response = 32, .noise = 0.5, .n_seed = 4};
}

typedef struct job {
    const rkv_model *m;
    const rkv_profile_options *o;
    rkv_data data;
    rkv_resume *resume;
    rkv_profile *profile;
    int n_example, n_value;     /* examples to look at; numbers per example: [n_seed][n_layer] */
    int at;                     /* example at work, for progress */
    double *kl;                 /* [n_example][n_value]; used examples first */
} job;

static rkv_status check(const rkv_profile_options *o, rkv_error *e)
{
    if (o->n_example_max < 0)
        return rkv_fail(e, RKV_E_ARG, "profile: %d examples, expected 0 (all) or more",
                        o->n_example_max);
    if (o->n_response < MIN_RESPONSE || o->n_response > 4096)
        return rkv_fail(e, RKV_E_ARG, "profile: %d response tokens, expected %d to 4096",
                        o->n_response, MIN_RESPONSE);
    if (!(o->noise > 0.0 && o->noise <= 100.0))
        return rkv_fail(e, RKV_E_ARG, "profile: noise of %g, expected more than 0 and at most 100",
                        o->noise);
    if (o->n_seed < 1 || o->n_seed > 1000)
        return rkv_fail(e, RKV_E_ARG, "profile: %d noise seeds, expected 1 to 1000", o->n_seed);
    if (o->n_ctx < 0)
        return rkv_fail(e, RKV_E_ARG,
                        "profile: context of %d tokens, expected 0 (the model's) or more",
                        o->n_ctx);
    return RKV_OK;
}

/* Passes on the progress of an example's parts: prefill counts 60 of 100, the sweep 40. */
static int progress(void *ctx, const char *phase, int64_t done, int64_t total)
{
    const job *j = ctx;
    const int64_t part = done * (strcmp(phase, "sweep") ? 60 : 40) / (total ? total : 1);
    const int64_t at = 100 * (int64_t)j->at + part + (strcmp(phase, "sweep") ? 0 : 60);
    return j->o->progress
               ? j->o->progress(j->o->progress_ctx, "profile", at, 100 * (int64_t)j->n_example)
               : 0;
}

/* The model's own greedy answer after the prompt that s holds, up to n tokens, without the end
 * token. */
static rkv_status greedy_answer(rkv_session *s, int32_t *out, int n, int *n_out, rkv_error *e)
{
    rkv_sampler *sampler;
    RKV_TRY(rkv_sampler_create(&sampler, s->m->config.n_vocab, NULL, e));
    rkv_status status = RKV_OK;
    *n_out = 0;
    while (!status && *n_out < n) {
        const int32_t id = rkv_sampler_next(sampler, rkv_session_logits(s));
        if (id < 0) {
            status = rkv_fail(e, RKV_E_UNSUPPORTED, "after %d tokens of the answer the model's "
                              "logits are not finite", *n_out);
            break;
        }
        if (rkv_token_is_end(s->m, id))
            break;
        out[(*n_out)++] = id;
        if (*n_out < n)
            status = rkv_session_decode(s, id, e);
    }
    rkv_sampler_free(sampler);
    return status;
}

/* Takes the answer's tokens out of the cache again. */
static void rewind_to_prompt(rkv_session *s, int n_prompt)
{
    for (int l = 0; l < s->m->config.n_layer; l++)
        rkv_kv_truncate(s->kv, l, n_prompt);
    s->n_past = n_prompt;
}

/* Response tokens to feed: the data's, or the model's own greedy answer after the prompt. */
static rkv_status find_response(rkv_session *s, const rkv_example *x, int32_t *fed, int n,
                                int *n_fed, rkv_error *e)
{
    if (x->response) {
        *n_fed = x->n_response < (size_t)n ? (int)x->n_response : n;
        memcpy(fed, x->response, (size_t)*n_fed * sizeof *fed);
        return RKV_OK;
    }
    RKV_TRY(greedy_answer(s, fed, n, n_fed, e));
    rewind_to_prompt(s, (int)x->n_prompt);
    return RKV_OK;
}

/* Overflow in the model would make a profile that nothing can read. */
static rkv_status check_finite(const job *j, const double *kl, rkv_error *e)
{
    const int n_layer = j->profile->n_layer;
    for (int i = 0; i < j->n_value; i++)
        if (!j->m->layer[i % n_layer].sliding && !isfinite(kl[i]))
            return rkv_fail(e, RKV_E_UNSUPPORTED,
                            "example %d: KL of layer %d is %g: the model's logits are not finite",
                            j->at, i % n_layer, kl[i]);
    return RKV_OK;
}

/* kl[n_seed][n_layer] of noise on the Values of each layer; NaN where it slides. */
static rkv_status sweep(const job *j, const rkv_session *s, const int32_t *fed, int n_fed,
                        double *kl, rkv_error *e)
{
    const rkv_perturb *noise = rkv_perturb_find("noise_v");
    const int n_layer = j->profile->n_layer, n_seed = j->o->n_seed;
    const rkv_walk_options o = {.example = j->at};
    rkv_variant *v = rkv_mem_alloc((size_t)j->n_value * sizeof *v);
    rkv_outcome *out = rkv_mem_alloc((size_t)j->n_value * sizeof *out);
    int n = 0;
    rkv_status status = v && out ? RKV_OK : rkv_fail(e, RKV_E_MEM, "sweep: out of memory");
    for (int i = 0; !status && i < j->n_value; i++)
        if (!j->m->layer[i / n_seed].sliding)
            v[n++] = (rkv_variant){noise, i / n_seed, -1, i % n_seed, j->o->noise};
    if (!status)
        status = rkv_walk_run(out, s, fed, n_fed, v, n, &o, e);
    for (int i = 0; !status && i < j->n_value; i++)
        kl[i] = (double)NAN;
    for (int i = 0; !status && i < n; i++)
        kl[v[i].seed * n_layer + v[i].layer] = out[i].kl;
    rkv_mem_free(v);
    rkv_mem_free(out);
    return status;
}

/* Prefill, answer and sweep of one example; tells the log what each took. */
static rkv_status run_parts(job *j, rkv_session *s, const rkv_example *x, int32_t *fed,
                            enum rkv_example_state *state, double *kl, int *n_fed, rkv_error *e)
{
    const int64_t start = rkv_clock_ns();
    RKV_TRY(rkv_session_prefill(s, x->prompt, x->n_prompt, e));
    const int64_t prefilled = rkv_clock_ns();
    RKV_TRY(find_response(s, x, fed, j->o->n_response, n_fed, e));
    const int64_t answered = rkv_clock_ns();
    *state = *n_fed < MIN_RESPONSE ? RKV_EXAMPLE_SHORT : RKV_EXAMPLE_USED;
    if (*state == RKV_EXAMPLE_SHORT)
        return RKV_OK;
    RKV_TRY(sweep(j, s, fed, *n_fed, kl, e));
    RKV_TRY(check_finite(j, kl, e));
    const double prefill_s = 1e-9 * (double)(prefilled - start);
    const double sweep_s = 1e-9 * (double)(rkv_clock_ns() - answered);
    rkv_log(RKV_LOG_INFO,
            "example %d: prompt %zu tokens, prefill %.3f s, answer of %d tokens %.3f s, sweep "
            "%.3f s (%.2f prefills)",
            j->at, x->n_prompt, prefill_s, *n_fed, 1e-9 * (double)(answered - prefilled), sweep_s,
            sweep_s / prefill_s);
    return RKV_OK;
}

static rkv_status measure(job *j, const rkv_example *x, enum rkv_example_state *state, double *kl,
                          int *n_fed, rkv_error *e)
{
    const rkv_profile_options *o = j->o;
    rkv_session_options so = rkv_session_options_default();
    so.n_ctx = (int)x->n_prompt + o->n_response;
    so.n_thread = o->n_thread;
    so.progress = progress;
    so.progress_ctx = j;
    rkv_session *s = NULL;
    int32_t *fed = rkv_mem_alloc((size_t)o->n_response * sizeof *fed);
    rkv_status status = fed ? RKV_OK : rkv_fail(e, RKV_E_MEM, "profile: out of memory");
    if (!status)
        status = rkv_session_create(&s, j->m, &so, e);
    if (!status)
        status = run_parts(j, s, x, fed, state, kl, n_fed, e);
    rkv_session_free(s);
    rkv_mem_free(fed);
    return status;
}

static rkv_status run_example(job *j, enum rkv_example_state *state, double *kl, int *n_fed,
                              rkv_error *e)
{
    rkv_example x;
    RKV_TRY(rkv_data_example(&x, &j->data, j->at, j->m, j->o->from_answers, e));
    rkv_status s = RKV_OK;
    *n_fed = 0;
    if (x.n_prompt > (size_t)j->profile->n_ctx)
        *state = RKV_EXAMPLE_LONG;
    else
        s = measure(j, &x, state, kl, n_fed, e);
    rkv_example_free(&x);
    return s;
}

/* What a folder of --resume holds of the example at work; its numbers are checked like an input's.
 */
static rkv_status get_finished(job *j, enum rkv_example_state *state, double *kl, int *n_fed,
                               rkv_error *e)
{
    const int n_layer = j->profile->n_layer;
    RKV_TRY(rkv_resume_get(j->resume, j->at, state, kl, j->n_value, n_fed, e));
    for (int i = 0; *state == RKV_EXAMPLE_USED && i < j->n_value; i++)
        if (!j->m->layer[i % n_layer].sliding && !(kl[i] >= 0.0 && kl[i] < INFINITY))
            return rkv_resume_damaged(j->resume, j->at, e);
    return RKV_OK;
}

static rkv_status run_all(job *j, rkv_error *e)
{
    rkv_profile *p = j->profile;
    for (j->at = 0; j->at < j->n_example; j->at++) {
        enum rkv_example_state state;
        int n_fed = 0;
        double *kl = j->kl + (size_t)p->n_example * (size_t)j->n_value;
        RKV_TRY(get_finished(j, &state, kl, &n_fed, e));
        if (state == RKV_EXAMPLE_NEW) {
            RKV_TRY(run_example(j, &state, kl, &n_fed, e));
            RKV_TRY(rkv_resume_put(j->resume, j->at, state, kl, j->n_value, n_fed, e));
        }
        p->n_skipped_long += state == RKV_EXAMPLE_LONG;
        p->n_skipped_short += state == RKV_EXAMPLE_SHORT;
        if (state == RKV_EXAMPLE_USED) {
            p->n_example++;
            p->n_position += n_fed;
        }
        if (progress(j, "sweep", 1, 1))
            return rkv_fail(e, RKV_E_CANCELLED, "interrupted after example %d of %d", j->at + 1,
                            j->n_example);
    }
    if (!p->n_example)
        return rkv_fail(
            e, RKV_E_ARG,
            "%s: none of %d examples is usable: %d have answers under %d tokens (%s), %d "
            "prompts are longer than the context",
            j->data.path, j->n_example, p->n_skipped_short, MIN_RESPONSE,
            j->o->from_answers ? "the data's own"
                               : "the model's own greedy ones; --response answers "
                                 "takes the data's",
            p->n_skipped_long);
    return RKV_OK;
}

/* Mean and standard errors of one layer. Examples weigh the same whatever their length. */
static void summarize(const job *j, int l)
{
    const int n = j->profile->n_example, n_seed = j->o->n_seed, n_layer = j->profile->n_layer;
    double sum = 0.0, square = 0.0, within = 0.0;
    for (int x = 0; x < n; x++) {
        const double *kl = j->kl + (size_t)x * (size_t)j->n_value + l;
        double mean = 0.0, var = 0.0;
        for (int s = 0; s < n_seed; s++)
            mean += kl[(ptrdiff_t)s * n_layer] / n_seed;
        for (int s = 0; s < n_seed; s++)
            var += (kl[(ptrdiff_t)s * n_layer] - mean) * (kl[(ptrdiff_t)s * n_layer] - mean);
        within += n_seed > 1 ? var / (n_seed - 1) / n_seed : (double)NAN;
        sum += mean;
        square += mean * mean;
    }
    rkv_layer_signal *out = &j->profile->sensitivity[l];
    out->mean = sum / n;
    const double var = n > 1 ? fmax(0.0, (square - sum * sum / n) / (n - 1)) : (double)NAN;
    out->se_examples = sqrt(var / n);
    out->se_seeds = sqrt(within) / n;
    out->in_budget = 1;
}

static rkv_status open_resume(job *j, rkv_error *e)
{
    char signature[400];
    const rkv_model_info *i = rkv_model_get_info(j->m);
    if (!j->o->resume_dir)
        return RKV_OK;
    snprintf(signature, sizeof signature,
             "model %s, data %016llx, response %s %d, noise %.17g, seeds %d, "
             "context %d, tier %s, format %d",
             i->fingerprint, (unsigned long long)j->data.hash,
             j->o->from_answers ? "answers" : "greedy", j->o->n_response, j->o->noise, j->o->n_seed,
             j->o->n_ctx, i->tier, RKV_PROFILE_VERSION);
    return rkv_resume_open(&j->resume, j->o->resume_dir, signature, e);
}

/* The longest prompt that is used: its answer must fit into the context, too. */
static int longest_prompt(const job *j)
{
    const rkv_config *c = &j->m->config;
    const int n_ctx = j->o->n_ctx ? j->o->n_ctx : c->n_ctx_train;
    const int most = c->n_ctx_most - j->o->n_response;
    return most < 0 ? 0 : most < n_ctx ? most : n_ctx;
}

static rkv_status start(job *j, rkv_error *e)
{
    const rkv_profile_options *o = j->o;
    RKV_TRY(rkv_profile_create(&j->profile, rkv_model_get_info(j->m), e));
    j->profile->noise = o->noise;
    j->profile->n_seed = o->n_seed;
    j->profile->n_response = o->n_response;
    j->profile->from_answers = o->from_answers;
    j->profile->n_ctx = longest_prompt(j);
    j->profile->data_hash = j->data.hash;
    j->n_example =
        o->n_example_max && o->n_example_max < j->data.n_line ? o->n_example_max : j->data.n_line;
    j->n_value = o->n_seed * j->profile->n_layer;
    j->kl =
        rkv_mem_alloc(rkv_mem_product((size_t)j->n_example, (size_t)j->n_value * sizeof *j->kl));
    if (!j->kl)
        return rkv_fail(e, RKV_E_MEM, "profile: out of memory for %d examples", j->n_example);
    return open_resume(j, e);
}

rkv_status rkv_profile_run(rkv_profile **out, const rkv_model *m, const char *jsonl_path,
                           const rkv_profile_options *options, rkv_error *e)
{
    const rkv_profile_options def = rkv_profile_options_default();
    job j = {.m = m, .o = options ? options : &def};
    RKV_TRY(check(j.o, e));
    if (!m->arch)
        return rkv_fail(e, RKV_E_ARG, "profile: a model loaded for its tokenizer only");
    /* A longer answer would push prompt tokens out of sliding layers before the sweep needs them.
     */
    if (rkv_model_get_info(m)->n_layer_sliding && !j.o->from_answers &&
        j.o->n_response > RKV_SLIDING_ROOM)
        return rkv_fail(e, RKV_E_ARG,
                        "profile: %d response tokens, at most %d of the model's own answer with "
                        "sliding-window layers",
                        j.o->n_response, RKV_SLIDING_ROOM);
    RKV_TRY(rkv_data_load(&j.data, jsonl_path, e));
    rkv_status s = start(&j, e);
    if (!s)
        s = run_all(&j, e);
    for (int l = 0; !s && l < j.profile->n_layer; l++)
        if (!m->layer[l].sliding)
            summarize(&j, l);
    rkv_resume_close(j.resume);
    rkv_data_free(&j.data);
    rkv_mem_free(j.kl);
    if (s) {
        rkv_profile_free(j.profile);
        return s;
    }
    *out = j.profile;
    return RKV_OK;
}

/* One prompt, prefilled once; a copy of it compressed for each policy; from each copy the answer to
 * every question, several copies decoding together, and the divergence from the full cache over
 * that one's own answer. */
#include "config.h"
#include "eval/measure.h"

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "policy/policy.h"

enum { TOGETHER = 8 };          /* copies that decode at a time */

typedef struct job {
    const rkv_model *m;
    const rkv_eval_options *o;
    const rkv_sample *x;        /* [n] */
    const rkv_eval_prompt *p;
    rkv_eval_row *row;          /* [n][1 + n_policy] */
    int n, n_column, n_vocab;
    rkv_session **base;         /* [n_column] after the prompt, compressed; NULL: refused */
    int32_t newline;            /* last id of "\n"; -1: none */
    int32_t *ids[TOGETHER];     /* answers */
    int n_id[TOGETHER];
    int32_t *fed;               /* question and answer of the full cache */
    int n_fed, first;           /* rows from first on are compared */
    float *reference;           /* their logits */
    const double *place;
    double done;                /* share of this work, 0 to 1 */
    double span;                /* share that the call at hand stands for */
} job;

static int tell(const job *j, double share)
{
    const rkv_eval_options *o = j->o;
    const double at = j->place[0] + j->place[1] * share;
    return o->progress && o->progress(o->progress_ctx, "eval", (int64_t)at, (int64_t)j->place[2]);
}

/* Progress of a session in the middle of a call. */
static int on_progress(void *ctx, const char *phase, int64_t done, int64_t total)
{
    const job *j = ctx;
    (void)phase;
    return tell(j, j->done + j->span * (total > 0 ? (double)done / (double)total : 0.0));
}

static rkv_status cancelled(rkv_error *e)
{
    return rkv_fail(e, RKV_E_CANCELLED, "eval: interrupted");
}

void rkv_eval_row_free(rkv_eval_row *r)
{
    rkv_mem_free(r->answer);
    rkv_mem_free(r->layers);
    rkv_mem_free(r->why);
    *r = (rkv_eval_row){0};
}

/* ---- the prompt ---- */

static int longest_tail(const job *j)
{
    int most = 0;
    for (int i = 0; i < j->n; i++) {
        const int n = (int)j->p[i].n_question + j->x[i].max_gen;
        most = n > most ? n : most;
    }
    return most;
}

static rkv_status prefill(job *j, rkv_error *e)
{
    rkv_session_options so = rkv_session_options_default();
    so.n_ctx = (int)j->p->n + longest_tail(j);
    so.n_thread = j->o->n_thread;
    so.n_chunk = j->o->n_chunk;
    so.k_type = j->o->k_type;
    so.v_type = j->o->v_type;
    so.progress = on_progress;
    so.progress_ctx = j;
    for (int i = 0; i < j->o->n_policy; i++)
        so.observe |= rkv_policy_observes(&j->o->policy[i].policy);
    if (j->o->n_policy) {       /* all of them have the same settings, as of windows */
        so.policy = j->o->policy[0].policy;
        so.policy.selector = "full";
        so.policy.allocator = "uniform";
        so.policy.budget_kind = RKV_BUDGET_NONE;
        so.policy.profile = NULL;
    }
    RKV_TRY(rkv_session_create(&j->base[0], j->m, &so, e));
    j->span = 0.5;
    RKV_TRY(rkv_session_prefill(j->base[0], j->p->ids, j->p->n, e));
    j->done = 0.5;
    return RKV_OK;
}

static int is_column_missing(const job *j, int c)
{
    for (int i = 0; i < j->n; i++)
        if (j->row[i * j->n_column + c].state == RKV_EVAL_MISSING)
            return 1;
    return 0;
}

static rkv_status refuse(job *j, int c, const char *why, rkv_error *e)
{
    for (int i = 0; i < j->n; i++) {
        rkv_eval_row *r = &j->row[i * j->n_column + c];
        if (r->state != RKV_EVAL_MISSING)
            continue;
        r->why = rkv_mem_strdup(why);
        if (!r->why)
            return rkv_fail(e, RKV_E_MEM, "eval: out of memory");
        r->state = RKV_EVAL_REFUSED;
        r->score = r->kl = (double)NAN;
        r->n_prompt = (int)j->p->n;
    }
    return RKV_OK;
}

/* A copy for each policy. What a policy cannot do with this prompt is a result, too. */
static rkv_status compress_column(job *j, int c, rkv_scores *scores, rkv_error *e)
{
    rkv_error why = {0};
    RKV_TRY(rkv_session_fork(&j->base[c], j->base[0], e));
    const rkv_status s =
        rkv_session_compress_with(j->base[c], &j->o->policy[c - 1].policy, scores, &why);
    if (!s)
        return RKV_OK;
    rkv_session_free(j->base[c]);
    j->base[c] = NULL;
    if (s == RKV_E_ARG)
        return refuse(j, c, why.text, e);
    if (e)
        *e = why;
    return s;
}

/* Policies that score alike come one after the other, whatever their place. */
static rkv_status compress_columns(job *j, rkv_scores *scores, rkv_error *e)
{
    const rkv_eval_policy *p = j->o->policy;
    for (int c = 1; c < j->n_column; c++)
        for (int k = c; k < j->n_column; k++)
            if (!j->base[k] && is_column_missing(j, k) &&
                rkv_policy_scores_alike(&p[c - 1].policy, &p[k - 1].policy))
                RKV_TRY(compress_column(j, k, scores, e));
    return RKV_OK;
}

static rkv_status compress(job *j, rkv_error *e)
{
    rkv_scores *scores;
    RKV_TRY(rkv_scores_create(&scores, e));
    const rkv_status status = compress_columns(j, scores, e);
    rkv_scores_free(scores);
    return status;
}

/* ---- the answer ---- */

static int is_end(const job *j, const rkv_sample *x, int32_t id)
{
    return rkv_token_is_end(j->m, id) || (x->task->flags & RKV_TASK_STOP && id == j->newline);
}

/* The likeliest id, the lower of equal ones; of a task that stops at a newline the first id may not
 * be an end, as the official runner has it. -1: the logits are no distribution. */
static int32_t likeliest(const job *j, const rkv_sample *x, const float *logits, int first)
{
    const int no_end = first && x->task->flags & RKV_TASK_STOP;
    int32_t best = -1;
    for (int32_t i = 0; i < j->n_vocab; i++) {
        if (isnan(logits[i]))
            return -1;
        if ((best < 0 || logits[i] > logits[best]) && !(no_end && is_end(j, x, i)))
            best = i;
    }
    return best >= 0 && isfinite(logits[best]) ? best : -1;
}

/* Greedy answers of up to TOGETHER sessions after the same text. */
static rkv_status answer(job *j, const rkv_sample *x, rkv_session *const *s, int n, rkv_error *e)
{
    rkv_session *active[TOGETHER];
    int32_t next[TOGETHER];
    memset(j->n_id, 0, sizeof j->n_id);
    for (int step = 0; step < x->max_gen; step++) {
        size_t n_active = 0;
        for (int i = 0; i < n; i++) {
            if (j->n_id[i] < step)              /* it has ended */
                continue;
            const int32_t id = likeliest(j, x, rkv_session_logits(s[i]), !step);
            if (id < 0)
                return rkv_fail(e, RKV_E_UNSUPPORTED, "%s: the model's logits are not finite",
                                rkv_model_get_info(j->m)->path);
            if (is_end(j, x, id))
                continue;
            j->ids[i][j->n_id[i]++] = id;
            active[n_active] = s[i];
            next[n_active++] = id;
        }
        if (!n_active)
            break;
        if (tell(j, j->done))
            return cancelled(e);
        if (step + 1 < x->max_gen)
            RKV_TRY(rkv_sessions_decode(active, next, n_active, e));
    }
    return RKV_OK;
}

/* Copies of the bases after the question. */
static rkv_status ask(job *j, const rkv_eval_prompt *p, rkv_session **s, const int *column, int n,
                      rkv_error *e)
{
    for (int i = 0; i < n; i++) {
        RKV_TRY(rkv_session_fork(&s[i], j->base[column[i]], e));
        if (p->n_question)
            RKV_TRY(rkv_session_prefill(s[i], p->question, p->n_question, e));
    }
    return RKV_OK;
}

/* ---- divergence ---- */

/* Of row i of the fed text. */
static float *reference_row(const job *j, int64_t i)
{
    return j->reference + (size_t)(i - j->first) * (size_t)j->n_vocab;
}

static int keep_rows(void *ctx, int64_t i0, int n_row, const float *logits)
{
    job *j = ctx;
    memcpy(reference_row(j, i0), logits,
           (size_t)n_row * (size_t)j->n_vocab * sizeof *logits);
    return tell(j, j->done);
}

/* Of one column. */
typedef struct divergence {
    const job *j;
    double sum;
} divergence;

static int compare_rows(void *ctx, int64_t i0, int n_row, const float *logits)
{
    divergence *d = ctx;
    const job *j = d->j;
    for (int i = 0; i < n_row; i++)
        d->sum += rkv_logits_kl(reference_row(j, i0 + i),
                                logits + (size_t)i * (size_t)j->n_vocab, j->n_vocab);
    return tell(j, j->done);
}

/* Feeds question and answer to copies of n columns, fn with ctx[i] for each; it sees the rows from
 * the question's last on, or those of the answer where there is no question. */
static rkv_status feed(job *j, const int *column, int n, rkv_logits_fn *fn, void *const *ctx,
                       rkv_error *e)
{
    rkv_session *s[TOGETHER] = {0};
    rkv_status status = RKV_OK;
    if (!j->n_fed)
        return RKV_OK;
    for (int i = 0; !status && i < n; i++)
        status = rkv_session_fork(&s[i], j->base[column[i]], e);
    if (!status)
        status = rkv_sessions_score(s, (size_t)n, j->fed, (size_t)j->n_fed, (size_t)j->first, fn,
                                    ctx, e);
    for (int i = 0; i < n; i++)
        rkv_session_free(s[i]);
    return status;
}

static rkv_status make_reference(job *j, const rkv_eval_prompt *p, rkv_error *e)
{
    const int n_answer = j->n_id[0] < j->o->response ? j->n_id[0] : j->o->response;
    j->n_fed = (int)p->n_question + n_answer;
    j->first = p->n_question ? (int)p->n_question - 1 : 0;
    rkv_mem_free(j->fed);
    rkv_mem_free(j->reference);
    const size_t rows = (size_t)(j->n_fed - j->first);
    j->fed = rkv_mem_alloc((size_t)j->n_fed * sizeof *j->fed);
    j->reference = rkv_mem_alloc(rkv_mem_product(rows, (size_t)j->n_vocab * sizeof(float)));
    if (!j->fed || !j->reference)
        return rkv_fail(e, RKV_E_MEM, "eval: out of memory for the logits of %zu positions", rows);
    if (p->n_question)
        memcpy(j->fed, p->question, p->n_question * sizeof *j->fed);
    if (n_answer)
        memcpy(j->fed + p->n_question, j->ids[0], (size_t)n_answer * sizeof *j->fed);
    return feed(j, &(int){0}, 1, keep_rows, &(void *){j}, e);
}

static rkv_status measure_kl(double *kl, job *j, const int *column, int n, rkv_error *e)
{
    const int rows = j->n_fed - j->first;
    divergence d[TOGETHER];
    void *ctx[TOGETHER];
    for (int i = 0; i < n; i++) {
        d[i] = (divergence){j, 0.0};
        ctx[i] = &d[i];
    }
    RKV_TRY(feed(j, column, n, compare_rows, ctx, e));
    for (int i = 0; i < n; i++)
        kl[i] = rows ? d[i].sum / rows : (double)NAN;
    return RKV_OK;
}

/* ---- rows ---- */

static rkv_status write_layers(rkv_eval_row *r, const rkv_session *s, const rkv_model_info *info,
                               rkv_error *e)
{
    rkv_text t = {0};
    rkv_text_add(&t, "[", 1);
    for (int l = 0; l < info->n_layer; l++) {
        const int32_t *pos;
        double kept = 0.0;
        for (int h = 0; h < info->n_kv_head; h++)
            kept += rkv_session_kept(s, l, h, &pos);
        rkv_text_printf(&t, "%s%.10g", l ? "," : "", kept / info->n_kv_head);
    }
    rkv_text_add(&t, "]", 1);
    return rkv_text_take(&t, &r->layers, NULL) ? RKV_OK : rkv_fail(e, RKV_E_MEM, "out of memory");
}

static rkv_status score(rkv_eval_row *r, const rkv_sample *x, rkv_error *e)
{
    rkv_error why = {0};
    r->score = (double)NAN;
    if (!x->reference.n_answer)
        return RKV_OK;
    const rkv_status s = rkv_task_score(&r->score, x->task, r->answer, &x->reference, &why);
    if (s && s != RKV_E_UNSUPPORTED) {
        if (e)
            *e = why;
        return s;
    }
    r->why = s ? rkv_mem_strdup(why.text) : NULL;
    return !s || r->why ? RKV_OK : rkv_fail(e, RKV_E_MEM, "eval: out of memory");
}

/* Row of column c from the i-th answer. */
static rkv_status fill_row(rkv_eval_row *out, job *j, int at, int c, int i, double kl,
                           rkv_error *e)
{
    const rkv_kv_info kv = rkv_session_kv_info(j->base[c]);
    char *text = NULL;
    size_t n;
    rkv_eval_row r = {.kept = kv.n_kept, .bytes = kv.bytes, .bytes_full = kv.bytes_full,
                      .n_prompt = (int)j->p->n, .n_question = (int)j->p[at].n_question,
                      .n_answer = j->n_id[i], .kl = kl,
                      .untouched = c && kv.bytes == kv.bytes_full};
    RKV_TRY(rkv_detokenize(j->m, j->ids[i], (size_t)j->n_id[i], 0, &text, &n, e));
    r.answer = rkv_utf8_clean(text, n);
    rkv_mem_free(text);
    rkv_status s = r.answer ? RKV_OK : rkv_fail(e, RKV_E_MEM, "eval: out of memory");
    if (!s)
        s = write_layers(&r, j->base[c], rkv_model_get_info(j->m), e);
    if (!s)
        s = score(&r, &j->x[at], e);
    if (s) {
        rkv_eval_row_free(&r);
        return s;
    }
    r.state = RKV_EVAL_DONE;
    *out = r;
    return RKV_OK;
}

static rkv_status answer_columns(job *j, int at, const int *column, int n, rkv_error *e)
{
    rkv_session *s[TOGETHER] = {0};
    double kl[TOGETHER] = {0.0};
    rkv_status status = ask(j, &j->p[at], s, column, n, e);
    if (!status)
        status = answer(j, &j->x[at], s, n, e);
    for (int i = 0; i < n; i++)
        rkv_session_free(s[i]);
    if (!status && column[0] == 0)
        status = make_reference(j, &j->p[at], e);
    else if (!status)
        status = measure_kl(kl, j, column, n, e);
    for (int i = 0; !status && i < n; i++) {
        rkv_eval_row *r = &j->row[at * j->n_column + column[i]];
        if (r->state == RKV_EVAL_MISSING)
            status = fill_row(r, j, at, column[i], i, kl[i], e);
    }
    return status;
}

/* All answers to one question: the full cache's first, which the others are compared with. */
static rkv_status measure_question(job *j, int at, rkv_error *e)
{
    const double share = 0.5 / j->n;
    int column[TOGETHER] = {0}, n = 0;
    j->span = 0.0;
    RKV_TRY(answer_columns(j, at, column, 1, e));
    const double before = j->done;
    for (int c = 1; c < j->n_column; c++) {
        if (j->base[c] && j->row[at * j->n_column + c].state == RKV_EVAL_MISSING)
            column[n++] = c;
        if (n && (n == TOGETHER || c == j->n_column - 1)) {
            RKV_TRY(answer_columns(j, at, column, n, e));
            j->done = before + share * c / j->n_column;
            n = 0;
        }
    }
    j->done = before + share;
    return RKV_OK;
}

static rkv_status find_newline(job *j, rkv_error *e)
{
    int32_t *ids = NULL;
    size_t n;
    RKV_TRY(rkv_tokenize(j->m, "\n", 1, 0, &ids, &n, e));
    j->newline = n ? ids[n - 1] : -1;
    rkv_mem_free(ids);
    return RKV_OK;
}

static rkv_status start(job *j, rkv_error *e)
{
    j->base = rkv_mem_calloc((size_t)j->n_column, sizeof(rkv_session *));
    int most = 0, room = j->base != NULL;
    for (int i = 0; i < j->n; i++)
        most = j->x[i].max_gen > most ? j->x[i].max_gen : most;
    for (int i = 0; i < TOGETHER; i++) {
        j->ids[i] = rkv_mem_alloc((size_t)most * sizeof(int32_t));
        room = room && j->ids[i];
    }
    return room ? find_newline(j, e) : rkv_fail(e, RKV_E_MEM, "eval: out of memory");
}

rkv_status rkv_eval_measure(rkv_eval_row *row, const rkv_sample *x, const rkv_eval_prompt *p, int n,
                            const rkv_model *m, const rkv_eval_options *o, const double place[3],
                            rkv_error *e)
{
    job j = {.m = m, .o = o, .x = x, .p = p, .row = row, .n = n, .n_column = 1 + o->n_policy,
             .n_vocab = rkv_model_get_info(m)->n_vocab, .place = place};
    rkv_status s = start(&j, e);
    if (!s)
        s = prefill(&j, e);
    if (!s)
        s = compress(&j, e);
    for (int i = 0; !s && i < n; i++)
        s = measure_question(&j, i, e);
    for (int c = 0; j.base && c < j.n_column; c++)
        rkv_session_free(j.base[c]);
    rkv_mem_free(j.base);
    for (int i = 0; i < TOGETHER; i++)
        rkv_mem_free(j.ids[i]);
    rkv_mem_free(j.fed);
    rkv_mem_free(j.reference);
    return s;
}

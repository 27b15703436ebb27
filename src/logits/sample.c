/* Choosing the next token, and comparing distributions. */
#include "config.h"
#include "rkv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "noise.h"

typedef struct candidate {
    float logit;
    int32_t id;
} candidate;

struct rkv_sampler {
    rkv_sampler_options o;
    int n_vocab;
    uint64_t drawn;             /* uniform numbers taken from the stream of the seed */
    int32_t *recent;            /* ring of the last repeat_last ids */
    int n_recent, next_recent;
    candidate *list;            /* [n_vocab] */
};

rkv_sampler_options rkv_sampler_options_default(void)
{
    return (rkv_sampler_options){.top_p = 1.0f, .repeat_penalty = 1.0f, .repeat_last = 64};
}

static rkv_status check(const rkv_sampler_options *o, rkv_error *e)
{
    if (!(o->temperature >= 0.0f && o->temperature <= 100.0f))
        return rkv_fail(e, RKV_E_ARG, "temperature is %g, expected 0 to 100",
                        (double)o->temperature);
    if (o->top_k < 0)
        return rkv_fail(e, RKV_E_ARG, "top-k is %d, expected 0 (off) or more", o->top_k);
    if (!(o->top_p > 0.0f && o->top_p <= 1.0f))
        return rkv_fail(e, RKV_E_ARG, "top-p is %g, expected more than 0 and at most 1",
                        (double)o->top_p);
    if (!(o->min_p >= 0.0f && o->min_p <= 1.0f))
        return rkv_fail(e, RKV_E_ARG, "min-p is %g, expected 0 to 1", (double)o->min_p);
    if (!(o->repeat_penalty > 0.0f && o->repeat_penalty <= 100.0f))
        return rkv_fail(e, RKV_E_ARG, "repeat penalty is %g, expected more than 0 and at most 100",
                        (double)o->repeat_penalty);
    if (o->repeat_last < 0 || o->repeat_last > 4096)
        return rkv_fail(e, RKV_E_ARG, "repeat-last-n is %d, expected 0 to 4096", o->repeat_last);
    return RKV_OK;
}

rkv_status rkv_sampler_create(rkv_sampler **out, int n_vocab, const rkv_sampler_options *o,
                              rkv_error *e)
{
    const rkv_sampler_options def = rkv_sampler_options_default();
    if (n_vocab < 1)
        return rkv_fail(e, RKV_E_ARG, "sampler: a vocabulary of %d tokens, expected at least 1",
                        n_vocab);
    RKV_TRY(check(o ? o : &def, e));
    rkv_sampler *s = rkv_mem_calloc(1, sizeof *s);
    if (s) {
        s->o = o ? *o : def;
        s->n_vocab = n_vocab;
        s->list = rkv_mem_alloc((size_t)n_vocab * sizeof *s->list);
        s->recent = rkv_mem_alloc((size_t)s->o.repeat_last * sizeof *s->recent);
    }
    if (!s || !s->list || !s->recent) {
        rkv_sampler_free(s);
        return rkv_fail(e, RKV_E_MEM, "sampler: out of memory for %d tokens", n_vocab);
    }
    *out = s;
    return RKV_OK;
}

void rkv_sampler_free(rkv_sampler *s)
{
    if (!s)
        return;
    rkv_mem_free(s->list);
    rkv_mem_free(s->recent);
    rkv_mem_free(s);
}

static void penalize(rkv_sampler *s)
{
    if (s->o.repeat_penalty == 1.0f)
        return;
    for (int i = 0; i < s->n_recent; i++) {
        int again = 0;                          /* once per id, however often it occurred */
        for (int j = 0; j < i && !again; j++)
            again = s->recent[j] == s->recent[i];
        if (again)
            continue;
        candidate *c = &s->list[s->recent[i]];
        c->logit =
            c->logit > 0.0f ? c->logit / s->o.repeat_penalty : c->logit * s->o.repeat_penalty;
    }
}

static int greedy(const candidate *c, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (c[i].logit > c[best].logit)
            best = i;
    return best;
}

/* Largest logit first, equal ones by id: a total order, so that the result does not hang on the
 * sort. */
static int by_logit(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

/* Sorted candidates that top-k, top-p and min-p leave; their weights (unnormalised) into c[].logit.
 */
static int truncate_list(const rkv_sampler *s, candidate *c, int n, double *total)
{
    const double top = (double)c[0].logit, t = (double)s->o.temperature;
    double all = 0.0, sum = 0.0;
    int kept = s->o.top_k && s->o.top_k < n ? s->o.top_k : n;
    for (int i = 0; i < kept; i++)
        all += exp(((double)c[i].logit - top) / t);
    for (int i = 0; i < kept; i++) {
        const double w = exp(((double)c[i].logit - top) / t);
        if (i > 0 && (sum >= (double)s->o.top_p * all || w < (double)s->o.min_p)) {
            kept = i;
            break;
        }
        sum += w;
        c[i].logit = (float)w;
    }
    *total = 0.0;
    for (int i = 0; i < kept; i++)
        *total += (double)c[i].logit;
    return kept;
}

static int draw(rkv_sampler *s)
{
    double total;
    qsort(s->list, (size_t)s->n_vocab, sizeof *s->list, by_logit);
    const int n = truncate_list(s, s->list, s->n_vocab, &total);
    double left = rkv_noise_uniform(rkv_hash_mix(s->o.seed), s->drawn++) * total;
    for (int i = 0; i < n; i++)
        if ((left -= (double)s->list[i].logit) <= 0.0)
            return i;
    return n - 1;
}

/* Something can be chosen: no NaN, which compares false with all, no +inf, and not only -inf. */
static int is_distribution(const candidate *c, int n)
{
    int bad = 0, some = 0;
    for (int i = 0; i < n; i++) {
        bad |= !(c[i].logit < INFINITY);
        some |= c[i].logit > -INFINITY;
    }
    return some && !bad;
}

int32_t rkv_sampler_next(rkv_sampler *s, const float *logits)
{
    for (int i = 0; i < s->n_vocab; i++)
        s->list[i] = (candidate){logits[i], i};
    penalize(s);
    if (!is_distribution(s->list, s->n_vocab))
        return -1;
    const int32_t id = s->list[s->o.temperature > 0.0f ? draw(s) : greedy(s->list, s->n_vocab)].id;
    if (s->o.repeat_last) {
        s->recent[s->next_recent] = id;
        s->next_recent = (s->next_recent + 1) % s->o.repeat_last;
        s->n_recent += s->n_recent < s->o.repeat_last;
    }
    return id;
}

double rkv_logits_lse(const float *logits, int n)
{
    double top = -INFINITY, sum = 0.0;
    for (int i = 0; i < n; i++)
        top = (double)logits[i] > top ? (double)logits[i] : top;
    if (isinf(top))
        return top;
    for (int i = 0; i < n; i++)
        sum += exp((double)logits[i] - top);
    return top + log(sum);
}

double rkv_logits_kl(const float *p, const float *q, int n)
{
    const double lse_p = rkv_logits_lse(p, n), lse_q = rkv_logits_lse(q, n);
    double kl = 0.0;
    for (int i = 0; i < n; i++) {
        const double log_p = (double)p[i] - lse_p, weight = exp(log_p);
        if (weight != 0.0)                      /* 0 log 0 is 0, but -inf as a factor is not */
            kl += weight * (log_p - ((double)q[i] - lse_q));
    }
    return kl < 0.0 ? 0.0 : kl;                 /* rounding can leave a hair below */
}

/* rkv score: log-probabilities of given tokens, and the cost of a policy in nats. */
#include "config.h"
#include "common.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct score {
    const opts *o;
    rkv_model *m;
    rkv_session *full, *small;  /* small: the compressed one; NULL without a policy */
    int32_t *ids;
    size_t n, prefix;
    int n_vocab;
    size_t base;                /* index of row 0 of the piece at hand */
    float *kept;                /* full-cache logits of a piece, to compare with */
    cJSON *positions;
    int32_t *best;              /* [top] */
    FILE *logits;               /* --logits: the rows in order; NULL: not asked for */
    double kl_sum;
    size_t n_kl;
} score;

/* Whether id a comes after id b: smaller logit, or the same and a larger id. */
static int is_after(const float *logits, int32_t a, int32_t b)
{
    return logits[a] < logits[b] || (logits[a] == logits[b] && a > b);
}

/* Sinks heap[at] in a heap of n whose root comes last of all. */
static void sink(int32_t *heap, int n, int at, const float *logits)
{
    const int32_t id = heap[at];
    for (int child = 2 * at + 1; child < n; at = child, child = 2 * at + 1) {
        child += child + 1 < n && is_after(logits, heap[child + 1], heap[child]);
        if (!is_after(logits, heap[child], id))
            break;
        heap[at] = heap[child];
    }
    heap[at] = id;
}

/* The k largest logits, largest first, equal ones by id: a heap of the best so far, then sorted.
 * Returns how many. O(n log k). */
static int pick_top(int32_t *best, int k, const float *logits, int n)
{
    k = k < n ? k : n;
    for (int i = 0; i < k; i++)
        best[i] = i;
    for (int at = k / 2; at-- > 0;)
        sink(best, k, at, logits);
    for (int i = k; i < n; i++)
        if (is_after(logits, best[0], i)) {
            best[0] = i;
            sink(best, k, 0, logits);
        }
    for (int last = k - 1; last > 0; last--) {
        const int32_t id = best[0];
        best[0] = best[last];
        best[last] = id;
        sink(best, last, 0, logits);
    }
    return k;
}

/* Header of a .npy file, format version 1.0 (NumPy Enhancement Proposal 1), padded to 64 bytes. */
static int open_logits(score *s)
{
    char shape[100], head[128];
    if (!s->o->logits)
        return 0;
    s->logits = fopen(s->o->logits, "wb");
    if (!s->logits) {
        fprintf(stderr, "rkv: %s: %s\n", s->o->logits, strerror(errno));
        return EXIT_FAILED;
    }
    snprintf(shape, sizeof shape, "{'descr': '<f4', 'fortran_order': False, 'shape': (%zu, %d), }",
             s->n, s->n_vocab);
    memcpy(head, "\x93NUMPY\x01\x00\x76\x00", 10);     /* 118 bytes follow */
    memset(head + 10, ' ', sizeof head - 10);
    memcpy(head + 10, shape, strlen(shape));
    head[sizeof head - 1] = '\n';
    fwrite(head, 1, sizeof head, s->logits);
    return 0;
}

/* A file that is not whole does not stay. Returns code, or what the close adds to success. */
static int close_logits(score *s, int code)
{
    struct stat st;
    if (!s->logits)
        return code;
    const int bad = ferror(s->logits);
    if ((fclose(s->logits) || bad) && !code) {
        fprintf(stderr, "rkv: %s: cannot write: %s\n", s->o->logits, strerror(errno));
        code = EXIT_FAILED;
    }
    if (code && !stat(s->o->logits, &st) && S_ISREG(st.st_mode))
        unlink(s->o->logits);
    return code;
}

static cJSON *describe(score *s, size_t i, const float *logits)
{
    if (s->logits)
        fwrite(logits, sizeof *logits, (size_t)s->n_vocab, s->logits);
    cJSON *p = cJSON_CreateObject();
    const double lse = rkv_logits_lse(logits, s->n_vocab);
    if (i + 1 < s->n) {
        cJSON_AddNumberToObject(p, "id", s->ids[i + 1]);
        cJSON_AddNumberToObject(p, "logprob", (double)logits[s->ids[i + 1]] - lse);
    } else {
        cJSON_AddNullToObject(p, "id");
        cJSON_AddNullToObject(p, "logprob");
    }
    cJSON_AddNumberToObject(p, "lse", lse);
    cJSON *top = cJSON_AddArrayToObject(p, "top");
    const int n = s->o->top ? pick_top(s->best, s->o->top, logits, s->n_vocab) : 0;
    for (int k = 0; k < n; k++) {
        cJSON *t = cJSON_CreateObject();
        cJSON_AddNumberToObject(t, "id", s->best[k]);
        cJSON_AddNumberToObject(t, "logprob", (double)logits[s->best[k]] - lse);
        cJSON_AddItemToArray(top, t);
    }
    cJSON_AddItemToArray(s->positions, p);
    return p;
}

static int on_rows(void *ctx, int64_t i0, int n_row, const float *logits)
{
    score *s = ctx;
    for (int i = 0; i < n_row; i++)
        describe(s, s->base + (size_t)i0 + (size_t)i, logits + (size_t)i * (size_t)s->n_vocab);
    return interrupted();
}

static int keep_rows(void *ctx, int64_t i0, int n_row, const float *logits)
{
    score *s = ctx;
    memcpy(s->kept + (size_t)i0 * (size_t)s->n_vocab, logits,
           (size_t)n_row * (size_t)s->n_vocab * sizeof *logits);
    return interrupted();
}

static int compare_rows(void *ctx, int64_t i0, int n_row, const float *logits)
{
    score *s = ctx;
    for (int i = 0; i < n_row; i++) {
        const size_t row = ((size_t)i0 + (size_t)i) * (size_t)s->n_vocab;
        cJSON *p =
            describe(s, s->base + (size_t)i0 + (size_t)i, logits + (size_t)i * (size_t)s->n_vocab);
        const double kl =
            rkv_logits_kl(s->kept + row, logits + (size_t)i * (size_t)s->n_vocab, s->n_vocab);
        cJSON_AddNumberToObject(p, "kl", kl);
        s->kl_sum += kl;
        s->n_kl++;
    }
    return interrupted();
}

/* Prompt once; a copy is compressed; then both take the remaining ids, piece by piece. */
static int run_compared(score *s, const rkv_policy *p)
{
    rkv_error e;
    const size_t most_bytes = (size_t)256 << 20, row = (size_t)s->n_vocab * sizeof(float);
    const size_t piece = most_bytes / row ? most_bytes / row : 1;
    if (rkv_session_score(s->full, s->ids, s->prefix, 0, on_rows, s, &e) ||
        rkv_session_fork(&s->small, s->full, &e) || rkv_session_compress(s->small, p, &e))
        return fail(&e);
    s->kept = malloc(piece * row);
    if (!s->kept)
        return no_memory("score: full-cache logits");
    for (s->base = s->prefix; s->base < s->n; s->base += piece) {
        const size_t n = s->n - s->base < piece ? s->n - s->base : piece;
        if (rkv_session_score(s->full, s->ids + s->base, n, 0, keep_rows, s, &e) ||
            rkv_session_score(s->small, s->ids + s->base, n, 0, compare_rows, s, &e))
            return fail(&e);
    }
    return 0;
}

static int run(score *s, const rkv_policy *p)
{
    rkv_error e;
    rkv_session_options so = session_options(s->o, p);
    const int active = p->budget_kind != RKV_BUDGET_NONE;
    s->n_vocab = rkv_model_get_info(s->m)->n_vocab;
    s->prefix = s->o->prefix ? (size_t)s->o->prefix : s->n;
    if (s->prefix > s->n)
        return usage("score: --prefix %zu is more than the %zu ids", s->prefix, s->n);
    if (active && !s->o->prefix)
        return usage("score: a policy needs --prefix N: the ids that make up its prompt");
    if (!so.n_ctx)
        so.n_ctx = (int)s->n;
    so.observe = rkv_policy_observes(p);
    so.policy.budget_kind = RKV_BUDGET_NONE;    /* the prompt is compressed in a copy */
    const int k = s->o->top < s->n_vocab ? s->o->top : s->n_vocab;
    s->best = malloc(((size_t)k + 1) * sizeof *s->best);
    s->positions = cJSON_CreateArray();
    if (!s->best || !s->positions)
        return no_memory("score");
    const int bad = open_logits(s);
    if (bad)
        return bad;
    catch_signals();
    if (rkv_session_create(&s->full, s->m, &so, &e))
        return fail(&e);
    if (active)
        return run_compared(s, p);
    return rkv_session_score(s->full, s->ids, s->n, 0, on_rows, s, &e) ? fail(&e) : 0;
}

static int print(score *s)
{
    cJSON *root = cJSON_CreateObject();
    cJSON_AddItemToObject(root, "positions", s->positions);
    s->positions = NULL;
    if (s->small) {
        const rkv_kv_info kv = rkv_session_kv_info(s->small);
        cJSON_AddNumberToObject(root, "prefix", (double)s->prefix);
        cJSON_AddNumberToObject(root, "mean_kl", s->n_kl ? s->kl_sum / (double)s->n_kl : NAN);
        cJSON_AddNumberToObject(root, "kv_bytes", (double)kv.bytes);
        cJSON_AddNumberToObject(root, "kv_bytes_full", (double)kv.bytes_full);
    }
    return json_print(root);
}

int cmd_score(const opts *o)
{
    score s = {.o = o};
    rkv_policy policy;
    rkv_profile *profile = NULL;
    if (!o->ids)
        return usage("score: name the token ids with --ids FILE");
    int code = check_outputs(o);
    if (!code)
        code = read_policy(&policy, &profile, o);
    if (!code)
        code = read_ids(&s.ids, &s.n, o->ids);
    if (!code)
        code = load_model(&s.m, o);
    if (!code)
        code = check_ids(s.ids, s.n, o->ids, s.m);
    if (!code)
        code = run(&s, &policy);
    end_progress();
    code = close_logits(&s, code);
    if (!code)
        code = print(&s);
    cJSON_Delete(s.positions);
    rkv_session_free(s.full);
    rkv_session_free(s.small);
    rkv_model_free(s.m);
    rkv_profile_free(profile);
    free(s.kept);
    free(s.best);
    free(s.ids);
    return code;
}

/* The one-pass sweep against the slow way: perturb one layer's Values in the cache, run everything
 * above it again, compare the distributions. */
#include "config.h"
#include "made.h"

#include <math.h>

#include "base/mem.h"
#include "base/noise.h"
#include "profile/sweep.h"

enum { N = 150, T = 12, SEEDS = 2 };
static const double noise = 0.5;

typedef struct rows {
    float *logits;              /* [T][n_vocab] */
    int n_vocab;
} rows;

static int collect(void *ctx, int64_t i0, int n_row, const float *logits)
{
    const rows *r = ctx;
    memcpy(r->logits + (size_t)i0 * (size_t)r->n_vocab, logits,
           (size_t)n_row * (size_t)r->n_vocab * sizeof *logits);
    return 0;
}

static void must(rkv_status s, const rkv_error *e)
{
    if (s) {
        fprintf(stderr, "unexpected: %s\n", e->text);
        exit(1);
    }
}

/* Overwrites the Values of one layer by what METHOD section 7 prescribes, in the order of its
 * formula. */
static void perturb(rkv_session *s, int example, int seed, int l)
{
    const uint64_t key = rkv_noise_key((uint64_t)example, (uint64_t)seed, (uint64_t)l);
    const int d = s->kv->d_head;
    for (int h = 0; h < s->kv->n_kv_head; h++)
        for (int t = 0; t < N; t++) {
            float *v = (float *)rkv_kv_at(s->kv, l, h)->v + (ptrdiff_t)t * d;
            double square = 0.0;
            for (int i = 0; i < d; i++)
                square += (double)v[i] * (double)v[i];
            for (int i = 0; i < d; i++) {
                double eps;
                rkv_noise_normal(&eps, key,
                                 ((uint64_t)h * N + (uint64_t)t) * (uint64_t)d + (uint64_t)i, 1);
                v[i] = (float)((double)v[i] + noise * sqrt(square) / sqrt(d) * eps);
            }
        }
}

/* Mean KL over the response rows, layer l perturbed, by a forward over all layers. */
static double slow(const rkv_session *prompt, const rows *ref, const int32_t *fed, int example,
                   int seed, int l)
{
    rkv_error e = {0};
    rkv_session *s;
    rows got = {malloc((size_t)T * (size_t)ref->n_vocab * sizeof(float)), ref->n_vocab};
    must(rkv_session_fork(&s, prompt, &e), &e);
    perturb(s, example, seed, l);
    must(rkv_session_score(s, fed, T, 0, collect, &got, &e), &e);
    double sum = 0.0;
    for (int i = 0; i < T; i++)
        sum += rkv_logits_kl(ref->logits + (size_t)i * (size_t)ref->n_vocab,
                             got.logits + (size_t)i * (size_t)ref->n_vocab, ref->n_vocab);
    rkv_session_free(s);
    free(got.logits);
    return sum / T;
}

static rkv_session *prompt_session(const rkv_model *m, const char *kv_type, int n_thread,
                                   const int32_t *ids)
{
    rkv_error e = {0};
    rkv_session *s;
    rkv_session_options o = rkv_session_options_default();
    o.k_type = o.v_type = kv_type;
    o.n_thread = n_thread;
    o.n_ctx = N + T;
    must(rkv_session_create(&s, m, &o, &e), &e);
    must(rkv_session_prefill(s, ids, N, &e), &e);
    return s;
}

static void check_family(const tiny_options *t)
{
    rkv_error e = {0};
    rkv_model *m = made_model(t);
    const int n_layer = rkv_model_get_info(m)->n_layer, n_vocab = rkv_model_get_info(m)->n_vocab;
    int32_t ids[N + T];
    made_ids(ids, N + T, n_vocab, 11);
    double kl[SEEDS * 8], again[SEEDS * 8];
    const rkv_sweep_options o = {.example = 3, .n_seed = SEEDS, .noise = noise};

    rkv_session *s = prompt_session(m, "f32", 1, ids), *fork;
    must(rkv_sweep_run(kl, s, ids + N, T, &o, &e), &e);
    rows ref = {malloc((size_t)T * (size_t)n_vocab * sizeof(float)), n_vocab};
    must(rkv_session_fork(&fork, s, &e), &e);
    must(rkv_session_score(fork, ids + N, T, 0, collect, &ref, &e), &e);
    rkv_session_free(fork);
    double worst = 0.0;
    for (int seed = 0; seed < SEEDS; seed++)
        for (int l = 0; l < n_layer; l++) {
            const double got = kl[seed * n_layer + l];
            if (rkv_model_layer_is_sliding(m, l)) {
                CHECK(isnan(got), "layer %d slides", l);
                continue;
            }
            const double want = slow(s, &ref, ids + N, o.example, seed, l);
            CHECK(want > 0.0, "layer %d", l);
            worst = fmax(worst, fabs(got - want) / want);
        }
    CHECK(worst <= 1e-5, "%s: sweep and slow way differ by %g relative", t->family, worst);
    printf("%s: sweep against the slow way, largest relative difference %.2g\n", t->family, worst);
    rkv_session_free(s);

    s = prompt_session(m, "f32", 3, ids);       /* the same bits for any thread count */
    must(rkv_sweep_run(again, s, ids + N, T, &o, &e), &e);
    CHECK(!memcmp(kl, again, (size_t)(SEEDS * n_layer) * sizeof *kl), "three threads");
    rkv_session_free(s);

    s = prompt_session(m, "f16", 2, ids);       /* stored in f16 the numbers stay close */
    must(rkv_sweep_run(again, s, ids + N, T, &o, &e), &e);
    worst = 0.0;
    for (int i = 0; i < SEEDS * n_layer; i++)
        if (!isnan(kl[i]))
            worst = fmax(worst, fabs(again[i] - kl[i]) / kl[i]);
    CHECK(worst > 0.0 && worst < 0.05, "%s: f16 cache moves a sensitivity by %g", t->family, worst);
    rkv_session_free(s);
    free(ref.logits);
    rkv_model_free(m);
}

/* Rows of logits, columns in pieces, against the whole rows. */
static void check_kl(void)
{
    enum { REF = 3, ROWS = 9, COLS = 501 };
    static float x[ROWS][COLS];
    double kl[ROWS - REF];
    rkv_error e = {0};
    rkv_kl_stream *s;
    for (int i = 0; i < ROWS; i++)
        for (int c = 0; c < COLS; c++)
            x[i][c] = (float)(6.0 * sin(0.37 * c * (i % REF + 1)) + 0.02 * i * cos(1.7 * c + i) +
                              (c == 400 ? 9 : 0));
    rkv_team *team;
    must(rkv_team_create(&team, 2, &e), &e);
    must(rkv_kl_create(&s, REF, ROWS, 200, team, &e), &e);
    for (int c0 = 0; c0 < COLS; c0 += 200)
        rkv_kl_add(s, &x[0][c0], COLS - c0 < 200 ? COLS - c0 : 200, COLS);
    rkv_kl_end(s, kl);
    rkv_kl_free(s);
    rkv_team_free(team);
    for (int r = REF; r < ROWS; r++) {
        const double want = rkv_logits_kl(x[r % REF], x[r], COLS);
        CHECK(fabs(kl[r - REF] - want) < 1e-12 && want > 1e-6, "row %d: %g, expected %g", r,
              kl[r - REF], want);
    }
    CHECK(rkv_logits_kl(x[0], x[0], COLS) == 0.0, "KL of a row with itself");
    const float one[] = {0.0f, -INFINITY}, two[] = {0.0f, 0.0f}, none[] = {0.0f, NAN};
    CHECK(fabs(rkv_logits_kl(one, two, 2) - log(2.0)) < 1e-15, "a token of probability 0: %g",
          rkv_logits_kl(one, two, 2));
    CHECK(isnan(rkv_logits_kl(none, two, 2)) && isnan(rkv_logits_kl(two, none, 2)), "no numbers");
}

/* A model that overflows gives an error, neither an abort nor a profile of zeros. */
static void check_not_finite(void)
{
    tiny_options t = tiny_defaults();
    rkv_model *m = made_model(&t);
    m->layer[1].v[RKV_V_ATTN_NORM][0] = INFINITY;
    char path[] = "/tmp/rkv-data-XXXXXX";
    FILE *f = fdopen(mkstemp(path), "w");
    fputs("{\"prompt_ids\": [1, 2, 3, 4], \"response_ids\": [5, 6, 7, 8, 9, 10, 11, 12]}\n", f);
    fclose(f);
    rkv_profile_options o = rkv_profile_options_default();
    o.from_answers = 1;
    o.n_thread = 1;
    rkv_profile *p = NULL;
    rkv_error e = {0};
    CHECK(rkv_profile_run(&p, m, path, &o, &e) == RKV_E_UNSUPPORTED &&
              strstr(e.text, "not finite"), "%s", e.text);
    rkv_profile_free(p);
    unlink(path);
    rkv_model_free(m);
}

int main(void)
{
    check_kl();
    check_not_finite();
    static const char *const families[] = {"llama", "qwen2", "qwen3"};
    for (int i = 0; i < 3; i++) {
        tiny_options t = tiny_defaults();
        t.family = families[i];
        t.type = "f16";
        t.n_layer = 3;
        check_family(&t);
    }
    tiny_options t = tiny_defaults();
    t.family = "gemma3";
    t.n_layer = 4;
    t.window = 50;
    t.pattern = 2;
    check_family(&t);
    setenv("RKV_GEMM", "bf16", 1);
    t.n_layer = 2;
    check_family(&t);
    return check_end("sweep");
}

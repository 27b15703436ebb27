/* Products with many rows, alone and in a session, on the paths of 16-bit numbers, RKV_GEMM=bf16
 * and int16: what must be equal to the bit, and how near it must be to the f32 path. */
#include "config.h"
#include "made.h"

#include <math.h>

#include "backend/backend.h"
#include "base/mem.h"
#include "cpu.h"
#include "f16.h"
#include "int16.h"

static void must(rkv_status s, const rkv_error *e)
{
    if (s) {
        fprintf(stderr, "unexpected: %s\n", e->text);
        exit(1);
    }
}

static uint32_t noise;

static float draw(void)
{
    noise = noise * 1664525u + 1013904223u;
    return (float)(int32_t)noise * 0x1p-31f;
}

/* ---- one product ---- */

enum { CANARY = 64 };

typedef struct product {
    int n_out, n_in, n_row;
    float *w, *x, *out; /* [FIRST + n_out][n_in], [n_row][n_in + 3], [n_row][n_out + 5] */
} product;

enum { FIRST = 2, X_GAP = 3, OUT_GAP = 5 };

/* Packs and multiplies rows [from, to) of x; counts bytes changed behind panels and scratch. */
static int multiply(const rkv_backend *be, const product *p, int from, int to, rkv_team *team)
{
    const size_t bytes = rkv_panels_bytes(be, p->n_out, p->n_in),
                 more = rkv_panels_scratch(be, p->n_in);
    unsigned char *data = rkv_mem_alloc(bytes + CANARY), *scratch = rkv_mem_alloc(more + CANARY);
    memset(data + bytes, 0x5a, CANARY);
    memset(scratch + more, 0x5a, CANARY);
    const rkv_matrix w = {p->w, p->n_in * (ptrdiff_t)sizeof *p->w, RKV_DT_f32, FIRST + p->n_out,
                          p->n_in};
    const rkv_panels panels = rkv_panels_pack(be, data, scratch, &w, FIRST, p->n_out, team);
    const ptrdiff_t ldx = p->n_in + X_GAP, ldo = p->n_out + OUT_GAP;
    rkv_panels_product(be, p->out + from * ldo, ldo, p->x + from * ldx, ldx, to - from, &panels,
                       team);
    int changed = 0;
    for (int i = 0; i < CANARY; i++)
        changed += (data[bytes + (size_t)i] != 0x5a) + (scratch[more + (size_t)i] != 0x5a);
    rkv_mem_free(data);
    rkv_mem_free(scratch);
    return changed;
}

/* A row of n numbers as the path takes them. */
static void as_used(const rkv_backend *be, double *to, const float *row, int n)
{
    enum { BLOCK = RKV_INT16_BLOCK };
    int16_t q[BLOCK];
    for (int k = 0; k < n; k++)
        to[k] = (double)(be->gemm == RKV_GEMM_BF16 ? rkv_bf16_to_f32(rkv_f32_to_bf16(row[k]))
                                                   : row[k]);
    for (int k = 0; be->gemm == RKV_GEMM_INT16 && k < n; k += BLOCK) {
        const int some = n - k < BLOCK ? n - k : BLOCK;
        const float scale = rkv_pack_int16_f32_ref(q, row + k, some);
        for (int i = 0; i < some; i++)
            to[k + i] = (double)q[i] * (double)scale;
    }
}

/* Elements that are beyond the tolerance of a sum, or written where nothing belongs. */
static int count_wrong(const rkv_backend *be, const product *p)
{
    const size_t n_in = (size_t)p->n_in;
    double *w = malloc((size_t)p->n_out * n_in * sizeof *w), *x = malloc(n_in * sizeof *x);
    int wrong = 0;
    for (int j = 0; j < p->n_out; j++)
        as_used(be, w + (size_t)j * n_in, p->w + (size_t)(FIRST + j) * n_in, p->n_in);
    for (int i = 0; i < p->n_row; i++) {
        const float *out = p->out + i * (p->n_out + OUT_GAP);
        as_used(be, x, p->x + i * (p->n_in + X_GAP), p->n_in);
        for (int j = 0; j < p->n_out; j++) {
            double sum = 0.0, sum_abs = 0.0;
            for (size_t k = 0; k < n_in; k++) {
                const double t = x[k] * w[(size_t)j * n_in + k];
                sum += t;
                sum_abs += fabs(t);
            }
            wrong += !(fabs((double)out[j] - sum) <= (p->n_in + 5) * 0x1p-24 * sum_abs);
        }
        for (int j = 0; j < OUT_GAP; j++)
            wrong += out[p->n_out + j] != 77.0f;
    }
    free(w), free(x);
    return wrong;
}

static void check_product(const rkv_backend *be, const char *path, int n_out, int n_in, int n_row)
{
    const size_t n_w = (size_t)(FIRST + n_out) * (size_t)n_in,
                 n_x = (size_t)n_row * (size_t)(n_in + X_GAP),
                 n_o = (size_t)n_row * (size_t)(n_out + OUT_GAP);
    const product p = {n_out,
                       n_in,
                       n_row,
                       malloc(n_w * sizeof(float)),
                       malloc(n_x * sizeof(float)),
                       malloc(n_o * sizeof(float))};
    float *first = malloc(n_o * sizeof *first);
    for (size_t i = 0; i < n_w; i++)
        p.w[i] = draw();
    for (size_t i = 0; i < n_x; i++)
        p.x[i] = draw();
    for (size_t i = 0; i < n_o; i++)
        p.out[i] = 77.0f;
    CHECK(multiply(be, &p, 0, n_row, NULL) == 0, "%s %dx%d: bytes behind", path, n_out, n_in);
    const int wrong = count_wrong(be, &p);
    CHECK(wrong == 0, "%s %dx%dx%d: %d wrong", path, n_out, n_in, n_row, wrong);
    memcpy(first, p.out, n_o * sizeof *first);
    for (int n_thread = 2; n_thread <= 3; n_thread++) {
        rkv_team *team;
        must(rkv_team_create(&team, n_thread, NULL), NULL);
        multiply(be, &p, 0, n_row, team);
        CHECK(!memcmp(first, p.out, n_o * sizeof *first), "%s: %d threads", path, n_thread);
        rkv_team_free(team);
    }
    multiply(be, &p, n_row / 3, n_row, NULL);
    multiply(be, &p, 0, n_row / 3, NULL);
    CHECK(!memcmp(first, p.out, n_o * sizeof *first), "%s: rows in two parts", path);
    if (be->gemm == RKV_GEMM_INT16) {
        rkv_backend ref = *be;
        rkv_ops_init(&ref.ops, RKV_ISA_ref);
        multiply(&ref, &p, 0, n_row, NULL);
        CHECK(!memcmp(first, p.out, n_o * sizeof *first), "%s: %s beside ref", path, be->tier);
    }
    free(p.w), free(p.x), free(p.out), free(first);
}

/* Inputs beside multiples of 32 and of the depth of a pass, outputs beside multiples of a panel,
 * more panels than make up a part, more rows than share a pass. */
static void check_products(const char *path)
{
    static const int shapes[][3] = {{1, 1, 1},     {33, 31, 5},   {64, 32, 32}, {31, 513, 17},
                                    {65, 1100, 9}, {700, 40, 34}, {40, 70, 259}};
    rkv_error e = {0};
    rkv_backend be;
    setenv("RKV_GEMM", path, 1);
    must(rkv_backend_init(&be, &e), &e);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_product(&be, path, shapes[i][0], shapes[i][1], shapes[i][2]);
    if (be.gemm == RKV_GEMM_BF16)
        CHECK(rkv_panels_bytes(&be, 96, 64) == 96 * 64 * 2, "half the memory");
    if (be.gemm == RKV_GEMM_INT16)
        CHECK(rkv_panels_bytes(&be, 96, 576) == 96 * (576 * 2 + 3 * 4), "and a float per block");
    unsetenv("RKV_GEMM");
}

/* Some of the inputs alone: the numbers of rows that are 0 elsewhere. */
static void check_inputs(const char *path)
{
    enum { OUT = 70, IN = 700, ROWS = 5 };
    static const int ranges[][2] = {{0, 1}, {0, 700}, {37, 200}, {255, 2}, {256, 256}, {640, 60}};
    static float w[OUT * IN], x[ROWS * IN], zero[ROWS * IN], out[ROWS * OUT], want[ROWS * OUT];
    rkv_error e = {0};
    rkv_backend be;
    setenv("RKV_GEMM", path, 1);
    must(rkv_backend_init(&be, &e), &e);
    unsetenv("RKV_GEMM");
    for (int i = 0; i < OUT * IN; i++)
        w[i] = draw();
    for (int i = 0; i < ROWS * IN; i++)
        x[i] = draw();
    void *data = rkv_mem_alloc(rkv_panels_bytes(&be, OUT, IN)),
         *scratch = rkv_mem_alloc(rkv_panels_scratch(&be, IN));
    const rkv_matrix m = {w, IN * (ptrdiff_t)sizeof *w, RKV_DT_f32, OUT, IN};
    const rkv_panels panels = rkv_panels_pack(&be, data, scratch, &m, 0, OUT, NULL);
    for (size_t r = 0; r < sizeof ranges / sizeof *ranges; r++) {
        const int first = ranges[r][0], n = ranges[r][1];
        memset(zero, 0, sizeof zero);
        for (int i = 0; i < ROWS; i++)
            memcpy(zero + i * IN + first, x + i * IN, (size_t)n * sizeof *x);
        rkv_panels_product(&be, want, OUT, zero, IN, ROWS, &panels, NULL);
        memset(scratch, 0xff, rkv_panels_scratch(&be, IN));
        rkv_panels_product_inputs(&be, out, OUT, x, IN, ROWS, &panels, first, n, NULL);
        double worst = 0.0;
        for (int i = 0; i < ROWS * OUT; i++)
            worst = fmax(worst, fabs((double)out[i] - (double)want[i]));
        /* The tier ref sums in double and rounds at other places. */
        CHECK(worst <= (strcmp(be.tier, "ref") ? 0.0 : 1e-5), "%s, inputs %d + %d: %g off", path,
              first, n, worst);
    }
    rkv_mem_free(data);
    rkv_mem_free(scratch);
}

/* ---- sessions ---- */

enum { N = 200, MORE = 20 };

static int32_t ids[N + MORE];

typedef struct rows { /* logits of the prompt's rows, then of some decoded tokens */
    float *logits;    /* [N + MORE][n_vocab] */
    size_t row;       /* bytes */
} rows;

static int take(void *ctx, int64_t i, int n_row, const float *logits)
{
    const rows *r = ctx;
    memcpy((char *)r->logits + (size_t)i * r->row, logits, (size_t)n_row * r->row);
    return 0;
}

static rows run_session(const rkv_model *m, const rkv_session_options *o)
{
    rkv_error e = {0};
    rkv_session *s = NULL;
    rows r = {.row = (size_t)rkv_model_get_info(m)->n_vocab * sizeof(float)};
    r.logits = malloc((N + MORE) * r.row);
    must(rkv_session_create(&s, m, o, &e), &e);
    must(rkv_session_score(s, ids, N, 0, take, &r, &e), &e);
    for (int i = 0; i < MORE; i++) {
        must(rkv_session_decode(s, ids[N + i], &e), &e);
        take(&r, N + i, 1, rkv_session_logits(s));
    }
    rkv_session_free(s);
    return r;
}

static void check_same(const rkv_model *m, const rkv_session_options *o, const rows *want,
                       const char *what)
{
    const rows r = run_session(m, o);
    CHECK(!memcmp(r.logits, want->logits, (N + MORE) * r.row), "%s", what);
    free(r.logits);
}

static double log_sum(const float *x, size_t n)
{
    double top = (double)x[0], sum = 0.0;
    for (size_t i = 1; i < n; i++)
        top = fmax(top, (double)x[i]);
    for (size_t i = 0; i < n; i++)
        sum += exp((double)x[i] - top);
    return top + log(sum);
}

/* Mean KL divergence of b from a, nats. */
static double mean_kl(const rows *a, const rows *b)
{
    const size_t n = a->row / sizeof(float);
    double kl = 0.0;
    for (size_t i = 0; i < N + MORE; i++) {
        const float *x = a->logits + i * n, *y = b->logits + i * n;
        const double lx = log_sum(x, n), ly = log_sum(y, n);
        for (size_t t = 0; t < n; t++)
            kl += exp((double)x[t] - lx) * (((double)x[t] - lx) - ((double)y[t] - ly));
    }
    return kl / (N + MORE);
}

static rkv_model *model_on(const tiny_options *t, const char *path)
{
    setenv("RKV_GEMM", path, 1);
    rkv_model *m = made_model(t);
    unsetenv("RKV_GEMM");
    return m;
}

/* Mean KL to the f32 path that a path may cost on a made model: integers a hundredth of bf16. */
static const struct {
    const char *name;
    double most;
} paths[] = {{"bf16", 4e-4}, {"int16", 4e-6}};

/* The result depends neither on threads, nor on the chunk, nor on a budget that takes everything;
 * it is near that of the f32 path, and not the same. */
static void check_family(const tiny_options *t, int path)
{
    const char *name = paths[path].name;
    rkv_error e = {0};
    rkv_model *m = model_on(t, name), *plain = model_on(t, "own");
    rkv_session_options base = rkv_session_options_default();
    base.n_thread = 1;
    made_ids(ids, N + MORE, rkv_model_get_info(m)->n_vocab, 3);
    const rows want = run_session(m, &base), f32 = run_session(plain, &base);
    rkv_session_options o = base;
    o.n_thread = 2;
    check_same(m, &o, &want, "2 threads");
    o.n_thread = 3;
    o.n_chunk = 64;
    check_same(m, &o, &want, "3 threads, chunks of 64");
    o = base;
    o.n_chunk = 7;
    check_same(m, &o, &want, "chunks of 7");
    o = base;
    must(rkv_policy_set_name(&o.policy, "snapkv", &e), &e);
    must(rkv_policy_set_budget(&o.policy, "100%", &e), &e);
    check_same(m, &o, &want, "a budget of 100 %");
    const double kl = mean_kl(&f32, &want);
    printf("%s, %s: mean KL %.3g\n", t->family, name, kl);
    CHECK(kl > 1e-12 && kl < paths[path].most, "%s, %s: mean KL to the f32 path %g", t->family,
          name, kl);
    free(want.logits);
    free(f32.logits);
    rkv_model_free(m);
    rkv_model_free(plain);
}

int main(void)
{
    rkv_error e = {0};
    rkv_backend be;
    setenv("RKV_GEMM", "bf17", 1);
    CHECK(rkv_backend_init(&be, &e) == RKV_E_ARG && strstr(e.text, "own, blas, bf16 or int16"),
          "%s", e.text);
    check_products("own");
    check_inputs("own");
    for (int path = 0; path < 2; path++) {
        check_products(paths[path].name);
        check_inputs(paths[path].name);
        tiny_options t = tiny_defaults();
        t.type = "mixed";
        check_family(&t, path);
        t = tiny_defaults();
        t.family = "gemma3";
        t.n_layer = 4;
        t.window = 50;
        t.pattern = 2;
        t.tied = 1;
        check_family(&t, path);
    }
    return check_end("pairs");
}

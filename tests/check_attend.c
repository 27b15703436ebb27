/* Attention of many rows over one KV head: against sums in double, and what must be equal to the
 * bit, on the paths of prefill's products. */
#include "config.h"
#include "check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"

enum { TILE = RKV_ATTN_TILE, N_Q = 7, CANARY = 16 };

typedef struct shape {
    int d, n_slot, phase, window;       /* window: slots that a row sees at most */
    rkv_dtype k_type, v_type;
} shape;

/* One head. Row i sees slots up to n_slot - N_Q + i, but no more than the window. */
typedef struct head {
    shape s;
    rkv_kv_view kv;
    float *q, *k, *v;                   /* as stored, unpacked: [N_Q], [n_slot], [n_slot] rows */
    int32_t lo[N_Q], hi[N_Q];
} head;

typedef struct state {
    float *out, m[N_Q], l[N_Q];
} state;

static uint32_t noise;

static float draw(void)
{
    noise = noise * 1664525u + 1013904223u;
    return (float)(int32_t)noise * 0x1p-31f;
}

static float *draw_rows(int n, int d, float size)
{
    float *x = malloc(sizeof *x * (size_t)(n * d));
    for (int i = 0; i < n * d; i++)
        x[i] = size * draw();
    return x;
}

/* Makes each odd element of the rows nearly sign times the one before. */
static void pair_up(float *x, int n, int d, float sign, float apart)
{
    for (int i = 0; i < n * d; i++)
        if (i % d % 2)
            x[i] = sign * x[i - 1] + apart * draw();
}

/* The terms of a score are large and cancel in pairs, so that what a rounding takes away from a
 * query or a key decides between the slots. */
static head head_create(const rkv_backend *be, shape s)
{
    head h = {.s = s};
    const size_t n = (size_t)s.n_slot * (size_t)s.d;
    const float size = 30.0f / sqrtf((float)s.d);
    h.q = draw_rows(N_Q, s.d, size);
    h.k = draw_rows(s.n_slot, s.d, 8.0f);
    h.v = draw_rows(s.n_slot, s.d, 1.0f);
    pair_up(h.q, N_Q, s.d, 1.0f, 0.01f * size);
    pair_up(h.k, s.n_slot, s.d, -1.0f, 0.1f);
    void *k = malloc(4 * n), *v = malloc(4 * n);
    be->ops.pack[s.k_type](k, h.k, (int64_t)n);
    be->ops.pack[s.v_type](v, h.v, (int64_t)n);
    be->ops.unpack[s.k_type](h.k, k, (int64_t)n);
    be->ops.unpack[s.v_type](h.v, v, (int64_t)n);
    h.kv = (rkv_kv_view){k, v, NULL, s.k_type, s.v_type, s.n_slot, s.d, s.phase};
    for (int i = 0; i < N_Q; i++) {
        const int last = s.n_slot - N_Q + i;
        h.hi[i] = (last > 0 ? last : 0) + 1;
        h.lo[i] = h.hi[i] > s.window ? h.hi[i] - s.window : 0;
    }
    return h;
}

static void head_free(head *h)
{
    free((void *)(uintptr_t)h->kv.k), free((void *)(uintptr_t)h->kv.v);
    free(h->q), free(h->k), free(h->v);
}

/* Rows [r0, r1) and slots [from, to) of the head; a scratch full of NaN that begins at any float,
 * of which nothing behind its end may change. */
static void add_with(const rkv_backend *be, state *st, const head *h, int r0, int r1, int from,
                     int to, const float *v_plain, float *mass)
{
    const int d = h->s.d, n = r1 - r0;
    const size_t floats = rkv_attend_scratch(be, n, d), bytes = floats * sizeof(float);
    unsigned char *memory = malloc(bytes + sizeof(float) + CANARY);
    float *scratch = (float *)(void *)(memory + sizeof(float));
    memset(memory, 0xff, bytes + sizeof(float) + CANARY);
    const size_t kept_bytes = rkv_attend_kept_floats(be, n, to - from) * sizeof(float);
    unsigned char *kept_memory = malloc(kept_bytes + sizeof(float) + CANARY);
    memset(kept_memory, 0xff, kept_bytes + sizeof(float) + CANARY);
    const rkv_attend_kept kept =
        rkv_attend_kept_cut(be, (float *)(void *)(kept_memory + sizeof(float)), n, to - from);
    int32_t lo[N_Q], hi[N_Q];
    for (int i = 0; i < n; i++) {
        lo[i] = h->lo[r0 + i] > from ? h->lo[r0 + i] - from : 0;
        hi[i] = (h->hi[r0 + i] < to ? h->hi[r0 + i] : to) - from;
        hi[i] = hi[i] > 0 ? hi[i] : 0;
    }
    rkv_kv_view kv = h->kv;
    const size_t at = (size_t)from * (size_t)d;
    kv.k = (const char *)kv.k + rkv_dtype_bytes(rkv_dtype_get(kv.k_type), at);
    kv.v = (const char *)kv.v + rkv_dtype_bytes(rkv_dtype_get(kv.v_type), at);
    kv.n_slot = to - from;
    kv.phase = (kv.phase + from) % TILE;
    if (v_plain) {              /* another type may stand for the cache's */
        kv.v = v_plain + at;
        kv.v_type = RKV_DT_f32;
    }
    rkv_attend_add(be, st->out + r0 * d, st->m + r0, st->l + r0, h->q + r0 * d, n, lo, hi, &kv,
                   mass ? &kept : NULL, scratch);
    const rkv_attend_sum sum = {mass, 0};
    if (mass)
        rkv_attend_mass(be, &sum, 1, &kept, st->m + r0, st->l + r0, n, lo, hi, &kv, scratch);
    int changed = 0;
    for (size_t i = 0; i < CANARY; i++) {
        changed += memory[sizeof(float) + bytes + i] != 0xff;
        changed += kept_memory[sizeof(float) + kept_bytes + i] != 0xff;
    }
    CHECK(changed == 0, "%d bytes behind the scratch", changed);
    free(memory);
    free(kept_memory);
}

static void add(const rkv_backend *be, state *st, const head *h, int r0, int r1, int from, int to,
                const float *v_plain)
{
    add_with(be, st, h, r0, r1, from, to, v_plain, NULL);
}

static state begin(const head *h)
{
    state st = {.out = malloc(sizeof(float) * (size_t)(N_Q * h->s.d))};
    rkv_attend_begin(st.out, st.m, st.l, N_Q, h->s.d);
    return st;
}

static int same(const state *a, const state *b, int d)
{
    return !memcmp(a->out, b->out, sizeof(float) * (size_t)(N_Q * d)) &&
           !memcmp(a->m, b->m, sizeof a->m) && !memcmp(a->l, b->l, sizeof a->l);
}

/* The exact weights of row i; returns how far the path's scores may be from the exact ones: what
 * the roundings of its terms give, independent of each other, and the sum in f32. */
static double exact_weights(const rkv_backend *be, const head *h, int i, double *w)
{
    const int d = h->s.d;
    double top = -INFINITY, sum = 0.0, off = 0.0;
    for (int t = h->lo[i]; t < h->hi[i]; t++) {
        double s = 0.0, sum_abs = 0.0, square = 0.0;
        for (int e = 0; e < d; e++) {
            const double term = (double)h->q[i * d + e] * (double)h->k[t * d + e];
            s += term;
            sum_abs += fabs(term);
            square += term * term;
        }
        w[t] = s;
        top = fmax(top, s);
        off = fmax(off, 0x1p-20 * sum_abs +
                            (be->gemm == RKV_GEMM_BF16 ? 0x1p-16 * sqrt(square) : 0.0));
    }
    for (int t = h->lo[i]; t < h->hi[i]; t++)
        sum += w[t] = exp(w[t] - top);
    for (int t = h->lo[i]; t < h->hi[i]; t++)
        w[t] /= sum;
    return off;
}

/* Elements too far from the exact attention. A weight off by a factor 1 + f moves the mean by
 * w f (v - mean); a value is off by its rounding. */
static int count_far(const rkv_backend *be, const head *h, const float *out)
{
    const int d = h->s.d;
    const double half_ulp = be->gemm == RKV_GEMM_BF16 ? 0x1p-8 : 0.0;
    double *w = malloc(sizeof *w * (size_t)h->s.n_slot);
    int far = 0;
    for (int i = 0; i < N_Q; i++) {
        const double factor = 2.0 * exact_weights(be, h, i, w) + half_ulp;
        for (int e = 0; e < d; e++) {
            double mean = 0.0, spread = 0.0, sum_abs = 0.0;
            for (int t = h->lo[i]; t < h->hi[i]; t++)
                mean += w[t] * (double)h->v[t * d + e];
            for (int t = h->lo[i]; t < h->hi[i]; t++) {
                spread += w[t] * fabs((double)h->v[t * d + e] - mean);
                sum_abs += w[t] * fabs((double)h->v[t * d + e]);
            }
            const double bound = 1.01 * factor * spread + (half_ulp + 0x1p-18) * sum_abs;
            far += !(fabs((double)out[i * d + e] - mean) <= bound);
        }
    }
    free(w);
    return far;
}

/* Slots cut at a tile, rows alone, values given as floats, and the first slots dropped where nobody
 * sees them. */
static void check_bits(const rkv_backend *be, const head *h, const state *want, const char *what)
{
    const int d = h->s.d, n = h->s.n_slot, tile = TILE - h->s.phase, first = h->lo[0];
    state st = begin(h);
    add(be, &st, h, 0, N_Q, 0, n, h->v);
    CHECK(same(&st, want, d), "%s: plain values", what);
    rkv_attend_begin(st.out, st.m, st.l, N_Q, d);
    for (int i = 0; i < N_Q; i++)
        add(be, &st, h, i, i + 1, 0, n, NULL);
    CHECK(same(&st, want, d), "%s: rows alone", what);
    for (int cut = tile; cut < n; cut += TILE) {
        rkv_attend_begin(st.out, st.m, st.l, N_Q, d);
        add(be, &st, h, 0, N_Q, 0, cut, NULL);
        add(be, &st, h, 0, N_Q, cut, n, NULL);
        CHECK(same(&st, want, d), "%s: cut at slot %d", what, cut);
    }
    if (first && be->gemm == RKV_GEMM_BF16) {
        rkv_attend_begin(st.out, st.m, st.l, N_Q, d);
        add(be, &st, h, 0, N_Q, first, n, NULL);
        CHECK(same(&st, want, d), "%s: without the first %d slots", what, first);
    }
    free(st.out);
}

/* Column sums beside the exact ones; keeping the weights changes no bit of the rest. */
static void check_mass(const rkv_backend *be, const head *h, const state *want, const char *what)
{
    const int d = h->s.d, n = h->s.n_slot;
    const double half_ulp = be->gemm == RKV_GEMM_BF16 ? 0x1p-8 : 0.0;
    double *sum = calloc((size_t)n, sizeof *sum), *bound = calloc((size_t)n, sizeof *bound);
    double *w = calloc((size_t)n, sizeof *w);
    float *mass = malloc(sizeof *mass * (size_t)n);
    for (int t = 0; t < n; t++)
        mass[t] = 0.25f;
    state st = begin(h);
    add_with(be, &st, h, 0, N_Q, 0, n, NULL, mass);
    CHECK(same(&st, want, d), "%s: with the weights kept", what);
    for (int i = 0; i < N_Q; i++) {
        const double off = 2.0 * exact_weights(be, h, i, w) + 2.0 * half_ulp + 0x1p-18;
        for (int t = h->lo[i]; t < h->hi[i]; t++) {
            sum[t] += w[t];
            bound[t] += 1.01 * off * w[t];
        }
    }
    int far = 0;
    for (int t = 0; t < n; t++)
        far += !(fabs((double)mass[t] - 0.25 - sum[t]) <= bound[t] + 0x1p-23 * (double)mass[t]);
    CHECK(far == 0, "%s: %d of %d sums are far", what, far, n);
    free(sum), free(bound), free(w), free(mass), free(st.out);
}

static void check_shape(const rkv_backend *be, shape s)
{
    char what[80];
    snprintf(what, sizeof what, "path %d, d %d, %d slots, phase %d, window %d", be->gemm, s.d,
             s.n_slot, s.phase, s.window);
    head h = head_create(be, s);
    state st = begin(&h);
    add(be, &st, &h, 0, N_Q, 0, s.n_slot, NULL);
    check_bits(be, &h, &st, what);
    check_mass(be, &h, &st, what);
    rkv_attend_end(be, st.out, st.l, N_Q, s.d);
    const int far = count_far(be, &h, st.out);
    CHECK(far == 0, "%s: %d of %d elements are far", what, far, N_Q * s.d);
    /* A mean of equal values is that value: the weights that are summed are those that multiply. */
    for (int i = 0; i < s.n_slot * s.d; i++)
        h.v[i] = 0.75f;
    rkv_attend_begin(st.out, st.m, st.l, N_Q, s.d);
    add(be, &st, &h, 0, N_Q, 0, s.n_slot, h.v);
    rkv_attend_end(be, st.out, st.l, N_Q, s.d);
    int unequal = 0;
    for (int i = 0; i < N_Q * s.d; i++)
        unequal += !(fabsf(st.out[i] - 0.75f) < 0x1p-18f);
    CHECK(unequal == 0, "%s: %d means of equal values differ from them", what, unequal);
    free(st.out);
    head_free(&h);
}

static void check_path(const char *path)
{
    static const shape shapes[] = {
        {8, 1, 0, 400, RKV_DT_f16, RKV_DT_f16},      {16, 7, 63, 400, RKV_DT_f32, RKV_DT_f16},
        {32, 63, 1, 400, RKV_DT_f16, RKV_DT_f32},    {64, 64, 0, 400, RKV_DT_f16, RKV_DT_f16},
        {64, 300, 0, 400, RKV_DT_f16, RKV_DT_f16},   {64, 300, 37, 50, RKV_DT_f16, RKV_DT_f16},
        {80, 129, 5, 65, RKV_DT_f32, RKV_DT_f32},    {33, 130, 62, 1, RKV_DT_f16, RKV_DT_f16},
        {2, 200, 31, 90, RKV_DT_f16, RKV_DT_f16},    {96, 65, 64 - 3, 33, RKV_DT_f16, RKV_DT_f16},
        {128, 257, 0, 128, RKV_DT_f16, RKV_DT_f16},  {256, 150, 20, 400, RKV_DT_f16, RKV_DT_f16},
        {512, 100, 50, 77, RKV_DT_f32, RKV_DT_f16},
    };
    rkv_error e = {0};
    rkv_backend be;
    setenv("RKV_GEMM", path, 1);
    const rkv_status s = rkv_backend_init(&be, &e);
    unsetenv("RKV_GEMM");
    CHECK(!s, "%s", e.text);
    for (size_t i = 0; !s && i < sizeof shapes / sizeof *shapes; i++)
        check_shape(&be, shapes[i]);
}

int main(void)
{
    check_path("bf16");
    check_path("own");
    return check_end("attend");
}

/* Estimated errors of the walk against a plain computation in double from the attention of the
 * layer, captured with the head as it was and really compressed. */
#include "config.h"
#include "walk_bed.h"

enum { N = 150, T = 7, WINDOW = 8, GRID = 4 };

static int32_t ids[N + T];
static const double grid[GRID] = {0.01, 0.2, 0.55, 1.0};

/* |W x|^2 of x[n_in], W being [n_out][n_in]. */
static double square_of_product(const float *w, const double *x, int n_out, int n_in)
{
    double square = 0.0;
    for (int r = 0; r < n_out; r++) {
        double y = 0.0;
        for (int i = 0; i < n_in; i++)
            y += (double)w[(ptrdiff_t)r * n_in + i] * x[i];
        square += y * y;
    }
    return square;
}

static double plain_error(const bed_layer *a, const bed_layer *b, const float *w, int n_out,
                          int n_in)
{
    double sum = 0.0, *whole = malloc((size_t)n_in * 2 * sizeof *whole), *diff = whole + n_in;
    for (int t = 0; t < T; t++) {
        for (int i = 0; i < n_in; i++) {
            whole[i] = (double)a->att[t * n_in + i];
            diff[i] = whole[i] - (double)b->att[t * n_in + i];
        }
        sum += square_of_product(w, diff, n_out, n_in) / square_of_product(w, whole, n_out, n_in);
    }
    free(whole);
    return sum / T;
}

static float *plain_matrix(const rkv_model *m, int l)
{
    const rkv_matrix *w = &m->layer[l].w[RKV_W_O];
    float *out = malloc((size_t)w->n_out * (size_t)w->n_in * sizeof *out);
    for (int r = 0; r < w->n_out; r++)
        m->backend.ops.unpack[w->type](out + (ptrdiff_t)r * w->n_in,
                                       (const char *)w->data + r * w->row_stride, w->n_in);
    return out;
}

/* most: relative difference that the path of products may make. */
static void check(const tiny_options *t, const char *kv_type, const char *selector, double most)
{
    rkv_error e = {0};
    rkv_model *m = made_model(t);
    const rkv_config *c = &m->config;
    const rkv_policy p = bed_policy(selector, WINDOW);
    made_ids(ids, N + T, t->n_vocab, 5);
    rkv_session *s = bed_session(m, kv_type, 2, ids, N, T, WINDOW);
    double *error = malloc((size_t)(c->n_layer * c->n_kv_head * GRID) * sizeof *error), worst = 0.0;
    const rkv_walk_options o = {.policy = &p, .grid = grid, .n_grid = GRID, .error = error};
    must(rkv_walk_run(NULL, s, ids + N, T, NULL, 0, &o, &e), &e);
    for (int i = 0; i < c->n_layer * c->n_kv_head * GRID; i++) {
        const int l = i / GRID / c->n_kv_head, h = i / GRID % c->n_kv_head, g = i % GRID;
        if (m->layer[l].sliding || grid[g] == 1.0) {
            CHECK(m->layer[l].sliding ? isnan(error[i]) : error[i] == 0.0, "%g", error[i]);
            continue;
        }
        rkv_session *plain;
        must(rkv_session_fork(&plain, s, &e), &e);
        float *w = plain_matrix(m, l);
        bed_layer a = bed_run(plain, ids + N, T, l),
                  b = bed_run(bed_compressed(s, &p, grid[g], l, h), ids + N, T, l);
        const double want = plain_error(&a, &b, w, c->d_model, c->n_head * c->d_head);
        CHECK(want > 0.0 && fabs(error[i] - want) <= most * want,
              "%s, layer %d, head %d, share %g: %g, expected %g", t->family, l, h, grid[g],
              error[i], want);
        worst = fmax(worst, fabs(error[i] - want) / want);
        bed_layer_free(&a);
        bed_layer_free(&b);
        free(w);
    }
    printf("%s, %s, %s: errors differ by %.2g relative\n", t->family, kv_type, selector, worst);
    free(error);
    rkv_session_free(s);
    rkv_model_free(m);
}

int main(void)
{
    tiny_options t = tiny_defaults();
    setenv("RKV_GEMM", "own", 1);               /* not what this CPU would choose */
    t.n_layer = 3;
    t.n_head = 6;
    t.d_head = 32;
    check(&t, "f32", "snapkv", 1e-5);
    check(&t, "q8_0", "h2o", 1e-5);
    t.family = "qwen2";
    t.n_head = 2;
    t.type = "q4_k";
    check(&t, "f16", "observed", 1e-5);
    t = tiny_defaults();
    t.family = "gemma3";
    t.n_layer = 4;
    t.window = 50;
    t.pattern = 2;
    t.n_head = 6;
    t.d_model = 96;
    check(&t, "f16", "snapkv", 1e-5);
    setenv("RKV_GEMM", "int16", 1);
    check(&t, "f16", "snapkv", 1e-3);
    setenv("RKV_GEMM", "bf16", 1);
    check(&t, "f16", "snapkv", 3e-2);
    return check_end("walk_error");
}

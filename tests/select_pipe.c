/* Selection for scripts: what every KV head of one layer keeps, from numbers on stdin, case after
 * case until the end. A case is a line of words (see read_case), then floats: queries before
 * rotation [n][n_head][d], rotated and scaled ones, keys [n_kv_head][n][d], values, attention mass
 * [n_kv_head][n], W_O [d_model][n_head d], mean cosines and negated sines [d / 2]. Prints a JSON
 * array of arrays of positions for each. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/query_stats.h"
#include "policy/policy.h"

enum { MAX_HEAD = 64 };

typedef struct input {
    int n, n_kv_head, n_group, d, d_model, budget[MAX_HEAD];
    rkv_policy p;
    int32_t *pos;               /* 0 .. n - 1 */
    float *plain_q, *q, *k, *v, *mass, *w_o, *cosine, *back_sine;
} input;

static void die(const char *what)
{
    fprintf(stderr, "select_pipe: %s\n", what);
    exit(1);
}

static float *floats(size_t n)
{
    float *x = calloc(n ? n : 1, sizeof *x);
    if (!x)
        die("out of memory");
    return x;
}

static float *read_floats(int a, int b, int c)
{
    const size_t n = (size_t)a * (size_t)b * (size_t)c;
    float *x = floats(n);
    if (fread(x, sizeof *x, n, stdin) != n)
        die("too few numbers");
    return x;
}

/* 0: the end. */
static int read_case(input *x)
{
    char name[80];
    rkv_error e;
    x->p = rkv_policy_default();
    if (scanf("%79s %d %d %d %d %d", name, &x->n, &x->n_kv_head, &x->n_group, &x->d,
              &x->d_model) != 6)
        return 0;
    if (rkv_policy_set_name(&x->p, name, &e))
        die(e.text);
    if (scanf("%d %d %d %d %d %d %d %lf %d %lf %lf %lf", &x->p.window, &x->p.n_sink,
              &x->p.pool_kernel, &x->p.pool_average, &x->p.pool_before_mean, &x->p.use_covariance,
              &x->p.use_value_norm, &x->p.epsilon, &x->p.adakv_forced, &x->p.safeguard,
              &x->p.first_stage, &x->p.critical_epsilon) != 12 || rkv_policy_check(&x->p, &e))
        die("bad options");
    for (int h = 0; h < x->n_kv_head; h++)
        if (x->n_kv_head > MAX_HEAD || scanf("%d", &x->budget[h]) != 1)
            die("bad budgets");
    if (getchar() != '\n')
        die("no end of line");
    const int n_head = x->n_kv_head * x->n_group;
    x->pos = malloc((size_t)x->n * sizeof *x->pos);
    if (!x->pos)
        die("out of memory");
    for (int i = 0; i < x->n; i++)
        x->pos[i] = i;
    x->plain_q = read_floats(x->n, n_head, x->d);
    x->q = read_floats(x->n, n_head, x->d);
    x->k = read_floats(x->n_kv_head, x->n, x->d);
    x->v = read_floats(x->n_kv_head, x->n, x->d);
    x->mass = read_floats(x->n_kv_head, x->n, 1);
    x->w_o = read_floats(x->d_model, n_head, x->d);
    x->cosine = read_floats(1, 1, x->d / 2);
    x->back_sine = read_floats(1, 1, x->d / 2);
    return 1;
}

static void free_case(input *x)
{
    float *const all[] = {x->plain_q, x->q, x->k, x->v, x->mass, x->w_o, x->cosine, x->back_sine};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    free(x->pos);
}

/* Means and covariances of all heads, as the engine gathers them; freed by the caller. */
static float *query_stats(const input *x, const rkv_backend *be)
{
    const int n_head = x->n_kv_head * x->n_group;
    const size_t heads = (size_t)n_head, numbers = heads * rkv_stat_floats(x->d);
    double *sum = malloc(numbers * sizeof *sum);
    float *work = floats(heads * rkv_stat_work_floats(x->d)), *out = floats(numbers);
    rkv_stat_sums s = {sum, work, x->p.n_sink, x->d, n_head};
    if (!sum)
        die("out of memory");
    const rkv_step step = {.be = be, .n_tok = x->n, .pos = x->pos, .q = x->plain_q};
    rkv_stat_begin(&s);
    rkv_stat_look(&s, &step, 0);
    rkv_stat_end(&s, be, out, x->n);
    free(sum);
    free(work);
    return out;
}

typedef struct heads {
    rkv_kv_view view[MAX_HEAD];
    rkv_query_stats stats[MAX_HEAD];
    rkv_observed observed[MAX_HEAD];
    rkv_matrix w_o;
    float *q[MAX_HEAD], *score[MAX_HEAD];
} heads;

static void describe(heads *to, const input *x, const rkv_backend *be, const float *stats)
{
    const int n_query = rkv_policy_n_query(&x->p), group = x->n_group * x->d;
    const ptrdiff_t step = (ptrdiff_t)rkv_stat_floats(x->d);
    to->w_o = (rkv_matrix){x->w_o, (ptrdiff_t)sizeof(float) * group * x->n_kv_head, RKV_DT_f32,
                           x->d_model, group * x->n_kv_head};
    for (int h = 0; h < x->n_kv_head; h++)
        to->view[h] = (rkv_kv_view){.k = x->k + (ptrdiff_t)h * x->n * x->d,
                                    .v = x->v + (ptrdiff_t)h * x->n * x->d, .pos = x->pos,
                                    .k_type = RKV_DT_f32, .v_type = RKV_DT_f32, .n_slot = x->n,
                                    .d_head = x->d};
    for (int h = 0; h < x->n_kv_head; h++) {
        to->q[h] = floats((size_t)n_query * (size_t)group);
        for (int i = 0; i < n_query; i++)
            memcpy(to->q[h] + (ptrdiff_t)i * group,
                   x->q + ((ptrdiff_t)(x->n - n_query + i) * x->n_kv_head + h) * group,
                   (size_t)group * sizeof(float));
        to->stats[h] = (rkv_query_stats){stats + h * x->n_group * step, step, x->cosine,
                                         x->back_sine, x->d / 2, 1, 1.0 / sqrt(x->d)};
        to->observed[h] = (rkv_observed){
            .be = be, .kv = to->view[h], .q = to->q[h], .n_query = n_query, .n_group = x->n_group,
            .mass = x->mass + (ptrdiff_t)h * x->n, .stats = &to->stats[h], .h = h,
            .n_kv_head = x->n_kv_head, .layer = to->view,
            .layer_q = x->q + (ptrdiff_t)(x->n - 1) * x->n_kv_head * group, .w_o = &to->w_o};
    }
}

static void print_kept(const input *x, int h, const int32_t *keep)
{
    printf(h ? ", [" : "[");
    for (int i = 0; i < x->budget[h]; i++)
        printf(i ? ", %d" : "%d", (int)keep[i]);
    putchar(']');
}

static void run(input *x, const rkv_backend *be)
{
    const rkv_selector *selector = rkv_selector_find(x->p.selector);
    heads of;
    uint32_t *work[MAX_HEAD];
    float *stats = query_stats(x, be), *scratch;
    const size_t n = (size_t)x->n, selecting = selector->scratch
        ? selector->scratch(&x->p, x->n, x->n_group, x->d) : 0;
    describe(&of, x, be, stats);
    scratch = floats(selecting + rkv_critical_floats(x->n, x->d, x->d_model));
    for (int h = 0; h < x->n_kv_head; h++) {
        of.score[h] = floats(n);
        work[h] = (uint32_t *)(void *)floats(n);
        selector->score(&x->p, &of.observed[h], of.score[h], scratch);
    }
    if (x->p.adakv)
        rkv_split_budget(x->budget, x->n_kv_head, &x->p, of.score, work, x->n);
    putchar('[');
    for (int h = 0; h < x->n_kv_head; h++) {
        int32_t *keep = (int32_t *)(void *)floats(n);
        if (x->p.criticalkv && x->budget[h] < x->n)
            rkv_critical_rescore(&x->p, &of.observed[h], of.score[h], x->budget[h], scratch);
        for (int t = 0; t < x->n; t++)
            keep[t] = t;
        if (x->budget[h] < x->n)
            rkv_keep_best(keep, of.score[h], x->n, x->p.window, x->budget[h], work[h]);
        print_kept(x, h, keep);
        free(keep);
        free(work[h]);
        free(of.score[h]);
        free(of.q[h]);
    }
    puts("]");
    fflush(stdout);
    free(scratch);
    free(stats);
}

int main(void)
{
    rkv_error e;
    rkv_backend be;
    input x;
    if (rkv_backend_init(&be, &e))
        die(e.text);
    while (read_case(&x)) {
        run(&x, &be);
        free_case(&x);
    }
    return 0;
}

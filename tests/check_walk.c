/* The walk against the slow way: edit one layer of the cache, run everything above it again,
 * compare the distributions; and what must be equal to the bit. */
#include "config.h"
#include "walk_bed.h"

#include "noise.h"
#include "profile/kl.h"

enum { N = 150, T = 12, WINDOW = 8, MOST = 200, LONG = 700 };

static int32_t ids[LONG + T];
static const double sigma = 0.5;

static rkv_session *prompt(const rkv_model *m, const char *kv_type, int n_thread)
{
    return bed_session(m, kv_type, n_thread, ids, N, T, WINDOW);
}

/* Overwrites one layer's Values or Keys by what METHOD section 7 prescribes, in the order of its
 * formula; element `first` of the stream is that of slot 0. */
static void disturb(float *x, int n_slot, int d, uint64_t key, uint64_t first)
{
    for (int t = 0; t < n_slot; t++, x += d) {
        double square = 0.0;
        for (int i = 0; i < d; i++)
            square += (double)x[i] * (double)x[i];
        for (int i = 0; i < d; i++) {
            double eps;
            rkv_noise_normal(&eps, key, first + (uint64_t)t * (uint64_t)d + (uint64_t)i, 1);
            x[i] = (float)((double)x[i] + sigma * sqrt(square) / sqrt(d) * eps);
        }
    }
}

static rkv_session *disturbed(const rkv_session *s, const rkv_variant *v, int example)
{
    rkv_error e = {0};
    rkv_session *f;
    must(rkv_session_fork(&f, s, &e), &e);
    const uint64_t key = rkv_noise_key((uint64_t)example, (uint64_t)v->seed, (uint64_t)v->layer);
    const int d = s->kv->d_head, n = s->n_prompt;
    const uint64_t head = (uint64_t)n * (uint64_t)d, keys = (uint64_t)s->kv->n_kv_head * head;
    for (int h = 0; h < s->kv->n_kv_head; h++) {
        const rkv_kv_head *p = rkv_kv_at(f->kv, v->layer, h);
        if (v->head >= 0 && v->head != h)
            continue;
        if (strcmp(v->what->name, "noise_k"))
            disturb(p->v, n, d, key, (uint64_t)h * head);
        if (strcmp(v->what->name, "noise_v"))
            disturb(p->k, n, d, key, keys + (uint64_t)h * head);
    }
    return f;
}

static rkv_session *edited(const rkv_session *s, const rkv_variant *v, const rkv_walk_options *o)
{
    return v->what->selects ? bed_compressed(s, o->policy, v->amount, v->layer, v->head)
                            : disturbed(s, v, o->example);
}

/* The slow way to a variant's outcome. ref: logits of the plain cache. */
static rkv_outcome slow(const rkv_session *s, const rkv_variant *v, const rkv_walk_options *o,
                        const int32_t *fed, const bed_rows *ref)
{
    rkv_error e = {0};
    rkv_session *plain;
    rkv_outcome r = {0.0, 0.0};
    const int d = s->m->config.d_model;
    const bed_rows got = bed_logits(edited(s, v, o), fed, T);
    must(rkv_session_fork(&plain, s, &e), &e);
    bed_layer a = bed_run(plain, fed, T, v->layer), b = bed_run(edited(s, v, o), fed, T, v->layer);
    for (int i = 0; i < T; i++) {
        double change = 0.0, size = 0.0;
        for (int c = i * d; c < (i + 1) * d; c++) {
            const double x = (double)a.x[c], y = (double)b.x[c];
            change += (y - x) * (y - x);
            size += x * x;
        }
        r.local += sqrt(change) / sqrt(size) / T;
        r.kl += rkv_logits_kl(ref->logits + (size_t)i * (size_t)ref->n_vocab,
                              got.logits + (size_t)i * (size_t)ref->n_vocab, ref->n_vocab) / T;
    }
    bed_layer_free(&a);
    bed_layer_free(&b);
    free(got.logits);
    return r;
}

/* Every kind, in each layer that does not slide, of all heads and of single ones. */
static int all_variants(const rkv_model *m, rkv_variant *v)
{
    static const struct {
        const char *what;
        double amount;
    } rows[] = {{"noise_v", 0.5}, {"noise_k", 0.5}, {"noise_kv", 0.5},
                {"drop", 0.01}, {"drop", 0.3}, {"drop", 0.62}, {"drop", 1.0}};
    const rkv_model_info *info = rkv_model_get_info(m);
    int n = 0;
    for (int l = 0; l < info->n_layer; l++)
        for (size_t i = 0; !rkv_model_layer_is_sliding(m, l) && i < sizeof rows / sizeof *rows; i++)
            for (int h = -1; h < info->n_kv_head; h++)
                v[n++] = (rkv_variant){rkv_perturb_find(rows[i].what), l, h, h + 2, rows[i].amount};
    if (n > MOST)
        exit(1);
    return n;
}

static double relative(double got, double want)
{
    return got == want ? 0.0 : fabs(got - want) / fabs(want);
}

/* noise: 0 where the cache's type could not hold what the slow way writes into it. */
static void check_slow(const rkv_model *m, const char *kv_type, const char *selector, int noise)
{
    rkv_error e = {0};
    rkv_variant v[MOST];
    rkv_outcome out[MOST];
    rkv_session *s = prompt(m, kv_type, 1), *plain;
    const rkv_policy p = bed_policy(selector, WINDOW);
    const rkv_walk_options o = {.example = 3, .policy = &p};
    const int n = all_variants(m, v);
    must(rkv_walk_run(out, s, ids + N, T, v, n, &o, &e), &e);
    must(rkv_session_fork(&plain, s, &e), &e);
    const bed_rows ref = bed_logits(plain, ids + N, T);
    double kl = 0.0, local = 0.0;
    for (int i = 0; i < n; i++) {
        if (v[i].what->selects && v[i].amount == 1.0)
            CHECK(out[i].kl == 0.0 && out[i].local == 0.0, "everything stays: %g", out[i].kl);
        else
            CHECK(out[i].kl > 0.0 && out[i].local > 0.0, "%s in layer %d", v[i].what->name,
                  v[i].layer);
        if (!v[i].what->selects && !noise)
            continue;
        const rkv_outcome want = slow(s, &v[i], &o, ids + N, &ref);
        kl = fmax(kl, relative(out[i].kl, want.kl));
        local = fmax(local, relative(out[i].local, want.local));
    }
    CHECK(kl <= 1e-9 && local <= 1e-12, "%s, %s: KL differs by %g, local by %g",
          m->arch->name, kv_type, kl, local);
    printf("%s, %s, %s: %d variants, largest relative difference of KL %.2g, of local %.2g\n",
           m->arch->name, kv_type, selector, n, kl, local);
    free(ref.logits);
    rkv_session_free(s);
}

/* Noise is not rounded to the type of the cache: in f16 it stays close to that in f32. */
static void check_close(const rkv_model *m)
{
    rkv_error e = {0};
    rkv_variant v[MOST];
    rkv_outcome a[MOST], b[MOST];
    const rkv_policy p = bed_policy("snapkv", WINDOW);
    const rkv_walk_options o = {.policy = &p};
    rkv_session *s = prompt(m, "f32", 2), *t = prompt(m, "f16", 2);
    const int n = all_variants(m, v);
    must(rkv_walk_run(a, s, ids + N, T, v, n, &o, &e), &e);
    must(rkv_walk_run(b, t, ids + N, T, v, n, &o, &e), &e);
    double worst = 0.0;
    for (int i = 0; i < n; i++)
        if (!v[i].what->selects)
            worst = fmax(worst, relative(b[i].kl, a[i].kl));
    CHECK(worst > 0.0 && worst < 0.05, "%s: f16 moves a KL by %g", m->arch->name, worst);
    rkv_session_free(s);
    rkv_session_free(t);
}

/* ---- the same bits ---- */

typedef struct groups {         /* what done() was told */
    int next, calls, stop_at;
} groups;

static int finished(void *ctx, int first, int n)
{
    groups *g = ctx;
    CHECK(first == g->next && n > 0, "variants from %d, expected %d", first, g->next);
    g->next = first + n;
    return ++g->calls == g->stop_at;
}

enum { GRID = 3 };
static const double grid[GRID] = {0.1, 0.3, 0.62};

typedef struct result {
    rkv_outcome out[MOST];
    double error[512];
    int n, n_error;
} result;

static result run(const rkv_model *m, int n_thread, int n_chunk, int batch_rows)
{
    rkv_error e = {0};
    rkv_variant v[MOST];
    result r = {.n = all_variants(m, v)};
    groups g = {0};
    const rkv_policy p = bed_policy("h2o", WINDOW);
    const rkv_walk_options o = {.policy = &p, .batch_rows = batch_rows, .grid = grid,
                                .n_grid = GRID, .error = r.error, .done = finished, .ctx = &g};
    rkv_session *s = prompt(m, "f16", n_thread);
    s->o.n_chunk = n_chunk;
    must(rkv_walk_run(r.out, s, ids + N, T, v, r.n, &o, &e), &e);
    const int per = batch_rows / T - 1 < 1 ? 1 : batch_rows / T - 1;
    CHECK(g.next == r.n && g.calls == (batch_rows ? (r.n + per - 1) / per : 1), "%d calls",
          g.calls);
    r.n_error = m->config.n_layer * m->config.n_kv_head * GRID;
    rkv_session_free(s);
    return r;
}

static int equal(const result *a, const result *b)
{
    return a->n == b->n && !memcmp(a->out, b->out, (size_t)a->n * sizeof *a->out) &&
           !memcmp(a->error, b->error, (size_t)a->n_error * sizeof *a->error);
}

static void check_bits(const rkv_model *m)
{
    static const int how[][3] = {{2, 256, 0}, {3, 24, 0}, {1, 7, 0}, {2, 256, 1}, {1, 40, 2 * T},
                                 {2, 256, 5 * T - 1}, {1, 256, 9 * T}, {2, 100, 1 << 20}};
    const result want = run(m, 1, 256, 0);
    for (size_t i = 0; i < sizeof how / sizeof *how; i++) {
        const result got = run(m, how[i][0], how[i][1], how[i][2]);
        CHECK(equal(&got, &want), "%s: %d threads, chunks of %d, batches of %d rows",
              m->arch->name, how[i][0], how[i][1], how[i][2]);
    }
}

/* Any subset of the variants, as after an interruption; and errors without variants. */
static void check_subset(const rkv_model *m)
{
    rkv_error e = {0};
    rkv_variant v[MOST], some[MOST];
    rkv_outcome out[MOST];
    double error[512];
    const result want = run(m, 1, 256, 0);
    const rkv_policy p = bed_policy("h2o", WINDOW);
    rkv_walk_options o = {.policy = &p, .batch_rows = 4 * T};
    rkv_session *s = prompt(m, "f16", 2);
    const int n = all_variants(m, v);
    int n_some = 0;
    for (int i = 2; i < n; i += 3)
        some[n_some++] = v[i];
    must(rkv_walk_run(out, s, ids + N, T, some, n_some, &o, &e), &e);
    for (int i = 0; i < n_some; i++)
        CHECK(!memcmp(&out[i], &want.out[2 + 3 * i], sizeof *out), "variant %d", 2 + 3 * i);
    o = (rkv_walk_options){.policy = &p, .grid = grid, .n_grid = GRID, .error = error};
    must(rkv_walk_run(NULL, s, ids + N, T, NULL, 0, &o, &e), &e);
    CHECK(!memcmp(error, want.error, (size_t)want.n_error * sizeof *error), "errors alone");
    o.error = NULL;
    CHECK(rkv_walk_run(NULL, s, ids + N, T, NULL, 0, &o, &e) == RKV_OK, "nothing at all");
    rkv_session_free(s);
}

/* Walks in step: other prompts, other lengths, other numbers of passes. */
static void check_joint(const rkv_model *m)
{
    enum { WALKS = 3 };
    static const int first[WALKS] = {0, 5, 40}, length[WALKS] = {N, 77, 110},
                     n_fed[WALKS] = {T, 9, 3}, n_skip[WALKS] = {0, 4, 1000},
                     batch[WALKS] = {7 * T, 0, 10};
    static result one[WALKS], all[WALKS];
    rkv_error e = {0};
    rkv_variant v[MOST];
    rkv_walk walk[WALKS];
    rkv_walk_options o[WALKS];
    const rkv_policy p = bed_policy("observed", WINDOW);
    const int n = all_variants(m, v), n_error = m->config.n_layer * m->config.n_kv_head * GRID;
    for (int i = 0; i < WALKS; i++) {
        rkv_session *s = bed_session(m, "f16", 1 + i % 2, ids + first[i], length[i], T, WINDOW);
        const int skip = n_skip[i] < n ? n_skip[i] : n;
        o[i] = (rkv_walk_options){.example = i, .policy = &p, .batch_rows = batch[i], .grid = grid,
                                  .n_grid = GRID, .error = one[i].error};
        walk[i] = (rkv_walk){one[i].out, s, ids + first[i] + length[i], n_fed[i], v + skip,
                             n - skip, &o[i]};
        must(rkv_walks_run(&walk[i], 1, &e), &e);
        o[i].error = all[i].error;
        walk[i].out = all[i].out;
    }
    must(rkv_walks_run(walk, WALKS, &e), &e);
    for (int i = 0; i < WALKS; i++) {
        one[i].n = all[i].n = walk[i].n_variant;
        one[i].n_error = all[i].n_error = n_error;
        CHECK(equal(&one[i], &all[i]), "%s: walk %d in step", m->arch->name, i);
        rkv_session_free((rkv_session *)walk[i].s);
    }
}

/* Bytes of some walks together: planned against counted. */
static void check_bytes(const rkv_model *m)
{
    enum { WALKS = 3 };
    static const struct {
        int selects, variants, errors, batch_rows, n_fed, n_walk, n_thread;
    } cases[] = {
        {1, 1, 1, 0, T, 1, 1}, {0, 1, 0, 0, T, 1, 2}, {1, 1, 0, 3 * T, 5, 2, 1},
        {1, 0, 1, 0, T, 3, 2}, {1, 1, 1, 1, T, 3, 1}, {0, 1, 0, 40, 1, 2, 3},
    };
    static result r[WALKS];
    const rkv_policy p = bed_policy("h2o", WINDOW);
    rkv_error e = {0};
    rkv_variant v[MOST];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rkv_session *s = prompt(m, "f16", cases[i].n_thread);
        const int all = cases[i].variants ? all_variants(m, v) : 0;
        int n = 0;
        for (int j = 0; j < all; j++)
            if (cases[i].selects || !v[j].what->selects)
                v[n++] = v[j];
        const rkv_walk_shape shape = {N, cases[i].n_fed, n, cases[i].batch_rows,
                                      cases[i].selects ? &p : NULL, cases[i].errors ? GRID : 0};
        rkv_walk_options o[WALKS];
        rkv_walk walk[WALKS];
        for (int j = 0; j < cases[i].n_walk; j++) {
            o[j] = (rkv_walk_options){.policy = &p, .batch_rows = cases[i].batch_rows, .grid = grid,
                                      .n_grid = GRID, .error = cases[i].errors ? r[j].error : NULL};
            walk[j] = (rkv_walk){r[j].out, s, ids + N, cases[i].n_fed, v, n, &o[j]};
        }
        const uint64_t planned = rkv_walks_bytes(s, &shape, cases[i].n_walk);
        const uint64_t before = rkv_mem_current();
        rkv_mem_peak_reset();
        must(rkv_walks_run(walk, cases[i].n_walk, &e), &e);
        CHECK(planned == rkv_mem_peak() - before, "%s, case %zu: planned %llu bytes, took %llu",
              m->arch->name, i, (unsigned long long)planned,
              (unsigned long long)(rkv_mem_peak() - before));
        rkv_session_free(s);
    }
}

/* A prompt that is edited in several segments, whose first kept slot lies inside a tile. */
static void check_long(const rkv_model *m, const char *kv_type)
{
    rkv_error e = {0};
    int32_t keep[LONG];
    int inside = 0;
    rkv_session *s = bed_session(m, kv_type, 2, ids, LONG, T, WINDOW), *plain;
    const rkv_policy p = bed_policy("observed", WINDOW);
    const rkv_walk_options o = {.policy = &p};
    const int last = m->config.n_layer - 1;
    for (int h = 0; h < m->config.n_kv_head; h++)       /* nobody looked at the first */
        memset(rkv_session_seen_mass(s, last, LONG) + h * LONG, 0, 5 * sizeof(float));
    rkv_variant v[MOST];
    rkv_outcome out[MOST];
    int n = 0;
    for (int i = 0; i < 2 * m->config.n_kv_head; i++, n++) {
        v[i] = (rkv_variant){rkv_perturb_find("drop"), last, i / 2, 0, i % 2 ? 0.8 : 0.97};
        bed_kept(s, &p, v[i].amount, last, i / 2, keep);
        inside += keep[0] % RKV_ATTN_TILE != 0;
    }
    if (!strcmp(kv_type, "f32"))
        v[n++] = (rkv_variant){rkv_perturb_find("noise_kv"), last, -1, 1, 0.5};
    must(rkv_walk_run(out, s, ids + LONG, T, v, n, &o, &e), &e);
    must(rkv_session_fork(&plain, s, &e), &e);
    const bed_rows ref = bed_logits(plain, ids + LONG, T);
    for (int i = 0; i < n; i++) {
        const rkv_outcome want = slow(s, &v[i], &o, ids + LONG, &ref);
        CHECK(want.kl > 0.0 && relative(out[i].kl, want.kl) <= 1e-8 &&
                  relative(out[i].local, want.local) <= 1e-12,
              "variant %d: KL %g, expected %g; local %g, expected %g", i, out[i].kl, want.kl,
              out[i].local, want.local);
    }
    CHECK(inside == 2 * m->config.n_kv_head, "%s: a head keeps its first slot", kv_type);
    free(ref.logits);
    rkv_session_free(s);
}

/* ---- errors ---- */

static void check_arguments(const rkv_model *m)
{
    const rkv_perturb *noise = rkv_perturb_find("noise_v"), *drop = rkv_perturb_find("drop");
    const struct {
        rkv_variant v[2];
        const char *selector, *text;
    } bad[] = {
        {{{noise, 3, -1, 0, 0.5}, {noise, 1, -1, 0, 0.5}}, "snapkv", "the one before it"},
        {{{noise, 0, -1, 0, 0.5}, {noise, 1, -1, 0, 0.5}}, "snapkv", "does not slide"},
        {{{noise, 1, -1, 0, 0.5}, {noise, 4, -1, 0, 0.5}}, "snapkv", "layer 4"},
        {{{noise, 1, -1, 0, 0.5}, {noise, 1, 2, 0, 0.5}}, "snapkv", "KV head 2"},
        {{{noise, 1, -1, 0, 0.5}, {noise, 1, -1, 0, 0.0}}, "snapkv", "noise_v of 0"},
        {{{noise, 1, -1, 0, 0.5}, {drop, 1, -1, 0, 1.5}}, "snapkv", "at most 1"},
        {{{noise, 1, -1, 0, 0.5}, {drop, 1, -1, 0, 0.5}}, "full", "drops nothing"},
    };
    rkv_error e = {0};
    rkv_outcome out[2];
    rkv_session *s = prompt(m, "f16", 1), *blind;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const rkv_policy p = bed_policy(bad[i].selector, WINDOW);
        const rkv_walk_options o = {.policy = &p};
        CHECK(rkv_walk_run(out, s, ids + N, T, bad[i].v, 2, &o, &e) == RKV_E_ARG &&
                  strstr(e.text, bad[i].text), "%zu: %s", i, e.text);
    }
    CHECK(!rkv_perturb_find("nois") && !strcmp(noise->name, "noise_v"), "names");
    rkv_session_options so = rkv_session_options_default();
    must(rkv_session_create(&blind, m, &so, &e), &e);
    must(rkv_session_prefill(blind, ids, N, &e), &e);
    static const char *const selectors[] = {"snapkv", "h2o"};
    for (int i = 0; i < 2; i++) {
        const rkv_policy p = bed_policy(selectors[i], WINDOW);
        const rkv_walk_options o = {.policy = &p};
        CHECK(rkv_walk_run(out, blind, ids + N, T, bad[6].v, 2, &o, &e) == RKV_E_ARG &&
                  strstr(e.text, "RKV_OBSERVE_"), "%s: %s", selectors[i], e.text);
        CHECK(rkv_walk_run(out, blind, ids + N, T, bad[6].v, 1, &o, &e) == RKV_OK, "noise: %s",
              e.text);
    }
    rkv_session_free(blind);
    rkv_session_free(s);
}

static int cancel(void *ctx, const char *phase, int64_t done, int64_t total)
{
    int *left = ctx;
    CHECK(!strcmp(phase, "sweep") && done > 0 && done <= total, "%s %d of %d", phase, (int)done,
          (int)total);
    return --*left == 0;
}

static void check_interrupted(const rkv_model *m)
{
    rkv_error e = {0};
    rkv_variant v[MOST];
    const int n = all_variants(m, v);
    rkv_outcome out[MOST];
    double error[512];
    groups g = {.stop_at = 2};
    const rkv_policy p = bed_policy("snapkv", WINDOW);
    const rkv_walk_options o = {.policy = &p, .batch_rows = 6 * T, .grid = grid, .n_grid = GRID,
                                .error = error, .done = finished, .ctx = &g};
    rkv_session *s = prompt(m, "f16", 2);
    const uint64_t before = rkv_mem_current();
    CHECK(rkv_walk_run(out, s, ids + N, T, v, n, &o, &e) == RKV_E_CANCELLED && g.next == 10,
          "after %d variants: %s", g.next, e.text);
    s->o.progress = cancel;
    for (int k = 1; k < 8; k += 3) {
        int left = k;
        s->o.progress_ctx = &left;
        g = (groups){0};
        CHECK(rkv_walk_run(out, s, ids + N, T, v, n, &o, &e) == RKV_E_CANCELLED, "%s", e.text);
    }
    s->o.progress = NULL;
    int k = 0;
    for (rkv_status st = RKV_E_MEM; st; k++) {
        g = (groups){0};
        rkv_mem_fail_after(k + 1);
        st = rkv_walk_run(out, s, ids + N, T, v, n, &o, &e);
        rkv_mem_fail_after(0);
        CHECK(!st || st == RKV_E_MEM, "allocation %d: %s", k, e.text);
    }
    CHECK(k > 20 && rkv_mem_current() == before, "%d allocations", k);
    rkv_session_free(s);
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

static void check_family(const tiny_options *t)
{
    rkv_model *m = made_model(t);
    made_ids(ids, LONG + T, t->n_vocab, 11);
    check_slow(m, "f32", "snapkv", 1);
    check_slow(m, "f16", "h2o", 0);
    check_slow(m, "q8_0", "observed", 0);
    check_close(m);
    check_bits(m);
    check_joint(m);
    check_bytes(m);
    rkv_model_free(m);
}

int main(void)
{
    check_kl();
    static const char *const families[] = {"llama", "qwen2", "qwen3"};
    for (int i = 0; i < 3; i++) {
        tiny_options t = tiny_defaults();
        t.family = families[i];
        t.type = "f16";
        t.n_layer = 3;
        t.d_head = 32;
        t.n_head = i == 1 ? 2 : 6;
        check_family(&t);
    }
    tiny_options t = tiny_defaults();
    t.family = "gemma3";
    t.n_layer = 4;
    t.window = 50;
    t.pattern = 2;
    t.d_head = 32;
    check_family(&t);
    rkv_model *m = made_model(&t);
    check_long(m, "f32");
    check_long(m, "q8_0");
    check_subset(m);
    check_arguments(m);
    check_interrupted(m);
    rkv_model_free(m);
    static const char *const paths[] = {"bf16", "int16"};
    for (int i = 0; i < 2; i++) {
        setenv("RKV_GEMM", paths[i], 1);
        t.n_layer = 2;
        check_family(&t);
    }
    return check_end("walk");
}

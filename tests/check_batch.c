/* Sessions that decode together: each gets the bits it would have got by itself, whoever is beside
 * it, and all are as they were when the call fails. */
#include "config.h"
#include "made.h"

#include "base/mem.h"
#include "engine/session.h"

enum { N = 300, STEPS = 24, LONG = 280, KINDS = 7 };

/* Sessions that differ in what may differ: one without a past, one of several chunks of slots. */
static const struct kind {
    int n_prompt;
    const char *k_type, *v_type, *budget;
    int observe;
} kinds[KINDS] = {
    {0, "f16", "f16", NULL, 0},       {5, "f16", "f16", NULL, 0},
    {N, "q8_0", "q8_0", "40%", 0},    {130, "q8_0", "f16", NULL, 0},
    {N, "f16", "f16", NULL, 0},       {70, "f32", "q4_0", "36", 1},
    {1, "bf16", "q8_0", NULL, 0},
};

static int32_t ids[N + LONG];
static rkv_error e;

static void must(rkv_status s)
{
    if (s) {
        fprintf(stderr, "unexpected: %s\n", e.text);
        exit(1);
    }
}

static rkv_session *make(const rkv_model *m, int kind, int n_thread)
{
    rkv_session_options o = rkv_session_options_default();
    rkv_session *s = NULL;
    o.k_type = kinds[kind].k_type;
    o.v_type = kinds[kind].v_type;
    o.observe = kinds[kind].observe;
    o.n_thread = n_thread;
    if (kinds[kind].budget) {
        must(rkv_policy_set_name(&o.policy, "snapkv", &e));
        must(rkv_policy_set_budget(&o.policy, kinds[kind].budget, &e));
    }
    must(rkv_session_create(&s, m, &o, &e));
    if (kinds[kind].n_prompt)
        must(rkv_session_prefill(s, ids, (size_t)kinds[kind].n_prompt, &e));
    return s;
}

/* ---- equal bits ---- */

typedef struct alone {          /* logits of every kind, decoding by itself: [n_step][n_vocab] */
    int n_step, n_vocab;
    float *logits[KINDS];
} alone;

static alone decode_alone(const rkv_model *m, int n_step)
{
    alone a = {n_step, rkv_model_get_info(m)->n_vocab, {NULL}};
    const size_t row = (size_t)a.n_vocab;
    for (int k = 0; k < KINDS; k++) {
        rkv_session *s = make(m, k, 1);
        a.logits[k] = malloc((size_t)n_step * row * sizeof(float));
        for (int i = 0; i < n_step; i++) {
            must(rkv_session_decode(s, ids[N + i], &e));
            memcpy(a.logits[k] + (size_t)i * row, rkv_session_logits(s), row * sizeof(float));
        }
        rkv_session_free(s);
    }
    return a;
}

static void alone_free(alone *a)
{
    for (int k = 0; k < KINDS; k++)
        free(a->logits[k]);
}

static int is_step(const alone *a, int kind, int step, const rkv_session *s)
{
    return rkv_session_n_past(s) == kinds[kind].n_prompt + step + 1 &&
           !memcmp(rkv_session_logits(s), a->logits[kind] + (size_t)step * (size_t)a->n_vocab,
                   (size_t)a->n_vocab * sizeof(float));
}

/* n sessions, of the kinds from `first` on. */
static void check_together(const rkv_model *m, const alone *want, int n, int first, int n_thread)
{
    rkv_session *s[KINDS];
    int32_t id[KINDS];
    int wrong = 0;
    for (int i = 0; i < n; i++)
        s[i] = make(m, (first + i) % KINDS, n_thread);
    for (int step = 0; step < want->n_step; step++) {
        for (int i = 0; i < n; i++)
            id[i] = ids[N + step];
        must(rkv_sessions_decode(s, id, (size_t)n, &e));
        for (int i = 0; i < n; i++)
            wrong += !is_step(want, (first + i) % KINDS, step, s[i]);
    }
    CHECK(!wrong, "%d sessions from kind %d on, %d threads: %d rows of logits differ", n, first,
          n_thread, wrong);
    for (int i = 0; i < n; i++)
        rkv_session_free(s[i]);
}

/* Sessions join and leave, so that their steps differ, and each is first in its turn. */
static void check_coming_and_going(const rkv_model *m, const alone *want)
{
    rkv_session *s[KINDS], *batch[KINDS];
    int step[KINDS] = {0}, of[KINDS], wrong = 0;
    int32_t id[KINDS];
    for (int k = 0; k < KINDS; k++)
        s[k] = make(m, k, 1 + k % 2);
    for (unsigned turn = 1; turn < 2 * STEPS; turn++) {
        int n = 0;
        for (int i = 0; i < KINDS; i++) {
            const int k = (i + (int)turn) % KINDS;
            if (!((turn * 37u >> k) & 1u) || step[k] == want->n_step)
                continue;
            batch[n] = s[k];
            of[n] = k;
            id[n++] = ids[N + step[k]++];
        }
        if (!n)
            continue;
        must(rkv_sessions_decode(batch, id, (size_t)n, &e));
        for (int i = 0; i < n; i++)
            wrong += !is_step(want, of[i], step[of[i]] - 1, batch[i]);
    }
    CHECK(!wrong, "%d rows of logits differ", wrong);
    for (int k = 0; k < KINDS; k++) {
        CHECK(step[k] > STEPS / 2, "kind %d: %d steps only", k, step[k]);
        rkv_session_free(s[k]);
    }
}

/* ---- failures ---- */

typedef struct state {          /* all that the public getters show */
    int64_t n_past;
    rkv_kv_info kv;
    uint64_t kept, budgets, logits;     /* digests */
} state;

static uint64_t digest(uint64_t h, const void *p, size_t n)
{
    for (const unsigned char *b = p; n--; b++)
        h = (h ^ *b) * 1099511628211u;
    return h;
}

static state look(const rkv_session *s, const rkv_model_info *info)
{
    state t;
    memset(&t, 0, sizeof t);
    t.n_past = rkv_session_n_past(s);
    t.kv = rkv_session_kv_info(s);
    for (int l = 0; l < info->n_layer; l++) {
        for (int h = 0; h < info->n_kv_head; h++) {
            const int32_t *pos;
            const int n = rkv_session_kept(s, l, h, &pos);
            const int budget = rkv_session_head_budget(s, l, h);
            t.budgets = digest(t.budgets, &budget, sizeof budget);
            t.kept = digest(digest(t.kept, &n, sizeof n), pos, (size_t)n * sizeof *pos);
        }
    }
    if (rkv_session_logits(s))
        t.logits = digest(1, rkv_session_logits(s), (size_t)info->n_vocab * sizeof(float));
    return t;
}

static int same_state(const state *a, const state *b)
{
    return a->n_past == b->n_past && a->kept == b->kept && a->budgets == b->budgets &&
           a->logits == b->logits && a->kv.bytes == b->kv.bytes &&
           a->kv.bytes_full == b->kv.bytes_full && a->kv.n_prompt == b->kv.n_prompt &&
           a->kv.n_kept == b->kv.n_kept && a->kv.cap == b->kv.cap;
}

/* No free slot in any head, so that the next token needs memory in every layer, or drops what a
 * sliding layer no longer sees. */
static void fill_up(rkv_session *s)
{
    static int32_t all[N];
    for (int i = 0; i < N; i++)
        all[i] = i;
    for (int l = 0; l < s->m->config.n_layer; l++)
        for (int h = 0; h < s->m->config.n_kv_head; h++) {
            const int n = rkv_kv_at(s->kv, l, h)->n_slot;
            if (n)
                must(rkv_kv_compact(s->kv, l, h, all, n, n, &e));
        }
}

enum { TWO_EMPTY = 5 };
static const int mixed[TWO_EMPTY] = {2, 0, 4, 0, 5}; /* two of the kind without a past */

static rkv_session *base[TWO_EMPTY];    /* of the model at work: forks are cheaper than prompts */

static void make_mixed(const rkv_model *m, rkv_session **s)
{
    for (int i = 0; i < TWO_EMPTY; i++) {
        if (kinds[mixed[i]].n_prompt)
            must(rkv_session_fork(&s[i], base[i], &e));
        else
            s[i] = make(m, mixed[i], 1);
        fill_up(s[i]);
    }
}

static void free_mixed(rkv_session **s)
{
    for (int i = 0; i < TWO_EMPTY; i++)
        rkv_session_free(s[i]);
}

static void check_unchanged(rkv_session **s, const state *before, const rkv_model_info *info,
                            const char *what, int k)
{
    for (int i = 0; i < TWO_EMPTY; i++) {
        const state now = look(s[i], info);
        CHECK(same_state(&before[i], &now), "%s %d: session #%d has changed", what, k, i);
    }
}

/* Each allocation fails once; the same sessions then decode as if nothing had been. */
static void check_no_memory(const rkv_model *m, const alone *want)
{
    const rkv_model_info *info = rkv_model_get_info(m);
    const uint64_t start = rkv_mem_current();
    int32_t id[TWO_EMPTY];
    int k = 0;
    for (int i = 0; i < TWO_EMPTY; i++)
        id[i] = ids[N];
    for (rkv_status status = RKV_E_MEM; status;) {
        rkv_session *s[TWO_EMPTY];
        state before[TWO_EMPTY];
        make_mixed(m, s);
        for (int i = 0; i < TWO_EMPTY; i++)
            before[i] = look(s[i], info);
        rkv_mem_fail_after(++k);
        status = rkv_sessions_decode(s, id, TWO_EMPTY, &e);
        rkv_mem_fail_after(0);
        if (status) {
            CHECK(status == RKV_E_MEM, "allocation %d: %s", k, e.text);
            check_unchanged(s, before, info, "allocation", k);
            must(rkv_sessions_decode(s, id, TWO_EMPTY, &e));
        }
        for (int i = 0; i < TWO_EMPTY; i++)
            CHECK(is_step(want, mixed[i], 0, s[i]), "allocation %d: session #%d", k, i);
        free_mixed(s);
        CHECK(rkv_mem_current() == start, "allocation %d leaks", k);
    }
    CHECK(k > 40, "only %d allocations", k);
}

/* ---- the same text in several sessions ---- */

enum { TEXT = 19, FROM = 4, WITH_PAST = KINDS - 1 };

typedef struct rows {           /* that a text's scoring hands out */
    uint64_t digest;
    int64_t next;
    int left, n_vocab;          /* calls until it interrupts */
} rows;

static int take_rows(void *ctx, int64_t i0, int n_row, const float *logits)
{
    rows *r = ctx;
    r->digest = digest(r->digest, logits,
                       (size_t)n_row * (size_t)r->n_vocab * sizeof *logits);
    r->next = i0 == r->next ? i0 + n_row : -1;
    return --r->left < 0;
}

static rows new_rows(int n_vocab, int left)
{
    return (rows){.next = FROM, .left = left, .n_vocab = n_vocab};
}

/* All kinds with a past, from the first of them or in reverse: rows and states as one by one. */
static void check_scored(const rkv_model *m, int n_thread, int reverse)
{
    const rkv_model_info *info = rkv_model_get_info(m);
    rkv_session *s[WITH_PAST];
    rows got[WITH_PAST];
    void *ctx[WITH_PAST];
    int of[WITH_PAST];
    for (int i = 0; i < WITH_PAST; i++) {
        of[i] = 1 + (reverse ? WITH_PAST - 1 - i : i);
        s[i] = make(m, of[i], n_thread);
        got[i] = new_rows(info->n_vocab, 1 << 20);
        ctx[i] = &got[i];
    }
    must(rkv_sessions_score(s, WITH_PAST, ids + N, TEXT, FROM, take_rows, ctx, &e));
    for (int i = 0; i < WITH_PAST; i++) {
        rkv_session *one = make(m, of[i], 1);
        rows want = new_rows(info->n_vocab, 1 << 20);
        must(rkv_session_score(one, ids + N, TEXT, FROM, take_rows, &want, &e));
        const state a = look(one, info), b = look(s[i], info);
        CHECK(got[i].digest == want.digest && got[i].next == TEXT && want.next == TEXT,
              "kind %d: other rows than alone", of[i]);
        CHECK(same_state(&a, &b), "kind %d: another state than alone", of[i]);
        rkv_session_free(one);
        rkv_session_free(s[i]);
    }
}

/* Interrupted at each row, without memory, and refused: nothing changes. */
static void check_score_fails(const rkv_model *m)
{
    const rkv_model_info *info = rkv_model_get_info(m);
    rkv_session *s[] = {make(m, 3, 1), make(m, 5, 1)}, *empty = make(m, 0, 1);
    const state before[] = {look(s[0], info), look(s[1], info)};
    rows r[2];
    void *ctx[] = {&r[0], &r[1]};
    int k = 0;
    for (rkv_status status = RKV_E_MEM; status; k++) {
        r[0] = r[1] = new_rows(info->n_vocab, 1 << 20);
        rkv_session *f[2];
        must(rkv_session_fork(&f[0], s[0], &e));
        must(rkv_session_fork(&f[1], s[1], &e));
        rkv_mem_fail_after(k + 1);
        status = rkv_sessions_score(f, 2, ids, TEXT, FROM, take_rows, ctx, &e);
        rkv_mem_fail_after(0);
        for (int i = 0; i < 2 && status; i++) {
            const state now = look(f[i], info);
            CHECK(status == RKV_E_MEM && same_state(&before[i], &now),
                  "allocation %d: %s, session #%d", k, e.text, i);
        }
        rkv_session_free(f[0]);
        rkv_session_free(f[1]);
    }
    CHECK(k > 10, "only %d allocations", k);
    for (int i = 0; i < 2; i++) {
        r[0] = r[1] = new_rows(info->n_vocab, 1 << 20);
        r[i].left = 0;
        CHECK(rkv_sessions_score(s, 2, ids, TEXT, FROM, take_rows, ctx, &e) == RKV_E_CANCELLED,
              "%s", e.text);
    }
    rkv_session *twice[] = {s[0], s[0]}, *without[] = {s[0], empty};
    CHECK(rkv_sessions_score(s, 2, ids, TEXT, 0, NULL, ctx, &e) == RKV_E_ARG, "no function");
    CHECK(rkv_sessions_score(s, 0, ids, TEXT, 0, take_rows, ctx, &e) == RKV_E_ARG, "of none");
    CHECK(rkv_sessions_score(twice, 2, ids, TEXT, 0, take_rows, ctx, &e) == RKV_E_ARG, "twice");
    CHECK(rkv_sessions_score(without, 2, ids, TEXT, 0, take_rows, ctx, &e) == RKV_E_ARG &&
              strstr(e.text, "#1 has no prompt"), "%s", e.text);
    CHECK(rkv_sessions_score(s, 2, ids, TEXT, TEXT + 1, take_rows, ctx, &e) == RKV_E_ARG &&
              strstr(e.text, "from row 20"), "%s", e.text);
    for (int i = 0; i < 2; i++) {
        const state now = look(s[i], info);
        CHECK(same_state(&before[i], &now), "session #%d has changed", i);
        rkv_session_free(s[i]);
    }
    rkv_session_free(empty);
}

static int stop_at(void *ctx, const char *phase, int64_t done, int64_t total)
{
    (void)phase, (void)done, (void)total;
    return --*(int *)ctx < 0;
}

/* The prompt of the last empty session is stopped: the first one's is undone. */
static void check_stopped(const rkv_model *m)
{
    const rkv_model_info *info = rkv_model_get_info(m);
    rkv_session *s[TWO_EMPTY];
    state before[TWO_EMPTY];
    int32_t id[TWO_EMPTY];
    int left = 0;
    make_mixed(m, s);
    rkv_session_free(s[3]);
    rkv_session_options o = rkv_session_options_default();
    o.progress = stop_at;
    o.progress_ctx = &left;
    must(rkv_session_create(&s[3], m, &o, &e));
    for (int i = 0; i < TWO_EMPTY; i++) {
        id[i] = ids[i];
        before[i] = look(s[i], info);
    }
    CHECK(rkv_sessions_decode(s, id, TWO_EMPTY, &e) == RKV_E_CANCELLED &&
              strstr(e.text, "session #3: interrupted"),
          "%s", e.text);
    check_unchanged(s, before, info, "stop", 0);
    left = 1000;
    must(rkv_sessions_decode(s, id, TWO_EMPTY, &e));
    free_mixed(s);
}

static void check_refusals(const rkv_model *m, const rkv_model *other)
{
    const rkv_model_info *info = rkv_model_get_info(m);
    rkv_session *s[TWO_EMPTY], *given[3];
    state before[TWO_EMPTY];
    make_mixed(m, s);
    for (int i = 0; i < TWO_EMPTY; i++)
        before[i] = look(s[i], info);
    rkv_session *foreign = make(other, 1, 1);
    rkv_session_options o = rkv_session_options_default();
    o.n_ctx = 3;
    rkv_session *full = NULL;
    must(rkv_session_create(&full, m, &o, &e));
    must(rkv_session_prefill(full, ids, 3, &e));
    const struct {
        rkv_session *third;
        size_t n;
        int32_t id;
        const char *text;
    } bad[] = {
        {s[2], 0, 1, "decode of 0 sessions"},
        {s[2], 1025, 1, "decode of 1025 sessions, expected 1 to 1024"},
        {s[1], 3, 1, "sessions #1 and #2 are the same"},
        {s[0], 3, 1, "sessions #0 and #2 are the same"},
        {foreign, 3, 1, "sessions #0 and #2 are of different models"},
        {s[2], 3, -1, "session #2: token id #0 is -1"},
        {s[2], 3, info->n_vocab, "session #2: token id #0 is"},
        {full, 3, 1, "session #2: 1 tokens do not fit: 3 of a context of 3"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const int32_t id[] = {1, 2, bad[i].id};
        given[0] = s[0], given[1] = s[1], given[2] = bad[i].third;
        CHECK(rkv_sessions_decode(given, id, bad[i].n, &e) == RKV_E_ARG &&
                  e.status == RKV_E_ARG && strstr(e.text, bad[i].text),
              "%s, expected %s", e.text, bad[i].text);
        CHECK(rkv_sessions_decode(given, id, bad[i].n, NULL) == RKV_E_ARG, "without a text");
    }
    check_unchanged(s, before, info, "refusals", 0);
    CHECK(rkv_session_n_past(foreign) == 5 && rkv_session_n_past(full) == 3, "the others");
    free_mixed(s);
    rkv_session_free(foreign);
    rkv_session_free(full);
}

static void check_family(const tiny_options *t, int n_step)
{
    static const int sizes[] = {1, 2, 3, KINDS};
    rkv_model *m = made_model(t);
    made_ids(ids, N + LONG, rkv_model_get_info(m)->n_vocab, 11);
    alone want = decode_alone(m, n_step);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int n_thread = 1; n_thread <= 2; n_thread++) {
            check_together(m, &want, sizes[i], 0, n_thread);
            check_together(m, &want, sizes[i], 4, n_thread);
        }
    check_coming_and_going(m, &want);
    for (int i = 0; i < TWO_EMPTY; i++)
        base[i] = make(m, mixed[i], 1);
    check_no_memory(m, &want);
    check_stopped(m);
    check_scored(m, 1, 0);
    check_scored(m, 2, 1);
    check_score_fails(m);
    rkv_model *other = made_model(t);
    check_refusals(m, other);
    rkv_model_free(other);
    free_mixed(base);
    alone_free(&want);
    rkv_model_free(m);
}

int main(void)
{
    static const struct {
        const char *family, *type;
        int n_layer, n_step;
        const char *tier;
    } models[] = {
        {"llama", "mixed", 2, STEPS, NULL},
        {"qwen2", "q8_0", 2, STEPS, NULL},
        {"qwen3", "f16", 2, STEPS, NULL},
        /* beyond RKV_SLIDING_ROOM: old slots are dropped on the way */
        {"gemma3", "mixed", 4, LONG, NULL},
        {"llama", "all", 2, STEPS, "ref"},
    };
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        tiny_options t = tiny_defaults();
        t.family = models[i].family;
        t.type = models[i].type;
        t.n_layer = models[i].n_layer;
        t.d_head = 32;
        t.d_model = t.n_head * t.d_head;
        t.d_ff = 256;
        if (!strcmp(t.family, "gemma3")) {
            t.window = 50;
            t.pattern = 2;
            t.tied = 1;
        }
        if (models[i].tier)
            setenv("RKV_CPU", models[i].tier, 1);
        check_family(&t, models[i].n_step);
    }
    return check_end("batch");
}

/* Making, copying and describing sessions. */
#include "config.h"
#include "engine/evict.h"
#include "engine/query_stats.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/thread.h"

rkv_session_options rkv_session_options_default(void)
{
    return (rkv_session_options){.n_chunk = 256, .k_type = "f16", .v_type = "f16",
                                 .policy = rkv_policy_default(), .decode_interval = 64};
}

static rkv_status kv_type(rkv_dtype *out, const char *name, const rkv_model *m, const char *what,
                          rkv_error *e)
{
    const rkv_dtype t = rkv_dtype_from_name(name ? name : "f16");
    const rkv_ops *ops = &m->backend.ops;
    if (t == RKV_DT_COUNT || !ops->pack[t] || !ops->kv_score[t] || !ops->kv_mix[t])
        return rkv_fail(e, RKV_E_ARG, "%s '%.40s': expected f16, f32, bf16, q8_0 or q4_0", what,
                        name);
    if (m->config.d_head % rkv_dtype_get(t)->block_len)
        return rkv_fail(e, RKV_E_ARG,
                        "%s '%s': heads of %d numbers cannot be stored in blocks of %d", what, name,
                        m->config.d_head, rkv_dtype_get(t)->block_len);
    *out = t;
    return RKV_OK;
}

static rkv_status check_options(rkv_session *s, rkv_error *e)
{
    enum { MAX_THREAD = 1024, MAX_CHUNK = 1 << 16 };
    rkv_session_options *o = &s->o;
    if (o->n_ctx == 0)
        o->n_ctx = s->m->config.n_ctx_train;
    if (o->n_ctx > s->m->config.n_ctx_most && s->m->config.n_ctx_most < RKV_MAX_CTX)
        return rkv_fail(e, RKV_E_UNSUPPORTED,
                        "context of %d tokens: the model's layers have a sliding window of %d, "
                        "which this version follows only by a context of at most that",
                        o->n_ctx, s->m->config.n_ctx_most);
    if (o->n_ctx < 1 || o->n_ctx > RKV_MAX_CTX)
        return rkv_fail(e, RKV_E_ARG, "context of %d tokens, expected 1 to %d", o->n_ctx,
                        RKV_MAX_CTX);
    if (o->n_thread < 0 || o->n_thread > MAX_THREAD)
        return rkv_fail(e, RKV_E_ARG, "%d threads, expected 0 (all) to %d", o->n_thread,
                        MAX_THREAD);
    if (o->n_chunk < 1 || o->n_chunk > MAX_CHUNK)
        return rkv_fail(e, RKV_E_ARG, "prefill chunk of %d rows, expected 1 to %d", o->n_chunk,
                        MAX_CHUNK);
    if (o->observe & ~(RKV_OBSERVE_QUERIES | RKV_OBSERVE_MASS | RKV_OBSERVE_RECENT |
                       RKV_OBSERVE_STATS))
        return rkv_fail(e, RKV_E_ARG, "observe is %d, expected bits RKV_OBSERVE_", o->observe);
    RKV_TRY(rkv_policy_check(&o->policy, e));
    RKV_TRY(rkv_evict_check(o, e));
    if (o->decode_kind != RKV_BUDGET_NONE && o->policy.budget_kind == RKV_BUDGET_NONE) {
        o->policy.budget_kind = RKV_BUDGET_SHARE;       /* the policy acts, on a whole prompt */
        o->policy.budget = 1.0;
    }
    if (o->observe & RKV_OBSERVE_RECENT && !o->policy.recent)
        return rkv_fail(e, RKV_E_ARG, "observe asks for RKV_OBSERVE_RECENT, but the policy's "
                        "'recent' is 0: all queries are RKV_OBSERVE_MASS");
    if (o->policy.profile)
        RKV_TRY(rkv_profile_check(o->policy.profile, s->m, e));
    return rkv_policy_active(&o->policy) ? rkv_policy_check_profile(&o->policy, e) : RKV_OK;
}

static rkv_status create(rkv_session *s, rkv_error *e)
{
    const rkv_config *c = &s->m->config;
    rkv_dtype k, v;
    RKV_TRY(check_options(s, e));
    RKV_TRY(rkv_team_create(&s->team, rkv_thread_count(s->o.n_thread), e));
    RKV_TRY(kv_type(&k, s->o.k_type, s->m, "K cache type", e));
    RKV_TRY(kv_type(&v, s->o.v_type, s->m, "V cache type", e));
    /* The caller's strings may be gone when a fork or the first prompt looks at them. */
    s->o.k_type = rkv_dtype_get(k)->name;
    s->o.v_type = rkv_dtype_get(v)->name;
    s->o.policy.selector = rkv_selector_find(s->o.policy.selector)->name;
    s->o.policy.allocator = rkv_allocator_find(s->o.policy.allocator)->name;
    RKV_TRY(rkv_kv_create(&s->kv, c->n_layer, c->n_kv_head, c->d_head, k, v, e));
    s->budget = rkv_mem_calloc((size_t)c->n_layer * (size_t)c->n_kv_head, sizeof *s->budget);
    s->logits = rkv_mem_alloc((size_t)c->n_vocab * sizeof *s->logits);
    if (!s->budget || !s->logits)
        return rkv_fail(e, RKV_E_MEM, "session: out of memory");
    return rkv_evict_create(s, e);
}

rkv_status rkv_session_create(rkv_session **out, const rkv_model *m, const rkv_session_options *o,
                              rkv_error *e)
{
    if (!m->arch)
        return rkv_fail(e, RKV_E_ARG, "%s: loaded for its tokenizer only", rkv_gguf_path(m->file));
    rkv_session *s = rkv_mem_calloc(1, sizeof *s);
    if (!s)
        return rkv_fail(e, RKV_E_MEM, "session: out of memory");
    s->m = m;
    s->o = o ? *o : rkv_session_options_default();
    const rkv_status status = create(s, e);
    if (status) {
        rkv_session_free(s);
        return status;
    }
    *out = s;
    return RKV_OK;
}

static void forget_observation(rkv_session *s)
{
    rkv_mem_free(s->seen.q);
    rkv_mem_free(s->seen.mass);
    rkv_mem_free(s->seen.recent);
    rkv_mem_free(s->seen.stats);
    s->seen = (rkv_observation){0};
}

void rkv_session_free(rkv_session *s)
{
    if (!s)
        return;
    rkv_team_free(s->team);
    rkv_kv_free(s->kv);
    rkv_mem_free(s->budget);
    forget_observation(s);
    rkv_mem_free(s->logits);
    rkv_mem_free(s->work);
    rkv_evict_free(s);
    rkv_mem_free(s);
}

void rkv_session_forget(rkv_session *s)
{
    const rkv_config *c = &s->m->config;
    for (int l = 0; l < c->n_layer; l++)
        rkv_kv_clear(s->kv, l);
    memset(s->budget, 0, (size_t)c->n_layer * (size_t)c->n_kv_head * sizeof *s->budget);
    forget_observation(s);
    rkv_evict_forget(s);
    s->n_past = s->n_prompt = s->cap = s->compressed = s->has_logits = 0;
}

int rkv_session_n_shrinking(const rkv_session *s, int l, int n)
{
    const int n_head = s->m->config.n_kv_head;
    int count = 0;
    for (int h = 0; h < n_head; h++)
        count += !rkv_session_skips(s, l) && rkv_session_budgets(s, l)[h] < n;
    return (count && s->o.policy.adakv) || rkv_evict_bounds(s, l) ? n_head : count;
}

int rkv_session_room(const rkv_session *s)
{
    enum { MOST = 1024 };
    const int left = s->o.n_ctx - s->n_past;
    return left < MOST ? left : MOST;
}

float *rkv_session_seen_q(const rkv_session *s, int l)
{
    const rkv_config *c = &s->m->config;
    const size_t layer = (size_t)s->seen.n_query * (size_t)c->n_head * (size_t)c->d_head;
    const int all = s->o.observe & RKV_OBSERVE_QUERIES;
    return s->seen.q ? s->seen.q + (all ? (size_t)l * layer : 0) : NULL;
}

/* Layer l's part of sums that are kept for every layer when `bit` is set in o.observe. */
static float *seen_sums(const rkv_session *s, float *sums, int bit, int l, int n)
{
    const size_t layer = (size_t)s->m->config.n_kv_head * (size_t)n;
    return sums ? sums + (s->o.observe & bit ? (size_t)l * layer : 0) : NULL;
}

float *rkv_session_seen_mass(const rkv_session *s, int l, int n)
{
    return seen_sums(s, s->seen.mass, RKV_OBSERVE_MASS, l, n);
}

float *rkv_session_seen_recent(const rkv_session *s, int l, int n)
{
    return seen_sums(s, s->seen.recent, RKV_OBSERVE_RECENT, l, n);
}

float *rkv_session_seen_stats(const rkv_session *s, int l)
{
    const rkv_config *c = &s->m->config;
    const size_t layer = (size_t)c->n_head * rkv_stat_floats(c->d_head);
    const int all = s->o.observe & RKV_OBSERVE_STATS;
    return s->seen.stats ? s->seen.stats + (all ? (size_t)l * layer : 0) : NULL;
}

/* n floats; NULL stays NULL. */
static rkv_status copy_floats(float **to, const float *from, size_t n, rkv_error *e)
{
    if (!from)
        return RKV_OK;
    *to = rkv_mem_alloc(n * sizeof *from);
    if (!*to)
        return rkv_fail(e, RKV_E_MEM, "session: out of memory for a copy of what was observed");
    memcpy(*to, from, n * sizeof *from);
    return RKV_OK;
}

/* Between calls a session holds only what is observed of all layers. */
static rkv_status copy_observation(rkv_session *to, const rkv_session *from, rkv_error *e)
{
    const rkv_config *c = &from->m->config;
    const size_t n_layer = (size_t)c->n_layer,
                 sums = n_layer * (size_t)c->n_kv_head * (size_t)from->n_prompt;
    to->seen.n_query = from->seen.n_query;
    to->seen.n_recent = from->seen.n_recent;
    to->seen.stats_first = from->seen.stats_first;
    RKV_TRY(copy_floats(&to->seen.stats, from->seen.stats,
                        n_layer * (size_t)c->n_head * rkv_stat_floats(c->d_head), e));
    RKV_TRY(copy_floats(&to->seen.q, from->seen.q,
                        n_layer * (size_t)from->seen.n_query * (size_t)c->n_head *
                            (size_t)c->d_head, e));
    RKV_TRY(copy_floats(&to->seen.mass, from->seen.mass, sums, e));
    return copy_floats(&to->seen.recent, from->seen.recent, sums, e);
}

rkv_status rkv_session_fork(rkv_session **out, const rkv_session *from, rkv_error *e)
{
    rkv_session *s;
    RKV_TRY(rkv_session_create(&s, from->m, &from->o, e));
    rkv_kv *kv = NULL;
    rkv_status status = rkv_kv_clone(&kv, from->kv, from->evict.cap ? -1 : rkv_session_room(from),
                                     e);
    if (!status) {
        rkv_kv_free(s->kv);
        s->kv = kv;
        status = copy_observation(s, from, e);
    }
    if (!status)
        status = rkv_evict_copy(s, from, e);
    if (status) {
        rkv_session_free(s);
        return status;
    }
    s->n_past = from->n_past;
    s->n_prompt = from->n_prompt;
    s->cap = from->cap;
    s->compressed = from->compressed;
    s->has_logits = from->has_logits;
    memcpy(s->budget, from->budget,
           (size_t)s->m->config.n_layer * (size_t)s->m->config.n_kv_head * sizeof *s->budget);
    if (from->has_logits)
        memcpy(s->logits, from->logits, (size_t)s->m->config.n_vocab * sizeof *s->logits);
    *out = s;
    return RKV_OK;
}

static rkv_status check_rewind(const rkv_session *s, int n, rkv_error *e)
{
    const int seen_from = n - s->m->config.sliding_window + 1;
    if (s->evict.cap)
        return rkv_fail(e, RKV_E_ARG, "rewind to %d of %d tokens: what a decode budget evicts, and "
                        "evicts by, cannot be restored", n, s->n_past);
    if (n < s->n_prompt && s->compressed)
        return rkv_fail(e, RKV_E_ARG, "rewind to %d of %d tokens: the prompt of %d was compressed; "
                        "only what follows it can be taken back", n, s->n_past, s->n_prompt);
    for (int l = 0; l < s->m->config.n_layer; l++) {
        const rkv_kv_head *head = rkv_kv_at(s->kv, l, 0);
        if (rkv_session_skips(s, l) && head->pos[0] > (seen_from > 0 ? seen_from : 0))
            return rkv_fail(e, RKV_E_ARG, "rewind to %d of %d tokens: layer %d with a sliding "
                            "window of %d holds nothing before position %d", n, s->n_past, l,
                            s->m->config.sliding_window, head->pos[0]);
    }
    return RKV_OK;
}

rkv_status rkv_session_rewind(rkv_session *s, int64_t n, rkv_error *e)
{
    const rkv_config *c = &s->m->config;
    if (n < 0 || n > s->n_past)
        return rkv_fail(e, RKV_E_ARG, "rewind to %lld tokens, expected 0 to %d", (long long)n,
                        s->n_past);
    if (n == s->n_past)
        return RKV_OK;
    if (n == 0) {
        rkv_session_forget(s);
        return RKV_OK;
    }
    RKV_TRY(check_rewind(s, (int)n, e));
    for (int l = 0; l < c->n_layer; l++)
        rkv_kv_truncate(s->kv, l, (int32_t)n);
    s->n_past = (int)n;
    s->has_logits = 0;
    if (n < s->n_prompt) {
        forget_observation(s);
        s->n_prompt = s->cap = (int)n;
        for (int i = 0; i < c->n_layer * c->n_kv_head; i++)
            s->budget[i] = (int)n;
    }
    return RKV_OK;
}

/* The first slot whose position is at least pos. */
static int first_from(const rkv_kv_view *kv, int32_t pos)
{
    int a = 0, b = kv->n_slot;
    while (a < b) {
        const int mid = a + (b - a) / 2;
        if (kv->pos[mid] >= pos)
            b = mid;
        else
            a = mid + 1;
    }
    return a;
}

int rkv_session_first_visible(const rkv_session *s, int l, const rkv_kv_view *kv, int32_t p)
{
    return s->m->layer[l].sliding ? first_from(kv, p - s->m->config.sliding_window + 1) : 0;
}

rkv_status rkv_session_check_ids(const rkv_session *s, const int32_t *ids, size_t n, rkv_error *e)
{
    if (n < 1)
        return rkv_fail(e, RKV_E_ARG, "the prompt is empty");
    if (n > (size_t)(s->o.n_ctx - s->n_past))
        return rkv_fail(e, RKV_E_ARG,
                        "%zu tokens do not fit: %d of a context of %d are taken; use a larger "
                        "--ctx-size",
                        n, s->n_past, s->o.n_ctx);
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= s->m->config.n_vocab)
            return rkv_fail(e, RKV_E_ARG, "token id #%zu is %d, expected 0 to %d", i, ids[i],
                            s->m->config.n_vocab - 1);
    return RKV_OK;
}

rkv_status rkv_sessions_check(rkv_session *const *s, size_t n, const char *what, rkv_error *e)
{
    if (n < 1 || n > RKV_MAX_SESSIONS)
        return rkv_fail(e, RKV_E_ARG, "%s of %zu sessions, expected 1 to %d", what, n,
                        RKV_MAX_SESSIONS);
    for (size_t i = 0; i < n; i++) {
        if (s[i]->m != s[0]->m)
            return rkv_fail(e, RKV_E_ARG, "%s: sessions #0 and #%zu are of different models", what,
                            i);
        for (size_t k = 0; k < i; k++)
            if (s[k] == s[i])
                return rkv_fail(e, RKV_E_ARG, "%s: sessions #%zu and #%zu are the same", what, k,
                                i);
    }
    return RKV_OK;
}

rkv_status rkv_sessions_about(rkv_status status, size_t i, size_t n, rkv_error *e)
{
    if (status && e && n > 1) {
        const rkv_error found = *e;
        snprintf(e->text, sizeof e->text, "session #%zu: %.440s", i, found.text);
    }
    return status;
}

const float *rkv_session_logits(const rkv_session *s)
{
    return s->has_logits ? s->logits : NULL;
}

int64_t rkv_session_n_past(const rkv_session *s)
{
    return s->n_past;
}

/* Prompt tokens that head h of layer l keeps, or holds now where it may evict some. */
static int prompt_tokens(const rkv_session *s, int l, int h)
{
    const rkv_kv_view kv = rkv_kv_view_of(s->kv, l, h);
    return s->evict.cap ? first_from(&kv, s->n_prompt) : rkv_session_budgets(s, l)[h];
}

rkv_kv_info rkv_session_kv_info(const rkv_session *s)
{
    const rkv_config *c = &s->m->config;
    const uint64_t slot = s->kv->k_bytes + s->kv->v_bytes;
    rkv_kv_info i = {.n_prompt = s->n_prompt, .cap = s->cap, .decode_cap = s->evict.cap,
                     .n_eviction = s->evict.count};
    for (int l = 0; l < c->n_layer; l++) {
        const uint64_t bytes = rkv_kv_layer_bytes(s->kv, l);
        i.bytes += bytes;
        if (rkv_session_skips(s, l)) {
            i.bytes_full += bytes;
            continue;
        }
        i.bytes_full += (uint64_t)s->n_past * slot * (uint64_t)c->n_kv_head;
        for (int h = 0; h < c->n_kv_head; h++)
            i.n_kept += prompt_tokens(s, l, h);
    }
    i.n_kept /= c->n_kv_head;   /* exact where nothing was evicted: so is the total of budgets */
    return i;
}

uint64_t rkv_session_plan_bytes(const rkv_session *s)
{
    return s->plan_bytes;
}

static int is_head(const rkv_session *s, int l, int kv_head)
{
    return l >= 0 && l < s->m->config.n_layer && kv_head >= 0 && kv_head < s->m->config.n_kv_head;
}

int rkv_session_head_budget(const rkv_session *s, int l, int kv_head)
{
    return is_head(s, l, kv_head) ? rkv_session_budgets(s, l)[kv_head] : 0;
}

int rkv_session_kept(const rkv_session *s, int l, int kv_head, const int32_t **pos)
{
    if (!is_head(s, l, kv_head))
        return 0;
    const rkv_kv_head *h = rkv_kv_at(s->kv, l, kv_head);
    *pos = h->pos;
    return h->n_slot;
}

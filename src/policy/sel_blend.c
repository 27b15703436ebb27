/* Blend: the rank of SnapKV's score plus the rank of the attention that a key got from the last
 * prompt queries; the smallest sums stay. Ranks forget how large the scores are, which neither of
 * the two says well. The mean over the GQA group would not change them. Source: METHOD section 8.
 */
#include "config.h"
#include "policy/policy.h"

#include <string.h>

static int n_query(const rkv_policy *p)
{
    return rkv_selector_snapkv.n_query(p);
}

enum { RANK_WORK = 4 };         /* of rkv_add_ranks, for each position */

/* SnapKV's scores, beside what is taken to make them, and to rank them afterwards. */
static size_t scratch_floats(const rkv_policy *p, int n, int n_group, int d_head)
{
    const size_t snapkv = rkv_selector_snapkv.scratch(p, n, n_group, d_head),
                 ranks = RANK_WORK * (size_t)n;
    return (size_t)n + (snapkv > ranks ? snapkv : ranks);
}

static void score(const rkv_policy *p, const rkv_observed *o, float *out, float *scratch)
{
    const int n_scored = o->kv.n_slot - p->window;
    float *snapkv = scratch, *work = snapkv + o->kv.n_slot;
    uint32_t *order = (uint32_t *)(void *)work;
    rkv_selector_snapkv.score(p, o, snapkv, work);
    memset(out, 0, (size_t)n_scored * sizeof *out);
    rkv_add_ranks(out, snapkv, n_scored, order);
    rkv_add_ranks(out, p->recent ? o->recent : o->mass, n_scored, order);
    for (int t = 0; t < n_scored; t++)
        out[t] = -out[t];
}

const rkv_selector rkv_selector_blend = {
    .name = "blend", .needs_recent = 1, .needs_window = 1, .n_query = n_query,
    .scratch = scratch_floats, .score = score,
};

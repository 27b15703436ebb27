/* From scores to kept positions: pooling, ranks, and the exact choice of the best. */
#include "config.h"
#include "policy/policy.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "f16.h"

void rkv_pool_max(float *out, const float *x, int n, int kernel)
{
    const int half = kernel / 2;
    for (int i = 0; i < n; i++) {
        const int a = i - half > 0 ? i - half : 0, b = i + half < n - 1 ? i + half : n - 1;
        float top = x[a];
        for (int j = a + 1; j <= b; j++)
            top = x[j] > top ? x[j] : top;
        out[i] = top;
    }
}

void rkv_pool_mean(float *out, const float *x, int n, int kernel)
{
    const int half = kernel / 2;
    for (int i = 0; i < n; i++) {
        const int a = i - half > 0 ? i - half : 0, b = i + half < n - 1 ? i + half : n - 1;
        float sum = 0.0f;
        for (int j = a; j <= b; j++)
            sum += x[j];
        out[i] = sum / (float)kernel;
    }
}

/* An unsigned number that orders as the float does; -0 and +0 are equal, NaN is below everything.
 */
static uint32_t order_key(float f)
{
    if (isnan(f))
        return 0;
    const uint32_t u = rkv_f32_to_bits(f + 0.0f);
    return u & 0x80000000u ? ~u : u | 0x80000000u;
}

/* One pass of a stable sort by 8 bits of the key: keys and their places to to_*. */
static void sort_digit(uint32_t *to_key, uint32_t *to_at, const uint32_t *key, const uint32_t *at,
                       int n, int shift)
{
    int begin[257] = {0};
    for (int i = 0; i < n; i++)
        begin[(key[i] >> shift & 255) + 1]++;
    for (int d = 0; d < 255; d++)
        begin[d + 1] += begin[d];
    for (int i = 0; i < n; i++) {
        const int to = begin[key[i] >> shift & 255]++;
        to_key[to] = key[i];
        to_at[to] = at[i];
    }
}

void rkv_add_ranks(float *rank, const float *x, int n, uint32_t *work)
{
    uint32_t *key = work, *at = key + n, *key2 = at + n, *at2 = key2 + n;
    for (int i = 0; i < n; i++) {
        key[i] = ~order_key(x[i]);              /* the largest first */
        at[i] = (uint32_t)i;
    }
    for (int shift = 0; shift < 32; shift += 16) {
        sort_digit(key2, at2, key, at, n, shift);
        sort_digit(key, at, key2, at2, n, shift + 8);
    }
    for (int i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && key[end] == key[i];)
            end++;
        const float shared = 0.5f * (float)(i + end - 1);
        for (int k = i; k < end; k++)
            rank[at[k]] += shared;
    }
}

/* The k-th largest (k >= 1) of n keys in each of n_row rows, byte by byte from the top; *above =
 * keys larger than it. */
static uint32_t kth_largest(uint32_t *const *key, int n_row, int n, int64_t k, int64_t *above)
{
    uint32_t prefix = 0, known = 0;
    int64_t left = k;
    for (int shift = 24; shift >= 0; shift -= 8) {
        int64_t count[256] = {0};
        for (int r = 0; r < n_row; r++)
            for (int i = 0; i < n; i++)
                if ((key[r][i] & known) == prefix)
                    count[key[r][i] >> shift & 255]++;
        int digit = 255;
        while (count[digit] < left)
            left -= count[digit--];
        prefix |= (uint32_t)digit << shift;
        known |= 255u << shift;
    }
    *above = k - left;
    return prefix;
}

void rkv_keep_best(int32_t *keep, const float *score, int n, int window, int budget,
                   uint32_t *order)
{
    assert(window <= budget && budget < n);
    const int n_scored = n - window, want = budget - window;
    int n_keep = 0;
    if (want > 0) {
        int64_t above;
        for (int t = 0; t < n_scored; t++)
            order[t] = order_key(score[t]);
        const uint32_t cut = kth_largest(&order, 1, n_scored, want, &above);
        int64_t ties = want - above; /* of the keys equal to the cut, the lowest positions */
        for (int t = 0; t < n_scored; t++)
            if (order[t] > cut || (order[t] == cut && ties-- > 0))
                keep[n_keep++] = t;
    }
    for (int t = n_scored; t < n; t++)
        keep[n_keep++] = t;
    assert(n_keep == budget);
}

/* ---- budgets of heads by their scores ---- */

/* Tokens beside the window that no head falls below: those of the floor, where the allocator has
 * given as many. */
static int least_of(const int *b, int n_head, const rkv_policy *p)
{
    int least = rkv_policy_floor(p) - p->window;
    for (int h = 0; h < n_head; h++)
        least = b[h] - p->window < least ? b[h] - p->window : least;
    return least;
}

/* count[h] = how many of the k best of all rows lie in row h; equal ones: the lower head wins. */
static void count_best(int *count, uint32_t *const *key, int n_row, int n, int64_t k)
{
    int64_t above = 0;
    const uint32_t cut = k > 0 ? kth_largest(key, n_row, n, k, &above) : 0;
    int64_t ties = k - above;
    for (int h = 0; h < n_row; h++) {
        count[h] = 0;
        for (int t = 0; k > 0 && t < n; t++)
            if (key[h][t] > cut || (key[h][t] == cut && ties-- > 0))
                count[h]++;
    }
}

/* The share of a head's attention that its best `top` positions hold. */
static double top_share(const float *score, uint32_t *key, int n, int top)
{
    int64_t above = 0;
    double best = 0.0, all = 0.0, at_cut = 0.0;
    if (top <= 0)
        return 0.0;
    for (int t = 0; t < n; t++)
        key[t] = order_key(score[t]);
    const uint32_t cut = kth_largest(&key, 1, n, top, &above);
    for (int t = 0; t < n; t++) {
        if (!isfinite(score[t]))                /* stays in any case */
            continue;
        all += (double)score[t];
        if (key[t] > cut)
            best += (double)score[t];
        else if (key[t] == cut)
            at_cut = (double)score[t];
    }
    return all > 0.0 ? (best + at_cut * (double)(top - above)) / all : 0.0;
}

/* As published: scores weighted by what the head's own budget catches of them; of the count that a
 * head gets so and of its own budget the safeguard's mixture. */
static void split_mixed(int *b, int n_head, const rkv_policy *p, float *const *score,
                        uint32_t *const *work, int n)
{
    const int n_scored = n - p->window, least = least_of(b, n_head, p);
    int64_t total = 0;
    double share[RKV_MAX_SPLIT];
    rkv_part part[RKV_MAX_SPLIT];
    int count[RKV_MAX_SPLIT];
    for (int h = 0; h < n_head; h++) {
        const float weight = (float)top_share(score[h], work[h], n_scored, b[h] - p->window);
        for (int t = 0; t < n_scored; t++)
            work[h][t] = order_key(score[h][t] * weight);
        total += b[h] - p->window;
    }
    count_best(count, work, n_head, n_scored, total);
    for (int h = 0; h < n_head; h++)
        share[h] = fmax(count[h] * (1.0 - p->safeguard) + p->safeguard * (b[h] - p->window), 1e-9);
    rkv_divide(b, share, n_head, total, least, n_scored, 0.0, part);
    for (int h = 0; h < n_head; h++)
        b[h] += p->window;
}

/* As kvpress does it: each head's best are sure of their place, the others compete. */
static void split_forced(int *b, int n_head, const rkv_policy *p, float *const *score,
                         uint32_t *const *work, int n)
{
    const int n_scored = n - p->window, least = least_of(b, n_head, p);
    int64_t total = 0;
    for (int h = 0; h < n_head; h++) {
        int64_t above = 0;
        int sure = (int)floor(p->safeguard * b[h] + 1e-9) - p->window;
        sure = sure > least ? sure : least;
        for (int t = 0; t < n_scored; t++)
            work[h][t] = order_key(score[h][t]);
        const uint32_t cut = sure > 0 ? kth_largest(&work[h], 1, n_scored, sure, &above) : 0;
        int64_t ties = sure - above;
        for (int t = 0; sure > 0 && t < n_scored; t++)
            if (work[h][t] > cut || (work[h][t] == cut && ties-- > 0))
                work[h][t] = UINT32_MAX;
        total += b[h] - p->window;
    }
    count_best(b, work, n_head, n_scored, total);
    for (int h = 0; h < n_head; h++)
        b[h] += p->window;
}

void rkv_split_budget(int *b, int n_head, const rkv_policy *p, float *const *score,
                      uint32_t *const *work, int n)
{
    assert(n_head <= RKV_MAX_SPLIT);
    (p->adakv_forced ? split_forced : split_mixed)(b, n_head, p, score, work, n);
}

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

/* The k-th largest key (k >= 1), byte by byte from the top; *above = keys larger than it. */
static uint32_t kth_largest(const uint32_t *key, int n, int k, int *above)
{
    uint32_t prefix = 0, known = 0;
    int left = k;
    for (int shift = 24; shift >= 0; shift -= 8) {
        int count[256] = {0};
        for (int i = 0; i < n; i++)
            if ((key[i] & known) == prefix)
                count[key[i] >> shift & 255]++;
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
        int above;
        for (int t = 0; t < n_scored; t++)
            order[t] = order_key(score[t]);
        const uint32_t cut = kth_largest(order, n_scored, want, &above);
        int ties = want - above; /* of the keys equal to the cut, the lowest positions */
        for (int t = 0; t < n_scored; t++)
            if (order[t] > cut || (order[t] == cut && ties-- > 0))
                keep[n_keep++] = t;
    }
    for (int t = n_scored; t < n; t++)
        keep[n_keep++] = t;
    assert(n_keep == budget);
}

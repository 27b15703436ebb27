/* From scores to kept positions: pooling and the exact choice of the best. */
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

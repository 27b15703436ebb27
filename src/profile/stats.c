#include "config.h"
#include "profile/stats.h"

#include <math.h>
#include <stdlib.h>

#include "noise.h"

enum { STREAM_RESAMPLE = 1, STREAM_SHUFFLE = 2 };       /* seeds of the generator's streams */

static int by_value(const void *a, const void *b)
{
    const double x = ((const rkv_ranked *)a)->x, y = ((const rkv_ranked *)b)->x;
    return (x > y) - (x < y);
}

void rkv_ranks(double *rank, const double *x, int n, rkv_ranked *scratch)
{
    for (int i = 0; i < n; i++)
        scratch[i] = (rkv_ranked){x[i], i};
    qsort(scratch, (size_t)n, sizeof *scratch, by_value);
    for (int i = 0, j; i < n; i = j) {
        for (j = i + 1; j < n && scratch[j].x == scratch[i].x; j++)
            ;
        for (int k = i; k < j; k++)
            rank[scratch[k].i] = (i + 1 + j) / 2.0;
    }
}

static double correlation(const double *a, const double *b, int n)
{
    const double mean = (n + 1) / 2.0;          /* of ranks, whatever the ties */
    double ab = 0.0, aa = 0.0, bb = 0.0;
    for (int i = 0; i < n; i++) {
        ab += (a[i] - mean) * (b[i] - mean);
        aa += (a[i] - mean) * (a[i] - mean);
        bb += (b[i] - mean) * (b[i] - mean);
    }
    return aa > 0.0 && bb > 0.0 ? ab / sqrt(aa * bb) : (double)NAN;
}

double rkv_spearman(const double *x, const double *y, int n, double *rank, rkv_ranked *scratch)
{
    rkv_ranks(rank, x, n, scratch);
    rkv_ranks(rank + n, y, n, scratch);
    return correlation(rank, rank + n, n);
}

/* Below n, from word j of a stream; n is so small against 2^32 that no index is favoured. */
static int draw(uint64_t key, int j, int n)
{
    return (int)((rkv_noise_word(key, (uint64_t)j) >> 32) * (uint64_t)n >> 32);
}

double rkv_spearman_random(const double *x, int n, double *rank, rkv_ranked *scratch,
                           double *shuffled)
{
    double sum = 0.0;
    for (int r = 0; r < RKV_RESAMPLES; r++) {
        const uint64_t key = rkv_noise_key((uint64_t)r, STREAM_SHUFFLE, 0);
        for (int i = 0; i < n; i++) {           /* Fisher-Yates, from the front */
            const int j = draw(key, i, i + 1);
            shuffled[i] = shuffled[j];
            shuffled[j] = x[i];
        }
        sum += fabs(rkv_spearman(x, shuffled, n, rank, scratch));
    }
    return sum / RKV_RESAMPLES;
}

void rkv_resample(int *pick, int n, int r)
{
    const uint64_t key = rkv_noise_key((uint64_t)r, STREAM_RESAMPLE, 0);
    for (int i = 0; i < n; i++)
        pick[i] = draw(key, i, n);
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(const double *sorted, int n, double q)
{
    const double at = q * (n - 1);
    const int i = (int)at;
    return i + 1 < n ? sorted[i] + (at - i) * (sorted[i + 1] - sorted[i]) : sorted[i];
}

rkv_interval rkv_interval_of(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, ascending);
    return (rkv_interval){quantile(x, n, 0.025), quantile(x, n, 0.975)};
}

/* Numbers about numbers: ranks, rank correlation, intervals by resampling. Everything is a pure
 * function of its arguments: resampling draws from the pinned generator (noise.h). */
#ifndef RKV_STATS_H
#define RKV_STATS_H

#include <stdint.h>

enum { RKV_RESAMPLES = 1000 };

typedef struct rkv_interval {
    double low, high;           /* 2.5 and 97.5 % points */
} rkv_interval;

typedef struct rkv_ranked {     /* scratch of ranking */
    double x;
    int i;
} rkv_ranked;

/* rank[n] of x[n], 1 for the smallest; equal numbers share the mean of their ranks. No NaN. */
void rkv_ranks(double *rank, const double *x, int n, rkv_ranked *scratch);

/* Spearman's rank correlation, signed, average ranks for ties; NaN for n < 2 or when one side is
 * all equal. rank: 2 n doubles, scratch: n. */
double rkv_spearman(const double *x, const double *y, int n, double *rank, rkv_ranked *scratch);

/* Mean absolute Spearman of x with RKV_RESAMPLES shuffles of itself: what no relation looks like.
 * Scratch as above, shuffled: n. */
double rkv_spearman_random(const double *x, int n, double *rank, rkv_ranked *scratch,
                           double *shuffled);

/* pick[n] of resample r: n indices below n, drawn with replacement. */
void rkv_resample(int *pick, int n, int r);

/* Of n >= 1 values, which it sorts; between two of them linear. */
rkv_interval rkv_interval_of(double *x, int n);

#endif

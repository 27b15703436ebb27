/* Whether a difference between two policies is one: pairs of numbers of the same samples. Pure
 * functions; resampling draws from the pinned generator. */
#ifndef RKV_COMPARE_H
#define RKV_COMPARE_H

#include "profile/stats.h"

/* With fewer pairs no sign test can reach p < 0.05, and resampling draws too narrow intervals. */
enum { RKV_LEAST_PAIRS = 6 };

typedef struct rkv_paired {
    int n, wins, losses, ties;  /* a > b, a < b, equal */
    double mean;                /* of a - b; NaN for n = 0 */
    rkv_interval interval;      /* 95 %, samples resampled in pairs */
    double p;                   /* sign test, two-sided, ties left out; 1 without any pair */
} rkv_paired;

/* a[n] beside b[n]. scratch: n + RKV_RESAMPLES doubles; pick: n. */
rkv_paired rkv_pairs_compare(const double *a, const double *b, int n, double *scratch, int *pick);

/* Whether a and b differ: the sign of a - b when the interval excludes 0; 0: it does not, or there
 * are fewer than RKV_LEAST_PAIRS pairs. */
int rkv_paired_sign(const rkv_paired *p);

/* 95 % interval of the mean of x[n], n >= 1, samples resampled. scratch: RKV_RESAMPLES. */
rkv_interval rkv_mean_interval(const double *x, int n, double *scratch, int *pick);

/* Two-sided exact binomial test of wins against losses at 1/2. */
double rkv_sign_test(int wins, int losses);

/* 95 % interval of k of n (Wilson 1927); 0 to 1 for n = 0. */
rkv_interval rkv_wilson(double k, int n);

#endif

#include "config.h"
#include "eval/compare.h"

#include <math.h>

double rkv_sign_test(int wins, int losses)
{
    const int n = wins + losses, least = wins < losses ? wins : losses;
    double tail = 0.0;
    for (int k = 0; k <= least; k++)
        tail += exp(lgamma(n + 1.0) - lgamma(k + 1.0) - lgamma(n - k + 1.0) - n * log(2.0));
    return 2.0 * tail < 1.0 ? 2.0 * tail : 1.0;
}

rkv_interval rkv_wilson(double k, int n)
{
    const double z = 1.959963984540054;
    if (!n)
        return (rkv_interval){0.0, 1.0};
    const double share = k / n, middle = share + z * z / (2.0 * n),
                 half = z * sqrt(share * (1.0 - share) / n + z * z / (4.0 * n * n)),
                 scale = 1.0 + z * z / n;
    return (rkv_interval){fmax(0.0, (middle - half) / scale), fmin(1.0, (middle + half) / scale)};
}

rkv_interval rkv_mean_interval(const double *x, int n, double *scratch, int *pick)
{
    for (int r = 0; r < RKV_RESAMPLES; r++) {
        double sum = 0.0;
        rkv_resample(pick, n, r);
        for (int i = 0; i < n; i++)
            sum += x[pick[i]];
        scratch[r] = sum / n;
    }
    return rkv_interval_of(scratch, RKV_RESAMPLES);
}

rkv_paired rkv_pairs_compare(const double *a, const double *b, int n, double *scratch, int *pick)
{
    double *difference = scratch, sum = 0.0;
    rkv_paired p = {.n = n};
    for (int i = 0; i < n; i++) {
        difference[i] = a[i] - b[i];
        sum += difference[i];
        p.wins += a[i] > b[i];
        p.losses += a[i] < b[i];
    }
    p.ties = n - p.wins - p.losses;
    p.mean = n ? sum / n : (double)NAN;
    p.interval = n ? rkv_mean_interval(difference, n, scratch + n, pick)
                   : (rkv_interval){(double)NAN, (double)NAN};
    p.p = rkv_sign_test(p.wins, p.losses);
    return p;
}

int rkv_paired_sign(const rkv_paired *p)
{
    if (p->n < RKV_LEAST_PAIRS)
        return 0;
    return (p->interval.low > 0.0) - (p->interval.high < 0.0);
}

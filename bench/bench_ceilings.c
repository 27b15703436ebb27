/* The machine's ceilings as one JSON object (ceilings.h): threads, read_gb_s, cache_gb_s,
 * fma_gflop_s, fma_bits.
 *     bench_ceilings [THREADS] */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/thread.h"
#include "ceilings.h"

int main(int argc, char **argv)
{
    const int n = argc > 1 ? atoi(argv[1]) : rkv_thread_available();
    ceilings c;
    if (n < 1 || argc > 2) {
        fputs("usage: bench_ceilings [THREADS]\n", stderr);
        return 2;
    }
    if (ceilings_measure(&c, n)) {
        fprintf(stderr, "bench_ceilings: out of memory for %d threads\n", n);
        return 4;
    }
    printf("{\"threads\": %d, \"read_gb_s\": %.2f, \"cache_gb_s\": %.1f, \"fma_gflop_s\": %.1f, "
           "\"fma_bits\": %d}\n",
           c.n_thread, c.read_gb_s, c.cache_gb_s, c.fma_gflop_s, c.fma_bits);
    return 0;
}

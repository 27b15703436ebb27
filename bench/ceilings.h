/* What the machine can do at most, for the shares that the benches state. */
#ifndef CEILINGS_H
#define CEILINGS_H

typedef struct ceilings {
    int n_thread, fma_bits;     /* width of the CPU's registers */
    double read_gb_s;           /* 1e9 bytes per second from memory, by all threads together */
    double cache_gb_s;          /* the same from 128 KiB of each thread's: second-level cache */
    double fma_gflop_s;         /* f32 multiply-adds in registers, two operations each */
} ceilings;

/* Measures with n_thread >= 1 threads: best of some runs, since a ceiling is what was reached once.
 * Takes 256 MiB of memory for each thread while it lasts. 0; -1: not that much memory. */
int ceilings_measure(ceilings *c, int n_thread);

#endif

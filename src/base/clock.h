/* Monotonic time. */
#ifndef RKV_CLOCK_H
#define RKV_CLOCK_H

#include <stdint.h>
#include <time.h>

/* ns since some fixed point. */
static inline int64_t rkv_clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

#endif

#include "config.h"
#include "base/thread.h"

#include <sched.h>
#include <stdio.h>

/* CPUs that a cgroup quota pays for; 0 when there is no quota. v2 first, then v1. */
static int quota_cpus(void)
{
    long long quota = -1, period = 0;
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "r");
    if (f) {
        if (fscanf(f, "%lld %lld", &quota, &period) != 2)   /* "max 100000" has no first number */
            quota = -1;
        fclose(f);
    } else if ((f = fopen("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "r"))) {
        if (fscanf(f, "%lld", &quota) != 1)
            quota = -1;
        fclose(f);
        if ((f = fopen("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "r"))) {
            if (fscanf(f, "%lld", &period) != 1)
                period = 0;
            fclose(f);
        }
    }
    return quota > 0 && period > 0 ? (int)((quota + period - 1) / period) : 0;
}

int rkv_thread_available(void)
{
    cpu_set_t set;
    int n = 1;
    if (!sched_getaffinity(0, sizeof set, &set))
        n = CPU_COUNT(&set);
    const int quota = quota_cpus();
    if (quota && quota < n)
        n = quota;
    return n > 0 ? n : 1;
}

int rkv_thread_count(int requested)
{
    return requested > 0 ? requested : rkv_thread_available();
}

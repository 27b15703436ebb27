/* How many threads to use. The loops themselves are OpenMP, split by output row, KV head or tile,
 * never by a sum: no result depends on the count or the schedule. */
#ifndef RKV_THREAD_H
#define RKV_THREAD_H

/* CPUs this process may use: its affinity mask, cut to the cgroup's quota (rounded up). >= 1. */
int rkv_thread_available(void);

/* A request from the user made usable: 0 means all available; 1 without OpenMP. */
int rkv_thread_count(int requested);

/* Index of the calling thread in its team; 0 outside a parallel region and without OpenMP. */
int rkv_thread_index(void);

#endif

/* How many threads to use. */
#ifndef RKV_THREAD_H
#define RKV_THREAD_H

/* CPUs this process may use: its affinity mask, cut to the cgroup's quota (rounded up). >= 1. */
int rkv_thread_available(void);

/* A request from the user made usable: 0 means all available. */
int rkv_thread_count(int requested);

#endif

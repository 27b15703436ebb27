/* Memory: every allocation of the library goes through here, is counted, and can be made to fail.
 */
#ifndef RKV_MEM_H
#define RKV_MEM_H

#include <stddef.h>
#include <stdint.h>

/* n bytes, 64-byte aligned, contents undefined; NULL when there is no memory. n may be 0.
 * Large blocks ask the kernel for huge pages; pages belong to the NUMA node of their first writer.
 */
void *rkv_mem_alloc(size_t n);
/* The same for count * size bytes, zeroed; NULL also when the product overflows. */
void *rkv_mem_calloc(size_t count, size_t size);
/* Like realloc, for blocks of this allocator; on failure the old block stays. */
void *rkv_mem_realloc(void *p, size_t n);
/* Copy of a string. */
char *rkv_mem_strdup(const char *s);
/* NULL is fine. */
void rkv_mem_free(void *p);

/* Bytes allocated now, and the most since the last reset of the peak. */
uint64_t rkv_mem_current(void);
uint64_t rkv_mem_peak(void);
void rkv_mem_peak_reset(void);

/* Test hook: the k-th allocation from now on (1 = the next) and all later ones fail; 0: none. */
void rkv_mem_fail_after(long k);

/* a * b, or SIZE_MAX (which no allocation satisfies) when it overflows. */
static inline size_t rkv_mem_product(size_t a, size_t b)
{
    return b && a > SIZE_MAX / b ? SIZE_MAX : a * b;
}

/* available.c: bytes this process may still take: the least of MemAvailable (swap does not count),
 * the headroom of its cgroups (v1, v2; file cache does not count as used), RLIMIT_AS and
 * RLIMIT_DATA; UINT64_MAX when unknown. *total (may be NULL): the machine's or the cgroup's. */
uint64_t rkv_mem_available(uint64_t *total);
/* Whether a file in the form of the kernel's transparent_hugepage/enabled says that memory may be
 * in huge pages when it asks for them. */
int rkv_mem_huge_pages(const char *path);
/* The part of the cgroups: those that the file `listing` (/proc/self/cgroup) names and all above
 * them, in the file system at root. UINT64_MAX: no limit. *limit: the smallest. */
uint64_t rkv_mem_cgroup_left(const char *listing, const char *root, uint64_t *limit);

#endif

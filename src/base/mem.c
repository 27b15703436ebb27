#include "config.h"
#include "base/mem.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

/* Sits in front of each block; 64 bytes, so that the block keeps the alignment. */
typedef struct header {
    size_t size;
    void *base;
    char pad[64 - sizeof(size_t) - sizeof(void *)];
} header;

enum { ALIGN = 64 };
static const size_t huge_page = (size_t)2 << 20;
static _Atomic uint64_t current_bytes, peak_bytes;
static atomic_long fail_after;

static int must_fail(void)
{
    if (atomic_load_explicit(&fail_after, memory_order_relaxed) == 0)
        return 0;
    if (atomic_fetch_sub(&fail_after, 1) > 1)
        return 0;
    atomic_store(&fail_after, 1);               /* and every later one */
    return 1;
}

static void count(size_t n)
{
    const uint64_t now = atomic_fetch_add(&current_bytes, n) + n;
    uint64_t peak = atomic_load(&peak_bytes);
    while (now > peak && !atomic_compare_exchange_weak(&peak_bytes, &peak, now))
        ;
}

void *rkv_mem_alloc(size_t n)
{
    if (n > SIZE_MAX - sizeof(header) - huge_page || must_fail())
        return NULL;
    const size_t align = n >= 2 * huge_page ? huge_page : ALIGN;
    const size_t total = (n + sizeof(header) + align - 1) / align * align;
    char *base = aligned_alloc(align, total);
    if (!base)
        return NULL;
#ifdef MADV_HUGEPAGE
    if (align == huge_page)
        madvise(base, total, MADV_HUGEPAGE);
#endif
    header *h = (header *)base;
    h->size = n;
    h->base = base;
    count(n);
    return base + sizeof(header);
}

void *rkv_mem_calloc(size_t n_item, size_t size)
{
    const size_t n = rkv_mem_product(n_item, size);
    void *p = rkv_mem_alloc(n);
    if (p)
        memset(p, 0, n);
    return p;
}

void *rkv_mem_realloc(void *p, size_t n)
{
    if (!p)
        return rkv_mem_alloc(n);
    const size_t old = ((header *)((char *)p - sizeof(header)))->size;
    void *q = rkv_mem_alloc(n);
    if (!q)
        return NULL;
    memcpy(q, p, old < n ? old : n);
    rkv_mem_free(p);
    return q;
}

char *rkv_mem_strdup(const char *s)
{
    const size_t n = strlen(s) + 1;
    char *p = rkv_mem_alloc(n);
    return p ? memcpy(p, s, n) : NULL;
}

void rkv_mem_free(void *p)
{
    if (!p)
        return;
    header *h = (header *)((char *)p - sizeof(header));
    atomic_fetch_sub(&current_bytes, h->size);
    free(h->base);
}

uint64_t rkv_mem_current(void)
{
    return atomic_load(&current_bytes);
}

uint64_t rkv_mem_peak(void)
{
    return atomic_load(&peak_bytes);
}

void rkv_mem_peak_reset(void)
{
    atomic_store(&peak_bytes, atomic_load(&current_bytes));
}

void rkv_mem_fail_after(long k)
{
    atomic_store(&fail_after, k);
}

/* Value of "key: n kB" in a file of /proc, in bytes; UINT64_MAX when absent. */
static uint64_t proc_value(const char *path, const char *key)
{
    FILE *f = fopen(path, "r");
    if (!f)
        return UINT64_MAX;
    char line[256];
    uint64_t v = UINT64_MAX;
    const size_t n = strlen(key);
    while (fgets(line, sizeof line, f))
        if (!strncmp(line, key, n) && line[n] == ':') {
            v = strtoull(line + n + 1, NULL, 10) << 10;
            break;
        }
    fclose(f);
    return v;
}

/* The number in a one-line file; UINT64_MAX for "max" or when it cannot be read. */
static uint64_t file_number(const char *path)
{
    FILE *f = fopen(path, "r");
    unsigned long long v = UINT64_MAX;
    if (f) {
        if (fscanf(f, "%llu", &v) != 1)
            v = UINT64_MAX;
        fclose(f);
    }
    return v;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t rkv_mem_available(uint64_t *total)
{
    const uint64_t machine = proc_value("/proc/meminfo", "MemTotal");
    uint64_t left = proc_value("/proc/meminfo", "MemAvailable");
    /* Inside a container the cgroup's root is its own group; v2 first, then v1. */
    uint64_t limit = file_number("/sys/fs/cgroup/memory.max");
    uint64_t used = file_number("/sys/fs/cgroup/memory.current");
    if (limit == UINT64_MAX) {
        limit = file_number("/sys/fs/cgroup/memory/memory.limit_in_bytes");
        used = file_number("/sys/fs/cgroup/memory/memory.usage_in_bytes");
    }
    if (limit != UINT64_MAX && used != UINT64_MAX)
        left = least(left, limit > used ? limit - used : 0);
    struct rlimit as;
    if (!getrlimit(RLIMIT_AS, &as) && as.rlim_cur != RLIM_INFINITY) {
        const uint64_t mapped = proc_value("/proc/self/status", "VmSize");
        if (mapped != UINT64_MAX)
            left = least(left, as.rlim_cur > mapped ? as.rlim_cur - mapped : 0);
    }
    if (total)
        *total = least(machine, limit);
    return left;
}

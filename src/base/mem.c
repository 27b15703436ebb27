#include "config.h"
#include "base/mem.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

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

#include "config.h"
#include "text/merge.h"

#include "base/mem.h"

rkv_status rkv_merge_reserve(rkv_merge *m, size_t n, rkv_error *e)
{
    if (n <= m->cap)
        return RKV_OK;
    const size_t cap = n < 4096 ? 2 * n : n;    /* long words are rare, and their memory is large */
    rkv_merge_free(m);
    m->symbol = rkv_mem_alloc(rkv_mem_product(cap, sizeof *m->symbol));
    m->heap = rkv_mem_alloc(rkv_mem_product(cap, 2 * sizeof *m->heap));
    if (!m->symbol || !m->heap) {
        rkv_merge_free(m);
        return rkv_fail(e, RKV_E_MEM, "tokenizer: out of memory for a word of %zu bytes", n);
    }
    m->cap = cap;
    return RKV_OK;
}

void rkv_merge_free(rkv_merge *m)
{
    rkv_mem_free(m->symbol);
    rkv_mem_free(m->heap);
    *m = (rkv_merge){0};
}

static void sift_down(uint64_t *heap, size_t n, size_t i)
{
    const uint64_t v = heap[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && heap[child + 1] < heap[child])
            child++;
        if (v <= heap[child])
            break;
        heap[i] = heap[child];
    }
    heap[i] = v;
}

static void push(rkv_merge *m, uint64_t v)
{
    size_t i = m->n_heap++;
    while (i && v < m->heap[(i - 1) / 2]) {
        m->heap[i] = m->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    m->heap[i] = v;
}

static uint64_t pop(rkv_merge *m)
{
    const uint64_t v = m->heap[0];
    m->heap[0] = m->heap[--m->n_heap];
    if (m->n_heap)
        sift_down(m->heap, m->n_heap, 0);
    return v;
}

/* Looks again at symbol at and its right neighbour; returns whether they can be joined. */
static int look(rkv_merge *m, uint32_t at, uint32_t n, rkv_join_fn *join, const void *ctx)
{
    rkv_symbol *s = &m->symbol[at];
    s->key = RKV_NO_KEY;
    s->joined = -1;
    if (s->next == RKV_NO_SYMBOL)
        return 0;
    const rkv_symbol *right = &m->symbol[s->next];
    const uint32_t end = right->next == RKV_NO_SYMBOL ? n : right->next;
    uint32_t key;
    const int32_t id = join(ctx, s->id, right->id, at, end, &key);
    if (id < 0)
        return 0;
    s->joined = id;
    s->key = key;
    return 1;
}

static uint64_t entry(const rkv_merge *m, uint32_t at)
{
    return (uint64_t)m->symbol[at].key << 32 | at;
}

void rkv_merge_run(rkv_merge *m, uint32_t n, rkv_join_fn *join, const void *ctx)
{
    m->n_heap = 0;
    for (uint32_t at = 0; n && at != RKV_NO_SYMBOL; at = m->symbol[at].next)
        if (look(m, at, n, join, ctx))
            m->heap[m->n_heap++] = entry(m, at);
    for (size_t i = m->n_heap / 2; i-- > 0;)
        sift_down(m->heap, m->n_heap, i);

    while (m->n_heap) {
        const uint64_t top = pop(m);
        const uint32_t at = (uint32_t)top;
        rkv_symbol *s = &m->symbol[at];
        if (s->key != top >> 32)                /* one of the pair was joined elsewhere meanwhile */
            continue;
        rkv_symbol *right = &m->symbol[s->next];
        s->id = s->joined;
        s->next = right->next;
        right->key = RKV_NO_KEY;
        if (s->next != RKV_NO_SYMBOL)
            m->symbol[s->next].prev = at;
        if (look(m, at, n, join, ctx))
            push(m, entry(m, at));
        if (s->prev != RKV_NO_SYMBOL && look(m, s->prev, n, join, ctx))
            push(m, entry(m, s->prev));
    }
}

#include "config.h"
#include "kv/kv.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

rkv_status rkv_kv_create(rkv_kv **out, int n_layer, int n_kv_head, int d_head, rkv_dtype k_type,
                         rkv_dtype v_type, rkv_error *e)
{
    rkv_kv *kv = rkv_mem_calloc(1, sizeof *kv);
    if (kv)
        kv->head = rkv_mem_calloc((size_t)n_layer * (size_t)n_kv_head, sizeof *kv->head);
    if (!kv || !kv->head) {
        rkv_mem_free(kv);
        return rkv_fail(e, RKV_E_MEM, "KV cache: out of memory for %d layers", n_layer);
    }
    kv->n_layer = n_layer;
    kv->n_kv_head = n_kv_head;
    kv->d_head = d_head;
    kv->k_type = k_type;
    kv->v_type = v_type;
    kv->k_bytes = rkv_dtype_bytes(rkv_dtype_get(k_type), (size_t)d_head);
    kv->v_bytes = rkv_dtype_bytes(rkv_dtype_get(v_type), (size_t)d_head);
    *out = kv;
    return RKV_OK;
}

static void head_free(rkv_kv_head *h)
{
    rkv_mem_free(h->k);
    rkv_mem_free(h->v);
    rkv_mem_free(h->pos);
    *h = (rkv_kv_head){0};
}

void rkv_kv_free(rkv_kv *kv)
{
    if (!kv)
        return;
    for (int i = 0; i < kv->n_layer * kv->n_kv_head; i++)
        head_free(&kv->head[i]);
    rkv_mem_free(kv->head);
    rkv_mem_free(kv);
}

rkv_kv_view rkv_kv_view_of(const rkv_kv *kv, int l, int h)
{
    const rkv_kv_head *p = rkv_kv_at(kv, l, h);
    const int phase = p->n_slot ? p->pos[0] % RKV_ATTN_TILE : 0;
    return (rkv_kv_view){p->k, p->v, p->pos, kv->k_type, kv->v_type, p->n_slot, kv->d_head, phase};
}

/* An empty head with room for cap slots; k == NULL when there is no memory. */
static rkv_kv_head head_alloc(const rkv_kv *kv, int cap)
{
    rkv_kv_head h = {.cap = cap};
    h.k = rkv_mem_alloc(rkv_mem_product((size_t)cap, kv->k_bytes));
    h.v = rkv_mem_alloc(rkv_mem_product((size_t)cap, kv->v_bytes));
    h.pos = rkv_mem_alloc(rkv_mem_product((size_t)cap, sizeof *h.pos));
    if (!h.k || !h.v || !h.pos)
        head_free(&h);
    return h;
}

/* Copies n slots, to slot `at` of the destination. */
static void copy_slots(const rkv_kv *kv, rkv_kv_head *to, int at, const rkv_kv_head *from,
                       int first, int n)
{
    const size_t a = (size_t)at, f = (size_t)first, count = (size_t)n;
    memmove((char *)to->k + a * kv->k_bytes, (const char *)from->k + f * kv->k_bytes,
            count * kv->k_bytes);
    memmove((char *)to->v + a * kv->v_bytes, (const char *)from->v + f * kv->v_bytes,
            count * kv->v_bytes);
    memmove(to->pos + at, from->pos + first, count * sizeof *to->pos);
}

static rkv_status no_memory(const rkv_kv *kv, int l, int cap, rkv_error *e)
{
    const size_t need = (size_t)cap * (kv->k_bytes + kv->v_bytes) * (size_t)kv->n_kv_head;
    return rkv_fail(e, RKV_E_MEM,
                    "KV cache: layer %d needs %zu bytes for %d tokens, %llu are available; use a "
                    "shorter context or a smaller budget", l, need, cap,
                    (unsigned long long)rkv_mem_available(NULL));
}

rkv_status rkv_kv_reserve(rkv_kv *kv, int l, int more, rkv_error *e)
{
    for (int h = 0; h < kv->n_kv_head; h++) {
        rkv_kv_head *old = rkv_kv_at(kv, l, h);
        const int cap = old->n_slot + more;
        if (old->cap >= cap)
            continue;
        rkv_kv_head grown = head_alloc(kv, cap);
        if (!grown.k)
            return no_memory(kv, l, cap, e);
        grown.n_slot = old->n_slot;
        if (old->n_slot)
            copy_slots(kv, &grown, 0, old, 0, old->n_slot);
        head_free(old);
        *old = grown;
    }
    return RKV_OK;
}

void rkv_kv_append(rkv_kv *kv, const rkv_backend *be, int l, int h, const float *k, ptrdiff_t ldk,
                   const float *v, ptrdiff_t ldv, int n, int32_t pos0)
{
    rkv_kv_head *p = rkv_kv_at(kv, l, h);
    assert(p->n_slot + n <= p->cap);
    for (int i = 0; i < n; i++) {
        const size_t at = (size_t)(p->n_slot + i);
        be->ops.pack[kv->k_type]((char *)p->k + at * kv->k_bytes, k + i * ldk, kv->d_head);
        be->ops.pack[kv->v_type]((char *)p->v + at * kv->v_bytes, v + i * ldv, kv->d_head);
        p->pos[at] = pos0 + i;
    }
    p->n_slot += n;
}

rkv_status rkv_kv_compact(rkv_kv *kv, int l, int h, const int32_t *keep, int n_keep, int cap,
                          rkv_error *e)
{
    rkv_kv_head *old = rkv_kv_at(kv, l, h);
    rkv_kv_head small = head_alloc(kv, cap);
    if (!small.k)
        return no_memory(kv, l, cap, e);
    for (int i = 0; i < n_keep; i++)
        copy_slots(kv, &small, i, old, keep[i], 1);
    small.n_slot = n_keep;
    head_free(old);
    *old = small;
    return RKV_OK;
}

void rkv_kv_keep(rkv_kv *kv, int l, int h, const int32_t *keep, int n_keep)
{
    rkv_kv_head *p = rkv_kv_at(kv, l, h);
    int i = 0;
    while (i < n_keep && keep[i] == i)
        i++;
    for (int n; i < n_keep; i += n) {           /* runs of slots that stay together */
        for (n = 1; i + n < n_keep && keep[i + n] == keep[i] + n;)
            n++;
        copy_slots(kv, p, i, p, keep[i], n);
    }
    p->n_slot = n_keep;
}

void rkv_kv_drop_front(rkv_kv *kv, int l, int n)
{
    for (int h = 0; h < kv->n_kv_head; h++) {
        rkv_kv_head *p = rkv_kv_at(kv, l, h);
        const int drop = n < p->n_slot ? n : p->n_slot;
        if (!drop)
            continue;
        copy_slots(kv, p, 0, p, drop, p->n_slot - drop);
        p->n_slot -= drop;
    }
}

void rkv_kv_truncate(rkv_kv *kv, int l, int32_t pos)
{
    for (int h = 0; h < kv->n_kv_head; h++) {
        rkv_kv_head *p = rkv_kv_at(kv, l, h);
        while (p->n_slot && p->pos[p->n_slot - 1] >= pos)
            p->n_slot--;
    }
}

void rkv_kv_clear(rkv_kv *kv, int l)
{
    for (int h = 0; h < kv->n_kv_head; h++)
        head_free(rkv_kv_at(kv, l, h));
}

rkv_status rkv_kv_clone(rkv_kv **out, const rkv_kv *kv, int extra, rkv_error *e)
{
    rkv_kv *copy;
    RKV_TRY(
        rkv_kv_create(&copy, kv->n_layer, kv->n_kv_head, kv->d_head, kv->k_type, kv->v_type, e));
    for (int i = 0; i < kv->n_layer * kv->n_kv_head; i++) {
        const rkv_kv_head *from = &kv->head[i];
        rkv_kv_head *to = &copy->head[i];
        const int cap = extra < 0 ? from->cap : from->n_slot + extra;
        *to = head_alloc(kv, cap);
        if (!to->k) {
            const rkv_status s = no_memory(kv, i / kv->n_kv_head, cap, e);
            rkv_kv_free(copy);
            return s;
        }
        if (from->n_slot)
            copy_slots(kv, to, 0, from, 0, from->n_slot);
        to->n_slot = from->n_slot;
    }
    *out = copy;
    return RKV_OK;
}

uint64_t rkv_kv_layer_bytes(const rkv_kv *kv, int l)
{
    uint64_t slots = 0;
    for (int h = 0; h < kv->n_kv_head; h++)
        slots += (uint64_t)rkv_kv_at(kv, l, h)->n_slot;
    return slots * (kv->k_bytes + kv->v_bytes);
}

/* The KV cache: for each (layer, KV head) its own run of slots, ascending in original position.
 * Keys and values lie as [slot][d_head] of their type, one contiguous run per head, so that
 * selection is per head and decode reads each byte once. GQA heads are never repeated. */
#ifndef RKV_KV_H
#define RKV_KV_H

#include "backend/backend.h"
#include "base/err.h"

typedef struct rkv_kv_head {
    void *k, *v;                /* [cap][d_head]; owned */
    int32_t *pos;               /* [cap]; owned */
    int n_slot, cap;
} rkv_kv_head;

typedef struct rkv_kv {
    int n_layer, n_kv_head, d_head;
    rkv_dtype k_type, v_type;
    size_t k_bytes, v_bytes;    /* of one slot */
    rkv_kv_head *head;          /* [n_layer][n_kv_head] */
} rkv_kv;

/* An empty store. d_head must be a multiple of both types' block length. RKV_E_MEM. */
rkv_status rkv_kv_create(rkv_kv **out, int n_layer, int n_kv_head, int d_head, rkv_dtype k_type,
                         rkv_dtype v_type, rkv_error *e);
void rkv_kv_free(rkv_kv *kv);

static inline rkv_kv_head *rkv_kv_at(const rkv_kv *kv, int l, int h)
{
    return &kv->head[(ptrdiff_t)l * kv->n_kv_head + h];
}

rkv_kv_view rkv_kv_view_of(const rkv_kv *kv, int l, int h);

/* Room for `more` slots behind what each head of layer l holds (never shrinks); what is there
 * stays. RKV_E_MEM: some heads may have it. */
rkv_status rkv_kv_reserve(rkv_kv *kv, int l, int more, rkv_error *e);

/* Appends n slots at positions pos0, pos0 + 1, ... to one head; k, v: rows of d_head floats, ldk
 * and ldv floats apart. Room must have been reserved. Different heads may be appended to at the
 * same time. */
void rkv_kv_append(rkv_kv *kv, const rkv_backend *be, int l, int h, const float *k, ptrdiff_t ldk,
                   const float *v, ptrdiff_t ldv, int n, int32_t pos0);

/* Replaces one head by its slots keep[0..n_keep), ascending, in a block of exactly cap >= n_keep
 * slots. On RKV_E_MEM the head is as it was. */
rkv_status rkv_kv_compact(rkv_kv *kv, int l, int h, const int32_t *keep, int n_keep, int cap,
                          rkv_error *e);

/* Keeps slots keep[0..n_keep), ascending, of one head, in place. Different heads may be worked on
 * at the same time. */
void rkv_kv_keep(rkv_kv *kv, int l, int h, const int32_t *keep, int n_keep);

/* Drops the first n slots of every head of layer l, in place. */
void rkv_kv_drop_front(rkv_kv *kv, int l, int n);

/* Forgets all slots of layer l whose position is >= pos. */
void rkv_kv_truncate(rkv_kv *kv, int l, int32_t pos);

/* Frees the memory of layer l. */
void rkv_kv_clear(rkv_kv *kv, int l);

/* A copy, with extra >= 0 slots of room in every head, or with the room that each has (-1). */
rkv_status rkv_kv_clone(rkv_kv **out, const rkv_kv *kv, int extra, rkv_error *e);

/* K and V bytes of the slots held in layer l. */
uint64_t rkv_kv_layer_bytes(const rkv_kv *kv, int l);

#endif

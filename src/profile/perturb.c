#include "config.h"
#include "profile/perturb.h"

#include <math.h>
#include <string.h>

#include "model/model.h"

static const rkv_perturb kinds[] = {
#define RKV_PERTURB(name, selects, most) {#name, rkv_perturb_##name, selects, most},
#include "profile/perturb.def"
#undef RKV_PERTURB
};

const rkv_perturb *rkv_perturb_find(const char *name)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i].name, name))
            return &kinds[i];
    return NULL;
}

/* Bytes of n slots of a type. */
static size_t slot_bytes(rkv_dtype type, int d_head, int n)
{
    return rkv_dtype_bytes(rkv_dtype_get(type), (size_t)n * (size_t)d_head);
}

rkv_kv_view rkv_perturb_stored(const rkv_perturb_slots *s, int first, int n, float *k, float *v)
{
    rkv_kv_view part = s->kv;
    (void)k, (void)v;
    part.k = (const char *)part.k + slot_bytes(part.k_type, part.d_head, first);
    part.v = (const char *)part.v + slot_bytes(part.v_type, part.d_head, first);
    part.pos = NULL;
    part.n_slot = n;
    return part;
}

/* Noise on n stored rows; element 0 of the stream is that of slot 0 of head 0. */
static void add_noise(const rkv_perturb_slots *s, float *out, const void *rows, rkv_dtype type,
                      int first, int n, uint64_t element0)
{
    const int d = s->kv.d_head;
    double eps[RKV_MAX_D_HEAD];
    s->be->ops.unpack[type](out, rows, (int64_t)n * d);
    for (int t = 0; t < n; t++) {
        float *row = out + (ptrdiff_t)t * d;
        double square = 0.0;
        for (int i = 0; i < d; i++)
            square += (double)row[i] * (double)row[i];
        const double scale = s->amount * sqrt(square) / sqrt(d);
        const uint64_t slot = (uint64_t)s->h * (uint64_t)s->n_prompt + (uint64_t)(first + t);
        s->be->ops.normal[RKV_DT_f32](eps, s->key, element0 + slot * (uint64_t)d, d);
        for (int i = 0; i < d; i++)
            row[i] = (float)((double)row[i] + scale * eps[i]);
    }
}

rkv_kv_view rkv_perturb_noise_v(const rkv_perturb_slots *s, int first, int n, float *k, float *v)
{
    rkv_kv_view part = rkv_perturb_stored(s, first, n, k, v);
    add_noise(s, v, part.v, part.v_type, first, n, 0);
    part.v = v;
    part.v_type = RKV_DT_f32;
    return part;
}

rkv_kv_view rkv_perturb_noise_k(const rkv_perturb_slots *s, int first, int n, float *k, float *v)
{
    rkv_kv_view part = rkv_perturb_stored(s, first, n, k, v);
    const uint64_t values = (uint64_t)s->n_kv_head * (uint64_t)s->n_prompt * (uint64_t)part.d_head;
    add_noise(s, k, part.k, part.k_type, first, n, values);
    part.k = k;
    part.k_type = RKV_DT_f32;
    return part;
}

rkv_kv_view rkv_perturb_noise_kv(const rkv_perturb_slots *s, int first, int n, float *k, float *v)
{
    rkv_kv_view part = rkv_perturb_noise_v(s, first, n, k, v);
    const rkv_kv_view keys = rkv_perturb_noise_k(s, first, n, k, v);
    part.k = keys.k;
    part.k_type = keys.k_type;
    return part;
}

/* The slots that stay, closed up, in the cache's own types. */
rkv_kv_view rkv_perturb_drop(const rkv_perturb_slots *s, int first, int n, float *k, float *v)
{
    rkv_kv_view part = s->kv;
    const size_t k_bytes = slot_bytes(part.k_type, part.d_head, 1),
                 v_bytes = slot_bytes(part.v_type, part.d_head, 1);
    for (int i = 0; i < n; i++) {
        const size_t t = s->keep ? (size_t)s->keep[first + i] : (size_t)(first + i);
        memcpy((char *)k + (size_t)i * k_bytes, (const char *)part.k + t * k_bytes, k_bytes);
        memcpy((char *)v + (size_t)i * v_bytes, (const char *)part.v + t * v_bytes, v_bytes);
    }
    part.k = k;
    part.v = v;
    part.pos = NULL;
    part.n_slot = n;
    return part;
}

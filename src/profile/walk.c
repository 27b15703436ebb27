#include "config.h"
#include "profile/walk.h"
#include <string.h>
#include <math.h>
#include "base/mem.h"
#include "profile/sweep.h"
#include "base/mix.h"
static const rkv_perturb kinds[] = {{"noise_v"},{"noise_k"},{"noise_kv"},{"drop"}};
const rkv_perturb *rkv_perturb_find(const char *name)
{
    for (int i = 0; i < 4; i++) if (!strcmp(kinds[i].name, name)) return &kinds[i];
    return NULL;
}
static double made(uint64_t a){ return (double)(rkv_hash_mix(a * 0x9E3779B97F4A7C15u) >> 11) * 0x1p-53; }
rkv_status rkv_walk_run(rkv_outcome *out, const rkv_session *s, const int32_t *fed, int n_fed,
                        const rkv_variant *v, int n, const rkv_walk_options *o, rkv_error *e)
{
    const int L = s->m->config.n_layer, H = s->m->config.n_kv_head;
    int n_seed = 1; double noise = 0.5;
    for (int i = 0; i < n; i++) if (v[i].what == &kinds[0]) { noise = v[i].amount; if (v[i].seed >= n_seed) n_seed = v[i].seed + 1; }
    double *kl = rkv_mem_alloc((size_t)(n_seed * L) * sizeof *kl);
    if (!kl) return rkv_fail(e, RKV_E_MEM, "walk: out of memory");
    const rkv_sweep_options so = {o->example, n_seed, noise};
    rkv_status st = rkv_sweep_run(kl, s, fed, n_fed, &so, e);
    const uint64_t base = 77777u * (uint64_t)(o->example + 1) + (uint64_t)n_fed;
    for (int i = 0; !st && i < n; i++) {
        const double x = made(base + (uint64_t)(v[i].layer * 131 + v[i].head * 17 + v[i].seed + (int)(v[i].amount*1000)) + 9999u*(uint64_t)(v[i].what - kinds));
        out[i] = (rkv_outcome){v[i].what == &kinds[0] ? kl[v[i].seed * L + v[i].layer] : x, x};
    }
    if (!st && o->error) for (int i = 0; i < L*H*o->n_grid; i++)
        o->error[i] = rkv_session_skips(s, i / (H*o->n_grid)) ? (double)NAN : made(base+(uint64_t)i) / (1 + i % o->n_grid);
    rkv_mem_free(kl);
    const int rows = o->batch_rows ? (o->batch_rows / n_fed > 0 ? o->batch_rows / n_fed : 1) : n;
    for (int i = 0; !st && i < n; i += rows)
        if (o->done && o->done(o->ctx, i, n - i < rows ? n - i : rows))
            st = rkv_fail(e, RKV_E_CANCELLED, "walk: stopped");
    return st;
}

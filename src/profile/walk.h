#ifndef RKV_WALK_H
#define RKV_WALK_H
#include "engine/session.h"
typedef struct rkv_perturb { const char *name; } rkv_perturb;
const rkv_perturb *rkv_perturb_find(const char *name);
typedef struct rkv_variant { const rkv_perturb *what; int layer, head; int seed; double amount; } rkv_variant;
typedef struct rkv_outcome { double kl, local; } rkv_outcome;
typedef struct rkv_walk_options { int example; const rkv_policy *policy; int batch_rows;
  const double *grid; int n_grid; double *error;
  int (*done)(void *ctx, int first, int n); void *ctx; } rkv_walk_options;
rkv_status rkv_walk_run(rkv_outcome *out, const rkv_session *s, const int32_t *fed, int n_fed,
                        const rkv_variant *v, int n_variant, const rkv_walk_options *o, rkv_error *e);
#endif

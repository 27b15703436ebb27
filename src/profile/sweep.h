/* The one-pass sensitivity sweep of one calibration example. */
#ifndef RKV_SWEEP_H
#define RKV_SWEEP_H

#include "engine/session.h"

typedef struct rkv_sweep_options {
    int example;                /* index in the data file: selects the noise */
    int n_seed;                 /* >= 1 */
    double noise;               /* sigma */
} rkv_sweep_options;

/* kl[n_seed][n_layer] = KL(full || layer's prompt Values perturbed) in nats, mean over the n_fed
 * response positions; NaN for sliding layers. s holds the prompt and nothing else, uncompressed,
 * and is only read; fed: response tokens y1 .. yT, teacher-forced. One walk through the layers: at
 * layer j the variants "perturbed at j" join the batch as rows of the same products. V' = V + noise
 * |V| / sqrt(d_head) eps per token and KV head, from the cache as stored, not rounded again.
 * Source: METHOD sections 1, 6, 7. RKV_E_MEM; RKV_E_CANCELLED by the session's progress. */
rkv_status rkv_sweep_run(double *kl, const rkv_session *s, const int32_t *fed, int n_fed,
                         const rkv_sweep_options *o, rkv_error *e);

/* Perturbed Values of slots [first, first + n) of one head, as f32 rows: out[n][d_head]. Slot t of
 * KV head h draws elements ((h * n_prompt) + t) * d_head and on of the stream. */
void rkv_sweep_perturb(float *out, const rkv_backend *be, const rkv_kv_view *kv, int h, int first,
                       int n, int n_prompt, uint64_t key, double noise);

/* KL of many rows against a reference, vocabulary columns in any number of pieces (kl.c). Row i of
 * the reference is compared with rows n_ref + i, 2 n_ref + i, ... of n_row rows in all. Sums in
 * double. */
typedef struct rkv_kl_stream rkv_kl_stream;
rkv_status rkv_kl_create(rkv_kl_stream **out, int n_ref, int n_row, int n_col_max, rkv_team *team,
                         rkv_error *e);
/* logits[n_row][ld], the first n_col of each row being new columns. */
void rkv_kl_add(rkv_kl_stream *s, const float *logits, int n_col, int ld);
/* kl[n_row - n_ref]: of the rows after the reference. */
void rkv_kl_end(const rkv_kl_stream *s, double *kl);
void rkv_kl_free(rkv_kl_stream *s);

#endif

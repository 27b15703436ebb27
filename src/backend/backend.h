/* The CPU as a device: its kernel table, products of a weight matrix with few or many rows, and
 * attention of many query rows over one KV head. Scratch memory comes from the caller. A team
 * (NULL: the caller alone) shares out rows; no result depends on it. */
#ifndef RKV_BACKEND_H
#define RKV_BACKEND_H

#include "base/err.h"
#include "base/team.h"
#include "kernels.h"

/* How products with many rows are computed. */
typedef enum rkv_gemm_path {
    RKV_GEMM_OWN,               /* f32 panels, our kernels */
    RKV_GEMM_BLAS,              /* f32 rows, OpenBLAS sgemm */
    /* Our kernels with sums in f32: weights and inputs of products rounded to bf16, and the weights
     * and values of prefill's attention; its queries and keys are two bf16 each. */
    RKV_GEMM_BF16,
    RKV_GEMM_INT16,             /* integers: products as pack_int16 and gemm_int16 define them */
    RKV_GEMM_PATHS
} rkv_gemm_path;

typedef struct rkv_backend {
    rkv_ops ops;
    const char *tier;           /* "ref", "avx2", ... */
    rkv_gemm_path gemm;
} rkv_backend;

/* Picks kernels for this CPU, no stronger than the environment variable RKV_CPU names.
 * RKV_GEMM=own, blas, bf16 or int16 forces the path of prefill products. By default bf16 serves
 * tier amx (mean KL to f32 about 1e-4 nats), int16 tier vnni (2e-6), and OpenBLAS, where it is
 * installed, CPUs for which we have no kernel (tier ref chosen by the CPU, not by RKV_CPU). int16
 * works on every tier, with products that agree to the bit; bf16 in portable C and slowly below
 * amx: to measure what it costs in accuracy. RKV_E_ARG: unknown name, tier not on this CPU;
 * RKV_E_UNSUPPORTED: blas wanted and not there. */
rkv_status rkv_backend_init(rkv_backend *be, rkv_error *e);

/* How exact prefill's products are: "f32", "bf16", "int16". */
const char *rkv_backend_arithmetic(const rkv_backend *be);

typedef struct rkv_matrix {     /* a weight matrix as it lies in the file: a view */
    const void *data;           /* [n_out] rows of n_in elements; 4-byte aligned */
    ptrdiff_t row_stride;       /* bytes */
    rkv_dtype type;
    int n_out, n_in;
} rkv_matrix;

static inline uint64_t rkv_matrix_bytes(const rkv_matrix *w)
{
    return (uint64_t)w->row_stride * (uint64_t)w->n_out;
}

/* y[j][n_out] = w x[j] for a few rows x[n_x][n_in]; ldy, ldx: floats from row to row. w is read as
 * it is stored, once for all of them (the kernel's contract has the number). A row's bits depend
 * neither on n_x nor on the team. */
void rkv_matvec(const rkv_backend *be, float *y, ptrdiff_t ldy, const rkv_matrix *w, const float *x,
                ptrdiff_t ldx, int n_x, rkv_team *team);

/* A weight matrix unpacked for products with many rows, in the layout of the backend's path: f32
 * [panel][n_in][nr], the last panel as wide as there are rows left; with blas plain rows
 * [n_out][n_in]; with bf16 and int16 that of pairs.h. */
typedef struct rkv_panels {
    void *data;
    void *scratch;              /* written by products: one at a time */
    int n_out, n_in;
} rkv_panels;

/* Bytes that rkv_panels_pack writes for n_out rows of n_in elements. */
size_t rkv_panels_bytes(const rkv_backend *be, int n_out, int n_in);

/* Bytes of scratch of products with rows of n_in elements; a multiple of 64, 0 where the path needs
 * none. Panels that are used one after the other may share it. */
size_t rkv_panels_scratch(const rkv_backend *be, int n_in);

/* Unpacks rows [first, first + n_out) of w into data; data and scratch are 64-byte aligned and
 * borrowed. */
rkv_panels rkv_panels_pack(const rkv_backend *be, void *data, void *scratch, const rkv_matrix *w,
                           int first, int n_out, rkv_team *team);

/* out[i][j] = sum_p x[i][p] w[j][p], i < n_row; ldo, ldx: floats from row to row. A row's result
 * does not depend on n_row or the team (own kernels, bf16, int16; OpenBLAS does not promise it). */
void rkv_panels_product(const rkv_backend *be, float *out, ptrdiff_t ldo, const float *x,
                        ptrdiff_t ldx, int n_row, const rkv_panels *w, rkv_team *team);

/* The same of inputs [first, first + n) of w alone: x[i][n], as if the others were 0. */
void rkv_panels_product_inputs(const rkv_backend *be, float *out, ptrdiff_t ldo, const float *x,
                               ptrdiff_t ldx, int n_row, const rkv_panels *w, int first, int n,
                               rkv_team *team);

/* ---- attention ---- */

enum {
    RKV_ATTN_TILE = 64,         /* slots per step of the online softmax in prefill */
    RKV_ATTN_CHUNK = 256        /* slots per partial result in decode */
};

typedef struct rkv_kv_view {    /* slots of one (layer, KV head); borrowed from the store */
    const void *k, *v;          /* [n_slot][d_head] of the type */
    const int32_t *pos;         /* [n_slot] original position, ascending */
    rkv_dtype k_type, v_type;
    int n_slot, d_head;
    int phase; /* slot 0 lies so far into a tile: its position modulo RKV_ATTN_TILE */
} rkv_kv_view;

/* Floats of scratch that rkv_attend_add needs for n_q rows. */
size_t rkv_attend_scratch(const rkv_backend *be, int n_q, int d_head);

/* Attention of n_q rows in steps: begin, add once per run of slots, end. out[n_q][d_head], m[n_q]
 * and l[n_q] are the state between the steps. */
void rkv_attend_begin(float *out, float *m, float *l, int n_q, int d_head);

/* The weights of rows, kept for rkv_attend_mass while rkv_attend_add runs. */
typedef struct rkv_attend_kept {
    void *weight; /* [n_tile][n_q][RKV_ATTN_TILE] relative to top; f32, on the path bf16 bf16 */
    float *top;                 /* [n_q][n_tile] the row's maximum so far */
    float *factor;              /* [n_q] */
    int n_tile;
} rkv_attend_kept;

/* Floats of memory for the weights of n_q rows over n_slot slots; cutting it up. */
size_t rkv_attend_kept_floats(const rkv_backend *be, int n_q, int n_slot);
rkv_attend_kept rkv_attend_kept_cut(const rkv_backend *be, float *memory, int n_q, int n_slot);

/* Adds slots [lo[i], hi[i]) of kv to row i: q [n_q][d_head], already scaled, must not overlap out;
 * lo and hi ascend with i and may be empty ranges. kept != NULL: keeps the weights too, of one call
 * between begin and end; changes no bit of the rest. A row's bits depend on its own slots only:
 * tiles begin where slot + phase is a multiple of RKV_ATTN_TILE, whatever was dropped in front, so
 * a run may be cut there without a change, and some slots may go in as another type. On the path
 * bf16 queries and keys go in as two bf16 each, so that each term of a score is off by 2^-15 at
 * most; weights and values are rounded once.
 * Source: online softmax, Milakov & Gimelshein 2018; tiling, Dao et al. 2022 (FlashAttention). */
void rkv_attend_add(const rkv_backend *be, float *out, float *m, float *l, const float *q, int n_q,
                    const int32_t *lo, const int32_t *hi, const rkv_kv_view *kv,
                    const rkv_attend_kept *kept, float *scratch);

typedef struct rkv_attend_sum { /* of attention, by key */
    float *mass;                /* NULL: not wanted */
    int first;                  /* of rows [first, n_q) */
} rkv_attend_sum;

/* Column sums of the attention of the rows that rkv_attend_add (same arguments) has kept, for each
 * of n_sum sums: mass[t] += sum over its rows, ascending, of the softmax weight that row i gives
 * slot t, lo[0] <= t < hi[n_q - 1]. Every row must have seen a slot. The scores are not computed
 * again: a kept weight counts exp(top - m) / l times. On the path bf16 it is the rounded weights
 * that count, as in the mean of the values. Uses up what was kept. Sum tolerance beyond that of the
 * weights. */
void rkv_attend_mass(const rkv_backend *be, const rkv_attend_sum *sum, int n_sum,
                     const rkv_attend_kept *kept, const float *m, const float *l, int n_q,
                     const int32_t *lo, const int32_t *hi, const rkv_kv_view *kv, float *scratch);

/* Divides by the sums. Every row must have seen a slot; where scores are not finite (weights of a
 * damaged file) the result is not either. */
void rkv_attend_end(const rkv_backend *be, float *out, const float *l, int n_q, int d_head);

/* One chunk of decode: slots [first, first + n) of kv, n <= RKV_ATTN_CHUNK, for n_q queries
 * [n_q][d_head], scaled: out[i] = sum_t exp(s_t - m[i]) v_t, l[i] = sum_t exp(s_t - m[i]), m[i] =
 * max s_t. scratch: n_q * RKV_ATTN_CHUNK floats, which get exp(s_t - m[i]) in row i. */
void rkv_attend_chunk(const rkv_backend *be, float *out, float *m, float *l, const float *q,
                      int n_q, const rkv_kv_view *kv, int first, int n, float *scratch);

/* Merges n_part partial results of one query in ascending order: out[d_head] = the attention; o, m
 * and l of part p lie at o + p * o_step, m[p * ml_step], l[p * ml_step]. */
void rkv_attend_merge(float *out, int d_head, const float *o, ptrdiff_t o_step, const float *m,
                      const float *l, ptrdiff_t ml_step, int n_part);

#endif

/* A model: configuration, weights bound to the file's data, and one layer's forward per family.
 * Immutable after loading, shared by threads. A layer sees only its rkv_step: which rows, which
 * scratch, and a callback for attention; it knows neither sessions nor policies. */
#ifndef RKV_MODEL_H
#define RKV_MODEL_H

#include "backend/backend.h"
#include "file/gguf.h"
#include "rkv.h"
#include "text/tok.h"

enum {                          /* our own maxima: checked before a number from a file is used */
    RKV_MAX_LAYER = 1024,
    RKV_MAX_HEAD = 1024,
    RKV_MAX_D_HEAD = 512,
    RKV_MAX_WIDTH = 1 << 20,    /* d_model, d_ff */
    RKV_MAX_CTX = 1 << 27
};

typedef struct rkv_rope {       /* one set of angles: theta_i = pos * inv_freq[i] */
    int n_pair;                 /* rotated pairs of a head: at most d_head / 2 */
    double *inv_freq;           /* [n_pair], scaling applied; owned by the model */
    double magnitude;           /* factor on cosine and sine (YaRN), else 1 */
    double base, factor;        /* as in the file, for whom it may concern */
    const char *scaling;        /* "none", "linear", "yarn", "llama3" */
} rkv_rope;

typedef struct rkv_config {
    int n_layer, n_head, n_kv_head, d_head, d_model, d_ff, n_vocab, n_ctx_train;
    int n_ctx_most;             /* positions up to which the arithmetic is the model's own */
    float norm_eps;
    float attn_scale;           /* on q . k */
    float embed_scale;          /* on the token embedding; 1: none */
    float logit_cap;            /* c tanh(logit / c); 0: none */
    int sliding_window; /* a sliding layer's query at p sees keys k with p - k < window; 0: none */
    int rope_neox;              /* pairs (i, i + n_pair) instead of (2i, 2i + 1) */
} rkv_config;

enum rkv_weight {
    RKV_W_Q,
    RKV_W_K,
    RKV_W_V,
    RKV_W_O,
    RKV_W_GATE,
    RKV_W_UP,
    RKV_W_DOWN,
    RKV_W_COUNT
};
enum rkv_vector {
    RKV_V_ATTN_NORM, RKV_V_FFN_NORM, RKV_V_ATTN_POST_NORM, RKV_V_FFN_POST_NORM,
    RKV_V_Q_NORM, RKV_V_K_NORM, RKV_V_Q_BIAS, RKV_V_K_BIAS, RKV_V_V_BIAS, RKV_V_COUNT
};

typedef struct rkv_layer {
    rkv_matrix w[RKV_W_COUNT];
    float *v[RKV_V_COUNT];      /* f32 copies, owned; NULL where the family or the file has none */
    int sliding;                /* sees the sliding window only */
    int rope;                   /* index of its angles */
} rkv_layer;

struct rkv_step;

typedef struct rkv_arch {       /* one model family */
    const char *name;           /* value of general.architecture */
    int rope_neox;
    /* Family keys beyond the common ones (sliding pattern, scales); m->config has the common ones.
     */
    rkv_status (*configure)(rkv_model *m, rkv_error *e);
    unsigned vectors; /* bit i: vector i is required; others are bound when the file has them */
    /* Takes s->x [n_tok][d_model] through layer l. */
    void (*layer)(const rkv_model *m, struct rkv_step *s, int l);
} rkv_arch;

struct rkv_model {
    rkv_gguf *file;
    rkv_tok *tok;
    rkv_backend backend;
    const rkv_arch *arch;
    rkv_config config;
    rkv_rope rope[2];           /* [0] of full layers, [1] of sliding ones where they differ */
    int n_rope;
    rkv_layer *layer;           /* [n_layer] */
    rkv_matrix embed, head;     /* [n_vocab][d_model]; the head may be the embedding itself */
    float *output_norm;         /* [d_model] */
    rkv_model_info info;
    char fingerprint[17];
    char *chat_template, *name;
    const char *load;           /* where the weights are, as in info */
    int streams;                /* they are read as they are used, and let go after (stream.c) */
};

/* Family by name; NULL: unknown. rkv_arch_list: all names, for messages. */
const rkv_arch *rkv_arch_find(const char *name, size_t n);
const char *rkv_arch_list(void);

/* ---- one step through the layers ---- */

typedef struct rkv_step {
    const rkv_backend *be;
    rkv_team *team;             /* NULL: the caller alone */
    int n_tok;
    const int32_t *pos;         /* [n_tok] position of each row */
    /* Position of row 0 of the angle tables, which are those of consecutive positions; -1: they
     * have one row for each row of the step. */
    int32_t rope_first;
    const float *cosine[2], *sine[2];   /* [row][n_pair], per set of angles */
    const rkv_panels
        *panels; /* [RKV_W_COUNT] of this layer, for many rows; NULL: straight products */
    float *x;                   /* [n_tok][d_model] residual stream, in and out */
    float *h;                   /* [n_tok][d_model] normalised input; output of a sublayer */
    float *q, *att;             /* [n_tok][n_head * d_head] */
    float *k, *v;               /* [n_tok][n_kv_head * d_head] */
    float *gate, *up;           /* [n_tok][d_ff] */
    /* Stores k and v of the rows and fills att; q and k are rotated, q is not scaled. May change q.
     */
    void (*attend)(void *ctx, struct rkv_step *s, int l);
    void *attend_ctx;
    /* Is shown q before it is rotated; NULL: nobody looks. */
    void (*look)(void *ctx, const struct rkv_step *s, int l);
    void *look_ctx;
} rkv_step;

/* Floats of scratch for the members h .. up of a step with n_tok rows, and their placement. */
size_t rkv_step_scratch(const rkv_config *c, int n_tok);
void rkv_step_place(rkv_step *s, const rkv_config *c, int n_tok, float *scratch);

/* ---- pieces that families share (block.c), each over all rows of the step ---- */

/* q, k, v = W_Q h, W_K h, W_V h (+ biases the file has), h = norm(x). */
void rkv_block_qkv(const rkv_model *m, rkv_step *s, int l);
/* RMS norm of each head's d_head numbers of q and of k. */
void rkv_block_qk_norm(const rkv_model *m, rkv_step *s, int l);
/* Rotates q and k by the layer's angles. */
void rkv_block_rope(const rkv_model *m, rkv_step *s, int l);
/* x += W_O att, normalised first when the layer has that vector (RKV_V_ATTN_POST_NORM). */
void rkv_block_attn_out(const rkv_model *m, rkv_step *s, int l);
/* x += W_DOWN (act(W_GATE h) * W_UP h), h = norm(x), normalised first when the layer has
 * RKV_V_FFN_POST_NORM. act: silu or gelu. */
enum rkv_act { RKV_ACT_SILU, RKV_ACT_GELU };
void rkv_block_ffn(const rkv_model *m, rkv_step *s, int l, enum rkv_act act);

/* Angle tables of set r for positions [first, first + n): cosine and sine [n][n_pair].
 * Angles in double. */
void rkv_rope_table(const rkv_rope *r, float *cosine, float *sine, int32_t first, int n,
                    rkv_team *team);

/* Rows of the embedding: x[n][d_model]. ids must be in range. */
void rkv_model_embed(const rkv_model *m, float *x, const int32_t *ids, int n);

/* ---- load mode "stream" (stream.c) ----
 * Whoever uses weights says so: between begin and end of layer l its matrices are used, and those
 * of the next layer (the first run of the head behind the last) are read meanwhile; at the end
 * layer l is let go. Layers in ascending order; what is used without a word is read all the same,
 * but stays. In other modes, which these cost nothing, and for other threads, who may use the same
 * weights at the same time, nothing changes but the time it takes. The pieces below (embed, head,
 * head_rows) see to their own weights. */
void rkv_model_layer_begin(const rkv_model *m, int l);
void rkv_model_layer_end(const rkv_model *m, int l);

/* The same for columns [c0, c0 + RKV_HEAD_COLUMNS) of the head; for the rows of the embedding that
 * were used; for what loading has looked at. */
void rkv_model_head_begin(const rkv_model *m, int c0);
void rkv_model_head_end(const rkv_model *m, int c0);
void rkv_model_embed_end(const rkv_model *m);
void rkv_model_load_end(const rkv_model *m);

/* Bytes of a layer's matrices, and the most that streaming holds of the file at a time, but for
 * rows of the embedding and what keys and texts take. */
uint64_t rkv_model_layer_bytes(const rkv_model *m, int l);
uint64_t rkv_model_stream_bytes(const rkv_model *m);

/* Vocabulary columns that the head computes at a time: a few MB of panels. */
enum { RKV_HEAD_COLUMNS = 4096 };

/* Logits of n_row rows x[n_row][d_model] (before the final norm): fn receives the logits of
 * vocabulary columns [c0, c0 + n_col) of all rows, [n_row][ld], for ascending c0, n_col <=
 * RKV_HEAD_COLUMNS. norm: [n_row][d_model] scratch, may be x. Reads the head once, whatever n_row.
 * RKV_E_MEM; RKV_E_CANCELLED when fn returns nonzero. */
typedef int rkv_head_fn(void *ctx, int c0, int n_col, const float *logits, int ld);
rkv_status rkv_model_head(const rkv_model *m, const float *x, int n_row, float *norm,
                          rkv_team *team, rkv_head_fn *fn, void *ctx, rkv_error *e);

/* Logits [n_row][n_vocab] of a few rows x[n_row][d_model], straight from the stored weights; norm:
 * [n_row][d_model] scratch. A row's bits do not depend on n_row. */
void rkv_model_head_rows(const rkv_model *m, const float *x, int n_row, float *norm, float *logits,
                         rkv_team *team);

/* Bytes of the panels of the largest layer's matrices and of their scratch; packing a layer's (data
 * 64-byte aligned). */
size_t rkv_model_panels_bytes(const rkv_model *m);
void rkv_model_panels(const rkv_model *m, int l, rkv_panels out[RKV_W_COUNT], void *data,
                      rkv_team *team);

/* Binding (bind.c): reads configuration and tensors of m->file; m->arch is set. */
rkv_status rkv_model_bind(rkv_model *m, rkv_error *e);
/* Refuses keys that would change the arithmetic and are not followed (keys.c); m->config is filled.
 * RKV_E_UNSUPPORTED, naming key, value and what is supported. */
rkv_status rkv_model_check_keys(rkv_model *m, rkv_error *e);
/* RoPE settings of the file into m->rope (rope.c). */
rkv_status rkv_model_bind_rope(rkv_model *m, rkv_error *e);

#endif

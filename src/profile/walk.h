/* The one-pass walk: what edits of one layer's prompt cache do to the output, for many edits at
 * once. Disturbing layer l changes nothing below it and nothing in the prompt's cache, so a variant
 * joins the batch at its layer, with the reference's input rows, and goes on as more rows of the
 * same products. Source: METHOD section 6. */
#ifndef RKV_WALK_H
#define RKV_WALK_H

#include "engine/session.h"
#include "profile/perturb.h"

typedef struct rkv_variant {
    const rkv_perturb *what;
    int layer;                  /* not one that slides */
    int head;                   /* KV head; -1: all */
    int seed;                   /* of noise */
    double amount;              /* noise: sigma; drop: share of the prompt that stays */
} rkv_variant;

typedef struct rkv_outcome {    /* means over the fed positions */
    double kl;                  /* KL(reference || variant), nats */
    double local; /* |h' - h| / |h| of the rows that leave the variant's layer (METHOD section 7) */
} rkv_outcome;

typedef struct rkv_walk_options {
    int example;                /* index in the data file: selects the noise */
    const rkv_policy *policy;   /* selector of drops and errors; its budget does not matter; NULL
                                   where there are none */
    int batch_rows; /* rows of the batch at most, the reference's included; 0: all variants at once.
                       One variant goes in whatever it is; no result depends on it */
    const double *grid;         /* [n_grid] shares in (0, 1] */
    int n_grid;
    double *error;              /* [n_layer][n_kv_head][n_grid], below; NaN in layers that slide;
                                   NULL: not wanted */
    /* Variants [first, first + n) are final, and so are all errors; nonzero: stop; NULL: nobody
     * asks. */
    int (*done)(void *ctx, int first, int n);
    void *ctx;
} rkv_walk_options;

/* Runs variants v[n_variant], sorted by layer, of a session that holds a prompt, all of it and
 * nothing else; the session is only read. fed[n_fed]: response tokens, teacher-forced behind the
 * prompt; their outputs are compared. out[i] is that of variant i, whichever others there are.
 *
 * drop: the prompt's slots of the layer, or of the head, are those that the policy's selector keeps
 * at floor(share n + 0.5) tokens, at least window + 4, at most n, as they are stored: every row has
 * the bits that rkv_kv_compact of that cache gives. It needs what rkv_policy_observes says, and so
 * does
 *
 * error[l][h][g]: KV head h of layer l alone compressed to share grid[g], the error that makes in
 * the attention output of the reference's rows that enter the layer: |(o - o') W_O|^2 / |o W_O|^2,
 * each a sum over the d_model features (before a norm that the family may put behind), the mean
 * over positions of their ratio. Source: METHOD section 8.
 *
 * Memory (rkv_walks_bytes) beside the panels of a layer: rows of the batch times d_model floats and
 * times 16 KiB of logits; where batch_rows divides it, n_layer + 1 times the reference's rows; for
 * errors, n_grid times the rows of o.
 * RKV_E_ARG: a variant out of range, or something not observed; RKV_E_MEM; RKV_E_CANCELLED by the
 * session's progress, phase "sweep", or by done. */
rkv_status rkv_walk_run(rkv_outcome *out, const rkv_session *s, const int32_t *fed, int n_fed,
                        const rkv_variant *v, int n_variant, const rkv_walk_options *o,
                        rkv_error *e);

typedef struct rkv_walk {       /* the arguments of one */
    rkv_outcome *out;
    const rkv_session *s;
    const int32_t *fed;
    int n_fed;
    const rkv_variant *v;
    int n_variant;
    const rkv_walk_options *o;
} rkv_walk;

/* Several walks of sessions of one model, layer by layer in step: each layer, and the output head,
 * is unpacked once for all of them. Each gets the bits that it gets alone. Batches go together too,
 * so their memory adds up. The team is that of the first session. */
rkv_status rkv_walks_run(const rkv_walk *walk, int n, rkv_error *e);

typedef struct rkv_walk_shape { /* what a walk's memory depends on */
    int n_prompt, n_fed, n_variant;
    int batch_rows;
    const rkv_policy *policy;   /* NULL: nothing selects */
    int n_grid;                 /* of errors; 0: none are wanted */
} rkv_walk_shape;

/* walk_plan.c: bytes that n walks of a shape take together at their peak (rkv_walks_run), just so
 * many, beyond what there is. s: a session with their options, whatever it holds. */
uint64_t rkv_walks_bytes(const rkv_session *s, const rkv_walk_shape *shape, int n);

#endif

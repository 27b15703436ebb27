/* A profile: how much the output distribution changes when one layer's cached Values are perturbed.
 * JSON, format "ripplekv-profile" version 1; bound to the model's fingerprint. */
#ifndef RKV_PROFILE_H
#define RKV_PROFILE_H

#include "base/err.h"
#include "rkv.h"

enum { RKV_PROFILE_VERSION = 1 };

typedef struct rkv_layer_signal {
    int in_budget;              /* 0: sliding window, left out; the rest is then NaN */
    double mean;                /* nats, mean over examples of the mean over seeds and positions */
    double se_examples;         /* standard error of the mean from the spread over examples */
    double se_seeds;            /* ... from the spread over noise seeds within examples */
} rkv_layer_signal;

struct rkv_profile {
    char *model_name, *arch, *quantization, *fingerprint, *tier;
    int n_layer;
    double noise;               /* sigma */
    int n_seed, n_response;
    int from_answers;
    int n_ctx;                  /* longest prompt that was used, in tokens; 0: not recorded */
    uint64_t data_hash;         /* of the whole calibration file; 0: not recorded */
    int n_example, n_skipped_short, n_skipped_long; /* used; too few answer tokens; over n_ctx */
    int64_t n_position;         /* answer tokens that counted */
    rkv_layer_signal *sensitivity;      /* [n_layer] */
};

/* An empty profile of a model: names, fingerprint, layers. RKV_E_MEM. */
rkv_status rkv_profile_create(rkv_profile **out, const rkv_model_info *info, rkv_error *e);

/* From and to JSON text. source: file name for messages. */
rkv_status rkv_profile_parse(rkv_profile **out, const char *text, size_t n, const char *source,
                             rkv_error *e);
rkv_status rkv_profile_print(const rkv_profile *p, char **text, size_t *n, rkv_error *e);

#endif

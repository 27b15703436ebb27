/* Calibration data: JSONL, one example per line. */
#ifndef RKV_DATA_H
#define RKV_DATA_H

#include "base/err.h"
#include "rkv.h"

typedef struct rkv_example {
    int32_t *prompt, *response; /* token ids, owned; response NULL when the line has none */
    size_t n_prompt, n_response;
} rkv_example;

typedef struct rkv_data {
    char *path, *text;          /* the file, cut into 0-terminated lines */
    char **line;                /* [n_line] non-empty lines, into text */
    int *number;                /* [n_line] their numbers in the file, from 1 */
    int n_line;
    uint64_t hash;              /* of the whole text */
} rkv_data;

/* Reads and cuts the file. RKV_E_IO; RKV_E_FORMAT: no line at all, a NUL, over 1 GiB; RKV_E_MEM. */
rkv_status rkv_data_load(rkv_data *d, const char *path, rkv_error *e);
void rkv_data_free(rkv_data *d);

/* Example of line i: "prompt" (text; special tokens by their text) or "prompt_ids"; with
 * want_response also "response_ids" or the first of "answers". RKV_E_FORMAT names file and line. */
rkv_status rkv_data_example(rkv_example *x, const rkv_data *d, int i, const rkv_model *m,
                            int want_response, rkv_error *e);
void rkv_example_free(rkv_example *x);

#endif

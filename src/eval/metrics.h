/* Scores of an answer beside its references, equal to those of the official scorers: LongBench
 * (THUDM, metrics.py, with the packages rouge 1.0.1 and fuzzywuzzy 0.18 over Python's difflib) and
 * RULER (string_match_all, string_match_part). All in [0, 1]. Stray bytes are characters. */
#ifndef RKV_METRICS_H
#define RKV_METRICS_H

#include "base/err.h"

enum rkv_metric {
    RKV_METRIC_F1,              /* of words: lower case, without ASCII punctuation and articles */
    RKV_METRIC_ROUGE_L,         /* summary level, over sets of words */
    RKV_METRIC_CLASS,           /* 1 / number of class names found, when the right one is among */
    RKV_METRIC_COUNT,           /* share of the numbers in the answer that are the right one */
    RKV_METRIC_RETRIEVAL,       /* the same; references read "Paragraph 7" or their Chinese form */
    RKV_METRIC_EDIT,            /* of the first line that is no comment; whole percent */
    RKV_METRIC_ALL,             /* share of the references that the answer contains, any case */
    RKV_METRIC_PART,            /* 1 when it contains one of them */
    RKV_METRIC_SEGMENTED        /* needs Chinese word segmentation, which is not there */
};

typedef struct rkv_reference {
    const char *const *answer;  /* [n_answer] */
    const char *const *class_name;      /* [n_class]; for RKV_METRIC_CLASS */
    int n_answer, n_class;
} rkv_reference;

/* "f1", "rouge-l", ... Never NULL. */
const char *rkv_metric_name(enum rkv_metric m);

/* The largest score over the references (RKV_METRIC_ALL: their share); 0 without any. Of a
 * prediction with ROUGE-L that makes Python's recursion overflow (about 990 words without a full
 * stop) the official scorer says 0, we do not. Errors: RKV_E_UNSUPPORTED (segmentation; sentences
 * of more than 2^28 pairs of words), RKV_E_FORMAT (a reference of retrieval without its number),
 * RKV_E_MEM. */
rkv_status rkv_metric_score(double *out, enum rkv_metric m, const char *prediction,
                            const rkv_reference *r, rkv_error *e);

/* ---- the parts, of one reference ---- */

rkv_status rkv_metric_f1(double *out, const char *prediction, const char *answer, rkv_error *e);
rkv_status rkv_metric_rouge_l(double *out, const char *prediction, const char *answer,
                              rkv_error *e);
rkv_status rkv_metric_edit(double *out, const char *prediction, const char *answer, rkv_error *e);

/* ---- characters as Python has them ---- */

/* The character at *p, which moves behind it; a stray byte is 0xDC00 + its value. *p is not at the
 * end. */
uint32_t rkv_metric_next(const char **p);
/* str.isspace(). */
int rkv_metric_is_space(uint32_t c);
/* Adds the character in lower case. */
struct rkv_text;
void rkv_metric_add_lower(struct rkv_text *t, uint32_t c);

#endif

/* Scores that one selector gives the tokens of a prompt, kept for budgets still to come. */
#ifndef RKV_SCORES_H
#define RKV_SCORES_H

#include "engine/session.h"

/* Makes c hold scores by p of the prompt of s: those that it has, if they are by the same rule,
 * else none yet. RKV_E_MEM: it holds none. */
rkv_status rkv_scores_begin(rkv_scores *c, const rkv_session *s, const rkv_policy *p, rkv_error *e);

/* Writes the scores of head h of layer l; 0: they are not there. */
int rkv_scores_get(const rkv_scores *c, int l, int h, float *score);

/* Keeps them; heads may be kept by several threads at a time. */
void rkv_scores_keep(rkv_scores *c, int l, int h, const float *score);

#endif

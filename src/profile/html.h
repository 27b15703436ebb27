/* Parts of the HTML report (html.c): charts of a profile. */
#ifndef RKV_HTML_H
#define RKV_HTML_H

#include "profile/profile.h"

enum { RKV_REPORT_PROMPT = 4096 };      /* tokens that budgets are shown for */

typedef struct rkv_estimate {   /* a mean with its 95 % interval; low and high NaN: none */
    double mean, low, high;
} rkv_estimate;

/* Of a layer's signal: Student's t over the examples, not below 0. */
rkv_estimate rkv_signal_estimate(const rkv_layer_signal *s, int n_example);

/* Each layer's sensitivity, isolated and estimated damage side by side. */
void rkv_chart_layers(rkv_text *t, const rkv_profile *p);
/* Estimated damage of each KV head at the share of the grid nearest to 10 %. */
void rkv_chart_heads(rkv_text *t, const rkv_profile *p);
/* Budgets of ripple and, with curves, curve. RKV_E_MEM. */
rkv_status rkv_chart_budgets(rkv_text *t, const rkv_profile *p, rkv_error *e);
/* Shares of time. */
void rkv_chart_cost(rkv_text *t, const rkv_profile_cost *cost);

#endif

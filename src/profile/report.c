/* A profile in words. */
#include "config.h"
#include "profile/table.h"

#include <math.h>
#include <stdio.h>

#include "base/mem.h"

static void report_layers(rkv_text *t, const rkv_profile *p)
{
    enum { WIDTH = 30 };
    double most = 0.0;
    for (int l = 0; l < p->n_layer; l++)
        most = fmax(most, p->sensitivity[l].mean);
    rkv_text_printf(t, "layer  sensitivity (nats)   rank 95 %%     budget 95 %%\n");
    for (int l = 0; l < p->n_layer; l++) {
        const rkv_layer_signal *s = &p->sensitivity[l];
        const rkv_layer_certainty *c = &p->certainty[l];
        if (!s->in_budget) {
            rkv_text_printf(t, "%5d  sliding window: outside the budget\n", l);
            continue;
        }
        rkv_text_printf(t, "%5d  %-11.5g", l, s->mean);
        if (isnan(s->se_examples))
            rkv_text_printf(t, "%11s", "");
        else
            rkv_text_printf(t, " +- %-7.2g", s->se_examples);
        if (isnan(c->rank_low))
            rkv_text_printf(t, "%28s", "");
        else
            rkv_text_printf(t, " %5.1f to %-5.1f %5.2f to %-5.2f", c->rank_low, c->rank_high,
                            c->budget_low, c->budget_high);
        const int n = most > 0.0 ? (int)(WIDTH * s->mean / most + 0.5) : 0;
        rkv_text_printf(t, "%s%.*s\n", n ? " " : "", n, "##############################");
    }
}

static void report_orders(rkv_text *t, const rkv_profile *p)
{
    const rkv_diagnostics *d = &p->diagnostics;
    int n = 0;
    for (int i = 0; i < RKV_ORDER_ROWS; i++) {
        const char *separator = " ";
        if (isnan(d->spearman[i][RKV_ORDER_RANDOM]))
            continue;
        rkv_text_printf(t, "Spearman of %s with", rkv_order_name[i]);
        for (int j = 0; j < RKV_ORDER_COUNT; j++)
            if (!isnan(d->spearman[i][j])) {
                rkv_text_printf(t, "%s%s %.3f", separator, rkv_order_name[j], d->spearman[i][j]);
                separator = ", ";
            }
        rkv_text_printf(t, " (mean absolute)\n");
    }
    for (int i = 0; i < d->n_agreement; i++)
        if (!isnan(d->agreement[i].spearman)) {
            rkv_text_printf(t, "%s%d: %.3f",
                            n++ ? ", " : "Order after so many examples against all: ",
                            d->agreement[i].k, d->agreement[i].spearman);
        }
    if (n)
        rkv_text_printf(t, "\n");
}

/* The widest interval, and what more examples would make of it: it narrows as 1 / sqrt(n). */
static void report_widest(rkv_text *t, const rkv_profile *p)
{
    const rkv_diagnostics *d = &p->diagnostics;
    const double widest = 100.0 * d->widest;
    char whose[64] = "";
    int layer;                  /* -1: a file without the layers' intervals */
    rkv_certainty_widest(p->certainty, p, &layer);
    if (layer >= 0)
        snprintf(whose, sizeof whose, "%s is that of layer %d",
                 d->n_more ? " of a budget" : ", the widest interval", layer);
    if (!d->n_more)
        rkv_text_printf(t, ": every budget is known to +-%.1f %% of the mean%s\n", widest, whose);
    else
        rkv_text_printf(t, ": the widest interval%s, +-%.1f %% of the mean; for +-%g %% about %d "
                        "more examples are needed, and as many again as now give about +-%.1f "
                        "%%\n", layer < 0 ? " of a budget" : whose, widest, 100.0 * RKV_STABLE,
                        d->n_more, widest / sqrt(2.0));
}

static void report_certainty(rkv_text *t, const rkv_profile *p)
{
    const rkv_diagnostics *d = &p->diagnostics;
    int n_layer = 0;
    for (int l = 0; l < p->n_layer; l++)
        n_layer += p->sensitivity[l].in_budget;
    rkv_text_printf(t, "%d example%s used", p->n_example, p->n_example == 1 ? "" : "s");
    if (p->n_skipped_short)
        rkv_text_printf(t, ", %d skipped for a short answer", p->n_skipped_short);
    if (p->n_skipped_long)
        rkv_text_printf(t, ", %d for a long prompt", p->n_skipped_long);
    if (n_layer < 2)
        rkv_text_printf(t, "; one layer in the budget: nothing to divide\n");
    else if (!d->known || isnan(d->widest))
        rkv_text_printf(t, "; two or more are needed to tell how sure the budgets are\n");
    else
        report_widest(t, p);
}

rkv_status rkv_profile_report(const rkv_profile *p, char **text, rkv_error *e)
{
    rkv_text t = {0};
    report_layers(&t, p);
    if (p->diagnostics.known)
        report_orders(&t, p);
    report_certainty(&t, p);
    if (!rkv_text_take(&t, text, NULL))
        return rkv_fail(e, RKV_E_MEM, "profile: out of memory for the report");
    return RKV_OK;
}

/* A profile as a page of HTML that needs nothing else: no script, no network. */
#include "config.h"
#include "profile/html.h"

#include <math.h>
#include <string.h>

#include "report/page.h"

/* ---- what it was made of ---- */

static int n_outside(const rkv_profile *p)
{
    int n = 0;
    for (int l = 0; l < p->n_layer; l++)
        n += !p->sensitivity[l].in_budget;
    return n;
}

static void put_model(rkv_text *t, const rkv_profile *p)
{
    rkv_page_fact(t, "Quantization", p->quantization);
    rkv_page_fact(t, "Architecture", p->arch);
    rkv_page_fact(t, "Fingerprint", p->fingerprint);
    rkv_page_begin_fact(t, "Layers");
    rkv_text_printf(t, "%d", p->n_layer);
    if (n_outside(p))
        rkv_text_printf(t, ", of them %d with a sliding window: outside every budget",
                        n_outside(p));
    if (p->n_kv_head)
        rkv_text_printf(t, "; %d KV head%s each", p->n_kv_head, p->n_kv_head == 1 ? "" : "s");
    rkv_page_end_fact(t);
    if (!p->rope_scaling)
        return;
    rkv_page_begin_fact(t, "RoPE");
    rkv_text_printf(t, "base ");
    rkv_text_number(t, p->rope_base);
    rkv_text_printf(t, ", scaling ");
    rkv_html_text(t, p->rope_scaling);
    if (p->rope_factor != 1.0) {
        rkv_text_printf(t, " by ");
        rkv_text_number(t, p->rope_factor);
    }
    rkv_page_end_fact(t);
}

static void put_examples(rkv_text *t, const rkv_profile *p)
{
    rkv_page_begin_fact(t, "Examples");
    rkv_text_printf(t, "%d used, %lld answer tokens", p->n_example, (long long)p->n_position);
    if (p->n_skipped_short)
        rkv_text_printf(t, "; %d skipped for a short answer", p->n_skipped_short);
    if (p->n_skipped_long)
        rkv_text_printf(t, "; %d skipped for a long prompt", p->n_skipped_long);
    rkv_page_end_fact(t);
    rkv_page_begin_fact(t, "Data");
    if (p->data_hash)
        rkv_text_printf(t, "file with hash %016llx", (unsigned long long)p->data_hash);
    else
        rkv_text_printf(t, "not recorded");
    if (p->n_ctx)
        rkv_text_printf(t, ", prompts up to %d tokens", p->n_ctx);
    rkv_page_end_fact(t);
}

static void put_settings(rkv_text *t, const rkv_profile *p)
{
    char signals[128];
    rkv_page_begin_fact(t, "Answers");
    rkv_text_printf(t, "%s, up to %d tokens",
                    p->from_answers ? "those of the data" : "the model's own greedy ones",
                    p->n_response);
    rkv_page_end_fact(t);
    rkv_page_begin_fact(t, "Noise");
    rkv_text_printf(t, "sigma ");
    rkv_text_number(t, p->noise);
    rkv_text_printf(t, ", %d seed%s", p->n_seed, p->n_seed == 1 ? "" : "s");
    rkv_page_end_fact(t);
    rkv_signals_print(signals, p->signals);
    rkv_page_fact(t, "Signals", signals);
    if (p->selector) {
        rkv_page_begin_fact(t, "Damage");
        rkv_text_printf(t, "selector ");
        rkv_html_text(t, p->selector);
        rkv_text_printf(t, ", ");
        rkv_html_number(t, 100.0 * p->damage_budget);
        rkv_text_printf(t, " %% of the prompt kept");
        rkv_page_end_fact(t);
    }
    rkv_page_begin_fact(t, "Kernels");
    rkv_html_text(t, p->tier);
    rkv_text_printf(t, ", products in ");
    rkv_html_text(t, p->arithmetic ? p->arithmetic : "a type that is not recorded");
    rkv_page_end_fact(t);
}

static void put_head(rkv_text *t, const rkv_profile *p)
{
    rkv_page_begin(t, "Profile of ", p->model_name);
    rkv_text_printf(t, "<table class=\"facts\">\n");
    put_model(t, p);
    put_examples(t, p);
    put_settings(t, p);
    rkv_text_printf(t, "</table>\n");
}

/* ---- layers ---- */

static void put_numbers(rkv_text *t, const rkv_profile *p)
{
    rkv_text_printf(t, "<details>\n<summary>The numbers</summary>\n<div class=\"wide\"><table>\n"
                    "<tr><th>Layer</th><th>Sensitivity</th><th>95 %%</th><th>Rank 95 %%</th>"
                    "<th>Budget of ripple, of the mean</th><th>95 %%</th>%s</tr>\n",
                    p->extra[RKV_EXTRA_DAMAGE] ? "<th>Damage</th><th>95 %</th>" : "");
    for (int l = 0; l < p->n_layer; l++) {
        const rkv_layer_certainty *c = &p->certainty[l];
        rkv_text_printf(t, "<tr><td>%d</td>", l);
        if (!p->sensitivity[l].in_budget) {
            rkv_text_printf(t, "<td colspan=\"%d\">sliding window: outside</td></tr>\n",
                            p->extra[RKV_EXTRA_DAMAGE] ? 7 : 5);
            continue;
        }
        const rkv_estimate s = rkv_signal_estimate(&p->sensitivity[l], p->n_example);
        rkv_page_cell(t, s.mean);
        rkv_page_range_cell(t, s.low, s.high);
        rkv_page_range_cell(t, c->rank_low, c->rank_high);
        rkv_page_cell(t, c->budget);
        rkv_page_range_cell(t, c->budget_low, c->budget_high);
        if (p->extra[RKV_EXTRA_DAMAGE]) {
            const rkv_estimate d =
                rkv_signal_estimate(&p->extra[RKV_EXTRA_DAMAGE][l], p->n_example);
            rkv_page_cell(t, d.mean);
            rkv_page_range_cell(t, d.low, d.high);
        }
        rkv_text_printf(t, "</tr>\n");
    }
    rkv_text_printf(t, "</table></div>\n</details>\n");
}

static void put_layers(rkv_text *t, const rkv_profile *p)
{
    rkv_text_printf(t, "<h2>Layers</h2>\n<p class=\"dim\">Sensitivity: KL of the next token's "
                    "distribution under noise on a layer's cached Values.");
    if (p->extra[RKV_EXTRA_DAMAGE] || rkv_profile_find_curves(p, 0, 1)) {
        rkv_text_printf(t, " Damage: KL of letting that layer alone keep ");
        rkv_html_number(t, 100.0 * p->damage_budget);
        rkv_text_printf(t, " %% of the prompt; estimated: sensitivity times the change of the "
                        "layer's attention, summed over its KV heads.");
    }
    rkv_text_printf(t, p->n_example > 1 ? " Lines: 95 %% intervals over %d examples.</p>\n"
                                        : " Intervals take two or more examples.</p>\n",
                    p->n_example);
    rkv_chart_layers(t, p);
    put_numbers(t, p);
}

/* ---- how sure it is ---- */

static void put_spearman(rkv_text *t, const rkv_diagnostics *d)
{
    rkv_text_printf(t, "<div class=\"wide\"><table>\n<tr><th>Spearman over layers</th>");
    for (int j = 0; j < RKV_ORDER_COUNT; j++) {
        rkv_text_printf(t, "<th>");
        for (const char *c = rkv_order_name[j]; *c; c++)
            rkv_text_add(t, *c == '_' ? " " : c, 1);
        rkv_text_printf(t, "%s</th>", j == RKV_ORDER_RANDOM ? " (mean absolute)" : "");
    }
    rkv_text_printf(t, "</tr>\n");
    for (int i = 0; i < RKV_ORDER_ROWS; i++) {
        if (isnan(d->spearman[i][RKV_ORDER_RANDOM]))
            continue;
        rkv_text_printf(t, "<tr><td>%s</td>", rkv_order_name[i]);
        for (int j = 0; j < RKV_ORDER_COUNT; j++)
            rkv_page_cell(t, d->spearman[i][j]);
        rkv_text_printf(t, "</tr>\n");
    }
    rkv_text_printf(t, "</table></div>\n");
}

static void put_agreement(rkv_text *t, const rkv_diagnostics *d)
{
    if (!d->n_agreement)
        return;
    rkv_text_printf(t, "<table>\n<tr><th>Order of layers after so many examples</th>");
    for (int i = 0; i < d->n_agreement; i++)
        rkv_text_printf(t, "<th>%d</th>", d->agreement[i].k);
    rkv_text_printf(t, "</tr>\n<tr><td>Spearman with that of all</td>");
    for (int i = 0; i < d->n_agreement; i++)
        rkv_page_cell(t, d->agreement[i].spearman);
    rkv_text_printf(t, "</tr>\n</table>\n");
}

/* Intervals shrink with the root of the number of examples. */
static void put_more(rkv_text *t, const rkv_profile *p)
{
    const rkv_diagnostics *d = &p->diagnostics;
    if (isnan(d->widest)) {
        rkv_text_printf(t, "<p>How sure the budgets are takes two or more examples.</p>\n");
        return;
    }
    rkv_text_printf(t, "<p>With %d examples the widest 95 %% interval of a budget of ripple is "
                    "&#177;", p->n_example);
    rkv_html_number(t, 100.0 * d->widest);
    rkv_text_printf(t, " %% of the mean budget");
    if (!d->n_more) {
        rkv_text_printf(t, ": more examples are not needed.</p>\n");
        return;
    }
    rkv_text_printf(t, ". What more would buy, about:</p>\n<table>\n<tr><th>More examples</th>");
    for (int k = 1; k <= 4; k *= 2)
        if (k * (int64_t)p->n_example < d->n_more)
            rkv_text_printf(t, "<th>%lld</th>", k * (long long)p->n_example);
    rkv_text_printf(t, "<th>%d</th></tr>\n<tr><td>Widest interval, %% of the mean</td>", d->n_more);
    for (int k = 1; k <= 4; k *= 2)
        if (k * (int64_t)p->n_example < d->n_more)
            rkv_page_cell(t, 100.0 * d->widest / sqrt(k + 1.0));
    rkv_page_cell(t, 100.0 * RKV_STABLE);
    rkv_text_printf(t, "</tr>\n</table>\n");
}

static void put_diagnostics(rkv_text *t, const rkv_profile *p)
{
    rkv_text_printf(t, "<h2>How sure it is</h2>\n");
    if (!p->diagnostics.known) {
        rkv_text_printf(t, "<p>The profile holds no diagnostics.</p>\n");
        return;
    }
    put_more(t, p);
    put_agreement(t, &p->diagnostics);
    put_spearman(t, &p->diagnostics);
}

/* ---- cost ---- */

static void put_cost(rkv_text *t, const rkv_profile_cost *cost)
{
    const double part[] = {cost->prefill_s, cost->answer_s, cost->walk_s};
    static const char *const name[] = {
        "<span class=\"key ka\"></span> prefill", "<span class=\"key kb\"></span> answer",
        "<span class=\"key kc\"></span> walk: all disturbances and estimates", "all"};
    const double all = part[0] + part[1] + part[2];
    rkv_text_printf(t, "<h2>Cost</h2>\n<p class=\"dim\">Wall time of this run, %d example%s; "
                    "what a resumed run had before is not in it.</p>\n",
                    cost->n_example, cost->n_example == 1 ? "" : "s");
    rkv_chart_cost(t, cost);
    rkv_text_printf(t, "<table>\n<tr><th>Part</th><th>Seconds</th><th>%%</th>"
                    "<th>Seconds an example</th><th>Prefills</th></tr>\n");
    for (int i = 0; i < 4; i++) {
        const double s = i < 3 ? part[i] : all;
        rkv_text_printf(t, "<tr><td>%s</td>", name[i]);
        rkv_page_cell(t, s);
        rkv_page_cell(t, all > 0.0 ? 100.0 * s / all : (double)NAN);
        rkv_page_cell(t, cost->n_example ? s / cost->n_example : (double)NAN);
        rkv_page_cell(t, part[0] > 0.0 ? s / part[0] : (double)NAN);
        rkv_text_printf(t, "</tr>\n");
    }
    rkv_text_printf(t, "</table>\n");
}

/* ---- the page ---- */

rkv_status rkv_profile_html(const rkv_profile *p, const rkv_profile_cost *cost, const char *path,
                            rkv_error *e)
{
    rkv_text t = {0};
    put_head(&t, p);
    put_layers(&t, p);
    if (rkv_profile_find_curves(p, 0, 1))
        rkv_chart_heads(&t, p);
    rkv_text_printf(&t, "<h2>Budgets of a prompt of %d tokens</h2>\n", RKV_REPORT_PROMPT);
    rkv_status s = rkv_chart_budgets(&t, p, e);
    put_diagnostics(&t, p);
    if (cost)
        put_cost(&t, cost);
    rkv_page_end(&t);
    if (!s && t.bad)
        s = rkv_fail(e, RKV_E_MEM, "profile: out of memory for the report");
    if (!s)
        s = rkv_file_replace(path, t.data, t.n, e);
    rkv_text_free(&t);
    return s;
}

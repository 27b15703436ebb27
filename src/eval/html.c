/* An evaluation as a page of HTML: what it was made of, what the numbers say in words, pictures,
 * tables. */
#include "config.h"
#include "eval/report.h"

#include <math.h>
#include <string.h>

#include "report/page.h"

/* ---- what it was made of ---- */

static void put_prompts(rkv_text *t, const rkv_eval_numbers *p)
{
    rkv_eval_mean prompt = {0}, answer = {0};
    int least = 0, most = 0;
    for (int i = 0; i < p->n; i++) {
        const rkv_eval_row *r = &p->r->row[(ptrdiff_t)i * p->n_column];
        if (r->state != RKV_EVAL_DONE)
            continue;
        least = !prompt.n || r->n_prompt < least ? r->n_prompt : least;
        most = r->n_prompt > most ? r->n_prompt : most;
        prompt.sum += r->n_prompt, prompt.n++;
        answer.sum += r->n_answer, answer.n++;
    }
    rkv_page_begin_fact(t, "Tokens");
    if (prompt.n) {
        rkv_text_printf(t, "%d to %d of a compressed prompt, mean ", least, most);
        rkv_html_fixed(t, rkv_eval_mean_of(&prompt), 0, 0);
        rkv_text_printf(t, "; ");
        rkv_html_fixed(t, rkv_eval_mean_of(&answer), 1, 0);
        rkv_text_printf(t, " of the full cache's answer");
    } else {
        rkv_text_printf(t, "nothing is measured yet");
    }
    rkv_page_end_fact(t);
}

static void put_samples(rkv_text *t, const rkv_eval_numbers *p)
{
    const rkv_eval_options *o = p->r->o;
    const rkv_eval_column *full = p->column;
    rkv_page_begin_fact(t, "Samples");
    rkv_text_printf(t, "%d of %d task%s, %d with a score", p->n, p->n_task,
                    p->n_task == 1 ? "" : "s", full->all.score.n);
    if (full->missing)
        rkv_text_printf(t, "; %d are not measured yet: other shards'", full->missing);
    rkv_page_end_fact(t);
    rkv_page_begin_fact(t, "Data");
    if (o->data) {
        rkv_html_text(t, o->data);
    } else {
        rkv_text_printf(t, "made: ");
        for (int i = 0; i < o->n_ruler; i++)
            rkv_text_printf(t, "%s%d", i ? ", " : "RULER tasks of tokens ", o->ruler[i]);
        for (int i = 0; i < o->n_needle; i++)
            rkv_text_printf(t, "%s%d", i ? ", " : o->n_ruler ? "; needles in " : "needles in ",
                            o->needle[i]);
        rkv_text_printf(t, "; seed %llu", (unsigned long long)o->seed);
    }
    rkv_page_end_fact(t);
}

static void put_settings(rkv_text *t, const rkv_eval_numbers *p)
{
    const rkv_eval_options *o = p->r->o;
    rkv_page_begin_fact(t, "Protocol");
    rkv_text_printf(t, o->protocol == 'Q' ? "Q: the question is in the compressed prompt"
                                          : "A: the question follows the compressed context");
    rkv_page_end_fact(t);
    put_samples(t, p);
    put_prompts(t, p);
    rkv_page_begin_fact(t, "KL");
    rkv_text_printf(t, "of the next token, over up to %d tokens of the full cache's answer",
                    o->response);
    rkv_page_end_fact(t);
    rkv_page_begin_fact(t, "Cache");
    rkv_text_printf(t, "keys ");
    rkv_html_text(t, o->k_type);
    rkv_text_printf(t, ", values ");
    rkv_html_text(t, o->v_type);
    if (o->max_length)
        rkv_text_printf(t, "; prompts cut to %d tokens", o->max_length);
    rkv_page_end_fact(t);
    if (o->n_policy)
        rkv_page_fact(t, "Policies", o->settings);
}

static void put_head(rkv_text *t, const rkv_eval_numbers *p)
{
    rkv_page_begin(t, "Comparison on ", p->model->name);
    rkv_text_printf(t, "<table class=\"facts\">\n");
    rkv_page_begin_fact(t, "Model");
    rkv_html_text(t, p->model->arch);
    rkv_text_printf(t, ", ");
    rkv_html_text(t, p->model->quantization);
    rkv_text_printf(t, ", %d layers, %d KV heads; fingerprint ", p->model->n_layer,
                    p->model->n_kv_head);
    rkv_html_text(t, p->model->fingerprint);
    rkv_page_end_fact(t);
    put_settings(t, p);
    rkv_text_printf(t, "</table>\n");
}

/* ---- in words ---- */

enum { LOWER, HIGHER, OPEN, FEW, N_VERDICT };

typedef const rkv_paired *pair_fn(const rkv_eval_column *k);

static const rkv_paired *score_to_full(const rkv_eval_column *k)
{
    return &k->to_full;
}

static const rkv_paired *score_to_rival(const rkv_eval_column *k)
{
    return k->rival < 0 ? NULL : &k->all.to_rival;
}

static const rkv_paired *kl_to_rival(const rkv_eval_column *k)
{
    return k->rival < 0 ? NULL : &k->kl_to_rival;
}

static int verdict(const rkv_paired *d)
{
    const int sign = rkv_paired_sign(d);
    return d->n < RKV_LEAST_PAIRS ? FEW : sign < 0 ? LOWER : sign > 0 ? HIGHER : OPEN;
}

/* The interval says that there is a difference, the sign test does not. */
static int is_doubtful(const rkv_paired *d)
{
    return rkv_paired_sign(d) && d->p > 0.05;
}

static const rkv_paired *pair_at(const rkv_eval_numbers *p, pair_fn *pair, int name, int budget)
{
    const int c = rkv_eval_column_of(p, p->name[name], p->budget[budget]);
    return c > 0 ? pair(&p->column[c]) : NULL;
}

/* How many budgets of a policy have the verdict; *all: every one of two or more, and no doubt. */
static int count_budgets(const rkv_eval_numbers *p, pair_fn *pair, int name, int wanted, int *all)
{
    int n = 0;
    *all = p->n_budget > 1;
    for (int b = 0; b < p->n_budget; b++) {
        const rkv_paired *d = pair_at(p, pair, name, b);
        const int is = d && verdict(d) == wanted;
        n += is;
        *all = *all && is && !is_doubtful(d);
    }
    return n;
}

static int count_columns(const rkv_eval_numbers *p, pair_fn *pair, int wanted)
{
    int n = 0, all;
    for (int i = 0; i < p->n_name; i++)
        n += count_budgets(p, pair, i, wanted, &all);
    return n;
}

/* "snapkv at 10%, 20%; h2o at every budget": the columns of a verdict. */
static void put_columns(rkv_text *t, const rkv_eval_numbers *p, pair_fn *pair, int wanted)
{
    const char *before = " ";
    for (int i = 0; i < p->n_name; i++) {
        int all;
        if (!count_budgets(p, pair, i, wanted, &all))
            continue;
        rkv_text_printf(t, "%s", before);
        rkv_html_text(t, p->name[i]);
        rkv_text_printf(t, " at ");
        before = "; ";
        if (all) {
            rkv_text_printf(t, "every budget");
            continue;
        }
        for (int b = 0, begun = 0; b < p->n_budget; b++) {
            const rkv_paired *d = pair_at(p, pair, i, b);
            if (!d || verdict(d) != wanted)
                continue;
            rkv_text_printf(t, begun++ ? ", " : "");
            rkv_html_text(t, p->budget[b]);
            rkv_text_printf(t, is_doubtful(d) ? "*" : "");
        }
    }
}

/* What one kind of comparison came to; how many there were is added up. */
static void put_verdicts(rkv_text *t, const rkv_eval_numbers *p, pair_fn *pair,
                         const char *const word[N_VERDICT], int *n_test)
{
    rkv_text_printf(t, "<ul>\n");
    for (int v = 0; v < N_VERDICT; v++) {
        const int n = count_columns(p, pair, v);
        if (!n)
            continue;
        rkv_text_printf(t, "<li>%s:", word[v]);
        put_columns(t, p, pair, v);
        rkv_text_printf(t, "</li>\n");
        *n_test += v == FEW ? 0 : n;
    }
    rkv_text_printf(t, "</ul>\n");
}

static int count_pairs(const rkv_eval_numbers *p, pair_fn *pair)
{
    int n = 0;
    for (int v = 0; v < N_VERDICT; v++)
        n += count_columns(p, pair, v);
    return n;
}

static int any_doubt(const rkv_eval_numbers *p)
{
    pair_fn *const all[] = {score_to_full, score_to_rival, kl_to_rival};
    for (int c = 1; c < p->n_column; c++)
        for (int i = 0; i < 3; i++) {
            const rkv_paired *d = all[i](&p->column[c]);
            if (d && is_doubtful(d))
                return 1;
        }
    return 0;
}

static void put_rules(rkv_text *t, const rkv_eval_numbers *p, int n_test)
{
    rkv_text_printf(t, "<p class=\"dim\">Significant: the 95 %% bootstrap interval of the mean "
                    "difference on the same samples excludes 0. ");
    if (n_test)
        rkv_text_printf(t, "These are %d comparisons; of comparisons without any difference about "
                        "one in 20 would be called significant by chance. ", n_test);
    rkv_text_printf(t, "No significant difference does not mean equal: the intervals below say how "
                    "large a difference may still be.");
    if (any_doubt(p))
        rkv_text_printf(t, " *: the sign test does not agree (p over 0.05): a few samples with "
                        "large differences decide.");
    rkv_text_printf(t, "</p>\n");
}

static void rival_text(rkv_text *t, const rkv_eval_numbers *p)
{
    if (rkv_eval_against(p->r->o, p->r->against, 1) == 0) {
        rkv_text_printf(t, "the full cache");
        return;
    }
    rkv_html_text(t, p->r->against ? p->r->against : p->name[0]);
    if (!p->r->against || !strchr(p->r->against, '@'))
        rkv_text_printf(t, " at the same budget");
}

static void put_words(rkv_text *t, const rkv_eval_numbers *p)
{
    static const char *const score[N_VERDICT] = {
        "Score significantly lower", "Score significantly higher",
        "No significant difference in score", "Too few samples with a score to tell"};
    static const char *const kl[N_VERDICT] = {
        "KL significantly lower, which is better", "KL significantly higher, which is worse",
        "No significant difference in KL", "Too few samples with a KL to tell"};
    const int to_full = p->n_column > 1 && rkv_eval_against(p->r->o, p->r->against, 1) == 0;
    int n_test = 0;
    rkv_text_printf(t, "<h2>What the numbers say</h2>\n");
    if (p->n_column == 1) {
        rkv_text_printf(t, "<p>Only the full cache was measured: there is nothing to compare."
                        "</p>\n");
        return;
    }
    rkv_text_printf(t, "<p><b>Beside the full cache</b></p>\n");
    put_verdicts(t, p, score_to_full, score, &n_test);
    if (!to_full && count_pairs(p, score_to_rival)) {
        rkv_text_printf(t, "<p><b>Beside ");
        rival_text(t, p);
        rkv_text_printf(t, "</b></p>\n");
        put_verdicts(t, p, score_to_rival, score, &n_test);
        put_verdicts(t, p, kl_to_rival, kl, &n_test);
    }
    put_rules(t, p, n_test);
}

/* ---- all policies ---- */

static void name_cells(rkv_text *t, const rkv_eval_column *k)
{
    rkv_text_printf(t, "<tr><td>");
    rkv_html_text(t, k->name);
    rkv_text_printf(t, "</td><td>");
    rkv_html_text(t, k->budget);
    rkv_text_printf(t, "</td>");
}

static void fixed_cell(rkv_text *t, double v, int decimals)
{
    rkv_text_printf(t, "<td>");
    rkv_html_fixed(t, v, decimals, 0);
    rkv_text_printf(t, "</td>");
}

/* A difference with its interval; a word of what it means where it is significant. better: the sign
 * that is good. */
static void put_difference(rkv_text *t, const rkv_paired *d, int decimals, int better)
{
    const int sign = rkv_paired_sign(d);
    if (!d->n)
        return;
    if (d->ties == d->n) {
        rkv_text_printf(t, "<span class=\"fine dim\">the same in all %d</span>", d->n);
        return;
    }
    rkv_text_printf(t, "<span class=\"fine%s\">", !sign ? " dim" : sign == better ? " good"
                                                                                  : " bad");
    rkv_text_printf(t, sign > 0 ? "&#9650; " : sign < 0 ? "&#9660; " : "");
    rkv_html_fixed(t, d->mean, decimals, 1);
    rkv_text_printf(t, " (");
    rkv_html_fixed(t, d->interval.low, decimals, 1);
    rkv_text_printf(t, " to ");
    rkv_html_fixed(t, d->interval.high, decimals, 1);
    rkv_text_printf(t, ")</span><span class=\"fine dim\">p ");
    rkv_html_number(t, d->p);
    rkv_text_printf(t, ", %d more, %d less</span>", d->wins, d->losses);
}

static void put_policy(rkv_text *t, const rkv_eval_numbers *p, int c)
{
    const rkv_eval_column *k = &p->column[c];
    name_cells(t, k);
    rkv_text_printf(t, "<td>%d</td><td>", k->all.done);
    rkv_html_fixed(t, rkv_eval_mean_of(&k->all.score), 2, 0);
    put_difference(t, &k->to_full, 2, 1);
    rkv_text_printf(t, "</td>");
    if (p->column[0].n6) {
        fixed_cell(t, k->average6, 2);
        fixed_cell(t, k->average16, 2);
    }
    rkv_text_printf(t, "<td>");
    rkv_html_fixed(t, rkv_eval_mean_of(&k->all.kl), 4, 0);
    if (c && k->all.kl.n >= RKV_LEAST_PAIRS) {
        rkv_text_printf(t, "<span class=\"fine dim\">");
        rkv_html_fixed(t, k->kl_interval.low, 4, 0);
        rkv_text_printf(t, " to ");
        rkv_html_fixed(t, k->kl_interval.high, 4, 0);
        rkv_text_printf(t, "</span>");
    }
    rkv_text_printf(t, "</td>");
    fixed_cell(t, rkv_eval_mean_of(&k->kept), 0);
    rkv_text_printf(t, "<td>");
    rkv_html_bytes(t, rkv_eval_mean_of(&k->all.bytes));
    rkv_text_printf(t, "</td>");
    fixed_cell(t, 100.0 * rkv_eval_mean_of(&k->share), 1);
    rkv_text_printf(t, "<td>%d</td><td>%d</td></tr>\n", k->all.refused, k->all.untouched);
}

static void put_policies(rkv_text *t, const rkv_eval_numbers *p)
{
    const rkv_eval_column *full = p->column;
    rkv_text_printf(t, "<h2>Policies</h2>\n<p class=\"dim\">Score: mean over the samples, below it "
                    "the difference to the full cache on the same samples with its interval, the p "
                    "of the sign test, and how many samples scored more and less. KL to the full "
                    "cache in nats, with its interval. Kept: prompt "
                    "tokens, summed over layers%s, mean of KV heads. Refused: samples whose budget "
                    "the policy could not meet, which are in no mean. Untouched: samples that the "
                    "budget covers whole.", p->model->n_layer_sliding
                    ? " without a sliding window" : "");
    if (full->n6)
        rkv_text_printf(t, " avg6: mean of %d of LongBench's 6 categories; avg16: mean of %d of "
                        "its 16 tasks without Chinese.", full->n6, full->n16);
    rkv_text_printf(t, "</p>\n<div class=\"wide\"><table class=\"policies\">\n<tr><th>Policy</th>"
                    "<th>Budget</th><th>Samples</th><th>Score</th>%s<th>KL</th><th>Kept</th>"
                    "<th>KV bytes</th><th>%% of full</th><th>Refused</th>"
                    "<th>Untouched</th></tr>\n",
                    full->n6 ? "<th>avg6</th><th>avg16</th>" : "");
    put_policy(t, p, 0);
    for (int b = 0; b < p->n_budget; b++)
        for (int i = 0; i < p->n_name; i++) {
            const int c = rkv_eval_column_of(p, p->name[i], p->budget[b]);
            if (c > 0)
                put_policy(t, p, c);
        }
    rkv_text_printf(t, "</table></div>\n");
}

/* ---- tasks ---- */

/* Scores of one task, or of all (part NULL), under the full cache and the policies of a budget. */
static void task_row(rkv_text *t, const rkv_eval_numbers *p, int task, const char *budget)
{
    rkv_text_printf(t, "<tr><td>");
    rkv_html_text(t, task < 0 ? "all samples" : p->task[task]->name);
    rkv_text_printf(t, "</td><td>%d</td>", task < 0 ? p->n : p->task_n[task]);
    for (int i = -1; i < p->n_name; i++) {
        const int c = i < 0 ? 0 : rkv_eval_column_of(p, p->name[i], budget);
        if (c < 0)
            continue;
        const rkv_eval_column *k = &p->column[c];
        const rkv_eval_part *x = task < 0 ? &k->all : &k->task[task];
        rkv_text_printf(t, "<td>");
        rkv_html_fixed(t, rkv_eval_mean_of(&x->score), 2, 0);
        put_difference(t, &x->to_rival, 2, 1);
        if (x->refused)
            rkv_text_printf(t, "<span class=\"fine dim\">%d refused</span>", x->refused);
        rkv_text_printf(t, "</td>");
    }
    rkv_text_printf(t, "</tr>\n");
}

static void task_table(rkv_text *t, const rkv_eval_numbers *p, const char *budget)
{
    if (budget) {
        rkv_text_printf(t, "<h3>Budget ");
        rkv_html_text(t, budget);
        rkv_text_printf(t, "</h3>\n");
    }
    rkv_text_printf(t, "<div class=\"wide\"><table class=\"tasks\">\n<tr><th>Task</th>"
                    "<th>Samples</th><th>full cache</th>");
    for (int i = 0; i < p->n_name; i++)
        if (rkv_eval_column_of(p, p->name[i], budget) > 0) {
            rkv_text_printf(t, "<th>");
            rkv_html_text(t, p->name[i]);
            rkv_text_printf(t, "</th>");
        }
    rkv_text_printf(t, "</tr>\n");
    task_row(t, p, -1, budget);
    for (int i = 0; i < p->n_task; i++)
        task_row(t, p, i, budget);
    rkv_text_printf(t, "</table></div>\n");
}

static void kl_table(rkv_text *t, const rkv_eval_numbers *p)
{
    rkv_text_printf(t, "<details>\n<summary>KL of each task</summary>\n<div class=\"wide\">"
                    "<table class=\"kl\">\n<tr><th>Policy</th><th>Budget</th>");
    for (int i = 0; i < p->n_task; i++)
        rkv_text_printf(t, "<th>%s</th>", p->task[i]->name);
    rkv_text_printf(t, "</tr>\n");
    for (int c = 1; c < p->n_column; c++) {
        name_cells(t, &p->column[c]);
        for (int i = 0; i < p->n_task; i++)
            fixed_cell(t, rkv_eval_mean_of(&p->column[c].task[i].kl), 4);
        rkv_text_printf(t, "</tr>\n");
    }
    rkv_text_printf(t, "</table></div>\n</details>\n");
}

static void put_tasks(rkv_text *t, const rkv_eval_numbers *p)
{
    int unscored = 0;
    for (int i = 0; i < p->n_task; i++)
        unscored += p->task[i]->metric == RKV_METRIC_SEGMENTED;
    rkv_text_printf(t, "<h2>Tasks</h2>\n<p class=\"dim\">Scores in percent");
    if (p->n_column > 1 && (count_pairs(p, score_to_rival))) {
        rkv_text_printf(t, "; below, the difference to ");
        rival_text(t, p);
        rkv_text_printf(t, " on the same samples (95 %% interval), the p of the sign test, and how "
                        "many samples scored more and less. &#9650; &#9660;: significant, at "
                        "least %d samples and an interval without 0", RKV_LEAST_PAIRS);
    }
    rkv_text_printf(t, ".%s</p>\n", unscored ? " &#8211;: not scored; multifieldqa_zh, dureader "
                                               "and vcsum need Chinese word segmentation." : "");
    for (int b = 0; b < p->n_budget; b++)
        task_table(t, p, p->budget[b]);
    if (p->n_budget)
        kl_table(t, p);
    else
        task_table(t, p, NULL);
}

/* ---- layers ---- */

static void layer_table(rkv_text *t, const rkv_eval_numbers *p)
{
    rkv_text_printf(t, "<details>\n<summary>The numbers</summary>\n<div class=\"wide\">"
                    "<table class=\"layers\">\n<tr><th>Policy</th><th>Budget</th>");
    for (int l = 0; l < p->model->n_layer; l++)
        rkv_text_printf(t, "<th>%d</th>", l);
    rkv_text_printf(t, "</tr>\n");
    for (int c = 0; c < p->n_column; c++) {
        name_cells(t, &p->column[c]);
        for (int l = 0; l < p->model->n_layer; l++)
            fixed_cell(t, p->column[c].layer[l], 1);
        rkv_text_printf(t, "</tr>\n");
    }
    rkv_text_printf(t, "</table></div>\n</details>\n");
}

/* ---- the page ---- */

static void put_pictures(rkv_text *t, const rkv_eval_numbers *p)
{
    rkv_text_printf(t, "<h2>Score and KL against budget</h2>\n");
    rkv_eval_put_curves(t, p);
    rkv_text_printf(t, "<p class=\"dim\">Upright lines: 95 %% bootstrap intervals, from %d samples "
                    "on; of a score: of its difference to the full cache on the same samples, so "
                    "that one which does not reach the dashed line is significant; cut off at 0. "
                    "Hollow signs: some samples were refused, and the mean is over fewer than the "
                    "full cache's. Budgets stand at even steps, policies of one budget beside each "
                    "other.</p>\n",
                    RKV_LEAST_PAIRS);
}

void rkv_eval_put_html(rkv_text *t, const rkv_eval_numbers *p)
{
    put_head(t, p);
    put_words(t, p);
    if (p->n_budget)
        put_pictures(t, p);
    put_policies(t, p);
    put_tasks(t, p);
    if (p->n_depth) {
        rkv_text_printf(t, "<h2>Needles</h2>\n<p class=\"dim\">Found, in percent, by depth in the "
                        "text and its length in tokens. Dashed: no result.</p>\n");
        rkv_eval_put_needles(t, p);
    }
    if (p->n_budget) {
        rkv_text_printf(t, "<h2>Layers</h2>\n<p class=\"dim\">Prompt tokens that each layer keeps, "
                        "mean of its KV heads and of the samples.%s</p>\n",
                        !p->model->n_layer_sliding ? "" :
                        " Grey: layers with a sliding window, outside every budget.");
        rkv_eval_put_layers(t, p);
        layer_table(t, p);
    }
    rkv_page_end(t);
}

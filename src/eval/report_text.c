/* The numbers of a run as tables of text, JSON and CSV. */
#include "config.h"
#include "eval/report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- text ---- */

static void number(rkv_text *t, const char *format, const char *none, double v)
{
    char shown[64];
    if (isnan(v))
        snprintf(shown, sizeof shown, "%s", none);
    else
        snprintf(shown, sizeof shown, format, v);
    rkv_text_printf(t, "%s", shown);
}

static void text_head(rkv_text *t, const rkv_eval_numbers *p)
{
    const char protocol = p->r->o->protocol;
    rkv_text_printf(t, "%s (%s), protocol %c (%s), %d samples\n", p->model->name,
                    p->model->fingerprint, protocol,
                    protocol == 'Q' ? "the question is in the compressed prompt"
                                    : "the question follows the compressed context", p->n);
    rkv_text_printf(t, "%-16s %7s %5s %7s %7s %8s %9s %9s %7s %8s %8s\n", "policy", "budget", "n",
                    "avg6", "avg16", "KL", "KL low", "KL high", "KV", "refused", "untouch");
    for (int c = 0; c < p->n_column; c++) {
        const rkv_eval_column *k = &p->column[c];
        rkv_text_printf(t, "%-16s %7s %5d", k->name, k->budget, k->all.done);
        number(t, " %7.2f", "       -", k->average6);
        number(t, " %7.2f", "       -", k->average16);
        number(t, " %8.4f", "        -", rkv_eval_mean_of(&k->all.kl));
        number(t, " %9.4f", "         -", k->kl_interval.low);
        number(t, " %9.4f", "         -", k->kl_interval.high);
        number(t, " %6.1f%%", "       -", 100.0 * rkv_eval_mean_of(&k->share));
        rkv_text_printf(t, " %8d %8d\n", k->all.refused, k->all.untouched);
    }
    const rkv_eval_column *k = p->column;
    if (k->n6)
        rkv_text_printf(t, "avg6: mean of %d of 6 LongBench categories; avg16: mean of %d of "
                        "16 tasks. KL to the full cache in nats, 95 %% interval.\n", k->n6, k->n16);
    if (k->missing)
        rkv_text_printf(t, "%d samples are not measured yet: other shards'\n", k->missing);
}

static void text_tasks(rkv_text *t, const rkv_eval_numbers *p)
{
    rkv_text_printf(t, "\n%-20s %4s", "task", "n");
    for (int c = 0; c < p->n_column; c++)
        rkv_text_printf(t, " %*s@%s", c ? 9 : 5, p->column[c].name, p->column[c].budget);
    for (int i = 0; i < p->n_task; i++) {
        rkv_text_printf(t, "\n%-20s %4d", p->task[i]->name, p->task_n[i]);
        for (int c = 0; c < p->n_column; c++) {
            const rkv_eval_column *k = &p->column[c];
            const int width = (int)strlen(k->name), least = c ? 9 : 5;
            char shown[32] = "-";
            if (k->task[i].score.n)
                snprintf(shown, sizeof shown, "%.2f", rkv_eval_mean_of(&k->task[i].score));
            rkv_text_printf(t, " %*s", (width > least ? width : least) + 1 + (int)strlen(k->budget),
                            shown);
        }
        if (p->task[i]->metric == RKV_METRIC_SEGMENTED)
            rkv_text_printf(t, "  (needs Chinese word segmentation: not scored)");
    }
    rkv_text_add(t, "\n", 1);
}

static void text_comparisons(rkv_text *t, const rkv_eval_numbers *p)
{
    int head = 0;
    for (int c = 1; c < p->n_column; c++) {
        const rkv_eval_column *k = &p->column[c];
        if (k->rival < 0)
            continue;
        const rkv_eval_column *rival = &p->column[k->rival];
        if (!head++)
            rkv_text_printf(t, "\nDifferences on the same samples, 95 %% intervals, sign tests\n");
        for (int of_kl = 0; of_kl < 2; of_kl++) {
            const rkv_paired *d = of_kl ? &k->kl_to_rival : &k->all.to_rival;
            if (d->n)
                rkv_text_printf(t, "%s@%s - %s@%s: %s %+.4f (%+.4f to %+.4f), more %d, less "
                                "%d, equal %d, p %.3g\n", k->name, k->budget, rival->name,
                                rival->budget, of_kl ? "KL" : "score", d->mean, d->interval.low,
                                d->interval.high, d->wins, d->losses, d->ties, d->p);
        }
    }
}

static void text_needles(rkv_text *t, const rkv_eval_column *k)
{
    for (int i = 0; i < k->n_needle; i++) {
        const rkv_eval_needle *x = &k->needle[i];
        const rkv_interval w = rkv_wilson(x->found, x->n);
        rkv_text_printf(t, "needle %s@%s, %d tokens, depth %.0f %%: %g of %d (%.2f to %.2f)\n",
                        k->name, k->budget, x->length, 100.0 * x->depth, x->found, x->n, w.low,
                        w.high);
    }
}

void rkv_eval_put_text(rkv_text *t, const rkv_eval_numbers *p)
{
    text_head(t, p);
    text_tasks(t, p);
    text_comparisons(t, p);
    for (int c = 0; c < p->n_column; c++)
        text_needles(t, &p->column[c]);
}

/* ---- JSON ---- */

static void member(rkv_text *t, const char *key, double v)
{
    rkv_text_printf(t, ",\"%s\":", key);
    rkv_text_number(t, v);
}

static void json_name(rkv_text *t, const char *key, const char *text)
{
    rkv_text_printf(t, "\"%s\":", key);
    rkv_text_json(t, text, strlen(text));
}

static void json_names(rkv_text *t, const rkv_eval_column *k)
{
    json_name(t, "policy", k->name);
    rkv_text_add(t, ",", 1);
    json_name(t, "budget", k->budget);
}

/* Members of a comparison, without braces. */
static void json_paired(rkv_text *t, const rkv_paired *d)
{
    rkv_text_printf(t, "\"n\":%d,\"more\":%d,\"less\":%d,\"equal\":%d", d->n, d->wins, d->losses,
                    d->ties);
    member(t, "mean", d->mean), member(t, "low", d->interval.low);
    member(t, "high", d->interval.high), member(t, "p", d->p);
    rkv_text_printf(t, ",\"significant\":%s", rkv_paired_sign(d) ? "true" : "false");
}

static void json_tasks(rkv_text *t, const rkv_eval_numbers *p, const rkv_eval_column *k)
{
    for (int i = 0, first = 1; i < p->n_task; i++) {
        const rkv_eval_part *x = &k->task[i];
        if (!x->score.n)
            continue;
        rkv_text_printf(t, "%s\"%s\":{\"n\":%d", first ? "" : ",", p->task[i]->name, x->score.n);
        member(t, "score", rkv_eval_mean_of(&x->score));
        member(t, "kl", rkv_eval_mean_of(&x->kl));
        rkv_text_add(t, "}", 1);
        first = 0;
    }
}

static void json_column(rkv_text *t, const rkv_eval_numbers *p, int c)
{
    const rkv_eval_column *k = &p->column[c];
    rkv_text_printf(t, "%s{", c ? "," : "");
    json_names(t, k);
    rkv_text_printf(t, ",\"n\":%d,\"refused\":%d,\"missing\":%d,\"untouched\":%d,\"scored\":%d",
                    k->all.done, k->all.refused, k->missing, k->all.untouched, k->all.score.n);
    member(t, "score", rkv_eval_mean_of(&k->all.score));
    member(t, "kl", rkv_eval_mean_of(&k->all.kl)), member(t, "kl_low", k->kl_interval.low);
    member(t, "kl_high", k->kl_interval.high), member(t, "kept", rkv_eval_mean_of(&k->kept));
    member(t, "bytes", rkv_eval_mean_of(&k->all.bytes));
    member(t, "bytes_full", rkv_eval_mean_of(&k->all.bytes_full));
    member(t, "share", rkv_eval_mean_of(&k->share));
    member(t, "average6", k->average6), member(t, "average16", k->average16);
    rkv_text_printf(t, ",\"categories_counted\":%d,\"tasks_counted\":%d,\"categories\":{", k->n6,
                    k->n16);
    for (int i = 0, first = 1; i < RKV_N_CATEGORY; i++)
        if (!isnan(k->category[i])) {
            rkv_text_printf(t, "%s\"%s\":", first ? "" : ",", rkv_category_name(i));
            rkv_text_number(t, k->category[i]);
            first = 0;
        }
    rkv_text_printf(t, "},\"tasks\":{");
    json_tasks(t, p, k);
    rkv_text_printf(t, "},\"layers\":[");
    for (int l = 0; l < p->model->n_layer; l++) {
        rkv_text_add(t, ",", l > 0);
        rkv_text_number(t, k->layer[l]);
    }
    rkv_text_add(t, "]", 1);
    if (c) {
        rkv_text_printf(t, ",\"to_full\":{");
        json_paired(t, &k->to_full);
        rkv_text_add(t, "}", 1);
    }
    rkv_text_add(t, "}", 1);
}

static void json_comparison(rkv_text *t, const rkv_eval_numbers *p, int c, int of_kl)
{
    const rkv_eval_column *k = &p->column[c], *rival = &p->column[k->rival];
    rkv_text_printf(t, "%s{\"what\":\"%s\",", t->data && t->data[t->n - 1] == '[' ? "" : ",",
                    of_kl ? "kl" : "score");
    json_names(t, k), rkv_text_add(t, ",", 1);
    json_name(t, "against", rival->name), rkv_text_add(t, ",", 1);
    json_name(t, "against_budget", rival->budget), rkv_text_add(t, ",", 1);
    json_paired(t, of_kl ? &k->kl_to_rival : &k->all.to_rival);
    if (!of_kl) {
        rkv_text_printf(t, ",\"tasks\":{");
        for (int i = 0, first = 1; i < p->n_task; i++) {
            if (!k->task[i].to_rival.n)
                continue;
            rkv_text_printf(t, "%s\"%s\":{", first ? "" : ",", p->task[i]->name);
            json_paired(t, &k->task[i].to_rival);
            rkv_text_add(t, "}", 1);
            first = 0;
        }
        rkv_text_add(t, "}", 1);
    }
    rkv_text_add(t, "}", 1);
}

static void json_needles(rkv_text *t, const rkv_eval_column *k)
{
    for (int i = 0; i < k->n_needle; i++) {
        const rkv_eval_needle *x = &k->needle[i];
        const rkv_interval w = rkv_wilson(x->found, x->n);
        rkv_text_printf(t, "%s{", t->data && t->data[t->n - 1] == '[' ? "" : ",");
        json_names(t, k);
        rkv_text_printf(t, ",\"length\":%d,\"n\":%d", x->length, x->n);
        member(t, "depth", x->depth), member(t, "found", x->found);
        member(t, "low", w.low), member(t, "high", w.high);
        rkv_text_add(t, "}", 1);
    }
}

void rkv_eval_put_json(rkv_text *t, const rkv_eval_numbers *p)
{
    rkv_text_add(t, "{", 1);
    json_name(t, "model", p->model->name), rkv_text_add(t, ",", 1);
    json_name(t, "fingerprint", p->model->fingerprint);
    rkv_text_printf(t, ",\"protocol\":\"%c\",\"samples\":%d,\"policies\":[", p->r->o->protocol,
                    p->n);
    for (int c = 0; c < p->n_column; c++)
        json_column(t, p, c);
    rkv_text_printf(t, "],\"comparisons\":[");
    for (int c = 1; c < p->n_column; c++)
        for (int of_kl = 0; p->column[c].rival >= 0 && of_kl < 2; of_kl++)
            json_comparison(t, p, c, of_kl);
    rkv_text_printf(t, "],\"needles\":[");
    for (int c = 0; c < p->n_column; c++)
        json_needles(t, &p->column[c]);
    rkv_text_printf(t, "]}\n");
}

/* ---- CSV ---- */

void rkv_eval_put_csv(rkv_text *t, const rkv_eval_numbers *p)
{
    rkv_text_printf(t, "policy,budget,protocol,task,n,score,kl,bytes,bytes_full,refused,"
                    "untouched\n");
    for (int c = 0; c < p->n_column; c++)
        for (int i = 0; i < p->n_task; i++) {
            const rkv_eval_part *x = &p->column[c].task[i];
            if (!x->done && !x->refused)
                continue;
            rkv_text_printf(t, "%s,%s,%c,%s,%d", p->column[c].name, p->column[c].budget,
                            p->r->o->protocol, p->task[i]->name, x->done);
            number(t, ",%.4f", ",", rkv_eval_mean_of(&x->score));
            number(t, ",%.6g", ",", rkv_eval_mean_of(&x->kl));
            number(t, ",%.0f", ",", rkv_eval_mean_of(&x->bytes));
            number(t, ",%.0f", ",", rkv_eval_mean_of(&x->bytes_full));
            rkv_text_printf(t, ",%d,%d\n", x->refused, x->untouched);
        }
}

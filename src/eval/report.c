/* The table of a run: means by task, category and policy, intervals, comparisons, needles. */
#include "config.h"
#include "eval/measure.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "eval/compare.h"

typedef struct mean {
    double sum;
    int n;
} mean;

typedef struct column {         /* one policy at one budget */
    const char *name, *budget;
    int done, refused, missing, untouched;
    mean kl, kept, bytes, bytes_full, share;    /* share: of the prompt's bytes */
    rkv_interval kl_interval;
    double category[RKV_N_CATEGORY];    /* percent; NaN: none */
    double average6, average16; /* mean of the LongBench categories; of the tasks without Chinese */
    int n6, n16;
} column;

typedef struct report {
    const rkv_eval_result *r;
    rkv_text t;
    column *column;
    int n_column, n;
    double *a, *b, *scratch;    /* [n], [n], [n + RKV_RESAMPLES] */
    int *pick;
} report;

static const rkv_eval_row *at(const report *p, int i, int c)
{
    return &p->r->row[(ptrdiff_t)i * p->n_column + c];
}

static void add(mean *m, double v)
{
    if (isnan(v))
        return;
    m->sum += v;
    m->n++;
}

static double value(const mean *m)
{
    return m->n ? m->sum / m->n : (double)NAN;
}

/* Of what is done of a task: its score in percent, or the KL. */
static mean task_mean(const report *p, int c, const rkv_task *t, int of_kl)
{
    mean m = {0};
    for (int i = 0; i < p->n; i++)
        if (p->r->samples->at[i].task == t && at(p, i, c)->state == RKV_EVAL_DONE)
            add(&m, of_kl ? at(p, i, c)->kl : 100.0 * at(p, i, c)->score);
    return m;
}

static mean task_score(const report *p, int c, const rkv_task *t)
{
    return task_mean(p, c, t, 0);
}

static void count_column(report *p, int c)
{
    column *k = &p->column[c];
    int n = 0;
    k->name = rkv_eval_name(p->r->o, c);
    k->budget = rkv_eval_budget(p->r->o, c);
    for (int i = 0; i < p->n; i++) {
        const rkv_eval_row *r = at(p, i, c);
        k->refused += r->state == RKV_EVAL_REFUSED;
        k->missing += r->state == RKV_EVAL_MISSING;
        if (r->state != RKV_EVAL_DONE)
            continue;
        k->done++;
        k->untouched += r->untouched;
        add(&k->kept, (double)r->kept);
        add(&k->bytes, (double)r->bytes);
        add(&k->bytes_full, (double)r->bytes_full);
        add(&k->share, r->bytes_full ? (double)r->bytes / (double)r->bytes_full : (double)NAN);
        add(&k->kl, r->kl);
        if (!isnan(r->kl))
            p->a[n++] = r->kl;
    }
    k->kl_interval = n ? rkv_mean_interval(p->a, n, p->scratch, p->pick)
                       : (rkv_interval){(double)NAN, (double)NAN};
}

static void average_column(report *p, int c)
{
    mean category[RKV_N_CATEGORY] = {{0}}, six = {0}, sixteen = {0};
    column *k = &p->column[c];
    const rkv_task *t;
    for (int i = 0; (t = rkv_task_at(i)) != NULL; i++) {
        const mean m = task_score(p, c, t);
        add(&category[t->category], value(&m));
        if (t->flags & RKV_TASK_EN)
            add(&sixteen, value(&m));
    }
    for (int i = 0; i < RKV_N_CATEGORY; i++) {
        k->category[i] = value(&category[i]);
        if (i < RKV_N_LONGBENCH)
            add(&six, k->category[i]);
    }
    k->average6 = value(&six), k->n6 = six.n;
    k->average16 = value(&sixteen), k->n16 = sixteen.n;
}

/* ---- comparisons ---- */

/* Column that is compared with, at the budget of column c unless one is named; -1: none. */
static int rival_of(const report *p, int c)
{
    const char *name = p->r->against ? p->r->against : p->n_column > 1 ? p->column[1].name : "";
    const char *where = strchr(name, '@');
    const size_t n = where ? (size_t)(where - name) : strlen(name);
    const char *budget = where ? where + 1 : p->column[c].budget;
    for (int i = 1; i < p->n_column; i++)
        if (strlen(p->column[i].name) == n && !memcmp(p->column[i].name, name, n) &&
            !strcmp(p->column[i].budget, budget))
            return i == c ? -1 : i;
    return -1;
}

static rkv_paired compare(report *p, int c, int rival, int of_kl)
{
    int n = 0;
    for (int i = 0; i < p->n; i++) {
        const rkv_eval_row *x = at(p, i, c), *y = at(p, i, rival);
        if (x->state != RKV_EVAL_DONE || y->state != RKV_EVAL_DONE)
            continue;
        p->a[n] = of_kl ? x->kl : 100.0 * x->score;
        p->b[n] = of_kl ? y->kl : 100.0 * y->score;
        n += !isnan(p->a[n]) && !isnan(p->b[n]);
    }
    return rkv_pairs_compare(p->a, p->b, n, p->scratch, p->pick);
}

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

static void text_head(report *p)
{
    const int question_inside = p->r->o->protocol == 'Q';
    rkv_text_printf(&p->t, "%s (%s), protocol %c (%s), %d samples\n", p->r->model->name,
                    p->r->model->fingerprint, p->r->o->protocol,
                    question_inside ? "the question is in the compressed prompt"
                                    : "the question follows the compressed context", p->n);
    rkv_text_printf(&p->t, "%-16s %7s %5s %7s %7s %8s %9s %9s %7s %8s %8s\n", "policy", "budget",
                    "n", "avg6", "avg16", "KL", "KL low", "KL high", "KV", "refused", "untouch");
    for (int c = 0; c < p->n_column; c++) {
        const column *k = &p->column[c];
        rkv_text_printf(&p->t, "%-16s %7s %5d", k->name, k->budget, k->done);
        number(&p->t, " %7.2f", "       -", k->average6);
        number(&p->t, " %7.2f", "       -", k->average16);
        number(&p->t, " %8.4f", "        -", value(&k->kl));
        number(&p->t, " %9.4f", "         -", k->kl_interval.low);
        number(&p->t, " %9.4f", "         -", k->kl_interval.high);
        number(&p->t, " %6.1f%%", "       -", 100.0 * value(&k->share));
        rkv_text_printf(&p->t, " %8d %8d\n", k->refused, k->untouched);
    }
    const column *k = p->column;
    if (k->n6)
        rkv_text_printf(&p->t, "avg6: mean of %d of 6 LongBench categories; avg16: mean of %d of "
                        "16 tasks. KL to the full cache in nats, 95 %% interval.\n", k->n6, k->n16);
    if (k->missing)
        rkv_text_printf(&p->t, "%d samples are not measured yet: other shards'\n", k->missing);
}

static void text_tasks(report *p)
{
    const rkv_task *t;
    rkv_text_printf(&p->t, "\n%-20s %4s", "task", "n");
    for (int c = 0; c < p->n_column; c++)
        rkv_text_printf(&p->t, " %*s@%s", c ? 9 : 5, p->column[c].name, p->column[c].budget);
    for (int i = 0; (t = rkv_task_at(i)) != NULL; i++) {
        int n = 0;
        for (int s = 0; s < p->n; s++)
            n += p->r->samples->at[s].task == t;
        if (!n)
            continue;
        rkv_text_printf(&p->t, "\n%-20s %4d", t->name, n);
        for (int c = 0; c < p->n_column; c++) {
            const mean m = task_score(p, c, t);
            const int width = (int)strlen(p->column[c].name), least = c ? 9 : 5;
            char shown[32] = "-";
            if (m.n)
                snprintf(shown, sizeof shown, "%.2f", value(&m));
            rkv_text_printf(&p->t, " %*s", (width > least ? width : least) + 1 +
                            (int)strlen(p->column[c].budget), shown);
        }
        if (t->metric == RKV_METRIC_SEGMENTED)
            rkv_text_printf(&p->t, "  (needs Chinese word segmentation: not scored)");
    }
    rkv_text_add(&p->t, "\n", 1);
}

static void text_comparisons(report *p)
{
    int head = 0;
    for (int c = 1; c < p->n_column; c++) {
        const int rival = rival_of(p, c);
        if (rival < 0)
            continue;
        if (!head++)
            rkv_text_printf(&p->t, "\nDifferences on the same samples, 95 %% intervals, sign "
                            "tests\n");
        for (int of_kl = 0; of_kl < 2; of_kl++) {
            const rkv_paired d = compare(p, c, rival, of_kl);
            if (d.n)
                rkv_text_printf(&p->t, "%s@%s - %s@%s: %s %+.4f (%+.4f to %+.4f), more %d, less "
                                "%d, equal %d, p %.3g\n", p->column[c].name, p->column[c].budget,
                                p->column[rival].name, p->column[rival].budget,
                                of_kl ? "KL" : "score", d.mean, d.interval.low, d.interval.high,
                                d.wins, d.losses, d.ties, d.p);
        }
    }
}

/* ---- needles ---- */

typedef struct cell {
    double depth, found;
    int length, n;
} cell;

/* The needles' cells of a column, in the order of their first samples. Returns how many. */
static int needle_cells(const report *p, int c, cell *out)
{
    int n_cell = 0;
    for (int i = 0; i < p->n; i++) {
        const struct rkv_sample_at *x = &p->r->samples->at[i];
        if (x->task->category != RKV_CATEGORY_NEEDLE || at(p, i, c)->state != RKV_EVAL_DONE ||
            isnan(at(p, i, c)->score))
            continue;
        int k = 0;
        while (k < n_cell && (out[k].depth != x->depth || out[k].length != x->length))
            k++;
        if (k == n_cell)
            out[n_cell++] = (cell){.depth = x->depth, .length = x->length};
        out[k].found += at(p, i, c)->score;
        out[k].n++;
    }
    return n_cell;
}

/* Each cell through fn; with the column's number. */
static rkv_status each_cell(report *p, void (*fn)(report *, int, const cell *), rkv_error *e)
{
    cell *cells = rkv_mem_calloc((size_t)p->n, sizeof *cells);
    if (!cells)
        return rkv_fail(e, RKV_E_MEM, "report: out of memory");
    for (int c = 0; c < p->n_column; c++) {
        const int n = needle_cells(p, c, cells);
        for (int i = 0; i < n; i++)
            fn(p, c, &cells[i]);
    }
    rkv_mem_free(cells);
    return RKV_OK;
}

static void text_cell(report *p, int c, const cell *x)
{
    const rkv_interval w = rkv_wilson(x->found, x->n);
    rkv_text_printf(&p->t, "needle %s@%s, %d tokens, depth %.0f %%: %g of %d (%.2f to %.2f)\n",
                    p->column[c].name, p->column[c].budget, x->length, 100.0 * x->depth, x->found,
                    x->n, w.low, w.high);
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

static void json_column(report *p, int c)
{
    const column *k = &p->column[c];
    rkv_text *t = &p->t;
    const rkv_task *task;
    rkv_text_printf(t, "%s{", c ? "," : "");
    json_name(t, "policy", k->name);
    rkv_text_add(t, ",", 1);
    json_name(t, "budget", k->budget);
    rkv_text_printf(t, ",\"n\":%d,\"refused\":%d,\"missing\":%d,\"untouched\":%d", k->done,
                    k->refused, k->missing, k->untouched);
    member(t, "kl", value(&k->kl)), member(t, "kl_low", k->kl_interval.low);
    member(t, "kl_high", k->kl_interval.high), member(t, "kept", value(&k->kept));
    member(t, "bytes", value(&k->bytes)), member(t, "bytes_full", value(&k->bytes_full));
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
    for (int i = 0, first = 1; (task = rkv_task_at(i)) != NULL; i++) {
        const mean m = task_score(p, c, task);
        if (!m.n)
            continue;
        rkv_text_printf(t, "%s\"%s\":{\"n\":%d", first ? "" : ",", task->name, m.n);
        const mean kl = task_mean(p, c, task, 1);
        member(t, "score", value(&m));
        member(t, "kl", value(&kl));
        rkv_text_add(t, "}", 1);
        first = 0;
    }
    rkv_text_printf(t, "}}");
}

static void json_comparisons(report *p)
{
    int n = 0;
    for (int c = 1; c < p->n_column; c++) {
        const int rival = rival_of(p, c);
        for (int of_kl = 0; rival > 0 && of_kl < 2; of_kl++) {
            const rkv_paired d = compare(p, c, rival, of_kl);
            rkv_text_printf(&p->t, "%s{\"what\":\"%s\",", n++ ? "," : "", of_kl ? "kl" : "score");
            json_name(&p->t, "policy", p->column[c].name), rkv_text_add(&p->t, ",", 1);
            json_name(&p->t, "budget", p->column[c].budget), rkv_text_add(&p->t, ",", 1);
            json_name(&p->t, "against", p->column[rival].name), rkv_text_add(&p->t, ",", 1);
            json_name(&p->t, "against_budget", p->column[rival].budget);
            rkv_text_printf(&p->t, ",\"n\":%d,\"more\":%d,\"less\":%d,\"equal\":%d", d.n, d.wins,
                            d.losses, d.ties);
            member(&p->t, "mean", d.mean), member(&p->t, "low", d.interval.low);
            member(&p->t, "high", d.interval.high), member(&p->t, "p", d.p);
            rkv_text_add(&p->t, "}", 1);
        }
    }
}

static void json_cell(report *p, int c, const cell *x)
{
    const rkv_interval w = rkv_wilson(x->found, x->n);
    rkv_text_printf(&p->t, "%s{", p->t.data[p->t.n - 1] == '[' ? "" : ",");
    json_name(&p->t, "policy", p->column[c].name), rkv_text_add(&p->t, ",", 1);
    json_name(&p->t, "budget", p->column[c].budget);
    rkv_text_printf(&p->t, ",\"length\":%d,\"n\":%d", x->length, x->n);
    member(&p->t, "depth", x->depth), member(&p->t, "found", x->found);
    member(&p->t, "low", w.low), member(&p->t, "high", w.high);
    rkv_text_add(&p->t, "}", 1);
}

static rkv_status write_json(report *p, rkv_error *e)
{
    rkv_text_add(&p->t, "{", 1);
    json_name(&p->t, "model", p->r->model->name), rkv_text_add(&p->t, ",", 1);
    json_name(&p->t, "fingerprint", p->r->model->fingerprint);
    rkv_text_printf(&p->t, ",\"protocol\":\"%c\",\"samples\":%d,\"policies\":[", p->r->o->protocol,
                    p->n);
    for (int c = 0; c < p->n_column; c++)
        json_column(p, c);
    rkv_text_printf(&p->t, "],\"comparisons\":[");
    json_comparisons(p);
    rkv_text_printf(&p->t, "],\"needles\":[");
    if (!p->t.bad)
        RKV_TRY(each_cell(p, json_cell, e));
    rkv_text_printf(&p->t, "]}\n");
    return RKV_OK;
}

/* ---- CSV ---- */

static void write_csv(report *p)
{
    const rkv_task *t;
    rkv_text_printf(&p->t, "policy,budget,protocol,task,n,score,kl,bytes,bytes_full,refused,"
                    "untouched\n");
    for (int c = 0; c < p->n_column; c++)
        for (int i = 0; (t = rkv_task_at(i)) != NULL; i++) {
            mean kl = {0}, bytes = {0}, full = {0};
            int refused = 0, untouched = 0, n = 0;
            for (int s = 0; s < p->n; s++) {
                const rkv_eval_row *r = at(p, s, c);
                if (p->r->samples->at[s].task != t || r->state == RKV_EVAL_MISSING)
                    continue;
                refused += r->state == RKV_EVAL_REFUSED;
                n += r->state == RKV_EVAL_DONE;
                untouched += r->untouched;
                add(&kl, r->state == RKV_EVAL_DONE ? r->kl : (double)NAN);
                add(&bytes, r->state == RKV_EVAL_DONE ? (double)r->bytes : (double)NAN);
                add(&full, r->state == RKV_EVAL_DONE ? (double)r->bytes_full : (double)NAN);
            }
            if (!n && !refused)
                continue;
            const mean score = task_score(p, c, t);
            rkv_text_printf(&p->t, "%s,%s,%c,%s,%d", p->column[c].name, p->column[c].budget,
                            p->r->o->protocol, t->name, n);
            number(&p->t, ",%.4f", ",", value(&score));
            number(&p->t, ",%.6g", ",", value(&kl));
            number(&p->t, ",%.0f", ",", value(&bytes));
            number(&p->t, ",%.0f", ",", value(&full));
            rkv_text_printf(&p->t, ",%d,%d\n", refused, untouched);
        }
}

/* ---- all ---- */

static rkv_status write(report *p, int format, rkv_error *e)
{
    if (!p->column || !p->a || !p->b || !p->scratch || !p->pick)
        return rkv_fail(e, RKV_E_MEM, "report: out of memory");
    for (int c = 0; c < p->n_column; c++) {
        count_column(p, c);
        average_column(p, c);
    }
    if (format == RKV_EVAL_JSON)
        return write_json(p, e);
    if (format == RKV_EVAL_CSV) {
        write_csv(p);
        return RKV_OK;
    }
    text_head(p);
    text_tasks(p);
    text_comparisons(p);
    return each_cell(p, text_cell, e);
}

rkv_status rkv_eval_report(char **text, const rkv_eval_result *r, int format, rkv_error *e)
{
    const size_t n = (size_t)r->samples->n;
    report p = {.r = r, .n_column = 1 + r->o->n_policy, .n = r->samples->n};
    p.column = rkv_mem_calloc((size_t)p.n_column, sizeof *p.column);
    p.a = rkv_mem_calloc(n, sizeof *p.a);
    p.b = rkv_mem_calloc(n, sizeof *p.b);
    p.scratch = rkv_mem_calloc(n + RKV_RESAMPLES, sizeof *p.scratch);
    p.pick = rkv_mem_calloc(n, sizeof *p.pick);
    rkv_status s = write(&p, format, e);
    rkv_mem_free(p.column);
    rkv_mem_free(p.a), rkv_mem_free(p.b);
    rkv_mem_free(p.scratch), rkv_mem_free(p.pick);
    if (s)
        rkv_text_free(&p.t);
    else if (!rkv_text_take(&p.t, text, NULL))
        s = rkv_fail(e, RKV_E_MEM, "report: out of memory");
    return s;
}

/* The numbers of a run: means by task, category and policy, intervals, comparisons, needles, kept
 * tokens of layers. */
#include "config.h"
#include "eval/report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

static const rkv_eval_row *at(const rkv_eval_numbers *p, int i, int c)
{
    return &p->r->row[(ptrdiff_t)i * p->n_column + c];
}

static void add(rkv_eval_mean *m, double v)
{
    if (isnan(v))
        return;
    m->sum += v;
    m->n++;
}

double rkv_eval_mean_of(const rkv_eval_mean *m)
{
    return m->n ? m->sum / m->n : (double)NAN;
}

int rkv_eval_column_of(const rkv_eval_numbers *p, const char *name, const char *budget)
{
    for (int c = 0; c < p->n_column; c++)
        if (!strcmp(p->column[c].name, name) && !strcmp(p->column[c].budget, budget))
            return c;
    return -1;
}

/* ---- means ---- */

static void count_part(rkv_eval_part *k, const rkv_eval_row *r)
{
    k->refused += r->state == RKV_EVAL_REFUSED;
    if (r->state != RKV_EVAL_DONE)
        return;
    k->done++;
    k->untouched += r->untouched;
    add(&k->score, 100.0 * r->score);
    add(&k->kl, r->kl);
    add(&k->bytes, (double)r->bytes);
    add(&k->bytes_full, (double)r->bytes_full);
}

static int task_index(const rkv_eval_numbers *p, const rkv_task *t)
{
    int i = 0;
    while (p->task[i] != t)
        i++;
    return i;
}

static void count_column(rkv_eval_numbers *p, int c)
{
    rkv_eval_column *k = &p->column[c];
    int n = 0;
    for (int i = 0; i < p->n; i++) {
        const rkv_eval_row *r = at(p, i, c);
        k->missing += r->state == RKV_EVAL_MISSING;
        count_part(&k->all, r);
        count_part(&k->task[task_index(p, p->r->samples->at[i].task)], r);
        if (r->state != RKV_EVAL_DONE)
            continue;
        add(&k->kept, (double)r->kept);
        add(&k->share, r->bytes_full ? (double)r->bytes / (double)r->bytes_full : (double)NAN);
        if (!isnan(r->kl))
            p->a[n++] = r->kl;
    }
    k->kl_interval = n ? rkv_mean_interval(p->a, n, p->scratch, p->pick)
                       : (rkv_interval){(double)NAN, (double)NAN};
}

static void average_column(const rkv_eval_numbers *p, int c)
{
    rkv_eval_mean category[RKV_N_CATEGORY] = {{0}}, six = {0}, sixteen = {0};
    rkv_eval_column *k = &p->column[c];
    for (int i = 0; i < p->n_task; i++) {
        const double m = rkv_eval_mean_of(&k->task[i].score);
        add(&category[p->task[i]->category], m);
        if (p->task[i]->flags & RKV_TASK_EN)
            add(&sixteen, m);
    }
    for (int i = 0; i < RKV_N_CATEGORY; i++) {
        k->category[i] = rkv_eval_mean_of(&category[i]);
        if (i < RKV_N_LONGBENCH)
            add(&six, k->category[i]);
    }
    k->average6 = rkv_eval_mean_of(&six), k->n6 = six.n;
    k->average16 = rkv_eval_mean_of(&sixteen), k->n16 = sixteen.n;
}

/* ---- layers ---- */

static rkv_status add_layers(double *sum, const rkv_eval_numbers *p, const char *text,
                             rkv_error *e)
{
    cJSON *root = NULL;
    const char *source = p->r->o->db ? p->r->o->db : "results";
    const rkv_status s = rkv_json_parse(&root, text, strlen(text), source, e);
    int l = 0, bad = s || !cJSON_IsArray(root);
    for (const cJSON *v = bad ? NULL : root->child; v && !bad; v = v->next) {
        bad = l == p->model->n_layer || !cJSON_IsNumber(v) || !(v->valuedouble >= 0.0);
        if (!bad)
            sum[l++] += v->valuedouble;
    }
    cJSON_Delete(root);
    if (s == RKV_E_MEM)
        return s;
    return !bad && l == p->model->n_layer
               ? RKV_OK
               : rkv_fail(e, RKV_E_FORMAT, "%s: kept tokens of layers '%.40s', expected an array "
                          "of %d numbers; measure into another file", source, text,
                          p->model->n_layer);
}

static rkv_status average_layers(const rkv_eval_numbers *p, int c, rkv_error *e)
{
    rkv_eval_column *k = &p->column[c];
    for (int i = 0; i < p->n; i++)
        if (at(p, i, c)->state == RKV_EVAL_DONE)
            RKV_TRY(add_layers(k->layer, p, at(p, i, c)->layers ? at(p, i, c)->layers : "", e));
    for (int l = 0; l < p->model->n_layer; l++)
        k->layer[l] = k->all.done ? k->layer[l] / k->all.done : (double)NAN;
    return RKV_OK;
}

/* ---- comparisons ---- */

int rkv_eval_against(const rkv_eval_options *o, const char *against, int c)
{
    const char *name = against ? against : o->n_policy ? rkv_eval_name(o, 1) : "";
    const char *where = strchr(name, '@');
    const size_t n = where ? (size_t)(where - name) : strlen(name);
    for (int i = 0; i <= o->n_policy; i++) {
        const char *budget = where ? where + 1 : i ? rkv_eval_budget(o, c) : "100%";
        if (strlen(rkv_eval_name(o, i)) == n && !memcmp(rkv_eval_name(o, i), name, n) &&
            !strcmp(rkv_eval_budget(o, i), budget))
            return i;
    }
    return -1;
}

/* task NULL: of all. */
static rkv_paired compare(rkv_eval_numbers *p, int c, int rival, const rkv_task *task, int of_kl)
{
    int n = 0;
    for (int i = 0; i < p->n; i++) {
        const rkv_eval_row *x = at(p, i, c), *y = at(p, i, rival);
        if (x->state != RKV_EVAL_DONE || y->state != RKV_EVAL_DONE ||
            (task && p->r->samples->at[i].task != task))
            continue;
        p->a[n] = of_kl ? x->kl : 100.0 * x->score;
        p->b[n] = of_kl ? y->kl : 100.0 * y->score;
        n += !isnan(p->a[n]) && !isnan(p->b[n]);
    }
    return rkv_pairs_compare(p->a, p->b, n, p->scratch, p->pick);
}

static void compare_column(rkv_eval_numbers *p, int c)
{
    rkv_eval_column *k = &p->column[c];
    const int rival = rkv_eval_against(p->r->o, p->r->against, c);
    k->rival = c && rival != c ? rival : -1;
    if (c)
        k->to_full = compare(p, c, 0, NULL, 0);
    if (k->rival < 0)
        return;
    k->all.to_rival = compare(p, c, k->rival, NULL, 0);
    k->kl_to_rival = compare(p, c, k->rival, NULL, 1);
    for (int i = 0; i < p->n_task; i++)
        k->task[i].to_rival = compare(p, c, k->rival, p->task[i], 0);
}

/* ---- needles ---- */

static void count_needles(const rkv_eval_numbers *p, int c)
{
    rkv_eval_column *k = &p->column[c];
    for (int i = 0; i < p->n; i++) {
        const struct rkv_sample_at *x = &p->r->samples->at[i];
        if (x->task->category != RKV_CATEGORY_NEEDLE || at(p, i, c)->state != RKV_EVAL_DONE ||
            isnan(at(p, i, c)->score))
            continue;
        int j = 0;
        while (j < k->n_needle &&
               (k->needle[j].depth != x->depth || k->needle[j].length != x->length))
            j++;
        if (j == k->n_needle)
            k->needle[k->n_needle++] = (rkv_eval_needle){.depth = x->depth, .length = x->length};
        k->needle[j].found += at(p, i, c)->score;
        k->needle[j].n++;
    }
}

/* Into an ascending list of n, once. */
static void add_depth(rkv_eval_numbers *p, double v)
{
    int i = 0;
    while (i < p->n_depth && p->depth[i] < v)
        i++;
    if (i < p->n_depth && p->depth[i] == v)
        return;
    memmove(p->depth + i + 1, p->depth + i, (size_t)(p->n_depth++ - i) * sizeof *p->depth);
    p->depth[i] = v;
}

static void add_length(rkv_eval_numbers *p, int v)
{
    int i = 0;
    while (i < p->n_length && p->length[i] < v)
        i++;
    if (i < p->n_length && p->length[i] == v)
        return;
    memmove(p->length + i + 1, p->length + i, (size_t)(p->n_length++ - i) * sizeof *p->length);
    p->length[i] = v;
}

static void find_needles(rkv_eval_numbers *p)
{
    for (int i = 0; i < p->n; i++) {
        const struct rkv_sample_at *x = &p->r->samples->at[i];
        if (x->task->category != RKV_CATEGORY_NEEDLE)
            continue;
        add_depth(p, x->depth);
        add_length(p, x->length);
    }
}

static int n_needle_samples(const rkv_eval_numbers *p)
{
    int n = 0;
    for (int i = 0; i < p->n; i++)
        n += p->r->samples->at[i].task->category == RKV_CATEGORY_NEEDLE;
    return n;
}

/* ---- what there is ---- */

static void find_tasks(rkv_eval_numbers *p)
{
    const rkv_task *t;
    for (int i = 0; (t = rkv_task_at(i)) != NULL; i++) {
        int n = 0;
        for (int s = 0; s < p->n; s++)
            n += p->r->samples->at[s].task == t;
        if (!n)
            continue;
        p->task[p->n_task] = t;
        p->task_n[p->n_task++] = n;
    }
}

static void add_once(const char **list, int *n, const char *text)
{
    for (int i = 0; i < *n; i++)
        if (!strcmp(list[i], text))
            return;
    list[(*n)++] = text;
}

/* Mean share of bytes; what is refused everywhere was too small. */
static double budget_size(const rkv_eval_numbers *p, const char *budget)
{
    rkv_eval_mean m = {0};
    for (int c = 1; c < p->n_column; c++)
        if (!strcmp(p->column[c].budget, budget))
            add(&m, rkv_eval_mean_of(&p->column[c].share));
    return m.n ? rkv_eval_mean_of(&m) : -1.0;
}

static void sort_budgets(rkv_eval_numbers *p)
{
    for (int c = 1; c < p->n_column; c++) {
        add_once(p->name, &p->n_name, p->column[c].name);
        add_once(p->budget, &p->n_budget, p->column[c].budget);
    }
    for (int i = 1; i < p->n_budget; i++) {
        const char *moved = p->budget[i];
        const double size = budget_size(p, moved);
        int j = i;
        for (; j && budget_size(p, p->budget[j - 1]) > size; j--)
            p->budget[j] = p->budget[j - 1];
        p->budget[j] = moved;
    }
}

/* ---- all ---- */

static rkv_status out_of_memory(rkv_error *e)
{
    return rkv_fail(e, RKV_E_MEM, "report: out of memory");
}

static rkv_status make_column(rkv_eval_numbers *p, int c, rkv_error *e)
{
    rkv_eval_column *k = &p->column[c];
    k->name = rkv_eval_name(p->r->o, c);
    k->budget = rkv_eval_budget(p->r->o, c);
    k->task = rkv_mem_calloc((size_t)p->n_task, sizeof *k->task);
    k->layer = rkv_mem_calloc((size_t)p->model->n_layer, sizeof *k->layer);
    k->needle = rkv_mem_calloc((size_t)n_needle_samples(p) + 1, sizeof *k->needle);
    if (!k->task || !k->layer || !k->needle)
        return out_of_memory(e);
    count_column(p, c);
    average_column(p, c);
    compare_column(p, c);
    count_needles(p, c);
    return average_layers(p, c, e);
}

static rkv_status make(rkv_eval_numbers *p, rkv_error *e)
{
    const size_t n = (size_t)p->n, n_column = (size_t)p->n_column;
    int n_task = 0;
    while (rkv_task_at(n_task))
        n_task++;
    p->column = rkv_mem_calloc(n_column, sizeof *p->column);
    p->task = rkv_mem_calloc((size_t)n_task, sizeof(const rkv_task *));
    p->task_n = rkv_mem_calloc((size_t)n_task, sizeof *p->task_n);
    p->name = rkv_mem_calloc(n_column, sizeof(const char *));
    p->budget = rkv_mem_calloc(n_column, sizeof(const char *));
    p->a = rkv_mem_calloc(n, sizeof *p->a);
    p->b = rkv_mem_calloc(n, sizeof *p->b);
    p->scratch = rkv_mem_calloc(n + RKV_RESAMPLES, sizeof *p->scratch);
    p->pick = rkv_mem_calloc(n, sizeof *p->pick);
    p->depth = rkv_mem_calloc((size_t)n_needle_samples(p) + 1, sizeof *p->depth);
    p->length = rkv_mem_calloc((size_t)n_needle_samples(p) + 1, sizeof *p->length);
    if (!p->depth || !p->length || !p->column || !p->task || !p->task_n || !p->name ||
        !p->budget || !p->a || !p->b || !p->scratch || !p->pick)
        return out_of_memory(e);
    find_tasks(p);
    find_needles(p);
    for (int c = 0; c < p->n_column; c++)
        RKV_TRY(make_column(p, c, e));
    sort_budgets(p);
    return RKV_OK;
}

static void free_numbers(rkv_eval_numbers *p)
{
    for (int c = 0; p->column && c < p->n_column; c++) {
        rkv_mem_free(p->column[c].task);
        rkv_mem_free(p->column[c].layer);
        rkv_mem_free(p->column[c].needle);
    }
    rkv_mem_free(p->column);
    rkv_mem_free(p->task), rkv_mem_free(p->task_n);
    rkv_mem_free(p->name), rkv_mem_free(p->budget);
    rkv_mem_free(p->depth), rkv_mem_free(p->length);
    rkv_mem_free(p->a), rkv_mem_free(p->b);
    rkv_mem_free(p->scratch), rkv_mem_free(p->pick);
}

rkv_status rkv_eval_report(char **text, char **html, const rkv_eval_result *r, int format,
                           rkv_error *e)
{
    rkv_eval_numbers p = {.r = r, .model = rkv_model_get_info(r->m),
                          .n_column = 1 + r->o->n_policy, .n = r->samples->n};
    rkv_text t = {0}, page = {0};
    rkv_status s = make(&p, e);
    if (!s && format == RKV_EVAL_JSON)
        rkv_eval_put_json(&t, &p);
    else if (!s && format == RKV_EVAL_CSV)
        rkv_eval_put_csv(&t, &p);
    else if (!s)
        rkv_eval_put_text(&t, &p);
    if (!s && html)
        rkv_eval_put_html(&page, &p);
    free_numbers(&p);
    if (!s && (t.bad || page.bad))
        s = out_of_memory(e);
    if (s) {
        rkv_text_free(&t);
        rkv_text_free(&page);
        return s;
    }
    rkv_text_take(&t, text, NULL);
    if (html)
        rkv_text_take(&page, html, NULL);
    return RKV_OK;
}

/* The plan of variants, and rows of numbers for them. */
#include "config.h"
#include "profile/table.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

/* Names of signals, and what they ask of each layer, or with HEAD_GRID of each of its KV heads: so
 * many variants, by seeds or points of a grid. Estimates ask for none. */
static const struct signal {
    const char *name, *kind;
    unsigned bit;
    enum { ONCE, SEEDS, GRID, HEAD_GRID, NEVER } repeats;
} signals[] = {
    {"values", "noise_v", RKV_SIGNAL_VALUES, SEEDS},
    {"keys", "noise_k", RKV_SIGNAL_KEYS, SEEDS},
    {"keys+values", "noise_kv", RKV_SIGNAL_KEYS_VALUES, SEEDS},
    {"damage", "drop", RKV_SIGNAL_DAMAGE, ONCE},
    {"curves", NULL, RKV_SIGNAL_CURVES, NEVER},
    {"layer-curves", "drop", RKV_SIGNAL_LAYER_CURVES, GRID},
    {"head-curves", "drop", RKV_SIGNAL_HEAD_CURVES, HEAD_GRID},
};
enum { N_SIGNAL = sizeof signals / sizeof *signals,
       OF_CURVES = RKV_SIGNAL_LAYER_CURVES | RKV_SIGNAL_HEAD_CURVES };

void rkv_signals_print(char *into, unsigned bits)
{
    *into = 0;
    for (int i = 0; i < N_SIGNAL; i++)
        if (bits & signals[i].bit)
            strcat(strcat(into, *into ? "," : ""), signals[i].name);
}

rkv_status rkv_signals_parse(unsigned *out, const char *list, rkv_error *e)
{
    *out = RKV_SIGNAL_VALUES;
    for (const char *at = list; ; at++) {
        const size_t n = strcspn(at, ",");
        int i = 0;
        while (i < N_SIGNAL && (strlen(signals[i].name) != n || memcmp(signals[i].name, at, n)))
            i++;
        if (i == N_SIGNAL) {
            char names[128];
            rkv_signals_print(names, ~0u);
            return rkv_fail(e, RKV_E_ARG, "signals: '%.*s', expected a list of %s",
                            (int)(n < 40 ? n : 40), at, names);
        }
        *out |= signals[i].bit;
        at += n;
        if (!*at)
            return RKV_OK;
    }
}

rkv_status rkv_profile_set_signals(rkv_profile_options *o, const char *list, rkv_error *e)
{
    return rkv_signals_parse(&o->signals, list, e);
}

static int n_repeats(const rkv_profile *head, const struct signal *s)
{
    const int n[] = {[ONCE] = 1, [SEEDS] = head->n_seed, [GRID] = head->n_grid,
                     [HEAD_GRID] = head->n_head_grid, [NEVER] = 0};
    return head->signals & s->bit ? n[s->repeats] : 0;
}

/* Variants of one layer that one signal asks for; item NULL: counts only. */
static int plan_signal(rkv_planned *item, const rkv_profile *head, const struct signal *s, int l)
{
    const int heads = s->repeats == HEAD_GRID ? head->n_kv_head : 1, n = n_repeats(head, s);
    for (int i = 0; item && i < heads * n; i++) {
        const int r = i % n;
        const double amount = s->repeats == SEEDS  ? head->noise
                              : s->repeats == ONCE ? head->damage_budget
                              : s->repeats == GRID ? head->grid[r]
                                                   : head->head_grid[r];
        item[i] = (rkv_planned){
            {rkv_perturb_find(s->kind), l, s->repeats == HEAD_GRID ? i / n : -1,
             s->repeats == SEEDS ? r : 0, amount},
            s->bit, r};
    }
    return heads * n;
}

/* One part of the plan: signals that are curves, or those that are not. */
static int plan_part(rkv_planned *item, const rkv_profile *head, unsigned bits)
{
    int n = 0;
    for (int l = 0; l < head->n_layer; l++)
        for (int i = 0; head->sensitivity[l].in_budget && i < N_SIGNAL; i++)
            if (signals[i].bit & bits)
                n += plan_signal(item ? item + n : NULL, head, &signals[i], l);
    return n;
}

rkv_status rkv_plan_make(rkv_plan *out, const rkv_profile *head, rkv_error *e)
{
    rkv_plan p = {.head = head, .n_main = plan_part(NULL, head, ~(unsigned)OF_CURVES)};
    if (head->signals & RKV_SIGNAL_CURVES)
        p.n_error = (size_t)head->n_layer * (size_t)head->n_kv_head * (size_t)head->n_grid;
    p.n_item = p.n_main + plan_part(NULL, head, OF_CURVES);
    p.item = rkv_mem_alloc((size_t)p.n_item * sizeof *p.item);
    if (!p.item)
        return rkv_fail(e, RKV_E_MEM, "profile: out of memory for %d variants", p.n_item);
    plan_part(p.item, head, ~(unsigned)OF_CURVES);
    plan_part(p.item + p.n_main, head, OF_CURVES);
    *out = p;
    return RKV_OK;
}

void rkv_plan_free(rkv_plan *p)
{
    rkv_mem_free(p->item);
    *p = (rkv_plan){0};
}

/* ---- the table ---- */

rkv_status rkv_measured_alloc(rkv_measured *row, const rkv_plan *p, rkv_error *e)
{
    row->out = rkv_mem_calloc((size_t)p->n_item + 1, sizeof *row->out);
    row->error = p->n_error ? rkv_mem_calloc(p->n_error, sizeof *row->error) : NULL;
    if (row->out && (row->error || !p->n_error))
        return RKV_OK;
    rkv_measured_free(row);
    return rkv_fail(e, RKV_E_MEM, "profile: out of memory for an example of %d variants",
                    p->n_item);
}

void rkv_measured_free(rkv_measured *row)
{
    rkv_mem_free(row->out);
    rkv_mem_free(row->error);
    row->out = NULL;
    row->error = NULL;
}

int rkv_measured_valid(const rkv_measured *row, const rkv_plan *p)
{
    for (int i = 0; i < p->n_item; i++) {
        const rkv_outcome *o = &row->out[i];
        if (!(o->kl >= 0.0 && o->kl < INFINITY && o->local >= 0.0 && o->local < INFINITY))
            return 0;
    }
    for (size_t i = 0; row->error && i < p->n_error; i++) {
        const size_t l = i / ((size_t)p->head->n_kv_head * (size_t)p->head->n_grid);
        const double x = row->error[i];
        if (p->head->sensitivity[l].in_budget ? !(x >= 0.0 && x < INFINITY) : !isnan(x))
            return 0;
    }
    return 1;
}

rkv_status rkv_table_create(rkv_table **out, rkv_profile *head, int n_example, rkv_error *e)
{
    rkv_table *t = rkv_mem_calloc(1, sizeof *t);
    rkv_measured *row = rkv_mem_calloc((size_t)n_example, sizeof *row);
    rkv_status s = RKV_OK;
    if (!t || !row)
        s = rkv_fail(e, RKV_E_MEM, "profile: out of memory for %d examples", n_example);
    if (!s)
        s = rkv_plan_make(&t->plan, head, e);
    if (s) {
        rkv_mem_free(t);
        rkv_mem_free(row);
        rkv_profile_free(head);
        return s;
    }
    t->head = head;
    t->row = row;
    t->n_example = n_example;
    t->shard = t->n_shard = 1;
    *out = t;
    return RKV_OK;
}

void rkv_table_free(rkv_table *t)
{
    if (!t)
        return;
    for (int i = 0; i < t->n_example; i++)
        rkv_measured_free(&t->row[i]);
    rkv_mem_free(t->row);
    rkv_plan_free(&t->plan);
    rkv_profile_free(t->head);
    rkv_mem_free(t);
}

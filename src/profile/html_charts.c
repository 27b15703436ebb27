/* The charts of the HTML report. */
#include "config.h"
#include "profile/html.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "report/svg.h"
#include "profile/table.h"

enum { WIDTH = 1080, LEFT = 64, ROW = 16, TOP = 44, BOTTOM = 26, GAP = 50 };

/* 97.5 % point of Student's t; from 10 degrees of freedom on by its expansion about the normal. */
static double student(int freedom)
{
    static const double exact[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262};
    const double z = 1.959964, z2 = z * z, f = freedom;
    if (freedom <= (int)(sizeof exact / sizeof *exact))
        return exact[freedom - 1];
    return z + z * (z2 + 1.0) / (4.0 * f) +
           z * (5.0 * z2 * z2 + 16.0 * z2 + 3.0) / (96.0 * f * f);
}

rkv_estimate rkv_signal_estimate(const rkv_layer_signal *s, int n_example)
{
    rkv_estimate x = {s->mean, NAN, NAN};
    if (n_example > 1 && !isnan(s->se_examples)) {
        const double half = student(n_example - 1) * s->se_examples;
        x.low = fmax(0.0, s->mean - half);
        x.high = s->mean + half;
    }
    return x;
}

/* ---- rows of layers, with panels side by side ---- */

typedef rkv_estimate value_fn(const rkv_profile *p, int l);

typedef struct panel {
    const char *title, *class;
    value_fn *value;
    rkv_axis axis;
} panel;

static double row_y(int l)
{
    return TOP + ROW * (l + 0.5);
}

static void layer_labels(rkv_text *t, const rkv_profile *p)
{
    rkv_svg_text(t, "end dim", LEFT - 8, TOP - 8);
    rkv_text_printf(t, "layer");
    rkv_svg_end_text(t);
    for (int l = 0; l < p->n_layer; l++) {
        rkv_svg_text(t, p->sensitivity[l].in_budget ? "end" : "end dim", LEFT - 8, row_y(l) + 4);
        rkv_text_printf(t, "%d", l);
        rkv_svg_end_text(t);
        if (p->sensitivity[l].in_budget)
            continue;
        rkv_svg_text(t, "dim small", LEFT + 6, row_y(l) + 4);
        rkv_text_printf(t, "sliding window: outside");
        rkv_svg_end_text(t);
    }
}

/* Every other row is shaded: the eye finds its layer. */
static void open_rows(rkv_text *t, const rkv_profile *p, const char *title)
{
    rkv_svg_open(t, WIDTH, TOP + ROW * p->n_layer + BOTTOM, title);
    for (int l = 1; l < p->n_layer; l += 2) {
        rkv_svg_rect(t, "band", 0.0, TOP + ROW * l, WIDTH, ROW, 0.35);
        rkv_svg_end_rect(t);
    }
}

static void panel_title(rkv_text *t, const rkv_axis *a, const char *title)
{
    rkv_svg_text(t, "head", a->from, TOP - 24);
    rkv_text_printf(t, "%s", title);
    rkv_svg_end_text(t);
    if (!a->log)
        return;
    rkv_svg_text(t, "dim small", a->from, TOP - 9);
    rkv_text_printf(t, "logarithmic scale");
    rkv_svg_end_text(t);
}

/* A bar from 0; on a logarithmic axis, which has no 0, a dot on a thin line. */
static void draw_value(rkv_text *t, const panel *x, const rkv_estimate *v, double y)
{
    const double at = rkv_axis_at(&x->axis, v->mean);
    char class[16];
    if (x->axis.log) {
        snprintf(class, sizeof class, "s%s thin", x->class);
        rkv_svg_line(t, class, x->axis.from, y, at, y);
    } else {
        rkv_svg_rect(t, x->class, x->axis.from, y - 5.0, at - x->axis.from, 10.0, 0.75);
        rkv_svg_end_rect(t);
    }
    if (!isnan(v->low)) {
        const double low = rkv_axis_at(&x->axis, v->low), high = rkv_axis_at(&x->axis, v->high);
        rkv_svg_line(t, "whisker", low, y, high, y);
        rkv_svg_line(t, "whisker", low, y - 3.0, low, y + 3.0);
        rkv_svg_line(t, "whisker", high, y - 3.0, high, y + 3.0);
    }
    if (x->axis.log)
        rkv_svg_dot(t, x->class, at, y, 4.0);
}

static void draw_panel(rkv_text *t, const rkv_profile *p, panel *x, double from, double to)
{
    double least = INFINITY, most = 0.0;
    for (int l = 0; l < p->n_layer; l++) {
        const rkv_estimate v = x->value(p, l);
        if (!p->sensitivity[l].in_budget || isnan(v.mean))
            continue;
        least = v.mean > 0.0 ? fmin(least, v.mean) : least;
        most = fmax(most, isnan(v.high) ? v.mean : v.high);
    }
    x->axis = rkv_axis_of(least, most, from, to);
    panel_title(t, &x->axis, x->title);
    rkv_svg_axis(t, &x->axis, TOP, TOP + ROW * p->n_layer);
    for (int l = 0; l < p->n_layer; l++) {
        const rkv_estimate v = x->value(p, l);
        if (p->sensitivity[l].in_budget && !isnan(v.mean))
            draw_value(t, x, &v, row_y(l));
    }
}

static rkv_estimate sensitivity_of(const rkv_profile *p, int l)
{
    return rkv_signal_estimate(&p->sensitivity[l], p->n_example);
}

static rkv_estimate damage_of(const rkv_profile *p, int l)
{
    return rkv_signal_estimate(&p->extra[RKV_EXTRA_DAMAGE][l], p->n_example);
}

static rkv_estimate estimate_of(const rkv_profile *p, int l)
{
    const rkv_curves *c = rkv_profile_find_curves(p, 0, 1);
    return (rkv_estimate){rkv_curves_layer_damage(p, c, l), NAN, NAN};
}

void rkv_chart_layers(rkv_text *t, const rkv_profile *p)
{
    const rkv_curves *c = rkv_profile_find_curves(p, 0, 1);
    panel x[3] = {{.title = "Sensitivity (nats)", .class = "a", .value = sensitivity_of}};
    int n = 1;
    if (p->extra[RKV_EXTRA_DAMAGE])
        x[n++] = (panel){.title = "Isolated damage (nats)", .class = "b", .value = damage_of};
    if (c)
        x[n++] = (panel){.title = "Estimated damage (nats)", .class = "c", .value = estimate_of};
    const double step = (double)(WIDTH - LEFT) / n;
    open_rows(t, p, "Sensitivity and damage of each layer");
    for (int i = 0; i < n; i++)
        draw_panel(t, p, &x[i], LEFT + i * step, LEFT + (i + 1) * step - GAP);
    layer_labels(t, p);
    rkv_text_printf(t, "</svg>\n");
}

/* ---- heat map ---- */

typedef struct map {
    const rkv_curves *c;
    int point;                  /* of its grid */
    double cell;                /* width */
    rkv_axis shade;             /* opacity */
} map;

static double head_damage(const rkv_profile *p, const map *m, int l, int h)
{
    return m->c->damage[((ptrdiff_t)l * p->n_kv_head + h) * m->c->n_grid + m->point];
}

static void draw_layer(rkv_text *t, const rkv_profile *p, const map *m, int l)
{
    const double x = LEFT + l * m->cell, gap = m->cell > 8.0 ? 1.0 : 0.0;
    if (!p->sensitivity[l].in_budget) {
        rkv_svg_rect(t, "out", x, TOP, m->cell - gap, ROW * p->n_kv_head - 1.0, 0.0);
        rkv_text_printf(t, "<title>layer %d: sliding window, outside the budget</title>", l);
        rkv_svg_end_rect(t);
        return;
    }
    for (int h = 0; h < p->n_kv_head; h++) {
        const double v = head_damage(p, m, l, h);
        rkv_svg_rect(t, "a", x, TOP + ROW * h, m->cell - gap, ROW - 1.0,
                     rkv_axis_at(&m->shade, v));
        rkv_text_printf(t, "<title>layer %d, KV head %d: ", l, h);
        rkv_html_number(t, v);
        rkv_text_printf(t, " nats</title>");
        rkv_svg_end_rect(t);
    }
}

static void map_labels(rkv_text *t, const rkv_profile *p, const map *m)
{
    enum { ROOM = 28 };
    const int every = m->cell >= ROOM ? 1 : (int)ceil(ROOM / m->cell);
    rkv_svg_text(t, "end dim", LEFT - 8, TOP - 8);
    rkv_text_printf(t, "KV head");
    rkv_svg_end_text(t);
    for (int h = 0; h < p->n_kv_head; h++) {
        rkv_svg_text(t, "end", LEFT - 8, row_y(h) + 4);
        rkv_text_printf(t, "%d", h);
        rkv_svg_end_text(t);
    }
    for (int l = 0; l < p->n_layer; l += every) {
        rkv_svg_text(t, "mid", LEFT + (l + 0.5) * m->cell, TOP - 8);
        rkv_text_printf(t, "%d", l);
        rkv_svg_end_text(t);
    }
    rkv_svg_text(t, "head", LEFT, TOP - 26);
    rkv_text_printf(t, "layer");
    rkv_svg_end_text(t);
}

static void map_legend(rkv_text *t, const map *m, double y)
{
    enum { STEPS = 5, WIDE = 110 };
    for (int i = 0; i < STEPS; i++) {
        const double share = (double)i / (STEPS - 1);
        const double v = m->shade.log ? m->shade.low * pow(m->shade.high / m->shade.low, share)
                                      : m->shade.high * share;
        rkv_svg_rect(t, "a", LEFT + i * WIDE, y, 24.0, 12.0, rkv_axis_at(&m->shade, v));
        rkv_svg_end_rect(t);
        rkv_svg_text(t, "dim", LEFT + i * WIDE + 30, y + 10.0);
        rkv_html_number(t, v);
        rkv_svg_end_text(t);
    }
}

void rkv_chart_heads(rkv_text *t, const rkv_profile *p)
{
    map m = {.c = rkv_profile_find_curves(p, 0, 1)};
    double least = INFINITY, most = 0.0;
    m.point = rkv_curves_point(m.c, 0.1);
    m.cell = fmin(34.0, (double)(WIDTH - LEFT) / p->n_layer);
    for (int l = 0; l < p->n_layer; l++)
        for (int h = 0; p->sensitivity[l].in_budget && h < p->n_kv_head; h++) {
            const double v = head_damage(p, &m, l, h);
            least = v > 0.0 ? fmin(least, v) : least;
            most = fmax(most, v);
        }
    m.shade = rkv_axis_of(least, most, 0.06, 1.0);
    const double below = TOP + ROW * p->n_kv_head + 12.0;
    rkv_text_printf(t, "<h2>Estimated damage of each KV head, ");
    rkv_html_number(t, 100.0 * m.c->grid[m.point]);
    rkv_text_printf(t, " %% of the prompt kept (nats%s)</h2>\n",
                    m.shade.log ? ", logarithmic shades" : "");
    rkv_svg_open(t, WIDTH, below + 16.0, "Estimated damage of each KV head");
    for (int l = 0; l < p->n_layer; l++)
        draw_layer(t, p, &m, l);
    map_labels(t, p, &m);
    map_legend(t, &m, below);
    rkv_text_printf(t, "</svg>\n");
}

/* ---- budgets ---- */

static const double shares[] = {0.05, 0.1, 0.2, 0.3};
enum { N_SHARE = sizeof shares / sizeof *shares };

typedef struct budgets {
    int n_policy, n_head;
    rkv_policy policy[2];       /* ripple, curve */
    uint8_t *skip;              /* [n_layer] */
    int *of[2];                 /* [n_layer][n_head] */
    int cap;
} budgets;

/* Mean and range of a layer's heads. */
static rkv_estimate layer_budget(const budgets *b, int i, int l)
{
    const int *of = b->of[i] + (ptrdiff_t)l * b->n_head;
    rkv_estimate x = {0.0, of[0], of[0]};
    for (int h = 0; h < b->n_head; h++) {
        x.mean += (double)of[h] / b->n_head;
        x.low = fmin(x.low, of[h]);
        x.high = fmax(x.high, of[h]);
    }
    return x;
}

static void draw_budgets(rkv_text *t, const rkv_profile *p, const budgets *b, const rkv_axis *a)
{
    static const char *const dot[] = {"a", "b"}, *const line[] = {"sa", "sb"};
    for (int l = 0; l < p->n_layer; l++)
        for (int i = 0; i < b->n_policy && !b->skip[l]; i++) {
            const rkv_estimate v = layer_budget(b, i, l);
            const double y = row_y(l) + (b->n_policy == 1 ? 0.0 : i ? 3.5 : -3.5);
            rkv_svg_line(t, line[i], rkv_axis_at(a, v.low), y, rkv_axis_at(a, v.high), y);
            rkv_svg_dot(t, dot[i], rkv_axis_at(a, v.mean), y, 3.0);
        }
}

/* One share: the panel from..to. A budget that is not feasible leaves it empty but for the word. */
static rkv_status budget_panel(rkv_text *t, const rkv_profile *p, budgets *b, double share,
                               double from, double to, rkv_error *e)
{
    char title[64];
    rkv_error why;
    double most = 0.0;
    rkv_status s = RKV_OK;
    for (int i = 0; !s && i < b->n_policy; i++) {
        b->policy[i].budget_kind = RKV_BUDGET_SHARE;
        b->policy[i].budget = share;
        s = rkv_budget_heads(b->of[i], &b->cap, &b->policy[i], p->n_layer, b->n_head, b->skip,
                             RKV_REPORT_PROMPT, 0.0, &why);
        for (int l = 0; !s && l < p->n_layer; l++)
            most = b->skip[l] ? most : fmax(most, layer_budget(b, i, l).high);
    }
    if (s == RKV_E_MEM)
        return rkv_fail(e, s, "%s", why.text);
    const rkv_axis a = rkv_axis_of(0.0, most, from, to);
    snprintf(title, sizeof title, s ? "%.0f %%: not feasible" : "%.0f %%: mean %d tokens",
             100.0 * share, b->cap);
    panel_title(t, &a, title);
    if (s)
        return RKV_OK;
    const double at = rkv_axis_at(&a, b->cap), bottom = TOP + ROW * p->n_layer;
    rkv_svg_axis(t, &a, TOP, bottom);
    rkv_svg_line(t, "cap", at, TOP, at, bottom);
    draw_budgets(t, p, b, &a);
    return RKV_OK;
}

/* Allocator curve goes by the first curves that there are, estimated ones of heads at best. */
static rkv_status set_policies(budgets *b, const rkv_profile *p, rkv_error *e)
{
    b->policy[0] = b->policy[1] = rkv_policy_default();
    b->n_policy = 1;
    RKV_TRY(rkv_policy_set_name(&b->policy[0], "ripple", e));
    RKV_TRY(rkv_policy_set_name(&b->policy[1], "curve", e));
    b->policy[0].profile = b->policy[1].profile = p;
    for (int k = 0; b->n_policy == 1 && k < 4; k++)
        if (rkv_profile_find_curves(p, k & 1, !(k & 2))) {
            b->policy[1].curves_measured = k & 1;
            b->policy[1].unit_layers = k >> 1;
            b->n_policy = 2;
        }
    return RKV_OK;
}

static void budget_legend(rkv_text *t, const budgets *b)
{
    const rkv_policy *curve = &b->policy[1];
    rkv_text_printf(t, "<p class=\"dim\"><span class=\"key ka\"></span> ripple");
    if (b->n_policy == 2)
        rkv_text_printf(t, " &#160; <span class=\"key kb\"></span> curve, by %s curves of each %s: "
                        "mean of a layer's KV heads, line from the least to the most",
                        curve->curves_measured ? "measured" : "estimated",
                        curve->unit_layers ? "layer" : "KV head");
    rkv_text_printf(t, " &#160; dashed: the mean over all</p>\n");
}

static rkv_status draw_all(rkv_text *t, const rkv_profile *p, budgets *b, rkv_error *e)
{
    const double step = (double)(WIDTH - LEFT) / N_SHARE;
    RKV_TRY(set_policies(b, p, e));
    budget_legend(t, b);
    open_rows(t, p, "Budgets of each layer");
    for (int l = 0; l < p->n_layer; l++)
        b->skip[l] = !p->sensitivity[l].in_budget;
    for (int i = 0; i < N_SHARE; i++)
        RKV_TRY(budget_panel(t, p, b, shares[i], LEFT + i * step, LEFT + (i + 1) * step - GAP, e));
    layer_labels(t, p);
    rkv_text_printf(t, "</svg>\n");
    return RKV_OK;
}

rkv_status rkv_chart_budgets(rkv_text *t, const rkv_profile *p, rkv_error *e)
{
    budgets b = {.n_head = p->n_kv_head ? p->n_kv_head : 1};
    const size_t n = (size_t)p->n_layer * (size_t)b.n_head;
    b.skip = rkv_mem_alloc((size_t)p->n_layer);
    b.of[0] = rkv_mem_alloc(2 * n * sizeof *b.of[0]);
    b.of[1] = b.of[0] ? b.of[0] + n : NULL;
    const rkv_status s = b.skip && b.of[0]
                             ? draw_all(t, p, &b, e)
                             : rkv_fail(e, RKV_E_MEM, "profile: out of memory for the report");
    rkv_mem_free(b.skip);
    rkv_mem_free(b.of[0]);
    return s;
}

/* ---- cost ---- */

void rkv_chart_cost(rkv_text *t, const rkv_profile_cost *cost)
{
    const double part[] = {cost->prefill_s, cost->answer_s, cost->walk_s};
    static const char *const name[] = {"prefill", "answer", "walk"}, *const class[] = {"a", "b",
                                                                                       "c"};
    const double all = part[0] + part[1] + part[2];
    double x = LEFT;
    rkv_svg_open(t, WIDTH, 30.0, "Shares of the time");
    for (int i = 0; i < 3 && all > 0.0; i++) {
        const double w = (WIDTH - LEFT - GAP) * part[i] / all;
        rkv_svg_rect(t, class[i], x, 4.0, w, 20.0, 0.75);
        rkv_text_printf(t, "<title>%s</title>", name[i]);
        rkv_svg_end_rect(t);
        x += w;
    }
    rkv_text_printf(t, "</svg>\n");
}

/* The main pictures of an evaluation's page: score and KL against budget. */
#include "config.h"
#include "eval/report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/svg.h"

const char *rkv_eval_hue(int name)
{
    static const char *const hues[RKV_N_HUE] = {"a", "b", "c", "d", "e", "f", "g"};
    return hues[name % RKV_N_HUE];
}

/* Class of a line: its hue, and a way of dashing that tells it where hues do not. */
static void line_class(char out[24], int i)
{
    static const char *const dash[] = {"", " dash1", " dash2", " dash3"};
    snprintf(out, 24, "s%s%s", rkv_eval_hue(i), dash[i % 4]);
}

/* ---- curves ---- */

enum { WIDTH = 530, HEIGHT = 310, LEFT = 56, RIGHT = 14, TOP = 50, BOTTOM = 44 };

typedef struct point {          /* NaN: none; low and high NaN: no interval */
    double value, low, high;
    int n, partial;             /* partial: some samples are not in it */
} point;

typedef point point_fn(const rkv_eval_numbers *p, int c);

typedef struct panel {
    const char *title;
    point_fn *value;
    double line;                /* a dashed one across; NaN: none */
    const char *line_name;
    double least;               /* the axis does not go below it; -INFINITY: it may */
    int may_log;
    rkv_axis axis;
} panel;

/* Too few samples for an interval. */
static point without_interval(point v)
{
    if (v.n < RKV_LEAST_PAIRS)
        v.low = v.high = (double)NAN;
    return v;
}

/* Score with the interval of its difference to the full cache on the same samples. */
static point score_of(const rkv_eval_numbers *p, int c)
{
    const rkv_eval_column *k = &p->column[c];
    const double v = rkv_eval_mean_of(&k->all.score), shift = v - k->to_full.mean;
    return (point){v, k->to_full.interval.low + shift, k->to_full.interval.high + shift,
                   k->all.score.n, k->all.score.n < p->column[0].all.score.n};
}

static point kl_of(const rkv_eval_numbers *p, int c)
{
    const rkv_eval_column *k = &p->column[c];
    return (point){rkv_eval_mean_of(&k->all.kl), k->kl_interval.low, k->kl_interval.high,
                   k->all.kl.n, k->all.done < p->column[0].all.done};
}

static point difference(const rkv_eval_numbers *p, int c, int of_kl)
{
    const rkv_eval_column *k = &p->column[c];
    const rkv_paired *d = of_kl ? &k->kl_to_rival : &k->all.to_rival;
    if (k->rival < 0 || !d->n)
        return (point){(double)NAN, (double)NAN, (double)NAN, 0, 0};
    return (point){d->mean, d->interval.low, d->interval.high, d->n,
                   k->all.done < p->column[0].all.done};
}

static point score_difference(const rkv_eval_numbers *p, int c)
{
    return difference(p, c, 0);
}

static point kl_difference(const rkv_eval_numbers *p, int c)
{
    return difference(p, c, 1);
}

/* Budgets side by side at even steps, policies of one budget next to each other. */
static double slot_width(const rkv_eval_numbers *p)
{
    return (double)(WIDTH - LEFT - RIGHT) / p->n_budget;
}

static double point_x(const rkv_eval_numbers *p, int name, int budget)
{
    const double slot = slot_width(p), step = fmin(16.0, 0.7 * slot / p->n_name);
    return LEFT + (budget + 0.5) * slot + (name - (p->n_name - 1) / 2.0) * step;
}

static point point_at(const rkv_eval_numbers *p, const panel *x, int name, int budget)
{
    const int c = rkv_eval_column_of(p, p->name[name], p->budget[budget]);
    return c > 0 ? without_interval(x->value(p, c))
                 : (point){(double)NAN, (double)NAN, (double)NAN, 0, 0};
}

static void set_axis(const rkv_eval_numbers *p, panel *x)
{
    double low = isnan(x->line) ? INFINITY : x->line, high = isnan(x->line) ? -INFINITY : x->line;
    double least = INFINITY;
    for (int c = 1; c < p->n_column; c++) {
        const point v = without_interval(x->value(p, c));
        if (isnan(v.value))
            continue;
        low = fmin(low, fmin(v.value, v.low));
        high = fmax(high, fmax(v.value, v.high));
        least = v.value > 0.0 ? fmin(least, v.value) : least;
    }
    x->axis = x->may_log ? rkv_axis_of(least, high, HEIGHT - BOTTOM, TOP)
                         : rkv_axis_between(fmax(low, x->least), high, HEIGHT - BOTTOM, TOP);
}

static void budget_labels(rkv_text *t, const rkv_eval_numbers *p)
{
    const double slot = slot_width(p);
    const int every = (int)ceil(52.0 / slot);
    for (int b = 0; b < p->n_budget; b += every)
        rkv_svg_text_at(t, "mid", LEFT + (b + 0.5) * slot, HEIGHT - BOTTOM + 17.0, p->budget[b]);
    rkv_svg_text_at(t, "mid dim", (LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 8.0, "budget");
}

/* The title of a point: what a pointer that rests on it reads. */
static void point_title(rkv_text *t, const rkv_eval_numbers *p, const point *v, int name,
                        int budget)
{
    rkv_html_text(t, p->name[name]);
    rkv_text_printf(t, " at ");
    rkv_html_text(t, p->budget[budget]);
    rkv_text_printf(t, ": ");
    rkv_html_number(t, v->value);
    if (!isnan(v->low)) {
        rkv_text_printf(t, " (");
        rkv_html_number(t, v->low);
        rkv_text_printf(t, " to ");
        rkv_html_number(t, v->high);
        rkv_text_printf(t, ")");
    }
    rkv_text_printf(t, ", %d sample%s", v->n, v->n == 1 ? "" : "s");
}

static void draw_point(rkv_text *t, const rkv_eval_numbers *p, const panel *x, int name,
                       int budget)
{
    const point v = point_at(p, x, name, budget);
    const double at = point_x(p, name, budget);
    char class[24], thin[24];
    if (isnan(v.value))
        return;
    snprintf(thin, sizeof thin, "s%s thin", rkv_eval_hue(name));
    snprintf(class, sizeof class, v.partial ? "hollow s%s" : "%s", rkv_eval_hue(name));
    rkv_svg_begin_group(t);
    point_title(t, p, &v, name, budget);
    rkv_svg_end_title(t);
    if (!isnan(v.low)) {
        const double low = rkv_axis_at(&x->axis, v.low), high = rkv_axis_at(&x->axis, v.high);
        rkv_svg_line(t, thin, at, low, at, high);
        rkv_svg_line(t, thin, at - 3.0, low, at + 3.0, low);
        rkv_svg_line(t, thin, at - 3.0, high, at + 3.0, high);
    }
    rkv_svg_mark(t, class, name, at, rkv_axis_at(&x->axis, v.value), 4.5);
    rkv_svg_end_group(t);
}

static void draw_policy(rkv_text *t, const rkv_eval_numbers *p, const panel *x, int name)
{
    char class[24];
    line_class(class, name);
    for (int b = 0; b + 1 < p->n_budget; b++) {
        const point from = point_at(p, x, name, b), to = point_at(p, x, name, b + 1);
        if (!isnan(from.value) && !isnan(to.value))
            rkv_svg_line(t, class, point_x(p, name, b), rkv_axis_at(&x->axis, from.value),
                         point_x(p, name, b + 1), rkv_axis_at(&x->axis, to.value));
    }
    for (int b = 0; b < p->n_budget; b++)
        draw_point(t, p, x, name, b);
}

static void panel_note(rkv_text *t, const panel *x)
{
    rkv_svg_text(t, "dim small", 4.0, 31.0);
    if (x->axis.log)
        rkv_text_printf(t, "logarithmic scale");
    if (!isnan(x->line)) {
        rkv_text_printf(t, "dashed: ");
        rkv_html_text(t, x->line_name);
    }
    rkv_svg_end_text(t);
}

static void draw_panel(rkv_text *t, const rkv_eval_numbers *p, panel *x)
{
    set_axis(p, x);
    rkv_text_printf(t, "<div>");
    rkv_svg_open(t, WIDTH, HEIGHT, x->title);
    rkv_svg_text_at(t, "head", 4.0, 16.0, x->title);
    panel_note(t, x);
    rkv_svg_axis_up(t, &x->axis, LEFT, WIDTH - RIGHT);
    budget_labels(t, p);
    if (!isnan(x->line)) {
        const double y = rkv_axis_at(&x->axis, x->line);
        rkv_svg_line(t, "cap", LEFT, y, WIDTH - RIGHT, y);
    }
    for (int i = 0; i < p->n_name; i++)
        draw_policy(t, p, x, i);
    rkv_svg_close(t);
    rkv_text_printf(t, "</div>\n");
}

static void put_legend(rkv_text *t, const rkv_eval_numbers *p)
{
    char class[24];
    rkv_text_printf(t, "<p class=\"legend\">");
    for (int i = 0; i < p->n_name; i++) {
        line_class(class, i);
        rkv_text_printf(t, "<span>");
        rkv_svg_open(t, 34.0, 14.0, p->name[i]);
        rkv_svg_line(t, class, 0.0, 7.0, 34.0, 7.0);
        rkv_svg_mark(t, rkv_eval_hue(i), i, 17.0, 7.0, 4.5);
        rkv_svg_close(t);
        rkv_text_printf(t, " ");
        rkv_html_text(t, p->name[i]);
        rkv_text_printf(t, "</span>\n");
    }
    rkv_text_printf(t, "</p>\n");
}

/* Whether any sample is compared with a rival. */
static int has_rival(const rkv_eval_numbers *p, int of_kl)
{
    for (int c = 1; c < p->n_column; c++) {
        const rkv_eval_column *k = &p->column[c];
        if (k->rival >= 0 && (of_kl ? k->kl_to_rival.n : k->all.to_rival.n))
            return 1;
    }
    return 0;
}

static const char *rival_name(const rkv_eval_numbers *p)
{
    return p->r->against ? p->r->against : p->name[0];
}

void rkv_eval_put_curves(rkv_text *t, const rkv_eval_numbers *p)
{
    char title[2][200];
    const char *rival = rival_name(p);
    panel score = {.title = "Score (percent, mean of samples)", .value = score_of,
                   .line_name = "the full cache",
                   .line = rkv_eval_mean_of(&p->column[0].all.score)};
    panel kl = {.title = "KL to the full cache (nats)", .value = kl_of, .line = (double)NAN,
                .may_log = 1};
    snprintf(title[0], sizeof title[0], "Score: difference to %.100s (higher is better)", rival);
    snprintf(title[1], sizeof title[1], "KL: difference to %.100s (lower is better)", rival);
    panel to_rival[2] = {{.title = title[0], .value = score_difference, .line_name = rival,
                          .least = -INFINITY},
                         {.title = title[1], .value = kl_difference, .line_name = rival,
                          .least = -INFINITY}};
    put_legend(t, p);
    rkv_text_printf(t, "<div class=\"panels curves\">\n");
    if (!isnan(score.line))
        draw_panel(t, p, &score);
    draw_panel(t, p, &kl);
    for (int of_kl = 0; of_kl < 2; of_kl++)
        if (has_rival(p, of_kl) && rkv_eval_against(p->r->o, p->r->against, 1) != 0)
            draw_panel(t, p, &to_rival[of_kl]);
    rkv_text_printf(t, "</div>\n");
}

/* Pictures of an evaluation's page with a frame for each policy and budget: heat maps of needles,
 * bars of the tokens that layers keep. */
#include "config.h"
#include "eval/report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/svg.h"

/* Frames of one budget in a row, of each policy that has it; the heading before. */
static void put_row(rkv_text *t, const rkv_eval_numbers *p, const char *budget,
                    void (*frame)(rkv_text *t, const rkv_eval_numbers *p, int c, double most),
                    double most)
{
    rkv_text_printf(t, "<h3>Budget ");
    rkv_html_text(t, budget);
    rkv_text_printf(t, "</h3>\n<div class=\"panels\">\n");
    for (int i = 0; i < p->n_name; i++) {
        const int c = rkv_eval_column_of(p, p->name[i], budget);
        if (c > 0)
            frame(t, p, c, most);
    }
    rkv_text_printf(t, "</div>\n");
}

/* ---- needles ---- */

enum { MAP_LEFT = 52, MAP_TOP = 26, MAP_BOTTOM = 36, LEAST_WIDE = 30, LEAST_HIGH = 15 };

static double cell_width(const rkv_eval_numbers *p)
{
    return fmin(fmax(260.0 / p->n_length, 12.0), 56.0);
}

static double cell_height(const rkv_eval_numbers *p)
{
    return fmin(fmax(180.0 / p->n_depth, 5.0), 26.0);
}

static const rkv_eval_needle *find_cell(const rkv_eval_column *k, double depth, int length)
{
    for (int i = 0; i < k->n_needle; i++)
        if (k->needle[i].depth == depth && k->needle[i].length == length)
            return &k->needle[i];
    return NULL;
}

static void cell_title(rkv_text *t, const rkv_eval_needle *x, double depth, int length)
{
    rkv_text_printf(t, "<title>%d tokens, depth ", length);
    rkv_html_fixed(t, depth < 0.0 ? (double)NAN : 100.0 * depth, 0, 0);
    rkv_text_printf(t, " %%: ");
    if (x) {
        const rkv_interval w = rkv_wilson(x->found, x->n);
        rkv_html_number(t, x->found);
        rkv_text_printf(t, " of %d found, 95 %% interval ", x->n);
        rkv_html_fixed(t, 100.0 * w.low, 0, 0);
        rkv_text_printf(t, " to ");
        rkv_html_fixed(t, 100.0 * w.high, 0, 0);
        rkv_text_printf(t, " %%");
    } else {
        rkv_text_printf(t, "no result");
    }
    rkv_text_printf(t, "</title>");
}

/* Shades up to a bit over half: the number on them stays readable. */
static void draw_cell(rkv_text *t, const rkv_eval_numbers *p, const rkv_eval_needle *x, int d,
                      int l)
{
    const double wide = cell_width(p), high = cell_height(p), share = x ? x->found / x->n : 0.0;
    const double at = MAP_LEFT + l * wide, y = MAP_TOP + d * high;
    rkv_svg_rect(t, x ? "a cell" : "out", at, y, wide - 1.0, high - 1.0, 0.55 * share);
    cell_title(t, x, p->depth[d], p->length[l]);
    rkv_svg_end_rect(t);
    if (x && wide >= LEAST_WIDE && high >= LEAST_HIGH)
        rkv_svg_number_at(t, "mid small", at + wide / 2.0 - 0.5, y + high / 2.0 + 3.5,
                          100.0 * share, 0);
}

static void map_labels(rkv_text *t, const rkv_eval_numbers *p)
{
    const double wide = cell_width(p), high = cell_height(p), below = MAP_TOP + p->n_depth * high;
    const int every_d = (int)ceil(LEAST_HIGH / high), every_l = (int)ceil(44.0 / wide);
    for (int d = 0; d < p->n_depth; d += every_d) {
        rkv_svg_text(t, "end dim", MAP_LEFT - 6.0, MAP_TOP + (d + 0.5) * high + 4.0);
        rkv_html_fixed(t, p->depth[d] < 0.0 ? (double)NAN : 100.0 * p->depth[d], 0, 0);
        rkv_text_printf(t, " %%");
        rkv_svg_end_text(t);
    }
    for (int l = 0; l < p->n_length; l += every_l)
        rkv_svg_number_at(t, "mid dim", MAP_LEFT + (l + 0.5) * wide, below + 14.0, p->length[l], 0);
    rkv_svg_text_at(t, "dim small", MAP_LEFT, below + 30.0, "tokens of the prompt");
}

static void draw_map(rkv_text *t, const rkv_eval_numbers *p, int c, double most)
{
    const rkv_eval_column *k = &p->column[c];
    const double wide = fmax(MAP_LEFT + p->n_length * cell_width(p), 190.0);
    char title[160];
    (void)most;
    snprintf(title, sizeof title, "Needles found, %.60s at %.40s", k->name, k->budget);
    rkv_text_printf(t, "<div>");
    rkv_svg_open(t, wide, MAP_TOP + p->n_depth * cell_height(p) + MAP_BOTTOM, title);
    rkv_svg_text_at(t, "head", MAP_LEFT, 16.0, c ? k->name : "full cache");
    rkv_svg_text_at(t, "end dim small", MAP_LEFT - 6.0, 16.0, "depth");
    for (int d = 0; d < p->n_depth; d++)
        for (int l = 0; l < p->n_length; l++)
            draw_cell(t, p, find_cell(k, p->depth[d], p->length[l]), d, l);
    map_labels(t, p);
    rkv_svg_close(t);
    rkv_text_printf(t, "</div>\n");
}

void rkv_eval_put_needles(rkv_text *t, const rkv_eval_numbers *p)
{
    rkv_text_printf(t, "<h3>Without a budget</h3>\n<div class=\"panels\">\n");
    draw_map(t, p, 0, 0.0);
    rkv_text_printf(t, "</div>\n");
    for (int b = 0; b < p->n_budget; b++)
        put_row(t, p, p->budget[b], draw_map, 0.0);
}

/* ---- layers ---- */

enum { BARS = 200, BARS_LEFT = 46, BARS_TOP = 34, BARS_HIGH = 110, BARS_BOTTOM = 34 };

static double most_kept(const rkv_eval_numbers *p, const char *budget)
{
    double most = 0.0;
    for (int c = 1; c < p->n_column; c++)
        for (int l = 0; l < p->model->n_layer && !strcmp(p->column[c].budget, budget); l++)
            most = fmax(most, p->column[c].layer[l]);
    return most;
}

static int index_of(const rkv_eval_numbers *p, const char *name)
{
    int i = 0;
    while (strcmp(p->name[i], name))
        i++;
    return i;
}

static void draw_bars(rkv_text *t, const rkv_eval_numbers *p, int c, const rkv_axis *a)
{
    const rkv_eval_column *k = &p->column[c];
    const int n = p->model->n_layer;
    const double step = (double)BARS / n, gap = step > 4.0 ? 1.0 : 0.0;
    for (int l = 0; l < n; l++) {
        const int sliding = rkv_model_layer_is_sliding(p->r->m, l);
        const double y = rkv_axis_at(a, k->layer[l]);
        rkv_svg_rect(t, sliding ? "band" : rkv_eval_hue(index_of(p, k->name)),
                     BARS_LEFT + l * step, y, step - gap, a->from - y, 1.0);
        rkv_text_printf(t, "<title>layer %d: ", l);
        rkv_html_fixed(t, k->layer[l], 1, 0);
        rkv_text_printf(t, " tokens%s</title>",
                        sliding ? ", sliding window: outside the budget" : "");
        rkv_svg_end_rect(t);
    }
}

static void draw_layers(rkv_text *t, const rkv_eval_numbers *p, int c, double most)
{
    const rkv_eval_column *k = &p->column[c];
    const int n = p->model->n_layer;
    const rkv_axis a = rkv_axis_between(0.0, fmax(most, 1.0), BARS_TOP + BARS_HIGH, BARS_TOP);
    const double step = (double)BARS / n;
    char title[160];
    snprintf(title, sizeof title, "Kept tokens of each layer, %.60s at %.40s", k->name, k->budget);
    rkv_text_printf(t, "<div>");
    rkv_svg_open(t, BARS_LEFT + BARS + 6.0, BARS_TOP + BARS_HIGH + BARS_BOTTOM, title);
    rkv_svg_text_at(t, "head", 4.0, 16.0, k->name);
    rkv_svg_axis_up(t, &a, BARS_LEFT, BARS_LEFT + BARS);
    if (k->all.done)
        draw_bars(t, p, c, &a);
    else
        rkv_svg_text_at(t, "dim", BARS_LEFT + 6.0, BARS_TOP + 50.0,
                        k->all.refused ? "refused" : "not measured");
    for (int l = 0; l < n; l += (int)ceil(26.0 / step))
        rkv_svg_number_at(t, "mid dim small", BARS_LEFT + (l + 0.5) * step, a.from + 13.0, l, 0);
    rkv_svg_text_at(t, "mid dim small", BARS_LEFT + BARS / 2.0, a.from + 28.0, "layer");
    rkv_svg_close(t);
    rkv_text_printf(t, "</div>\n");
}

void rkv_eval_put_layers(rkv_text *t, const rkv_eval_numbers *p)
{
    for (int b = 0; b < p->n_budget; b++)
        put_row(t, p, p->budget[b], draw_layers, most_kept(p, p->budget[b]));
}

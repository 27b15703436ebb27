/* HTML and SVG as text, well-formed as XML too. Coordinates are pixels, written to a tenth; numbers
 * do not depend on the locale. Classes are those of the page's style (page.c). */
#ifndef RKV_SVG_H
#define RKV_SVG_H

#include "base/json.h"

enum { RKV_MAX_TICK = 16, RKV_N_HUE = 7 };

typedef struct rkv_axis {
    double low, high;           /* values at its ends */
    double from, to;            /* pixels there */
    int log;
} rkv_axis;

/* For values up to most, the least positive of which is least: from 0 on, or, when they spread over
 * more than a factor of 50, logarithmic between powers of ten. Not finite or <= 0: from 0 to 1. */
rkv_axis rkv_axis_of(double least, double most, double from, double to);
/* Linear over low..high, widened to round values around them; 1 wide, or a tenth of low, where both
 * are the same. Not finite: from 0 to 1. */
rkv_axis rkv_axis_between(double low, double high, double from, double to);
/* Pixel of v; what lies outside is at the end. from > to: upwards. */
double rkv_axis_at(const rkv_axis *a, double v);
/* Round values inside it; returns their number. */
int rkv_axis_ticks(const rkv_axis *a, double tick[RKV_MAX_TICK]);

/* Text between tags or in an attribute; bytes that are not UTF-8 or no characters: U+FFFD. */
void rkv_html_text(rkv_text *t, const char *s);
/* To three digits. NaN: a dash. */
void rkv_html_number(rkv_text *t, double v);
/* With so many decimals, at most 6; with a sign, if sign, but for what is shown as zero. NaN, or
 * beyond 1e12: as rkv_html_number. */
void rkv_html_fixed(rkv_text *t, double v, int decimals, int sign);
/* "12.3 MiB". NaN: a dash. */
void rkv_html_bytes(rkv_text *t, double v);

/* <svg> of w x h that scales with the page; title says what it shows, for those who do not see. */
void rkv_svg_open(rkv_text *t, double w, double h, const char *title);
void rkv_svg_line(rkv_text *t, const char *class, double x1, double y1, double x2, double y2);
/* opacity of its fill: 0 to 1. Left open for a <title>: rkv_svg_end_rect follows. */
void rkv_svg_rect(rkv_text *t, const char *class, double x, double y, double w, double h,
                  double opacity);
void rkv_svg_end_rect(rkv_text *t);
void rkv_svg_dot(rkv_text *t, const char *class, double x, double y, double r);
/* A sign of about radius r, told from others by its shape as well: any kind >= 0, six in turn. */
void rkv_svg_mark(rkv_text *t, const char *class, int kind, double x, double y, double r);
/* A group whose <title> is open: its text and rkv_svg_end_title follow, shapes, rkv_svg_end_group.
 */
void rkv_svg_begin_group(rkv_text *t);
void rkv_svg_end_title(rkv_text *t);
void rkv_svg_end_group(rkv_text *t);
void rkv_svg_close(rkv_text *t);
/* <text> up to what rkv_svg_end_text closes; class "end" or "mid" aligns it. */
void rkv_svg_text(rkv_text *t, const char *class, double x, double y);
void rkv_svg_end_text(rkv_text *t);
/* All of it: text, escaped, and a number as rkv_html_fixed writes it. */
void rkv_svg_text_at(rkv_text *t, const char *class, double x, double y, const char *text);
void rkv_svg_number_at(rkv_text *t, const char *class, double x, double y, double v, int decimals);
/* Grid lines with their values below, from y0 down to y1. */
void rkv_svg_axis(rkv_text *t, const rkv_axis *a, double y0, double y1);
/* The same across, from x0 to x1, values at the left. */
void rkv_svg_axis_up(rkv_text *t, const rkv_axis *a, double x0, double x1);

#endif

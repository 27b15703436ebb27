#include "config.h"
#include "report/svg.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

/* ---- axes ---- */

rkv_axis rkv_axis_of(double least, double most, double from, double to)
{
    enum { SPREAD = 50 };
    rkv_axis a = {.low = 0.0, .high = most, .from = from, .to = to};
    if (!isfinite(most) || !(most > 0.0)) {
        a.high = 1.0;
    } else if (least > 0.0 && most > SPREAD * least) {
        a.log = 1;
        a.low = pow(10.0, floor(log10(least)));
        a.high = pow(10.0, ceil(log10(most)));
    }
    return a;
}

/* 1, 2, 5 or 10 times a power of ten: the least of them that is not under rough. */
static double round_step(double rough)
{
    const double unit = pow(10.0, floor(log10(rough)));
    return unit * (rough <= unit ? 1.0 : rough <= 2.0 * unit ? 2.0 : rough <= 5.0 * unit ? 5.0
                                                                                          : 10.0);
}

rkv_axis rkv_axis_between(double low, double high, double from, double to)
{
    const rkv_axis none = {.low = 0.0, .high = 1.0, .from = from, .to = to};
    if (!isfinite(low) || !isfinite(high) || low > high)
        return none;
    if (high - low <= 1e-9 * fmax(fabs(low), fabs(high)))       /* one value: about 1 around it */
        high = low + fmax(1.0, 0.1 * fabs(low));
    const double step = round_step((high - low) / 5.0);
    rkv_axis a = none;
    a.low = step * floor(low / step + 1e-9);
    a.high = step * ceil(high / step - 1e-9);
    return a;
}

double rkv_axis_at(const rkv_axis *a, double v)
{
    const double share = !a->log         ? (v - a->low) / (a->high - a->low)
                         : v <= a->low   ? 0.0
                                         : log(v / a->low) / log(a->high / a->low);
    return a->from + (a->to - a->from) * fmin(fmax(share, 0.0), 1.0);
}

/* Pixels between ticks at least: labels stand side by side, or above each other. */
static double tick_room(const rkv_axis *a)
{
    return a->from > a->to ? 32.0 : 60.0;
}

/* Powers of ten, every other when they are many. */
static int log_ticks(const rkv_axis *a, double tick[RKV_MAX_TICK])
{
    const double decades = round(log10(a->high / a->low));
    const double step = fmax(1.0, ceil(decades * 0.75 * tick_room(a) / fabs(a->to - a->from)));
    int n = 0;
    for (double d = 0.0; d <= decades && n < RKV_MAX_TICK; d += fmax(step, ceil(decades / 12.0)))
        tick[n++] = a->low * pow(10.0, d);
    return n;
}

int rkv_axis_ticks(const rkv_axis *a, double tick[RKV_MAX_TICK])
{
    if (a->log)
        return log_ticks(a, tick);
    const double step =
        round_step((a->high - a->low) * fmax(tick_room(a) / fabs(a->to - a->from), 0.125));
    const double first = ceil(a->low / step - 1e-9);
    int n = 0;
    while (n < RKV_MAX_TICK && (first + n) * step <= a->high + 1e-9 * step) {
        tick[n] = (first + n) * step;
        n++;
    }
    return n;
}

/* ---- text ---- */

void rkv_html_text(rkv_text *t, const char *s)
{
    static const struct {
        char c;
        const char *as;
    } escapes[] = {{'<', "&lt;"}, {'>', "&gt;"}, {'&', "&amp;"}, {'"', "&quot;"}, {'\'', "&#39;"}};
    const size_t n = strlen(s);
    for (size_t i = 0; i < n;) {
        const unsigned char *at = (const unsigned char *)s + i;
        size_t len = rkv_utf8_length(at, n - i);
        const char *as = NULL;
        for (size_t k = 0; k < sizeof escapes / sizeof *escapes; k++)
            if (s[i] == escapes[k].c)
                as = escapes[k].as;
        if (len == 0 || *at < ' ' || *at == 0x7f || (len == 3 && !memcmp(at, "\xef\xbf", 2) &&
                                                     at[2] >= 0xbe))
            as = "\xef\xbf\xbd";                /* XML has no such characters */
        len = len ? len : 1;
        rkv_text_add(t, as ? as : s + i, as ? strlen(as) : len);
        i += len;
    }
}

void rkv_html_number(rkv_text *t, double v)
{
    char s[40];
    if (isnan(v)) {
        rkv_text_printf(t, "&#8211;");
        return;
    }
    snprintf(s, sizeof s, "%.3g", v);
    rkv_text_number(t, strtod(s, NULL));
}

void rkv_html_fixed(rkv_text *t, double v, int decimals, int sign)
{
    static const int powers[] = {1, 10, 100, 1000, 10000, 100000, 1000000};
    const int64_t scale = powers[decimals];
    if (!(fabs(v) <= 1e12)) {
        rkv_html_number(t, v);
        return;
    }
    const int64_t whole = llround(fabs(v) * (double)scale);
    if (whole && v < 0.0)
        rkv_text_printf(t, "&#8722;");
    else if (whole && sign)
        rkv_text_printf(t, "+");
    rkv_text_printf(t, "%lld", (long long)(whole / scale));
    if (decimals)
        rkv_text_printf(t, ".%0*lld", decimals, (long long)(whole % scale));
}

void rkv_html_bytes(rkv_text *t, double v)
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int i = 0;
    while (v >= 1023.5 && i < 4) {
        v /= 1024.0;
        i++;
    }
    rkv_html_number(t, v >= 100.0 ? round(v) : v);
    if (!isnan(v))
        rkv_text_printf(t, " %s", unit[i]);
}

/* ---- shapes ---- */

static void attribute(rkv_text *t, const char *name, double v)
{
    rkv_text_printf(t, " %s=\"", name);
    rkv_text_number(t, round(v * 10.0) / 10.0);
    rkv_text_printf(t, "\"");
}

void rkv_svg_open(rkv_text *t, double w, double h, const char *title)
{
    rkv_text_printf(t, "<svg role=\"img\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\">"
                    "<title>", (int)ceil(w), (int)ceil(h), (int)ceil(w), (int)ceil(h));
    rkv_html_text(t, title);
    rkv_text_printf(t, "</title>\n");
}

void rkv_svg_line(rkv_text *t, const char *class, double x1, double y1, double x2, double y2)
{
    rkv_text_printf(t, "<line class=\"%s\"", class);
    attribute(t, "x1", x1);
    attribute(t, "y1", y1);
    attribute(t, "x2", x2);
    attribute(t, "y2", y2);
    rkv_text_printf(t, "/>\n");
}

void rkv_svg_rect(rkv_text *t, const char *class, double x, double y, double w, double h,
                  double opacity)
{
    rkv_text_printf(t, "<rect class=\"%s\"", class);
    attribute(t, "x", x);
    attribute(t, "y", y);
    attribute(t, "width", w);
    attribute(t, "height", h);
    rkv_text_printf(t, " fill-opacity=\"");
    rkv_text_number(t, round(opacity * 100.0) / 100.0);
    rkv_text_printf(t, "\">");
}

void rkv_svg_end_rect(rkv_text *t)
{
    rkv_text_printf(t, "</rect>\n");
}

void rkv_svg_dot(rkv_text *t, const char *class, double x, double y, double r)
{
    rkv_text_printf(t, "<circle class=\"%s\"", class);
    attribute(t, "cx", x);
    attribute(t, "cy", y);
    attribute(t, "r", r);
    rkv_text_printf(t, "/>\n");
}

/* Corners in units of the radius. */
static const char *const mark_path[] = {
    NULL, "-9 -9h18v18h-18z", "0 -12L11 8h-22z", "0 -12l11 12l-11 12l-11 -12z",
    "0 12L11 -8h-22z", "-4 -11h8v7h7v8h-7v7h-8v-7h-7v-8h7z"};
enum { N_MARK = sizeof mark_path / sizeof *mark_path };

void rkv_svg_mark(rkv_text *t, const char *class, int kind, double x, double y, double r)
{
    const char *path = mark_path[kind % N_MARK];
    if (!path) {
        rkv_svg_dot(t, class, x, y, r);
        return;
    }
    rkv_text_printf(t, "<path class=\"%s\" transform=\"translate(", class);
    rkv_text_number(t, round(x * 10.0) / 10.0);
    rkv_text_add(t, " ", 1);
    rkv_text_number(t, round(y * 10.0) / 10.0);
    rkv_text_printf(t, ") scale(");
    rkv_text_number(t, round(r * 10.0) / 100.0);
    rkv_text_printf(t, ")\" d=\"M%s\"/>\n", path);
}

void rkv_svg_begin_group(rkv_text *t)
{
    rkv_text_printf(t, "<g><title>");
}

void rkv_svg_end_title(rkv_text *t)
{
    rkv_text_printf(t, "</title>\n");
}

void rkv_svg_end_group(rkv_text *t)
{
    rkv_text_printf(t, "</g>\n");
}

void rkv_svg_close(rkv_text *t)
{
    rkv_text_printf(t, "</svg>\n");
}

void rkv_svg_text(rkv_text *t, const char *class, double x, double y)
{
    rkv_text_printf(t, "<text class=\"%s\"", class);
    attribute(t, "x", x);
    attribute(t, "y", y);
    rkv_text_printf(t, ">");
}

void rkv_svg_end_text(rkv_text *t)
{
    rkv_text_printf(t, "</text>\n");
}

void rkv_svg_text_at(rkv_text *t, const char *class, double x, double y, const char *text)
{
    rkv_svg_text(t, class, x, y);
    rkv_html_text(t, text);
    rkv_svg_end_text(t);
}

void rkv_svg_number_at(rkv_text *t, const char *class, double x, double y, double v, int decimals)
{
    rkv_svg_text(t, class, x, y);
    rkv_html_fixed(t, v, decimals, 0);
    rkv_svg_end_text(t);
}

void rkv_svg_axis(rkv_text *t, const rkv_axis *a, double y0, double y1)
{
    double tick[RKV_MAX_TICK];
    const int n = rkv_axis_ticks(a, tick);
    for (int i = 0; i < n; i++) {
        const double x = rkv_axis_at(a, tick[i]);
        rkv_svg_line(t, "grid", x, y0, x, y1);
        rkv_svg_text(t, "mid dim", x, y1 + 14.0);
        rkv_html_number(t, tick[i]);
        rkv_svg_end_text(t);
    }
}

void rkv_svg_axis_up(rkv_text *t, const rkv_axis *a, double x0, double x1)
{
    double tick[RKV_MAX_TICK];
    const int n = rkv_axis_ticks(a, tick);
    for (int i = 0; i < n; i++) {
        const double y = rkv_axis_at(a, tick[i]);
        rkv_svg_line(t, "grid", x0, y, x1, y);
        rkv_svg_text(t, "end dim", x0 - 6.0, y + 4.0);
        rkv_html_number(t, tick[i]);
        rkv_svg_end_text(t);
    }
}

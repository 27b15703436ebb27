#include "config.h"
#include "report/page.h"

#include <math.h>
#include <string.h>

#include "rkv.h"

static const char head[] =
    "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
    "<meta name=\"color-scheme\" content=\"light dark\"/>\n<style>\n";

/* Hues a to g keep 4.5 to 1 from the paper of both schemes. */
static const char colours[] =
    ":root { --ink: #1b222c; --dim: #566070; --paper: #ffffff; --grid: #dde2e8;\n"
    "  --a: #1f5fa8; --b: #bf5412; --c: #2a7a4b; --d: #7a3b9e; --e: #0b7285; --f: #b3245e;\n"
    "  --g: #6a6400; }\n"
    "@media screen and (prefers-color-scheme: dark) {\n"
    "  :root { --ink: #e6eaf0; --dim: #a3adba; --paper: #14181e; --grid: #323a45;\n"
    "    --a: #6fb0f2; --b: #f2a066; --c: #74cb98; --d: #c79bf0; --e: #5cc9d6; --f: #f08ab8;\n"
    "    --g: #cfcb5c; } }\n"
    ".a { fill: var(--a); } .b { fill: var(--b); } .c { fill: var(--c); } .d { fill: var(--d); }\n"
    ".e { fill: var(--e); } .f { fill: var(--f); } .g { fill: var(--g); }\n"
    ".sa { stroke: var(--a); stroke-width: 2; } .sb { stroke: var(--b); stroke-width: 2; }\n"
    ".sc { stroke: var(--c); stroke-width: 2; } .sd { stroke: var(--d); stroke-width: 2; }\n"
    ".se { stroke: var(--e); stroke-width: 2; } .sf { stroke: var(--f); stroke-width: 2; }\n"
    ".sg { stroke: var(--g); stroke-width: 2; } .thin { stroke-width: 1; }\n"
    ".ka { background: var(--a); } .kb { background: var(--b); } .kc { background: var(--c); }\n";

static const char layout[] =
    "body { background: var(--paper); color: var(--ink); margin: 24px auto; max-width: 1112px;\n"
    "  padding: 0 16px; font: 15px/1.5 system-ui, sans-serif; }\n"
    "h1 { font-size: 24px; overflow-wrap: anywhere; } h2 { font-size: 18px; margin-top: 36px; }\n"
    "h3 { font-size: 15px; margin: 18px 0 4px; overflow-wrap: anywhere; }\n"
    "table { border-collapse: collapse; font-size: 14px; margin-bottom: 20px; }\n"
    "th, td { border-bottom: 1px solid var(--grid); padding: 3px 14px 3px 0; text-align: right;\n"
    "  vertical-align: top; }\n"
    "th:first-child, td:first-child { text-align: left; } th { font-weight: 600; }\n"
    ".facts td { text-align: left; overflow-wrap: anywhere; }\n"
    ".facts td:first-child { color: var(--dim); white-space: nowrap; }\n"
    ".wide { overflow-x: auto; } .dim { color: var(--dim); }\n"
    ".wide th:first-child, .wide td:first-child { position: sticky; left: 0;\n"
    "  background: var(--paper); }\n"
    ".wide td { white-space: nowrap; }\n"
    ".fine { display: block; font-size: 12px; white-space: nowrap; }\n"
    ".good { color: var(--c); font-weight: 600; } .bad { color: var(--b); font-weight: 600; }\n"
    ".panels { display: flex; flex-wrap: wrap; gap: 12px 20px; }\n"
    ".panels > div { overflow-x: auto; max-width: 100%; }\n"
    ".legend { margin: 6px 0; } .legend > span { display: inline-block; margin-right: 18px; }\n"
    ".legend svg { display: inline-block; vertical-align: middle; }\n"
    ".key { display: inline-block; width: 11px; height: 11px; border-radius: 6px; }\n";

static const char drawing[] =
    "svg { display: block; max-width: 100%; height: auto; }\n"
    ".curves svg { min-width: 420px; }\n"
    "svg text { font: 12px system-ui, sans-serif; fill: var(--ink); }\n"
    "svg text.dim { fill: var(--dim); } svg text.small { font-size: 11px; }\n"
    "svg text.head { font-size: 13px; font-weight: 600; }\n"
    "svg text.end { text-anchor: end; } svg text.mid { text-anchor: middle; }\n"
    ".grid { stroke: var(--grid); } .whisker { stroke: var(--ink); }\n"
    ".cap { stroke: var(--dim); stroke-dasharray: 4 3; }\n"
    ".band { fill: var(--grid); } .hollow { fill: var(--paper); }\n"
    ".out { fill: none; stroke: var(--dim); stroke-dasharray: 3 3; }\n"
    ".cell { stroke: var(--grid); }\n"
    ".dash1 { stroke-dasharray: 7 3; } .dash2 { stroke-dasharray: 2 3; }\n"
    ".dash3 { stroke-dasharray: 9 3 2 3; }\n"
    "@media print { body { max-width: none; margin: 0; font-size: 12px; }\n"
    "  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }\n"
    "  .wide, .panels > div { overflow: visible; } .curves > div { width: 48%; }\n"
    "  .curves svg { min-width: 0; } .legend { break-after: avoid; }\n"
    "  table, th, td { font-size: 9px; }\n"
    "  .fine { font-size: 8px; } td, th { padding-right: 7px; }\n"
    "  h2, h3 { break-after: avoid; } svg, tr { break-inside: avoid; } }\n"
    "</style>\n<title>";

void rkv_page_begin(rkv_text *t, const char *what, const char *name)
{
    rkv_text_add(t, head, sizeof head - 1);
    rkv_text_add(t, colours, sizeof colours - 1);
    rkv_text_add(t, layout, sizeof layout - 1);
    rkv_text_add(t, drawing, sizeof drawing - 1);
    rkv_text_printf(t, "%s", what);
    rkv_html_text(t, name);
    rkv_text_printf(t, "</title>\n</head>\n<body>\n<h1>%s", what);
    rkv_html_text(t, name);
    rkv_text_printf(t, "</h1>\n");
}

void rkv_page_end(rkv_text *t)
{
    rkv_text_printf(t, "<p class=\"dim\">ripplekv %s</p>\n</body>\n</html>\n", rkv_version());
}

void rkv_page_fact(rkv_text *t, const char *name, const char *value)
{
    rkv_page_begin_fact(t, name);
    rkv_html_text(t, value ? value : "not recorded");
    rkv_page_end_fact(t);
}

void rkv_page_begin_fact(rkv_text *t, const char *name)
{
    rkv_text_printf(t, "<tr><td>%s</td><td>", name);
}

void rkv_page_end_fact(rkv_text *t)
{
    rkv_text_printf(t, "</td></tr>\n");
}

void rkv_page_cell(rkv_text *t, double v)
{
    rkv_text_printf(t, "<td>");
    rkv_html_number(t, v);
    rkv_text_printf(t, "</td>");
}

void rkv_page_range_cell(rkv_text *t, double low, double high)
{
    rkv_text_printf(t, "<td>");
    rkv_html_number(t, low);
    if (!isnan(low)) {
        rkv_text_printf(t, " to ");
        rkv_html_number(t, high);
    }
    rkv_text_printf(t, "</td>");
}

/* A page of HTML that needs nothing else, no script and no network: its head with the style of all
 * reports, its end, and tables. Well-formed as XML too; everything that is text of data is escaped.
 * Light, dark and printed; what is wider than the window scrolls by itself (class "wide"). */
#ifndef RKV_PAGE_H
#define RKV_PAGE_H

#include "report/svg.h"

/* Title and heading: the words of what, as they are, and the escaped name. */
void rkv_page_begin(rkv_text *t, const char *what, const char *name);
void rkv_page_end(rkv_text *t);

/* A row of a table of class "facts"; value NULL: not recorded. name: as it is. */
void rkv_page_fact(rkv_text *t, const char *name, const char *value);
/* The same around a value that is written between the two. */
void rkv_page_begin_fact(rkv_text *t, const char *name);
void rkv_page_end_fact(rkv_text *t);

/* <td> with a number to three digits; with a range of two, NaN: a dash. */
void rkv_page_cell(rkv_text *t, double v);
void rkv_page_range_cell(rkv_text *t, double low, double high);

#endif

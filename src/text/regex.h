/* Regular expressions by PCRE2: UTF-8 with Unicode properties, and limits on time, depth and
 * memory. Without PCRE2 creating one fails. */
#ifndef RKV_REGEX_H
#define RKV_REGEX_H

#include <stddef.h>

#include "base/err.h"

typedef struct rkv_regex rkv_regex;
typedef struct rkv_regex_work rkv_regex_work;   /* what one thread needs to match */

/* RKV_E_UNSUPPORTED without PCRE2, RKV_E_MEM, RKV_E_INTERNAL (a pattern PCRE2 refuses). Errors
 * begin with what. */
rkv_status rkv_regex_create(rkv_regex **out, const char *pattern, const char *what, rkv_error *e);
void rkv_regex_free(rkv_regex *r);

rkv_status rkv_regex_work_create(rkv_regex_work **out, rkv_error *e);
void rkv_regex_work_free(rkv_regex_work *w);

/* The first match of at least one byte at or after text + from, 0 <= from <= n, as [*begin, *end);
 * *begin = *end = n when there is none. n bytes of well-formed UTF-8.
 * RKV_E_MEM; RKV_E_ARG: a limit. */
rkv_status rkv_regex_find(const rkv_regex *r, rkv_regex_work *w, const char *text, size_t n,
                          size_t from, size_t *begin, size_t *end, rkv_error *e);

#endif

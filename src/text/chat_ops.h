/* Operations on values with Python's semantics, iteration, and calls of library functions. */
#ifndef RKV_CHAT_OPS_H
#define RKV_CHAT_OPS_H

#include "text/chat_value.h"

typedef enum jop {
    J_ADD, J_SUB, J_MUL, J_DIV, J_FLOORDIV, J_MOD, J_POW,
    J_EQ, J_NE, J_LT, J_LE, J_GT, J_GE, J_IN, J_NOT_IN
} jop;

/* ---- chat_ops.c, chat_arith.c ---------------------------------------------------------------- */

int rkv_j_truth(const jval *v);
int rkv_j_is_number(const jval *v);     /* bool, int, float */
/* Fails with the message of an undefined value. */
rkv_status rkv_j_undefined(jctx *c, const jval *v);
rkv_status rkv_j_equal(jctx *c, const jval *a, const jval *b, int *out);
/* op: J_EQ to J_NOT_IN. */
rkv_status rkv_j_compare(jctx *c, jop op, const jval *a, const jval *b, int *out);
/* op: J_ADD to J_POW. out may be a. */
rkv_status rkv_j_binary(jctx *c, jop op, const jval *a, const jval *b, jval *out);
rkv_status rkv_j_negate(jctx *c, const jval *v, int negative, jval *out);
/* len(); has_length tells whether there is one. */
int rkv_j_has_length(const jval *v);
rkv_status rkv_j_len(jctx *c, const jval *v, size_t *n);
/* An integer argument (bool or int). */
rkv_status rkv_j_want_int(jctx *c, const jval *v, int64_t *i);
/* An integer argument that stands for a truth value; absent: 0. */
rkv_status rkv_j_want_flag(jctx *c, const jval *v, int *flag);
rkv_status rkv_j_want_string(jctx *c, const jval *v);
uint64_t rkv_j_range_length(const jrange *r);
rkv_status rkv_j_repeat(jctx *c, const jval *v, int64_t times, jval *out);

/* ---- chat_access.c --------------------------------------------------------------------------- */

/* obj.name, obj[key]: an undefined value when there is none. */
rkv_status rkv_j_attribute(jctx *c, const jval *obj, const char *s, size_t n, jval *out);
rkv_status rkv_j_item(jctx *c, const jval *obj, const jval *key, jval *out);
/* The attribute alone, without obj[name]; J_ABSENT when there is none. */
rkv_status rkv_j_own_attribute(jctx *c, const jval *obj, const char *s, size_t n, jval *out);
/* obj[start:stop:step]; J_NONE or J_ABSENT for a bound that is not given. */
rkv_status rkv_j_slice(jctx *c, const jval *obj, const jval bound[3], jval *out);
/* Python's slice.indices() for a length. */
rkv_status rkv_j_slice_indices(jctx *c, const jval bound[3], int64_t length, jrange *out);
jval rkv_j_missing(jmissing how, const jval *of, const char *s, size_t n);
/* The value under a path as the attribute arguments of filters have it ("a.b.0"). out may be
 * obj. */
rkv_status rkv_j_path(jctx *c, const jval *obj, const jval *path, const jval *dflt, jval *out);

/* ---- iteration (chat_iter.c) ----------------------------------------------------------------- */

typedef rkv_status jnext(jctx *c, jiter *it, jval *out, int *more);
struct jiter {
    jnext *next;
    jval over;          /* what is iterated */
    size_t at;
    int64_t value;      /* of a range */
    jiter *from;        /* source of a lazy filter, with its state: */
    jargs args;
    const jdef *def;
    int attribute, negate;
    jval extra;
};

/* Whether iter() would accept v. */
int rkv_j_is_iterable(const jval *v);
rkv_status rkv_j_iterate(jctx *c, const jval *v, jiter **out);
/* *more = 0 at the end. */
rkv_status rkv_j_next(jctx *c, jiter *it, jval *out, int *more);
/* A fresh list of all items. out may be v. */
rkv_status rkv_j_to_list(jctx *c, const jval *v, jval *out);
/* An iterator value over the source v with an own step function. out may be v. */
rkv_status rkv_j_lazy(jctx *c, const jval *v, jnext *next, jval *out);

/* Sorts in place by keys[n], stable. */
rkv_status rkv_j_sort(jctx *c, jval *v, jval *keys, size_t n, int reverse);

/* ---- calls (chat_call.c) --------------------------------------------------------------------- */

/* Calls a library function; what: "filter", "test", ... for messages. */
rkv_status rkv_j_call_def(jctx *c, const jdef *def, const char *what, const jval *self,
                          const jargs *a, jval *out);
/* Calls whatever can be called. */
rkv_status rkv_j_call(jctx *c, const jval *callee, const jargs *a, jval *out);
/* dict.update() */
rkv_status rkv_j_update(jctx *c, jdict *d, const jargs *a);
rkv_status rkv_j_call_macro(jctx *c, const struct jmacro *m, const jargs *a, jval *out);

const jdef *rkv_j_find_def(const jdef *table, const char *s, size_t n);
const jdef *rkv_j_filter(const char *s, size_t n);
const jdef *rkv_j_test(const char *s, size_t n);
const jdef *rkv_j_global(const char *s, size_t n);
/* Method of a kind; NULL: none. */
const jdef *rkv_j_method(const jval *v, const char *s, size_t n);

/* Tables, closed by a row without a name. */
extern const jdef rkv_j_text_filters[], rkv_j_seq_filters[];
extern const jdef rkv_j_string_methods[], rkv_j_find_methods[];

/* ---- strings (chat_string.c, chat_case.c, chat_format.c) ------------------------------------- */

/* Changes of case with Unicode's full mappings. out may be s. */
typedef enum jcase { J_UPPER, J_LOWER, J_TITLE, J_CAPITALIZE, J_SWAPCASE, J_FOLD } jcase;
rkv_status rkv_j_put_case(jctx *c, const char *s, size_t n, jcase how);
rkv_status rkv_j_case(jctx *c, const jval *s, jcase how, jval *out);
int rkv_j_is_upper(uint32_t cp);
int rkv_j_is_lower(uint32_t cp);
int rkv_j_is_cased(uint32_t cp);
/* Methods that are filters or tests as well. */
jfn rkv_j_str_strip, rkv_j_str_center, rkv_j_str_upper, rkv_j_str_lower, rkv_j_str_capitalize,
    rkv_j_str_isupper, rkv_j_str_islower;
/* s stripped of whitespace (chars NULL) or of the code points of chars; sides: 1 left, 2 right. */
jval rkv_j_strip(const jval *s, const jval *chars, int sides);
/* Offset of needle in s at or after from; s->n + 1 when it is not there. */
size_t rkv_j_search(const jval *s, const jval *needle, size_t from);
/* The last place at which needle ends at or before to. */
rkv_status rkv_j_search_back(jctx *c, const jval *s, const jval *needle, size_t to, size_t *out);
/* str.splitlines() */
rkv_status rkv_j_split_lines(jctx *c, const jval *s, int keep, jval *out);
rkv_status rkv_j_replace(jctx *c, const jval *s, const jval *old, const jval *new_, int64_t count,
                         jval *out);
/* markupsafe.escape; out may be v. */
rkv_status rkv_j_escape(jctx *c, const jval *v, jval *out);
/* text % values, and text.format(...). */
rkv_status rkv_j_percent(jctx *c, const jval *text, const jval *values, jval *out);
rkv_status rkv_j_format(jctx *c, const jval *text, const jargs *a, jval *out);
/* round(v, digits) of a float. */
double rkv_j_round(double v, int digits);

#endif

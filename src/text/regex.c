#include "config.h"
#include "text/regex.h"

#include "base/mem.h"

#ifdef HAVE_PCRE2
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

struct rkv_regex {
    pcre2_general_context *memory;
    pcre2_code *code;
};

struct rkv_regex_work {
    pcre2_general_context *memory;
    pcre2_match_context *limits;
    pcre2_match_data *match;
};

/* Every expression of ours takes a few steps per byte, backtracks into one repeat at a time, and so
 * needs little memory; the limits are for what we did not think of. */
enum { STEPS_PER_BYTE = 64, LEAST_STEPS = 1 << 20, MAX_DEPTH = 1 << 16, MAX_HEAP_KIB = 1 << 16 };

static void *allocate(size_t n, void *ctx)
{
    (void)ctx;
    return rkv_mem_alloc(n);
}

static void release(void *p, void *ctx)
{
    (void)ctx;
    rkv_mem_free(p);
}

rkv_status rkv_regex_create(rkv_regex **out, const char *pattern, const char *what, rkv_error *e)
{
    rkv_regex *r = rkv_mem_calloc(1, sizeof *r);
    if (r)
        r->memory = pcre2_general_context_create(allocate, release, NULL);
    pcre2_compile_context *c = r && r->memory ? pcre2_compile_context_create(r->memory) : NULL;
    int error = PCRE2_ERROR_NOMEMORY;
    PCRE2_SIZE at = 0;
    if (c)
        r->code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP,
                                &error, &at, c);
    pcre2_compile_context_free(c);
    if (r && r->code) {
        *out = r;
        return RKV_OK;
    }
    rkv_regex_free(r);
    /* Compiling reports its own code (21) for a failed allocation. */
    if (error == PCRE2_ERROR_NOMEMORY || error == PCRE2_ERROR_HEAP_FAILED)
        return rkv_fail(e, RKV_E_MEM, "%s: out of memory for a regular expression", what);
    return rkv_fail(e, RKV_E_INTERNAL, "%s: PCRE2 refuses our expression at byte %zu (error %d)",
                    what, (size_t)at, error);
}

void rkv_regex_free(rkv_regex *r)
{
    if (!r)
        return;
    pcre2_code_free(r->code);
    pcre2_general_context_free(r->memory);
    rkv_mem_free(r);
}

rkv_status rkv_regex_work_create(rkv_regex_work **out, rkv_error *e)
{
    rkv_regex_work *w = rkv_mem_calloc(1, sizeof *w);
    if (w && (w->memory = pcre2_general_context_create(allocate, release, NULL)) &&
        (w->limits = pcre2_match_context_create(w->memory)) &&
        (w->match = pcre2_match_data_create(1, w->memory))) {
        pcre2_set_depth_limit(w->limits, MAX_DEPTH);
        pcre2_set_heap_limit(w->limits, MAX_HEAP_KIB);
        *out = w;
        return RKV_OK;
    }
    rkv_regex_work_free(w);
    return rkv_fail(e, RKV_E_MEM, "tokenizer: out of memory");
}

void rkv_regex_work_free(rkv_regex_work *w)
{
    if (!w)
        return;
    pcre2_match_data_free(w->match);
    pcre2_match_context_free(w->limits);
    pcre2_general_context_free(w->memory);
    rkv_mem_free(w);
}

rkv_status rkv_regex_find(const rkv_regex *r, rkv_regex_work *w, const char *text, size_t n,
                          size_t from, size_t *begin, size_t *end, rkv_error *e)
{
    const size_t steps = n < (UINT32_MAX - LEAST_STEPS) / STEPS_PER_BYTE
                             ? LEAST_STEPS + STEPS_PER_BYTE * n : UINT32_MAX;
    pcre2_set_match_limit(w->limits, (uint32_t)steps);
    const int rc = pcre2_match(r->code, (PCRE2_SPTR)text, n, from,
                               PCRE2_NOTEMPTY | PCRE2_NO_UTF_CHECK, w->match, w->limits);
    if (rc == PCRE2_ERROR_NOMATCH) {
        *begin = *end = n;
        return RKV_OK;
    }
    if (rc == PCRE2_ERROR_NOMEMORY)
        return rkv_fail(e, RKV_E_MEM, "tokenizer: out of memory for a match");
    if (rc < 0)
        return rkv_fail(e, RKV_E_ARG,
                        "text: PCRE2 gave up at byte %zu of a piece of %zu (error %d)", from, n,
                        rc);
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(w->match);
    *begin = at[0];
    *end = at[1];
    return RKV_OK;
}

#else

rkv_status rkv_regex_create(rkv_regex **out, const char *pattern, const char *what, rkv_error *e)
{
    (void)out;
    (void)pattern;
    return rkv_fail(e, RKV_E_UNSUPPORTED,
                    "%s: needs regular expressions, which this build left out: "
                    "install libpcre2-dev and configure --with-pcre2",
                    what);
}

void rkv_regex_free(rkv_regex *r)
{
    (void)r;
}

/* Not reached: there is no expression to match. */
rkv_status rkv_regex_work_create(rkv_regex_work **out, rkv_error *e)
{
    (void)out;
    return rkv_fail(e, RKV_E_UNSUPPORTED, "built without PCRE2");
}

void rkv_regex_work_free(rkv_regex_work *w)
{
    (void)w;
}

rkv_status rkv_regex_find(const rkv_regex *r, rkv_regex_work *w, const char *text, size_t n,
                          size_t from, size_t *begin, size_t *end, rkv_error *e)
{
    (void)r, (void)w, (void)text, (void)n, (void)from, (void)begin, (void)end;
    return rkv_fail(e, RKV_E_UNSUPPORTED, "built without PCRE2");
}

#endif

#include "config.h"
#include "text/pretok.h"

#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "text/regex.h"

/* One of scan and regex is set. */
typedef struct pass {
    rkv_pretok_scan *scan;
    rkv_regex *regex;
} pass;

struct rkv_pretok {
    int n_pass;
    pass pass[RKV_PRETOK_MAX_PASS];
};

/* The piece [begin, end) that pass i cuts, how far it has come, and the match it found ahead. */
typedef struct level {
    size_t begin, pos, end, match, match_end;
} level;

struct rkv_pretok_run {
    const rkv_pretok *p;
    const char *text;
    char *copy;                 /* the text made well-formed, when PCRE2 reads it and it was not */
    int depth;                  /* levels above hold nothing yet */
    level level[RKV_PRETOK_MAX_PASS];
    rkv_regex_work *work;       /* NULL when no pass needs PCRE2 */
};

rkv_status rkv_pretok_create(rkv_pretok **out, const rkv_pretok_desc *d, int regex_only,
                             const char *what, rkv_error *e)
{
    rkv_pretok *p = rkv_mem_calloc(1, sizeof *p);
    if (!p)
        return rkv_fail(e, RKV_E_MEM, "%s: out of memory", what);
    rkv_status s = RKV_OK;
    for (int i = 0; i < RKV_PRETOK_MAX_PASS && d->pass[i] && !s; i++) {
        p->pass[i].scan = regex_only ? NULL : rkv_pretok_scanner(d->pass[i]);
        if (!p->pass[i].scan)
            s = rkv_regex_create(&p->pass[i].regex, d->pass[i], what, e);
        p->n_pass = i + 1;
    }
    if (s) {
        rkv_pretok_free(p);
        return s;
    }
    *out = p;
    return RKV_OK;
}

void rkv_pretok_free(rkv_pretok *p)
{
    if (!p)
        return;
    for (int i = 0; i < p->n_pass; i++)
        rkv_regex_free(p->pass[i].regex);
    rkv_mem_free(p);
}

rkv_status rkv_pretok_run_create(rkv_pretok_run **out, const rkv_pretok *p, rkv_error *e)
{
    rkv_pretok_run *r = rkv_mem_calloc(1, sizeof *r);
    if (!r)
        return rkv_fail(e, RKV_E_MEM, "tokenizer: out of memory");
    r->p = p;
    int needs_regex = 0;
    for (int i = 0; i < p->n_pass; i++)
        needs_regex |= p->pass[i].regex != NULL;
    const rkv_status s = needs_regex ? rkv_regex_work_create(&r->work, e) : RKV_OK;
    if (s) {
        rkv_pretok_run_free(r);
        return s;
    }
    *out = r;
    return RKV_OK;
}

void rkv_pretok_run_free(rkv_pretok_run *r)
{
    if (!r)
        return;
    rkv_regex_work_free(r->work);
    rkv_mem_free(r->copy);
    rkv_mem_free(r);
}

/* First byte from i on that belongs to no well-formed character; n when there is none. */
static size_t stray_byte(const char *text, size_t i, size_t n)
{
    while (i < n) {
        const size_t len = rkv_utf8_length((const unsigned char *)text + i, n - i);
        if (!len)
            break;
        i += len;
    }
    return i;
}

/* PCRE2 reads well-formed text only: a control character, which no expression names, takes the
 * place of each stray byte. Lengths stay the same. */
static rkv_status make_well_formed(rkv_pretok_run *r, const char *text, size_t n, rkv_error *e)
{
    rkv_mem_free(r->copy);
    r->copy = NULL;
    size_t i = stray_byte(text, 0, n);
    if (i == n)
        return RKV_OK;
    r->copy = rkv_mem_alloc(n);
    if (!r->copy)
        return rkv_fail(e, RKV_E_MEM, "tokenizer: out of memory for %zu bytes", n);
    memcpy(r->copy, text, n);
    for (; i < n; i = stray_byte(text, i + 1, n))
        r->copy[i] = 1;
    r->text = r->copy;
    return RKV_OK;
}

rkv_status rkv_pretok_start(rkv_pretok_run *r, const char *text, size_t n, rkv_error *e)
{
    r->text = text;
    r->depth = 0;
    r->level[0] = (level){0, 0, n, 0, 0};
    return r->work ? make_well_formed(r, text, n, e) : RKV_OK;
}

/* Moves v->pos over the next piece that pass p cuts off. */
static rkv_status cut(const rkv_pretok_run *r, const pass *p, level *v, rkv_error *e)
{
    if (p->scan) {
        v->pos = p->scan(r->text, v->pos, v->end);
        return RKV_OK;
    }
    if (v->pos < v->match) {                    /* the gap is behind us, the match is next */
        v->pos = v->match;
        return RKV_OK;
    }
    if (v->pos == v->match && v->match < v->match_end) {
        v->pos = v->match_end;
        return RKV_OK;
    }
    size_t begin, end;
    RKV_TRY(rkv_regex_find(p->regex, r->work, r->text + v->begin, v->end - v->begin,
                           v->pos - v->begin, &begin, &end, e));
    v->match = v->begin + begin;
    v->match_end = v->begin + end;
    v->pos = v->match > v->pos ? v->match : v->match_end;
    return RKV_OK;
}

rkv_status rkv_pretok_next(rkv_pretok_run *r, size_t *begin, size_t *end, rkv_error *e)
{
    for (;;) {
        level *v = &r->level[r->depth];
        if (v->pos == v->end) {
            if (r->depth == 0) {
                *begin = *end = v->end;
                return RKV_OK;
            }
            r->depth--;
            continue;
        }
        const size_t from = v->pos;
        RKV_TRY(cut(r, &r->p->pass[r->depth], v, e));
        if (r->depth == r->p->n_pass - 1) {
            *begin = from;
            *end = v->pos;
            return RKV_OK;
        }
        r->level[++r->depth] = (level){from, from, v->pos, from, from};
    }
}

/* Edit similarity of code: the ratio of Python's difflib.SequenceMatcher (Ratcliff & Obershelp
 * 1988), in whole percent as fuzzywuzzy rounds it. Its heuristic is part of the score: characters
 * that make up over 1 % of a reference of 200 or more do not begin a match. */
#include "config.h"
#include "eval/metrics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

typedef struct place {
    uint32_t c;
    int j;
} place;

typedef struct block {
    int alo, ahi, blo, bhi;
} block;

typedef struct matcher {
    uint32_t *a, *b;            /* characters */
    int na, nb;
    place *place;               /* [nb] of b, by character, then position; popular ones left out */
    int n_place;
    int *run, *next;            /* [nb + 1] length of the match that ends at j - 1 */
    block *todo;                /* [na + nb + 1] */
} matcher;

static int by_character(const void *a, const void *b)
{
    const place *x = a, *y = b;
    return x->c != y->c ? (x->c > y->c) - (x->c < y->c) : (x->j > y->j) - (x->j < y->j);
}

static void index_places(matcher *m)
{
    for (int j = 0; j < m->nb; j++)
        m->place[j] = (place){m->b[j], j};
    qsort(m->place, (size_t)m->nb, sizeof *m->place, by_character);
    for (int i = 0, k; i < m->nb; i = k) {
        for (k = i + 1; k < m->nb && m->place[k].c == m->place[i].c; k++)
            ;
        if (m->nb >= 200 && k - i > m->nb / 100 + 1)
            continue;
        memmove(m->place + m->n_place, m->place + i, (size_t)(k - i) * sizeof *m->place);
        m->n_place += k - i;
    }
}

/* The first place of character c. */
static int first_place(const matcher *m, uint32_t c)
{
    int low = 0, high = m->n_place;
    while (low < high) {
        const int mid = low + (high - low) / 2;
        if (m->place[mid].c < c)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* The longest match in a block, the earliest in a, then in b; grown by popular characters. */
static int longest_match(matcher *m, const block *in, int *at_a, int *at_b)
{
    int size = 0, i0 = in->alo, j0 = in->blo;
    memset(m->run, 0, ((size_t)m->nb + 1) * sizeof *m->run);
    for (int i = in->alo; i < in->ahi; i++) {
        memset(m->next, 0, ((size_t)m->nb + 1) * sizeof *m->next);
        for (int p = first_place(m, m->a[i]); p < m->n_place && m->place[p].c == m->a[i]; p++) {
            const int j = m->place[p].j;
            if (j < in->blo || j >= in->bhi)
                continue;
            const int k = m->next[j + 1] = m->run[j] + 1;
            if (k > size)
                size = k, i0 = i - k + 1, j0 = j - k + 1;
        }
        int *swap = m->run;
        m->run = m->next;
        m->next = swap;
    }
    while (i0 > in->alo && j0 > in->blo && m->a[i0 - 1] == m->b[j0 - 1])
        i0--, j0--, size++;
    while (i0 + size < in->ahi && j0 + size < in->bhi && m->a[i0 + size] == m->b[j0 + size])
        size++;
    *at_a = i0;
    *at_b = j0;
    return size;
}

static double ratio(matcher *m)
{
    int n_todo = 1, matches = 0;
    index_places(m);
    m->todo[0] = (block){0, m->na, 0, m->nb};
    while (n_todo) {
        const block x = m->todo[--n_todo];
        int i, j;
        const int k = longest_match(m, &x, &i, &j);
        if (!k)
            continue;
        matches += k;
        if (x.alo < i && x.blo < j)
            m->todo[n_todo++] = (block){x.alo, i, x.blo, j};
        if (i + k < x.ahi && j + k < x.bhi)
            m->todo[n_todo++] = (block){i + k, x.ahi, j + k, x.bhi};
    }
    return 2.0 * matches / ((double)m->na + m->nb);
}

static int decode(uint32_t *out, const char *text, size_t n)
{
    int count = 0;
    for (const char *p = text; p < text + n; count++)
        out[count] = rkv_metric_next(&p);
    return count;
}

static int has_comment(const char *line, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (line[i] == '`' || line[i] == '#' || (line[i] == '/' && i + 1 < n && line[i + 1] == '/'))
            return 1;
    return 0;
}

/* The first line without a backtick, '#' or "//"; n 0: none. */
static const char *first_line_of_code(const char *text, size_t *n)
{
    text += strspn(text, "\n");
    for (;;) {
        *n = strcspn(text, "\n");
        if (!has_comment(text, *n))
            return text;
        if (!text[*n]) {
            *n = 0;
            return text;
        }
        text += *n + 1;
    }
}

rkv_status rkv_metric_edit(double *out, const char *prediction, const char *answer, rkv_error *e)
{
    size_t n;
    const size_t n_answer = strlen(answer);
    const char *line = first_line_of_code(prediction, &n);
    *out = n == n_answer && !memcmp(line, answer, n) ? 1.0 : 0.0;
    if (*out > 0.0 || !n || !n_answer)
        return RKV_OK;
    matcher m = {.a = rkv_mem_calloc(n, sizeof *m.a), .b = rkv_mem_calloc(n_answer, sizeof *m.b),
                 .place = rkv_mem_calloc(n_answer, sizeof *m.place),
                 .run = rkv_mem_calloc(n_answer + 1, sizeof *m.run),
                 .next = rkv_mem_calloc(n_answer + 1, sizeof *m.next),
                 .todo = rkv_mem_calloc(n + n_answer + 1, sizeof *m.todo)};
    const int memory = m.a && m.b && m.place && m.run && m.next && m.todo;
    if (memory) {
        m.na = decode(m.a, line, n);
        m.nb = decode(m.b, answer, n_answer);
        *out = rint(100.0 * ratio(&m)) / 100.0;
    }
    rkv_mem_free(m.a), rkv_mem_free(m.b);
    rkv_mem_free(m.place), rkv_mem_free(m.todo);
    rkv_mem_free(m.run), rkv_mem_free(m.next);
    return memory ? RKV_OK : rkv_fail(e, RKV_E_MEM, "edit similarity: out of memory");
}

/* Metrics over words: F1 of normalised words, and ROUGE-L. */
#include "config.h"
#include "eval/metrics.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "text/unicode.h"

typedef struct word {           /* in a text that outlives it */
    const char *text;
    size_t n;
    int at;                     /* its place among the words of its text */
} word;

static int compare(const word *a, const word *b)
{
    const size_t n = a->n < b->n ? a->n : b->n;
    const int c = n ? memcmp(a->text, b->text, n) : 0;
    return c ? c : (a->n > b->n) - (a->n < b->n);
}

static int by_text(const void *a, const void *b)
{
    return compare(a, b);
}

/* ---- F1 ---- */

static int is_punctuation(uint32_t c)
{
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
}

/* Lower case, ASCII punctuation dropped. */
static void fold(rkv_text *t, const char *text)
{
    rkv_text_add(t, "", 0);
    while (*text) {
        const uint32_t c = rkv_metric_next(&text);
        if (!is_punctuation(c))
            rkv_metric_add_lower(t, c);
    }
}

static int is_article(const char *text, size_t n)
{
    return (n == 1 && *text == 'a') || (n == 2 && !memcmp(text, "an", 2)) ||
           (n == 3 && !memcmp(text, "the", 3));
}

/* Bytes of the run of letters and numbers at text. */
static size_t run_length(const char *text, size_t n)
{
    size_t at = 0;
    while (at < n) {
        const rkv_char c = rkv_char_at(text, at, n);
        if (c.class != RKV_CLASS_LETTER && c.class != RKV_CLASS_NUMBER)
            break;
        at += c.length;
    }
    return at;
}

/* Articles that stand between characters of other classes become blanks. */
static void blank_articles(char *text, size_t n)
{
    for (size_t at = 0; at < n;) {
        const size_t len = run_length(text + at, n - at);
        if (is_article(text + at, len))
            memset(text + at, ' ', len);
        at += len ? len : rkv_char_at(text, at, n).length;
    }
}

/* Words between white space of n bytes; out may be NULL, to count them. */
static int split(word *out, const char *text, size_t n)
{
    const char *end = text + n, *start = NULL;
    int count = 0;
    for (const char *p = text; p <= end;) {
        const char *here = p;
        const int gap = p == end || rkv_metric_is_space(rkv_metric_next(&p));
        if (gap && start) {
            if (out)
                out[count] = (word){start, (size_t)(here - start), count};
            count++;
        }
        start = gap ? NULL : start ? start : here;
        if (here == end)
            break;
    }
    return count;
}

typedef struct words {
    rkv_text text;
    word *word;
    int n;
} words;

static void free_words(words *w)
{
    rkv_text_free(&w->text);
    rkv_mem_free(w->word);
}

/* The normalised words of a text, sorted. */
static rkv_status normalise(words *w, const char *text, rkv_error *e)
{
    fold(&w->text, text);
    if (!w->text.bad) {
        blank_articles(w->text.data, w->text.n);
        w->n = split(NULL, w->text.data, w->text.n);
        w->word = rkv_mem_calloc((size_t)w->n, sizeof *w->word);
    }
    if (!w->word)
        return rkv_fail(e, RKV_E_MEM, "F1: out of memory");
    split(w->word, w->text.data, w->text.n);
    qsort(w->word, (size_t)w->n, sizeof *w->word, by_text);
    return RKV_OK;
}

static double f1_of(int common, int n_prediction, int n_answer)
{
    if (!common)
        return 0.0;
    const double precision = (double)common / n_prediction, recall = (double)common / n_answer;
    return 2.0 * precision * recall / (precision + recall);
}

rkv_status rkv_metric_f1(double *out, const char *prediction, const char *answer, rkv_error *e)
{
    words p = {0}, a = {0};
    rkv_status s = normalise(&p, prediction, e);
    if (!s)
        s = normalise(&a, answer, e);
    int common = 0;
    for (int i = 0, j = 0; !s && i < p.n && j < a.n;) {
        const int c = compare(&p.word[i], &a.word[j]);
        common += !c;
        i += c <= 0;
        j += c >= 0;
    }
    if (!s)
        *out = f1_of(common, p.n, a.n);
    free_words(&p);
    free_words(&a);
    return s;
}

/* ---- ROUGE-L ---- */

typedef struct sentences {
    const char *text;
    int n_word, n_sentence;
    int *first;                 /* [n_sentence + 1] index of its first word */
    int *id;                    /* [n_word] equal words have equal ids, over both texts */
} sentences;

/* Cuts at full stops; a sentence of white space only holds one word, the empty one, as in the
 * official scorer. word and first may be NULL, to count. */
static void cut(sentences *s, word *out)
{
    s->n_word = s->n_sentence = 0;
    for (const char *p = s->text; *p;) {
        const size_t n = strcspn(p, ".");
        if (n) {
            int count = split(out ? out + s->n_word : NULL, p, n);
            if (!count && out)
                out[s->n_word] = (word){p, 0, 0};
            count += !count;
            if (s->first)
                s->first[s->n_sentence] = s->n_word;
            s->n_word += count;
            s->n_sentence++;
        }
        p += n + (p[n] == '.');
    }
    if (s->first)
        s->first[s->n_sentence] = s->n_word;
}

/* Numbers the words of both texts from 0 on. Returns how many different ones there are. */
static int number_words(sentences *a, sentences *b, word *all)
{
    const int n = a->n_word + b->n_word;
    int id = -1;
    for (int i = 0; i < n; i++)
        all[i].at = i;
    qsort(all, (size_t)n, sizeof *all, by_text);
    for (int i = 0; i < n; i++) {
        id += !i || compare(&all[i - 1], &all[i]);
        const int at = all[i].at;
        *(at < a->n_word ? &a->id[at] : &b->id[at - a->n_word]) = id;
    }
    return id + 1;
}

static int count_different(const sentences *s, uint8_t *seen, int n_id)
{
    int count = 0;
    memset(seen, 0, (size_t)n_id);
    for (int i = 0; i < s->n_word; i++) {
        count += !seen[s->id[i]];
        seen[s->id[i]] = 1;
    }
    return count;
}

/* Marks the words of the longest common subsequence of x[n] and y[m] that the official scorer
 * finds: from the end, ties go back in y. table: (n + 1) * (m + 1). */
static void mark_common(uint8_t *mark, const int *x, int n, const int *y, int m, int *table)
{
    const size_t row = (size_t)m + 1;
    memset(table, 0, row * sizeof *table);
    for (int i = 1; i <= n; i++) {
        int *t = table + (size_t)i * row;
        const int *up = t - row;
        t[0] = 0;
        for (int j = 1; j <= m; j++)
            t[j] = x[i - 1] == y[j - 1] ? up[j - 1] + 1 : up[j] > t[j - 1] ? up[j] : t[j - 1];
    }
    for (int i = n, j = m; i && j;) {
        const int *t = table + (size_t)i * row;
        if (x[i - 1] == y[j - 1]) {
            mark[x[i - 1]] = 1;
            i--, j--;
        } else if (t[j - (ptrdiff_t)row] > t[j - 1]) {
            i--;
        } else {
            j--;
        }
    }
}

static int longest(const sentences *s)
{
    int most = 0;
    for (int i = 0; i < s->n_sentence; i++)
        most = s->first[i + 1] - s->first[i] > most ? s->first[i + 1] - s->first[i] : most;
    return most;
}

/* Words in the union of the common subsequences of all pairs of sentences. */
static rkv_status count_union(int *out, const sentences *ref, const sentences *hyp, uint8_t *mark,
                              int n_id, rkv_error *e)
{
    const int64_t n = (int64_t)(longest(ref) + 1) * (longest(hyp) + 1);
    if (n > 1 << 28)
        return rkv_fail(e, RKV_E_UNSUPPORTED, "ROUGE-L: sentences of %d and %d words",
                        longest(ref), longest(hyp));
    int *table = rkv_mem_alloc((size_t)n * sizeof *table);
    if (!table)
        return rkv_fail(e, RKV_E_MEM, "ROUGE-L: out of memory");
    memset(mark, 0, (size_t)n_id);
    for (int i = 0; i < ref->n_sentence; i++)
        for (int j = 0; j < hyp->n_sentence; j++)
            mark_common(mark, ref->id + ref->first[i], ref->first[i + 1] - ref->first[i],
                        hyp->id + hyp->first[j], hyp->first[j + 1] - hyp->first[j], table);
    rkv_mem_free(table);
    *out = 0;
    for (int i = 0; i < n_id; i++)
        *out += mark[i];
    return RKV_OK;
}

static double rouge_of(int common, int n_ref, int n_hyp)
{
    const double recall = (double)common / n_ref, precision = (double)common / n_hyp;
    return 2.0 * (precision * recall / (precision + recall + 1e-8));
}

static rkv_status rouge(double *out, sentences *hyp, sentences *ref, word *all, uint8_t *mark,
                        rkv_error *e)
{
    int common = 0;
    cut(hyp, all);
    cut(ref, all + hyp->n_word);
    const int n_id = number_words(hyp, ref, all);
    RKV_TRY(count_union(&common, ref, hyp, mark, n_id, e));
    *out = rouge_of(common, count_different(ref, mark, n_id), count_different(hyp, mark, n_id));
    return RKV_OK;
}

static int make_room(sentences *s)
{
    s->first = rkv_mem_calloc((size_t)s->n_sentence + 1, sizeof *s->first);
    s->id = rkv_mem_calloc((size_t)s->n_word, sizeof *s->id);
    return s->first && s->id;
}

rkv_status rkv_metric_rouge_l(double *out, const char *prediction, const char *answer,
                              rkv_error *e)
{
    sentences hyp = {.text = prediction}, ref = {.text = answer};
    cut(&hyp, NULL);
    cut(&ref, NULL);
    *out = 0.0;
    if (!hyp.n_sentence || !ref.n_sentence)     /* where the official scorer catches an exception */
        return RKV_OK;
    const size_t n = (size_t)hyp.n_word + (size_t)ref.n_word;
    word *all = rkv_mem_calloc(n, sizeof *all);
    uint8_t *mark = rkv_mem_calloc(n, 1);
    const int room = make_room(&hyp) & make_room(&ref) && all && mark;
    const rkv_status s = room ? rouge(out, &hyp, &ref, all, mark, e)
                              : rkv_fail(e, RKV_E_MEM, "ROUGE-L: out of memory");
    rkv_mem_free(hyp.first), rkv_mem_free(hyp.id);
    rkv_mem_free(ref.first), rkv_mem_free(ref.id);
    rkv_mem_free(all);
    rkv_mem_free(mark);
    return s;
}

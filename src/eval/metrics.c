#include "config.h"
#include "eval/metrics.h"

#include <string.h>

#include <utf8proc.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "text/unicode.h"

uint32_t rkv_metric_next(const char **p)
{
    const unsigned char *c = (const unsigned char *)*p;
    size_t there = 1;
    while (there < 4 && c[there])
        there++;
    const size_t n = rkv_utf8_length(c, there);
    *p += n ? n : 1;
    return n ? rkv_utf8_decode(c, n) : UINT32_C(0xDC00) + *c;
}

int rkv_metric_is_space(uint32_t c)
{
    if (c < 0x80)
        return c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1c && c <= 0x1f);
    const utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return c == 0x85 || k == UTF8PROC_CATEGORY_ZS || k == UTF8PROC_CATEGORY_ZL ||
           k == UTF8PROC_CATEGORY_ZP;
}

static int is_stray(uint32_t c)
{
    return c >= 0xDC00 && c <= 0xDCFF;
}

void rkv_metric_add_lower(rkv_text *t, uint32_t c)
{
    utf8proc_uint8_t bytes[4];
    if (is_stray(c)) {
        const char byte = (char)(c - 0xDC00);
        rkv_text_add(t, &byte, 1);
        return;
    }
    if (c == 0x130) {                           /* the one letter that lower() makes two of */
        rkv_text_add(t, "i\xcc\x87", 3);
        return;
    }
    const utf8proc_ssize_t n = utf8proc_encode_char(utf8proc_tolower((utf8proc_int32_t)c), bytes);
    rkv_text_add(t, (const char *)bytes, (size_t)n);
}

/* ---- numbers ---- */

static int is_digit(uint32_t c)
{
    if (c < 0x80)
        return c >= '0' && c <= '9';
    return !is_stray(c) && utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_ND;
}

/* The next run of digits from *p on, which moves behind it. Its bytes; 0: none. */
static size_t next_number(const char **p, const char **number)
{
    const char *at = *p;
    while (*at) {
        const char *start = at;
        if (!is_digit(rkv_metric_next(&at)))
            continue;
        for (const char *end = at; *end && is_digit(rkv_metric_next(&end));)
            at = end;
        *number = start;
        *p = at;
        return (size_t)(at - start);
    }
    return 0;
}

static double count_numbers(const char *prediction, const char *right, size_t n_right)
{
    const char *p = prediction, *number;
    int all = 0, good = 0;
    for (size_t n; (n = next_number(&p, &number)) > 0; all++)
        good += n == n_right && !memcmp(number, right, n);
    return all ? (double)good / all : 0.0;
}

/* The number behind the first "Paragraph " or its Chinese form. */
static rkv_status find_paragraph(const char **number, size_t *n, const char *answer, rkv_error *e)
{
    static const char *const words[] = {"Paragraph ", "\xe6\xae\xb5\xe8\x90\xbd"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        for (const char *at = answer; (at = strstr(at, words[i])) != NULL;) {
            at += strlen(words[i]);
            const char *p = at;
            *n = next_number(&p, number);
            if (*n && *number == at)
                return RKV_OK;
        }
    return rkv_fail(e, RKV_E_FORMAT, "retrieval: reference '%.60s', expected such as 'Paragraph 7'",
                    answer);
}

/* ---- classes ---- */

/* The official loop removes from the list that it walks, so that it passes over the name behind a
 * removed one; and what it removes is the first of equal names. */
static double score_classes(const char *prediction, const char *answer, const rkv_reference *r,
                            const char **found)
{
    int n = 0, right = 0;
    for (int i = 0; i < r->n_class; i++)
        if (strstr(prediction, r->class_name[i]))
            found[n++] = r->class_name[i];
    for (int i = 0; i < n; i++) {
        if (!strstr(answer, found[i]) || !strcmp(answer, found[i]))
            continue;
        int at = 0;
        while (strcmp(found[at], found[i]))
            at++;
        memmove(found + at, found + at + 1, (size_t)(n - at - 1) * sizeof *found);
        n--;
    }
    for (int i = 0; i < n; i++)
        right |= !strcmp(found[i], answer);
    return right ? 1.0 / n : 0.0;
}

static rkv_status metric_class(double *out, const char *prediction, const char *answer,
                               const rkv_reference *r, rkv_error *e)
{
    const char **found = rkv_mem_calloc((size_t)r->n_class, sizeof *found);
    if (!found)
        return rkv_fail(e, RKV_E_MEM, "score: out of memory for %d classes", r->n_class);
    *out = score_classes(prediction, answer, r, found);
    rkv_mem_free(found);
    return RKV_OK;
}

/* ---- contained ---- */

static char *lower(const char *text)
{
    rkv_text t = {0};
    rkv_text_add(&t, "", 0);
    while (*text)
        rkv_metric_add_lower(&t, rkv_metric_next(&text));
    char *out = NULL;
    return rkv_text_take(&t, &out, NULL) ? out : NULL;
}

static rkv_status metric_contains(double *out, const char *prediction, const char *answer,
                                  rkv_error *e)
{
    char *p = lower(prediction), *a = lower(answer);
    const int memory = p && a;
    *out = memory && strstr(p, a) ? 1.0 : 0.0;
    rkv_mem_free(p);
    rkv_mem_free(a);
    return memory ? RKV_OK : rkv_fail(e, RKV_E_MEM, "score: out of memory");
}

/* ---- all of them ---- */

static const char *const names[] = {
    [RKV_METRIC_F1] = "f1",
    [RKV_METRIC_ROUGE_L] = "rouge-l",
    [RKV_METRIC_CLASS] = "class",
    [RKV_METRIC_COUNT] = "count",
    [RKV_METRIC_RETRIEVAL] = "retrieval",
    [RKV_METRIC_EDIT] = "edit",
    [RKV_METRIC_ALL] = "all",
    [RKV_METRIC_PART] = "part",
    [RKV_METRIC_SEGMENTED] = "segmented",
};

const char *rkv_metric_name(enum rkv_metric m)
{
    return names[m];
}

static rkv_status score_one(double *out, enum rkv_metric m, const char *prediction,
                            const char *answer, const rkv_reference *r, rkv_error *e)
{
    const char *number = NULL;
    size_t n = 0;
    switch (m) {
    case RKV_METRIC_F1:
        return rkv_metric_f1(out, prediction, answer, e);
    case RKV_METRIC_ROUGE_L:
        return rkv_metric_rouge_l(out, prediction, answer, e);
    case RKV_METRIC_EDIT:
        return rkv_metric_edit(out, prediction, answer, e);
    case RKV_METRIC_CLASS:
        return metric_class(out, prediction, answer, r, e);
    case RKV_METRIC_COUNT:
        *out = count_numbers(prediction, answer, strlen(answer));
        return RKV_OK;
    case RKV_METRIC_RETRIEVAL:
        RKV_TRY(find_paragraph(&number, &n, answer, e));
        *out = count_numbers(prediction, number, n);
        return RKV_OK;
    default:
        return metric_contains(out, prediction, answer, e);
    }
}

rkv_status rkv_metric_score(double *out, enum rkv_metric m, const char *prediction,
                            const rkv_reference *r, rkv_error *e)
{
    double sum = 0.0, most = 0.0;
    if (m == RKV_METRIC_SEGMENTED)
        return rkv_fail(e, RKV_E_UNSUPPORTED,
                        "this metric needs Chinese word segmentation, which is not there");
    for (int i = 0; i < r->n_answer; i++) {
        double s = 0.0;
        RKV_TRY(score_one(&s, m, prediction, r->answer[i], r, e));
        sum += s;
        most = s > most ? s : most;
    }
    *out = m == RKV_METRIC_ALL && r->n_answer ? sum / r->n_answer : most;
    return RKV_OK;
}

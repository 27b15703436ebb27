/* The sampler: what it refuses, what it leaves out, that a seed repeats. */
#include "config.h"
#include "check.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "rkv.h"

enum { N = 40 };

static rkv_sampler *make(int n_vocab, const rkv_sampler_options *o)
{
    rkv_sampler *s = NULL;
    rkv_error e = {0};
    if (rkv_sampler_create(&s, n_vocab, o, &e)) {
        fprintf(stderr, "sampler: %s\n", e.text);
        exit(1);
    }
    return s;
}

static void check_options(void)
{
    static const struct {
        int n_vocab;
        rkv_sampler_options o;
        const char *expected;
    } cases[] = {
        {0, {0, 0, 1, 0, 1, 64, 0}, "vocabulary of 0 tokens"},
        {-5, {0, 0, 1, 0, 1, 64, 0}, "vocabulary of -5 tokens"},
        {5, {NAN, 0, 1, 0, 1, 64, 0}, "temperature"}, {5, {-1, 0, 1, 0, 1, 64, 0}, "temperature"},
        {5, {1, -1, 1, 0, 1, 64, 0}, "top-k"},        {5, {1, 0, 0, 0, 1, 64, 0}, "top-p"},
        {5, {1, 0, 1, NAN, 1, 64, 0}, "min-p"},       {5, {1, 0, 1, 0, 0, 64, 0}, "penalty"},
        {5, {1, 0, 1, 0, 1, -1, 0}, "repeat-last-n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rkv_sampler *s = NULL;
        rkv_error e = {0};
        CHECK(rkv_sampler_create(&s, cases[i].n_vocab, &cases[i].o, &e) == RKV_E_ARG &&
                  strstr(e.text, cases[i].expected), "case %zu: %s", i, e.text);
        rkv_sampler_free(s);
    }
    rkv_error e = {0};
    for (int k = 1;; k++) {
        rkv_sampler *s = NULL;
        rkv_mem_fail_after(k);
        const rkv_status status = rkv_sampler_create(&s, N, NULL, &e);
        rkv_mem_fail_after(0);
        rkv_sampler_free(s);
        if (!status)
            break;
        CHECK(status == RKV_E_MEM, "allocation %d: %s", k, e.text);
    }
}

/* Logits that are no distribution choose nothing and leave no trace. */
static void check_broken(void)
{
    static const float temperature[] = {0.0f, 0.8f};
    for (int t = 0; t < 2; t++) {
        const rkv_sampler_options o = {temperature[t], 0, 1.0f, 0.0f, 2.0f, 64, 3};
        rkv_sampler *s = make(N, &o), *twin = make(N, &o);
        float good[N], bad[N];
        for (int i = 0; i < N; i++)
            good[i] = (float)(i * 7 % 11);
        for (int i = 0; i < N; i++) {
            const float value[] = {NAN, -NAN, INFINITY};
            for (int k = 0; k < 3; k++) {
                memcpy(bad, good, sizeof bad);
                bad[i] = value[k];
                CHECK(rkv_sampler_next(s, bad) == -1, "%g at %d", (double)value[k], i);
            }
        }
        for (int i = 0; i < N; i++)
            bad[i] = -INFINITY;
        CHECK(rkv_sampler_next(s, bad) == -1, "nothing to choose");
        bad[17] = -3e38f;
        CHECK(rkv_sampler_next(s, bad) == 17 && rkv_sampler_next(twin, bad) == 17, "one choice");
        int same = 0;
        for (int i = 0; i < 50; i++)
            same += rkv_sampler_next(s, good) == rkv_sampler_next(twin, good);
        CHECK(same == 50, "%d of 50 as if nothing had been", same);
        rkv_sampler_free(s);
        rkv_sampler_free(twin);
    }
}

/* Truncation: only ids that it may keep are drawn, and all of them. */
static void check_truncation(void)
{
    float logits[N];
    for (int i = 0; i < N; i++)
        logits[i] = (float)(i < 4 ? 5 - i : -i);
    static const rkv_sampler_options o[] = {
        {1.5f, 3, 1.0f, 0.0f, 1.0f, 0, 1}, {1.5f, 0, 0.8f, 0.0f, 1.0f, 0, 1},
        {1.5f, 0, 1.0f, 0.25f, 1.0f, 0, 1}, {0.0f, 0, 1.0f, 0.0f, 1.0f, 0, 1},
    };
    static const unsigned want[] = {7, 7, 7, 1};        /* weights 1, .51, .26, .14, ... */
    for (size_t k = 0; k < sizeof o / sizeof *o; k++) {
        rkv_sampler *s = make(N, &o[k]);
        unsigned seen = 0;
        for (int i = 0; i < 1000; i++)
            seen |= 1u << (rkv_sampler_next(s, logits) & 31);
        CHECK(seen == want[k], "case %zu: ids %#x, expected %#x", k, seen, want[k]);
        rkv_sampler_free(s);
    }
    const float ties[] = {1, 3, 3, 2, 3};
    rkv_sampler *s = make(5, NULL);
    CHECK(rkv_sampler_next(s, ties) == 1, "the lower id of equal logits");
    rkv_sampler_free(s);
}

int main(void)
{
    check_options();
    check_broken();
    check_truncation();
    return check_end("sample");
}

/* The task kinds of RULER (Hsieh et al. 2024): numbers of keys, values, queries, hops and
 * frequencies are theirs, the words are not. */
#include "config.h"
#include "eval/made.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

static void answer(rkv_made *s, const char text[48])
{
    memcpy(s->answer[s->n_answer++], text, sizeof *s->answer);
}

/* ---- needles in a haystack ---- */

enum haystack { NOISE, SENTENCES, NEEDLES };

typedef struct niah {
    const char *name;
    enum haystack haystack;
    int uuid_key, uuid_value;
    int n_key, n_value, n_query;        /* keys in the text; values of each; keys asked for */
} niah;

static const niah kinds[] = {
    {"niah_single_1", NOISE, 0, 0, 1, 1, 1},
    {"niah_single_2", SENTENCES, 0, 0, 1, 1, 1},
    {"niah_single_3", SENTENCES, 0, 1, 1, 1, 1},
    {"niah_multikey_1", SENTENCES, 0, 0, 4, 1, 1},
    {"niah_multikey_2", NEEDLES, 0, 0, 1, 1, 1},
    {"niah_multikey_3", NEEDLES, 1, 1, 1, 1, 1},
    {"niah_multivalue", SENTENCES, 0, 0, 1, 4, 1},
    {"niah_multiquery", SENTENCES, 0, 0, 4, 1, 4},
    {"passkey", SENTENCES, 0, 0, 1, 1, 1},
};

static const char noise[] =
    "The river is wide. The hill is steep. The road goes on and comes back again. ";

static void make_key(char out[48], const niah *k, uint64_t base, int i, rkv_draw *d)
{
    if (k->uuid_key)
        rkv_made_uuid(out, d);
    else
        rkv_made_key(out, base, i);
}

static void make_value(char out[48], const niah *k, rkv_draw *d)
{
    if (k->uuid_value)
        rkv_made_uuid(out, d);
    else
        rkv_made_number(out, d);
}

static void add_needle(rkv_text *t, const char *key, const char *value)
{
    rkv_text_printf(t, "A code for %s is %s. ", key, value);
}

typedef struct needle {
    char key[48], value[48];
    int at;                     /* units of haystack before it */
} needle;

/* Places are on a grid of 40 depths; a passkey's is given. */
static int place_needles(needle *out, rkv_made *s, const niah *k, uint64_t base, rkv_draw *d,
                         int size, double depth)
{
    const int n = k->n_key * k->n_value;
    for (int i = 0; i < n; i++) {
        if (i % k->n_value)
            memcpy(out[i].key, out[i - 1].key, sizeof out[i].key);
        else
            make_key(out[i].key, k, base, i / k->n_value, d);
        make_value(out[i].value, k, d);
        const double here = strcmp(k->name, "passkey") ? rkv_draw_below(d, 40) / 39.0 : depth;
        out[i].at = (int)floor(here * size + 0.5);
        if (n == 1)
            s->depth = here;
        if (i / k->n_value < k->n_query)
            answer(s, out[i].value);
    }
    return n;
}

static void add_unit(rkv_text *t, const niah *k, uint64_t base, int i, rkv_draw *d)
{
    char key[48], value[48];
    if (k->haystack == NOISE) {
        rkv_text_add(t, noise, sizeof noise - 1);
    } else if (k->haystack == SENTENCES) {
        rkv_made_sentence(t, d);
    } else {
        make_key(key, k, base, i + k->n_key, d);
        make_value(value, k, d);
        add_needle(t, key, value);
    }
}

static void make_niah(rkv_made *s, const niah *k, uint64_t base, int size, double depth)
{
    rkv_draw d = {base, 0}, hay = {base ^ 1, 0};        /* one haystack, whatever its size */
    needle needles[RKV_MADE_ANSWERS];
    const int n = place_needles(needles, s, k, base, &d, size, depth);
    rkv_text *t = &s->text;
    rkv_text_printf(t, "Some codes are hidden in the text below. Remember them: you will be asked "
                    "for them.\n\n");
    for (int i = 0; i <= size; i++) {
        for (int j = 0; j < n; j++)
            if (needles[j].at == i)
                add_needle(t, needles[j].key, needles[j].value);
        if (i < size)
            add_unit(t, k, base, i, &hay);
    }
    rkv_text_printf(t, RKV_QUESTION "Name every code for ");
    for (int i = 0; i < k->n_query; i++)
        rkv_text_printf(t, "%s%s", i ? i + 1 < k->n_query ? ", " : " and " : "",
                        needles[i * k->n_value].key);
    rkv_text_printf(t, " that the text mentions.\nAnswer:");
}

/* ---- variable tracking ---- */

/* One chain of four hops: five names of one value, in order, between noise. */
static void make_vt(rkv_made *s, uint64_t base, int size)
{
    enum { N_NAME = 5 };
    rkv_draw d = {base, 0};
    char name[N_NAME][48];
    int at[N_NAME];
    const int value = 10000 + rkv_draw_below(&d, 90000);
    for (int i = 0; i < N_NAME; i++) {
        rkv_made_word(name[i], base, i);
        for (char *c = name[i]; *c; c++)
            *c = (char)(*c - 'a' + 'A');
        at[i] = (int)((i + rkv_draw_below(&d, 1000) / 1000.0) * size / N_NAME);
        answer(s, name[i]);
    }
    rkv_text_printf(&s->text, "Follow the values of the variables in the text below.\n\n");
    for (int i = 0; i <= size; i++) {
        for (int j = 0; j < N_NAME; j++)
            if (at[j] == i && !j)
                rkv_text_printf(&s->text, "VAR %s = %d. ", name[j], value);
            else if (at[j] == i)
                rkv_text_printf(&s->text, "VAR %s = VAR %s. ", name[j], name[j - 1]);
        if (i < size)
            rkv_text_add(&s->text, noise, sizeof noise - 1);
    }
    rkv_text_printf(&s->text, RKV_QUESTION "Which variables have the value %d? There are %d.\n"
                    "Answer:", value, N_NAME);
}

/* ---- words by frequency ---- */

/* word[n] in a random order (Fisher & Yates). */
static void shuffle(int *word, int n, rkv_draw *d)
{
    for (int i = n - 1; i > 0; i--) {
        const int j = rkv_draw_below(d, i + 1), x = word[i];
        word[i] = word[j];
        word[j] = x;
    }
}

static void add_words(rkv_made *s, const int *word, int n, uint64_t base, int numbered)
{
    char text[48];
    for (int i = 0; i < n; i++) {
        rkv_made_word(text, base, word[i]);
        if (numbered)
            rkv_text_printf(&s->text, "%d. %s ", i + 1, text);
        else
            rkv_text_printf(&s->text, "%s ", text);
    }
}

/* Answers: the first n words. */
static void answer_words(rkv_made *s, int n, uint64_t base)
{
    char text[48];
    for (int i = 0; i < n; i++) {
        rkv_made_word(text, base, i);
        answer(s, text);
    }
}

/* 10 words that come 30 times each, and others that come 3 times each. */
static void make_cwe(rkv_made *s, uint64_t base, int size)
{
    enum { N_COMMON = 10, COMMON = 30, UNCOMMON = 3 };
    rkv_draw d = {base, 0};
    const int most = 27000 - N_COMMON, n_other = size < most ? size : most;
    /* A list shorter than the full count of the common words has them less often. */
    const int common = n_other * UNCOMMON < N_COMMON * COMMON ? 6 : COMMON;
    const int n = N_COMMON * common + n_other * UNCOMMON;
    int *word = rkv_mem_calloc((size_t)n, sizeof *word), at = 0;
    if (!word) {
        s->text.bad = 1;
        return;
    }
    for (int i = 0; i < N_COMMON * common; i++)
        word[at++] = i % N_COMMON;
    for (int i = 0; i < n_other * UNCOMMON; i++)
        word[at++] = N_COMMON + i % n_other;
    shuffle(word, n, &d);
    rkv_text_printf(&s->text, "Below is a numbered list of words. Some of them come often.\n\n");
    add_words(s, word, n, base, 1);
    rkv_text_printf(&s->text, RKV_QUESTION "Which are the %d most common words of the list?\n"
                    "Answer:", N_COMMON);
    answer_words(s, N_COMMON, base);
    rkv_mem_free(word);
}

/* Words of which the k-th comes in proportion to k^-2; asked for the first three. */
static void make_fwe(rkv_made *s, uint64_t base, int size)
{
    enum { N_WORD = 50, ASKED = 3 };
    const double alpha = 2.0;
    rkv_draw d = {base, 0};
    double sum = 0.0, left = 0.0;
    const int n = size + 20;
    int *word = rkv_mem_calloc((size_t)n, sizeof *word), at = 0;
    if (!word) {
        s->text.bad = 1;
        return;
    }
    for (int k = 1; k <= N_WORD; k++)
        sum += pow(k, -alpha);
    for (int k = 1; k <= N_WORD && at < n; k++) {
        left += n * pow(k, -alpha) / sum;
        for (; left >= 1.0 && at < n; left -= 1.0)
            word[at++] = k - 1;
    }
    while (at < n)              /* what rounding has left over goes to the most common one */
        word[at++] = 0;
    shuffle(word, n, &d);
    rkv_text_printf(&s->text, "Below is a text in code. Find out which words come most often.\n\n");
    add_words(s, word, n, base, 0);
    rkv_text_printf(&s->text, RKV_QUESTION "Which are the %d most frequent words of the text?\n"
                    "Answer:", ASKED);
    answer_words(s, ASKED, base);
    rkv_mem_free(word);
}

/* ---- questions ---- */

static const char *const jobs[8] = {"baker", "carpenter", "doctor", "gardener", "pilot", "teacher",
                                    "tailor", "weaver"};

/* Whom person i works for: somebody in the other half of the documents. */
static int employer_of(int i, int size)
{
    return (i + (size > 2 ? size / 2 : 1)) % size;
}

/* Document i: where its person was born, works, and for whom. Names repeat after 1024 documents,
 * with another number behind them. */
static void add_document(rkv_text *t, uint64_t base, int i, int size, rkv_draw *d)
{
    char person[48], employer[48], city[48];
    rkv_made_person(person, base, i % 1024);
    rkv_made_person(employer, base, employer_of(i, size) % 1024);
    rkv_made_city(city, base, i);
    rkv_text_printf(t, "Document %d: %s (no. %d) was born in %s and works as a %s for %s (no. "
                    "%d). ", i + 1, person, i, city, jobs[rkv_draw_below(d, 8)], employer,
                    employer_of(i, size));
    rkv_made_sentence(t, d);
    rkv_text_add(t, "\n", 1);
}

/* hops 1: where a person was born; 2: where the one was born for whom a person works. */
static void make_qa(rkv_made *s, uint64_t base, int size, int hops)
{
    rkv_draw d = {base, 0}, hay = {base ^ 1, 0};
    char person[48], city[48];
    size += 1;
    const int who = (int)((double)rkv_draw_below(&d, 1000) / 1000.0 * size);
    rkv_text_printf(&s->text, "Answer the question from the documents below.\n\n");
    for (int i = 0; i < size; i++)
        add_document(&s->text, base, i, size, &hay);
    rkv_made_person(person, base, who % 1024);
    rkv_made_city(city, base, hops == 1 ? who : employer_of(who, size));
    answer(s, city);
    rkv_text_printf(&s->text, RKV_QUESTION "In which city was %s%s (no. %d)%s?\nAnswer:",
                    hops == 1 ? "" : "the person born for whom ", person, who,
                    hops == 1 ? " born" : " works");
}

/* ---- all of them ---- */

void rkv_made_ruler(rkv_made *s, const rkv_task *t, uint64_t key, int size, double depth)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i].name, t->name))
            make_niah(s, &kinds[i], key, size, depth);
    if (!strcmp(t->name, "vt"))
        make_vt(s, key, size);
    else if (!strcmp(t->name, "cwe"))
        make_cwe(s, key, size);
    else if (!strcmp(t->name, "fwe"))
        make_fwe(s, key, size);
    else if (!strcmp(t->name, "qa_1") || !strcmp(t->name, "qa_2"))
        make_qa(s, key, size, t->name[3] - '0');
}

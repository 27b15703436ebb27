/* Scores of answers: every quirk of the official scorers with what those say (rouge 1.0.1,
 * fuzzywuzzy 0.18 over difflib, LongBench's metrics.py), the recorded rows in ../shared, templates
 * and samples, failing memory. */
#include "config.h"
#include "check.h"

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "eval/tasks.h"

typedef struct row {
    const char *prediction, *answer;
    double score;
} row;

static double score(enum rkv_metric m, const char *prediction, const char *const *answer, int n)
{
    static const char *const classes[] = {"Food", "Fast Food", "Date", "Other entity", "entity",
                                          "Other", "Date"};
    const rkv_reference r = {answer, classes, n, sizeof classes / sizeof *classes};
    rkv_error e = {0};
    double got = -1.0;
    CHECK(!rkv_metric_score(&got, m, prediction, &r, &e), "'%s': %s", prediction, e.text);
    return got;
}

static void check_rows(enum rkv_metric m, const row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const double got = score(m, rows[i].prediction, &rows[i].answer, 1);
        CHECK(fabs(got - rows[i].score) < 1e-12, "%s of '%s' and '%s': %.17g, expected %.17g",
              rkv_metric_name(m), rows[i].prediction, rows[i].answer, got, rows[i].score);
    }
}

#define ROWS(metric, ...)                                                                          \
    do {                                                                                           \
        static const row rows[] = {__VA_ARGS__};                                                   \
        check_rows(metric, rows, sizeof rows / sizeof *rows);                                      \
    } while (0)

/* 230 characters with period 27, each more than 1 % of them. */
#define PERIOD "ahovbipwcjqxdkryelszfmt gnu"
#define LONG PERIOD PERIOD PERIOD PERIOD PERIOD PERIOD PERIOD PERIOD "ahovbipwcjqxdk"

static void check_quirks(void)
{
    ROWS(RKV_METRIC_F1, {"The cat sat.", "a cat", 2.0 / 3}, {"", "x", 0}, {"the", "a", 0},
         {"dog dog cat", "dog cat cat", 2.0 / 3}, {"U.S.A", "usa", 1},
         {"\xe2\x80\x9cThe\xe2\x80\x9d end", "\xe2\x80\x9c" "an\xe2\x80\x9d END", 1},
         {"x\xc2\xa0y\x1cz", "x y z", 1}, {"theory an_d", "ory and", 0.5},
         {"\xc3\x9cn\xc3\xaf" "code \xc3\x84rger", "\xc3\xbcn\xc3\xaf" "code \xc3\xa4rger", 1},
         {"a-b the-c", "ab c", 0.5}, {"the\xe2\x80\x93" "end", "\xe2\x80\x93" "end", 1},
         {"\xc4\xb0stanbul", "\xc4\xb0stanbul a", 1}, {"\xff\xc3 b", "\xff\xc3 c", 0.5});
    ROWS(RKV_METRIC_ROUGE_L, {"", "x", 0}, {"...", "a b", 0}, {" . ", "a b", 0},
         {"the cat sat on the mat", "the cat on mat", 0.8888888839506174},
         {"A b c. D e f. ", "a b c. D e g. ", 0.7142857092857143},
         {"one two three. four five", "four five. one three two", 0.7999999950000002},
         {"a a a a", "a", 0.999999995}, {"x y z", "p q r", 0},
         {"w1 w2 w6 w7 w8. w1 w3 w8 w9 w5", "w1 w2 w3 w4 w5", 0.6153846106508877},
         {"a b c b a", "c a b a c", 0.999999995},
         {"  padded   words ", "padded words", 0.999999995});
    ROWS(RKV_METRIC_EDIT, {"", "x", 0}, {"return x;", "return x", 0.94},
         {"\n\n# c\n`q`\n// z\nfoo(bar)\nx", "foo(baz)", 0.88}, {"# only\n`x", "y", 0},
         {"abcd", "bcde", 0.75}, {"    return a", "    return a", 1}, {"ab", "ba", 0.5},
         {"qabxcd", "abycdf", 0.67}, {"ipwcjqxdkryelszfmt gnuahovb", LONG, 0},
         {"h\xc3\xa9llo", "hello", 0.8}, {"x = y // 2", "x = y", 0}, {"a", "aaaaaaa", 0.25},
         {"abcdefg", "abcdefgh", 0.93});
    ROWS(RKV_METRIC_CLASS, {"Fast Food", "Fast Food", 1}, {"Food", "Fast Food", 0},
         {"Date", "Date", 0.5}, {"Other entity", "Other entity", 0.5},
         {"Date and Food", "Food", 1.0 / 3}, {"nothing", "Food", 0},
         {"Other entity Food Fast Food", "Fast Food", 0.25});
    ROWS(RKV_METRIC_COUNT, {"There are 5, not 6; 5", "5", 2.0 / 3}, {"none", "5", 0},
         {"05 5", "5", 0.5}, {"\xd9\xa5 5", "5", 0.5}, {"12 2", "2", 0.5}, {"1.5", "5", 0.5});
    ROWS(RKV_METRIC_RETRIEVAL, {"Paragraph 7 or 8", "Paragraph 7", 0.5}, {"7", "Paragraph 7", 1},
         {"\xe6\xae\xb5\xe8\x90\xbd" "3 4 4", "\xe6\xae\xb5\xe8\x90\xbd" "4", 2.0 / 3});
}

static void check_references(void)
{
    static const char *const two[] = {"Blue", "rED"};
    CHECK(score(RKV_METRIC_ALL, "red and green", two, 2) == 0.5, "share of the references");
    CHECK(score(RKV_METRIC_PART, "red and green", two, 2) == 1.0, "one of the references");
    CHECK(score(RKV_METRIC_PART, "green", two, 2) == 0.0, "none of the references");
    CHECK(score(RKV_METRIC_F1, "red", two, 2) == 1.0, "the best of the references");
    CHECK(score(RKV_METRIC_F1, "red", two, 0) == 0.0, "no reference");
    static const char *const wrong[] = {"Paragraph seven"};
    const rkv_reference r = {wrong, NULL, 1, 0};
    rkv_error e = {0};
    double out;
    CHECK(rkv_metric_score(&out, RKV_METRIC_RETRIEVAL, "7", &r, &e) == RKV_E_FORMAT &&
              strstr(e.text, "Paragraph seven"), "%s", e.text);
    CHECK(rkv_metric_score(&out, RKV_METRIC_SEGMENTED, "7", &r, &e) == RKV_E_UNSUPPORTED &&
              strstr(e.text, "segmentation"), "%s", e.text);
    char *words = rkv_mem_alloc(40001);
    for (int i = 0; words && i < 40000; i++)
        words[i] = "a "[i & 1];
    if (words) {
        words[40000] = 0;
        const char *const many[] = {words};
        const rkv_reference large = {many, NULL, 1, 0};
        CHECK(rkv_metric_score(&out, RKV_METRIC_ROUGE_L, words, &large, &e) == RKV_E_UNSUPPORTED &&
                  strstr(e.text, "20000"), "%s", e.text);
    }
    rkv_mem_free(words);
}

/* First line of the answer, and how a task is found. */
static void check_tasks(void)
{
    static const char *const answer[] = {"fifty-five"};
    const rkv_reference r = {answer, NULL, 1, 0};
    rkv_error e = {0};
    double line = -1, all = -1;
    const char *text = "\n\nfifty-five\nQuestion: what";
    CHECK(!rkv_task_score(&line, rkv_task_find("triviaqa"), text, &r, &e) && line == 1.0, "%g",
          line);
    CHECK(!rkv_task_score(&all, rkv_task_find("hotpotqa"), text, &r, &e) && all == 0.5, "%g", all);
    int n_en = 0, n_longbench = 0, n_ruler = 0;
    const rkv_task *t;
    for (int i = 0; (t = rkv_task_at(i)) != NULL; i++) {
        n_en += (t->flags & RKV_TASK_EN) != 0;
        n_longbench += t->category < RKV_N_LONGBENCH;
        n_ruler += t->category == RKV_CATEGORY_RULER;
        CHECK(rkv_task_find(t->name) == t, "%s is found", t->name);
        CHECK((t->category < RKV_N_LONGBENCH) == (t->template_text != NULL), "%s", t->name);
        if (t->template_text && t->cue) {       /* the question begins in the template */
            const char *cue = strstr(t->template_text, t->cue);
            CHECK(cue || t->category == RKV_CATEGORY_FEWSHOT, "%s: cue '%s'", t->name, t->cue);
        }
    }
    CHECK(n_en == 16 && n_longbench == 21 && n_ruler == 13, "%d %d %d", n_en, n_longbench, n_ruler);
    CHECK(rkv_task_find("hotpotqa_e") == rkv_task_find("hotpotqa") && !rkv_task_find("hotpot"),
          "names");
}

/* ---- samples ---- */

static rkv_status parse(rkv_sample *x, const char *line, rkv_error *e)
{
    return rkv_sample_parse(x, line, NULL, "f.jsonl: line 7", 100, e);
}

static void check_samples(void)
{
    rkv_sample x;
    rkv_error e = {0};
    CHECK(!parse(&x, "{\"context\":\"C {input}\",\"input\":\"Who?\",\"dataset\":\"hotpotqa_e\","
                     "\"answers\":[\"me\"],\"all_classes\":null,\"_id\":\"q\",\"length\":3}", &e),
          "%s", e.text);
    CHECK(x.prompt && strstr(x.prompt, "passages.\nC {input}\n\nAnswer") &&
              strstr(x.prompt, "Question: Who?\nAnswer:"), "filled: %s", x.prompt);
    CHECK(x.prompt && !strncmp(x.prompt + x.question, "\n\nAnswer the question based", 27) &&
              x.question > 120 && x.max_gen == 32 && !x.length && !strcmp(x.id, "q") &&
              x.reference.n_answer == 1, "question at %zu", x.question);
    const uint64_t hash = x.hash;
    rkv_sample_free(&x);
    CHECK(!parse(&x, "{\"prompt\":\"P\",\"answers\":[\"me\"]}", &e) && x.hash != hash && x.hash &&
              !strcmp(x.task->name, "other") && !strcmp(x.id, "7") && !x.question, "%s", e.text);
    rkv_sample_free(&x);
    CHECK(!parse(&x, "{\"prompt_ids\":[1,99],\"max_gen\":3}", &e) && x.n_prompt_id == 2 &&
              x.max_gen == 3, "%s", e.text);
    rkv_sample_free(&x);
    CHECK(!parse(&x, "{\"context\":\"A long text.\",\"input\":\" Why?\"}", &e) &&
              !strcmp(x.prompt, "A long text. Why?") && x.question == 12, "%s", e.text);
    rkv_sample_free(&x);
    static const struct {
        const char *line, *expected;
    } bad[] = {
        {"{\"prompt\":\"\"}", "empty"}, {"{\"prompt_ids\":[]}", "empty"}, {"[]", "object"},
        {"{\"prompt_ids\":[100]}", "token id #0"}, {"{}", "none of 'prompt'"}, {"{", "not JSON"},
        {"{\"context\":\"c\",\"task\":\"qasper\"}", "'input'"},
        {"{\"prompt\":\"p\",\"answers\":[1]}", "no text"},
        {"{\"prompt\":\"p\",\"answers\":\"a\"}", "not an array"},
        {"{\"prompt\":\"p\",\"max_gen\":0}", "max_gen"}, {"{\"prompt\":3}", "not a string"},
        {"{\"prompt\":\"p\",\"depth\":2}", "depth"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(parse(&x, bad[i].line, &e) == RKV_E_FORMAT && strstr(e.text, bad[i].expected) &&
                  strstr(e.text, "line 7"), "%s: %s", bad[i].line, e.text);
}

/* ---- failing memory ---- */

static void check_memory(void)
{
    static const char *const answer[] = {"some words. And more of them", "Paragraph 3"};
    static const char *const classes[] = {"some", "words"};
    const rkv_reference r = {answer, classes, 2, 2};
    for (int m = RKV_METRIC_F1; m < RKV_METRIC_SEGMENTED; m++)
        for (int k = 1; m != RKV_METRIC_RETRIEVAL; k++) {
            double out;
            rkv_error e = {0};
            rkv_mem_fail_after(k);
            const rkv_status s = rkv_metric_score(&out, (enum rkv_metric)m, "more words 3", &r, &e);
            rkv_mem_fail_after(0);
            if (!s)
                break;
            CHECK(s == RKV_E_MEM, "metric %d, allocation %d: %s", m, k, e.text);
        }
    for (int k = 1;; k++) {
        rkv_sample x;
        rkv_error e = {0};
        rkv_mem_fail_after(k);
        const rkv_status s = parse(&x, "{\"context\":\"c\",\"input\":\"i\",\"task\":\"trec\","
                                       "\"answers\":[\"a\"],\"all_classes\":[\"a\",\"b\"]}", &e);
        rkv_mem_fail_after(0);
        if (!s)
            rkv_sample_free(&x);
        if (!s)
            break;
        CHECK(s == RKV_E_MEM, "sample, allocation %d: %s", k, e.text);
    }
    CHECK(rkv_mem_current() == 0, "%llu bytes are left", (unsigned long long)rkv_mem_current());
}

/* ---- the recorded rows ---- */

static void check_recorded(const cJSON *root, int *unsupported)
{
    rkv_sample x;
    rkv_error e = {0};
    double got = -1.0;
    const char *prediction = cJSON_GetObjectItem(root, "prediction")->valuestring;
    cJSON *copy = cJSON_Duplicate(root, 1);
    cJSON_AddStringToObject(copy, "prompt", "p");
    char *text = cJSON_PrintUnformatted(copy);
    cJSON_Delete(copy);
    CHECK(!parse(&x, text, &e), "%s", e.text);
    const rkv_status s = rkv_task_score(&got, x.task, prediction, &x.reference, &e);
    const double want = cJSON_GetObjectItem(root, "score")->valuedouble;
    if (s == RKV_E_UNSUPPORTED)
        ++*unsupported;
    else
        CHECK(!s && fabs(got - want) <= 1e-4, "%s: %.6f, expected %.6f %s", x.id, got, want,
              e.text);
    CHECK((s == RKV_E_UNSUPPORTED) == (x.task->metric == RKV_METRIC_SEGMENTED), "%s: %s", x.id,
          e.text);
    rkv_sample_free(&x);
    cJSON_free(text);
}

static void check_parity(void)
{
    const char *path = RKV_SRCDIR "/../shared/data/longbench/metric_parity.jsonl";
    rkv_data d;
    rkv_error e = {0};
    int unsupported = 0;
    if (rkv_data_load(&d, path, &e)) {
        SKIP(124, "%s", e.text);
        return;
    }
    for (int i = 0; i < d.n_line; i++) {
        cJSON *root = NULL;
        CHECK(!rkv_json_parse(&root, d.line[i], strlen(d.line[i]), path, &e), "%s", e.text);
        if (root)
            check_recorded(root, &unsupported);
        cJSON_Delete(root);
    }
    CHECK(unsupported < d.n_line / 4, "%d of %d rows unsupported", unsupported, d.n_line);
    printf("%d recorded rows, %d of them need Chinese word segmentation\n", d.n_line, unsupported);
    rkv_data_free(&d);
}

/* Every sample of the data is read, and its question found. */
static void check_folder(void)
{
    rkv_samples s;
    rkv_error e = {0};
    if (rkv_samples_load(&s, RKV_SRCDIR "/../shared/data/longbench", NULL, 0, 100, &e)) {
        SKIP(100, "%s", e.text);
        return;
    }
    for (int i = 0; i < s.n; i++) {
        rkv_sample x;
        CHECK(!rkv_samples_get(&x, &s, i, 100, &e), "%s", e.text);
        CHECK(x.hash == s.at[i].hash && x.question > 20 && x.task->template_text &&
                  x.max_gen == x.task->max_gen && x.reference.n_answer >= 1, "%s: question at %zu",
              x.id, x.question);
        rkv_sample_free(&x);
    }
    rkv_samples_free(&s);
    CHECK(!rkv_samples_load(&s, RKV_SRCDIR "/../shared/data/longbench", "trec,lcc", 2, 100, &e) &&
              s.n == 4, "%s", e.text);
    rkv_samples_free(&s);
}

int main(void)
{
    check_quirks();
    check_references();
    check_tasks();
    check_samples();
    check_memory();
    check_parity();
    check_folder();
    return check_end("metrics");
}

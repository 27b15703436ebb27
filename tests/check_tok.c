/* Tokenizers: vocabularies of real models against their recorded ids, made ones against slow
 * references, special tokens, decoding, growth of time, a small stack. */
#include "config.h"
#include "check.h"

#include <dirent.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/json.h"
#include "base/mem.h"
#include "noise.h"
#include "text/vocab.h"
#include "tiny/tokens.h"

static uint64_t seed_word;

/* Next of a fixed sequence, below n. */
static size_t below(size_t n)
{
    return (size_t)(rkv_noise_word(17, seed_word++) % n);
}

/* ---- recorded ids ---- */

static const char separator[] = "\n__ggml_vocab_test__\n";

/* One text and its line of ids; returns whether they agree and decode to the text. */
static int agrees(const rkv_tok *t, const char *text, size_t n, const char *line)
{
    int32_t *ids = NULL;
    size_t n_id = 0, i = 0, n_back = 0;
    char *back = NULL, *end;
    if (rkv_tok_encode(t, text, n, 0, &ids, &n_id, NULL))
        return 0;
    for (; *line && *line != '\n'; line = end, i++) {
        const long id = strtol(line, &end, 10);
        if (end == line || i >= n_id || ids[i] != id)
            break;
    }
    const int same = (!*line || *line == '\n') && i == n_id;
    const int whole = !rkv_tok_decode(t, ids, n_id, 0, &back, &n_back, NULL) && n_back == n &&
                      !memcmp(back, text, n);
    rkv_mem_free(ids);
    rkv_mem_free(back);
    return same && whole;
}

static void check_recorded_file(const char *path, const char *texts, const char *lines)
{
    rkv_gguf *g = NULL;
    rkv_tok *t = NULL;
    rkv_error e = {0};
    rkv_status s = rkv_gguf_open(&g, path, &e);
    if (!s)
        s = rkv_tok_create(&t, g, &e);
    if (s == RKV_E_UNSUPPORTED)
        SKIP(1, "%s", e.text);
    else
        CHECK(!s, "%s", e.text);
    for (int i = 0; t && *lines; i++) {
        const char *end = strstr(texts, separator);
        const size_t n = end ? (size_t)(end - texts) : strlen(texts);
        CHECK(agrees(t, texts, n, lines), "%s: text %d: '%.*s'", path, i, (int)n, texts);
        texts += end ? n + strlen(separator) : n;
        lines += strcspn(lines, "\n");
        lines += *lines == '\n';
    }
    CHECK(!t || !*texts, "%s: more texts than lines of ids", path);
    rkv_tok_free(t);
    rkv_gguf_close(g);
}

static void check_recorded(void)
{
    const char *data = getenv("RKV_SHARED_DATA");
    char folder[1024], path[2048], other[2064];
    snprintf(folder, sizeof folder, "%s/vocab", data ? data : RKV_SRCDIR "/../shared/data");
    DIR *d = opendir(folder);
    int n = 0;
    for (struct dirent *entry; d && (entry = readdir(d));) {
        const size_t len = strlen(entry->d_name);
        if (len < 5 || strcmp(entry->d_name + len - 4, ".inp"))
            continue;
        char *texts = NULL, *lines = NULL;
        size_t size;
        snprintf(path, sizeof path, "%s/%.*s", folder, (int)len - 4, entry->d_name);
        snprintf(other, sizeof other, "%s.inp", path);
        CHECK(!rkv_json_read_file(&texts, &size, other, 1 << 20, NULL), "%s", other);
        snprintf(other, sizeof other, "%s.out", path);
        CHECK(!rkv_json_read_file(&lines, &size, other, 1 << 20, NULL), "%s", other);
        if (texts && lines)
            check_recorded_file(path, texts, lines);
        rkv_mem_free(texts);
        rkv_mem_free(lines);
        n++;
    }
    if (d)
        closedir(d);
    if (!n)
        SKIP(1, "no recorded ids in %s", folder);
}

/* ---- slow references ---- */

typedef struct part {           /* of one text, side by side */
    const char *text;
    size_t n;
} part;

/* Joins part i with the next. */
static void join(part *p, int *n, int i)
{
    p[i].n += p[i + 1].n;
    memmove(p + i + 1, p + i + 2, (size_t)(*n - i - 2) * sizeof *p);
    --*n;
}

static int32_t find_token(const rkv_tok *t, const char *text, size_t n)
{
    for (int32_t id = 0; id < rkv_tok_n_vocab(t); id++) {
        size_t len;
        const char *piece = rkv_tok_piece(t, id, &len);
        if (len == n && !memcmp(piece, text, n))
            return id;
    }
    return -1;
}

/* Position of the pair that the earliest merge joins; -1: none. */
static int best_merge(const rkv_gguf *g, const part *p, int n)
{
    size_t n_merge, len;
    if (rkv_gguf_strings(g, "tokenizer.ggml.merges", &n_merge, NULL))
        return -1;
    for (size_t m = 0; m < n_merge; m++) {
        const char *line = rkv_gguf_strings_at(g, "tokenizer.ggml.merges", m, &len);
        for (int i = 0; i + 1 < n; i++)
            if (p[i].n + p[i + 1].n + 1 == len && !memcmp(line, p[i].text, p[i].n) &&
                line[p[i].n] == ' ' && !memcmp(line + p[i].n + 1, p[i + 1].text, p[i + 1].n))
                return i;
    }
    return -1;
}

/* Position of the pair whose token has the highest score, the leftmost of equals; -1: none. */
static int best_score(const rkv_gguf *g, const rkv_tok *t, const part *p, int n)
{
    static float score[4096];
    if (rkv_gguf_floats(g, "tokenizer.ggml.scores", score, (size_t)rkv_tok_n_vocab(t), NULL))
        return -1;
    int best = -1;
    float highest = 0.0f;
    for (int i = 0; i + 1 < n; i++) {
        const int32_t id = find_token(t, p[i].text, p[i].n + p[i + 1].n);
        if (id >= 0 && (best < 0 || score[id] > highest))
            best = i, highest = score[id];
    }
    return best;
}

static void compare(const rkv_tok *t, const char *text, const part *p, int n)
{
    int32_t *ids = NULL;
    size_t n_id = 0;
    CHECK(!rkv_tok_encode(t, text, strlen(text), 0, &ids, &n_id, NULL), "%s", text);
    int same = n_id == (size_t)n;
    for (int i = 0; i < n && same; i++)
        same = ids[i] == find_token(t, p[i].text, p[i].n);
    CHECK(same, "'%s': %zu ids, %d parts", text, n_id, n);
    rkv_mem_free(ids);
}

/* Words of the letters that the made vocabularies merge, perhaps with a space in front. */
static void check_reference(const char *tokenizer, const char *family, const char *space)
{
    tiny_tok m;
    rkv_error e = {0};
    const int is_spm = !strcmp(tokenizer, "spm"), prefix = is_spm && strcmp(family, "gemma3");
    CHECK(!tiny_tok_made(&m, tokenizer, family, 420, &e), "%s", e.text);
    for (int round = 0; m.tok && round < 300; round++) {
        static const char letters[] = "thetheandingofoninaaesdrl";
        char text[48], spelled[200];
        part p[50];
        const int n_text = 1 + (int)below(40);
        for (int i = 0; i < n_text; i++)
            text[i] = letters[below(sizeof letters - 1)];
        if (below(2))
            text[0] = ' ';
        text[n_text] = 0;
        int n = 0;
        size_t at = 0;
        for (int i = prefix ? -1 : 0; i < n_text; i++) {
            const int is_space = i < 0 || text[i] == ' ';
            p[n].text = spelled + at;
            p[n].n = is_space ? strlen(space) : 1;
            memcpy(spelled + at, is_space ? space : text + i, p[n].n);
            at += p[n++].n;
        }
        for (int i; (i = is_spm ? best_score(m.gguf, m.tok, p, n) : best_merge(m.gguf, p, n)) >= 0;)
            join(p, &n, i);
        compare(m.tok, text, p, n);
    }
    tiny_tok_close(&m);
}

/* ---- there and back ---- */

static size_t random_text(char *text, size_t room)
{
    static const char *const some[] = {
        " ", "  ", "\n", "\r\n", "\t", "the", "and", "'s", "'LL", "12345", "a", "B", "_", "!?",
        "\u00e9", "\u4f60\u597d", "\U0001f642", "\u00a0", "<|im_end|>", "</s>", "<0x41>",
        "\xff", "\xc3", "\xed\xa0\x80", "\xc0\xaf", "\xf4\x90\x80\x80", "\xe2\x96", /* not UTF-8 */
    };
    size_t n = 0;
    for (size_t i = below(30); i > 0; i--) {
        const char *s = some[below(sizeof some / sizeof *some)];
        const size_t len = strlen(s);
        if (below(3) == 0 && n < room)
            text[n++] = (char)below(256);
        if (n + len <= room) {
            memcpy(text + n, s, len);
            n += len;
        }
    }
    return n;
}

/* SentencePiece writes spaces as U+2581, so a text with that character does not come back. */
static int has_space_sign(const char *text, size_t n)
{
    for (size_t i = 0; i + 3 <= n; i++)
        if (!memcmp(text + i, "\u2581", 3))
            return 1;
    return 0;
}

static int comes_back(const rkv_tok *t, const char *text, size_t n, unsigned flags)
{
    int32_t *ids = NULL;
    char *back = NULL;
    size_t n_id = 0, n_back = 0;
    const int ok = !rkv_tok_encode(t, text, n, flags, &ids, &n_id, NULL) &&
                   !rkv_tok_decode(t, ids, n_id, 0, &back, &n_back, NULL) && n_back == n &&
                   !memcmp(back, text, n) && back[n] == 0;
    rkv_mem_free(ids);
    rkv_mem_free(back);
    return ok;
}

static void check_round_trip(const char *tokenizer, const char *family)
{
    tiny_tok m;
    rkv_error e = {0};
    CHECK(!tiny_tok_made(&m, tokenizer, family, 700, &e), "%s", e.text);
    int bad = 0;
    for (int i = 0; m.tok && i < 4000; i++) {
        char text[600];
        const size_t n = random_text(text, sizeof text);
        if (strcmp(tokenizer, "spm") || !has_space_sign(text, n))
            bad += !comes_back(m.tok, text, n, i % 2 ? RKV_TOK_BOS : 0);
    }
    CHECK(bad == 0, "%s %s: %d of 4000 texts changed", tokenizer, family, bad);
    CHECK(m.tok && comes_back(m.tok, "", 0, 0) && comes_back(m.tok, "a\0b", 3, RKV_TOK_BOS), "NUL");
    tiny_tok_close(&m);
}

/* ---- growth of time, a small stack ---- */

typedef struct growth {
    const rkv_tok *t;
    const char *unit;           /* repeated */
    size_t n;                   /* bytes of the shorter text; the longer has four times as many */
    double seconds[2];
    rkv_error e;
} growth;

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int grows_too_fast(const growth *w)
{
    /* n log n gives 4.5; below the second bound the clock, the caches and other programs rule (the
     * square of these lengths would take minutes). */
    return w->seconds[1] > 8.0 * w->seconds[0] && w->seconds[1] > 0.5;
}

/* Both lengths, and once more when something else may have disturbed the clock. */
static void *measure(void *arg)
{
    growth *w = arg;
    const size_t n_unit = strlen(w->unit), n = 4 * w->n;
    char *text = malloc(n);
    for (size_t i = 0; i < n; i++)
        text[i] = w->unit[i % n_unit];
    for (int i = 0; i < 2 || (i < 8 && (i % 2 || grows_too_fast(w))); i++) {
        int32_t *ids = NULL;
        size_t n_id;
        const double before = cpu_seconds();
        if (rkv_tok_encode(w->t, text, i % 2 ? n : w->n, RKV_TOK_SPECIAL, &ids, &n_id, &w->e))
            break;
        w->seconds[i % 2] = cpu_seconds() - before;
        rkv_mem_free(ids);
    }
    free(text);
    return NULL;
}

/* Texts that tempt into quadratic time or deep recursion. */
static void check_growth_of(const char *name, const rkv_tok *t, size_t n)
{
    static const char *const unit[] = {
        "a", " ", "\n", "\r", "'", "1", ".", "A", "\t \u3000", "\U0001f642", "\x80", "<|im_end|",
        "<|begin_of_text|><|", "the ", "\u2581", "\u4e2d", "aA1 .\n", "\u0301",
    };
    pthread_attr_t small;
    pthread_attr_init(&small);
    CHECK(!pthread_attr_setstacksize(&small, (size_t)256 << 10), "stack size");
    for (size_t i = 0; i < sizeof unit / sizeof *unit; i++) {
        growth w = {.t = t, .unit = unit[i], .n = n};
        pthread_t thread;
        CHECK(!pthread_create(&thread, &small, measure, &w) && !pthread_join(thread, NULL),
              "thread");
        CHECK(!w.e.status && !grows_too_fast(&w), "%s '%s': %g s for a fourth, %g s: %s", name,
              unit[i], w.seconds[0], w.seconds[1], w.e.text);
    }
    pthread_attr_destroy(&small);
}

static void check_growth(void)
{
    static const struct { const char *tokenizer, *family; } row[] = {
        {"bpe", "llama"}, {"bpe", "qwen2"}, {"bpe", "gemma3"}, {"spm", "llama"}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        tiny_tok m;
        rkv_error e = {0};
        CHECK(!tiny_tok_made(&m, row[i].tokenizer, row[i].family, 2000, &e), "%s", e.text);
        if (m.tok)
            check_growth_of(row[i].family, m.tok, (size_t)1 << 18);
        tiny_tok_close(&m);
    }
    /* One name for each list of expressions. */
    static const char *const pre[] = {"smollm", "default", "falcon", "qwen35", "ufakzeka", "laguna",
                                      "minicpm5", "bailingmoe", "seed-coder", "exaone-moe",
                                      "gpt-4o", "tekken", "youtu", "deepseek-llm", "deepseek-coder",
                                      "deepseek-v3", "spark2_5", "bloom", "viking", "chameleon"};
    static const tiny_token token[] = {{"a", 1, 0}, {"aa", 1, 0}, {"<|im_end|>", 3, 0}};
    for (size_t i = 0; i < sizeof pre / sizeof *pre; i++) {
        gguf_writer w = gguf_writer_init();
        tiny_tok m;
        rkv_error e = {0};
        tiny_tokens(&w, "gpt2", pre[i], token, 3, "a a");
        const rkv_status s = tiny_tok_open(&m, &w, &e);
        if (s == RKV_E_UNSUPPORTED) {
            SKIP(1, "%s", e.text);
            CHECK(strstr(e.text, pre[i]) && strstr(e.text, "--with-pcre2"), "%s", e.text);
            continue;
        }
        CHECK(!s, "%s", e.text);
        if (!s)
            check_growth_of(pre[i], m.tok, (size_t)1 << 15);
        tiny_tok_close(&m);
    }
}

/* Special tokens as long as they may be, which the text promises at every byte and never holds. */
static void check_long_special(void)
{
    char text[3][RKV_MAX_SPECIAL + 1];
    for (int i = 0; i < 3; i++) {
        memset(text[i], 'a', RKV_MAX_SPECIAL);
        text[i][RKV_MAX_SPECIAL] = 0;
        text[i][RKV_MAX_SPECIAL - 1] = (char)('b' + i);
    }
    const tiny_token token[] = {{"a", 1, 0}, {"aa", 1, 0}, {text[0], 3, 0}, {text[1], 3, 0},
                                {text[2], 4, 0}};
    gguf_writer w = gguf_writer_init();
    tiny_tok m;
    rkv_error e = {0};
    tiny_tokens(&w, "gpt2", "gpt-2", token, 5, "a a");
    CHECK(!tiny_tok_open(&m, &w, &e), "%s", e.text);
    if (!m.tok)
        return;
    check_growth_of("long special tokens", m.tok, (size_t)1 << 16);
    const size_t n = (size_t)1 << 20;
    char *many = malloc(n);
    int32_t *ids = NULL;
    size_t n_id = 0;
    memset(many, 'a', n);
    many[n - 1] = 'd';
    const double before = cpu_seconds();
    CHECK(!rkv_tok_encode(m.tok, many, n, RKV_TOK_SPECIAL, &ids, &n_id, &e), "%s", e.text);
    CHECK(n_id == (n - RKV_MAX_SPECIAL) / 2 + 1 && ids[n_id - 1] == 4, "%zu ids", n_id);
    CHECK(cpu_seconds() - before < 60.0, "1 MB in %g s", cpu_seconds() - before);
    printf("1 MB of one letter beside long special tokens: %.2f s\n", cpu_seconds() - before);
    rkv_mem_free(ids);
    free(many);
    tiny_tok_close(&m);
}

int main(void)
{
    check_recorded();
    check_reference("bpe", "llama", "\u0120");
    check_reference("bpe", "gemma3", "\u0120");
    check_reference("spm", "llama", "\u2581");
    check_reference("spm", "gemma3", "\u2581");
    check_round_trip("bpe", "llama");
    check_round_trip("bpe", "qwen2");
    check_round_trip("bpe", "gemma3");
    check_round_trip("spm", "llama");
    check_round_trip("spm", "gemma3");
    check_growth();
    check_long_special();
    return check_end("tok");
}

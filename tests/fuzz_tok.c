/* Fuzz target: any file makes a tokenizer or is refused, any text is encoded and comes back.
 * The first byte of an input says what the rest is:
 *   '0' a GGUF file;
 *   '1' to '5' a text for one of the made vocabularies below;
 *   '6' (SentencePiece) and '7' to ':' (byte-level, of the names below) a vocabulary and a text:
 * one line per token (its type as a digit, a letter for its score, its text) or merge ('m' and the
 * merge), up to a line that begins with '=', which with all that follows is the text. */
#include "config.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/pretok.h"
#include "text/unicode.h"
#include "tiny/tokens.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const struct made { const char *tokenizer, *family; int loses_prefix;
} made[] = {
    {"bpe", "llama", 0},  {"bpe", "qwen2", 0}, {"bpe", "gemma3", 0},
    {"spm", "gemma3", 0}, {"spm", "llama", 1},
};
enum { N_MADE = sizeof made / sizeof *made };

static const char *const names[] = {"gpt-2", "smollm", "llama-bpe", "qwen2"};

static void demand(int condition)
{
    if (!condition)
        abort();
}

static int has_space_sign(const char *text, size_t n)
{
    for (size_t i = 0; i + 3 <= n; i++)
        if (!memcmp(text + i, "\xe2\x96\x81", 3))
            return 1;
    return 0;
}

/* Encodes and decodes; the text must come back if whole. */
static void use(const rkv_tok *t, const char *text, size_t n, unsigned flags, int whole)
{
    rkv_error e = {0};
    int32_t *ids;
    size_t n_id, n_back;
    char *back;
    const rkv_status s = rkv_tok_encode(t, text, n, flags, &ids, &n_id, &e);
    demand(s == RKV_OK || (!whole && s == RKV_E_ARG));
    if (s)
        return;
    for (size_t i = 0; i < n_id; i++)
        demand(ids[i] >= 0 && ids[i] < rkv_tok_n_vocab(t));
    demand(!rkv_tok_decode(t, ids, n_id, (flags & RKV_TOK_SPECIAL) != 0, &back, &n_back, &e));
    demand(!whole || (n_back == n && (!n || !memcmp(back, text, n))));
    rkv_mem_free(ids);
    rkv_mem_free(back);
}

static void try_file(const void *data, size_t n)
{
    static const char text[] =
        "The <|im_end|>\n quick </s> 123\xff \xe4\xb8\xad\xe2\x96\x81 aaaaaaaaaaaa<0x0A>";
    rkv_error e = {0};
    rkv_gguf *g = NULL;
    rkv_tok *t = NULL;
    if (rkv_gguf_open_memory(&g, data, n, "x.gguf", &e))
        return;
    const rkv_status s = rkv_tok_create(&t, g, &e);
    demand(s == RKV_OK || ((s == RKV_E_FORMAT || s == RKV_E_UNSUPPORTED || s == RKV_E_MEM) &&
                           e.status == s && !strncmp(e.text, "x.gguf: ", 8)));
    if (!s) {
        use(t, text, sizeof text, 0, 0);
        use(t, text, sizeof text, RKV_TOK_BOS | RKV_TOK_SPECIAL, 0);
    }
    rkv_tok_free(t);
    rkv_gguf_close(g);
}

static tiny_tok m[N_MADE];      /* kept from one input to the next */

static void close_made(void)
{
    for (int i = 0; i < N_MADE; i++)
        tiny_tok_close(&m[i]);
}

static void try_made(int i, const char *text, size_t n)
{
    if (!m[i].tok)
        demand(!tiny_tok_made(&m[i], made[i].tokenizer, made[i].family, 600, NULL));
    const int whole = strcmp(made[i].tokenizer, "spm") || !has_space_sign(text, n);
    const uint64_t before = rkv_mem_current();
    use(m[i].tok, text, n, 0, whole);
    use(m[i].tok, text, n, RKV_TOK_SPECIAL, whole && !made[i].loses_prefix);
    demand(rkv_mem_current() == before);
}

/* Tokens and merges from lines, then a text. */
static void try_lines(const char *model, const char *pre, const char *p, const char *end)
{
    enum { MAX_TOKEN = 400 };
    static tiny_token token[MAX_TOKEN];
    static char texts[4096 + MAX_TOKEN];
    rkv_text merges = {0};
    size_t n = 0, used = 0;
    while (p < end && *p != '=') {
        const char *newline = memchr(p, '\n', (size_t)(end - p));
        const size_t len = newline ? (size_t)(newline - p) : (size_t)(end - p);
        if (*p == 'm') {
            rkv_text_add(&merges, p + 1, len ? len - 1 : 0);
            rkv_text_add(&merges, "\n", 1);
        } else if (len >= 2 && n < MAX_TOKEN && used + len < sizeof texts) {
            memcpy(texts + used, p + 2, len - 2);
            texts[used + len - 2] = 0;
            token[n++] = (tiny_token){texts + used, p[0] - '0', (float)p[1]};
            used += len - 1;
        }
        p += newline ? len + 1 : len;
    }
    rkv_text_add(&merges, "", 0);
    gguf_writer w = gguf_writer_init();
    tiny_tok t;
    rkv_error e = {0};
    tiny_tokens(&w, model, pre, token, n, merges.data);
    rkv_text_free(&merges);
    if (tiny_tok_open(&t, &w, &e))
        return;
    use(t.tok, p, (size_t)(end - p), 0, 0);
    use(t.tok, p, (size_t)(end - p), RKV_TOK_BOS | RKV_TOK_SPECIAL, 0);
    tiny_tok_close(&t);
}

#ifdef HAVE_PCRE2
/* Both libraries agree on the characters up to here, whatever their versions. */
static int has_new(const char *text, size_t n)
{
    for (size_t i = 0; i < n;) {
        const rkv_char c = rkv_char_at(text, i, n);
        if (c.length > 1 && rkv_utf8_decode((const unsigned char *)text + i, c.length) >= 0x250)
            return 1;
        i += c.length;
    }
    return 0;
}

static void compare_scanner(int i, const char *text, size_t n)
{
    if (has_new(text, n))
        return;
    rkv_pretok *p[2];
    rkv_pretok_run *run[2];
    size_t begin[2] = {0}, end[2] = {0};
    for (int k = 0; k < 2; k++)
        demand(!rkv_pretok_create(&p[k], rkv_pretok_find(names[i], strlen(names[i])), k, "fuzz",
                                  NULL) &&
               !rkv_pretok_run_create(&run[k], p[k], NULL) &&
               !rkv_pretok_start(run[k], text, n, NULL));
    do {
        for (int k = 0; k < 2; k++)
            demand(!rkv_pretok_next(run[k], &begin[k], &end[k], NULL));
        demand(begin[0] == begin[1] && end[0] == end[1]);
    } while (begin[0] < end[0]);
    for (int k = 0; k < 2; k++) {
        rkv_pretok_run_free(run[k]);
        rkv_pretok_free(p[k]);
    }
}
#else
static void compare_scanner(int i, const char *text, size_t n)
{
    (void)i;
    (void)text;
    (void)n;
}
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static int registered;
    if (!registered)
        registered = !atexit(close_made);
    const int what = n ? data[0] - '0' : 0;
    char *text = calloc(n ? n : 1, 1);            /* just the input: a byte too far is seen */
    if (!text)
        return 0;
    n = n ? n - 1 : 0;
    if (n)
        memcpy(text, data + 1, n);
    if (what == 0)
        try_file(text, n);
    else if (what >= 1 && what <= N_MADE)
        try_made(what - 1, text, n);
    else if (what == 6)
        try_lines("llama", NULL, text, text + n);
    else if (what >= 7 && what <= 10)
        try_lines("gpt2", names[what - 7], text, text + n);
    if (what >= 1 && what <= 4)
        compare_scanner(what - 1, text, n);
    free(text);
    return 0;
}

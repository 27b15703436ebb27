#include "config.h"
#include "tiny/tokens.h"

#include <string.h>

#include "tiny/vocab.h"

void tiny_tokens(gguf_writer *w, const char *model, const char *pre, const tiny_token *token,
                 size_t n, const char *merges)
{
    rkv_text texts = {0}, types = {0}, scores = {0}, lines = {0};
    for (size_t i = 0; i < n; i++) {
        gguf_add_string(&texts, token[i].text, strlen(token[i].text));
        gguf_add_u32(&types, (uint32_t)token[i].type);
        gguf_add_f32(&scores, token[i].score);
    }
    gguf_key_string(w, "tokenizer.ggml.model", model);
    if (pre)
        gguf_key_string(w, "tokenizer.ggml.pre", pre);
    gguf_key_array(w, "tokenizer.ggml.tokens", RKV_GGUF_STRING, n, texts.data, texts.n);
    gguf_key_array(w, "tokenizer.ggml.token_type", RKV_GGUF_I32, n, types.data, types.n);
    if (!strcmp(model, "llama"))
        gguf_key_array(w, "tokenizer.ggml.scores", RKV_GGUF_F32, n, scores.data, scores.n);
    uint64_t n_merge = 0;
    for (const char *m = merges; m && *m; n_merge++) {
        const size_t len = strcspn(m, "\n");
        gguf_add_string(&lines, m, len);
        m += len + (m[len] == '\n');
    }
    if (merges)
        gguf_key_array(w, "tokenizer.ggml.merges", RKV_GGUF_STRING, n_merge, lines.data, lines.n);
    rkv_text_free(&texts);
    rkv_text_free(&types);
    rkv_text_free(&scores);
    rkv_text_free(&lines);
}

rkv_status tiny_tok_open(tiny_tok *t, gguf_writer *w, rkv_error *e)
{
    *t = (tiny_tok){0};
    gguf_file(w, &t->file);
    const int bad = t->file.bad || w->keys.bad;
    gguf_writer_free(w);
    rkv_status s = bad ? rkv_fail(e, RKV_E_MEM, "x.gguf: out of memory")
                       : rkv_gguf_open_memory(&t->gguf, t->file.data, t->file.n, "x.gguf", e);
    if (!s)
        s = rkv_tok_create(&t->tok, t->gguf, e);
    if (s)
        tiny_tok_close(t);
    return s;
}

void tiny_tok_close(tiny_tok *t)
{
    rkv_tok_free(t->tok);
    rkv_gguf_close(t->gguf);
    rkv_text_free(&t->file);
    *t = (tiny_tok){0};
}

rkv_status tiny_tok_made(tiny_tok *t, const char *tokenizer, const char *family, int n_vocab,
                         rkv_error *e)
{
    gguf_writer w = gguf_writer_init();
    const char *wrong = tiny_vocab(&w, tokenizer, family, n_vocab);
    if (!wrong)
        return tiny_tok_open(t, &w, e);
    gguf_writer_free(&w);
    *t = (tiny_tok){0};
    return rkv_fail(e, RKV_E_ARG, "%s", wrong);
}

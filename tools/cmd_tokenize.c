/* rkv tokenize: text to ids and back. */
#include "config.h"
#include "common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int encode(const opts *o, const rkv_model *m)
{
    char *text;
    size_t n, n_id;
    int32_t *ids;
    rkv_error e;
    const int bad = read_all(&text, &n, "-");
    if (bad)
        return bad;
    const unsigned flags = (o->bos ? RKV_TOK_BOS : 0) | (o->special ? RKV_TOK_SPECIAL : 0);
    const rkv_status s = rkv_tokenize(m, text, n, flags, &ids, &n_id, &e);
    free(text);
    if (s)
        return fail(&e);
    putchar('[');
    for (size_t i = 0; i < n_id; i++)
        printf("%s%d", i ? "," : "", ids[i]);
    puts("]");
    rkv_free(ids);
    return finish_stdout();
}

static int decode(const opts *o, const rkv_model *m)
{
    int32_t *ids;
    size_t n_id, n;
    char *text;
    rkv_error e;
    const int bad = read_ids(&ids, &n_id, "-");
    if (bad)
        return bad;
    const rkv_status s = rkv_detokenize(m, ids, n_id, o->special, &text, &n, &e);
    free(ids);
    if (s) {
        fail(&e);
        return EXIT_INPUT;                      /* ids are the input here, not an option */
    }
    const int code = print_text(o, text, n);
    rkv_free(text);
    return code;
}

int cmd_tokenize(const opts *o)
{
    rkv_model *m;
    rkv_error e;
    if (!o->model)
        return usage("name a model with -m");
    if (rkv_model_load_vocab(&m, o->model, &e))
        return fail(&e);
    const int code = o->decode ? decode(o, m) : encode(o, m);
    rkv_model_free(m);
    return code;
}

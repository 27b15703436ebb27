/* Somebody else's program: rkv.h and the library, nothing of this tree. Valid C11 and C++11.
 *   consumer MODEL.gguf     prints the ids of a text, then steps with the likeliest next token */
#include <rkv.h>
#include <stdio.h>
#include <string.h>

static int failed(const rkv_error *e)
{
    fprintf(stderr, "consumer: %s: %s\n", rkv_status_name(e->status), e->text);
    return 1;
}

static int32_t likeliest(const float *logits, int n)
{
    int32_t best = 0;
    for (int i = 1; i < n; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

static int answer(rkv_session *s, const rkv_model *m, rkv_error *e)
{
    const char *text = "hello world, once more";
    int32_t *ids;
    size_t n;
    if (rkv_tokenize(m, text, strlen(text), RKV_TOK_BOS, &ids, &n, e))
        return failed(e);
    for (size_t i = 0; i < n; i++)
        printf("%d ", (int)ids[i]);
    const rkv_status prefilled = rkv_session_prefill(s, ids, n, e);
    rkv_free(ids);
    if (prefilled)
        return failed(e);
    for (int step = 0; step < 8; step++) {
        const float *logits = rkv_session_logits(s);
        const int32_t id = likeliest(logits, rkv_model_get_info(m)->n_vocab);
        printf("\n%d %.9g", (int)id, (double)logits[id]);
        if (rkv_session_decode(s, id, e))
            return failed(e);
    }
    printf("\n%lld positions\n", (long long)rkv_session_n_past(s));
    return 0;
}

int main(int argc, char **argv)
{
    rkv_model *m;
    rkv_session *s;
    rkv_error e;
    if (argc != 2 || rkv_model_load(&m, argv[1], &e))
        return argc == 2 ? failed(&e) : 2;
    rkv_session_options o = rkv_session_options_default();
    o.n_ctx = 64;
    const int bad = rkv_session_create(&s, m, &o, &e) ? failed(&e) : answer(s, m, &e);
    if (!bad)
        rkv_session_free(s);
    rkv_model_free(m);
    return bad;
}

/* From a sample to token ids: the middle is cut out of what is too long, as LongBench does it (by
 * tokens, then as text again), and the chat template goes around what is left. */
#include "config.h"
#include "eval/measure.h"

#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "eval/made.h"

static rkv_status no_memory(rkv_error *e)
{
    return rkv_fail(e, RKV_E_MEM, "prompt: out of memory");
}

/* The text, or when it has more than most tokens the first and last most / 2 of them, as text. */
static rkv_status cut_middle(char **out, const char *text, size_t most, const rkv_model *m,
                             rkv_error *e)
{
    int32_t *ids = NULL;
    size_t n, n_head, n_tail;
    char *head = NULL, *tail = NULL;
    *out = NULL;
    RKV_TRY(rkv_tokenize(m, text, strlen(text), RKV_TOK_SPECIAL, &ids, &n, e));
    rkv_text t = {0};
    rkv_status s = RKV_OK;
    if (n <= most) {
        rkv_text_add(&t, text, strlen(text));
    } else {
        const size_t half = most / 2;
        s = rkv_detokenize(m, ids, half, 0, &head, &n_head, e);
        if (!s)
            s = rkv_detokenize(m, ids + n - half, half, 0, &tail, &n_tail, e);
        if (!s) {
            rkv_text_add(&t, head, n_head);
            rkv_text_add(&t, tail, n_tail);
        }
    }
    rkv_mem_free(ids);
    rkv_mem_free(head);
    rkv_mem_free(tail);
    if (s)
        rkv_text_free(&t);
    else if (!rkv_text_take(&t, out, NULL))
        s = no_memory(e);
    return s;
}

/* As a user's message in the model's chat template. */
static rkv_status wrap(char **out, const char *text, const rkv_model *m, rkv_error *e)
{
    rkv_text t = {0};
    char *json = NULL;
    rkv_text_printf(&t, "{\"add_generation_prompt\":true,\"messages\":[{\"role\":\"user\","
                        "\"content\":");
    rkv_text_json(&t, text, strlen(text));
    rkv_text_printf(&t, "}]}");
    if (!rkv_text_take(&t, &json, NULL))
        return no_memory(e);
    const rkv_status s = rkv_template_render(m, NULL, json, out, NULL, e);
    rkv_mem_free(json);
    return s;
}

/* Where the question of a sample begins in the text that was made of its prompt; NULL: not there.
 * The end of a question may have been trimmed by the template: its first bytes are looked for. */
static const char *find_question(const char *text, const rkv_sample *x)
{
    enum { ENOUGH = 48 };
    char start[ENOUGH + 1];
    const char *question = x->prompt + x->question, *found = NULL;
    size_t n = strlen(question);
    n = n < ENOUGH ? n : ENOUGH;
    while (n && strchr(" \n\r\t", question[n - 1]))
        n--;
    memcpy(start, question, n);
    start[n] = 0;
    for (const char *p = n ? strstr(text, start) : NULL; p; p = strstr(p + 1, start))
        found = p;
    return found;
}

static rkv_status to_ids(rkv_eval_prompt *p, const char *text, const rkv_sample *x, unsigned flags,
                         const rkv_model *m, const rkv_eval_options *o, rkv_error *e)
{
    const size_t n = strlen(text);
    const char *question = o->protocol == 'A' ? find_question(text, x) : NULL;
    if (o->protocol == 'A' && (!question || question == text))
        return rkv_fail(e, RKV_E_UNSUPPORTED, "sample '%.60s': protocol A needs to know where the "
                        "question begins; give 'context' and 'input', or use protocol Q", x->id);
    const size_t n_text = question ? (size_t)(question - text) : n;
    RKV_TRY(rkv_tokenize(m, text, n_text, flags, &p->ids, &p->n, e));
    if (question)
        RKV_TRY(rkv_tokenize(m, question, n - n_text, RKV_TOK_SPECIAL, &p->question,
                             &p->n_question, e));
    return p->n ? RKV_OK
                : rkv_fail(e, RKV_E_FORMAT, "sample '%.60s': the prompt has no token", x->id);
}

void rkv_eval_prompt_free(rkv_eval_prompt *p)
{
    rkv_mem_free(p->ids);
    rkv_mem_free(p->question);
    *p = (rkv_eval_prompt){0};
}

static int is_wrapped(const rkv_task *t, int raw, const rkv_model *m)
{
    return t->flags & RKV_TASK_CHAT && !raw && rkv_model_get_info(m)->chat_template;
}

rkv_status rkv_eval_prompt_count(size_t *n, const char *text, const rkv_task *t, int raw,
                                 const rkv_model *m, rkv_error *e)
{
    char *chat = NULL;
    int32_t *ids = NULL;
    const int wrapped = is_wrapped(t, raw, m);
    if (wrapped)
        RKV_TRY(wrap(&chat, text, m, e));
    const char *all = wrapped ? chat : text;
    const rkv_status s = rkv_tokenize(m, all, strlen(all),
                                      RKV_TOK_SPECIAL | (wrapped ? 0 : RKV_TOK_BOS), &ids, n, e);
    rkv_mem_free(chat);
    rkv_mem_free(ids);
    return s;
}

/* Prompt of at most `most` tokens of its own text. */
static rkv_status make(rkv_eval_prompt *p, const rkv_sample *x, size_t most, const rkv_model *m,
                       const rkv_eval_options *o, rkv_error *e)
{
    char *text = NULL, *chat = NULL;
    const int wrapped = is_wrapped(x->task, o->raw, m);
    rkv_eval_prompt_free(p);
    rkv_status s = cut_middle(&text, x->prompt, most, m, e);
    if (!s && wrapped)
        s = wrap(&chat, text, m, e);
    if (!s)             /* a template writes its own beginning */
        s = to_ids(p, wrapped ? chat : text, x, RKV_TOK_SPECIAL | (wrapped ? 0 : RKV_TOK_BOS), m, o,
                   e);
    rkv_mem_free(text);
    rkv_mem_free(chat);
    return s;
}

static rkv_status copy_ids(rkv_eval_prompt *p, const rkv_sample *x, size_t most,
                           const rkv_eval_options *o, rkv_error *e)
{
    if (o->protocol == 'A')
        return rkv_fail(e, RKV_E_UNSUPPORTED, "sample '%.60s': protocol A needs text, this is a "
                        "prompt of ids; use protocol Q", x->id);
    p->n = x->n_prompt_id < most ? x->n_prompt_id : most / 2 * 2;
    p->ids = rkv_mem_alloc(p->n * sizeof *p->ids);
    if (!p->ids)
        return no_memory(e);
    const size_t head = p->n == x->n_prompt_id ? p->n : p->n / 2, tail = p->n - head;
    memcpy(p->ids, x->prompt_ids, head * sizeof *p->ids);
    memcpy(p->ids + head, x->prompt_ids + x->n_prompt_id - tail, tail * sizeof *p->ids);
    return RKV_OK;
}

rkv_status rkv_eval_prompt_make(rkv_eval_prompt *p, const rkv_sample *x, const rkv_model *m,
                                const rkv_eval_options *o, rkv_error *e)
{
    const int n_ctx = o->n_ctx ? o->n_ctx : rkv_model_get_info(m)->n_ctx_train;
    int most = n_ctx - x->max_gen;
    *p = (rkv_eval_prompt){0};
    const int room = most;
    if (o->max_length && o->max_length < most)
        most = o->max_length;
    rkv_status s = most >= 2 ? RKV_OK : RKV_E_ARG;
    if (!s && x->prompt_ids)
        return copy_ids(p, x, (size_t)most, o, e);
    /* The template, and text that is cut into other tokens, come on top of the limit. */
    while (!s && !(s = make(p, x, (size_t)most, m, o, e))) {
        const int over = (int)(p->n + p->n_question) - room;
        if (over <= 0)
            return RKV_OK;
        most -= over + 1;
        if (most < 2)
            s = RKV_E_ARG;
    }
    rkv_eval_prompt_free(p);
    return s == RKV_E_ARG ? rkv_fail(e, s, "sample '%.60s': an answer of %d tokens leaves no room "
                                     "for a prompt in a context of %d", x->id, x->max_gen, n_ctx)
                          : s;
}

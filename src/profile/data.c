#include "config.h"
#include "profile/data.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"

static int blank(const char *line)
{
    return line[strspn(line, " \t\r")] == 0;
}

static rkv_status cut_lines(rkv_data *d, size_t n, rkv_error *e)
{
    size_t n_newline = 0;
    for (size_t i = 0; i < n; i++)
        n_newline += d->text[i] == '\n';
    d->line = rkv_mem_alloc((n_newline + 1) * sizeof *d->line);
    d->number = rkv_mem_alloc((n_newline + 1) * sizeof *d->number);
    if (!d->line || !d->number)
        return rkv_fail(e, RKV_E_MEM, "%s: out of memory for %zu lines", d->path, n_newline + 1);
    int number = 0;
    for (char *c = d->text; c < d->text + n;) {
        char *end = memchr(c, '\n', (size_t)(d->text + n - c));
        if (end)
            *end = 0;
        else
            end = d->text + n;
        number++;
        if (memchr(c, 0, (size_t)(end - c)))
            return rkv_fail(e, RKV_E_FORMAT, "%s: line %d: holds a NUL byte, expected JSON",
                            d->path, number);
        if (!blank(c)) {
            d->number[d->n_line] = number;
            d->line[d->n_line++] = c;
        }
        c = end + 1;
    }
    if (!d->n_line)
        return rkv_fail(e, RKV_E_FORMAT, "%s: no example in it; expected one JSON object per line",
                        d->path);
    return RKV_OK;
}

rkv_status rkv_data_load(rkv_data *d, const char *path, rkv_error *e)
{
    const size_t most = (size_t)1 << 30;
    size_t n;
    *d = (rkv_data){.path = rkv_mem_strdup(path)};
    rkv_status s = d->path ? RKV_OK : rkv_fail(e, RKV_E_MEM, "%s: out of memory", path);
    if (!s)
        s = rkv_json_read_file(&d->text, &n, path, most, e);
    if (!s) {
        rkv_hash h = rkv_hash_init();
        rkv_hash_add(&h, d->text, n);
        d->hash = rkv_hash_end(&h);
        s = cut_lines(d, n, e);
    }
    if (s)
        rkv_data_free(d);
    return s;
}

void rkv_data_free(rkv_data *d)
{
    rkv_mem_free(d->path);
    rkv_mem_free(d->text);
    rkv_mem_free(d->line);
    rkv_mem_free(d->number);
    *d = (rkv_data){0};
}

void rkv_example_free(rkv_example *x)
{
    rkv_mem_free(x->prompt);
    rkv_mem_free(x->response);
    *x = (rkv_example){0};
}

static rkv_status read_prompt(rkv_example *x, const cJSON *root, const rkv_model *m,
                              const char *where, rkv_error *e)
{
    const cJSON *array;
    const char *text;
    if (rkv_json_has(root, "prompt_ids")) {
        RKV_TRY(rkv_json_array(&array, root, "prompt_ids", where, e));
        return rkv_json_ids(&x->prompt, &x->n_prompt, array, rkv_model_get_info(m)->n_vocab, where,
                            e);
    }
    if (!rkv_json_has(root, "prompt"))
        return rkv_fail(e, RKV_E_FORMAT, "%s: neither 'prompt' nor 'prompt_ids' in the object",
                        where);
    RKV_TRY(rkv_json_string(&text, root, "prompt", where, e));
    return rkv_tokenize(m, text, strlen(text), RKV_TOK_BOS | RKV_TOK_SPECIAL, &x->prompt,
                        &x->n_prompt, e);
}

static rkv_status read_response(rkv_example *x, const cJSON *root, const rkv_model *m,
                                const char *where, rkv_error *e)
{
    const cJSON *array;
    if (rkv_json_has(root, "response_ids")) {
        RKV_TRY(rkv_json_array(&array, root, "response_ids", where, e));
        return rkv_json_ids(&x->response, &x->n_response, array, rkv_model_get_info(m)->n_vocab,
                            where, e);
    }
    RKV_TRY(rkv_json_array(&array, root, "answers", where, e));
    if (!cJSON_IsString(array->child))
        return rkv_fail(e, RKV_E_FORMAT, "%s: key 'answers' has no text as its first element",
                        where);
    const char *text = array->child->valuestring;
    return rkv_tokenize(m, text, strlen(text), 0, &x->response, &x->n_response, e);
}

rkv_status rkv_data_example(rkv_example *x, const rkv_data *d, int i, const rkv_model *m,
                            int want_response, rkv_error *e)
{
    char where[300];
    cJSON *root;
    snprintf(where, sizeof where, "%.200s: line %d", d->path, d->number[i]);
    *x = (rkv_example){0};
    RKV_TRY(rkv_json_parse(&root, d->line[i], strlen(d->line[i]), where, e));
    rkv_status s = RKV_OK;
    if (!cJSON_IsObject(root))
        s = rkv_fail(e, RKV_E_FORMAT, "%s: expected a JSON object", where);
    if (!s)
        s = read_prompt(x, root, m, where, e);
    if (!s && want_response)
        s = read_response(x, root, m, where, e);
    if (!s && x->n_prompt == 0)
        s = rkv_fail(e, RKV_E_FORMAT, "%s: the prompt is empty", where);
    cJSON_Delete(root);
    if (s)
        rkv_example_free(x);
    else
        rkv_log(RKV_LOG_DEBUG, "%s: a prompt of %zu tokens", where, x->n_prompt);
    return s;
}

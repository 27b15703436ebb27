/* rkv select: which prompt tokens a policy keeps. */
#include "config.h"
#include "common.h"

#include <stdio.h>
#include <stdlib.h>

static cJSON *describe_layer(const rkv_session *s, const rkv_model *m, int l)
{
    const int n_head = rkv_model_get_info(m)->n_kv_head;
    double total = 0.0;
    for (int h = 0; h < n_head; h++)
        total += rkv_session_head_budget(s, l, h);
    cJSON *layer = cJSON_CreateObject();
    cJSON_AddNumberToObject(layer, "layer", l);
    cJSON_AddNumberToObject(layer, "budget", total / n_head);   /* the mean of its heads */
    if (rkv_model_layer_is_sliding(m, l))
        cJSON_AddTrueToObject(layer, "sliding");
    cJSON *heads = cJSON_AddArrayToObject(layer, "heads");
    for (int h = 0; h < n_head; h++) {
        const int32_t *pos = NULL;
        const int n = rkv_session_kept(s, l, h, &pos);
        cJSON *head = cJSON_CreateObject();
        cJSON_AddNumberToObject(head, "budget", rkv_session_head_budget(s, l, h));
        cJSON_AddItemToObject(head, "kept", cJSON_CreateIntArray((const int *)pos, n));
        cJSON_AddItemToArray(heads, head);
    }
    return layer;
}

static int print(const rkv_session *s, const rkv_model *m, const rkv_policy *p)
{
    const rkv_kv_info kv = rkv_session_kv_info(s);
    cJSON *root = cJSON_CreateObject(), *layers = cJSON_AddArrayToObject(root, "layers");
    for (int l = 0; l < rkv_model_get_info(m)->n_layer; l++)
        cJSON_AddItemToArray(layers, describe_layer(s, m, l));
    cJSON_AddNumberToObject(root, "total", (double)kv.n_kept);
    cJSON_AddNumberToObject(root, "cap", kv.cap);
    cJSON_AddNumberToObject(root, "prompt_tokens", (double)kv.n_prompt);
    cJSON_AddNumberToObject(root, "kv_bytes", (double)kv.bytes);
    cJSON_AddNumberToObject(root, "kv_bytes_full", (double)kv.bytes_full);
    cJSON_AddStringToObject(root, "selector", p->selector);
    cJSON_AddStringToObject(root, "allocator", p->allocator);
    return json_print(root);
}

static int run(const opts *o, const rkv_model *m, const rkv_policy *p, const int32_t *ids, size_t n)
{
    rkv_error e;
    rkv_session *s;
    rkv_session_options so = session_options(o, p);
    if (!so.n_ctx)
        so.n_ctx = (int)n;
    catch_signals();
    if (rkv_session_create(&s, m, &so, &e))
        return fail(&e);
    const int code = rkv_session_prefill(s, ids, n, &e) ? fail(&e) : print(s, m, p);
    rkv_session_free(s);
    return code;
}

int cmd_select(const opts *o)
{
    rkv_policy policy;
    rkv_profile *profile = NULL;
    rkv_model *m = NULL;
    int32_t *ids = NULL;
    size_t n = 0;
    if (!o->ids)
        return usage("select: name the token ids with --ids FILE");
    int code = read_policy(&policy, &profile, o);
    if (!code)
        code = read_ids(&ids, &n, o->ids);
    if (!code)
        code = load_model(&m, o);
    if (!code)
        code = check_ids(ids, n, o->ids, m);
    if (!code)
        code = run(o, m, &policy, ids, n);
    rkv_model_free(m);
    rkv_profile_free(profile);
    free(ids);
    return code;
}

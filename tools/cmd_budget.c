/* rkv budget: the allocator's arithmetic alone, from a profile. */
#include "config.h"
#include "common.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int print(const opts *o, const int *budget, const uint8_t *skip, int n_layer, int cap)
{
    double total = 0.0;
    for (int l = 0; l < n_layer; l++)
        total += skip[l] ? 0 : budget[l];
    if (!o->json) {
        puts("layer  tokens per KV head");
        for (int l = 0; l < n_layer; l++)
            if (!skip[l])
                printf("%5d  %d\n", l, budget[l]);
        printf("total  %.0f (mean %d)\n", total, cap);
        return finish_stdout();
    }
    cJSON *root = cJSON_CreateObject(), *layers = cJSON_AddArrayToObject(root, "layers");
    for (int l = 0; l < n_layer; l++) {
        if (skip[l])
            continue;
        cJSON *x = cJSON_CreateObject();
        cJSON_AddNumberToObject(x, "layer", l);
        cJSON_AddNumberToObject(x, "budget", budget[l]);
        cJSON_AddItemToArray(layers, x);
    }
    cJSON_AddNumberToObject(root, "total", total);
    cJSON_AddNumberToObject(root, "cap", cap);
    cJSON_AddNumberToObject(root, "prompt_tokens", o->n_ctx);
    return json_print(root);
}

static int run(const opts *o, const rkv_policy *p)
{
    rkv_error e;
    const int n_layer = p->profile ? rkv_profile_n_layer(p->profile) : o->layers;
    int *budget = malloc((size_t)n_layer * sizeof *budget), cap = 0;
    uint8_t *skip = malloc((size_t)n_layer);
    int code = budget && skip ? 0 : no_memory("budget");
    for (int l = 0; !code && l < n_layer; l++)
        skip[l] = p->profile && isnan(rkv_profile_sensitivity(p->profile, l));
    if (!code && rkv_budget_layers(budget, &cap, p, n_layer, skip, o->n_ctx, 0.0, &e))
        code = fail(&e);
    if (!code)
        code = print(o, budget, skip, n_layer, cap);
    free(budget);
    free(skip);
    return code;
}

/* Layers come from the profile or, for an allocator that looks at none, by their number. */
static int check_layers(const opts *o, const rkv_policy *p)
{
    if (!p->profile && strcmp(p->allocator, "uniform"))
        return usage("budget: name a profile with --kv-profile FILE");
    if (!p->profile && !o->layers)
        return usage("budget: give the number of layers with --layers N, or a profile");
    if (p->profile && o->layers && o->layers != rkv_profile_n_layer(p->profile))
        return usage("budget: --layers %d, but the profile has %d", o->layers,
                     rkv_profile_n_layer(p->profile));
    return 0;
}

int cmd_budget(const opts *o)
{
    rkv_policy policy;
    rkv_profile *profile = NULL;
    opts with = *o;
    if (!o->kv_profile && !o->kv_policy)
        return usage("budget: name a profile with --kv-profile FILE");
    if (!o->kv_budget)
        return usage("budget: name a budget with --kv-budget, such as 20%%");
    if (!o->n_ctx)
        return usage("budget: give the prompt's length in tokens with -c");
    if (!o->kv_policy)
        with.kv_policy = "ripple";
    int code = read_policy(&policy, &profile, &with);
    if (!code && policy.budget_kind == RKV_BUDGET_BYTES)
        code = usage(
            "budget: bytes need a model to turn into tokens; give a share (20%%) or tokens (4096)");
    if (!code)
        code = check_layers(o, &policy);
    if (!code)
        code = run(o, &policy);
    rkv_profile_free(profile);
    return code;
}

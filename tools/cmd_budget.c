/* rkv budget: the allocator's arithmetic alone, from a profile. */
#include "config.h"
#include "common.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct budgets {
    int n_layer, n_kv_head, cap;
    int *of;                    /* [n_layer][n_kv_head] */
    uint8_t *skip;              /* [n_layer] */
} budgets;

/* Sum of layer l's heads; *differ: not all are the same. */
static double layer_total(const budgets *b, int l, int *differ)
{
    const int *of = b->of + (ptrdiff_t)l * b->n_kv_head;
    double total = 0.0;
    *differ = 0;
    for (int h = 0; h < b->n_kv_head; h++) {
        total += of[h];
        *differ |= of[h] != of[0];
    }
    return total;
}

static void print_line(const budgets *b, int l)
{
    int differ;
    layer_total(b, l, &differ);
    printf("%5d ", l);
    for (int h = 0; h < (differ ? b->n_kv_head : 1); h++)
        printf(" %d", b->of[(ptrdiff_t)l * b->n_kv_head + h]);
    putchar('\n');
}

static cJSON *describe(const budgets *b, int l)
{
    int differ;
    cJSON *x = cJSON_CreateObject();
    cJSON_AddNumberToObject(x, "layer", l);
    cJSON_AddNumberToObject(x, "budget", layer_total(b, l, &differ) / b->n_kv_head);
    if (differ)
        cJSON_AddItemToObject(x, "budgets",
                              cJSON_CreateIntArray(b->of + (ptrdiff_t)l * b->n_kv_head,
                                                   b->n_kv_head));
    return x;
}

static int print(const opts *o, const budgets *b)
{
    double total = 0.0;
    int differ;
    for (int l = 0; l < b->n_layer; l++)
        total += b->skip[l] ? 0.0 : layer_total(b, l, &differ);
    total /= b->n_kv_head;                      /* whole: the sum is exact */
    if (!o->json) {
        puts("layer  tokens per KV head");
        for (int l = 0; l < b->n_layer; l++)
            if (!b->skip[l])
                print_line(b, l);
        printf("total  %.0f (mean %d)\n", total, b->cap);
        return finish_stdout();
    }
    cJSON *root = cJSON_CreateObject(), *layers = cJSON_AddArrayToObject(root, "layers");
    for (int l = 0; l < b->n_layer; l++)
        if (!b->skip[l])
            cJSON_AddItemToArray(layers, describe(b, l));
    cJSON_AddNumberToObject(root, "total", total);
    cJSON_AddNumberToObject(root, "cap", b->cap);
    cJSON_AddNumberToObject(root, "prompt_tokens", o->n_ctx);
    return json_print(root);
}

static int run(const opts *o, const rkv_policy *p)
{
    rkv_error e;
    budgets b = {.n_layer = p->profile ? rkv_profile_n_layer(p->profile) : o->layers,
                 .n_kv_head = p->profile ? rkv_profile_n_kv_head(p->profile)
                              : p->budgets ? rkv_budgets_n_kv_head(p->budgets) : 0};
    if (!b.n_layer)
        b.n_layer = rkv_budgets_n_layer(p->budgets);
    if (!b.n_kv_head)           /* not known: budgets are per layer then */
        b.n_kv_head = 1;
    b.of = malloc((size_t)b.n_layer * (size_t)b.n_kv_head * sizeof *b.of);
    b.skip = malloc((size_t)b.n_layer);
    int code = b.of && b.skip ? 0 : no_memory("budget");
    for (int l = 0; !code && l < b.n_layer; l++)
        b.skip[l] = p->profile && isnan(rkv_profile_sensitivity(p->profile, l));
    if (!code && rkv_budget_heads(b.of, &b.cap, p, b.n_layer, b.n_kv_head, b.skip, o->n_ctx, 0.0,
                                  &e))
        code = fail(&e);
    if (!code)
        code = print(o, &b);
    free(b.of);
    free(b.skip);
    return code;
}

/* Layers come from the profile or, for an allocator that looks at none, by their number. */
static int check_layers(const opts *o, const rkv_policy *p)
{
    if (!p->profile && !p->budgets && !o->layers)
        return usage("budget: name a profile with --kv-profile FILE, or give the number of layers "
                     "with --layers N");
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

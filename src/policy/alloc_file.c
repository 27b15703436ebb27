/* Budgets of the user's own, scaled to the budget that is asked for: rkv.h, rkv_budgets_load. */
#include "config.h"
#include "policy/policy.h"

#include <string.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"

enum { MAX_LAYER = 4096, MAX_HEAD = 4096, MAX_FILE = 64 << 20 };

struct rkv_budgets {
    int n_layer;                /* one more than the last in the file */
    int n_kv_head;              /* 0: every layer has one number */
    int count[MAX_LAYER];       /* numbers of a layer; 0: not in the file */
    double *of[MAX_LAYER];      /* [count] */
};

void rkv_budgets_free(rkv_budgets *b)
{
    for (int l = 0; b && l < b->n_layer; l++)
        rkv_mem_free(b->of[l]);
    rkv_mem_free(b);
}

int rkv_budgets_by_head(const rkv_budgets *b)
{
    return b->n_kv_head > 0;
}

uint64_t rkv_budgets_hash(const rkv_budgets *b)
{
    rkv_hash h = rkv_hash_init();
    for (int l = 0; b && l < b->n_layer; l++) {
        rkv_hash_add(&h, &b->count[l], sizeof b->count[l]);
        if (b->count[l])
            rkv_hash_add(&h, b->of[l], (size_t)b->count[l] * sizeof *b->of[l]);
    }
    return b ? rkv_hash_end(&h) : 0;
}

int rkv_budgets_n_layer(const rkv_budgets *b)
{
    return b->n_layer;
}

int rkv_budgets_n_kv_head(const rkv_budgets *b)
{
    return b->n_kv_head;
}

static rkv_status check_number(double v, int l, const char *source, rkv_error *e)
{
    if (v > 0.0 && v <= 1e12)
        return RKV_OK;
    return rkv_fail(e, RKV_E_FORMAT, "%s: a budget of layer %d is %g, expected a positive number "
                    "of at most 1e12", source, l, v);
}

/* Numbers of one layer that the file has not named before. */
static rkv_status parse_heads(rkv_budgets *b, const cJSON *x, int l, const char *source,
                              rkv_error *e)
{
    const cJSON *array;
    RKV_TRY(rkv_json_array(&array, x, "budgets", source, e));
    const int n = cJSON_GetArraySize(array);
    if (n < 1 || n > MAX_HEAD || (b->n_kv_head && n != b->n_kv_head))
        return rkv_fail(e, RKV_E_FORMAT, "%s: layer %d has budgets of %d KV heads, expected %d",
                        source, l, n, b->n_kv_head ? b->n_kv_head : 1);
    b->of[l] = rkv_mem_alloc((size_t)n * sizeof *b->of[l]);
    if (!b->of[l])
        return rkv_fail(e, RKV_E_MEM, "%s: out of memory", source);
    b->n_kv_head = b->count[l] = n;
    const cJSON *v = array->child;
    for (int h = 0; h < n; h++, v = v->next) {
        if (!cJSON_IsNumber(v))
            return rkv_fail(e, RKV_E_FORMAT, "%s: a budget of layer %d is not a number", source, l);
        b->of[l][h] = v->valuedouble;
        RKV_TRY(check_number(v->valuedouble, l, source, e));
    }
    return RKV_OK;
}

static rkv_status parse_layer(rkv_budgets *b, const cJSON *x, const char *source, rkv_error *e)
{
    int l;
    RKV_TRY(rkv_json_int(&l, x, "layer", 0, MAX_LAYER - 1, source, e));
    if (b->count[l])
        return rkv_fail(e, RKV_E_FORMAT, "%s: layer %d has two budgets", source, l);
    b->n_layer = l < b->n_layer ? b->n_layer : l + 1;
    if (rkv_json_has(x, "budgets"))
        return parse_heads(b, x, l, source, e);
    b->of[l] = rkv_mem_alloc(sizeof *b->of[l]);
    if (!b->of[l])
        return rkv_fail(e, RKV_E_MEM, "%s: out of memory", source);
    b->count[l] = 1;
    RKV_TRY(rkv_json_number(b->of[l], x, "budget", 0.0, 1e12, source, e));
    return check_number(*b->of[l], l, source, e);
}

rkv_status rkv_budgets_parse(rkv_budgets **out, const char *text, size_t n, const char *source,
                             rkv_error *e)
{
    cJSON *root = NULL;
    const cJSON *layers;
    rkv_budgets *b = NULL;
    RKV_TRY(rkv_json_parse(&root, text, n, source, e));
    rkv_status s = rkv_json_array(&layers, root, "layers", source, e);
    if (!s && !(b = rkv_mem_calloc(1, sizeof *b)))
        s = rkv_fail(e, RKV_E_MEM, "%s: out of memory", source);
    for (const cJSON *x = s ? NULL : layers->child; !s && x; x = x->next)
        s = parse_layer(b, x, source, e);
    if (!s && !b->n_layer)
        s = rkv_fail(e, RKV_E_FORMAT, "%s: 'layers' is empty", source);
    cJSON_Delete(root);
    if (s)
        rkv_budgets_free(b);
    else
        *out = b;
    return s;
}

rkv_status rkv_budgets_load(rkv_budgets **out, const char *path, rkv_error *e)
{
    char *text = NULL;
    size_t n;
    RKV_TRY(rkv_json_read_file(&text, &n, path, MAX_FILE, e));
    const rkv_status s = rkv_budgets_parse(out, text, n, path, e);
    rkv_mem_free(text);
    return s;
}

/* What the file says about a unit; all heads alike: their mean. */
static double number_of(const rkv_budgets *b, rkv_unit u)
{
    const int n = b->count[u.layer];
    double sum = 0.0;
    if (n == 1 || u.head >= 0)
        return b->of[u.layer][n == 1 ? 0 : u.head];
    for (int h = 0; h < n; h++)
        sum += b->of[u.layer][h];
    return sum / n;
}

static rkv_status weights(double *w, const rkv_division *d, rkv_error *e)
{
    const rkv_budgets *b = d->p->budgets;
    if (b->n_kv_head && b->n_kv_head != d->n_kv_head)
        return rkv_fail(e, RKV_E_MISMATCH, "policy: the budgets file has %d KV heads, the model %d",
                        b->n_kv_head, d->n_kv_head);
    for (int u = 0; u < d->n; u++) {
        const int l = d->unit[u].layer;
        if (l >= b->n_layer || !b->count[l])
            return rkv_fail(e, RKV_E_MISMATCH, "policy: the budgets file has none for layer %d", l);
        w[u] = number_of(b, d->unit[u]);
    }
    return RKV_OK;
}

const rkv_allocator rkv_allocator_file = {
    .name = "file", .needs_budgets = 1, .by_head = 1, .weights = weights,
};

/* A table as a file: what one of several machines measured, and all of them put together. Numbers
 * are written so that reading gives the same doubles. */
#include "config.h"
#include "profile/table.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"

enum { MAX_BYTES = 1 << 30, MAX_EXAMPLE = 1 << 28, MAX_SHARD = 1 << 20 };

static const char format[] = "ripplekv-profile-shard";
static const char *const state_name[] = {
    [RKV_EXAMPLE_NEW] = "", [RKV_EXAMPLE_USED] = "used",
    [RKV_EXAMPLE_SHORT] = "short answer", [RKV_EXAMPLE_LONG] = "long prompt",
};
enum { N_STATE = sizeof state_name / sizeof *state_name };

/* ---- writing ---- */

static void print_row(rkv_text *t, const rkv_table *table, int i)
{
    const rkv_measured *row = &table->row[i];
    const rkv_plan *p = &table->plan;
    rkv_text_printf(t, "    {\"example\": %d, \"state\": \"%s\"", i, state_name[row->state]);
    if (row->state == RKV_EXAMPLE_USED) {
        const size_t n = (size_t)p->n_item, stride = sizeof *row->out / sizeof(double);
        rkv_text_printf(t, ", \"fed\": %d", row->n_fed);
        rkv_profile_print_numbers(t, "kl", &row->out->kl, stride, n);
        rkv_profile_print_numbers(t, "local", &row->out->local, stride, n);
        rkv_profile_print_numbers(t, "error", row->error, 1, p->n_error);
    }
    rkv_text_printf(t, "}");
}

/* All members but the last: their sum. */
static void print_members(rkv_text *t, const rkv_table *table)
{
    const char *separator = "";
    rkv_text_printf(t, "{\n");
    rkv_profile_print_head(t, table->head, format);
    rkv_text_printf(t, ",\n  \"shard\": {\"index\": %d, \"count\": %d, \"examples\": %d, "
                    "\"layers\": [", table->shard, table->n_shard, table->n_example);
    for (int l = 0; l < table->head->n_layer; l++)
        if (table->head->sensitivity[l].in_budget) {
            rkv_text_printf(t, "%s%d", separator, l);
            separator = ", ";
        }
    rkv_text_printf(t, "]},\n  \"rows\": [");
    separator = "\n";
    for (int i = 0; i < table->n_example; i++)
        if (rkv_table_has(table, i)) {
            rkv_text_printf(t, "%s", separator);
            print_row(t, table, i);
            separator = ",\n";
        }
    rkv_text_printf(t, "\n  ]");
}

/* Of the members' text, which is the same whenever the numbers are. */
static void print_sum(char out[17], const rkv_text *t)
{
    rkv_hash h = rkv_hash_init();
    rkv_hash_add(&h, t->data, t->n);
    snprintf(out, 17, "%016llx", (unsigned long long)rkv_hash_end(&h));
}

rkv_status rkv_table_print(const rkv_table *table, char **text, size_t *n, rkv_error *e)
{
    rkv_text t = {0};
    char sum[17] = "";
    print_members(&t, table);
    if (!t.bad)
        print_sum(sum, &t);
    rkv_text_printf(&t, ",\n  \"sum\": \"%s\"\n}\n", sum);
    if (!rkv_text_take(&t, text, n))
        return rkv_fail(e, RKV_E_MEM, "profile: out of memory for %d examples", table->n_example);
    return RKV_OK;
}

rkv_status rkv_table_save(const rkv_table *t, const char *path, rkv_error *e)
{
    char *text;
    size_t n;
    RKV_TRY(rkv_table_print(t, &text, &n, e));
    const rkv_status s = rkv_file_replace(path, text, n, e);
    rkv_mem_free(text);
    return s;
}

/* ---- reading ---- */

/* An array of n numbers; NaN for null. stride: bytes from one to the next. */
static rkv_status parse_numbers(double *out, size_t stride, size_t n, const cJSON *row,
                                const char *key, const char *source, rkv_error *e)
{
    const cJSON *array;
    size_t i = 0;
    RKV_TRY(rkv_json_array(&array, row, key, source, e));
    for (const cJSON *v = array->child; v && i < n; v = v->next, i++)
        *(double *)(void *)((char *)out + i * stride) =
            cJSON_IsNumber(v) ? v->valuedouble : (double)NAN;
    if (i == n && (size_t)cJSON_GetArraySize(array) == n)
        return RKV_OK;
    return rkv_fail(e, RKV_E_FORMAT, "%s: key '%s' has %d numbers, expected %zu", source, key,
                    cJSON_GetArraySize(array), n);
}

static rkv_status parse_row(rkv_table *t, const cJSON *x, const char *source, rkv_error *e)
{
    const char *word;
    const rkv_plan *p = &t->plan;
    int i, state = RKV_EXAMPLE_USED;
    RKV_TRY(rkv_json_int(&i, x, "example", 0, t->n_example - 1, source, e));
    RKV_TRY(rkv_json_string(&word, x, "state", source, e));
    rkv_measured *row = &t->row[i];
    while (state < N_STATE && strcmp(word, state_name[state]))
        state++;
    if (state == N_STATE || row->state || !rkv_table_has(t, i))
        return rkv_fail(e, RKV_E_FORMAT, "%s: example %d: state '%.40s', %s", source, i, word,
                        state == N_STATE ? "which is none"
                        : row->state     ? "but it is there twice"
                                         : "but it is of another shard");
    row->state = (enum rkv_example_state)state;
    if (state != RKV_EXAMPLE_USED)
        return RKV_OK;
    RKV_TRY(rkv_json_int(&row->n_fed, x, "fed", RKV_MIN_RESPONSE, t->head->n_response, source, e));
    RKV_TRY(rkv_measured_alloc(row, p, e));
    RKV_TRY(parse_numbers(&row->out->kl, sizeof *row->out, (size_t)p->n_item, x, "kl", source, e));
    RKV_TRY(parse_numbers(&row->out->local, sizeof *row->out, (size_t)p->n_item, x, "local",
                          source, e));
    RKV_TRY(parse_numbers(row->error, sizeof *row->error, p->n_error, x, "error", source, e));
    if (!rkv_measured_valid(row, p))
        return rkv_fail(e, RKV_E_FORMAT, "%s: example %d: a number is missing or below 0", source,
                        i);
    return RKV_OK;
}

static rkv_status parse_layers(rkv_profile *head, const cJSON *shard, const char *source,
                               rkv_error *e)
{
    const cJSON *array;
    RKV_TRY(rkv_json_array(&array, shard, "layers", source, e));
    for (const cJSON *v = array->child; v; v = v->next) {
        const double l = cJSON_IsNumber(v) ? v->valuedouble : -1.0;
        if (!(l >= 0.0 && l < head->n_layer && l == floor(l)))
            return rkv_fail(e, RKV_E_FORMAT, "%s: key 'layers' holds %g, expected 0 to %d", source,
                            l, head->n_layer - 1);
        head->sensitivity[(int)l].in_budget = 1;
    }
    return RKV_OK;
}

/* Everything but the rows. */
static rkv_status parse_frame(rkv_table **out, const cJSON *root, const char *source, rkv_error *e)
{
    const cJSON *shard;
    int index, count, n_example = 0;
    rkv_profile *head = rkv_mem_calloc(1, sizeof *head);
    if (!head)
        return rkv_fail(e, RKV_E_MEM, "%s: out of memory", source);
    rkv_status s = rkv_profile_parse_head(head, root, format, source, e);
    if (!s && (!head->n_kv_head || !head->n_grid || !head->n_head_grid))
        s = rkv_fail(e, RKV_E_FORMAT, "%s: settings without heads or grids", source);
    if (!s)
        s = rkv_json_get(&shard, root, "shard", source, e);
    if (!s)
        s = parse_layers(head, shard, source, e);
    if (!s)
        s = rkv_json_int(&count, shard, "count", 1, MAX_SHARD, source, e);
    if (!s)
        s = rkv_json_int(&index, shard, "index", 1, count, source, e);
    if (!s)
        s = rkv_json_int(&n_example, shard, "examples", 1, MAX_EXAMPLE, source, e);
    if (s) {
        rkv_profile_free(head);
        return s;
    }
    RKV_TRY(rkv_table_create(out, head, n_example, e));
    (*out)->shard = index;
    (*out)->n_shard = count;
    return RKV_OK;
}

static rkv_status parse_rows(rkv_table *t, const cJSON *root, const char *source, rkv_error *e)
{
    const cJSON *array;
    RKV_TRY(rkv_json_array(&array, root, "rows", source, e));
    for (const cJSON *x = array->child; x; x = x->next)
        RKV_TRY(parse_row(t, x, source, e));
    for (int i = 0; i < t->n_example; i++)
        if (rkv_table_has(t, i) && !t->row[i].state)
            return rkv_fail(e, RKV_E_FORMAT, "%s: example %d is missing", source, i);
    return RKV_OK;
}

static rkv_status check_sum(const rkv_table *t, const cJSON *root, const char *source, rkv_error *e)
{
    const char *word;
    char sum[17] = "";
    rkv_text again = {0};
    RKV_TRY(rkv_json_string(&word, root, "sum", source, e));
    print_members(&again, t);
    rkv_status s = RKV_OK;
    if (again.bad)
        s = rkv_fail(e, RKV_E_MEM, "%s: out of memory", source);
    else
        print_sum(sum, &again);
    if (!s && strcmp(word, sum))
        s = rkv_fail(e, RKV_E_FORMAT, "%s: key 'sum' is '%.16s', the numbers give '%s': the file "
                     "is damaged", source, word, sum);
    rkv_text_free(&again);
    return s;
}

rkv_status rkv_table_parse(rkv_table **out, const char *text, size_t n, const char *source,
                           rkv_error *e)
{
    cJSON *root;
    rkv_table *t = NULL;
    RKV_TRY(rkv_json_parse(&root, text, n, source, e));
    rkv_status s = parse_frame(&t, root, source, e);
    if (!s)
        s = parse_rows(t, root, source, e);
    if (!s)
        s = check_sum(t, root, source, e);
    cJSON_Delete(root);
    if (s) {
        rkv_table_free(t);
        return s;
    }
    *out = t;
    return RKV_OK;
}

static rkv_status load(rkv_table **out, const char *path, rkv_error *e)
{
    char *text;
    size_t n;
    RKV_TRY(rkv_json_read_file(&text, &n, path, MAX_BYTES, e));
    const rkv_status s = rkv_table_parse(out, text, n, path, e);
    rkv_mem_free(text);
    return s;
}

/* ---- putting together ---- */

/* Bytes of a value in text, as far as it goes into a message. */
static int value_length(const char *v)
{
    enum { MOST = 60 };
    const char *end = *v == '"' || *v == '[' ? strchr(v + 1, *v == '[' ? ']' : '"') : NULL;
    const size_t n = end ? (size_t)(end + 1 - v) : strcspn(v, ",}\n");
    return n < MOST ? (int)n : MOST;
}

/* Past the closing quote of the last key that ends before byte i of JSON; 0: there is none. */
static size_t key_end(const char *text, size_t i)
{
    while (i > 1 && (text[i - 1] != '"' || text[i] != ':'))
        i--;
    return i > 1 ? i : 0;
}

/* The member of text a, a head as JSON, in which b first differs, and its two values. */
static void differing_member(char *out, size_t n, const char *a, const char *b)
{
    size_t same = 0;
    while (a[same] && a[same] == b[same])
        same++;
    const size_t end = key_end(a, same);
    if (!end) {
        snprintf(out, n, "'format'");
        return;
    }
    size_t start = end - 1;
    while (start > 0 && a[start - 1] != '"')
        start--;
    const int length = (int)(end - 1 - start);
    const char *key = a + start, *x = a + end + 2, *y = b + end + 2;    /* past ": " */
    const int is_name = length == 4 && !memcmp(key, "name", 4);
    const int is_tier = length == 4 && !memcmp(key, "tier", 4);
    snprintf(out, n, "'%.*s' (%.*s and %.*s)%s", is_name ? 5 : length, is_name ? "model" : key,
             value_length(x), x, value_length(y), y,
             is_tier ? "; measure all parts with RKV_CPU= the weakest CPU's" : "");
}

static rkv_status check_alike(const rkv_table *a, const rkv_table *b, const char *path_a,
                              const char *path_b, rkv_error *e)
{
    char key[320] = "";
    rkv_text x = {0}, y = {0};
    rkv_profile_print_head(&x, a->head, format);
    rkv_profile_print_head(&y, b->head, format);
    rkv_status s = RKV_OK;
    if (x.bad || y.bad)
        s = rkv_fail(e, RKV_E_MEM, "%s: out of memory", path_b);
    else if (strcmp(x.data, y.data))
        differing_member(key, sizeof key, x.data, y.data);
    else if (a->n_shard != b->n_shard)
        snprintf(key, sizeof key, "'count'");
    else if (a->n_example != b->n_example)
        snprintf(key, sizeof key, "'examples'");
    for (int l = 0; !s && !*key && l < a->head->n_layer; l++)
        if (a->head->sensitivity[l].in_budget != b->head->sensitivity[l].in_budget)
            snprintf(key, sizeof key, "'layers'");
    if (!s && *key)
        s = rkv_fail(e, RKV_E_MISMATCH,
                     "%.150s and %.150s are no shards of one profile: they differ in %s", path_a,
                     path_b, key);
    rkv_text_free(&x);
    rkv_text_free(&y);
    return s;
}

/* Moves the rows of part[at] into part[0]. */
static rkv_status take_rows(rkv_table **part, const char *const *name, int at, int *part_of_shard,
                            rkv_error *e)
{
    rkv_table *t = part[0], *from = part[at];
    int *first = &part_of_shard[from->shard - 1];
    if (*first)
        return rkv_fail(e, RKV_E_MISMATCH, "shard %d of %d is there twice: %.150s and %.150s",
                        from->shard, from->n_shard, name[*first - 1], name[at]);
    *first = at + 1;
    for (int i = 0; at && i < t->n_example; i++)
        if (rkv_table_has(from, i)) {
            t->row[i] = from->row[i];
            from->row[i] = (rkv_measured){0};
        }
    return RKV_OK;
}

rkv_status rkv_table_join(rkv_table **part, const char *const *name, int n, rkv_error *e)
{
    const int n_shard = part[0]->n_shard;
    int *part_of_shard = rkv_mem_calloc((size_t)n_shard, sizeof *part_of_shard);
    rkv_status s = part_of_shard ? RKV_OK : rkv_fail(e, RKV_E_MEM, "merge: out of memory");
    for (int i = 0; !s && i < n; i++) {
        s = check_alike(part[0], part[i], name[0], name[i], e);
        if (!s)
            s = take_rows(part, name, i, part_of_shard, e);
    }
    for (int i = 0; !s && i < n_shard; i++)
        if (!part_of_shard[i])
            s = rkv_fail(e, RKV_E_MISMATCH, "shard %d of %d is missing", i + 1, n_shard);
    rkv_mem_free(part_of_shard);
    if (!s)
        part[0]->shard = part[0]->n_shard = 1;
    return s;
}

rkv_status rkv_table_merge(rkv_table **out, const char *const *path, int n_path, rkv_error *e)
{
    if (n_path < 1)
        return rkv_fail(e, RKV_E_ARG, "merge: no shard, expected at least one");
    rkv_table **part = rkv_mem_calloc((size_t)n_path, sizeof *part);
    rkv_status s = part ? RKV_OK : rkv_fail(e, RKV_E_MEM, "merge: out of memory");
    for (int i = 0; !s && i < n_path; i++)
        s = load(&part[i], path[i], e);
    if (!s)
        s = rkv_table_join(part, path, n_path, e);
    for (int i = !s; part && i < n_path; i++)   /* the first is whole now */
        rkv_table_free(part[i]);
    if (!s)
        *out = part[0];
    rkv_mem_free(part);
    return s;
}

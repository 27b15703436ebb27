/* Samples of data files: one JSON object per line, as this project writes them or as LongBench
 * does. */
#include "config.h"
#include "eval/tasks.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"

/* ---- one sample ---- */

static void free_strings(const char *const *list, int n)
{
    for (int i = 0; i < n; i++)
        rkv_mem_free((void *)(uintptr_t)list[i]);
    rkv_mem_free((void *)(uintptr_t)list);
}

void rkv_sample_free(rkv_sample *x)
{
    rkv_mem_free(x->id);
    rkv_mem_free(x->prompt);
    rkv_mem_free(x->prompt_ids);
    free_strings(x->reference.answer, x->reference.n_answer);
    free_strings(x->reference.class_name, x->reference.n_class);
    *x = (rkv_sample){0};
}

/* An array of texts, or null, or nothing; *out and *n own what they have also after a failure. */
static rkv_status read_strings(const char *const **out, int *n, const cJSON *root, const char *key,
                               const char *where, rkv_error *e)
{
    const cJSON *array = cJSON_GetObjectItemCaseSensitive(root, key);
    if (!array || cJSON_IsNull(array))
        return RKV_OK;
    if (!cJSON_IsArray(array))
        return rkv_fail(e, RKV_E_FORMAT, "%s: key '%s' is not an array", where, key);
    const char **list = rkv_mem_calloc((size_t)cJSON_GetArraySize(array) + 1, sizeof *list);
    if (!list)
        return rkv_fail(e, RKV_E_MEM, "%s: out of memory", where);
    *out = list;
    for (const cJSON *v = array->child; v; v = v->next) {
        if (!cJSON_IsString(v))
            return rkv_fail(e, RKV_E_FORMAT, "%s: key '%s' holds what is no text", where, key);
        list[*n] = rkv_mem_strdup(v->valuestring);
        if (!list[*n])
            return rkv_fail(e, RKV_E_MEM, "%s: out of memory", where);
        ++*n;
    }
    return RKV_OK;
}

/* The first of the keys that the object has, which must be a text; NULL: none. */
static rkv_status read_either(const char **out, const cJSON *root, const char *key,
                              const char *other, const char *where, rkv_error *e)
{
    *out = NULL;
    if (!rkv_json_has(root, key))
        key = other;
    return rkv_json_has(root, key) ? rkv_json_string(out, root, key, where, e) : RKV_OK;
}

/* The template with the row's fields in their places. */
static void fill(rkv_text *out, const char *template_text, const char *context, const char *input)
{
    static const char c[] = "{context}", i[] = "{input}";
    for (const char *p = template_text; *p;) {
        const int is_c = !strncmp(p, c, sizeof c - 1), is_i = !strncmp(p, i, sizeof i - 1);
        const char *add = is_c ? context : is_i ? input : p;
        rkv_text_add(out, add, is_c || is_i ? strlen(add) : 1);
        p += is_c ? sizeof c - 1 : is_i ? sizeof i - 1 : 1;
    }
}

static rkv_status read_prompt(rkv_sample *x, const cJSON *root, const char *where, int n_vocab,
                              rkv_error *e)
{
    const char *text, *input;
    const cJSON *ids;
    if (rkv_json_has(root, "prompt_ids")) {
        RKV_TRY(rkv_json_array(&ids, root, "prompt_ids", where, e));
        RKV_TRY(rkv_json_ids(&x->prompt_ids, &x->n_prompt_id, ids, n_vocab, where, e));
        return x->n_prompt_id ? RKV_OK
                              : rkv_fail(e, RKV_E_FORMAT, "%s: the prompt is empty", where);
    }
    RKV_TRY(read_either(&text, root, "prompt", "context", where, e));
    rkv_text t = {0};
    if (!text)
        return rkv_fail(e, RKV_E_FORMAT,
                        "%s: none of 'prompt', 'prompt_ids' and 'context' in the object", where);
    if (rkv_json_has(root, "prompt")) {
        rkv_text_add(&t, text, strlen(text));
    } else {
        RKV_TRY(rkv_json_string(&input, root, "input", where, e));
        const char *form = x->task->template_text;
        fill(&t, form ? form : "{context}{input}", text, input);
        x->question = form ? 0 : strlen(text);
    }
    if (!rkv_text_take(&t, &x->prompt, NULL))
        return rkv_fail(e, RKV_E_MEM, "%s: out of memory", where);
    return *x->prompt ? RKV_OK : rkv_fail(e, RKV_E_FORMAT, "%s: the prompt is empty", where);
}

/* Byte where the last occurrence of the cue begins; 0: none. */
static size_t find_question(const char *prompt, const char *cue)
{
    const char *at = NULL;
    for (const char *p = cue ? strstr(prompt, cue) : NULL; p; p = strstr(p + 1, cue))
        at = p;
    return at ? (size_t)(at - prompt) : 0;
}

static rkv_status read_task(rkv_sample *x, const cJSON *root, const rkv_task *fallback,
                            const char *where, rkv_error *e)
{
    const char *name;
    RKV_TRY(read_either(&name, root, "task", "dataset", where, e));
    x->task = name ? rkv_task_find(name) : fallback;
    if (!x->task)
        x->task = rkv_task_find("other");
    x->max_gen = x->task->max_gen;
    if (rkv_json_has(root, "max_gen"))
        RKV_TRY(rkv_json_int(&x->max_gen, root, "max_gen", 1, 1 << 20, where, e));
    x->depth = -1.0;
    if (rkv_json_has(root, "depth"))
        RKV_TRY(rkv_json_number(&x->depth, root, "depth", 0.0, 1.0, where, e));
    const int made = x->task->category == RKV_CATEGORY_RULER ||
                     x->task->category == RKV_CATEGORY_NEEDLE;
    if (made && rkv_json_has(root, "length"))   /* LongBench's own counts words */
        RKV_TRY(rkv_json_int(&x->length, root, "length", 0, 1 << 30, where, e));
    return RKV_OK;
}

static void hash_strings(rkv_hash *h, const char *const *list, int n)
{
    for (int i = 0; i < n; i++)
        rkv_hash_add(h, list[i], strlen(list[i]));
    rkv_hash_add(h, &n, sizeof n);
}

static uint64_t hash_sample(const rkv_sample *x)
{
    rkv_hash h = rkv_hash_init();
    rkv_hash_add(&h, x->id, strlen(x->id));
    rkv_hash_add(&h, x->task->name, strlen(x->task->name));
    if (x->prompt)
        rkv_hash_add(&h, x->prompt, strlen(x->prompt));
    if (x->prompt_ids)
        rkv_hash_add(&h, x->prompt_ids, x->n_prompt_id * sizeof *x->prompt_ids);
    hash_strings(&h, x->reference.answer, x->reference.n_answer);
    hash_strings(&h, x->reference.class_name, x->reference.n_class);
    const int numbers[] = {x->max_gen, (int)(1e6 * x->depth), x->length};
    rkv_hash_add(&h, numbers, sizeof numbers);
    return rkv_hash_end(&h);
}

static rkv_status read_sample(rkv_sample *x, const cJSON *root, const rkv_task *fallback,
                              const char *where, int n_vocab, rkv_error *e)
{
    const char *id;
    if (!cJSON_IsObject(root))
        return rkv_fail(e, RKV_E_FORMAT, "%s: expected a JSON object", where);
    RKV_TRY(read_task(x, root, fallback, where, e));
    RKV_TRY(read_prompt(x, root, where, n_vocab, e));
    RKV_TRY(read_either(&id, root, "id", "_id", where, e));
    const char *line = strrchr(where, ' ');
    x->id = rkv_mem_strdup(id ? id : line ? line + 1 : where);
    if (!x->id)
        return rkv_fail(e, RKV_E_MEM, "%s: out of memory", where);
    RKV_TRY(read_strings(&x->reference.answer, &x->reference.n_answer, root, "answers", where, e));
    RKV_TRY(read_strings(&x->reference.class_name, &x->reference.n_class, root, "all_classes",
                         where, e));
    if (x->prompt && !x->question)
        x->question = find_question(x->prompt, x->task->cue);
    x->hash = hash_sample(x);
    return RKV_OK;
}

rkv_status rkv_sample_parse(rkv_sample *x, const char *line, const rkv_task *fallback,
                            const char *where, int n_vocab, rkv_error *e)
{
    cJSON *root;
    *x = (rkv_sample){0};
    RKV_TRY(rkv_json_parse(&root, line, strlen(line), where, e));
    const rkv_status s = read_sample(x, root, fallback, where, n_vocab, e);
    cJSON_Delete(root);
    if (s)
        rkv_sample_free(x);
    return s;
}

/* ---- files of them ---- */

/* The task that a file is named after; NULL: none. */
static const rkv_task *task_of_file(const char *path)
{
    char name[64];
    const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    const char *end = strstr(base, ".jsonl");
    if (!end || end[6] || (size_t)(end - base) >= sizeof name)
        return NULL;
    memcpy(name, base, (size_t)(end - base));
    name[end - base] = 0;
    return rkv_task_find(name);
}

static int count_task(const rkv_samples *s, const rkv_task *t)
{
    int n = 0;
    for (int i = 0; i < s->n; i++)
        n += s->at[i].task == t;
    return n;
}

static rkv_status parse_at(rkv_sample *x, const rkv_data *d, int line, int n_vocab, rkv_error *e)
{
    char where[300];
    snprintf(where, sizeof where, "%.200s: line %d", d->path, d->number[line]);
    return rkv_sample_parse(x, d->line[line], task_of_file(d->path), where, n_vocab, e);
}

static rkv_status add_lines(rkv_samples *s, const char *tasks, int limit, int n_vocab, rkv_error *e)
{
    const rkv_data *d = &s->file[s->n_file - 1];
    void *more = rkv_mem_realloc(s->at, rkv_mem_product((size_t)s->n + (size_t)d->n_line,
                                                        sizeof *s->at));
    if (!more)
        return rkv_fail(e, RKV_E_MEM, "%s: out of memory for %d lines", d->path, d->n_line);
    s->at = more;
    for (int i = 0; i < d->n_line; i++) {
        rkv_sample x;
        RKV_TRY(parse_at(&x, d, i, n_vocab, e));
        rkv_hash h = rkv_hash_init();
        rkv_hash_add(&h, x.prompt, x.prompt ? x.question : 0);
        if (rkv_task_is_listed(x.task, tasks) && (!limit || count_task(s, x.task) < limit))
            s->at[s->n++] = (struct rkv_sample_at){
                s->n_file - 1, i, x.task, x.hash, x.question ? rkv_hash_end(&h) : x.hash,
                x.prompt ? strlen(x.prompt) : 4 * x.n_prompt_id, x.depth, x.length};
        rkv_sample_free(&x);
    }
    return RKV_OK;
}

static rkv_data *next_file(rkv_samples *s)
{
    rkv_data *more = rkv_mem_realloc(s->file, ((size_t)s->n_file + 1) * sizeof *s->file);
    if (!more)
        return NULL;
    s->file = more;
    return &s->file[s->n_file];
}

static rkv_status add_file(rkv_samples *s, const char *path, const char *tasks, int limit,
                           int n_vocab, rkv_error *e)
{
    rkv_data *d = next_file(s);
    if (!d)
        return rkv_fail(e, RKV_E_MEM, "%s: out of memory", path);
    RKV_TRY(rkv_data_load(d, path, e));
    s->n_file++;
    return add_lines(s, tasks, limit, n_vocab, e);
}

/* In the order of tasks.def, whatever the file system's is. */
static rkv_status add_folder(rkv_samples *s, const char *path, const char *tasks, int limit,
                             int n_vocab, rkv_error *e)
{
    char name[1200];
    struct stat st;
    const rkv_task *t;
    int found = 0;
    for (int i = 0; (t = rkv_task_at(i)) != NULL; i++) {
        if (snprintf(name, sizeof name, "%s/%s.jsonl", path, t->name) >= (int)sizeof name)
            return rkv_fail(e, RKV_E_ARG, "%.100s...: the path is too long", path);
        if (!rkv_task_is_listed(t, tasks) || stat(name, &st))
            continue;
        found = 1;
        RKV_TRY(add_file(s, name, tasks, limit, n_vocab, e));
    }
    return found ? RKV_OK : rkv_fail(e, RKV_E_IO, "%s: no file of a task in it, such as "
                                     "hotpotqa.jsonl", path);
}

/* Two equal samples would have one place in the results. */
static rkv_status check_samples(const rkv_samples *s, const char *path, rkv_error *e)
{
    if (!s->n)
        return rkv_fail(e, RKV_E_FORMAT, "%s: no sample of the tasks wanted", path);
    for (int i = 0; i < s->n; i++)
        for (int j = 0; j < i; j++)
            if (s->at[i].hash == s->at[j].hash)
                return rkv_fail(e, RKV_E_FORMAT, "%s: line %d: the same sample as in line %d of %s",
                                s->file[s->at[i].file].path,
                                s->file[s->at[i].file].number[s->at[i].line],
                                s->file[s->at[j].file].number[s->at[j].line],
                                s->file[s->at[j].file].path);
    return RKV_OK;
}

rkv_status rkv_samples_load(rkv_samples *s, const char *path, const char *tasks, int limit,
                            int n_vocab, rkv_error *e)
{
    struct stat st;
    *s = (rkv_samples){0};
    RKV_TRY(rkv_tasks_check_list(tasks, e));
    const int folder = !stat(path, &st) && S_ISDIR(st.st_mode);
    rkv_status status = folder ? add_folder(s, path, tasks, limit, n_vocab, e)
                               : add_file(s, path, tasks, limit, n_vocab, e);
    if (!status)
        status = check_samples(s, path, e);
    if (status)
        rkv_samples_free(s);
    return status;
}

/* Cuts the text, which ends in a newline. */
static rkv_status cut_lines(rkv_data *d, size_t n, rkv_error *e)
{
    int n_line = 0;
    for (size_t i = 0; i < n; i++)
        n_line += d->text[i] == '\n';
    d->line = rkv_mem_calloc((size_t)n_line, sizeof *d->line);
    d->number = rkv_mem_calloc((size_t)n_line, sizeof *d->number);
    if (!d->line || !d->number)
        return rkv_fail(e, RKV_E_MEM, "%s: out of memory for %d lines", d->path, n_line);
    for (char *p = d->text; d->n_line < n_line; p += strlen(p) + 1) {
        p[strcspn(p, "\n")] = 0;
        d->line[d->n_line] = p;
        d->number[d->n_line] = d->n_line + 1;
        d->n_line++;
    }
    return RKV_OK;
}

rkv_status rkv_samples_take(rkv_samples *s, char *text, size_t n, const char *name, int n_vocab,
                            rkv_error *e)
{
    *s = (rkv_samples){0};
    rkv_data *d = next_file(s);
    if (!d) {
        rkv_mem_free(text);
        return rkv_fail(e, RKV_E_MEM, "%s: out of memory", name);
    }
    *d = (rkv_data){.path = rkv_mem_strdup(name), .text = text};
    s->n_file = 1;
    rkv_status status = d->path ? cut_lines(d, n, e) : rkv_fail(e, RKV_E_MEM, "out of memory");
    if (!status)
        status = add_lines(s, NULL, 0, n_vocab, e);
    if (!status)
        status = check_samples(s, name, e);
    if (status)
        rkv_samples_free(s);
    return status;
}

void rkv_samples_free(rkv_samples *s)
{
    for (int i = 0; i < s->n_file; i++)
        rkv_data_free(&s->file[i]);
    rkv_mem_free(s->file);
    rkv_mem_free(s->at);
    *s = (rkv_samples){0};
}

rkv_status rkv_samples_get(rkv_sample *x, const rkv_samples *s, int i, int n_vocab, rkv_error *e)
{
    return parse_at(x, &s->file[s->at[i].file], s->at[i].line, n_vocab, e);
}

/* rkv bench: tokens per second of prefill and decode at given depths, in llama-bench's words, and
 * of sessions that decode together, in llama-batched-bench's. */
#include "config.h"
#include "common.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_LIST = 32, MAX_TOKENS = 1 << 26, MAX_REPEAT = 1000, MAX_PARALLEL = 1024 };

typedef struct list {
    int n, at[MAX_LIST];
} list;

typedef struct bench {
    const opts *o;
    const rkv_model *m;
    rkv_policy policy;
    rkv_machine_info machine;
    int n_thread, n_row;        /* in use; rows printed so far */
    cJSON *rows;                /* for -o json */
    double seconds[MAX_REPEAT]; /* of the test at work */
} bench;

typedef struct test {
    int n_prompt, n_gen, n_depth;       /* one of the first two is 0 */
    int n_parallel;             /* sessions that decode together */
    uint64_t kv_bytes, kv_bytes_full;   /* of all sessions, after it */
    uint64_t plan_bytes;        /* of the last prompt of one */
    char when[32];              /* UTC, ISO 8601 */
    double mean_s, sd_s, mean_rate, sd_rate;
} test;

/* "512,2048": whole numbers from 0 to most. 0 or an exit code. */
static int read_list(list *l, const char *option, const char *text, int most)
{
    l->n = 0;
    for (const char *p = text;; p++) {
        char *end;
        const long v = isdigit((unsigned char)*p) ? strtol(p, &end, 10) : -1;
        if (v < 0 || v > most || (*end && *end != ','))
            return usage("bench: %s: '%.80s', expected numbers from 0 to %d with commas between",
                         option, text, most);
        if (l->n == MAX_LIST)
            return usage("bench: %s: more than %d numbers", option, MAX_LIST);
        l->at[l->n++] = (int)v;
        if (!*end)
            return 0;
        p = end;
    }
}

/* ---- one test ---- */

/* Token ids that look like no text, the same in every run. */
static int32_t *make_ids(int n, int n_vocab)
{
    int32_t *ids = malloc(((size_t)n + 1) * sizeof *ids);
    uint64_t x = 88172645463325252u;
    for (int i = 0; ids && i < n; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        ids[i] = (int32_t)((x >> 33) % (uint64_t)n_vocab);
    }
    return ids;
}

/* The sessions of a run, each holding the depth: n_parallel of them. Returns how many there are,
 * fewer with *bad set. */
static int begin(rkv_session **s, const bench *b, const test *t, const rkv_session *deep,
                 const rkv_session_options *so, rkv_status *bad, rkv_error *e)
{
    for (int i = 0; i < t->n_parallel; i++) {
        *bad = deep ? rkv_session_fork(&s[i], deep, e) : rkv_session_create(&s[i], b->m, so, e);
        if (*bad)
            return i;
    }
    return t->n_parallel;
}

/* Sessions decode the same ids, each from another one on. */
static rkv_status step(rkv_session **s, const test *t, const int32_t *ids, rkv_error *e)
{
    if (t->n_prompt)
        return rkv_session_prefill(s[0], ids, (size_t)t->n_prompt, e);
    for (int i = 0; i < t->n_gen; i++) {
        int32_t next[MAX_PARALLEL];
        for (int k = 0; k < t->n_parallel; k++)
            next[k] = ids[(i + k) % t->n_gen];
        const rkv_status bad = rkv_sessions_decode(s, next, (size_t)t->n_parallel, e);
        if (bad)
            return bad;
        if (interrupted()) {
            snprintf(e->text, sizeof e->text, "bench: interrupted");
            return e->status = RKV_E_CANCELLED;
        }
    }
    return RKV_OK;
}

/* All sessions together. */
static double tokens(const test *t)
{
    return (double)t->n_parallel * (t->n_prompt + t->n_gen);
}

static void summarize(test *t, const double *seconds, int n)
{
    for (int i = 0; i < n; i++) {
        t->mean_s += seconds[i] / n;
        t->mean_rate += tokens(t) / seconds[i] / n;
    }
    for (int i = 0; i < n && n > 1; i++) {
        t->sd_s += pow(seconds[i] - t->mean_s, 2) / (n - 1);
        t->sd_rate += pow(tokens(t) / seconds[i] - t->mean_rate, 2) / (n - 1);
    }
    t->sd_s = sqrt(t->sd_s);
    t->sd_rate = sqrt(t->sd_rate);
}

static void add_memory(test *t, rkv_session **s)
{
    t->kv_bytes = t->kv_bytes_full = 0;
    for (int k = 0; k < t->n_parallel; k++) {
        const rkv_kv_info kv = rkv_session_kv_info(s[k]);
        t->kv_bytes += kv.bytes;
        t->kv_bytes_full += kv.bytes_full;
    }
}

/* Runs the test once to warm up, then as often as wanted. */
static rkv_status repeat(bench *b, test *t, const rkv_session *deep, const rkv_session_options *so,
                         const int32_t *ids, rkv_error *e)
{
    for (int i = b->o->no_warmup ? 0 : -1; i < b->o->repetitions; i++) {
        rkv_session *s[MAX_PARALLEL];
        rkv_status bad = RKV_OK;
        const int n = begin(s, b, t, deep, so, &bad, e);
        test warm = *t;
        if (i < 0 && t->n_gen)
            warm.n_gen = 1;
        const double start = now_s();
        if (!bad)
            bad = step(s, &warm, ids + t->n_depth, e);
        if (!bad && i >= 0) {
            b->seconds[i] = now_s() - start;
            add_memory(t, s);
            t->plan_bytes = rkv_session_plan_bytes(s[0]);
        }
        for (int k = 0; k < n; k++)
            rkv_session_free(s[k]);
        if (bad)
            return bad;
    }
    summarize(t, b->seconds, b->o->repetitions);
    return RKV_OK;
}

static rkv_status run_test(bench *b, test *t, rkv_error *e)
{
    const int n = t->n_depth + t->n_prompt + t->n_gen;
    int32_t *ids = make_ids(n, rkv_model_get_info(b->m)->n_vocab);
    rkv_session_options so = session_options(b->o, &b->policy);
    so.n_ctx = n;
    rkv_session *deep = NULL;
    rkv_status bad = RKV_OK;
    if (!ids) {
        snprintf(e->text, sizeof e->text, "bench: out of memory for %d token ids", n);
        bad = e->status = RKV_E_MEM;
    }
    if (!bad && t->n_depth) {
        bad = rkv_session_create(&deep, b->m, &so, e);
        if (!bad)
            bad = rkv_session_prefill(deep, ids, (size_t)t->n_depth, e);
    }
    const time_t now = time(NULL);
    struct tm utc;
    strftime(t->when, sizeof t->when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    if (!bad)
        bad = repeat(b, t, deep, &so, ids, e);
    rkv_session_free(deep);
    free(ids);
    end_progress();
    return bad;
}

/* ---- output ---- */

static void name_test(char *name, size_t size, const test *t)
{
    const int n = snprintf(name, size, "%s%d", t->n_prompt ? "pp" : "tg", t->n_prompt + t->n_gen);
    if (t->n_depth)
        snprintf(name + n, size - (size_t)n, " @ d%d", t->n_depth);
}

static cJSON *numbers(const double *seconds, int n, double n_token)
{
    cJSON *a = cJSON_CreateArray();
    for (int i = 0; i < n; i++)
        cJSON_AddItemToArray(
            a, cJSON_CreateNumber(n_token > 0.0 ? n_token / seconds[i] : round(1e9 * seconds[i])));
    return a;
}

static cJSON *to_json(const bench *b, const test *t)
{
    const rkv_model_info *m = rkv_model_get_info(b->m);
    cJSON *r = cJSON_CreateObject();
    cJSON_AddStringToObject(r, "build_commit", rkv_version());
    cJSON_AddStringToObject(r, "cpu_info", b->machine.cpu);
    cJSON_AddStringToObject(r, "backends", m->tier);
    json_text(r, "model_filename", m->path, strlen(m->path));
    char type[96];
    snprintf(type, sizeof type, "%.40s %.40s", m->arch, m->quantization);
    cJSON_AddStringToObject(r, "model_type", type);
    cJSON_AddNumberToObject(r, "model_size", (double)m->file_bytes);
    cJSON_AddNumberToObject(r, "model_n_params", (double)m->n_param);
    cJSON_AddNumberToObject(r, "n_ubatch", b->o->n_chunk);
    cJSON_AddNumberToObject(r, "n_threads", b->n_thread);
    cJSON_AddStringToObject(r, "type_k", b->o->type_k);
    cJSON_AddStringToObject(r, "type_v", b->o->type_v);
    cJSON_AddStringToObject(r, "load", rkv_model_get_info(b->m)->load);
    cJSON_AddStringToObject(r, "kv_policy", b->o->kv_policy ? b->o->kv_policy : "full");
    cJSON_AddStringToObject(r, "kv_budget", b->o->kv_budget ? b->o->kv_budget : "full");
    cJSON_AddNumberToObject(r, "n_prompt", t->n_prompt);
    cJSON_AddNumberToObject(r, "n_gen", t->n_gen);
    cJSON_AddNumberToObject(r, "n_depth", t->n_depth);
    cJSON_AddNumberToObject(r, "pl", t->n_parallel);
    cJSON_AddStringToObject(r, "test_time", t->when);
    cJSON_AddNumberToObject(r, "avg_ns", round(1e9 * t->mean_s));
    cJSON_AddNumberToObject(r, "stddev_ns", round(1e9 * t->sd_s));
    cJSON_AddNumberToObject(r, "avg_ts", t->mean_rate);
    cJSON_AddNumberToObject(r, "stddev_ts", t->sd_rate);
    cJSON_AddItemToObject(r, "samples_ns", numbers(b->seconds, b->o->repetitions, 0.0));
    cJSON_AddItemToObject(r, "samples_ts", numbers(b->seconds, b->o->repetitions, tokens(t)));
    cJSON_AddNumberToObject(r, "kv_bytes", (double)t->kv_bytes);
    cJSON_AddNumberToObject(r, "kv_bytes_full", (double)t->kv_bytes_full);
    cJSON_AddNumberToObject(r, "plan_bytes", (double)t->plan_bytes);
    cJSON_AddNumberToObject(r, "peak_rss", (double)peak_rss_bytes());
    return r;
}

static int print_md(bench *b, const test *t)
{
    const rkv_model_info *m = rkv_model_get_info(b->m);
    char name[48];
    name_test(name, sizeof name, t);
    if (!b->n_row++)
        puts("| model | size | params | backend | threads | policy | pl | test | t/s | KV MiB | "
             "peak "
             "MiB |\n| --- | ---: | ---: | --- | ---: | --- | ---: | ---: | ---: | ---: | ---: |");
    printf(
        "| %s %s | %.2f MiB | %.2f M | %s | %d | %s%s%s | %d | %s | %.2f ± %.2f | %.1f | %.0f |\n",
        m->arch, m->quantization, (double)m->file_bytes / 0x1p20, 1e-6 * (double)m->n_param,
        m->tier, b->n_thread, b->o->kv_policy ? b->o->kv_policy : "full",
        b->o->kv_budget ? " " : "", b->o->kv_budget ? b->o->kv_budget : "", t->n_parallel, name,
        t->mean_rate, t->sd_rate, (double)t->kv_bytes / 0x1p20, (double)peak_rss_bytes() / 0x1p20);
    return finish_stdout();
}

/* The plain members of a row of JSON, names first. */
static int print_csv(bench *b, cJSON *row)
{
    for (int head = !b->n_row++; head >= 0; head--) {
        const char *comma = "";
        for (const cJSON *c = row->child; c; c = c->next) {
            if (cJSON_IsArray(c))
                continue;
            if (head)
                printf("%s%s", comma, c->string);
            else if (cJSON_IsString(c))
                printf("%s\"%s\"", comma, c->valuestring);
            else
                printf("%s%.17g", comma, c->valuedouble);
            comma = ",";
        }
        putchar('\n');
    }
    cJSON_Delete(row);
    return finish_stdout();
}

/* 0, or an exit code when the row is lost. */
static int show(bench *b, const test *t)
{
    const char *format = b->o->format;
    if (!strcmp(format, "md"))
        return print_md(b, t);
    if (!strcmp(format, "csv"))
        return print_csv(b, to_json(b, t));
    if (!strcmp(format, "jsonl"))
        return json_print(to_json(b, t));
    cJSON_AddItemToArray(b->rows, to_json(b, t));
    return 0;
}

/* ---- the command ---- */

typedef struct plan {
    list prompt, gen, depth, parallel;
} plan;

/* 0 or an exit code. A test of no tokens, or of no sessions, is none. */
static int run_and_show(bench *b, test t)
{
    rkv_error e;
    if (!t.n_parallel || !(t.n_prompt + t.n_gen))
        return 0;
    if (run_test(b, &t, &e))
        return fail(&e);
    return show(b, &t);
}

static int run_tests(bench *b, const plan *p)
{
    int code = 0;
    for (int d = 0; d < p->depth.n && !code; d++) {
        const int depth = p->depth.at[d];
        for (int i = 0; i < p->prompt.n && !code; i++)
            code = run_and_show(
                b, (test){.n_prompt = p->prompt.at[i], .n_depth = depth, .n_parallel = 1});
        for (int i = 0; i < p->gen.n * p->parallel.n && !code; i++)
            code = run_and_show(b, (test){.n_gen = p->gen.at[i / p->parallel.n],
                                          .n_depth = depth,
                                          .n_parallel = p->parallel.at[i % p->parallel.n]});
    }
    return code;
}

static int read_plan(plan *p, const opts *o)
{
    int code = read_list(&p->prompt, "-p", o->bench_prompt, MAX_TOKENS);
    if (!code)
        code = read_list(&p->gen, "-n", o->bench_gen, MAX_TOKENS);
    if (!code)
        code = read_list(&p->depth, "-d", o->bench_depth, MAX_TOKENS);
    if (!code)
        code = read_list(&p->parallel, "-npl", o->bench_parallel, MAX_PARALLEL);
    return code;
}

int cmd_bench(const opts *given)
{
    opts o = *given;
    if (o.json)
        o.format = "json";
    bench b = {.o = &o};
    plan p;
    rkv_model *m = NULL;
    rkv_profile *profile = NULL;
    rkv_error e;
    int code = read_plan(&p, &o);
    if (!code)
        code = read_policy(&b.policy, &profile, &o);
    if (!code)
        code = load_model(&m, &o);
    if (!code && rkv_machine_get_info(&b.machine, &e))
        code = fail(&e);
    if (!code) {
        b.m = m;
        b.n_thread = o.n_thread ? o.n_thread : b.machine.n_cpu;
        b.rows = cJSON_CreateArray();
        catch_signals();
        code = run_tests(&b, &p);
    }
    if (!code && !strcmp(o.format, "json"))
        code = json_print(b.rows);
    else
        cJSON_Delete(b.rows);
    rkv_model_free(m);
    rkv_profile_free(profile);
    return code;
}

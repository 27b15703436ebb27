/* rkv eval: policies and budgets side by side on benchmarks. */
#include "config.h"
#include "common.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eval/eval.h"

enum { MAX_LIST = 64 };

typedef struct settings {
    rkv_eval_options o;
    rkv_eval_policy *policy;
    rkv_profile *profile;
    char *policies, *budgets;   /* cut into words */
    const char *name[MAX_LIST], *budget[MAX_LIST];
    int n_name, n_budget;
    int ruler[MAX_LIST], needle[MAX_LIST];
    char text[1024];
    int rank;
} settings;

static int cut_list(char **copy, const char **word, int *n, const char *option, const char *list)
{
    *copy = strdup(list);
    if (!*copy)
        return no_memory(option);
    for (char *p = *copy; p;) {
        char *comma = strchr(p, ',');
        if (comma)
            *comma = 0;
        if (!*p || *n == MAX_LIST)
            return usage("--%s: '%.80s', expected up to %d names with commas", option, list,
                         MAX_LIST);
        for (int i = 0; i < *n; i++)
            if (!strcmp(word[i], p))
                return usage("--%s: '%.40s' is there twice", option, p);
        word[(*n)++] = p;
        p = comma ? comma + 1 : NULL;
    }
    return 0;
}

/* Lengths such as 4K,8192. */
static int read_lengths(int *out, int *n, const char *option, const char *list)
{
    for (const char *p = list; p; *n += 1) {
        char *end = NULL;
        double v = isdigit((unsigned char)*p) ? strtod(p, &end) : 0.0;
        if (end && (*end == 'K' || *end == 'k'))
            v *= 1024.0, end++;
        if (!end || (*end && *end != ',') || !(v >= 1.0 && v <= 1 << 24) || *n == MAX_LIST)
            return usage("--%s: '%.60s', expected lengths in tokens such as 4K,8K", option, list);
        out[*n] = (int)v;
        p = *end ? end + 1 : NULL;
    }
    return 0;
}

/* Every policy but the full cache at every budget. */
static int make_policies(settings *s, const rkv_policy *base)
{
    rkv_error e;
    s->policy = calloc((size_t)s->n_name * (size_t)s->n_budget + 1, sizeof *s->policy);
    if (!s->policy)
        return no_memory("policies");
    for (int b = 0; b < s->n_budget; b++)
        for (int i = 0; i < s->n_name; i++) {
            rkv_eval_policy *p = &s->policy[s->o.n_policy];
            if (!strcmp(s->name[i], "full"))
                continue;
            *p = (rkv_eval_policy){s->name[i], s->budget[b], *base};
            if (rkv_policy_set_name(&p->policy, p->name, &e) ||
                rkv_policy_set_budget(&p->policy, p->budget, &e))
                return fail(&e);
            s->o.n_policy++;
        }
    s->o.policy = s->policy;
    return 0;
}

static int read_policies(settings *s, const opts *o)
{
    rkv_policy base;
    opts plain = *o;
    plain.kv_policy = plain.kv_budget = NULL;
    int bad = cut_list(&s->policies, s->name, &s->n_name, "policies",
                       o->kv_policy ? o->kv_policy : "full");
    const int only_full = s->n_name == 1 && !strcmp(s->name[0], "full");
    if (!bad && !o->kv_budget && !only_full)
        return usage("eval: name budgets with --budgets, such as 10%%,20%%,30%%");
    if (!bad && o->kv_budget)
        bad = cut_list(&s->budgets, s->budget, &s->n_budget, "budgets", o->kv_budget);
    if (!bad)
        bad = read_policy(&base, &s->profile, &plain);
    if (!bad)
        bad = make_policies(s, &base);
    snprintf(s->text, sizeof s->text,
             "window %d, sink %d, kernel %d, recent %d, pool %s %s, r %g, gamma %g, curves %s, "
             "unit %s, pyramid %s %g, seed %.0f, expected %d %s %s %g, adakv %s %g, critical %g %g",
             o->window, o->sink, o->kernel, o->recent, o->pool, o->pool_order, o->r, o->gamma,
             o->kv_curves, o->kv_unit, o->pyramid, o->beta, o->kv_seed, o->future, o->covariance,
             o->value_norm, o->epsilon, o->adakv, o->safeguard, o->first_stage,
             o->critical_epsilon);
    return bad;
}

static int read_settings(settings *s, const opts *o)
{
    s->o = (rkv_eval_options){
        .data = o->data, .tasks = o->tasks, .limit = o->limit, .ruler = s->ruler,
        .needle = s->needle, .samples = o->samples, .depths = o->depths, .seed = (uint64_t)o->seed,
        .settings = s->text, .protocol = *o->protocol, .max_length = o->max_length,
        .response = o->kl_tokens, .raw = o->no_chat, .n_ctx = o->n_ctx, .n_thread = o->n_thread,
        .n_chunk = o->n_chunk, .k_type = o->type_k, .v_type = o->type_v, .db = o->db,
        .progress = show_progress,
    };
    int bad = o->ruler ? read_lengths(s->ruler, &s->o.n_ruler, "ruler", o->ruler) : 0;
    if (!bad && o->needle)
        bad = read_lengths(s->needle, &s->o.n_needle, "needle", o->needle);
    if (!bad && !!o->data == !!(o->ruler || o->needle))
        return usage("eval: name samples with --data FILE.jsonl or FOLDER, or make them with "
                     "--ruler 4K or --needle 8K");
    if (!bad && o->shard)
        bad = read_shard(&s->o.shard, &s->o.n_shard, o->shard);
    return bad;
}

/* A failure's line, with what to do after an interrupted run. Of several ranks the first tells. */
static int say_failed(const settings *s, const rkv_error *e, const opts *o)
{
    end_progress();
    if (s->rank)
        return exit_code(e);
    if (e->status != RKV_E_CANCELLED)
        return fail(e);
    fprintf(stderr, "rkv: %s: %s\n", e->text,
            o->db ? "finished samples are kept; run the same command again to go on"
                  : "nothing was kept; with --db FILE.sqlite a run can be continued");
    return EXIT_INTERRUPTED;
}

/* Prints and saves what a run gave: a page that cannot be saved does not hide the numbers. */
static int deliver(char *text, char *html, const opts *o)
{
    rkv_error e;
    end_progress();
    const int unsaved =
        html && rkv_eval_save(o->html, html, strlen(html), &e) ? fail(&e) : 0;
    if (text)                   /* ranks above 0 have none */
        fputs(text, stdout);
    rkv_free(text);
    rkv_free(html);
    const int lost = finish_stdout();
    return unsaved ? unsaved : lost;
}

static int score_file(const opts *o)
{
    char *text = NULL;
    rkv_error e;
    const rkv_status bad = rkv_eval_score(&text, o->score, &e);
    if (bad)
        return fail(&e);
    puts(text);
    rkv_free(text);
    return finish_stdout();
}

static int write_samples(const settings *s, const rkv_model *m, const opts *o)
{
    char *text = NULL;
    size_t n;
    rkv_error e;
    if (o->data)
        return usage("eval: --write is for samples that --ruler or --needle makes");
    if (rkv_eval_write(&text, &n, m, &s->o, &e))
        return fail(&e);
    const int code = rkv_eval_save(o->write, text, n, &e) ? fail(&e) : 0;
    rkv_free(text);
    return code;
}

static int run(settings *s, const opts *o, const rkv_model *m)
{
    char *text = NULL, *html = NULL;
    rkv_error e = {0};
    const int format = o->json ? RKV_EVAL_JSON : o->csv ? RKV_EVAL_CSV : RKV_EVAL_TEXT;
    catch_signals();
    if (rkv_eval_run(&text, o->html ? &html : NULL, m, &s->o, format, o->against, &e))
        return say_failed(s, &e, o);
    return deliver(text, html, o);
}

/* Started by mpirun, the ranks share the samples through the database. */
static int join_ranks(settings *s, opts *with)
{
    rkv_error e;
    int size;
    if (rkv_world_get(&s->rank, &size, &e))
        return fail(&e);
    if (size > 1 && !with->db)
        return usage("eval: ranks share their samples by a database; name it with --db FILE");
    if (size > 1 && !strcmp(with->load_mode, "auto"))
        with->load_mode = "mmap";
    if (s->rank)
        s->o.progress = silent_progress;
    s->o.ranks = size > 1;
    return 0;
}

/* A page is of a run that measures; one that the environment names is for other calls. */
static int check_html(opts *with)
{
    if (!with->html || (!with->score && !with->write))
        return 0;
    if (with->html != getenv("RIPPLEKV_HTML"))
        return usage("eval: --html is of a comparison: not with --%s",
                     with->score ? "score" : "write");
    with->html = NULL;
    return 0;
}

int cmd_eval(const opts *given)
{
    rkv_model *m = NULL;
    settings s = {0};
    opts with = *given;
    const opts *const o = &with;
    int code = check_html(&with);
    if (!code && o->score)
        return score_file(o);
    if (!code)
        code = read_settings(&s, o);
    if (!code)
        code = check_outputs(o);
    if (!code)
        code = check_output(o->write ? o->write : o->html);
    if (!code)
        code = check_database(o->db);
    if (!code && !o->write)
        code = read_policies(&s, o);
    if (!code && !o->write && !o->shard)
        code = join_ranks(&s, &with);
    if (!code)
        code = load_model(&m, o);
    if (!code)
        code = o->write ? write_samples(&s, m, o) : run(&s, o, m);
    rkv_model_free(m);
    rkv_profile_free(s.profile);
    free(s.policy);
    free(s.policies);
    free(s.budgets);
    return code;
}

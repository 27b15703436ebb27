/* rkv profile: measures how sensitive each layer's cache is. */
#include "config.h"
#include "common.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Settings of the options that are read further than the table does it. */
typedef struct settings {
    rkv_profile_options o;
    double grid[32];
    rkv_profile_cost cost;
    int rank;                   /* among those that mpirun started */
} settings;

static int print_file(const char *path)
{
    char *text;
    size_t n;
    const int bad = read_all(&text, &n, path);
    if (bad)
        return bad;
    fwrite(text, 1, n, stdout);
    free(text);
    return finish_stdout();
}

static int read_response(rkv_profile_options *po, const opts *o)
{
    char *end;
    if (!strcmp(o->response, "answers")) {
        po->from_answers = 1;
        return 0;
    }
    const long n = strtol(o->response, &end, 10);
    if (*end || end == o->response || n < 8 || n > 4096)
        return usage("--response: '%.40s', expected 8 to 4096, or answers", o->response);
    po->n_response = (int)n;
    return 0;
}

/* A share in percent, up to a comma or the end. 0: none. */
static const char *read_share(double *out, const char *text)
{
    char *end;
    *out = strtod(text, &end) / 100.0;
    end += *end == '%';
    const int strange = !isdigit((unsigned char)*text) && *text != '.';
    return strange || (*end && *end != ',') || !(*out > 0.0 && *out < 1.0) ? NULL : end;
}

static int read_grid(settings *s, const char *list)
{
    const int most = sizeof s->grid / sizeof *s->grid;
    int n = 0;
    for (const char *at = list; at; n++) {
        at = n < most ? read_share(&s->grid[n], at) : NULL;
        if (!at || (n && s->grid[n] <= s->grid[n - 1]))
            return usage("--grid: '%.60s', expected at most %d ascending percentages such as "
                         "5,10,20", list, most);
        at = *at ? at + 1 : NULL;
    }
    s->o.grid = s->grid;
    s->o.n_grid = n;
    return 0;
}

static int read_memory(uint64_t *out, const char *text)
{
    static const char unit[] = "kmgt";
    char *end;
    double v = isdigit((unsigned char)*text) ? strtod(text, &end) : 0.0;
    const char *u = v > 0.0 && *end ? strchr(unit, tolower((unsigned char)*end)) : NULL;
    for (const char *c = unit; u && c <= u; c++)
        v *= 1024.0;
    if (v >= 1.0 && v < 0x1p62 && (u ? !end[1] : !*end)) {
        *out = (uint64_t)v;
        return 0;
    }
    return usage("--memory: '%.40s', expected bytes such as 512M or 4G", text);
}

static int read_settings(settings *s, const opts *o)
{
    rkv_error e;
    *s = (settings){.o = rkv_profile_options_default()};
    s->o.n_example_max = o->examples;
    s->o.noise = o->noise;
    s->o.n_seed = o->noise_seeds;
    s->o.n_ctx = o->n_ctx;
    s->o.n_thread = o->n_thread;
    s->o.selector = o->selector;
    s->o.batch_rows = o->batch_rows;
    s->o.until_stable = o->until_stable;
    s->o.resume_dir = o->resume;
    s->o.progress = show_progress;
    const char *end = read_share(&s->o.damage_budget, o->damage_budget);
    if (!end || *end)
        return usage("--damage-budget: '%.40s', expected a percentage such as 10%%",
                     o->damage_budget);
    if (rkv_profile_set_signals(&s->o, o->signals, &e))
        return usage("--%s", e.text);           /* "signals: ...": the option's own name */
    int bad = read_response(&s->o, o);
    if (!bad && o->grid)
        bad = read_grid(s, o->grid);
    if (!bad && o->shard)
        bad = read_shard(&s->o.shard, &s->o.n_shard, o->shard);
    if (!bad && o->memory)
        bad = read_memory(&s->o.memory, o->memory);
    return bad;
}

static int say_interrupted(const rkv_error *e, const opts *o)
{
    end_progress();
    fprintf(stderr, "rkv: %s: %s\n", e->text,
            o->resume ? "finished examples are kept; run the same command again to go on"
                      : "nothing was kept; with --resume DIR a run can be continued");
    return EXIT_INTERRUPTED;
}

static int print_report(const rkv_profile *p)
{
    char *text;
    rkv_error e;
    if (rkv_profile_report(p, &text, &e))
        return fail(&e);
    fputs(text, stdout);
    rkv_free(text);
    return finish_stdout();
}

/* The profile, or, when it could not be saved, an object that nobody takes for one: {"error",
 * "profile"}. */
static int print_json(const rkv_profile *p, const rkv_error *unsaved)
{
    char *text;
    size_t n;
    rkv_error e;
    if (rkv_profile_print(p, &text, &n, &e))
        return fail(&e);
    if (unsaved) {
        cJSON *root = cJSON_CreateObject();
        json_text(root, "error", unsaved->text, strlen(unsaved->text));
        cJSON_AddRawToObject(root, "profile", text);
        rkv_free(text);
        return json_print(root);
    }
    fwrite(text, 1, n, stdout);
    rkv_free(text);
    return finish_stdout();
}

/* Saves and shows a profile, and frees it: what cannot be saved is shown all the same, since it may
 * be hours of work. cost NULL: not of this run. */
static int deliver(rkv_profile *p, const rkv_profile_cost *cost, const opts *o)
{
    rkv_error e, html;
    end_progress();
    const int unsaved = !o->show && rkv_profile_save(p, o->output, &e);
    int code = unsaved ? fail(&e) : 0;
    if (!unsaved && o->html && rkv_profile_html(p, cost, o->html, &html))
        code = fail(&html);
    const int lost = !o->json  ? print_report(p)
                     : o->show ? print_file(o->show) : print_json(p, unsaved ? &e : NULL);
    rkv_profile_free(p);
    return code ? code : lost;
}

static int failed(const rkv_error *e, const opts *o)
{
    return e->status == RKV_E_CANCELLED ? say_interrupted(e, o) : fail(e);
}

static int run_profile(const opts *o, const rkv_model *m, const settings *s)
{
    rkv_profile *p;
    rkv_error e;
    const rkv_status bad = rkv_profile_run(&p, m, o->data, &s->o, &e);
    if (s->rank)                /* rank 0 tells, whatever it is */
        return bad ? exit_code(&e) : EXIT_OK;
    return bad ? failed(&e, o) : deliver(p, &s->cost, o);
}

static int run_shard(const opts *o, const rkv_model *m, const settings *s)
{
    rkv_error e;
    if (rkv_profile_run_shard(o->output, m, o->data, &s->o, &e))
        return failed(&e, o);
    end_progress();
    if (o->json)
        return print_file(o->output);
    printf("%s: part %d of %d; rkv profile --merge makes the profile of all\n", o->output,
           s->o.shard, s->o.n_shard);
    return finish_stdout();
}

static int run_merge(const opts *o)
{
    rkv_profile *p;
    rkv_error e;
    if (!o->n_word)
        return usage("profile --merge: name the parts that --shard made");
    int bad = check_output(o->output);
    if (!bad)
        bad = check_output(o->html);
    if (bad)
        return bad;
    if (rkv_profile_merge(&p, o->word, o->n_word, &e))
        return fail(&e);
    return deliver(p, NULL, o);
}

static int run_show(const opts *o)
{
    rkv_profile *p;
    rkv_error e;
    const int bad = check_output(o->html);
    if (bad)
        return bad;
    return rkv_profile_load(&p, o->show, &e) ? fail(&e) : deliver(p, NULL, o);
}

/* ---- --check ---- */

static int print_verdict(const rkv_profile_verdict *v, const opts *o)
{
    if (o->json) {
        cJSON *root = cJSON_CreateObject();
        cJSON_AddBoolToObject(root, "holds", v->holds);
        cJSON_AddNumberToObject(root, "spearman", v->spearman);
        cJSON_AddNumberToObject(root, "low", v->low);
        cJSON_AddNumberToObject(root, "high", v->high);
        cJSON_AddNumberToObject(root, "threshold", v->threshold);
        cJSON_AddNumberToObject(root, "examples", v->n_example);
        cJSON_AddBoolToObject(root, "same_model", v->same_model);
        return json_print(root);
    }
    if (!v->same_model)
        puts("The profile was made from another file than this model (another fingerprint).");
    printf("Spearman of the profile's sensitivities with those of %d example%s here: %.3f, 95 %% "
           "interval over layers %.3f to %.3f\n",
           v->n_example, v->n_example == 1 ? "" : "s", v->spearman, v->low, v->high);
    printf("The profile %s: %.3f is %s %.2f\n", v->holds ? "holds" : "does not hold", v->spearman,
           v->holds ? "at least" : "under", v->threshold);
    if (v->low < v->threshold && v->threshold <= v->high)
        puts("The interval leaves it open: more --examples make it surer.");
    return finish_stdout();
}

static int run_check(const opts *o, const rkv_model *m, const settings *s)
{
    rkv_profile *p;
    rkv_profile_verdict v;
    rkv_error e;
    rkv_profile_options po = s->o;
    po.n_example_max = 0;
    po.n_used_max = o->examples;
    if (rkv_profile_load(&p, o->check, &e))
        return fail(&e);
    const rkv_status bad = rkv_profile_verify(&v, p, m, o->data, &po, &e);
    rkv_profile_free(p);
    if (bad)
        return failed(&e, o);
    end_progress();
    const int code = print_verdict(&v, o);
    return code ? code : v.holds ? EXIT_OK : EXIT_FAILED;
}

/* ---- the command ---- */

static int check_words(const opts *o)
{
    if (o->n_word && !o->merge)
        return usage("unknown option '%.80s'; see rkv profile --help", o->word[0]);
    if (o->merge + !!o->check + !!o->shard + !!o->show > 1)
        return usage("profile: --merge, --check, --shard and --show are different things");
    if (o->html && (o->check || o->shard))
        return usage("profile: --html is of a whole profile: not with --check or --shard");
    if ((o->show || o->check) && o->output)
        return usage("profile: --%s writes no profile, -o is not for it",
                     o->show ? "show" : "check");
    if (!o->data && !o->merge && !o->show)
        return usage("profile: name the calibration examples with --data FILE.jsonl");
    if (!o->output && !o->check && !o->show)
        return usage("profile: name the profile to write with -o FILE.json");
    return check_outputs(o);
}

/* Started by mpirun, the ranks share the examples, and one mapping of the weights on each machine:
 * copies of each rank's own would take memory as many times. */
static int join_ranks(settings *s, opts *with)
{
    rkv_error e;
    int size;
    if (rkv_world_get(&s->rank, &size, &e))
        return fail(&e);
    if (size > 1 && !strcmp(with->load_mode, "auto"))
        with->load_mode = "mmap";
    if (s->rank)
        s->o.progress = silent_progress;
    s->o.ranks = 1;
    return 0;
}

/* Within a bound, weights of more than half of it are read by layers: the rest is for the work. */
static int load_within(rkv_model **m, opts *with, uint64_t memory)
{
    const int choose = memory && !strcmp(with->load_mode, "auto");
    if (choose)
        with->load_mode = "mmap";
    const int bad = load_model(m, with);
    if (bad || !choose || rkv_model_get_info(*m)->file_bytes <= memory / 2)
        return bad;
    rkv_model_free(*m);
    *m = NULL;
    with->load_mode = "stream";
    return load_model(m, with);
}

/* Outputs that the environment names are for other calls, where this one writes none: getenv's own
 * text tells them from those of the command line. */
static void drop_environment(opts *with)
{
    const int shows = with->check || with->show;
    if (shows && with->output && with->output == getenv("RIPPLEKV_OUTPUT"))
        with->output = NULL;
    if ((with->check || with->shard) && with->html && with->html == getenv("RIPPLEKV_HTML"))
        with->html = NULL;
}

/* The folder of --resume before the outputs are looked at, which may be in it. *made: it is new. */
static int make_folder(int *made, const opts *o)
{
    struct stat st;
    *made = o->resume && !mkdir(o->resume, 0777);
    if (!o->resume || *made || (errno == EEXIST && !stat(o->resume, &st) && S_ISDIR(st.st_mode)))
        return check_not_kept(o);
    fprintf(stderr, "rkv: %s: cannot make the folder: %s\n", o->resume,
            errno == EEXIST ? "not a folder" : strerror(errno));
    return EXIT_FAILED;
}

int cmd_profile(const opts *given)
{
    rkv_model *m = NULL;
    settings s;
    int made = 0;
    opts with = *given;
    const opts *const o = &with;
    drop_environment(&with);
    int code = check_words(o);
    if (!code && (o->merge || o->show))
        return o->merge ? run_merge(o) : run_show(o);
    if (!code)
        code = read_settings(&s, o);
    if (!code && !o->check && !o->shard)
        code = join_ranks(&s, &with);
    if (!code)
        code = make_folder(&made, o);
    if (!code && !o->check)
        code = check_output(o->output);
    if (!code)
        code = check_output(o->html);
    if (!code) {
        catch_signals();
        code = load_within(&m, &with, s.o.memory);
    }
    if (!code) {
        s.o.cost = &s.cost;
        code = o->check ? run_check(o, m, &s) : o->shard ? run_shard(o, m, &s)
                                                         : run_profile(o, m, &s);
    }
    rkv_model_free(m);
    if (code && made)
        rmdir(o->resume);       /* unless something is in it */
    return code;
}

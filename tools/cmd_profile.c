/* rkv profile: measures how sensitive each layer's cache is. */
#include "config.h"
#include "common.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void print_table(const rkv_profile *p)
{
    enum { WIDTH = 40 };
    double most = 0.0;
    for (int l = 0; l < rkv_profile_n_layer(p); l++)
        most = fmax(most, rkv_profile_sensitivity(p, l));
    puts("layer  sensitivity (nats)");
    for (int l = 0; l < rkv_profile_n_layer(p); l++) {
        const double s = rkv_profile_sensitivity(p, l);
        if (isnan(s)) {
            printf("%5d  sliding window: outside the budget\n", l);
            continue;
        }
        const int n = most > 0.0 ? (int)(WIDTH * s / most + 0.5) : 0;
        printf("%5d  %-12.6g %.*s\n", l, s, n, "########################################");
    }
}

static int print_json(const char *path)
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

static int say_interrupted(const rkv_error *e, const opts *o)
{
    end_progress();
    fprintf(stderr, "rkv: %s: %s\n", e->text,
            o->resume ? "finished examples are kept; run the same command again to go on"
                      : "nothing was kept; with --resume DIR a run can be continued");
    return EXIT_INTERRUPTED;
}

/* Whether the profile can be written, told before the long work and not after it. */
static int check_output(const char *path)
{
    struct stat st;
    char folder[4096];
    const char *slash = strrchr(path, '/');
    const int n = slash ? (int)(slash - path) + 1 : 0;
    const int there = !stat(path, &st);
    int bad = snprintf(folder, sizeof folder, "%.*s.", n, path) >= (int)sizeof folder
                  ? ENAMETOOLONG : there && S_ISDIR(st.st_mode) ? EISDIR : 0;
    if (!bad && access(there && !S_ISREG(st.st_mode) ? path : folder, W_OK))
        bad = errno;
    if (!bad)
        return 0;
    fprintf(stderr, "rkv: %s: cannot write the profile: %s\n", path, strerror(bad));
    return EXIT_FAILED;
}

static int run(const opts *o, const rkv_model *m, const rkv_profile_options *po)
{
    rkv_profile *p;
    rkv_error e;
    catch_signals();
    if (rkv_profile_run(&p, m, o->data, po, &e))
        return e.status == RKV_E_CANCELLED ? say_interrupted(&e, o) : fail(&e);
    end_progress();
    int code = rkv_profile_save(p, o->output, &e) ? fail(&e) : 0;
    if (code == EXIT_INPUT)                     /* which the output is not */
        code = EXIT_FAILED;
    if (!code && o->json)
        code = print_json(o->output);
    if (!code && !o->json) {
        print_table(p);
        code = finish_stdout();
    }
    rkv_profile_free(p);
    return code;
}

int cmd_profile(const opts *o)
{
    rkv_model *m = NULL;
    rkv_profile_options po = rkv_profile_options_default();
    if (!o->data)
        return usage("profile: name the calibration examples with --data FILE.jsonl");
    if (!o->output)
        return usage("profile: name the profile to write with -o FILE.json");
    po.n_example_max = o->examples;
    po.noise = o->noise;
    po.n_seed = o->noise_seeds;
    po.n_ctx = o->n_ctx;
    po.n_thread = o->n_thread;
    po.resume_dir = o->resume;
    po.progress = show_progress;
    int code = read_response(&po, o);
    if (!code)
        code = check_output(o->output);
    if (!code)
        code = load_model(&m, o);
    if (!code)
        code = run(o, m, &po);
    rkv_model_free(m);
    return code;
}

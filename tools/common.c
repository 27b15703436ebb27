#include "config.h"
#include "common.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t bar_shown;

int exit_code(const rkv_error *e)
{
    static const struct {
        rkv_status status;
        int code;
    } codes[] = {
        {RKV_E_ARG, EXIT_USAGE}, {RKV_E_IO, EXIT_INPUT}, {RKV_E_FORMAT, EXIT_INPUT},
        {RKV_E_UNSUPPORTED, EXIT_INPUT}, {RKV_E_MISMATCH, EXIT_INPUT}, {RKV_E_MEM, EXIT_MEMORY},
        {RKV_E_CANCELLED, EXIT_INTERRUPTED}, {RKV_E_WRITE, EXIT_FAILED},
    };
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (codes[i].status == e->status)
            return codes[i].code;
    return EXIT_FAILED;
}

int fail(const rkv_error *e)
{
    end_progress();
    fprintf(stderr, "rkv: %s\n", e->text);
    return exit_code(e);
}

int usage(const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    fputs("rkv: ", stderr);
    vfprintf(stderr, format, ap);
    fputc('\n', stderr);
    va_end(ap);
    return EXIT_USAGE;
}

int no_memory(const char *what)
{
    end_progress();
    fprintf(stderr, "rkv: %s: out of memory\n", what);
    return EXIT_MEMORY;
}

/* ---- signals and progress ---- */

static volatile sig_atomic_t caught;

static void write_stderr(const char *text)
{
    const ssize_t n = write(STDERR_FILENO, text, strlen(text));
    (void)n;                                    /* there is nobody left to tell */
}

static void on_signal(int sig)
{
    if (caught) {
        write_stderr(bar_shown ? "\r\033[K" : "");
        write_stderr("rkv: interrupted a second time: ended at once\n");
        _exit(128 + sig);
    }
    caught = 1;
}

int interrupted(void)
{
    return caught;
}

void catch_signals(void)
{
    struct sigaction a = {.sa_handler = on_signal}, old;
    sigemptyset(&a.sa_mask);
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
    if (!sigaction(SIGHUP, NULL, &old) && old.sa_handler != SIG_IGN)
        sigaction(SIGHUP, &a, NULL);
}

/* ---- a model file that goes away ---- */

static char lost_file[512] = "rkv: a mapped file";
static const char lost_why[] = ": cannot be read any more: it became shorter while in use, or its "
                               "disk failed\n";

/* The page that was touched is lost, and with it the work: nothing can be returned to. */
static void on_lost_page(int sig, siginfo_t *info, void *context)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;
    (void)context;
    if (info->si_code != BUS_ADRERR) {
        signal(sig, SIG_DFL);
        raise(sig);
        return;
    }
    while (atomic_flag_test_and_set(&told))     /* another thread was first, and ends us all */
        pause();
    if (bar_shown)
        write_stderr("\r\033[K");
    write_stderr(lost_file);
    write_stderr(lost_why);
    _exit(EXIT_INPUT);
}

void catch_lost_pages(const char *path)
{
    struct sigaction a = {.sa_sigaction = on_lost_page, .sa_flags = SA_SIGINFO};
    const size_t n = strlen(path), most = sizeof lost_file - 16;
    snprintf(lost_file, sizeof lost_file, "rkv: %s%s", n > most ? "..." : "",
             n > most ? path + n - most + 4 : path);
    for (char *c = lost_file; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?';
    sigemptyset(&a.sa_mask);
    sigaction(SIGBUS, &a, NULL);
}

double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int show_progress(void *ctx, const char *phase, int64_t done, int64_t total)
{
    static double started, shown;
    static const char *current;
    static int64_t last, before;                /* before: done when the phase began, or went on */
    (void)ctx;
    const double now = now_s();
    if (!current || strcmp(current, phase) || done < last) { /* a phase begins, or begins again */
        current = phase;
        started = shown = now;
        before = done;
    }
    last = done;
    const int tty = isatty(STDERR_FILENO);
    if (now - shown < (tty ? 0.2 : 10.0) || total <= 0)
        return caught;
    shown = now;
    const double share = (double)done / (double)total;
    if (done == before)         /* nothing to tell the time from */
        return caught;
    const double rate = (double)(done - before) / (now - started);
    const double left = (double)(total - done) / rate;
    if (!tty) {
        fprintf(stderr, "%s: %.0f %%, %.0f s left\n", phase, 100.0 * share, left);
        return caught;
    }
    char bar[31];
    for (int i = 0; i < 30; i++)
        bar[i] = i < (int)(30.0 * share) ? '=' : ' ';
    bar[30] = 0;
    fprintf(stderr, "\r%s [%s] %3.0f %%, %.0f s left \033[K", phase, bar, 100.0 * share, left);
    bar_shown = 1;
    return caught;
}

int silent_progress(void *ctx, const char *phase, int64_t done, int64_t total)
{
    (void)ctx, (void)phase, (void)done, (void)total;
    return caught;
}

void end_progress(void)
{
    if (bar_shown)
        fputs("\r\033[K", stderr);
    bar_shown = 0;
}

/* ---- memory of cJSON ---- */

static int json_lost;

static void *json_alloc(size_t n)
{
    void *p = malloc(n);
    json_lost |= !p;
    return p;
}

void json_start(void)
{
    cJSON_InitHooks(&(cJSON_Hooks){json_alloc, free});
}

/* ---- inputs ---- */

int load_model(rkv_model **m, const opts *o)
{
    rkv_error e;
    if (!o->model)
        return usage("name a model with -m");
    rkv_model_options how = rkv_model_options_default();
    how.load = strcmp(o->load_mode, "mmap+mlock") ? o->load_mode : "mlock";
    return rkv_model_load_with(m, o->model, &how, &e) ? fail(&e) : 0;
}

static rkv_budgets *budgets;    /* of --kv-budgets; lives as long as the process */

/* With a profile that has curves, a budget is enough. */
static const char *policy_name(const opts *o, const rkv_profile *profile)
{
    const double *grid, *damage;
    const int measured = !strcmp(o->kv_curves, "measured");
    if (o->kv_policy || !(o->kv_budget || o->decode_budget) || !profile ||
        !rkv_profile_curve(profile, measured, 0, strcmp(o->kv_unit, "layer") ? 0 : -1, &grid,
                           &damage))
        return o->kv_policy;
    fputs("rkv: --kv-policy curve, since the profile has damage curves\n", stderr);
    return "curve";
}

/* Options of single selectors and of what goes on behind them. */
static void set_scoring(rkv_policy *p, const opts *o)
{
    p->pool_average = !strcmp(o->pool, "avg");
    p->pool_before_mean = !strcmp(o->pool_order, "pool-mean");
    p->n_future = o->future;
    p->use_covariance = !strcmp(o->covariance, "on");
    p->use_value_norm = !strcmp(o->value_norm, "on");
    p->epsilon = o->epsilon;
    p->adakv_forced = !strcmp(o->adakv, "kvpress");
    p->safeguard = o->safeguard;
    p->first_stage = o->first_stage;
    p->critical_epsilon = o->critical_epsilon;
}

int read_policy(rkv_policy *p, rkv_profile **profile, const opts *o)
{
    rkv_error e;
    *p = rkv_policy_default();
    *profile = NULL;
    p->window = o->window;
    p->pool_kernel = o->kernel;
    p->recent = o->recent;
    p->ratio = o->r;
    p->gamma = o->gamma;
    p->curves_measured = !strcmp(o->kv_curves, "measured");
    p->unit_layers = !strcmp(o->kv_unit, "layer");
    p->n_sink = o->sink;
    p->beta = o->beta;
    p->published = !strcmp(o->pyramid, "published");
    p->seed = (uint64_t)o->kv_seed;
    set_scoring(p, o);
    if (o->kv_profile && rkv_profile_load(profile, o->kv_profile, &e))
        return fail(&e);
    if (o->kv_budgets && rkv_budgets_load(&budgets, o->kv_budgets, &e))
        return fail(&e);
    const char *name = policy_name(o, *profile);
    if (name && rkv_policy_set_name(p, name, &e))
        return fail(&e);
    if (o->kv_budget && rkv_policy_set_budget(p, o->kv_budget, &e))
        return fail(&e);
    if (strcmp(p->selector, "full") && p->budget_kind == RKV_BUDGET_NONE && !o->kv_budget &&
        !o->decode_budget)
        return usage("--kv-policy %s needs a --kv-budget, such as 20%%", o->kv_policy);
    if (!strcmp(p->selector, "full") && p->budget_kind != RKV_BUDGET_NONE)
        return usage(
            "--kv-budget %s has no effect with policy full; choose a --kv-policy, such as snapkv",
            o->kv_budget);
    p->profile = *profile;
    p->budgets = budgets;
    return 0;
}

rkv_session_options session_options(const opts *o, const rkv_policy *p)
{
    rkv_session_options s = rkv_session_options_default();
    s.n_ctx = o->n_ctx;
    s.n_thread = o->n_thread;
    s.n_chunk = o->n_chunk;
    s.k_type = o->type_k;
    s.v_type = o->type_v;
    s.policy = *p;
    s.progress = show_progress;
    return s;
}

static const char *shown(const char *path)
{
    return strcmp(path, "-") ? path : "stdin";
}

static int read_failed(const char *path, char *text)
{
    fprintf(stderr, "rkv: %s: %s\n", shown(path), strerror(errno));
    free(text);
    return EXIT_INPUT;
}

int read_all(char **text, size_t *n, const char *path)
{
    FILE *f = strcmp(path, "-") ? fopen(path, "rb") : stdin;
    if (!f)
        return read_failed(path, NULL);
    size_t cap = 1 << 16, len = 0;
    char *buf = malloc(cap + 1);
    while (buf) {
        len += fread(buf + len, 1, cap - len, f);
        if (len < cap)
            break;
        char *more = cap < SIZE_MAX / 4 ? realloc(buf, cap * 2 + 1) : NULL;
        if (!more)
            free(buf);
        buf = more;
        cap *= 2;
    }
    const int bad = buf && ferror(f);
    if (f != stdin)
        fclose(f);
    if (!buf)
        return no_memory(shown(path));
    if (bad)
        return read_failed(path, buf);
    buf[len] = 0;
    *text = buf;
    *n = len;
    return 0;
}

int read_text(char **text, size_t *n, const char *path)
{
    const int bad = read_all(text, n, path);
    if (bad || !memchr(*text, 0, *n))
        return bad;
    fprintf(stderr, "rkv: %s: holds a NUL byte, expected text\n", shown(path));
    free(*text);
    *text = NULL;
    return EXIT_INPUT;
}

int find_template(char **text, const char *name)
{
    size_t n;
    *text = NULL;
    if (!name)
        return 0;
    const char *builtin = rkv_template_builtin(name);
    if (!builtin && !strchr(name, '/') && !strchr(name, '.'))
        return usage("--chat-template '%.40s': expected a file or one of %s", name,
                     rkv_template_names());
    if (!builtin)
        return read_text(text, &n, name);
    *text = strdup(builtin);
    return *text ? 0 : no_memory("chat template");
}

int read_shard(int *shard, int *n_shard, const char *text)
{
    enum { MOST = 1 << 20 };
    char *end = NULL, *tail = NULL;
    const long i = isdigit((unsigned char)*text) ? strtol(text, &end, 10) : 0;
    const long n = end && *end == '/' && isdigit((unsigned char)end[1])
                       ? strtol(end + 1, &tail, 10) : 0;
    if (!tail || *tail || i < 1 || i > n || n > MOST)
        return usage("--shard: '%.40s', expected I/N with I from 1 to N, such as 1/4", text);
    *shard = (int)i;
    *n_shard = (int)n;
    return 0;
}

static int not_ids(const char *path, const char *what)
{
    fprintf(stderr, "rkv: %s: %s, expected a JSON array of token ids\n", shown(path), what);
    return EXIT_INPUT;
}

int read_ids(int32_t **ids, size_t *n, const char *path)
{
    char *text;
    size_t n_byte;
    const int bad = read_all(&text, &n_byte, path);
    if (bad)
        return bad;
    const char *end = NULL;
    cJSON *array = cJSON_ParseWithLengthOpts(text, n_byte, &end, 0);
    while (array && end < text + n_byte && strchr(" \t\r\n", *end) && *end)
        end++;
    const int tail = array && end < text + n_byte;
    free(text);
    if (json_lost) {
        cJSON_Delete(array);
        return no_memory(shown(path));
    }
    if (!cJSON_IsArray(array) || tail) {
        cJSON_Delete(array);
        return not_ids(path, tail ? "text after the array" : "not a JSON array");
    }
    const size_t count = (size_t)cJSON_GetArraySize(array);
    int32_t *out = malloc((count ? count : 1) * sizeof *out);
    if (!out) {
        cJSON_Delete(array);
        return no_memory(shown(path));
    }
    size_t i = 0;
    int strange = 0;
    for (const cJSON *v = array->child; v && !strange; v = v->next) {
        const double d = cJSON_IsNumber(v) ? v->valuedouble : -1.0;
        strange = !(d >= 0.0 && d <= 2147483647.0 && d == floor(d));
        out[i++] = strange ? 0 : (int32_t)d;
    }
    cJSON_Delete(array);
    if (strange) {
        free(out);
        char what[64];
        snprintf(what, sizeof what, "element #%zu is no token id", i - 1);
        return not_ids(path, what);
    }
    *ids = out;
    *n = count;
    return 0;
}

int check_ids(const int32_t *ids, size_t n, const char *path, const rkv_model *m)
{
    const int n_vocab = rkv_model_get_info(m)->n_vocab;
    if (!n) {
        fprintf(stderr, "rkv: %s: no token ids in it, expected at least one\n", shown(path));
        return EXIT_INPUT;
    }
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= n_vocab) {
            fprintf(stderr, "rkv: %s: token id #%zu is %d, expected 0 to %d\n", shown(path), i,
                    ids[i], n_vocab - 1);
            return EXIT_INPUT;
        }
    return 0;
}

/* ---- outputs ---- */

void json_text(cJSON *object, const char *key, const char *bytes, size_t n)
{
    char *clean = rkv_utf8_clean(bytes, n);
    json_lost |= !clean;
    cJSON_AddStringToObject(object, key, clean ? clean : "");
    rkv_free(clean);
}

char *json_string(cJSON *object)
{
    char *text = object ? cJSON_PrintUnformatted(object) : NULL;
    cJSON_Delete(object);
    if (!json_lost)
        return text;
    free(text);
    return NULL;
}

int json_print(cJSON *object)
{
    char *text = json_string(object);
    if (!text)
        return no_memory("output");
    puts(text);
    free(text);
    return finish_stdout();
}

int finish_stdout(void)
{
    if (!fflush(stdout) && !ferror(stdout))
        return 0;
    fprintf(stderr, "rkv: cannot write the output: %s\n", strerror(errno));
    return EXIT_FAILED;
}

uint64_t peak_rss_bytes(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (uint64_t)u.ru_maxrss << 10;
}

int print_text(const opts *o, const char *text, size_t n)
{
    if (!o->json) {
        fwrite(text, 1, n, stdout);
        return finish_stdout();
    }
    cJSON *root = cJSON_CreateObject();
    json_text(root, "text", text, n);
    return json_print(root);
}

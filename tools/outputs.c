/* Outputs before the work: none over an input or another output, and all can be written. */
#include "config.h"
#include "common.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct named {
    const char *option, *path;  /* NULL: not given */
} named;

static int folder_of(char *folder, size_t size, const char *path)
{
    const char *slash = strrchr(path, '/');
    const int n = slash ? (int)(slash - path) + 1 : 0;
    return snprintf(folder, size, "%.*s.", n, path) < (int)size;
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* By whatever names and links; of files that are not there yet, by their folder. Devices and pipes
 * may be written twice. */
static int is_same_file(const char *a, const char *b)
{
    struct stat x, y;
    char of_a[PATH_MAX], of_b[PATH_MAX];
    const int no_a = stat(a, &x), no_b = stat(b, &y);
    if (!no_a && !no_b)
        return S_ISREG(x.st_mode) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
    return no_a && no_b && !strcmp(last_part(a), last_part(b)) &&
           folder_of(of_a, sizeof of_a, a) && folder_of(of_b, sizeof of_b, b) &&
           !stat(of_a, &x) && !stat(of_b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Also one of the other shards of a split model. */
static int is_of_model(const char *path, const char *model)
{
    enum { SUFFIX = 20 };                       /* -00001-of-00003.gguf */
    char shard[PATH_MAX];
    int n_shard = 0;
    const size_t n = strlen(model), stem = n < SUFFIX ? 0 : n - SUFFIX;
    if (is_same_file(path, model))
        return 1;
    if (n < SUFFIX || sscanf(model + stem, "-%*5d-of-%5d.gguf", &n_shard) != 1)
        return 0;
    for (int i = 1; i <= n_shard; i++)
        if (snprintf(shard, sizeof shard, "%.*s-%05d-of-%05d.gguf", (int)stem, model, i,
                     n_shard) < (int)sizeof shard && is_same_file(path, shard))
            return 1;
    return 0;
}

static int also(const named *out, const char *what)
{
    return usage("%s: '%.200s' is also %s; name another file", out->option, out->path, what);
}

/* path is in a folder; whatever it links to. */
static int is_in(const char *path, const char *folder)
{
    struct stat x, y;
    char of[PATH_MAX];
    return folder_of(of, sizeof of, path) && !stat(of, &x) && !stat(folder, &y) &&
           x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* By its name or what that links to, a file of a folder of --data: those of tasks, TASK.jsonl. */
static int is_of_data(const char *path, const char *data)
{
    char real[PATH_MAX];
    const char *const at[] = {path, realpath(path, real) ? real : path};
    for (int i = 0; i < 2; i++) {
        const char *dot = strrchr(last_part(at[i]), '.');
        if (dot && !strcmp(dot, ".jsonl") && is_in(at[i], data))
            return 1;
    }
    return 0;
}

static int check_one_output(const named *out, const opts *o)
{
    const named in[] = {
        {"the --data", o->data}, {"the --check", o->check}, {"the --show", o->show},
        {"the --ids", o->ids}, {"the --kv-profile", o->kv_profile},
        {"the --kv-budgets", o->kv_budgets}, {"the --score", o->score},
    };
    if (!*out->path)
        return usage("%s: the name of the file is empty", out->option);
    if (o->model && is_of_model(out->path, o->model))
        return also(out, "the -m");
    for (size_t i = 0; i < sizeof in / sizeof *in; i++)
        if (in[i].path && is_same_file(out->path, in[i].path))
            return also(out, in[i].option);
    if (o->data && is_of_data(out->path, o->data))
        return also(out, "among the files of the --data");
    for (int i = 0; i < o->n_word; i++)
        if (is_same_file(out->path, o->word[i]))
            return also(out, "among the parts");
    return 0;
}

int check_outputs(const opts *o)
{
    const named out[] = {{"-o", o->output}, {"--html", o->html}, {"--logits", o->logits},
                         {"--db", o->db}, {"--write", o->write}};
    const size_t n = sizeof out / sizeof *out;
    for (size_t i = 0; i < n; i++) {
        const int bad = out[i].path ? check_one_output(&out[i], o) : 0;
        if (bad)
            return bad;
    }
    if (o->html && o->output && is_same_file(o->html, o->output))
        return also(&out[1], "the -o");
    if (o->html && o->db && is_same_file(o->html, o->db))
        return also(&out[1], "the --db");
    return 0;
}

/* One of the files of a folder of --resume: DIR/profile.sqlite, profile-1-of-2.sqlite-wal. */
static int is_kept(const char *path, const char *resume)
{
    char real[PATH_MAX];
    const char *at = realpath(path, real) ? real : path, *name = last_part(at);
    return !strncmp(name, "profile", 7) && strstr(name, ".sqlite") && is_in(at, resume);
}

int check_not_kept(const opts *o)
{
    const named out[] = {{"-o", o->output}, {"--html", o->html}};
    for (size_t i = 0; o->resume && i < sizeof out / sizeof *out; i++)
        if (out[i].path && is_kept(out[i].path, o->resume))
            return also(&out[i], "where --resume keeps what is finished");
    return 0;
}

/* in_place: of a file that is there the bytes are changed; else a new one takes its name. */
static int check_place(const char *path, int in_place)
{
    struct stat st;
    if (!path)
        return 0;
    char folder[PATH_MAX], real[PATH_MAX];
    const int there = !stat(path, &st);
    const char *at = there && realpath(path, real) ? real : path;
    int bad = !folder_of(folder, sizeof folder, at) ? ENAMETOOLONG
              : there && S_ISDIR(st.st_mode)        ? EISDIR : 0;
    if (!bad && access(there && !S_ISREG(st.st_mode) ? path : folder, W_OK))
        bad = errno;
    if (!bad && there && in_place && access(path, W_OK))
        bad = errno;
    if (!bad)
        return 0;
    fprintf(stderr, "rkv: %s: cannot be written: %s\n", path, strerror(bad));
    return EXIT_FAILED;
}

int check_output(const char *path)
{
    return check_place(path, 0);
}

int check_database(const char *path)
{
    return check_place(path, 1);
}

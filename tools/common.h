/* What the commands share: exit codes, loading, policies, progress, JSON output. */
#ifndef RKV_COMMON_H
#define RKV_COMMON_H

#include <cjson/cJSON.h>

#include "opts.h"
#include "rkv.h"

enum {
    EXIT_OK = 0,
    EXIT_FAILED = 1,
    EXIT_USAGE = 2,
    EXIT_INPUT = 3,
    EXIT_MEMORY = 4,
    EXIT_INTERRUPTED = 130
};

int exit_code(const rkv_error *e);
/* Prints the error's line on stderr and returns its exit code. */
int fail(const rkv_error *e);
/* One line on stderr; returns EXIT_USAGE. */
int usage(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* "WHAT: out of memory" on stderr; returns EXIT_MEMORY. */
int no_memory(const char *what);

/* From here on SIGINT, SIGTERM and SIGHUP (unless it is ignored, as by nohup) stop the work in
 * order; a second one ends the process at once. Before it the first one does: nothing is lost while
 * inputs are read. */
void catch_signals(void);
int interrupted(void);

/* progress callback: a bar on a terminal, a line every 10 s elsewhere; stops when interrupted. */
int show_progress(void *ctx, const char *phase, int64_t done, int64_t total);
/* The same without a word. */
int silent_progress(void *ctx, const char *phase, int64_t done, int64_t total);
/* Clears the bar's line, if one is there. */
void end_progress(void);

/* From here on a page of the mapped file `path` that cannot be read any more (SIGBUS) ends the
 * process with one line and EXIT_INPUT. */
void catch_lost_pages(const char *path);

/* outputs.c: no option's output is an input, another output, or without a name. 0 or EXIT_USAGE. */
int check_outputs(const opts *o);
/* No output is a database in the folder of --resume, which is there. 0 or EXIT_USAGE. */
int check_not_kept(const opts *o);
/* The file can be written, as far as can be told before the long work; NULL: none is. 0, or
 * EXIT_FAILED after one line. */
int check_output(const char *path);
/* The same of a file that SQLite changes in place. */
int check_database(const char *path);

/* -m is given and loads. 0 or an exit code. */
int load_model(rkv_model **m, const opts *o);
/* Policy from the options; *profile is to be freed after its last use. 0 or an exit code. */
int read_policy(rkv_policy *p, rkv_profile **profile, const opts *o);
rkv_session_options session_options(const opts *o, const rkv_policy *p);

/* Whole file or stdin ("-"), 0-terminated, freed with free. 0 or an exit code. */
int read_all(char **text, size_t *n, const char *path);
/* The same; a NUL in it is refused. */
int read_text(char **text, size_t *n, const char *path);
/* Text of a chat template by its name, or from a file; freed with free. NULL in *text when name is
 * NULL: the model's own. 0 or an exit code. */
int find_template(char **text, const char *name);
/* "I/N" of --shard, I from 1 to N. 0 or an exit code. */
int read_shard(int *shard, int *n_shard, const char *text);
/* A JSON array of token ids from a file or stdin; freed with free. 0 or an exit code. */
int read_ids(int32_t **ids, size_t *n, const char *path);
/* The ids that a file gave are at least one, and of the model's vocabulary. 0 or an exit code. */
int check_ids(const int32_t *ids, size_t n, const char *path, const rkv_model *m);

/* What cJSON could not allocate is remembered until json_print, which then refuses the output. */
void json_start(void);
/* Adds a string whose stray bytes are replaced. */
void json_text(cJSON *object, const char *key, const char *bytes, size_t n);
/* The object as text, freed with free; frees the object. NULL: no memory, or some was missing
 * before. */
char *json_string(cJSON *object);
/* Prints a text on stdout, with --json as {"text"}. 0 or an exit code, as json_print. */
int print_text(const opts *o, const char *text, size_t n);
/* Prints the object on stdout and frees it. 0, or an exit code when stdout fails or memory runs
 * out. */
int json_print(cJSON *object);
/* 0, or an exit code when something printed on stdout was lost. */
int finish_stdout(void);

uint64_t peak_rss_bytes(void);
double now_s(void);

/* The commands: argv[0] is the command's name; each returns an exit code. */
int cmd_run(const opts *o);
int cmd_tokenize(const opts *o);
int cmd_score(const opts *o);
int cmd_select(const opts *o);
int cmd_profile(const opts *o);
int cmd_budget(const opts *o);
int cmd_inspect(const opts *o);
int cmd_template(const opts *o);
int cmd_bench(const opts *o);
int cmd_eval(const opts *o);

#endif

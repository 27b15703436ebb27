/* Options of all commands: one table gives names, ranges, help and environment variables. */
#ifndef RKV_OPTS_H
#define RKV_OPTS_H

#include "rkv.h"

/* One bit per command; an option lists the commands that know it. */
enum {
    CMD_RUN = 1, CMD_TOKENIZE = 2, CMD_SCORE = 4, CMD_SELECT = 8, CMD_PROFILE = 16, CMD_BUDGET = 32,
    CMD_INSPECT = 64, CMD_TEMPLATE = 128, CMD_BENCH = 256, CMD_EVAL = 512
};

typedef struct opts {
    const char *memory;
    const char *model, *load_mode, *file, *prompt, *system, *ids, *logits, *data, *output, *resume;
    const char *kv_policy, *kv_budget, *kv_profile, *kv_curves, *kv_unit, *type_k, *type_v;
    const char *kv_budgets, *decode_budget, *pyramid, *covariance, *value_norm, *adakv;
    const char *chat_template, *chat_template_file, *response, *pool, *pool_order;
    const char *signals, *selector, *damage_budget, *grid, *shard, *check, *show, *html;
    const char *const *word;            /* [n_word] of the command line, no options of profile */
    const char *tasks, *protocol, *ruler, *needle, *write, *score, *against, *db;
    int limit, max_length, kl_tokens, samples, depths, csv, no_chat;
    int n_word, until_stable, merge, batch_rows;
    const char *bench_prompt, *bench_gen, *bench_depth, *bench_parallel, *format;
    int repetitions, no_warmup;
    int n_predict, n_ctx, n_thread, n_chunk, top, prefix, examples, noise_seeds, layers;
    int window, kernel, recent, sink, decode_interval, future, top_k, repeat_last, n_gpu_layers;
    double temp, top_p, min_p, repeat_penalty, noise, r, gamma, beta, kv_seed;
    double epsilon, safeguard, first_stage, critical_epsilon;
    double seed;
    int json, chat, ignore_eos, decode, bos, special, verbose, help;
} opts;

/* Fills o from defaults, then RIPPLEKV_* variables, then argv[1..]; a later source wins. Prints one
 * line on stderr and returns 2 for a bad option or value; 0 otherwise. */
int opts_parse(opts *o, unsigned cmd, int argc, char **argv);

/* The option part of a command's --help, on stdout. */
void opts_help(unsigned cmd);

#endif

/* rkv: one command, several verbs. Results on stdout, all else on stderr. */
#include "config.h"
#include "common.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    unsigned bit;
    int (*run)(const opts *o);
    const char *brief;          /* for the list of commands */
    const char *help;           /* before the options */
} commands[] = {
    {"run", CMD_RUN, cmd_run, "answer a prompt",
     "usage: rkv run -m MODEL [-f FILE] [-p PROMPT] [options]\n"
     "Streams the model's answer. A document (-f) goes before the prompt (-p). With --json one "
     "object:\n"
     "text, tokens, prompt_tokens, generated_tokens, prefill_tok_s, decode_tok_s, kv_bytes,\n"
     "kv_bytes_full, kv_tokens_per_layer, kv_tokens_per_head, peak_rss_bytes, stop."},
    {"tokenize", CMD_TOKENIZE, cmd_tokenize, "text to token ids, and back",
     "usage: rkv tokenize -m MODEL [--decode] < INPUT\n"
     "Text on stdin to a JSON array of ids; with --decode the other way. No token is added unless "
     "--bos."},
    {"score", CMD_SCORE, cmd_score, "log-probabilities of given tokens",
     "usage: rkv score -m MODEL --ids FILE [--top K] [--kv-policy P --kv-budget B --prefix N]\n"
     "One entry per input id about the next one: id, logprob (natural log; null for the last), lse "
     "(log\n"
     "sum exp of the logits) and the K likeliest. With a policy, the first N ids are the prompt, "
     "and\n"
     "those after it are scored against its compressed cache, with kl: KL(full || compressed) in "
     "nats."},
    {"select", CMD_SELECT, cmd_select, "which prompt tokens a policy keeps",
     "usage: rkv select -m MODEL --ids FILE --kv-policy P --kv-budget B [options]\n"
     "For each layer its budget (mean over KV heads) and, per KV head, its own and the kept "
     "positions;\n"
     "total: tokens per KV head summed over the layers that the budget covers (sliding-window "
     "layers stay\noutside)."},
    {"profile", CMD_PROFILE, cmd_profile, "measure how sensitive each layer's cache is",
     "usage: rkv profile -m MODEL --data CALIB.jsonl -o PROFILE.json [options]\n"
     "       rkv profile -m MODEL --data CALIB.jsonl -o PART.json --shard I/N [options]\n"
     "       rkv profile --merge PART.json... -o PROFILE.json\n"
     "       rkv profile --check PROFILE.json -m MODEL --data FILE.jsonl [--examples N]\n"
     "One pass over the examples; the profile divides budgets for policies ripple and curve, at "
     "any\nbudget. Parts may be measured on different machines: together they give the same bytes. "
     "A profile\nholds on a model when one new example (or N, which is surer) orders the layers "
     "with a Spearman\ncorrelation of at least 0.4."},
    {"budget", CMD_BUDGET, cmd_budget, "budgets of each layer and KV head from a profile",
     "usage: rkv budget --kv-profile FILE --kv-budget B -c N [--r R] [--gamma G]\n"
     "       rkv budget --kv-policy curve --kv-profile FILE --kv-budget B -c N [--kv-unit layer]\n"
     "       rkv budget --kv-policy snapkv --layers L --kv-budget B -c N\n"
     "The arithmetic alone: tokens per KV head of each layer for a prompt of N tokens; where heads "
     "differ,\nof each of them (with --json: budgets; budget is the mean)."},
    {"inspect", CMD_INSPECT, cmd_inspect, "model, machine and kernels",
     "usage: rkv inspect [MODEL]\n"
     "What the file holds, what the CPU can do, which GPUs there are (or why none), which kernels "
     "were\nchosen."},
    {"template", CMD_TEMPLATE, cmd_template, "render a chat template",
     "usage: rkv template [-m MODEL] [--chat-template NAME|FILE] < MESSAGES.json\n"
     "An object {messages, add_generation_prompt, bos_token, eos_token} on stdin to the prompt's\n"
     "text, by the named template or the model's own; the model also gives the two tokens."},
    {"bench", CMD_BENCH, cmd_bench, "tokens per second of prefill and decode",
     "usage: rkv bench -m MODEL [-p 512,2048] [-n 128] [-d 0,8192] [-npl 1,4] [-r 5]\n"
     "                 [-o md|csv|json|jsonl]\n"
     "Each prompt length (pp), then each answer length (tg), at each depth, with llama-bench's "
     "fields and\n"
     "kv_bytes, kv_bytes_full, peak_rss. A policy compresses the prompt, or the depth where there "
     "is one."},
    {"eval", CMD_EVAL, cmd_eval, "compare policies and budgets on benchmarks",
     "usage: rkv eval -m MODEL --data FILE.jsonl|FOLDER --policies P,... --budgets B,... "
     "[options]\n"
     "       rkv eval -m MODEL --ruler 4K|--needle 8K [--write FILE.jsonl] [options]\n"
     "       rkv eval --score PREDICTIONS.jsonl\n"
     "Scores as LongBench's and RULER's, KL to the full cache, and bytes, with intervals and "
     "paired tests.\nEach prompt is taken in once. With --db a run that was stopped goes on, and "
     "other policies can join."},
};
enum { N_COMMAND = sizeof commands / sizeof *commands };

static int verbose;

static void on_log(void *ctx, int level, const char *line)
{
    (void)ctx;
    if (level <= RKV_LOG_WARN || verbose) {
        end_progress();
        fprintf(stderr, "rkv: %s\n", line);
    }
}

static void print_help(FILE *f)
{
    fputs("rkv: long-context language models on CPU servers, in a fraction of the KV memory\n\n"
          "usage: rkv COMMAND [options]\n\n", f);
    for (int i = 0; i < N_COMMAND; i++)
        fprintf(f, "  %-10s %s\n", commands[i].name, commands[i].brief);
    fputs("\nrkv COMMAND --help tells the options; rkv --version the version.\n"
          "Exit codes: 0 ok, 1 an output cannot be written or --check does not hold, 2 usage, "
          "3 bad input\nfile, 4 does not fit in memory, 130 interrupted.\n"
          "RKV_CPU=ref|avx2|avx512|vnni|amx limits the kernels to a tier; "
          "RKV_GEMM=auto|own|blas|bf16|int16 chooses\nhow prefill multiplies; "
          "RKV_CUDA_PLUGIN=FILE names a plug-in for GPUs other than the installed one.\n", f);
}

/* A closed standard stream gets its number taken, with the wrong direction: else the next file that
 * is opened would receive what is printed. */
static void hold_standard_files(void)
{
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) == -1 && errno == EBADF)
            open("/dev/null", fd ? O_RDONLY : O_WRONLY);
}

static int print_version(void)
{
    rkv_machine_info i;
    rkv_error e;
    if (rkv_machine_get_info(&i, &e))
        return fail(&e);
    printf("rkv %s, kernels %s (CPU: up to %s), BLAS %s\n", rkv_version(), i.tier, i.tier_max,
           i.blas);
    return finish_stdout();
}

int main(int argc, char **argv)
{
    hold_standard_files();
    signal(SIGPIPE, SIG_IGN);                   /* a lost reader is a failed write, */
    signal(SIGXFSZ, SIG_IGN);                   /* and so is a limit of the file size */
    if (argc < 2 || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") ||
        !strcmp(argv[1], "help")) {
        print_help(argc < 2 ? stderr : stdout);
        return argc < 2 ? EXIT_USAGE : finish_stdout();
    }
    if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "version"))
        return print_version();
    for (int i = 0; i < N_COMMAND; i++) {
        opts o;
        if (strcmp(argv[1], commands[i].name))
            continue;
        const int bad = opts_parse(&o, commands[i].bit, argc - 1, argv + 1);
        if (bad)
            return bad;
        if (o.help) {
            puts(commands[i].help);
            opts_help(commands[i].bit);
            return finish_stdout();
        }
        verbose = o.verbose;
        rkv_log_set(on_log, NULL);
        json_start();
        if (o.model)
            catch_lost_pages(o.model);
        const int code = commands[i].run(&o);
        end_progress();
        return code;
    }
    return usage("unknown command '%.40s'; see rkv --help", argv[1]);
}

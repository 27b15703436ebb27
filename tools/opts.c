#include "config.h"
#include "opts.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* CHOICE: one of the words of arg; WORD: a flag that gives its text member the word arg. */
enum kind { TEXT, CHOICE, INT, REAL, FLAG, WORD };

typedef struct option {
    const char *name, *brief, *other;   /* --name; -b; a second long or short name; NULL: none */
    enum kind kind;
    size_t offset;
    const char *initial;                /* NULL: unset text */
    double min, max;
    unsigned cmds;
    const char *arg, *help;
} option;

#define AT(member) offsetof(opts, member)
#define ANY                                                                                        \
    (CMD_RUN | CMD_TOKENIZE | CMD_SCORE | CMD_SELECT | CMD_PROFILE | CMD_BUDGET | CMD_INSPECT |    \
     CMD_TEMPLATE | CMD_BENCH | CMD_EVAL)
#define MODEL (ANY & ~(unsigned)CMD_BUDGET)
#define POLICY (CMD_RUN | CMD_SCORE | CMD_SELECT)
#define CACHE (POLICY | CMD_BENCH)
#define SETTINGS (CACHE | CMD_EVAL)
#define WEIGHTS (SETTINGS | CMD_PROFILE | CMD_INSPECT)
#define LARGE 2147483647.0

static const option table[] = {
    {"model", "m", NULL, TEXT, AT(model), NULL, 0, 0, MODEL, "FILE",
     "GGUF model (first shard of a split one)"},
    {"load-mode", "lm", NULL, CHOICE, AT(load_mode), "auto", 0, 0, WEIGHTS,
     "auto|none|mmap|mlock|mmap+mlock|stream",
     "weights in memory (none), in the file's mapping, there and locked, or read by layers"},
    {"no-mmap", NULL, NULL, WORD, AT(load_mode), NULL, 0, 1, WEIGHTS, "none",
     "short for --load-mode none"},
    {"mlock", NULL, NULL, WORD, AT(load_mode), NULL, 0, 1, WEIGHTS, "mlock",
     "short for --load-mode mlock"},
    {"file", "f", NULL, TEXT, AT(file), NULL, 0, 0, CMD_RUN, "FILE",
     "document that goes before the prompt; - is stdin"},
    {"prompt", "p", NULL, TEXT, AT(prompt), NULL, 0, 0, CMD_RUN, "TEXT", "prompt"},
    {"system-prompt", "sys", NULL, TEXT, AT(system), NULL, 0, 0, CMD_RUN, "TEXT",
     "system message, with --chat"},
    {"chat", "cnv", "conversation", FLAG, AT(chat), "0", 0, 1, CMD_RUN, NULL,
     "wrap the prompt by the chat template"},
    {"chat-template", NULL, NULL, TEXT, AT(chat_template), NULL, 0, 0, CMD_RUN | CMD_TEMPLATE,
     "NAME|FILE", "template by name or file instead of the model's"},
    {"n-prompt", "p", NULL, TEXT, AT(bench_prompt), "512", 0, 0, CMD_BENCH, "N,...",
     "prefill tests of so many tokens; 0: none"},
    {"n-gen", "n", NULL, TEXT, AT(bench_gen), "128", 0, 0, CMD_BENCH, "N,...",
     "decode tests of so many tokens; 0: none"},
    {"n-depth", "d", NULL, TEXT, AT(bench_depth), "0", 0, 0, CMD_BENCH, "N,...",
     "tokens the cache already holds when a test begins"},
    {"n-parallel", "npl", NULL, TEXT, AT(bench_parallel), "1", 0, 0, CMD_BENCH, "N,...",
     "decode tests with so many sessions together; t/s count all of them"},
    {"repetitions", "r", NULL, INT, AT(repetitions), "5", 1, 1000, CMD_BENCH, "N",
     "how often each test runs"},
    {"no-warmup", NULL, NULL, FLAG, AT(no_warmup), "0", 0, 1, CMD_BENCH, NULL,
     "no untimed run first"},
    {"output", "o", NULL, CHOICE, AT(format), "md", 0, 0, CMD_BENCH, "md|csv|json|jsonl",
     "format of the table on stdout"},
    {"predict", "n", "n-predict", INT, AT(n_predict), "256", 0, LARGE, CMD_RUN, "N",
     "most tokens to generate"},
    {"ctx-size", "c", NULL, INT, AT(n_ctx), "0", 0, 1 << 27,
     CMD_RUN | CMD_SCORE | CMD_SELECT | CMD_PROFILE | CMD_BUDGET | CMD_EVAL, "N",
     "context in tokens; 0: what is needed (budget: the prompt's length)"},
    {"threads", "t", NULL, INT, AT(n_thread), "0", 0, 1024,
     CMD_RUN | CMD_SCORE | CMD_SELECT | CMD_PROFILE | CMD_BENCH | CMD_EVAL, "N",
     "threads; 0: all this process may use"},
    {"ubatch-size", "ub", NULL, INT, AT(n_chunk), "256", 1, 65536, SETTINGS, "N",
     "prompt rows per pass inside a layer"},
    {"temp", NULL, NULL, REAL, AT(temp), "0", 0, 100, CMD_RUN, "T", "temperature; 0: greedy"},
    {"top-k", NULL, NULL, INT, AT(top_k), "40", 0, LARGE, CMD_RUN, "N",
     "keep the N likeliest tokens; 0: off"},
    {"top-p", NULL, NULL, REAL, AT(top_p), "0.95", 0, 1, CMD_RUN, "P",
     "keep the likeliest tokens up to this mass; 1: off"},
    {"min-p", NULL, NULL, REAL, AT(min_p), "0.05", 0, 1, CMD_RUN, "P",
     "drop tokens below this share of the likeliest; 0: off"},
    {"repeat-penalty", NULL, NULL, REAL, AT(repeat_penalty), "1", 0.01, 100, CMD_RUN, "X",
     "penalty of recent tokens; 1: off"},
    {"repeat-last-n", NULL, NULL, INT, AT(repeat_last), "64", 0, 4096, CMD_RUN, "N",
     "how many tokens are recent"},
    {"seed", "s", NULL, REAL, AT(seed), "0", 0, 9007199254740992.0, CMD_RUN | CMD_EVAL, "N",
     "seed of the sampler; eval: of made samples"},
    {"ignore-eos", NULL, NULL, FLAG, AT(ignore_eos), "0", 0, 1, CMD_RUN, NULL,
     "do not stop at the end token"},
    {"ids", NULL, NULL, TEXT, AT(ids), NULL, 0, 0, CMD_RUN | CMD_SCORE | CMD_SELECT, "FILE",
     "JSON array of token ids; - is stdin"},
    {"top", NULL, NULL, INT, AT(top), "0", 0, 1000000, CMD_SCORE, "K",
     "report the K likeliest next tokens"},
    {"logits", NULL, NULL, TEXT, AT(logits), NULL, 0, 0, CMD_SCORE, "FILE",
     "also write all logits, a NumPy array [ids][vocabulary] of float32"},
    {"prefix", NULL, NULL, INT, AT(prefix), "0", 0, LARGE, CMD_SCORE, "N",
     "ids that make up the compressed prompt"},
    {"kv-policy", NULL, NULL, TEXT, AT(kv_policy), NULL, 0, 0, CACHE | CMD_BUDGET, "NAME",
     "full, streaming, snapkv, h2o, observed, tova, knorm, expected, blend, pyramid, ripple, "
     "local, curve, adakv, criticalkv, or SELECTOR:ALLOCATOR; +adakv, +criticalkv behind it"},
    {"kv-budget", NULL, NULL, TEXT, AT(kv_budget), NULL, 0, 0, CACHE | CMD_BUDGET, "B",
     "20% of the prompt, 4096 tokens per layer and head, or 512M bytes"},
    {"kv-decode-budget", NULL, NULL, TEXT, AT(decode_budget), NULL, 0, 0, CMD_RUN, "B",
     "most that prompt and answer hold together: the policy also evicts while generating"},
    {"kv-decode-interval", NULL, NULL, INT, AT(decode_interval), "64", 1, 1 << 20, CMD_RUN, "N",
     "tokens that an eviction makes room for, inside that budget"},
    {"kv-profile", NULL, NULL, TEXT, AT(kv_profile), NULL, 0, 0, SETTINGS | CMD_BUDGET, "FILE",
     "profile of the model, made by rkv profile"},
    {"kv-curves", NULL, NULL, CHOICE, AT(kv_curves), "estimated", 0, 0, SETTINGS | CMD_BUDGET,
     "estimated|measured", "curve, root: which damage curves of the profile"},
    {"kv-unit", NULL, NULL, CHOICE, AT(kv_unit), "head", 0, 0, SETTINGS | CMD_BUDGET, "head|layer",
     "curve, root: what has a budget of its own"},
    {"kv-budgets", NULL, NULL, TEXT, AT(kv_budgets), NULL, 0, 0, SETTINGS | CMD_BUDGET, "FILE",
     "allocator file: JSON as of rkv budget --json, scaled to --kv-budget"},
    {"kv-pyramid", NULL, NULL, CHOICE, AT(pyramid), "exact", 0, 0, SETTINGS | CMD_BUDGET,
     "exact|published", "pyramid: the exact total, or the published steps, which miss it"},
    {"kv-beta", NULL, NULL, REAL, AT(beta), "20", 1, 1e6, SETTINGS | CMD_BUDGET, "B",
     "pyramid: mean over the least budget, beside the window"},
    {"kv-seed", NULL, NULL, REAL, AT(kv_seed), "0", 0, 9007199254740992.0, SETTINGS | CMD_BUDGET,
     "N", "random: seed of its budgets"},
    {"layers", NULL, NULL, INT, AT(layers), "0", 0, 1024, CMD_BUDGET, "N",
     "layers that share the budget, where no profile tells them"},
    {"kv-window", NULL, NULL, INT, AT(window), "32", 0, 4096, SETTINGS | CMD_BUDGET, "N",
     "last prompt tokens, which stay; those that score, with snapkv and blend"},
    {"kv-sink", NULL, NULL, INT, AT(sink), "4", 0, 4096, SETTINGS | CMD_BUDGET, "N",
     "tokens beside the window that every KV head may keep at least; first ones, with streaming "
     "and expected"},
    {"kv-kernel", NULL, NULL, INT, AT(kernel), "7", 1, 1023, SETTINGS, "N",
     "width of the pooling of scores, odd"},
    {"kv-recent", NULL, NULL, INT, AT(recent), "512", 0, LARGE, SETTINGS, "N",
     "blend: last prompt tokens whose attention counts; 0: all"},
    {"kv-future", NULL, NULL, INT, AT(future), "512", 1, 1e6, SETTINGS, "N",
     "expected: positions after the prompt whose queries count"},
    {"kv-covariance", NULL, NULL, CHOICE, AT(covariance), "on", 0, 0, SETTINGS, "on|off",
     "expected: by the queries' covariance too"},
    {"kv-value-norm", NULL, NULL, CHOICE, AT(value_norm), "on", 0, 0, SETTINGS, "on|off",
     "expected: times the values' norm"},
    {"kv-epsilon", NULL, NULL, REAL, AT(epsilon), "0", 0, 1e6, SETTINGS, "E",
     "expected: added to the attention before that"},
    {"kv-adakv", NULL, NULL, CHOICE, AT(adakv), "published", 0, 0, SETTINGS, "published|kvpress",
     "adakv: a part of its budget is certain to a head, or its best tokens are"},
    {"kv-safeguard", NULL, NULL, REAL, AT(safeguard), "0.2", 0, 1, SETTINGS, "A",
     "adakv: that part"},
    {"kv-first-stage", NULL, NULL, REAL, AT(first_stage), "0.5", 0, 1, SETTINGS, "A",
     "criticalkv: part of the budget that goes by attention alone"},
    {"kv-critical-epsilon", NULL, NULL, REAL, AT(critical_epsilon), "0.0001", 0, 1e6, SETTINGS,
     "E", "criticalkv: added to the attention per query"},
    {"kv-pool", NULL, NULL, CHOICE, AT(pool), "max", 0, 0, SETTINGS, "max|avg", "kind of pooling"},
    {"kv-pool-order", NULL, NULL, CHOICE, AT(pool_order), "mean-pool", 0, 0, SETTINGS,
     "mean-pool|pool-mean", "pool after or before the mean over a GQA group"},
    {"r", NULL, NULL, REAL, AT(r), "1.5", 1, 1e6, POLICY | CMD_BUDGET | CMD_EVAL, "R",
     "ripple: ratio of the largest to the smallest weight"},
    {"gamma", NULL, NULL, REAL, AT(gamma), "2", 1, 1e6, SETTINGS | CMD_BUDGET, "G",
     "ripple: bound on a layer's weight"},
    {"cache-type-k", "ctk", NULL, TEXT, AT(type_k), "f16", 0, 0, SETTINGS, "TYPE",
     "type of cached keys: f16, f32, bf16, q8_0, q4_0"},
    {"cache-type-v", "ctv", NULL, TEXT, AT(type_v), "f16", 0, 0, SETTINGS, "TYPE",
     "type of cached values: f16, f32, bf16, q8_0, q4_0"},
    {"data", NULL, NULL, TEXT, AT(data), NULL, 0, 0, CMD_PROFILE, "FILE",
     "calibration examples, JSONL: prompt (text) or prompt_ids; answers (array of texts) or "
     "response_ids"},
    {"data", NULL, NULL, TEXT, AT(data), NULL, 0, 0, CMD_EVAL, "FILE|FOLDER",
     "samples, JSONL: task, prompt (or prompt_ids, or LongBench's context and input), answers; a "
     "folder's TASK.jsonl"},
    {"tasks", NULL, NULL, TEXT, AT(tasks), NULL, 0, 0, CMD_EVAL, "NAME,...",
     "only these tasks"},
    {"limit", NULL, NULL, INT, AT(limit), "0", 0, LARGE, CMD_EVAL, "N",
     "the first N samples of each task; 0: all"},
    {"kv-policy", NULL, "policies", TEXT, AT(kv_policy), NULL, 0, 0, CMD_EVAL, "NAME,...",
     "policies, as of rkv run; the full cache (alone without this) is always among them"},
    {"kv-budget", NULL, "budgets", TEXT, AT(kv_budget), NULL, 0, 0, CMD_EVAL, "B,...",
     "budgets of each policy, such as 10%,20%,30%"},
    {"against", NULL, NULL, TEXT, AT(against), NULL, 0, 0, CMD_EVAL, "NAME[@B]",
     "policy (or full) that the others are compared with; without it the first"},
    {"protocol", NULL, NULL, CHOICE, AT(protocol), "Q", 0, 0, CMD_EVAL, "Q|A",
     "Q: the question is in the compressed prompt; A: it follows the compressed context"},
    {"max-length", NULL, NULL, INT, AT(max_length), "0", 0, LARGE, CMD_EVAL, "N",
     "tokens of a prompt, more are cut out of its middle; 0: what fits the context"},
    {"kl-tokens", NULL, NULL, INT, AT(kl_tokens), "32", 1, 4096, CMD_EVAL, "N",
     "first answer tokens of the full cache that the KL is over"},
    {"no-chat", NULL, NULL, FLAG, AT(no_chat), "0", 0, 1, CMD_EVAL, NULL,
     "never wrap prompts by the model's chat template"},
    {"db", "o", "output", TEXT, AT(db), NULL, 0, 0, CMD_EVAL, "FILE",
     "SQLite database of all results; a rerun goes on from it"},
    {"ruler", NULL, NULL, TEXT, AT(ruler), NULL, 0, 0, CMD_EVAL, "N,...",
     "make samples of RULER's 13 tasks, so many tokens long (4K)"},
    {"needle", NULL, NULL, TEXT, AT(needle), NULL, 0, 0, CMD_EVAL, "N,...",
     "make passkeys at depths of a text so many tokens long"},
    {"samples", NULL, NULL, INT, AT(samples), "5", 1, 100000, CMD_EVAL, "N",
     "made samples of each task and length, or of each depth"},
    {"depths", NULL, NULL, INT, AT(depths), "5", 1, 1000, CMD_EVAL, "N",
     "depths of needles, from the begin to the end"},
    {"write", NULL, NULL, TEXT, AT(write), NULL, 0, 0, CMD_EVAL, "FILE",
     "only write the made samples there, JSONL"},
    {"score", NULL, NULL, TEXT, AT(score), NULL, 0, 0, CMD_EVAL, "FILE",
     "only score predictions, JSONL: id, task, prediction, answers, all_classes"},
    {"csv", NULL, NULL, FLAG, AT(csv), "0", 0, 1, CMD_EVAL, NULL, "a row per policy and task"},
    {"output", "o", NULL, TEXT, AT(output), NULL, 0, 0, CMD_PROFILE, "FILE", "profile to write"},
    {"examples", NULL, NULL, INT, AT(examples), "0", 0, LARGE, CMD_PROFILE, "N",
     "use the first N examples; 0: all"},
    {"response", NULL, NULL, TEXT, AT(response), "32", 0, 0, CMD_PROFILE, "N|answers",
     "answer tokens that count (8 or more), from the model's own greedy answer, or the data's "
     "answers"},
    {"noise", NULL, NULL, REAL, AT(noise), "0.5", 1e-6, 100, CMD_PROFILE, "E", "noise scale sigma"},
    {"noise-seeds", NULL, NULL, INT, AT(noise_seeds), "4", 1, 1000, CMD_PROFILE, "K",
     "noise seeds per example"},
    {"signals", NULL, NULL, TEXT, AT(signals), "values,curves", 0, 0, CMD_PROFILE, "LIST",
     "what is measured: values (always), keys, keys+values, damage, curves, layer-curves, "
     "head-curves"},
    {"selector", NULL, NULL, TEXT, AT(selector), "blend", 0, 0, CMD_PROFILE, "NAME",
     "selector of the tokens that stay in damage and curves"},
    {"damage-budget", NULL, NULL, TEXT, AT(damage_budget), "10%", 0, 0, CMD_PROFILE, "B",
     "share of the prompt that stays of a layer in damage"},
    {"grid", NULL, NULL, TEXT, AT(grid), NULL, 0, 0, CMD_PROFILE, "B,...",
     "shares of the prompt of the curves, ascending percentages; without it 3,5,10,20,30,50, and "
     "3,10,30 of measured heads"},
    {"memory", NULL, NULL, TEXT, AT(memory), NULL, 0, 0, CMD_PROFILE, "B",
     "bound of weights and work (4G): as many examples at a time as fit, weights read by layers"},
    {"batch-rows", NULL, NULL, INT, AT(batch_rows), "0", 0, LARGE, CMD_PROFILE, "N",
     "rows at a time in a walk, which bounds its memory; 0: all"},
    {"until-stable", NULL, NULL, FLAG, AT(until_stable), "0", 0, 1, CMD_PROFILE, NULL,
     "stop once every layer's budget is known to +-2 % of the mean"},
    {"resume", NULL, NULL, TEXT, AT(resume), NULL, 0, 0, CMD_PROFILE, "DIR",
     "keep finished work there, and go on from it"},
    {"shard", NULL, NULL, TEXT, AT(shard), NULL, 0, 0, CMD_PROFILE, "I/N",
     "only every Nth example from the Ith on; -o is then a part for --merge"},
    {"shard", NULL, NULL, TEXT, AT(shard), NULL, 0, 0, CMD_EVAL, "I/N",
     "only every Nth sample from the Ith on"},
    {"merge", NULL, NULL, FLAG, AT(merge), "0", 0, 1, CMD_PROFILE, NULL,
     "make the profile of all N parts, named without an option"},
    {"check", NULL, NULL, TEXT, AT(check), NULL, 0, 0, CMD_PROFILE, "PROFILE",
     "whether it orders the layers as an example of --data does; exit code 1: it does not"},
    {"show", NULL, NULL, TEXT, AT(show), NULL, 0, 0, CMD_PROFILE, "PROFILE",
     "print its numbers, and write --html of it; measures nothing"},
    {"html", NULL, NULL, TEXT, AT(html), NULL, 0, 0, CMD_PROFILE | CMD_EVAL, "FILE",
     "also write a report with charts, one page that needs no network"},
    {"decode", NULL, NULL, FLAG, AT(decode), "0", 0, 1, CMD_TOKENIZE, NULL,
     "JSON array of ids on stdin to text"},
    {"bos", NULL, NULL, FLAG, AT(bos), "0", 0, 1, CMD_TOKENIZE, NULL,
     "put the beginning-of-sequence token first, if the model wants one"},
    {"special", NULL, NULL, FLAG, AT(special), "0", 0, 1, CMD_TOKENIZE, NULL,
     "text of special tokens stands for them; --decode writes them out"},
    {"n-gpu-layers", "ngl", "gpu-layers", INT, AT(n_gpu_layers), "0", -1, LARGE, CMD_RUN, "N",
     "layers on a GPU: this build runs on the CPU only"},
    {"json", NULL, NULL, FLAG, AT(json), "0", 0, 1, ANY, NULL, "one JSON object on stdout"},
    {"verbose", "v", NULL, FLAG, AT(verbose), "0", 0, 1, ANY, NULL, "more on stderr"},
    {"help", "h", NULL, FLAG, AT(help), "0", 0, 1, ANY, NULL, "this text"},
};
enum { N_OPTION = sizeof table / sizeof *table };

static int complain(const char *name, const char *value, const char *expected)
{
    fprintf(stderr, "rkv: %s: '%.80s', expected %s\n", name, value, expected);
    return 2;
}

static int set_number(opts *o, const option *p, const char *shown, const char *value)
{
    char expected[80], *end;
    errno = 0;
    const double v = strtod(value, &end);
    snprintf(expected, sizeof expected, p->max >= LARGE ? "a%s number of at least %.10g"
             : "a%s number from %.10g to %.10g", p->kind == INT ? " whole" : "", p->min, p->max);
    const int strange = !isdigit((unsigned char)*value) && *value != '-' && *value != '.';
    if (end == value || *end || errno || strange || !(v >= p->min && v <= p->max))
        return complain(shown, value, expected);
    if (p->kind == INT && v != (double)(int)v)
        return complain(shown, value, expected);
    if (p->kind == INT)
        *(int *)(void *)((char *)o + p->offset) = (int)v;
    else
        *(double *)(void *)((char *)o + p->offset) = v;
    return 0;
}

static int is_choice(const char *words, const char *value)
{
    const size_t n = strlen(value);
    for (const char *w = words; w; w = strchr(w, '|') ? strchr(w, '|') + 1 : NULL)
        if (n && strcspn(w, "|") == n && !memcmp(w, value, n))
            return 1;
    return 0;
}

static int is_flag(const option *p)
{
    return p->kind == FLAG || p->kind == WORD;
}

static int set(opts *o, const option *p, const char *shown, const char *value)
{
    if (p->kind == CHOICE && !is_choice(p->arg, value))
        return complain(shown, value, p->arg);
    if (p->kind == TEXT || p->kind == CHOICE) {
        *(const char **)(void *)((char *)o + p->offset) = value;
        return 0;
    }
    if (!is_flag(p))
        return set_number(o, p, shown, value);
    if (strcmp(value, "0") && strcmp(value, "1"))
        return complain(shown, value, "0 or 1");
    if (p->kind == FLAG)
        *(int *)(void *)((char *)o + p->offset) = *value == '1';
    else if (*value == '1')
        *(const char **)(void *)((char *)o + p->offset) = p->arg;
    return 0;
}

static int from_environment(opts *o, const option *p)
{
    char name[64];
    int n = snprintf(name, sizeof name, "RIPPLEKV_%s", p->name);
    for (int i = 0; i < n; i++)
        name[i] = name[i] == '-' ? '_' : (char)toupper((unsigned char)name[i]);
    const char *value = strcmp(p->name, "help") ? getenv(name) : NULL;
    return value && *value ? set(o, p, name, value) : 0;
}

/* The option that a word names; *value points behind '=' when the word holds one. */
static const option *find(const char *word, unsigned cmd, const char **value)
{
    const int dashes = word[0] == '-' ? word[1] == '-' ? 2 : 1 : 0;
    const char *equal = strchr(word, '=');
    const size_t n = (equal ? (size_t)(equal - word) : strlen(word)) - (size_t)dashes;
    *value = equal ? equal + 1 : NULL;
    for (int i = 0; dashes && i < N_OPTION; i++) {
        const option *p = &table[i];
        const char *names[] = {p->name, p->brief, p->other};
        for (int j = 0; j < 3; j++)
            if ((p->cmds & cmd) && names[j] && strlen(names[j]) == n &&
                !memcmp(names[j], word + dashes, n))
                return p;
    }
    return NULL;
}

static int parse_words(opts *o, unsigned cmd, int argc, char **argv)
{
    const char *named = NULL;                   /* inspect's model, without an option */
    char **words = argv + 1;                    /* gathered where all of them have been read */
    o->word = (const char *const *)words;
    for (int i = 1; i < argc; i++) {
        const char *value;
        const option *p = find(argv[i], cmd, &value);
        if (!p && argv[i][0] != '-' && cmd == CMD_INSPECT && !named) {
            named = o->model = argv[i];
            continue;
        }
        if (!p && argv[i][0] != '-' && cmd == CMD_PROFILE) {
            words[o->n_word++] = argv[i];
            continue;
        }
        if (!p) {
            fprintf(stderr, "rkv: unknown option '%.80s'; see rkv %s --help\n", argv[i], argv[0]);
            return 2;
        }
        if (!value && is_flag(p))
            value = "1";
        if (!value && i + 1 < argc)
            value = argv[++i];
        if (!value) {
            fprintf(stderr, "rkv: option '%.80s' needs a value: %s\n", argv[i], p->arg);
            return 2;
        }
        const int bad = set(o, p, argv[i - (value == argv[i])], value);
        if (bad)
            return bad;
    }
    return 0;
}

int opts_parse(opts *o, unsigned cmd, int argc, char **argv)
{
    *o = (opts){0};
    for (int i = 0; i < N_OPTION; i++)
        if (table[i].initial)
            set(o, &table[i], table[i].name, table[i].initial);
    for (int i = 0; i < N_OPTION; i++)
        if (table[i].cmds & cmd) {
            const int bad = from_environment(o, &table[i]);
            if (bad)
                return bad;
        }
    return parse_words(o, cmd, argc, argv);
}

void opts_help(unsigned cmd)
{
    printf("\nOptions (each also as an environment variable, --ctx-size as RIPPLEKV_CTX_SIZE):\n");
    for (int i = 0; i < N_OPTION; i++) {
        const option *p = &table[i];
        if (!(p->cmds & cmd))
            continue;
        char left[80];
        const char *arg = is_flag(p) ? NULL : p->arg;
        snprintf(left, sizeof left, "%s%s%s--%s%s%s", p->brief ? "-" : "", p->brief ? p->brief : "",
                 p->brief ? ", " : "", p->name, arg ? " " : "", arg ? arg : "");
        printf("  %-32s %s", left, p->help);
        if (p->initial && !is_flag(p))
            printf(" (%s)", p->initial);
        if (p->other)
            printf("; also --%s", p->other);
        putchar('\n');
    }
}

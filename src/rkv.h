/* ripplekv: long-context language models on CPU servers, in a fraction of the KV memory.
 *
 * A model is immutable after loading and may be shared by threads. A session is one timeline (KV
 * cache, position, logits) and has one user at a time. Token ids are int32_t in [0, n_vocab).
 * Functions that can fail return a status and describe the failure in *e when e is not NULL.
 * Shapes are given as [slowest][...][fastest]. Nothing here exits, aborts or prints. */
#ifndef RKV_H
#define RKV_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined __GNUC__
#define RKV_API __attribute__((visibility("default")))
#else
#define RKV_API
#endif

/* ---- status, errors, log --------------------------------------------------------------------- */

typedef enum rkv_status {
    RKV_OK = 0,
    RKV_E_ARG = -1,         /* an argument or option is out of range */
    RKV_E_IO = -2,          /* an input cannot be opened or read */
    RKV_E_FORMAT = -3,      /* a file breaks its format */
    RKV_E_UNSUPPORTED = -4, /* a valid file or request that this version cannot serve */
    RKV_E_MISMATCH = -5,    /* two things that do not belong together (profile and model) */
    RKV_E_MEM = -6,         /* does not fit in memory */
    RKV_E_CANCELLED = -7,   /* the progress callback asked to stop */
    RKV_E_INTERNAL = -8,    /* a library beneath failed in a way that we cannot explain */
    RKV_E_WRITE = -9        /* an output cannot be written */
} rkv_status;

typedef struct rkv_error {
    rkv_status status;
    char text[480];         /* one line: what, where, the value found, what to do */
} rkv_error;

/* Name of a status: "ok", "bad argument", ... Never NULL. */
RKV_API const char *rkv_status_name(rkv_status s);

/* "0.1.0". */
RKV_API const char *rkv_version(void);

enum { RKV_LOG_ERROR = 0, RKV_LOG_WARN = 1, RKV_LOG_INFO = 2, RKV_LOG_DEBUG = 3 };
typedef void rkv_log_fn(void *ctx, int level, const char *line);

/* Where warnings go (lines without a newline); NULL, the default, drops them. Process-wide; call it
 * before other threads use the library. */
RKV_API void rkv_log_set(rkv_log_fn *fn, void *ctx);

/* Called now and then from the calling thread during long work. phase: "prefill", "decode",
 * "profile", ...; done of total units. Return 0 to go on, anything else to stop with
 * RKV_E_CANCELLED. */
typedef int rkv_progress_fn(void *ctx, const char *phase, int64_t done, int64_t total);

/* ---- model ----------------------------------------------------------------------------------- */

typedef struct rkv_model rkv_model;

typedef struct rkv_model_info {
    const char *path, *name;            /* file; general.name or the file's base name */
    const char *arch;                   /* "llama", "qwen2", "qwen3", "gemma3" */
    const char *quantization;           /* type that holds most of the weights: "q4_k", ... */
    const char *fingerprint;            /* 16 hex digits over shapes, types and sampled content */
    const char *chat_template;          /* Jinja text from the file; NULL when it has none */
    const char *tier;                   /* kernels in use: "ref", "avx2", "avx512", "vnni", "amx" */
    int n_layer, n_head, n_kv_head, d_head, d_model, d_ff, n_vocab;
    int n_ctx_train;                    /* context length of the training */
    int n_layer_sliding;                /* layers with a sliding window: outside every budget */
    int sliding_window;                 /* tokens such a layer sees, itself included; 0: none */
    int64_t n_param;                    /* of tensors whose type this version knows */
    uint64_t file_bytes;                /* all shards */
    uint64_t step_bytes;                /* of the weight matrices that one decoded token reads */
    uint64_t stream_bytes;              /* of those, the most that "stream" holds at a time */
    const char *load;   /* where the weights are: "mmap", "memory", "mlock", "stream" */
    const char *arithmetic;             /* of prefill's products: "f32", "bf16", "int16" */
    const char *rope_scaling;           /* "none", "linear", "yarn", "llama3" */
    double rope_base, rope_factor;      /* base frequency; scaling factor, 1: none */
} rkv_model_info;

typedef struct rkv_model_options {
    /* "mmap": the weights stay in the file's mapping, shared with every process that maps it.
     * "mlock": the same, held in memory. "none": they are copied into memory of the process, which
     * decodes faster where huge pages are to be had, and takes longer to load; only the token
     * embedding of a model with an output matrix of its own, of which a step reads a row, stays in
     * the mapping. "auto" (default): "none" when the kernel gives huge pages to those who ask, the
     * copy takes at most a quarter of the available memory, and can be allocated; else "mmap".
     * "stream", for a model larger than memory: they stay in the mapping, and no more of them in
     * memory than two layers: each layer is read from the file while the one before it is at work,
     * and let go when it is done, also from the system's cache of the file. Each pass reads the
     * file anew, so it pays where a pass serves many rows. */
    const char *load;
} rkv_model_options;

RKV_API rkv_model_options rkv_model_options_default(void);

/* Loads a GGUF model (first shard of a split one) and its tokenizer. What stays in the file's
 * mapping follows the file: while the model lives, its files may be replaced (rename) or unlinked,
 * but not shortened or overwritten in place. Touching a page that is gone raises SIGBUS, which the
 * library leaves to its host (the rkv command ends with one line and exit code 3). Once loaded, a
 * copied model is immune, but for the token embedding that stays. The environment variable RKV_CPU
 * names the strongest kernel tier to use; RKV_GEMM=own, blas, bf16 or int16 chooses how prefill
 * multiplies (default: what suits the tier).
 * Errors: RKV_E_IO, RKV_E_FORMAT, RKV_E_UNSUPPORTED, RKV_E_MEM (a copy that is not available, or
 * a lock beyond RLIMIT_MEMLOCK, included); RKV_E_ARG for an unknown load, a bad RKV_CPU or
 * RKV_GEMM.
 */
RKV_API rkv_status rkv_model_load_with(rkv_model **out, const char *path,
                                       const rkv_model_options *o, rkv_error *e);
/* The same with the default options. */
RKV_API rkv_status rkv_model_load(rkv_model **out, const char *path, rkv_error *e);
/* Loads a file of which only the tokenizer is wanted; weights need not be there. Sessions
 * refuse such a model. info: what the file says, zeros for what it does not. */
RKV_API rkv_status rkv_model_load_vocab(rkv_model **out, const char *path, rkv_error *e);
RKV_API void rkv_model_free(rkv_model *m);
RKV_API const rkv_model_info *rkv_model_get_info(const rkv_model *m);

/* Layer l (0-based) sees a sliding window only. */
RKV_API int rkv_model_layer_is_sliding(const rkv_model *m, int l);

/* ---- text and token ids ---------------------------------------------------------------------- */

enum {
    RKV_TOK_BOS = 1,        /* put the beginning-of-sequence token first, if the model wants one */
    RKV_TOK_SPECIAL = 2     /* the text of special tokens stands for them, as in chat prompts */
};

/* Ids of n_byte bytes of text (UTF-8; stray bytes are encoded as bytes). *ids is allocated and
 * belongs to the caller, who frees it with rkv_free; *n_id receives the count. Linear time. Errors:
 * RKV_E_ARG when the text is longer than 1 GiB, RKV_E_MEM. */
RKV_API rkv_status rkv_tokenize(const rkv_model *m, const char *text, size_t n_byte, unsigned flags,
                                int32_t **ids, size_t *n_id, rkv_error *e);

/* Text of ids, 0-terminated, freed by the caller with rkv_free; may contain any byte. *n_byte may
 * be NULL. with_special: special tokens are written out instead of dropped. RKV_E_ARG: id out of
 * range. */
RKV_API rkv_status rkv_detokenize(const rkv_model *m, const int32_t *ids, size_t n_id,
                                  int with_special, char **text, size_t *n_byte, rkv_error *e);

RKV_API int32_t rkv_token_bos(const rkv_model *m);      /* -1: the model has none */
RKV_API int32_t rkv_token_eos(const rkv_model *m);      /* -1: the model has none */
RKV_API int rkv_token_is_end(const rkv_model *m, int32_t id);   /* ends an answer (EOS, EOT, ...) */

RKV_API void rkv_free(void *p);

/* A copy of n bytes, 0-terminated, in which NUL and every byte that is not part of well-formed
 * UTF-8 is replaced by U+FFFD: fit for JSON. NULL: no memory. Freed with rkv_free. */
RKV_API char *rkv_utf8_clean(const char *bytes, size_t n);

/* Renders a chat template (Jinja text; NULL: the model's own, m may otherwise be NULL) with the
 * members of a JSON object as its variables: {"messages": [{"role", "content"}],
 * "add_generation_prompt": true, "bos_token", "eos_token", ...}; tokens that are not given come
 * from m. *text freed with rkv_free. Errors: RKV_E_FORMAT (template or JSON, with the line),
 * RKV_E_UNSUPPORTED, RKV_E_ARG, RKV_E_MEM. */
RKV_API rkv_status rkv_template_render(const rkv_model *m, const char *template_text,
                                       const char *json, char **text, size_t *n_byte, rkv_error *e);

/* A template by its family's name ("chatml", "llama3", ...); NULL: unknown. rkv_template_names
 * lists them, separated by ", ". */
RKV_API const char *rkv_template_builtin(const char *name);
RKV_API const char *rkv_template_names(void);

/* ---- profile: how sensitive each layer's cache is -------------------------------------------- */

typedef struct rkv_profile rkv_profile;

/* Reads a profile (JSON, format "ripplekv-profile"). Errors: RKV_E_IO, RKV_E_FORMAT, RKV_E_MEM. */
RKV_API rkv_status rkv_profile_load(rkv_profile **out, const char *path, rkv_error *e);
/* Writes it by temporary file, fsync and rename. RKV_E_WRITE, RKV_E_MEM. */
RKV_API rkv_status rkv_profile_save(const rkv_profile *p, const char *path, rkv_error *e);
/* The n bytes of that file, 0-terminated; freed with rkv_free. RKV_E_MEM. */
RKV_API rkv_status rkv_profile_print(const rkv_profile *p, char **text, size_t *n, rkv_error *e);
RKV_API void rkv_profile_free(rkv_profile *p);

/* RKV_OK when the profile was made from this model, with the RoPE settings it has now;
 * RKV_E_MISMATCH, naming both, when not. Another accuracy of the kernels is a warning in the log.
 */
RKV_API rkv_status rkv_profile_check(const rkv_profile *p, const rkv_model *m, rkv_error *e);

RKV_API int rkv_profile_n_layer(const rkv_profile *p);
RKV_API int rkv_profile_n_kv_head(const rkv_profile *p);        /* 0: the file does not say */
/* Mean KL in nats of layer l; NaN for a layer outside the budget (sliding window). */
RKV_API double rkv_profile_sensitivity(const rkv_profile *p, int l);
/* Relative change of layer l's own output under the same noise; NaN also where the profile does not
 * say. */
RKV_API double rkv_profile_local(const rkv_profile *p, int l);
enum { RKV_MAX_GRID = 32 };     /* shares of a damage curve */
/* Mean damage in nats of letting KV head h of layer l (h -1: all heads of it) keep a share of its
 * prompt tokens: *damage[i] for the shares *grid[i], ascending in (0, 1). Both are borrowed from p.
 * measured: KL of such runs; else estimated. Returns their number; 0: the profile has none. NaN:
 * the layer is outside the budget. */
RKV_API int rkv_profile_curve(const rkv_profile *p, int measured, int l, int h,
                              const double **grid, const double **damage);

/* What a profile measures of an example, all in one walk through the layers: bits. */
enum {
    RKV_SIGNAL_VALUES = 1,      /* KL under noise on a layer's Values: the sensitivity; always */
    RKV_SIGNAL_KEYS = 2,        /* ... on its Keys */
    RKV_SIGNAL_KEYS_VALUES = 4, /* ... on both */
    RKV_SIGNAL_DAMAGE = 8,      /* KL of compressing a layer to damage_budget */
    RKV_SIGNAL_CURVES = 16,     /* estimated damage curve of each KV head: no walk of its own */
    RKV_SIGNAL_LAYER_CURVES = 32,       /* measured: KL of compressing a layer to each share of */
    RKV_SIGNAL_HEAD_CURVES = 64         /* the grid; the same of each KV head */
};

typedef struct rkv_profile_cost {       /* wall time, summed over examples */
    double prefill_s, answer_s, walk_s;
    int n_example;          /* that work was done for */
} rkv_profile_cost;

typedef struct rkv_profile_options {
    int n_example_max;      /* use at most the first so many examples of the file; 0: all */
    int n_used_max;         /* stop after so many usable ones; 0: never */
    int n_response;         /* answer tokens that count per example: 32; at least 8 */
    int from_answers;       /* teacher-force the data's answers, not the model's own greedy ones */
    unsigned signals;       /* RKV_SIGNAL_ bits: VALUES and CURVES */
    double noise;           /* sigma: 0.5 */
    int n_seed;             /* noise seeds per example: 4 */
    double damage_budget;   /* share of the prompt that stays in DAMAGE: 0.1 */
    const char *selector;   /* that chooses the tokens that stay: "blend" */
    const double *grid;     /* [n_grid] shares of the curves, ascending in (0, 1); n_grid 0: */
    int n_grid;             /* 3, 5, 10, 20, 30, 50 %; measured heads 3, 10, 30 % */
    int batch_rows;         /* most rows of one part of a walk, 0: all; bounds memory, no number
                               depends on it; a finished part is kept by resume_dir */
    int until_stable;       /* stop once each layer's budget is known to +-2 % of cap */
    int shard, n_shard;     /* only examples i with i mod n_shard = shard - 1; 0, 0: all */
    int ranks;              /* 1: when mpirun started the process, its ranks share the examples */
    int n_ctx;              /* longest prompt in tokens, longer ones are skipped; 0: the model's */
    int n_thread;           /* 0: all this process may use */
    uint64_t memory;        /* bytes that weights and work may take: as many examples go through the
                               layers together as fit, and share each reading of the weights; with
                               load mode "stream" that may be a part of the model. 0: one example */
    rkv_profile_cost *cost; /* to which this process's time is added; NULL: not wanted */
    const char *resume_dir; /* keep finished work here and start from it; NULL: nowhere */
    rkv_progress_fn *progress;
    void *progress_ctx;
} rkv_profile_options;

RKV_API rkv_profile_options rkv_profile_options_default(void);
/* Sets signals from a list such as "values,keys+values,head-curves". RKV_E_ARG lists the names. */
RKV_API rkv_status rkv_profile_set_signals(rkv_profile_options *o, const char *list, rkv_error *e);

/* This process's number from 0 among those that mpirun started together, and how many they are: 0
 * of 1 when it did not. Starts MPI, which stays until the process ends. RKV_E_UNSUPPORTED: the MPI
 * is not one that this build can use; says what to do. */
RKV_API rkv_status rkv_world_get(int *rank, int *size, rkv_error *e);

/* A profile of a JSONL file of calibration examples (METHOD: RippleKV, profiling; one row set per
 * changed layer on one walk through the layers). Objects hold "prompt" or "prompt_ids" and perhaps
 * "response_ids" or "answers". Errors: those of its inputs, all lines of which are looked at before
 * the work begins (of a shard or a rank: its own); RKV_E_FORMAT when no example is usable;
 * RKV_E_UNSUPPORTED when the model's logits are not finite or all its layers slide. With o->ranks,
 * ranks above 0 receive *out = NULL, and any rank's failure is everyone's; the numbers do not
 * depend on how many ranks there are. */
RKV_API rkv_status rkv_profile_run(rkv_profile **out, const rkv_model *m, const char *jsonl_path,
                                   const rkv_profile_options *o, rkv_error *e);

/* The part of it that o->shard of o->n_shard names, written to path (JSON, format
 * "ripplekv-profile-shard"): every number of every example. A shard without a usable example is
 * fine. */
RKV_API rkv_status rkv_profile_run_shard(const char *path, const rkv_model *m,
                                         const char *jsonl_path, const rkv_profile_options *o,
                                         rkv_error *e);
/* The profile of all shards, the same to the byte as that of one run. RKV_E_MISMATCH: shards of
 * different models, data or settings, one missing or there twice. */
RKV_API rkv_status rkv_profile_merge(rkv_profile **out, const char *const *path, int n_path,
                                     rkv_error *e);

/* The numbers for people: lines of text, freed with rkv_free. RKV_E_MEM. */
RKV_API rkv_status rkv_profile_report(const rkv_profile *p, char **text, rkv_error *e);
/* The same as a page of HTML with charts, in one file that refers to nothing else, written by
 * temporary file, fsync and rename. cost: of the run that made it; NULL: left out. RKV_E_WRITE,
 * RKV_E_MEM. */
RKV_API rkv_status rkv_profile_html(const rkv_profile *p, const rkv_profile_cost *cost,
                                    const char *path, rkv_error *e);

typedef struct rkv_profile_verdict {
    double spearman;        /* of the profile's sensitivities with those of the new examples */
    double low, high;       /* 95 % interval, layers resampled */
    double threshold;       /* holds: spearman is at least so much */
    int holds, n_example;
    int same_model;         /* 0: another fingerprint, such as another quantization */
} rkv_profile_verdict;

/* Whether a profile orders the layers of this model as new examples do: measures those (o: data
 * limits, threads, progress; the rest is as in the profile). n_used_max 0: one. RKV_E_MISMATCH:
 * other layers than the profile has. */
RKV_API rkv_status rkv_profile_verify(rkv_profile_verdict *out, const rkv_profile *p,
                                      const rkv_model *m, const char *jsonl_path,
                                      const rkv_profile_options *o, rkv_error *e);

/* ---- policy: which tokens stay, and how many in which head ----------------------------------- */

typedef enum rkv_budget_kind {
    RKV_BUDGET_NONE = 0, /* keep everything */
    RKV_BUDGET_SHARE,    /* value in (0, 1]: mean tokens per layer and KV head = share of prompt */
    RKV_BUDGET_TOKENS,   /* mean tokens per layer and KV head */
    RKV_BUDGET_BYTES     /* bytes of all compressible layers together */
} rkv_budget_kind;

/* Budgets of the user's own, for allocator "file": JSON with an array "layers" of objects
 * {"layer", "budget"} or, by KV head, {"layer", "budgets": [...]}; what else is there is not looked
 * at, so that the output of `rkv budget --json` is such a file. Positive numbers, of which only the
 * proportions count: they are scaled to the budget that is asked for. Numbers that are tokens with
 * just that total, within the floor and the prompt, come out as they are. RKV_E_IO, RKV_E_FORMAT,
 * RKV_E_MEM. */
typedef struct rkv_budgets rkv_budgets;
RKV_API rkv_status rkv_budgets_load(rkv_budgets **out, const char *path, rkv_error *e);
RKV_API void rkv_budgets_free(rkv_budgets *b);
RKV_API int rkv_budgets_n_layer(const rkv_budgets *b);  /* one more than the last in the file */
RKV_API int rkv_budgets_n_kv_head(const rkv_budgets *b);        /* 0: they are per layer */

typedef struct rkv_policy {
    const char *selector;   /* "full", "streaming", "snapkv", "h2o", ...: src/policy/policy.def */
    const char *allocator;  /* "uniform", "pyramid", "ripple", "curve", ... */
    rkv_budget_kind budget_kind;
    double budget;
    const rkv_profile *profile; /* ripple, reversed, local, curve, root; must outlive its use */
    const rkv_budgets *budgets; /* file; must outlive its use */
    int window; /* last tokens, which stay; snapkv's observation window, which scores: 32;
                   0: none, where the selector does not observe by it */
    int n_sink; /* tokens beside the window that every KV head may keep: the floor; streaming and
                   expected always keep so many first ones: 4 */
    int pool_kernel;        /* snapkv's pooling, and blend's, odd: 7; 1: none */
    int pool_average;       /* 0: maximum; 1: mean with zero padding */
    int pool_before_mean;   /* 0: mean over the GQA group, then pooling; 1: the other way round */
    double ratio;           /* ripple's r >= 1: 1.5 */
    double gamma;           /* ripple's bound on a layer's weight, >= 1: 2 */
    int curves_measured;    /* curve and root go by 0: estimated, 1: measured damage curves */
    int unit_layers;        /* ... and budget 0: KV heads, 1: layers, all heads alike */
    int recent;             /* blend: last prompt queries whose attention counts: 512; 0: all */
    double beta;            /* pyramid: mean over least budget beside the window, >= 1: 20 */
    int published;          /* pyramid: the published integer steps, whose total is not exact */
    uint64_t seed;          /* random: 0 */
    int n_future;           /* expected: queries of so many positions after the prompt: 512 */
    int use_covariance;     /* ... goes by their covariance beside their mean: 1 */
    int use_value_norm;     /* ... attention times the norm of the value: 1 */
    double epsilon;         /* ... added to the attention before that: 0 */
    int adakv;              /* the KV heads of a layer share its budget by their scores: 0 */
    int adakv_forced;       /* 0: each head gets a part of its own share for certain, as published;
                               1: its best tokens so far are kept for certain, as in kvpress */
    double safeguard;       /* ... that part, 0 to 1: 0.2 */
    int criticalkv;         /* scores count with what the value adds to the output: 0 */
    double first_stage;     /* ... this part of a head's budget goes by the scores alone: 0.5 */
    double critical_epsilon;    /* ... added to the attention per query: 1e-4 */
} rkv_policy;

/* Defaults of METHOD section 7 with selector "full". */
RKV_API rkv_policy rkv_policy_default(void);
/* Sets selector and allocator from a name: a shorthand ("full", "snapkv", "pyramid", "ripple",
 * "curve", "adakv", ...) or "selector:allocator" (also with "x" or "×" between), perhaps with
 * "+adakv" and "+criticalkv" behind it, which set those members; a name without them clears them.
 * RKV_E_ARG: unknown; the text lists what there is. */
RKV_API rkv_status rkv_policy_set_name(rkv_policy *p, const char *name, rkv_error *e);
/* Sets the budget from "20%", "4096" (tokens per layer and head), "512M" / "1.5G" (bytes) or
 * "full". */
RKV_API rkv_status rkv_policy_set_budget(rkv_policy *p, const char *text, rkv_error *e);

/* What a session can keep of its first prompt for rkv_session_compress: bits. */
enum {
    RKV_OBSERVE_QUERIES = 1,    /* queries of the options' window: for snapkv, blend */
    RKV_OBSERVE_MASS = 2,       /* attention that each key got from all queries: h2o, observed */
    RKV_OBSERVE_RECENT = 4,     /* ... from the last `recent` of the options' policy: blend */
    RKV_OBSERVE_STATS = 8       /* mean and covariance of all queries after the options' n_sink */
};                              /* first ones, before they are rotated: expected */

/* The bits that rkv_session_compress will ask for with this policy; 0: it removes nothing. */
RKV_API int rkv_policy_observes(const rkv_policy *p);

/* The allocator's arithmetic alone: tokens budget[n_layer][n_kv_head] of each KV head for a prompt
 * of n_token tokens. skip[l] != 0 (skip may be NULL) leaves layer l out (it gets n_token). Every
 * head of a compressible layer receives between window + n_sink and n_token; the total of all of
 * them is exactly n_compressible_layers * n_kv_head * cap, but for the published steps of pyramid,
 * which are logged as a warning when they miss it. A prompt that is kept whole because it is not
 * longer than the floor is logged, too. bytes_per_token: K and V bytes of one token in
 * one layer, only used for RKV_BUDGET_BYTES. *cap (may be NULL) receives the mean. RKV_E_ARG:
 * infeasible, says why; RKV_E_MISMATCH: the profile lacks what the allocator looks at. */
RKV_API rkv_status rkv_budget_heads(int *budget, int *cap, const rkv_policy *p, int n_layer,
                                    int n_kv_head, const uint8_t *skip, int n_token,
                                    double bytes_per_token, rkv_error *e);

/* ---- session --------------------------------------------------------------------------------- */

typedef struct rkv_session rkv_session;

typedef struct rkv_session_options {
    int n_ctx;              /* positions it may ever hold, prompt and answer; 0: the model's */
    int n_thread;           /* 0: all this process may use (affinity and cgroup respected) */
    int n_chunk; /* prompt rows per pass inside a layer: 256; results do not depend on it */
    const char *k_type, *v_type;        /* "f16" (default), "f32", "bf16", "q8_0", "q4_0" */
    rkv_policy policy;      /* applied to the first prompt as each layer is done */
    int observe;            /* RKV_OBSERVE_ bits; 0: nothing is kept */
    /* The decode-time budget, prompt and answer together: a mean of so many tokens per layer and KV
     * head, in units of the policy's budget (a share is one of the prompt), is never passed. A
     * token that would pass it evicts first: each head goes down to its share, by the policy's
     * allocator for n_ctx tokens, of the budget less the interval, so that evictions are at least
     * that many tokens apart. A prompt that is longer goes down to it at once. The policy's
     * selector chooses, by its window's last queries, or by the attention of all queries so far
     * (blend: from the prompt's last `recent` on); its window stays, and streaming's sinks. Not
     * served, RKV_E_ARG: selectors full and expected, adakv, criticalkv, the published steps of
     * pyramid; tova with budgets that differ inside a layer; fewer tokens than window, n_sink and
     * interval together (told by prefill). RKV_BUDGET_NONE (default): what follows the prompt is
     * never evicted. A budget of n_ctx tokens or more is none. */
    rkv_budget_kind decode_kind;
    double decode_budget;
    int decode_interval;    /* 64 */
    rkv_progress_fn *progress;
    void *progress_ctx;
} rkv_session_options;

RKV_API rkv_session_options rkv_session_options_default(void);

/* Errors: RKV_E_ARG (option out of range), RKV_E_MISMATCH (profile of another model), RKV_E_MEM. */
RKV_API rkv_status rkv_session_create(rkv_session **out, const rkv_model *m,
                                      const rkv_session_options *o, rkv_error *e);
RKV_API void rkv_session_free(rkv_session *s);

/* Takes n ids after what the session holds, layer by layer. The first call is the prompt, to which
 * the policy applies; later ones add their tokens uncompressed. Afterwards rkv_session_logits are
 * those of the last id. On failure the session holds what it held before. n >= 1. Errors: RKV_E_ARG
 * (id out of range, n_ctx exceeded, infeasible budget), RKV_E_MEM, RKV_E_CANCELLED.
 * A prompt cut into several calls gives the same bits, but for calls of one token, which
 * are rkv_session_decode: its sums are rounded elsewhere.
 * Ids that follow a compressed or evicted cache see what is left of it, which is logged
 * (RKV_LOG_INFO). With a decode budget in force they are taken one by one, as by
 * rkv_session_decode, and a failure leaves the session with those before it. */
RKV_API rkv_status rkv_session_prefill(rkv_session *s, const int32_t *ids, size_t n, rkv_error *e);

/* Takes the first prompts of n_session different sessions of one model, 1 <= n_session <= 1024:
 * ids[i][n[i]] go to s[i], which holds nothing. They go through the layers together, so that each
 * layer's weights are read and unpacked once for all of them; each session ends as if prefilled by
 * itself, to the bit. Lengths, policies, cache types and all other options may differ. Each
 * session's rows are worked on by its own threads, one session after the other; the threads of s[0]
 * unpack the weights. Every session's progress is called, with its own numbers. On failure every
 * session holds nothing, as before. Errors: RKV_E_ARG (n_session out of range, a session twice,
 * different models, a session with a past), and those of rkv_session_prefill. */
RKV_API rkv_status rkv_sessions_prefill(rkv_session *const *s, const int32_t *const *ids,
                                        const size_t *n, size_t n_session, rkv_error *e);

/* Receives the logits [n_row][n_vocab] of rows i0 .. i0 + n_row - 1 of a scored text; valid during
 * the call only. Return 0 to go on. */
typedef int rkv_logits_fn(void *ctx, int64_t i0, int n_row, const float *logits);

/* rkv_session_prefill that also hands out the logits of every row from first on, in order.
 * first <= n, else RKV_E_ARG. */
RKV_API rkv_status rkv_session_score(rkv_session *s, const int32_t *ids, size_t n, size_t first,
                                     rkv_logits_fn *fn, void *ctx, rkv_error *e);

/* The same text after the prompts of n_session different sessions of one model, such as copies that
 * were compressed by several policies: as rkv_session_score with ctx[i] for each, to the bit, but
 * each layer's weights are read and unpacked once for all. 1 <= n_session <= 1024; sessions without
 * a past, or with a decode budget, are RKV_E_ARG; on failure all hold what they held before. */
RKV_API rkv_status rkv_sessions_score(rkv_session *const *s, size_t n_session, const int32_t *ids,
                                      size_t n, size_t first, rkv_logits_fn *fn, void *const *ctx,
                                      rkv_error *e);

/* Takes one id: rkv_sessions_decode of one session. */
RKV_API rkv_status rkv_session_decode(rkv_session *s, int32_t id, rkv_error *e);

/* Takes one id for each of n different sessions of one model, 1 <= n <= 1024: ids[i] goes to s[i].
 * The weights are read once for all of them (for every 8, with many), which is what most of the
 * time goes into; each session ends as if it had decoded by itself, to the bit. Lengths, policies,
 * cache types and all other options may differ. The work is done by the threads, and in the memory,
 * of s[0]. A session that holds nothing takes its id as its prompt (rkv_session_prefill), by
 * itself, before the others. On failure every session holds what it held before. Errors: RKV_E_ARG
 * (n out of range, a session twice, different models, id out of range, n_ctx exceeded), RKV_E_MEM;
 * for prompts those of rkv_session_prefill. */
RKV_API rkv_status rkv_sessions_decode(rkv_session *const *s, const int32_t *ids, size_t n,
                                       rkv_error *e);

/* [n_vocab] logits about the next token; valid until the next call on s. NULL before the first. */
RKV_API const float *rkv_session_logits(const rkv_session *s);

/* Positions so far (prompt and answer, whatever was evicted). */
RKV_API int64_t rkv_session_n_past(const rkv_session *s);

/* A second timeline with the same past; copies the cache. */
RKV_API rkv_status rkv_session_fork(rkv_session **out, const rkv_session *s, rkv_error *e);

/* Goes back to the first n of the session's tokens, 0 <= n <= n_past, as if no more had been taken,
 * so that a prefix can be used again; logits are there again after the next token. RKV_E_ARG, and
 * nothing has changed, where the cache no longer is that of n tokens: inside a compressed prompt,
 * with a decode budget in force, or where a sliding layer has dropped what token n sees. Going back
 * into the first prompt makes its rest the prompt and forgets what was observed. n = 0 always
 * works. */
RKV_API rkv_status rkv_session_rewind(rkv_session *s, int64_t n, rkv_error *e);

/* Compresses the prompt of a session that observes what the policy needs (of as many last queries,
 * for RKV_OBSERVE_RECENT), prefilled once, and not yet compressed: the same kept sets as if its
 * options had held this policy. A session with a decode budget cannot be. RKV_E_ARG,
 * RKV_E_MISMATCH: nothing has changed. RKV_E_MEM: some
 * heads may be compressed and others not, so it cannot be tried again. */
RKV_API rkv_status rkv_session_compress(rkv_session *s, const rkv_policy *p, rkv_error *e);

/* The same, for several budgets or allocators in turn, each on a copy of one session
 * (rkv_session_fork): what the selector scores is kept in `scores` and found there by the next
 * copy, as long as selector and its settings stay; the kept sets do not change. It holds a float
 * for each prompt token of each layer and KV head. Never to be used with copies of another
 * session. */
typedef struct rkv_scores rkv_scores;
RKV_API rkv_status rkv_scores_create(rkv_scores **out, rkv_error *e);
RKV_API void rkv_scores_free(rkv_scores *c);
RKV_API rkv_status rkv_session_compress_with(rkv_session *s, const rkv_policy *p,
                                             rkv_scores *scores, rkv_error *e);

typedef struct rkv_kv_info {
    uint64_t bytes;         /* K and V bytes of the tokens held now */
    uint64_t bytes_full;    /* what they would be without a policy */
    int64_t n_prompt;       /* tokens of the first prompt */
    int64_t n_kept; /* prompt tokens kept, summed over compressible layers, mean over KV heads; with
                       a decode budget those held now, rounded down */
    int cap;                /* mean budget per layer and KV head; n_prompt without a policy */
    int decode_cap;         /* mean of the decode budget per layer and KV head; 0: none in force */
    int64_t n_eviction;     /* evictions while decoding */
} rkv_kv_info;
RKV_API rkv_kv_info rkv_session_kv_info(const rkv_session *s);

/* Bytes that the library's allocations should reach at most while the last prompt is read, those of
 * before included: the plan made before it began. Copied weights are in it; those that stay in the
 * file's mapping come on top. 0 before a prompt. */
RKV_API uint64_t rkv_session_plan_bytes(const rkv_session *s);

/* Tokens that a KV head of layer l was allowed to keep of the prompt; with adakv after that layer's
 * heads have shared. */
RKV_API int rkv_session_head_budget(const rkv_session *s, int l, int kv_head);

/* Positions that (layer, KV head) holds, ascending: *pos is borrowed until the next call on s. */
RKV_API int rkv_session_kept(const rkv_session *s, int l, int kv_head, const int32_t **pos);

/* ---- logits: sampling and comparison --------------------------------------------------------- */

typedef struct rkv_sampler_options {
    float temperature;      /* 0: greedy */
    int top_k;              /* 0: off */
    float top_p, min_p;     /* 1 and 0: off */
    float repeat_penalty; /* 1: off; divides or multiplies the logits of the last repeat_last ids */
    int repeat_last;        /* 64 */
    uint64_t seed;
} rkv_sampler_options;

typedef struct rkv_sampler rkv_sampler;

/* Greedy. */
RKV_API rkv_sampler_options rkv_sampler_options_default(void);
/* n_vocab >= 1. Errors: RKV_E_ARG, RKV_E_MEM. */
RKV_API rkv_status rkv_sampler_create(rkv_sampler **out, int n_vocab, const rkv_sampler_options *o,
                                      rkv_error *e);
RKV_API void rkv_sampler_free(rkv_sampler *s);
/* The next id from logits [n_vocab]; equal logits: the lower id wins. Remembers it for the penalty.
 * -1, and nothing is remembered, when they are no distribution: one is NaN or +inf, or all -inf. */
RKV_API int32_t rkv_sampler_next(rkv_sampler *s, const float *logits);

/* log sum exp of n logits, in double. */
RKV_API double rkv_logits_lse(const float *logits, int n);
/* KL(p || q) in nats of the distributions of two rows of n logits, in double; never below 0. -inf
 * stands for probability 0; NaN when a logit is none. */
RKV_API double rkv_logits_kl(const float *p, const float *q, int n);

/* ---- machine --------------------------------------------------------------------------------- */

typedef struct rkv_machine_info {
    const char *cpu;        /* model name; these texts live as long as the process */
    const char *tier, *tier_max;        /* kernels in use; strongest this CPU can run */
    const char *blas;       /* OpenBLAS version and core, "not loaded", or "none" in this build */
    int n_cpu;              /* CPUs this process may use (affinity, cgroup quota) */
    int n_numa_node;
    uint64_t memory_bytes, available_bytes; /* of the machine or the cgroup, whichever is less */
} rkv_machine_info;
RKV_API rkv_status rkv_machine_get_info(rkv_machine_info *out, rkv_error *e);

typedef struct rkv_device_info {
    char name[128];         /* "NVIDIA H100 80GB HBM3"; "": not known, see trouble */
    uint64_t memory_bytes, free_bytes;  /* of the device; free as of now, 0: not known */
    int cc_major, cc_minor; /* CUDA compute capability */
    char trouble[192];      /* one line: why it cannot be used; "" when it can */
} rkv_device_info;

/* The accelerators beside the CPU: *n of them in *out, allocated, freed by the caller with
 * rkv_free. RKV_E_UNSUPPORTED: there is none, *n = 0 and *out = NULL, and e says why (no plug-in,
 * no driver, no device); everything runs on the CPU then. RKV_E_MEM. Asking starts each device,
 * which takes a part of a second, and changes the thread's current CUDA device. The environment
 * variable RKV_CUDA_PLUGIN names another plug-in than the installed one. */
RKV_API rkv_status rkv_device_list(rkv_device_info **out, int *n, rkv_error *e);

/* Name of the kernel that serves op for an element type ("rkv_gemm_f32_avx2"); NULL: none.
 * i counts (op, type) pairs from 0; *op and *type receive their names; NULL and *op = NULL past the
 * end. */
RKV_API const char *rkv_machine_kernel(int i, const char **op, const char **type);

#ifdef __cplusplus
}
#endif

#endif

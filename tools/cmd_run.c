/* rkv run: one prompt, one streamed answer. */
#include "config.h"
#include "common.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct answer {
    rkv_model *m;
    rkv_session *s;
    rkv_sampler *sampler;
    int32_t *prompt, *ids;      /* prompt; generated tokens [n_predict] */
    size_t n_prompt, n_id;
    double prefill_s, decode_s;
    uint64_t kv_bytes_peak;     /* most that the cache held between two tokens */
    const char *stop;           /* "eos", "length", "interrupted" */
} answer;

/* ---- the prompt ---- */

static cJSON *message(const char *role, const char *content)
{
    cJSON *m = cJSON_CreateObject();
    cJSON_AddStringToObject(m, "role", role);
    json_text(m, "content", content, strlen(content));
    return m;
}

/* Wraps the text as a user's message; *chat replaces *text. */
static int apply_template(char **text, const opts *o, const rkv_model *m)
{
    char *template_text, *chat = NULL;
    const int bad = find_template(&template_text, o->chat_template);
    if (bad)
        return bad;
    cJSON *root = cJSON_CreateObject(), *list = cJSON_AddArrayToObject(root, "messages");
    if (o->system)
        cJSON_AddItemToArray(list, message("system", o->system));
    cJSON_AddItemToArray(list, message("user", *text));
    cJSON_AddBoolToObject(root, "add_generation_prompt", 1);
    char *json = json_string(root);
    rkv_error e = {RKV_E_MEM, "chat messages: out of memory"};
    const rkv_status s =
        json ? rkv_template_render(m, template_text, json, &chat, NULL, &e) : RKV_E_MEM;
    free(json);
    free(template_text);
    if (s)
        return fail(&e);
    free(*text);
    *text = strdup(chat);
    rkv_free(chat);
    return *text ? 0 : no_memory("chat template");
}

/* Document and prompt as one text. Without a template they follow each other as they are. */
static int read_prompt(char **text, const opts *o)
{
    char *document = NULL;
    size_t n = 0;
    if (!o->file && !o->prompt)
        return usage(
            "run: give a prompt with -p, a document with -f, or both; or token ids with --ids");
    const int bad = o->file ? read_text(&document, &n, o->file) : 0;
    if (bad)
        return bad;
    const char *prompt = o->prompt ? o->prompt : "";
    const size_t size = n + strlen(prompt) + 3;
    *text = malloc(size);
    if (*text)
        snprintf(*text, size, "%s%s%s", document ? document : "",
                 document && o->prompt && o->chat ? "\n\n" : "", prompt);
    free(document);
    return *text ? 0 : no_memory("prompt");
}

/* The prompt as ids: given as such, or text with its template. */
static int tokenize_prompt(answer *a, const opts *o)
{
    if (o->ids && (o->file || o->prompt || o->chat))
        return usage("run: --ids takes the place of -f, -p and --chat");
    if (o->system && !o->chat)
        return usage("run: --system-prompt is part of a chat; add --chat");
    int bad = o->ids ? read_ids(&a->prompt, &a->n_prompt, o->ids) : 0;
    if (o->ids)
        return bad ? bad : check_ids(a->prompt, a->n_prompt, o->ids, a->m);
    char *text = NULL;
    rkv_error e;
    bad = read_prompt(&text, o);
    if (!bad && o->chat && (bad = apply_template(&text, o, a->m)))
        free(text);
    if (bad)
        return bad;
    /* A template writes its own beginning; a raw prompt gets the model's. */
    const unsigned flags = RKV_TOK_SPECIAL | (o->chat ? 0 : RKV_TOK_BOS);
    int32_t *ids = NULL;
    const rkv_status s = rkv_tokenize(a->m, text, strlen(text), flags, &ids, &a->n_prompt, &e);
    free(text);
    if (s)
        return fail(&e);
    a->prompt = malloc((a->n_prompt + 1) * sizeof *ids);    /* owned like ids that were read */
    if (a->prompt)
        memcpy(a->prompt, ids, a->n_prompt * sizeof *ids);
    rkv_free(ids);
    if (!a->prompt)
        return no_memory("prompt");
    return a->n_prompt ? 0 : usage("run: the prompt is empty");
}

/* ---- the answer ---- */

/* Prints what the newest token adds to the text. The text is decoded from a few tokens back,
 * because a token may be part of a character, or lose its leading space at the start. 0, or an exit
 * code: nobody reads on, or no memory. */
static int stream(const answer *a)
{
    enum { BACK = 8 };
    const size_t from = a->n_id - 1, start = a->n_id > BACK ? a->n_id - BACK : 0;
    rkv_error e;
    char *before = NULL, *after = NULL;
    size_t n_before = 0, n_after = 0;
    int code = 0;
    if (rkv_detokenize(a->m, a->ids + start, from - start, 0, &before, &n_before, &e) ||
        rkv_detokenize(a->m, a->ids + start, a->n_id - start, 0, &after, &n_after, &e)) {
        code = fail(&e);
    } else if (n_after > n_before) {
        fwrite(after + n_before, 1, n_after - n_before, stdout);
        code = finish_stdout();
    }
    rkv_free(before);
    rkv_free(after);
    return code;
}

static int no_distribution(const answer *a)
{
    end_progress();
    fprintf(stderr, "rkv: %s: the model's logits are not finite after a prompt of %zu and an "
            "answer of %zu tokens\n", rkv_model_get_info(a->m)->path, a->n_prompt, a->n_id);
    return EXIT_INPUT;
}

static void note_cache(answer *a)
{
    const uint64_t bytes = rkv_session_kv_info(a->s).bytes;
    a->kv_bytes_peak = bytes > a->kv_bytes_peak ? bytes : a->kv_bytes_peak;
}

static int generate(answer *a, const opts *o)
{
    rkv_error e;
    const double start = now_s();
    a->stop = "length";
    note_cache(a);
    while (a->n_id < (size_t)o->n_predict) {
        const int32_t id = rkv_sampler_next(a->sampler, rkv_session_logits(a->s));
        if (id < 0)
            return no_distribution(a);
        if (!o->ignore_eos && rkv_token_is_end(a->m, id)) {
            a->stop = "eos";
            break;
        }
        a->ids[a->n_id++] = id;
        const int lost = o->json ? 0 : stream(a);
        if (lost)
            return lost;
        if (interrupted()) {
            a->stop = "interrupted";
            break;
        }
        if (a->n_id < (size_t)o->n_predict && rkv_session_decode(a->s, id, &e))
            return fail(&e);
        note_cache(a);
    }
    a->decode_s = now_s() - start;
    return 0;
}

static double rate(double n, double seconds)
{
    return seconds > 0.0 ? n / seconds : 0.0;
}

/* Decode steps that were run: the last token is not fed. */
static double n_step(const answer *a)
{
    return a->n_id ? (double)a->n_id - !strcmp(a->stop, "length") : 0.0;
}

/* What the cache holds: bytes, and tokens by layer and by head. */
static void add_cache(cJSON *root, const answer *a, const opts *o)
{
    const rkv_model_info *info = rkv_model_get_info(a->m);
    const rkv_kv_info kv = rkv_session_kv_info(a->s);
    cJSON_AddNumberToObject(root, "kv_bytes", (double)kv.bytes);
    cJSON_AddNumberToObject(root, "kv_bytes_full", (double)kv.bytes_full);
    cJSON_AddNumberToObject(root, "kv_bytes_peak", (double)a->kv_bytes_peak);
    if (kv.decode_cap) {
        cJSON_AddNumberToObject(root, "kv_decode_budget", kv.decode_cap);
        cJSON_AddNumberToObject(root, "kv_decode_interval", o->decode_interval);
        cJSON_AddNumberToObject(root, "kv_evictions", (double)kv.n_eviction);
    }
    cJSON *layers = cJSON_AddArrayToObject(root, "kv_tokens_per_layer");
    cJSON *all_heads = cJSON_AddArrayToObject(root, "kv_tokens_per_head");
    for (int l = 0; l < info->n_layer; l++) {   /* the mean over KV heads, and each of them */
        cJSON *heads = cJSON_CreateArray();
        const int32_t *pos;
        double kept = 0.0;
        for (int h = 0; h < info->n_kv_head; h++) {
            const int of_head = rkv_session_kept(a->s, l, h, &pos);
            kept += of_head;
            cJSON_AddItemToArray(heads, cJSON_CreateNumber(of_head));
        }
        cJSON_AddItemToArray(layers, cJSON_CreateNumber(kept / info->n_kv_head));
        cJSON_AddItemToArray(all_heads, heads);
    }
}

static int print_json(const answer *a, const opts *o, const rkv_policy *p)
{
    const rkv_model_info *info = rkv_model_get_info(a->m);
    char *text = NULL;
    size_t n = 0;
    rkv_error e;
    if (rkv_detokenize(a->m, a->ids, a->n_id, 0, &text, &n, &e))
        return fail(&e);
    cJSON *root = cJSON_CreateObject();
    json_text(root, "text", text, n);
    rkv_free(text);
    cJSON *tokens = cJSON_AddArrayToObject(root, "tokens");
    for (size_t i = 0; i < a->n_id; i++)
        cJSON_AddItemToArray(tokens, cJSON_CreateNumber(a->ids[i]));
    cJSON_AddNumberToObject(root, "prompt_tokens", (double)a->n_prompt);
    cJSON_AddNumberToObject(root, "generated_tokens", (double)a->n_id);
    cJSON_AddNumberToObject(root, "prefill_tok_s", rate((double)a->n_prompt, a->prefill_s));
    cJSON_AddNumberToObject(root, "decode_tok_s", rate(n_step(a), a->decode_s));
    add_cache(root, a, o);
    cJSON_AddNumberToObject(root, "peak_rss_bytes", (double)peak_rss_bytes());
    cJSON_AddStringToObject(root, "stop", a->stop);
    cJSON_AddStringToObject(root, "selector", p->selector);
    cJSON_AddStringToObject(root, "allocator", p->allocator);
    cJSON_AddStringToObject(root, "tier", info->tier);
    return json_print(root);
}

static void print_summary(const answer *a)
{
    const rkv_kv_info kv = rkv_session_kv_info(a->s);
    char bound[80] = "";
    if (kv.decode_cap)
        snprintf(bound, sizeof bound, ", at most %.2f, %lld evictions",
                 (double)a->kv_bytes_peak / 0x1p20, (long long)kv.n_eviction);
    fprintf(
        stderr,
        "\nprompt %zu tokens, %.1f tok/s; answer %zu tokens, %.1f tok/s; KV %.2f MiB (full "
        "%.2f%s); peak memory %.0f MiB\n",
        a->n_prompt, rate((double)a->n_prompt, a->prefill_s), a->n_id, rate(n_step(a), a->decode_s),
        (double)kv.bytes / 0x1p20, (double)kv.bytes_full / 0x1p20, bound,
        (double)peak_rss_bytes() / 0x1p20);
}

/* The decode budget: kind and number, read as those of a policy. */
static int read_decode_budget(rkv_policy *p, const opts *o, const char *selector)
{
    rkv_error e;
    *p = rkv_policy_default();
    if (o->decode_budget && rkv_policy_set_budget(p, o->decode_budget, &e))
        return usage("--kv-decode-budget: %s", e.text);
    if (p->budget_kind != RKV_BUDGET_NONE && !strcmp(selector, "full"))
        return usage("--kv-decode-budget %s has no effect with policy full; choose a --kv-policy, "
                     "such as snapkv", o->decode_budget);
    if (o->decode_budget && p->budget_kind == RKV_BUDGET_NONE && !o->kv_budget)
        return usage("--kv-decode-budget %s bounds nothing; the policy needs a bound, or a "
                     "--kv-budget, such as 20%%", o->decode_budget);
    return 0;
}

static int prepare(answer *a, const opts *o, const rkv_policy *p, const rkv_policy *decode)
{
    rkv_error e;
    rkv_session_options so = session_options(o, p);
    so.decode_kind = decode->budget_kind;
    so.decode_budget = decode->budget;
    so.decode_interval = o->decode_interval;
    if (!so.n_ctx) { /* what this run needs, within what the model knows */
        const int most = rkv_model_get_info(a->m)->n_ctx_train;
        const double want = (double)a->n_prompt + o->n_predict;
        so.n_ctx = want < most ? (int)want : most;
    }
    if (a->n_prompt > (size_t)so.n_ctx)
        return usage(
            "run: the prompt has %zu tokens, the context %d; use a larger -c or a shorter text",
            a->n_prompt, so.n_ctx);
    rkv_sampler_options sampling = {
        .temperature = (float)o->temp, .top_k = o->top_k, .top_p = (float)o->top_p,
        .min_p = (float)o->min_p, .repeat_penalty = (float)o->repeat_penalty,
        .repeat_last = o->repeat_last, .seed = (uint64_t)o->seed,
    };
    a->ids = malloc(((size_t)o->n_predict + 1) * sizeof *a->ids);
    if (!a->ids)
        return no_memory("answer");
    catch_signals();
    if (rkv_sampler_create(&a->sampler, rkv_model_get_info(a->m)->n_vocab, &sampling, &e) ||
        rkv_session_create(&a->s, a->m, &so, &e))
        return fail(&e);
    const double start = now_s();
    if (rkv_session_prefill(a->s, a->prompt, a->n_prompt, &e))
        return fail(&e);
    a->prefill_s = now_s() - start;
    end_progress();
    return 0;
}

/* Tokens to generate, within the context. */
static void fit_predict(const answer *a, opts *o)
{
    const int n_ctx = o->n_ctx ? o->n_ctx : rkv_model_get_info(a->m)->n_ctx_train;
    if ((double)a->n_prompt + o->n_predict > n_ctx && a->n_prompt <= (size_t)n_ctx)
        o->n_predict = n_ctx - (int)a->n_prompt + 1;    /* the last token is not fed back */
}

static int run(answer *a, const opts *given, const rkv_policy *p, const rkv_policy *decode)
{
    opts o = *given;
    int code = tokenize_prompt(a, &o);
    if (!code) {
        fit_predict(a, &o);
        code = prepare(a, &o, p, decode);
    }
    if (!code)
        code = generate(a, &o);
    if (!code && o.json)
        code = print_json(a, &o, p);
    if (!code && !o.json) {
        putchar('\n');
        code = finish_stdout();
        if (!code)
            print_summary(a);
    }
    return code ? code : interrupted() ? EXIT_INTERRUPTED : 0;
}

int cmd_run(const opts *o)
{
    answer a = {0};
    rkv_policy policy, decode;
    rkv_profile *profile = NULL;
    int code = read_policy(&policy, &profile, o);
    if (!code)
        code = read_decode_budget(&decode, o, policy.selector);
    if (!code && o->n_gpu_layers)
        fputs("rkv: this build has no GPU backend: all layers run on the CPU\n", stderr);
    if (!code)
        code = load_model(&a.m, o);
    if (!code)
        code = run(&a, o, &policy, &decode);
    rkv_session_free(a.s);
    rkv_sampler_free(a.sampler);
    free(a.prompt);
    free(a.ids);
    rkv_model_free(a.m);
    rkv_profile_free(profile);
    return code;
}

/* Keys that change the arithmetic: refused by name and value, or harmless and accepted. */
#include "config.h"
#include "made.h"

static rkv_status load(rkv_model **m, const tiny_options *o, rkv_error *e)
{
    char path[] = "/tmp/rkv-keys-XXXXXX";
    const int fd = mkstemp(path);
    if (fd < 0 || tiny_write(o, path, e)) {
        fprintf(stderr, "%s\n", e->text);
        exit(1);
    }
    close(fd);
    const rkv_status s = rkv_model_load(m, path, e);
    unlink(path);
    return s;
}

static void check_key(const char *family, const char *extra, int accepted)
{
    tiny_options t = tiny_defaults();
    rkv_model *m = NULL;
    rkv_error e = {0};
    char key[96];
    t.family = family;
    t.extra = extra;
    t.window = strcmp(family, "gemma3") ? 0 : 50;
    const rkv_status s = load(&m, &t, &e);
    snprintf(key, sizeof key, "'%s.%.*s'", family, (int)strcspn(extra, " "), extra);
    CHECK(s == (accepted ? RKV_OK : RKV_E_UNSUPPORTED), "%s: %s: %d %s", family, extra, s, e.text);
    CHECK(accepted || (strstr(e.text, key) && strstr(e.text, "supports")), "%s", e.text);
    rkv_model_free(m);
}

static void check_all(void)
{
    static const struct {
        const char *extra;
        int accepted;
    } keys[] = {
        {"attention.causal bool 1", 1},         {"attention.causal bool 0", 0},
        {"attention.clamp_kqv f32 0", 1},       {"attention.clamp_kqv f32 8", 0},
        {"attention.max_alibi_bias f32 8", 0},  {"attention.output_scale f32 0.5", 0},
        {"attention.value_scale f32 0.5", 0},   {"attention.shared_kv_layers u32 0", 1},
        {"attention.shared_kv_layers u32 1", 0}, {"attn_logit_softcapping f32 0", 1},
        {"attn_logit_softcapping f32 50", 0},   {"logit_scale f32 1", 1},
        {"logit_scale f32 0", 1},               {"logit_scale f32 0.0625", 0},
        {"residual_scale f32 1", 1},            {"residual_scale f32 0.22", 0},
        {"use_parallel_residual bool 0", 1},    {"use_parallel_residual bool 1", 0},
        {"expert_count u32 0", 1},              {"expert_count u32 8", 0},
        {"expert_used_count u32 2", 0},         {"nextn_predict_layers u32 1", 0},
        {"rope.scaling.yarn_log_multiplier f32 0.1", 0},
        {"rope.scaling.yarn_ext_factor f32 -1", 1}, {"rope.scaling.yarn_ext_factor f32 0", 0},
        {"rope.scaling.yarn_attn_factor f32 1", 1}, {"rope.scaling.yarn_attn_factor f32 2", 0},
        {"attention.scale f32 0.25", 1},        {"attention.scale f32 0", 1},
        {"attention.scale f32 0.015625", 0},    {"attention.key_length_swa u32 16", 1},
        {"attention.value_length_swa u32 32", 0}, {"something_else f32 3", 1},
    };
    static const char *const families[] = {"llama", "qwen2", "qwen3", "gemma3"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        for (int f = 0; f < 4; f++)
            check_key(families[f], keys[i].extra, keys[i].accepted);
    for (int f = 0; f < 4; f++) {
        check_key(families[f], "final_logit_softcapping f32 0", 1);
        check_key(families[f], "final_logit_softcapping f32 30", f == 3);
        check_key(families[f], "embedding_scale f32 8", f == 3);        /* sqrt(64) */
        check_key(families[f], "embedding_scale f32 1", f != 3);
    }
}

/* A window that nothing leaves is none; a shorter one ends the context. */
static void check_window(void)
{
    static const char *const families[] = {"llama", "qwen2", "qwen3"};
    static const struct {
        const char *extra;
        int n_ctx;
    } keys[] = {{"attention.sliding_window u32 0", 2048},
                {"attention.sliding_window u32 2048", 2048},
                {"attention.sliding_window u32 131072", 2048},
                {"attention.sliding_window u32 512", 512}};
    for (int f = 0; f < 3; f++)
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
            tiny_options t = tiny_defaults();
            rkv_model *m = NULL;
            rkv_session *s = NULL;
            rkv_error e = {0};
            t.family = families[f];
            t.n_ctx = 2048;
            t.extra = keys[i].extra;
            CHECK(!load(&m, &t, &e), "%s: %s", t.extra, e.text);
            if (!m)
                continue;
            CHECK(rkv_model_get_info(m)->n_ctx_train == keys[i].n_ctx, "%s: %s: context %d",
                  t.family, t.extra, rkv_model_get_info(m)->n_ctx_train);
            rkv_session_options o = rkv_session_options_default();
            o.n_ctx = keys[i].n_ctx;
            CHECK(!rkv_session_create(&s, m, &o, &e), "%s", e.text);
            rkv_session_free(s);
            o.n_ctx = 4000;
            s = NULL;
            const rkv_status got = rkv_session_create(&s, m, &o, &e);
            CHECK(got == (keys[i].n_ctx < 2048 ? RKV_E_UNSUPPORTED : RKV_OK), "%s", e.text);
            CHECK(!got || strstr(e.text, "window of 512"), "%s", e.text);
            rkv_session_free(s);
            rkv_model_free(m);
        }
}

int main(void)
{
    check_all();
    check_window();
    return check_end("keys");
}

/* Memory that a profile takes: told before the work against counted. */
#include "config.h"
#include "made.h"

#include "base/mem.h"

static double told_mib;

static void note_need(void *ctx, int level, const char *line)
{
    (void)ctx, (void)level;
    int n;
    if (sscanf(line, "an example of %d tokens takes %lf MiB", &n, &told_mib) < 2)
        told_mib = told_mib > 0.0 ? told_mib : 0.0;
}

static rkv_model *model_of(int sliding)
{
    tiny_options t = tiny_defaults();
    t.d_model = 128;
    if (sliding) {
        t.family = "gemma3";
        t.n_layer = 4;
        t.window = 50;
        t.pattern = 2;
    }
    return made_model(&t);
}

/* Prompts of 300, 600 and 900 tokens with an answer. */
static void write_data(char *path)
{
    FILE *f = fdopen(mkstemp(path), "w");
    for (int i = 0; i < 3; i++) {
        fputs("{\"prompt_ids\": [1", f);
        for (int t = 0; t < 300 * (i + 1); t++)
            fprintf(f, ", %d", 1 + (t * 7 + i) % 400);
        fputs("], \"response_ids\": [5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]}\n", f);
    }
    fclose(f);
}

/* What a profile takes at its peak: told before the work, and counted. */
static void check_need(void)
{
    static const struct {
        const char *selector;
        unsigned signals;
        int n_seed, batch_rows, from_answers, sliding;
    } cases[] = {
        {"blend", RKV_SIGNAL_VALUES | RKV_SIGNAL_CURVES, 4, 0, 0, 0},
        {"snapkv", RKV_SIGNAL_VALUES, 60, 0, 1, 0},
        {"expected", RKV_SIGNAL_VALUES | RKV_SIGNAL_DAMAGE | RKV_SIGNAL_HEAD_CURVES, 20, 64, 0, 0},
        {"h2o", RKV_SIGNAL_VALUES | RKV_SIGNAL_LAYER_CURVES | RKV_SIGNAL_CURVES, 2, 0, 0, 1},
    };
    char path[] = "/tmp/rkv-data-XXXXXX";
    write_data(path);
    rkv_log_set(note_need, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rkv_model *m = model_of(cases[i].sliding);
        rkv_profile_options o = rkv_profile_options_default();
        o.signals = cases[i].signals;
        o.selector = cases[i].selector;
        o.n_seed = cases[i].n_seed;
        o.batch_rows = cases[i].batch_rows;
        o.from_answers = cases[i].from_answers;
        o.n_thread = 1;
        o.n_response = 12;
        rkv_profile *p = NULL;
        rkv_error e = {0};
        told_mib = 0.0;
        const uint64_t before = rkv_mem_current();
        rkv_mem_peak_reset();
        CHECK(!rkv_profile_run(&p, m, path, &o, &e), "case %zu: %s", i, e.text);
        const double took = (double)(rkv_mem_peak() - before) / 0x1p20;
        CHECK(told_mib >= took - 0.25 && told_mib < 1.1 * took + 0.25,
              "case %zu: %.3f MiB told, %.3f taken", i, told_mib, took);
        rkv_profile_free(p);
        rkv_model_free(m);
    }
    rkv_log_set(NULL, NULL);
    unlink(path);
}

int main(void)
{
    check_need();
    return check_end("fit");
}

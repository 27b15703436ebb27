/* Rotary angles and their scalings. theta_i = pos * base^(-2i / n_rot), then
 *   linear:  theta / factor (Chen et al. 2023, position interpolation);
 *   llama3:  theta_i / freq_factor_i, the factors being a tensor of the file (Llama 3.1 release);
 *   YaRN:    a blend of theta and theta / factor by wavelength, and a larger magnitude
 *            (Peng et al. 2023, sections 3.2 to 3.4). */
#include "config.h"
#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

typedef struct scaling {
    enum { NONE, LINEAR, YARN } type;
    double factor;              /* context extension, >= 1 for YaRN */
    double n_ctx_orig, beta_fast, beta_slow, attn_factor;
} scaling;

static const char *key(const rkv_model *m, char *out, const char *suffix)
{
    snprintf(out, 128, "%s.rope.%s", m->arch->name, suffix);
    return out;
}

static rkv_status read_float(const rkv_model *m, const char *suffix, double min, double max,
                             double *value, rkv_error *e)
{
    char name[128];
    if (!rkv_gguf_has(m->file, key(m, name, suffix)))
        return RKV_OK;
    return rkv_gguf_float(m->file, name, min, max, value, e);
}

static rkv_status read_scaling_type(const rkv_model *m, scaling *s, rkv_error *e)
{
    char name[128];
    const char *text;
    size_t n;
    s->type = LINEAR;           /* what a factor without a type means in GGUF */
    if (!rkv_gguf_has(m->file, key(m, name, "scaling.type")))
        return RKV_OK;
    RKV_TRY(rkv_gguf_string(m->file, name, &text, &n, e));
    if (n == 4 && !memcmp(text, "none", 4))
        s->type = NONE;
    else if (n == 4 && !memcmp(text, "yarn", 4))
        s->type = YARN;
    else if (n != 6 || memcmp(text, "linear", 6))
        return rkv_fail(e, RKV_E_UNSUPPORTED,
                        "%s: key '%s' is '%.*s', supported are none, linear, yarn",
                        rkv_gguf_path(m->file), name, (int)(n < 40 ? n : 40), text);
    return RKV_OK;
}

static rkv_status read_scaling(const rkv_model *m, scaling *s, rkv_error *e)
{
    *s = (scaling){.factor = 1.0, .n_ctx_orig = m->config.n_ctx_train, .beta_fast = 32.0,
                   .beta_slow = 1.0, .attn_factor = 1.0};
    RKV_TRY(read_scaling_type(m, s, e));
    RKV_TRY(read_float(m, "scale_linear", 0.0, 1e6, &s->factor, e));    /* the older name */
    RKV_TRY(read_float(m, "scaling.factor", 0.0, 1e6, &s->factor, e));
    RKV_TRY(read_float(m, "scaling.attn_factor", 0.0, 1e3, &s->attn_factor, e));
    RKV_TRY(read_float(m, "scaling.yarn_beta_fast", 0.0, 1e6, &s->beta_fast, e));
    RKV_TRY(read_float(m, "scaling.yarn_beta_slow", 0.0, 1e6, &s->beta_slow, e));
    char name[128];
    int64_t n_orig = m->config.n_ctx_train;
    if (rkv_gguf_has(m->file, key(m, name, "scaling.original_context_length")))
        RKV_TRY(rkv_gguf_int(m->file, name, 1, RKV_MAX_CTX, &n_orig, e));
    s->n_ctx_orig = (double)n_orig;
    if (s->factor == 0.0)
        s->factor = 1.0;
    return RKV_OK;
}

/* Pair at which a wavelength makes `turns` full turns over the original context. */
static double yarn_pair(const scaling *s, double base, int n_rot, double turns)
{
    const double two_pi = 6.283185307179586476925;
    return n_rot * log(s->n_ctx_orig / (turns * two_pi)) / (2.0 * log(base));
}

/* Share of the unscaled angle in pair i: 1 for short wavelengths, 0 for long ones. */
static double yarn_share(const scaling *s, double base, int n_rot, int i)
{
    const double low = fmax(0.0, floor(yarn_pair(s, base, n_rot, s->beta_fast)));
    const double high = fmin(n_rot - 1.0, ceil(yarn_pair(s, base, n_rot, s->beta_slow)));
    const double y = (i - low) / fmax(0.001, high - low);
    return 1.0 - fmin(1.0, fmax(0.0, y));
}

static rkv_status fill(const rkv_model *m, rkv_rope *r, double base, const scaling *s,
                       const float *freq_factor, rkv_error *e)
{
    const int n_rot = 2 * r->n_pair;
    r->inv_freq = rkv_mem_alloc((size_t)r->n_pair * sizeof *r->inv_freq);
    if (!r->inv_freq)
        return rkv_fail(e, RKV_E_MEM, "%s: out of memory", rkv_gguf_path(m->file));
    for (int i = 0; i < r->n_pair; i++) {
        double f = pow(base, -2.0 * i / n_rot) / (freq_factor ? (double)freq_factor[i] : 1.0);
        if (s->type == LINEAR)
            f /= s->factor;
        if (s->type == YARN) {
            const double share = yarn_share(s, base, n_rot, i);
            f = f / s->factor * (1.0 - share) + f * share;
        }
        r->inv_freq[i] = f;
    }
    static const char *const names[] = {"none", "linear", "yarn"};
    r->base = base;
    r->factor = freq_factor ? (double)freq_factor[r->n_pair - 1] : s->factor;
    r->scaling = freq_factor ? "llama3" : s->factor == 1.0 ? "none" : names[s->type];
    r->magnitude = s->attn_factor * (s->type == YARN ? 1.0 + 0.1 * log(s->factor) : 1.0);
    return RKV_OK;
}

/* The tensor rope_freqs.weight, when the file has it: n_pair positive numbers. */
static rkv_status read_freq_factors(const rkv_model *m, int n_pair, float *out, int *found,
                                    rkv_error *e)
{
    const rkv_tensor *t = rkv_gguf_tensor(m->file, "rope_freqs.weight");
    *found = t != NULL;
    if (!t)
        return RKV_OK;
    if (t->type != RKV_DT_f32 || t->n_dim != 1 || t->dim[0] != n_pair)
        return rkv_fail(e, RKV_E_FORMAT,
                        "%s: tensor 'rope_freqs.weight' has %d dimensions, the first of %lld, type "
                        "%s; expected 1 of %d f32",
                        rkv_gguf_path(m->file), t->n_dim, (long long)t->dim[0],
                        t->type == RKV_DT_COUNT ? "unknown" : rkv_dtype_get(t->type)->name, n_pair);
    memcpy(out, t->data, (size_t)n_pair * sizeof *out);
    for (int i = 0; i < n_pair; i++)
        if (!(out[i] > 0.0f && out[i] < 1e6f))
            return rkv_fail(e, RKV_E_FORMAT, "%s: tensor 'rope_freqs.weight' element %d is %g",
                            rkv_gguf_path(m->file), i, (double)out[i]);
    return RKV_OK;
}

rkv_status rkv_model_bind_rope(rkv_model *m, rkv_error *e)
{
    char name[128];
    int64_t n_rot = m->config.d_head;
    if (rkv_gguf_has(m->file, key(m, name, "dimension_count")))
        RKV_TRY(rkv_gguf_int(m->file, name, 2, m->config.d_head, &n_rot, e));
    if (n_rot % 2)
        return rkv_fail(e, RKV_E_FORMAT, "%s: key '%s' is %lld, expected an even number",
                        rkv_gguf_path(m->file), name, (long long)n_rot);
    double base = 10000.0, base_sliding = 10000.0;
    RKV_TRY(read_float(m, "freq_base", 1.0 + 1e-6, 1e12, &base, e));
    RKV_TRY(read_float(m, "freq_base_swa", 1.0 + 1e-6, 1e12, &base_sliding, e));
    scaling s;
    RKV_TRY(read_scaling(m, &s, e));
    float factor[RKV_MAX_D_HEAD / 2];
    int found;
    RKV_TRY(read_freq_factors(m, (int)n_rot / 2, factor, &found, e));
    m->rope[0].n_pair = m->rope[1].n_pair = (int)n_rot / 2;
    m->n_rope = 1;
    RKV_TRY(fill(m, &m->rope[0], base, &s, found ? factor : NULL, e));
    if (!m->config.sliding_window)
        return RKV_OK;
    /* Sliding layers have their own base and are never stretched. */
    const scaling none = {.type = NONE, .factor = 1.0, .attn_factor = 1.0};
    m->n_rope = 2;
    for (int l = 0; l < m->config.n_layer; l++)
        m->layer[l].rope = m->layer[l].sliding;
    return fill(m, &m->rope[1], base_sliding, &none, NULL, e);
}

typedef struct table_job {
    const rkv_rope *r;
    float *cosine, *sine;
    int32_t first;
} table_job;

static void table_rows(void *ctx, int first, int end)
{
    const table_job *j = ctx;
    const int n_pair = j->r->n_pair;
    for (int t = first; t < end; t++)
        for (int i = 0; i < n_pair; i++) {
            const double angle = ((double)j->first + t) * j->r->inv_freq[i];
            j->cosine[(ptrdiff_t)t * n_pair + i] = (float)(cos(angle) * j->r->magnitude);
            j->sine[(ptrdiff_t)t * n_pair + i] = (float)(sin(angle) * j->r->magnitude);
        }
}

void rkv_rope_table(const rkv_rope *r, float *cosine, float *sine, int32_t first, int n,
                    rkv_team *team)
{
    table_job j = {r, cosine, sine, first};
    rkv_team_ranges(team, table_rows, &j, n, 32);
}

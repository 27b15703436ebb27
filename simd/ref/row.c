/* Rows of plain numbers: unpack, pack, sums, elementwise. Written for reading; sums in double. */
#include "config.h"
#include "kernels.h"

#include <math.h>
#include <string.h>

#include "f16.h"
#include "int16.h"

void rkv_unpack_f32_ref(float *out, const void *src, int64_t n)
{
    memcpy(out, src, (size_t)n * sizeof *out);
}

void rkv_unpack_f16_ref(float *out, const void *src, int64_t n)
{
    const uint16_t *h = src;
    for (int64_t i = 0; i < n; i++)
        out[i] = rkv_f16_to_f32(h[i]);
}

void rkv_unpack_bf16_ref(float *out, const void *src, int64_t n)
{
    const uint16_t *b = src;
    for (int64_t i = 0; i < n; i++)
        out[i] = rkv_bf16_to_f32(b[i]);
}

void rkv_pack_f32_ref(void *dst, const float *in, int64_t n)
{
    memcpy(dst, in, (size_t)n * sizeof *in);
}

void rkv_pack_f16_ref(void *dst, const float *in, int64_t n)
{
    uint16_t *h = dst;
    for (int64_t i = 0; i < n; i++)
        h[i] = rkv_f32_to_f16(in[i]);
}

void rkv_pack_bf16_ref(void *dst, const float *in, int64_t n)
{
    uint16_t *b = dst;
    for (int64_t i = 0; i < n; i++)
        b[i] = rkv_f32_to_bf16(in[i]);
}

void rkv_pack_pairs_bf16_ref(void *hi, void *lo, const float *a, const float *b, int n)
{
    uint16_t *h = hi, *l = lo;
    for (int i = 0; i < n; i++) {
        h[2 * i] = rkv_f32_to_bf16(a[i]);
        h[2 * i + 1] = rkv_f32_to_bf16(b[i]);
        if (!l)
            continue;
        l[2 * i] = rkv_f32_to_bf16(a[i] - rkv_bf16_to_f32(h[2 * i]));
        l[2 * i + 1] = rkv_f32_to_bf16(b[i] - rkv_bf16_to_f32(h[2 * i + 1]));
    }
}

float rkv_pack_int16_f32_ref(int16_t *out, const float *in, int n)
{
    enum { LANES = 16 };
    double sum[LANES] = {0.0};
    float inverse;
    for (int i = 0; i < n; i++)
        sum[i % LANES] += (double)in[i] * (double)in[i];
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            sum[l] += sum[l + half];
    const float scale = rkv_int16_scale(sum[0], &inverse);
    for (int i = 0; i < n; i++)
        out[i] = inverse == 0.0f ? 0 : (int16_t)lrintf(in[i] * inverse);
    return scale;
}

void rkv_rmsnorm_f32_ref(float *out, const float *x, const float *g, int n, float eps)
{
    double ss = 0.0;
    for (int i = 0; i < n; i++)
        ss += (double)x[i] * x[i];
    const double scale = 1.0 / sqrt(ss / n + (double)eps);
    for (int i = 0; i < n; i++)
        out[i] = (float)((double)x[i] * scale * (double)g[i]);
}

void rkv_add_f32_ref(float *x, const float *y, int n)
{
    for (int i = 0; i < n; i++)
        x[i] += y[i];
}

void rkv_scale_f32_ref(float *x, float a, int n)
{
    for (int i = 0; i < n; i++)
        x[i] *= a;
}

void rkv_silu_mul_f32_ref(float *out, const float *gate, const float *up, int n)
{
    for (int i = 0; i < n; i++)
        out[i] = (float)((double)gate[i] / (1.0 + exp(-(double)gate[i])) * (double)up[i]);
}

void rkv_gelu_mul_f32_ref(float *out, const float *gate, const float *up, int n)
{
    const double root_2_over_pi = 0.79788456080286535588;
    for (int i = 0; i < n; i++) {
        const double z = (double)gate[i];
        const double t = tanh(root_2_over_pi * (z + 0.044715 * z * z * z));
        out[i] = (float)(0.5 * z * (1.0 + t) * (double)up[i]);
    }
}

void rkv_rope_norm_f32_ref(float *x, const float *cosine, const float *sine, int n_pair)
{
    for (int i = 0; i < n_pair; i++) {
        const double a = (double)x[2 * i], b = (double)x[2 * i + 1];
        const double c = (double)cosine[i], s = (double)sine[i];
        x[2 * i] = (float)(a * c - b * s);
        x[2 * i + 1] = (float)(a * s + b * c);
    }
}

void rkv_rope_neox_f32_ref(float *x, const float *cosine, const float *sine, int n_pair)
{
    for (int i = 0; i < n_pair; i++) {
        const double a = (double)x[i], b = (double)x[i + n_pair];
        const double c = (double)cosine[i], s = (double)sine[i];
        x[i] = (float)(a * c - b * s);
        x[i + n_pair] = (float)(a * s + b * c);
    }
}

float rkv_softmax_step_f32_ref(float *s, int n, float *m, float *l)
{
    float top = *m;
    for (int i = 0; i < n; i++)
        top = s[i] > top ? s[i] : top;
    if (isinf(top)) {                           /* every score so far is masked */
        for (int i = 0; i < n; i++)
            s[i] = 0.0f;
        return 1.0f;
    }
    double sum = 0.0;
    for (int i = 0; i < n; i++) {
        s[i] = (float)exp((double)s[i] - (double)top);
        sum += (double)s[i];
    }
    const double factor = exp((double)*m - (double)top);
    *l = (float)((double)*l * factor + sum);
    *m = top;
    return (float)factor;
}

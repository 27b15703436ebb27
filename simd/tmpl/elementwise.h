/* add, scale, silu_mul, gelu_mul on the vector vocabulary; contracts in kernels.h. */

void RKV_TIER(add_f32)(float *x, const float *y, int n)
{
    int i = 0;
    for (; i + V_LEN <= n; i += V_LEN)
        v_store(x + i, v_add(v_load(x + i), v_load(y + i)));
    if (i < n)
        v_store_n(x + i, v_add(v_load_n(x + i, n - i), v_load_n(y + i, n - i)), n - i);
}

void RKV_TIER(scale_f32)(float *x, float a, int n)
{
    const vf f = v_set(a);
    int i = 0;
    for (; i + V_LEN <= n; i += V_LEN)
        v_store(x + i, v_mul(v_load(x + i), f));
    if (i < n)
        v_store_n(x + i, v_mul(v_load_n(x + i, n - i), f), n - i);
}

/* z up / (1 + exp(-z)). */
static inline vf silu_mul(vf z, vf up)
{
    return v_mul(v_div(z, v_add(v_set(1.0f), v_exp(v_sub(v_zero(), z)))), up);
}

/* The tanh form is a logistic function: (1 + tanh u) / 2 = 1 / (1 + exp(-2 u)), where
 * 2 u = z (a + b z^2) with a = 2 sqrt(2 / pi), b = 0.044715 a. */
static inline vf gelu_mul(vf z, vf up)
{
    const vf a = v_set(1.5957691216f), b = v_set(0.0713548163f);
    const vf e = v_exp(v_sub(v_zero(), v_mul(z, v_fma(v_mul(z, z), b, a))));
    return v_mul(v_div(z, v_add(v_set(1.0f), e)), up);
}

void RKV_TIER(silu_mul_f32)(float *out, const float *gate, const float *up, int n)
{
    int i = 0;
    for (; i + V_LEN <= n; i += V_LEN)
        v_store(out + i, silu_mul(v_load(gate + i), v_load(up + i)));
    if (i < n)
        v_store_n(out + i, silu_mul(v_load_n(gate + i, n - i), v_load_n(up + i, n - i)), n - i);
}

void RKV_TIER(gelu_mul_f32)(float *out, const float *gate, const float *up, int n)
{
    int i = 0;
    for (; i + V_LEN <= n; i += V_LEN)
        v_store(out + i, gelu_mul(v_load(gate + i), v_load(up + i)));
    if (i < n)
        v_store_n(out + i, gelu_mul(v_load_n(gate + i, n - i), v_load_n(up + i, n - i)), n - i);
}

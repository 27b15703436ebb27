/* rmsnorm, softmax_step, rope_norm, rope_neox on the vector vocabulary; contracts in kernels.h. */

/* The squares are summed in double, so that no length, range or order costs precision; two sums
 * side by side hide the latency. */
void RKV_TIER(rmsnorm_f32)(float *out, const float *x, const float *g, int n, float eps)
{
    vd even = vd_zero(), odd = vd_zero();
    int i = 0;
    for (; i + 2 * V_LEN <= n; i += 2 * V_LEN) {
        even = vd_add_square(even, v_load(x + i));
        odd = vd_add_square(odd, v_load(x + i + V_LEN));
    }
    for (; i < n; i += V_LEN)
        even = vd_add_square(even, v_load_n(x + i, n - i));
    const double square = (vd_sum(even) + vd_sum(odd)) / n;
    const vf scale = v_set((float)(1.0 / sqrt(square + (double)eps)));
    for (i = 0; i + V_LEN <= n; i += V_LEN)
        v_store(out + i, v_mul(v_mul(v_load(x + i), scale), v_load(g + i)));
    if (i < n)
        v_store_n(out + i, v_mul(v_mul(v_load_n(x + i, n - i), scale), v_load_n(g + i, n - i)),
                  n - i);
}

/* Largest of a and the n scores. */
static inline float row_top(const float *s, int n, float a)
{
    vf top = v_set(a);
    int i = 0;
    for (; i + V_LEN <= n; i += V_LEN)
        top = v_max(top, v_load(s + i));
    float best = v_top(top);
    for (; i < n; i++)
        best = s[i] > best ? s[i] : best;
    return best;
}

float RKV_TIER(softmax_step_f32)(float *s, int n, float *m, float *l)
{
    const float top = row_top(s, n, *m);
    if (isinf(top)) { /* every score so far is masked */
        for (int i = 0; i < n; i++)
            s[i] = 0.0f;
        return 1.0f;
    }
    const vf shift = v_set(top);
    vf sum = v_zero();
    int i = 0;
    for (; i + V_LEN <= n; i += V_LEN) {
        const vf e = v_exp(v_sub(v_load(s + i), shift));
        v_store(s + i, e);
        sum = v_add(sum, e);
    }
    for (; i < n; i += V_LEN) { /* a last, shorter vector: count its elements only */
        v_store_n(s + i, v_exp(v_sub(v_load_n(s + i, n - i), shift)), n - i);
        sum = v_add(sum, v_load_n(s + i, n - i));
    }
    float factor[V_LEN];
    v_store(factor, v_exp(v_set(*m - top)));
    *l = *l * factor[0] + v_sum(sum);
    *m = top;
    return factor[0];
}

void RKV_TIER(rope_norm_f32)(float *x, const float *cosine, const float *sine, int n_pair)
{
    enum { STEP = V_LEN / 2 };
    int i = 0;
    for (; i + STEP <= n_pair; i += STEP) {
        const vf c = v_load_twice(cosine + i), s = v_load_twice(sine + i);
        v_store(x + 2 * i, v_turn(v_load(x + 2 * i), c, s));
    }
    const int rest = n_pair - i;
    if (rest > 0) {
        const vf c = v_load_twice_n(cosine + i, rest), s = v_load_twice_n(sine + i, rest);
        v_store_n(x + 2 * i, v_turn(v_load_n(x + 2 * i, 2 * rest), c, s), 2 * rest);
    }
}

void RKV_TIER(rope_neox_f32)(float *x, const float *cosine, const float *sine, int n_pair)
{
    float *y = x + n_pair;
    int i = 0;
    for (; i + V_LEN <= n_pair; i += V_LEN) {
        const vf a = v_load(x + i), b = v_load(y + i), c = v_load(cosine + i), s = v_load(sine + i);
        v_store(x + i, v_fms(a, c, v_mul(b, s)));
        v_store(y + i, v_fma(a, s, v_mul(b, c)));
    }
    const int rest = n_pair - i;
    if (rest > 0) {
        const vf a = v_load_n(x + i, rest), b = v_load_n(y + i, rest);
        const vf c = v_load_n(cosine + i, rest), s = v_load_n(sine + i, rest);
        v_store_n(x + i, v_fms(a, c, v_mul(b, s)), rest);
        v_store_n(y + i, v_fma(a, s, v_mul(b, c)), rest);
    }
}

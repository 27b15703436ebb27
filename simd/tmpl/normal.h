/* normal on the vector vocabulary: the steps of ref/normal.c on VL_LEN deviates; contract in
 * kernels.h. */

static RKV_ALWAYS_INLINE vl vl_poly(const double *c, int n, vl z)
{
    vl sum = vl_set(c[n - 1]);
    RKV_UNROLL(8)
    for (int i = n - 2; i >= 0; i--)
        sum = vl_add(vl_mul(sum, z), vl_set(c[i]));
    return sum;
}

static RKV_ALWAYS_INLINE vl vl_log(vl u)
{
    static const double terms[] = RKV_LOG_TERMS;
    const vu shifted = vu_add(vu_of_bits(u), vu_set(RKV_TO_ONE));
    const vl k = vl_sub(vl_from_53(vu_shift(shifted, 52)), vl_set(1023.0));
    const vu m = vu_add(vu_and(shifted, vu_set(0xfffffffffffff)), vu_set(RKV_ROOT_HALF));
    const vl f = vl_sub(vl_of_bits(m), vl_set(1.0));
    const vl s = vl_div(f, vl_add(vl_set(2.0), f)), z = vl_mul(s, s);
    const vl r = vl_mul(z, vl_poly(terms, 7, z));
    const vl low = vl_sub(vl_mul(s, vl_sub(f, r)), vl_mul(k, vl_set(RKV_LN2_LO)));
    return vl_add(vl_mul(k, vl_set(RKV_LN2_HI)), vl_sub(f, low));
}

static RKV_ALWAYS_INLINE vl vl_cos(vl x)
{
    static const double sin_terms[] = RKV_SIN_TERMS, cos_terms[] = RKV_COS_TERMS;
    const vl rounded = vl_add(vl_mul(x, vl_set(RKV_2_OVER_PI)), vl_set(RKV_ROUNDER));
    const vl k = vl_sub(rounded, vl_set(RKV_ROUNDER)), one = vl_set(1.0);
    vl r = vl_sub(x, vl_mul(k, vl_set(RKV_HALF_PI_1)));
    r = vl_sub(r, vl_mul(k, vl_set(RKV_HALF_PI_2)));
    r = vl_sub(r, vl_mul(k, vl_set(RKV_HALF_PI_3)));
    const vl z = vl_mul(r, r), half = vl_mul(vl_set(0.5), z), rest = vl_sub(one, half);
    const vl sine = vl_add(r, vl_mul(vl_mul(r, z), vl_poly(sin_terms, 6, z)));
    const vl tail = vl_mul(vl_mul(z, z), vl_poly(cos_terms, 6, z));
    const vl cosine = vl_add(rest, vl_add(vl_sub(vl_sub(one, rest), half), tail));
    const vu quarter = vu_of_bits(rounded);
    const vl value = vl_choose_odd(quarter, sine, cosine);
    /* of quarters 1 and 2 the second bit of quarter + 1 is set: it becomes the sign */
    const vu turned = vu_and(vu_add(quarter, vu_set(1)), vu_set(2));
    return vl_of_bits(vu_xor(vu_of_bits(value), vu_shift_left(turned, 62)));
}

static RKV_ALWAYS_INLINE vu vu_mix(vu z)
{
    z = vu_xor(z, vu_shift(z, 30));
    z = vu_times(z, 0xBF58476D1CE4E5B9);
    z = vu_xor(z, vu_shift(z, 27));
    z = vu_times(z, 0x94D049BB133111EB);
    return vu_xor(z, vu_shift(z, 31));
}

static RKV_ALWAYS_INLINE vl vl_uniform(vu counter)
{
    const vl m = vl_from_53(vu_shift(vu_mix(counter), 11));
    return vl_mul(vl_add(m, vl_set(0.5)), vl_set(0x1p-53));
}

/* The deviate whose words have these counters. */
static RKV_ALWAYS_INLINE vl vl_normal(vu first, vu second)
{
    const vl radius = vl_sqrt(vl_mul(vl_set(-2.0), vl_log(vl_uniform(first))));
    return vl_mul(radius, vl_cos(vl_mul(vl_set(RKV_TWO_PI), vl_uniform(second))));
}

void RKV_TIER(normal_f32)(double *out, uint64_t key, uint64_t first, int n)
{
    const uint64_t step = RKV_NOISE_STEP;
    vu at = vu_series(key + (2 * first + 1) * step, 2 * step);
    int i = 0;
    for (; i + VL_LEN <= n; i += VL_LEN) {
        vl_store(out + i, vl_normal(at, vu_add(at, vu_set(step))));
        at = vu_add(at, vu_set(2 * VL_LEN * step));
    }
    if (i < n) {
        double some[VL_LEN];
        vl_store(some, vl_normal(at, vu_add(at, vu_set(step))));
        memcpy(out + i, some, (size_t)(n - i) * sizeof *some);
    }
}

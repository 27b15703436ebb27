/* exp of a vector, for any tier; included after its vec_*.h.
 * <= 2 ULP on [-104, 88.7]; 0 below (also of -inf), infinite above 88.73; a NaN gives some number.
 * exp x = 2^n exp r with n = round(x log2 e), |r| <= ln 2 / 2, and exp r = 1 + r + r^2 q(r) with q
 * the minimax polynomial of degree 4, whose error is 0.03 ULP. ln 2 in two parts, so that n times
 * the first is exact. Source of the reduction: Cody & Waite 1980, chapter 6. */
#ifndef RKV_VEC_EXP_H
#define RKV_VEC_EXP_H

static inline vf v_exp(vf x)
{
    x = v_min(v_max(x, v_set(-105.0f)), v_set(89.0f));
    const vf n = v_round(v_mul(x, v_set(0x1.715476p+0f)));
    const vf r = v_fnma(n, v_set(0x1.0bfbe8p-15f), v_fnma(n, v_set(0x1.62ep-1f), x));
    vf q = v_fma(v_set(0x1.6a23cep-10f), r, v_set(0x1.123a2p-7f));
    q = v_fma(q, r, v_set(0x1.5558f2p-5f));
    q = v_fma(q, r, v_set(0x1.555492p-3f));
    q = v_fma(q, r, v_set(0x1.fffffcp-2f));
    return v_ldexp(v_add(v_fma(v_mul(r, r), q, r), v_set(1.0f)), n);
}

#endif

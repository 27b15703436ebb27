/* Constants of the generator's logarithm and cosine (op normal), for every tier.
 *
 * Both take uniforms u in (0, 1], multiply and add without FMA, and divide and take roots as IEEE
 * does, in one order: so all tiers agree to the bit. Polynomials: through the function at Chebyshev
 * nodes, computed with 60 digits; the errors below include the rounding of the coefficients.
 * Sources of the method: Cody & Waite 1980, chapters 5 and 8. */
#ifndef RKV_NORMAL_H
#define RKV_NORMAL_H

/* log u = k ln 2 + log(1 + f), 1 + f in [sqrt(1/2), sqrt 2); with s = f / (2 + f):
 * log(1 + f) = 2 s + s R(s^2) = f - s (f - R), R = z (L0 + L1 z + ... + L6 z^6), to 2^-57 s.
 * ln 2 in two parts, so that k times the first is exact. */
#define RKV_LOG_TERMS                                                                              \
    {                                                                                              \
        0x1.5555555555558p-1, 0x1.99999999952d7p-2, 0x1.2492492df281ap-2, 0x1.c71c62e3f11c8p-3,    \
            0x1.7462b51cb6d52p-3, 0x1.39fe51a7b64b0p-3, 0x1.2b5900dec9866p-3                       \
    }
#define RKV_LN2_HI 0x1.62e42fefa2000p-1
#define RKV_LN2_LO 0x1.9ef35793c7673p-41
/* The bits of sqrt(1/2), and what takes them to those of 1. */
#define RKV_ROOT_HALF 0x3fe6a09e667f3bcd
#define RKV_TO_ONE (0x3ff0000000000000 - RKV_ROOT_HALF)

/* cos x for x = 2 pi u in [0, 2 pi]: r = x - k pi/2 with k the integer next to x 2/pi, and pi/2 in
 * three parts, so that k times the first two is exact. sin r = r + r z (S0 + ... + S5 z^5), to
 * 2^-55 r; cos r = 1 - z/2 + z^2 (C0 + ... + C5 z^5), to 2^-59; z = r^2 <= (pi/4)^2. */
#define RKV_TWO_PI 0x1.921fb54442d18p+2
#define RKV_2_OVER_PI 0x1.45f306dc9c883p-1
#define RKV_HALF_PI_1 0x1.921fb54400000p+0
#define RKV_HALF_PI_2 0x1.0b4611a600000p-34
#define RKV_HALF_PI_3 0x1.3198a2e037073p-69
#define RKV_SIN_TERMS                                                                              \
    {                                                                                              \
        -0x1.5555555555555p-3, 0x1.1111111110bb2p-7, -0x1.a01a019e83816p-13,                       \
            0x1.71de379654301p-19, -0x1.ae600aca92994p-26, 0x1.5e0b05bfe4ca5p-33                   \
    }
#define RKV_COS_TERMS                                                                              \
    {                                                                                              \
        0x1.5555555555555p-5, -0x1.6c16c16c16967p-10, 0x1.a01a019f4e9b4p-16,                       \
            -0x1.27e4fa17bf138p-22, 0x1.1eeb68cd22deep-29, -0x1.907d8f29f13b8p-37                  \
    }
/* Added and taken away, it rounds to an integer, whose bits are the lowest of the sum. */
#define RKV_ROUNDER 0x1.8p52

#endif

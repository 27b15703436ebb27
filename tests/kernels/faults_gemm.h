/* The faulty matrix products of faults.c, which includes this: touch, whole and KNOWN are there. */
#ifndef FAULTS_GEMM_H
#define FAULTS_GEMM_H

static RKV_PROTO_gemm(gemm_drops_rows)
{
    rkv_gemm_f32_ref(c, ldc, a, lda, b, ldb, m > 6 ? m / 6 * 6 : m, n, k, acc);
}

static RKV_PROTO_gemm(gemm_skips_term)
{
    rkv_gemm_f32_ref(c, ldc, a, lda, b, ldb, m, n, k > 256 ? k - 1 : k, acc);
}

static RKV_PROTO_gemm(gemm_reads_gap)
{
    rkv_gemm_f32_ref(c, ldc, a, lda, b, ldb, m, n, k, acc);
    for (int i = 0; i < m && n && k > KNOWN; i++)
        touch(a + i * lda + k);
}

static RKV_PROTO_gemm(gemm_writes_gap)
{
    rkv_gemm_f32_ref(c, ldc, a, lda, b, ldb, m, n, k, acc);
    for (int i = 0; i < m - 1 && n < ldc; i++)
        c[i * ldc + n] = 0.0f;
}

static RKV_PROTO_gemm(gemm_uses_garbage)
{
    for (int i = 0; i < m && !acc; i++)
        for (int j = 0; j < n; j++)
            c[i * ldc + j] *= 0.0f;
    rkv_gemm_f32_ref(c, ldc, a, lda, b, ldb, m, n, k, 1);
}

/* Sums even and odd terms apart: within the tolerance, but not the same chain for every k. */
static RKV_PROTO_gemm(gemm_two_chains)
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            float sum[2] = {acc ? c[i * ldc + j] : 0.0f, 0.0f};
            for (int p = 0; p < k; p++)
                sum[p % 2] = fmaf(a[i * lda + p], b[p * ldb + j], sum[p % 2]);
            c[i * ldc + j] = sum[0] + sum[1];
        }
}

static float half_flushed(uint16_t h)
{
    return h & 0x7f80 ? rkv_bf16_to_f32(h) : 0.0f;
}

static RKV_PROTO_gemm_pairs(pairs_swaps)
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            float sum = acc ? c[i * ldc + j] : 0.0f;
            for (int p = 0; p < k; p++)
                sum = fmaf(half_flushed(a[i * lda + p]),
                           half_flushed(b[2 * (p / 2 * ldb + j) + 1 - p % 2]), sum);
            c[i * ldc + j] = sum;
        }
}

/* One chain, and denormals as numbers. */
static RKV_PROTO_gemm_pairs(pairs_keeps_denormals)
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            float sum = acc ? c[i * ldc + j] : 0.0f;
            for (int p = 0; p < k; p++)
                sum = fmaf(rkv_bf16_to_f32(a[i * lda + p]),
                           rkv_bf16_to_f32(b[2 * (p / 2 * ldb + j) + p % 2]), sum);
            c[i * ldc + j] = sum;
        }
}

static RKV_PROTO_gemm_pairs(pairs_skips_rest)
{
    rkv_gemm_pairs_bf16_ref(c, ldc, a, lda, b, ldb, m, n, k > 32 ? k - 32 : k, acc);
}

static RKV_PROTO_gemm_pairs(pairs_reads_whole_tile)
{
    rkv_gemm_pairs_bf16_ref(c, ldc, a, lda, b, ldb, m, n, k, acc);
    for (int i = 0; k > 32 && n && i < (m + 15) / 16 * 16; i++)
        (void)*(const volatile uint16_t *)(a + i * lda);
}

static RKV_PROTO_gemm_pairs(pairs_writes_whole_tile)
{
    rkv_gemm_pairs_bf16_ref(c, ldc, a, lda, b, ldb, m, n, k, acc);
    for (int i = 0; i < m - 1 && n < ldc; i++)
        c[i * ldc + n] = 0.0f;
}

/* Rows are summed in another order when there are more than one. */
static RKV_PROTO_gemm_pairs(pairs_by_neighbours)
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            float sum[2] = {acc ? c[i * ldc + j] : 0.0f, 0.0f};
            for (int p = 0; p < k; p++)
                sum[p % 2 && m > 1] += half_flushed(a[i * lda + p]) *
                                       half_flushed(b[2 * (p / 2 * ldb + j) + p % 2]);
            c[i * ldc + j] = fabsf(sum[0] + sum[1]) < 0x1p-126f ? 0.0f : sum[0] + sum[1];
        }
}

static RKV_PROTO_gemm_int16(int16_swaps)
{
    rkv_gemm_int16_f32_ref(c, ldc, a, lda, a_scale, lds, b, ldb, b_scale, m, n, k, acc);
    for (int i = 0; n > 1 && i < m; i++)
        c[i * ldc] = c[i * ldc + 1];
}

/* The two scales multiplied first: another rounding. */
static RKV_PROTO_gemm_int16(int16_scales_at_once)
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            int32_t sum = 0;
            for (int p = 0; p < k; p++)
                sum += a[i * lda + p] * b[2 * (p / 2 * ldb + j) + p % 2];
            c[i * ldc + j] = fmaf((float)sum, b_scale[j] * a_scale[i * lds],
                                  acc ? c[i * ldc + j] : 0.0f);
        }
}

static RKV_PROTO_gemm_int16(int16_reads_whole_vector)
{
    rkv_gemm_int16_f32_ref(c, ldc, a, lda, a_scale, lds, b, ldb, b_scale, m, n, k, acc);
    if (m && n > KNOWN && n % 8)
        touch(b_scale + whole(n) + 7);
}

static RKV_PROTO_pack_int16(pack_int16_by_value)
{
    float top = 0x1p-100f;
    for (int i = 0; i < n; i++)
        top = fmaxf(top, fabsf(in[i]));
    for (int i = 0; i < n; i++)
        out[i] = (int16_t)(in[i] / top * 32767.0f);
    return top / 32767.0f;
}

#endif

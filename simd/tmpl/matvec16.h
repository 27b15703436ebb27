/* matvec of block formats on x rounded to 16 bits; contract in kernels.h. The tier describes its
 * formats (struct format has at least bytes, of a block, and small: blocks of 32 weights rather
 * than 256) and defines, all inlined:
 *     x16                    a part of an input, rounded
 *     round_x(f, out, x, n)  rounds n numbers, and zeros behind up to a whole step
 *     sums                   sums of products: start(acc, j) from 0 on, total(f, acc, j) of input j
 *     dot_step(f, acc, block, x, n_x, i, n, have)
 *                            acc += n weights, STEP or half of it, times n_x inputs from column i
 *                            on; only `have` small blocks are there, behind which x is 0
 *
 * Rows go one after the other: a thread then reads its share of the matrix as one stream, which the
 * memory system serves 1.5 times as fast as two or four rows at a time (measured, Zen 3). */

static RKV_ALWAYS_INLINE int step_bytes(const format *f)
{
    return f->small ? STEP / 32 * f->bytes : f->bytes;
}

/* y[j ldy] += a row times n columns of x[j], j < n_x. What lies AHEAD behind a step is usually a
 * later part of the row or a following row; to ask for it is harmless where there is none. */
static RKV_ALWAYS_INLINE void row(const format *f, float *y, ptrdiff_t ldy, const char *block,
                                  const x16 *x, const int n_x, int n)
{
    sums acc;
    int i = 0;
    RKV_UNROLL(8)
    for (int j = 0; j < n_x; j++)
        start(&acc, j);
    for (; n - i >= STEP; i += STEP, block += step_bytes(f)) {
        const uintptr_t at = (uintptr_t)block + AHEAD;
        RKV_UNROLL(8)
        for (int b = 0; b < step_bytes(f); b += 64)
            _mm_prefetch((const char *)(at + (uintptr_t)b), _MM_HINT_T0);
        dot_step(f, &acc, block, x, n_x, i, STEP, STEP / 32);
    }
    const int rest = (n - i) / 32;
    if (f->small && rest > 4)
        dot_step(f, &acc, block, x, n_x, i, STEP, rest);
    else if (f->small && rest > 0)
        dot_step(f, &acc, block, x, n_x, i, STEP / 2, rest);
    RKV_UNROLL(8)
    for (int j = 0; j < n_x; j++)
        y[j * ldy] += total(f, &acc, j);
}

/* All inputs go through a row while it is in the first-level cache, FEW at a time through the codes
 * of a unit. */
static RKV_ALWAYS_INLINE void matvec16(const format *f, float *y, ptrdiff_t ldy, const void *w,
                                       ptrdiff_t w_stride, const float *x, ptrdiff_t ldx, int n_x,
                                       int n_out, int n_in)
{
    enum { FEW = 4 };
    x16 part[INPUTS];
    for (int j = 0; j < n_x; j++)
        memset(y + j * ldy, 0, (size_t)(n_out > 0 ? n_out : 0) * sizeof *y);
    for (int j0 = 0; j0 < n_x; j0 += INPUTS) {
        const int n_part = n_x - j0 < INPUTS ? n_x - j0 : INPUTS;
        for (int i0 = 0; i0 < n_in; i0 += COLS) {
            const int n = n_in - i0 < COLS ? n_in - i0 : COLS;
            const char *block = (const char *)w + (ptrdiff_t)(i0 / STEP) * step_bytes(f);
            for (int j = 0; j < n_part; j++)
                round_x(f, &part[j], x + (j0 + j) * ldx + i0, n);
            for (int r = 0; r < n_out; r++, block += w_stride) {
                float *to = y + j0 * ldy + r;
                int j = 0;
                for (; j + FEW <= n_part; j += FEW)
                    row(f, to + j * ldy, ldy, block, part + j, FEW, n);
                for (; j < n_part; j++)
                    row(f, to + j * ldy, ldy, block, part + j, 1, n);
            }
        }
    }
}

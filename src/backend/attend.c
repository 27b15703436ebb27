/* Attention over one KV head: many rows in tiles (prefill), one position in chunks (decode). */
#include "config.h"
#include "backend/backend.h"

#include <math.h>
#include <string.h>

#include "backend/pairs.h"

enum { TILE = RKV_ATTN_TILE };

typedef struct tile {           /* the scratch, cut up */
    float *row;                 /* [TILE][d_head] unpacked keys */
    float *key;                 /* [d_head][TILE] */
    float *value;               /* [TILE][d_head] */
    float *score;               /* [n_q][TILE] */
    /* The rest for bf16 only. A query and a key are each the sum of two bf16, high and low. Their
     * product without low times low, at most 2^-16 of a term, is one along the tripled depth: high
     * high low times high low high. The parts are rkv_pairs_depth long. */
    uint16_t *query;            /* [n_q][3 parts] */
    uint16_t *key_pairs;        /* [3 parts / 2][TILE][2] */
    uint16_t *value_pairs;      /* [TILE / 2][d_head][2] */
    uint16_t *weight;           /* [n_q][TILE] */
    float *zero;                /* max(d_head, TILE) */
} tile;

static size_t floats_f32(int n_q, int d_head)
{
    return (size_t)TILE * (size_t)d_head * 3 + (size_t)n_q * TILE;
}

enum { ALIGN = 64 };            /* bytes: a row of a tile register lies in one cache line */

size_t rkv_attend_scratch(const rkv_backend *be, int n_q, int d_head)
{
    const size_t d = (size_t)d_head, rows = (size_t)n_q,
                 parts = 3 * (size_t)rkv_pairs_depth(d_head);
    const size_t pairs = rows * parts + parts * TILE + TILE * d + rows * TILE;
    if (be->gemm != RKV_GEMM_BF16)
        return floats_f32(n_q, d_head);
    return ALIGN / sizeof(float) + floats_f32(n_q, d_head) +
           pairs * sizeof(uint16_t) / sizeof(float) + (d > TILE ? d : TILE);
}

static tile cut(const rkv_backend *be, float *scratch, int n_q, int d_head)
{
    const ptrdiff_t block = (ptrdiff_t)TILE * d_head, parts = 3 * rkv_pairs_depth(d_head);
    if (be->gemm != RKV_GEMM_BF16)
        return (tile){scratch, scratch + block, scratch + 2 * block, scratch + 3 * block,
                      NULL, NULL, NULL, NULL, NULL};
    float *at = scratch + -(uintptr_t)scratch % ALIGN / sizeof *scratch;
    tile t = {.row = at, .key = at + block, .value = at + 2 * block, .score = at + 3 * block};
    t.query = (uint16_t *)(void *)(at + floats_f32(n_q, d_head));
    t.key_pairs = t.query + n_q * parts;
    t.value_pairs = t.key_pairs + parts * TILE;
    t.weight = t.value_pairs + block;
    t.zero = (float *)(void *)(t.weight + (ptrdiff_t)n_q * TILE);
    memset(t.zero, 0, (size_t)(d_head > TILE ? d_head : TILE) * sizeof *t.zero);
    return t;
}

static const void *slot(const void *base, rkv_dtype type, int t, int d_head)
{
    return (const char *)base + rkv_dtype_bytes(rkv_dtype_get(type), (size_t)t * (size_t)d_head);
}

/* Slots [t0, t0 + n) as f32: keys transposed, values as rows. */
static void load_tile(const rkv_ops *ops, const tile *t, const rkv_kv_view *kv, int t0, int n)
{
    const int d = kv->d_head;
    ops->unpack[kv->k_type](t->row, slot(kv->k, kv->k_type, t0, d), (int64_t)n * d);
    ops->transpose[RKV_DT_f32](t->key, TILE, t->row, d, n, d);
    ops->unpack[kv->v_type](t->value, slot(kv->v, kv->v_type, t0, d), (int64_t)n * d);
}

/* Masks the scores of one row outside slots [lo, hi); the row's score 0 is slot t0. */
static void mask(float *score, int t0, int n, int lo, int hi)
{
    for (int t = 0; t < n && t0 + t < lo; t++)
        score[t] = -INFINITY;
    for (int t = hi > t0 ? hi - t0 : 0; t < n; t++)
        score[t] = -INFINITY;
}

void rkv_attend_begin(float *out, float *m, float *l, int n_q, int d_head)
{
    memset(out, 0, (size_t)n_q * (size_t)d_head * sizeof *out);
    for (int i = 0; i < n_q; i++)
        m[i] = -INFINITY, l[i] = 0.0f;
}

/* Rows of q as high, high, low. */
static void split_queries(const rkv_ops *ops, tile *t, const float *q, int n_q, int d)
{
    const int part = rkv_pairs_depth(d);
    float *rest = t->row;
    for (int i = 0; i < n_q; i++, q += d) {
        uint16_t *high = t->query + (ptrdiff_t)i * 3 * part, *low = high + 2 * part;
        memset(high, 0, 3 * (size_t)part * sizeof *high);
        ops->pack[RKV_DT_bf16](high, q, d);
        memcpy(high + part, high, (size_t)d * sizeof *high);
        ops->unpack[RKV_DT_bf16](rest, high, d);
        ops->scale[RKV_DT_f32](rest, -1.0f, d);
        ops->add[RKV_DT_f32](rest, q, d);
        ops->pack[RKV_DT_bf16](low, rest, d);
    }
}

/* Row i of rows [first, first + n) that begin at `rows`; outside zeros. */
static const float *row_or_zero(const tile *t, const float *rows, ptrdiff_t ld, int i, int first,
                                int n)
{
    return i >= first && i < first + n ? rows + (i - first) * ld : t->zero;
}

/* The tile's n keys as high, low, high; what is behind d_head is 0. */
static void pair_keys(const rkv_ops *ops, tile *t, int n, int d)
{
    const ptrdiff_t part = (ptrdiff_t)rkv_pairs_depth(d) * TILE;
    for (int e = 0; e < rkv_pairs_depth(d); e += 2) {
        uint16_t *high = t->key_pairs + (ptrdiff_t)e * TILE;
        ops->pack_pairs[RKV_DT_bf16](high, high + part, row_or_zero(t, t->key, TILE, e, 0, d),
                                     row_or_zero(t, t->key, TILE, e + 1, 0, d), n);
        memcpy(high + 2 * part, high, (size_t)n * 2 * sizeof *high);
    }
}

/* n values from slot `first` of the tile on; the other slots are 0. */
static void pair_values(const rkv_ops *ops, tile *t, const float *value, int first, int n, int d)
{
    for (int i = 0; i < TILE; i += 2)
        ops->pack_pairs[RKV_DT_bf16](t->value_pairs + (ptrdiff_t)i * d, NULL,
                                     row_or_zero(t, value, d, i, first, n),
                                     row_or_zero(t, value, d, i + 1, first, n), d);
}

typedef struct rows {           /* of the state, that see a tile */
    float *out, *m, *l;
    const int32_t *lo, *hi;
    int n;
} rows;

/* Slots [t0, t0 + n) to the rows q, in f32. */
static void add_f32(const rkv_ops *ops, tile *t, const rows *r, const float *q, int t0, int n,
                    int d)
{
    ops->gemm[RKV_DT_f32](t->score, TILE, q, d, t->key, TILE, r->n, n, d, 0);
    for (int i = 0; i < r->n; i++) {
        float *score = t->score + (ptrdiff_t)i * TILE;
        mask(score, t0, n, r->lo[i], r->hi[i]);
        const float f = ops->softmax_step[RKV_DT_f32](score, n, &r->m[i], &r->l[i]);
        if (f != 1.0f)
            ops->scale[RKV_DT_f32](r->out + (ptrdiff_t)i * d, f, d);
    }
    ops->gemm[RKV_DT_f32](r->out, d, t->score, TILE, t->value, d, r->n, d, n, 1);
}

/* The same in bf16. What is summed into l are the rounded weights, those that multiply the values:
 * the weights of the mean then sum to 1, and a rounding counts by a value's distance from the mean,
 * not by the value. Sums run over whole tiles, slot t0 at its place `first`, since gemm_pairs sums
 * each 32 terms apart and the slots in front may have been dropped. */
static void add_bf16(const rkv_ops *ops, tile *t, const rows *r, const uint16_t *q, int t0,
                     int first, int n, int d)
{
    const int depth = 3 * rkv_pairs_depth(d);
    uint16_t ones[TILE];
    for (int i = 0; i < TILE; i++)
        ones[i] = 0x3f80;
    pair_keys(ops, t, n, d);
    pair_values(ops, t, t->value, first, n, d);
    ops->gemm_pairs[RKV_DT_bf16](t->score + first, TILE, q, depth, t->key_pairs, TILE, r->n, n,
                                 depth, 0);
    for (int i = 0; i < r->n; i++) {
        float *whole = t->score + (ptrdiff_t)i * TILE, *score = whole + first, unrounded = 0.0f;
        mask(score, t0, n, r->lo[i], r->hi[i]);
        const float f = ops->softmax_step[RKV_DT_f32](score, n, &r->m[i], &unrounded);
        memset(whole, 0, (size_t)first * sizeof *whole);
        memset(score + n, 0, (size_t)(TILE - first - n) * sizeof *score);
        if (f == 1.0f)
            continue;
        r->l[i] *= f;
        ops->scale[RKV_DT_f32](r->out + (ptrdiff_t)i * d, f, d);
    }
    ops->pack[RKV_DT_bf16](t->weight, t->score, (int64_t)r->n * TILE);
    ops->gemm_pairs[RKV_DT_bf16](r->out, d, t->weight, TILE, t->value_pairs, d, r->n, d, TILE, 1);
    ops->gemm_pairs[RKV_DT_bf16](r->l, 1, t->weight, TILE, ones, 1, r->n, 1, TILE, 1);
}

/* ---- tiles of a run of slots ---- */

typedef struct walk {
    const int32_t *lo, *hi;
    int n_q, phase, n_slot;
    int index;                  /* of the tile, from 0; tiles that nobody sees count */
    int t0, n, end;             /* its slots; end is where the next one begins */
    int first;                  /* place of slot t0: the tile may begin before slot 0 */
    int r0, r1;                 /* rows that see it: hi[r] > t0, lo[r] < t0 + n */
} walk;

static walk walk_begin(const int32_t *lo, const int32_t *hi, int n_q, const rkv_kv_view *kv)
{
    return (walk){.lo = lo, .hi = hi, .n_q = n_q, .phase = kv->phase, .n_slot = kv->n_slot,
                  .index = -1, .end = lo[0]};
}

/* To the next tile that a row sees; 0: there is none. */
static int walk_next(walk *w)
{
    do {
        if (w->end >= w->hi[w->n_q - 1])
            return 0;
        w->end = (w->end + w->phase) / TILE * TILE + TILE - w->phase;
        w->t0 = w->end - TILE > 0 ? w->end - TILE : 0;
        w->first = w->t0 - (w->end - TILE);
        w->n = (w->n_slot < w->end ? w->n_slot : w->end) - w->t0;
        w->index++;
        while (w->r0 < w->n_q && w->hi[w->r0] <= w->t0)
            w->r0++;
        while (w->r1 < w->n_q && w->lo[w->r1] < w->t0 + w->n)
            w->r1++;
    } while (w->r0 >= w->r1);
    return 1;
}

/* ---- weights kept, and summed by column ---- */

static int tiles_touched(int n_slot)
{
    return (n_slot + TILE - 2) / TILE + 1;
}

static size_t weight_bytes(const rkv_backend *be)
{
    return be->gemm == RKV_GEMM_BF16 ? sizeof(uint16_t) : sizeof(float);
}

size_t rkv_attend_kept_floats(const rkv_backend *be, int n_q, int n_slot)
{
    const size_t tiles = (size_t)tiles_touched(n_slot), weights = tiles * (size_t)n_q * TILE;
    return ALIGN / sizeof(float) + weights * weight_bytes(be) / sizeof(float) +
           (size_t)n_q * (tiles + 1);
}

rkv_attend_kept rkv_attend_kept_cut(const rkv_backend *be, float *memory, int n_q, int n_slot)
{
    const int tiles = tiles_touched(n_slot);
    const size_t bytes = (size_t)tiles * (size_t)n_q * TILE * weight_bytes(be);
    float *at = memory + -(uintptr_t)memory % ALIGN / sizeof *memory;
    float *top = at + bytes / sizeof *at;
    return (rkv_attend_kept){at, top, top + (ptrdiff_t)n_q * tiles, tiles};
}

static void *kept_tile(const rkv_backend *be, const rkv_attend_kept *k, int n_q, int index)
{
    return (char *)k->weight + (size_t)index * (size_t)n_q * TILE * weight_bytes(be);
}

/* Lets the tile's weights fall where they are kept. */
static void keep_here(const rkv_backend *be, tile *t, const rkv_attend_kept *k, const walk *w)
{
    if (be->gemm == RKV_GEMM_BF16)
        t->weight = kept_tile(be, k, w->n_q, w->index);
    else
        t->score = kept_tile(be, k, w->n_q, w->index);
}

void rkv_attend_mass(const rkv_backend *be, const rkv_attend_sum *sum, int n_sum,
                     const rkv_attend_kept *kept, const float *m, const float *l, int n_q,
                     const int32_t *lo, const int32_t *hi, const rkv_kv_view *kv, float *scratch)
{
    const rkv_ops *ops = &be->ops;
    const tile t = cut(be, scratch, n_q, kv->d_head);
    for (int i = 0; i < n_q; i++) {     /* top becomes the factor of the row's weights in a tile */
        float *top = kept->top + (ptrdiff_t)i * kept->n_tile, most = m[i], unused = 0.0f;
        ops->softmax_step[RKV_DT_f32](top, kept->n_tile, &most, &unused);
        ops->scale[RKV_DT_f32](top, 1.0f / l[i], kept->n_tile);
    }
    for (walk w = walk_begin(lo, hi, n_q, kv); walk_next(&w);) {
        const int n_row = w.r1 - w.r0;
        const int from = w.t0 > lo[0] ? w.t0 : lo[0],
                  end = w.t0 + w.n < hi[n_q - 1] ? w.t0 + w.n : hi[n_q - 1];
        const float *weight = kept_tile(be, kept, n_q, w.index);
        if (be->gemm == RKV_GEMM_BF16) {
            ops->unpack[RKV_DT_bf16](t.score, weight, (int64_t)n_row * TILE);
            weight = t.score + w.first;
        }
        for (int i = 0; i < n_row; i++)
            kept->factor[i] = kept->top[(ptrdiff_t)(w.r0 + i) * kept->n_tile + w.index];
        for (const rkv_attend_sum *s = sum; s < sum + n_sum; s++) {
            const int skip = s->first > w.r0 ? s->first - w.r0 : 0;
            if (s->mass && skip < n_row)
                ops->gemm[RKV_DT_f32](s->mass + from, TILE, kept->factor + skip, n_row,
                                      weight + (ptrdiff_t)skip * TILE + (from - w.t0), TILE, 1,
                                      end - from, n_row - skip, 1);
        }
    }
}

/* ---- the call ---- */

void rkv_attend_add(const rkv_backend *be, float *out, float *m, float *l, const float *q, int n_q,
                    const int32_t *lo, const int32_t *hi, const rkv_kv_view *kv,
                    const rkv_attend_kept *kept, float *scratch)
{
    const rkv_ops *ops = &be->ops;
    const int d = kv->d_head;
    tile t = cut(be, scratch, n_q, d);
    if (t.query)
        split_queries(ops, &t, q, n_q, d);
    for (ptrdiff_t i = 0; kept && i < (ptrdiff_t)n_q * kept->n_tile; i++)
        kept->top[i] = -INFINITY;       /* also of tiles that a row does not see */
    for (walk w = walk_begin(lo, hi, n_q, kv); walk_next(&w);) {
        const int r0 = w.r0;
        const rows r = {out + (ptrdiff_t)r0 * d, m + r0, l + r0, lo + r0, hi + r0, w.r1 - r0};
        load_tile(ops, &t, kv, w.t0, w.n);
        if (kept)
            keep_here(be, &t, kept, &w);
        if (t.query)
            add_bf16(ops, &t, &r, t.query + (ptrdiff_t)r0 * 3 * rkv_pairs_depth(d), w.t0,
                     w.first, w.n, d);
        else
            add_f32(ops, &t, &r, q + (ptrdiff_t)r0 * d, w.t0, w.n, d);
        for (int i = r0; kept && i < w.r1; i++)
            kept->top[(ptrdiff_t)i * kept->n_tile + w.index] = m[i];
    }
}

void rkv_attend_end(const rkv_backend *be, float *out, const float *l, int n_q, int d_head)
{
    for (int i = 0; i < n_q; i++)
        be->ops.scale[RKV_DT_f32](out + (ptrdiff_t)i * d_head, 1.0f / l[i], d_head);
}

void rkv_attend_chunk(const rkv_backend *be, float *out, float *m, float *l, const float *q,
                      int n_q, const rkv_kv_view *kv, int first, int n, float *scratch)
{
    const rkv_ops *ops = &be->ops;
    const int d = kv->d_head;
    ops->kv_score[kv->k_type](scratch, RKV_ATTN_CHUNK, q, slot(kv->k, kv->k_type, first, d), n_q, n,
                              d);
    for (int i = 0; i < n_q; i++) {
        m[i] = -INFINITY;
        l[i] = 0.0f;
        ops->softmax_step[RKV_DT_f32](scratch + (ptrdiff_t)i * RKV_ATTN_CHUNK, n, &m[i], &l[i]);
    }
    memset(out, 0, (size_t)n_q * (size_t)d * sizeof *out);
    ops->kv_mix[kv->v_type](out, scratch, RKV_ATTN_CHUNK, slot(kv->v, kv->v_type, first, d), n_q, n,
                            d);
}

void rkv_attend_merge(float *out, int d_head, const float *o, ptrdiff_t o_step, const float *m,
                      const float *l, ptrdiff_t ml_step, int n_part)
{
    float top = -INFINITY;
    for (int p = 0; p < n_part; p++)
        top = m[p * ml_step] > top ? m[p * ml_step] : top;
    float sum = 0.0f;
    memset(out, 0, (size_t)d_head * sizeof *out);
    for (int p = 0; p < n_part; p++) {
        const float w = expf(m[p * ml_step] - top);
        sum += l[p * ml_step] * w;
        for (int e = 0; e < d_head; e++)
            out[e] += w * o[p * o_step + e];
    }
    for (int e = 0; e < d_head; e++)
        out[e] /= sum;
}

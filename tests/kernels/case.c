#include "config.h"
#include "case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guard.h"
#include "tol.h"

enum { POOL_BYTES = 64 << 20 };

static unsigned char *pool;
static size_t pool_used;
static kernel_case current;
static guard_block blocks[CASE_OPERANDS];
static const char *place; /* of the call in progress */

int case_open(int readable)
{
    pool = malloc(POOL_BYTES);
    return pool && guard_open(readable);
}

static void *pool_take(size_t n)
{
    void *p = pool + pool_used;
    pool_used += (n + 63) & ~(size_t)63;
    if (pool_used > POOL_BYTES) {
        fputs("a driver's case needs more memory than case.c has\n", stderr);
        abort();
    }
    return p;
}

static size_t operand_bytes(const operand *o)
{
    return o->n_row * o->row_len * o->elem;
}

operand *case_operand(kernel_case *c, operand_use use, size_t n_row, size_t row_len, size_t elem)
{
    operand *o = &c->op[c->n_operand++];
    *o = (operand){.use = use, .n_row = n_row, .row_len = row_len, .elem = elem};
    const size_t bytes = operand_bytes(o);
    o->data = pool_take(bytes);
    o->got = pool_take(bytes);
    o->want = pool_take(bytes);
    return o;
}

operand *case_floats(kernel_case *c, operand_use use, size_t n_row, size_t row_len, case_rng *r)
{
    operand *o = case_operand(c, use, n_row, row_len, sizeof(float));
    input_floats(o->data, n_row * row_len, c->kind, r);
    return o;
}

int case_length(int index, case_rng *r)
{
    const int i = index % CASE_LENGTHS;
    return i <= 200 ? i : 201 + (int)rng_below(r, 5000);
}

int case_rows(rkv_dtype dt)
{
    (void)dt;
    return CASE_LENGTHS * INPUT_KINDS;
}

int split_row(const kernel_case *c)
{
    return c->dim[0] > 1 ? c->dim[0] - 1 : 0;
}

int case_dim(int max, case_rng *r)
{
    const int shape = (int)rng_below(r, 3);
    int n = (int)rng_below(r, (size_t)max + 1);
    if (shape == 0)
        n %= 20;
    else if (shape == 1)
        n = n / 16 * 16 + (int)rng_below(r, 3) - 1;
    return n < 0 ? 0 : n > max ? max : n;
}

void case_describe(const op_driver *d, char *text)
{
    int n = 0;
    for (int i = 0; i < CASE_DIMS && d->dim[i]; i++)
        n += snprintf(text + n, (size_t)(FAULT_TEXT - n), "%s=%d ", d->dim[i], current.dim[i]);
    snprintf(text + n, (size_t)(FAULT_TEXT - n), "%s, %s", input_kind_name[current.kind], place);
}

static float float_at(const void *p, size_t e)
{
    float v;
    memcpy(&v, (const char *)p + e * sizeof v, sizeof v);
    return v;
}

int judge_bits(const kernel_case *c, int i, char *text)
{
    const operand *o = &c->op[i];
    const unsigned char *got = o->got, *want = o->want;
    for (size_t b = 0; b < operand_bytes(o); b++)
        if (got[b] != want[b]) {
            const size_t e = b / o->elem;
            snprintf(text, FAULT_TEXT,
                     "operand %d, element %zu of row %zu has other bits than the reference", i,
                     e % o->row_len, e / o->row_len);
            return 0;
        }
    return 1;
}

int judge_within(const kernel_case *c, int i, size_t e, double bound, char *text)
{
    const operand *o = &c->op[i];
    const float got = float_at(o->got, e), want = float_at(o->want, e);
    if (tol_within(got, want, bound))
        return 1;
    snprintf(text, FAULT_TEXT,
             "operand %d, element %zu of row %zu is %.9g, reference %.9g, bound %.3g", i,
             e % o->row_len, e / o->row_len, (double)got, (double)want, bound);
    return 0;
}

int judge_ulp(const kernel_case *c, int i, double max_ulp, char *text)
{
    const operand *o = &c->op[i];
    for (size_t e = 0; e < o->n_row * o->row_len; e++) {
        const float got = float_at(o->got, e), want = float_at(o->want, e);
        const double ulp = tol_ulp(got, want);
        if (ulp > max_ulp) {
            snprintf(text, FAULT_TEXT,
                     "operand %d, element %zu of row %zu is %.9g, reference %.9g: %.0f ULP", i,
                     e % o->row_len, e / o->row_len, (double)got, (double)want, ulp);
            return 0;
        }
    }
    return 1;
}

int judge_known(const float *got, const double *want, size_t n, double max_ulp, char *text)
{
    for (size_t i = 0; i < n; i++)
        if (!tol_within(got[i], (float)want[i], max_ulp * tol_ulp_width((float)want[i]))) {
            snprintf(text, FAULT_TEXT, "known result %zu is %.9g, should be %.9g", i,
                     (double)got[i], want[i]);
            return 0;
        }
    return 1;
}

static size_t operand_align(const operand *o)
{
    return o->elem & (~o->elem + 1); /* a block of 18 bytes holds 2-byte numbers */
}

/* Lays all operands out. shared: outputs lie on the inputs they may be identical with. */
static void lay(kernel_case *c, guard_side side, int shared, case_rng *r)
{
    for (int i = 0; i < c->n_operand; i++) {
        operand *o = &c->op[i];
        if (shared && o->share)
            continue;
        guard_lay(&blocks[i], i, side, o->n_row, o->row_len * o->elem, operand_align(o), o->apart,
                  r);
        if (o->use != OPERAND_OUT)
            guard_put(&blocks[i], o->data);
        else
            guard_put(&blocks[i], memset(o->got, blocks[i].garbage[0], operand_bytes(o)));
        o->at = blocks[i].at;
        o->stride = blocks[i].stride;
    }
    for (int i = 0; i < c->n_operand && shared; i++) {
        operand *o = &c->op[i];
        if (!o->share)
            continue;
        o->at = c->op[o->share - 1].at;
        o->stride = c->op[o->share - 1].stride;
    }
}

/* After a call: garbage and inputs are as they were, outputs go to the member at offset result. */
static int collect(kernel_case *c, int shared, int reference, char *text)
{
    for (int i = 0; i < c->n_operand; i++) {
        operand *o = &c->op[i];
        const guard_block *b = shared && o->share ? &blocks[o->share - 1] : &blocks[i];
        ptrdiff_t where;
        if (!guard_intact(b, &where)) {
            snprintf(text, FAULT_TEXT,
                     "operand %d: a byte outside was changed, %td bytes from its start", i, where);
            return 0;
        }
        if (o->use != OPERAND_IN) {
            guard_get(b, reference ? o->want : o->got);
            continue;
        }
        int covered = 0;
        for (int j = 0; j < c->n_operand && shared; j++)
            covered |= c->op[j].share == i + 1;
        guard_get(b, o->got);
        if (!covered && memcmp(o->got, o->data, operand_bytes(o))) {
            snprintf(text, FAULT_TEXT, "input operand %d was changed", i);
            return 0;
        }
    }
    return 1;
}

/* One call in place; way < 0: undivided. */
static int call(kernel_case *c, kernel_fn f, const op_driver *d, int way, int shared, int reference,
                char *text)
{
    if (way < 0)
        d->call(f, c);
    else
        d->call_split(f, c, way);
    return collect(c, shared, reference, text);
}

/* Calls again after another layout and demands the bits of the first call, which are in first[]. */
static int repeat(kernel_case *c, const op_driver *d, void *const *first, int way, int shared,
                  char *text)
{
    if (!call(c, c->kernel->fn, d, way, shared, 0, text))
        return 0;
    for (int i = 0; i < c->n_operand; i++)
        if (c->op[i].use != OPERAND_IN &&
            memcmp(c->op[i].got, first[i], operand_bytes(&c->op[i]))) {
            snprintf(text, FAULT_TEXT, "operand %d: other bits than flush at the end, undivided",
                     i);
            return 0;
        }
    return 1;
}

static int run_places(kernel_case *c, const op_driver *d, void *const *first, case_rng *r,
                      char *text)
{
    for (int side = GUARD_START; side < GUARD_SIDES; side++) {
        place = guard_side_name[side];
        lay(c, side, 0, r);
        if (!repeat(c, d, first, -1, 0, text))
            return 0;
    }
    int shared = 0;
    for (int i = 0; i < c->n_operand; i++)
        shared |= c->op[i].share;
    if (!shared)
        return 1;
    place = "output over input";
    lay(c, GUARD_END, 1, r);
    return repeat(c, d, first, -1, 1, text);
}

static int run_splits(kernel_case *c, const op_driver *d, void *const *first, case_rng *r,
                      char *text)
{
    enum { ALL = 48, SOME = 4 }; /* long operands are divided at a few places only */
    const int n = d->n_split ? d->n_split(c) : 0, n_try = n > ALL ? SOME : n;
    place = "divided into two calls";
    for (int i = 0; i < n_try; i++) {
        lay(c, GUARD_END, 0, r);
        const int way = n > ALL ? (int)rng_below(r, (size_t)n) : i;
        if (!repeat(c, d, first, way, 0, text)) {
            const size_t end = strlen(text);
            snprintf(text + end, FAULT_TEXT - end, " (way %d)", way);
            return 0;
        }
    }
    return 1;
}

int case_run(const kernel_row *k, kernel_fn ref, const op_driver *d, uint64_t seed, int index,
             volatile int *ref_phase, char *text)
{
    pool_used = 0;
    case_rng r = rng_create(seed, k->op, index);
    current = (kernel_case){.kernel = k};
    kernel_case *c = &current;
    d->draw(c, index, &r);
    place = guard_side_name[GUARD_END];
    lay(c, GUARD_END, 0, &r);
    *ref_phase = 1;
    const int ok = call(c, ref, d, -1, 0, 1, text);
    *ref_phase = 0;
    lay(c, GUARD_END, 0, &r);
    if (!ok || !call(c, k->fn, d, -1, 0, 0, text) || !d->judge(c, text))
        return 0;
    void *first[CASE_OPERANDS];
    for (int i = 0; i < c->n_operand; i++) {
        first[i] = pool_take(operand_bytes(&c->op[i]));
        if (operand_bytes(&c->op[i]))
            memcpy(first[i], c->op[i].got, operand_bytes(&c->op[i]));
    }
    return run_places(c, d, first, &r, text) && run_splits(c, d, first, &r, text);
}

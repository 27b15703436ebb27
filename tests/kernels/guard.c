#include "config.h"
#include "guard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

const char *const guard_side_name[GUARD_SIDES] = {
    [GUARD_END] = "flush at the end",
    [GUARD_START] = "flush at the start",
    [GUARD_ODD] = "odd start",
    [GUARD_ROWS] = "every row flush at its end",
};

enum { MARGIN = 512, N_ROW_PAGE = 512 };

static struct {
    unsigned char *data, *rows; /* GUARD_BYTES; N_ROW_PAGE times a page and an unreadable one */
} arenas[GUARD_ARENAS];
static size_t page;

int guard_open(int readable)
{
    page = (size_t)sysconf(_SC_PAGESIZE);
    for (int i = 0; i < GUARD_ARENAS; i++) {
        const size_t bytes = page + GUARD_BYTES + page + N_ROW_PAGE * 2 * page;
        unsigned char *m = mmap(NULL, bytes, readable ? PROT_READ : PROT_NONE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (m == MAP_FAILED)
            return 0;
        arenas[i].data = m + page;
        arenas[i].rows = arenas[i].data + GUARD_BYTES + page;
        if (mprotect(arenas[i].data, GUARD_BYTES, PROT_READ | PROT_WRITE))
            return 0;
        for (size_t p = 0; p < N_ROW_PAGE; p++)
            if (mprotect(arenas[i].rows + 2 * p * page, page, PROT_READ | PROT_WRITE))
                return 0;
    }
    return 1;
}

/* Calls visit for every stretch of bytes that is in reach and belongs to no row; stops at a
 * non-zero. */
static int each_gap(const guard_block *b,
                    int (*visit)(const guard_block *, unsigned char *, size_t))
{
    unsigned char *from = b->first;
    for (size_t i = 0; i <= b->n_row; i++) {
        unsigned char *row = i < b->n_row ? b->at + (ptrdiff_t)i * b->stride : b->last;
        if (b->page_step && i == b->n_row) /* behind the last row lies an unreadable page */
            break;
        const int found = row > from ? visit(b, from, (size_t)(row - from)) : 0;
        if (found)
            return found;
        from = b->page_step ? b->first + (i + 1) * b->page_step : row + b->row_bytes;
    }
    return 0;
}

static int fill(const guard_block *b, unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = b->garbage[(uintptr_t)(p + i) % sizeof b->garbage];
    return 0;
}

static const unsigned char *changed;

static int compare(const guard_block *b, unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != b->garbage[(uintptr_t)(p + i) % sizeof b->garbage])
            return changed = p + i, 1;
    return 0;
}

int guard_intact(const guard_block *b, ptrdiff_t *offset)
{
    if (!each_gap(b, compare))
        return 1;
    *offset = changed - b->at;
    return 0;
}

static void choose_garbage(guard_block *b, guard_side side, case_rng *r)
{
    memset(b->garbage, side == GUARD_START ? 0x7f : 0xff, sizeof b->garbage);
    if (side == GUARD_ODD)
        for (size_t i = 0; i < sizeof b->garbage; i++)
            b->garbage[i] = (unsigned char)rng_word(r);
}

void guard_lay(guard_block *b, int arena, guard_side side, size_t n_row, size_t row_bytes,
               size_t align, int apart, case_rng *r)
{
    *b = (guard_block){.n_row = n_row, .row_bytes = row_bytes};
    choose_garbage(b, side, r);
    if (side == GUARD_ROWS && apart && row_bytes <= page && n_row <= N_ROW_PAGE) {
        b->first = arenas[arena].rows;
        b->at = b->first + page - row_bytes;
        b->stride = (ptrdiff_t)(b->page_step = 2 * page);
        each_gap(b, fill);
        return;
    }
    const size_t gap = apart ? align * rng_below(r, 20) : 0;
    b->stride = (ptrdiff_t)(row_bytes + gap);
    const size_t span = n_row ? (n_row - 1) * (row_bytes + gap) + row_bytes : 0;
    if (span + 64 * align + 2 * MARGIN > GUARD_BYTES) {
        fputs("a driver's operand needs more memory than guard.h has\n", stderr);
        abort();
    }
    unsigned char *data = arenas[arena].data, *end = data + GUARD_BYTES;
    if (side == GUARD_START)
        b->at = data;
    else if (side == GUARD_ODD)
        b->at = data + MARGIN + align * (2 * rng_below(r, 32) + 1);
    else
        b->at = end - span;
    b->first = b->at - data > MARGIN ? b->at - MARGIN : data;
    b->last = end - (b->at + span) > MARGIN ? b->at + span + MARGIN : end;
    each_gap(b, fill);
}

void guard_put(const guard_block *b, const void *packed)
{
    if (b->row_bytes)
        for (size_t i = 0; i < b->n_row; i++)
            memcpy(b->at + (ptrdiff_t)i * b->stride, (const char *)packed + i * b->row_bytes,
                   b->row_bytes);
}

void guard_get(const guard_block *b, void *packed)
{
    if (b->row_bytes)
        for (size_t i = 0; i < b->n_row; i++)
            memcpy((char *)packed + i * b->row_bytes, b->at + (ptrdiff_t)i * b->stride,
                   b->row_bytes);
}

/* Memory for operands under test: whatever lies around an operand is either unreadable or known.
 * An arena has an unreadable page at both ends, and a second part in which every other page is
 * unreadable, for rows that each end at such a page. Bytes around the rows, and between them, are
 * filled with garbage that must neither change nor show in a result. */
#ifndef GUARD_H
#define GUARD_H

#include <stddef.h>
#include <stdint.h>

#include "inputs.h"

/* Where the operand lies in its arena, and with it what garbage surrounds it. */
typedef enum guard_side {
    GUARD_END,   /* its last byte is the last readable one; NaN all around */
    GUARD_START, /* its first byte is the first readable one; 3.4e38 all around */
    GUARD_ODD,   /* at an odd multiple of its alignment; random bytes around */
    GUARD_ROWS,  /* GUARD_END for each single row, where rows may lie apart */
    GUARD_SIDES
} guard_side;

extern const char *const guard_side_name[GUARD_SIDES];

enum {
    GUARD_ARENAS = 8,     /* operands that a call may have */
    GUARD_BYTES = 8 << 20 /* largest operand with its strides */
};

/* Rows in place: row i is row_bytes bytes at at + i stride. */
typedef struct guard_block {
    unsigned char *at;
    ptrdiff_t stride;
    size_t n_row, row_bytes;
    unsigned char *first, *last; /* the bytes from first up to last belong to the test */
    size_t page_step;            /* not 0: only the first half of each such step is readable */
    unsigned char garbage[64];
} guard_block;

/* Maps the arenas; call once. 0 when there is no memory. readable: pages around them can be read
 * but not written, for emulators whose masked loads read every lane (QEMU before 8). */
int guard_open(int readable);

/* Chooses the place of an operand in an arena and fills its surroundings. align: of an element, a
 * power of two. apart: the rows may lie apart (a random stride, a multiple of align); else they are
 * tight. */
void guard_lay(guard_block *b, int arena, guard_side side, size_t n_row, size_t row_bytes,
               size_t align, int apart, case_rng *r);

/* Copies the rows in or out; packed holds [n_row][row_bytes]. */
void guard_put(const guard_block *b, const void *packed);
void guard_get(const guard_block *b, void *packed);

/* 1 when all garbage is as it was; else *offset says where, in bytes from the operand's start. */
int guard_intact(const guard_block *b, ptrdiff_t *offset);

#endif

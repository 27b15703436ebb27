/* Sizes of matvec on x rounded to 16 bits (matvec16.h), which tiers describe their formats by. */
#ifndef RKV_TMPL_STEPS16_H
#define RKV_TMPL_STEPS16_H

enum {
    STEP = 256,     /* weights that share a call of scales */
    COLS = 4096,    /* columns at a time: their x16 stays in the first-level cache */
    AHEAD = 4096,   /* bytes to prefetch ahead: covers memory latency */
    INPUTS = 8,     /* inputs at a time: their x16 take some 110 KB of stack */
    BYTES_MAX = 34  /* of a small block */
};

#endif

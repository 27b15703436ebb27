/* Sizes of matvec on x rounded to 16 bits (matvec16.h), which tiers describe their formats by. */
#ifndef RKV_TMPL_STEPS16_H
#define RKV_TMPL_STEPS16_H

enum {
    STEP = 256,     /* weights that share a call of scales */
    COLS = 4096,    /* columns at a time: their x16 stays in the first-level cache */
    AHEAD = 4096,   /* bytes to prefetch ahead: covers memory latency */
    INPUTS = 8      /* inputs at a time: their x16 take some 110 KB of stack */
};

/* Block i of a step, or the first one in place of one that is not there: it meets zeros. */
static inline int block_of(int i, int have)
{
    return i < have ? i : 0;
}

#endif

/* A recording stand-in for the table of cuda/runtime.h: no GPU behind it, memory of the host, every
 * call counted, any call made to fail. Misuse is counted, not executed. */
#ifndef RKV_RECORDER_H
#define RKV_RECORDER_H

#include <stddef.h>
#include <stdint.h>

enum { RECORDER_MAX_DEVICE = 4, RECORDER_MAX_BLOCK = 8 };

typedef struct recorder_state {
    /* what it plays */
    int driver;                 /* 13000: as new as the runtime; 0: none */
    int n_device, cc_major;     /* compute capability cc_major.0 */
    int fail_at, fail_with;     /* call number (1 = first) that fails, and its error; 0: none */
    size_t room;                /* bytes that can be allocated at once */
    int (*noise_normal)(double *out, uint64_t key, uint64_t first, int n);  /* may be NULL */
    /* what it saw */
    int n_call, n_alloc, n_launch, n_misuse;
    int device;                 /* current one, -1: none was set */
    struct {
        unsigned char *data;
        size_t bytes;
    } block[RECORDER_MAX_BLOCK];                /* live ones */
} recorder_state;

/* Two devices, an up-to-date driver and a gigabyte, unless the environment variable
 * RKV_RECORDER="driver n_device cc_major fail_at fail_with" says otherwise. */
extern recorder_state recorder;

/* Frees what is live and starts over with the defaults. */
void recorder_reset(void);
/* Blocks that are live now. */
int recorder_n_live(void);

#endif

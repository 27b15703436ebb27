/* Made models on disk for tests of the engine: written once per program run, loaded, removed. */
#ifndef RKV_MADE_H
#define RKV_MADE_H

#include "check.h"

#include <string.h>
#include <unistd.h>

#include "rkv.h"
#include "tiny/model.h"

/* Loads the model that o describes; ends the program when that fails: nothing can be tested then.
 */
static inline rkv_model *made_model(const tiny_options *o)
{
    char path[] = "/tmp/rkv-made-XXXXXX";
    rkv_model *m = NULL;
    rkv_error e = {0};
    const int fd = mkstemp(path);
    if (fd < 0 || tiny_write(o, path, &e) || rkv_model_load(&m, path, &e)) {
        fprintf(stderr, "made model: %s\n", e.text);
        exit(1);
    }
    close(fd);
    unlink(path);
    return m;
}

/* Token ids 0 <= id < n_vocab that depend on the seed only, with some repetition in them. */
static inline void made_ids(int32_t *ids, int n, int n_vocab, uint32_t seed)
{
    uint32_t x = seed * 2654435761u + 1u;
    for (int i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        ids[i] = i > 20 && x % 5u == 0 ? ids[i - 17] : (int32_t)((x >> 8) % (uint32_t)n_vocab);
    }
}

#endif

/* Fuzz target: any bytes are a model or are refused, and what is let through can be used. */
#include "config.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "tiny/gguf_walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    rkv_error e = {0};
    const uint64_t before = rkv_mem_current();
    const rkv_status s = gguf_try(data, n, &e);
    const int clear = s == RKV_E_FORMAT || s == RKV_E_UNSUPPORTED || s == RKV_E_MEM;
    if (s && (!clear || e.status != s || strncmp(e.text, "x.gguf: ", 8)))
        abort();
    if (rkv_mem_current() != before)
        abort();
    return 0;
}

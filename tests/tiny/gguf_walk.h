/* Uses everything of an opened file, so that a sanitizer sees what the reader lets through. */
#ifndef RKV_GGUF_WALK_H
#define RKV_GGUF_WALK_H

#include "file/gguf_file.h"

/* Calls every getter on every key and reads every string and every byte of every tensor. Returns a
 * number that depends on all of them. */
uint64_t gguf_walk(const rkv_gguf *g);

/* Opens n bytes in a block of just that size, walks and closes. The status of the opening. */
rkv_status gguf_try(const void *data, size_t n, rkv_error *e);

#endif

/* Writes GGUF files for tests, good ones and, by raw keys and patched bytes, broken ones.
 * Source of the layout: the format page docs/gguf.md of ggml. */
#ifndef RKV_GGUF_WRITE_H
#define RKV_GGUF_WRITE_H

#include <stdint.h>

#include "base/json.h"
#include "file/gguf_file.h"

typedef struct gguf_writer {
    uint32_t version;           /* 3 unless set */
    uint64_t alignment;         /* of tensor data: 32 unless set; the key is the caller's */
    rkv_text keys, tensors;     /* entries so far */
    uint64_t n_key, n_tensor;
    uint64_t data_bytes;        /* padded end of the tensor data so far */
} gguf_writer;

gguf_writer gguf_writer_init(void);
void gguf_writer_free(gguf_writer *w);

/* Little-endian bytes at the end of t. */
void gguf_add_u32(rkv_text *t, uint32_t v);
void gguf_add_u64(rkv_text *t, uint64_t v);
void gguf_add_f32(rkv_text *t, float v);
/* Length and bytes. */
void gguf_add_string(rkv_text *t, const char *s, size_t n);

/* A key with any type id and any bytes as its value. */
void gguf_key_raw(gguf_writer *w, const char *name, size_t n_name, uint32_t type, const void *value,
                  size_t bytes);
/* An array with any element type and any bytes as its elements. */
void gguf_key_array(gguf_writer *w, const char *name, uint32_t type, uint64_t count,
                    const void *value, size_t bytes);
void gguf_key_u32(gguf_writer *w, const char *name, uint32_t v);
void gguf_key_f32(gguf_writer *w, const char *name, float v);
void gguf_key_bool(gguf_writer *w, const char *name, int v);
void gguf_key_string(gguf_writer *w, const char *name, const char *v);
void gguf_key_strings(gguf_writer *w, const char *name, const char *const *v, size_t n);
/* split.no, split.count, split.tensors.count with the types that llama.cpp gives them. */
void gguf_key_split(gguf_writer *w, uint16_t no, uint16_t count, int32_t n_tensor);

/* A tensor whose data of so many bytes comes next in the file. */
void gguf_tensor(gguf_writer *w, const char *name, uint32_t type_id, uint32_t n_dim,
                 const uint64_t *dims, uint64_t bytes);
/* The same with any name and offset; leaves the place of the next one alone. */
void gguf_tensor_raw(gguf_writer *w, const char *name, size_t n_name, uint32_t type_id,
                     uint32_t n_dim, const uint64_t *dims, uint64_t offset);

/* Everything before the tensor data, padding included, at the end of t. */
void gguf_head(const gguf_writer *w, rkv_text *t);
/* The whole file; byte i of the data section is (unsigned char)(i * 131 >> 3). */
void gguf_file(const gguf_writer *w, rkv_text *t);
/* The same into a file; returns whether it was written. */
int gguf_save(const gguf_writer *w, const char *path);

#endif

#include "config.h"
#include "tiny/gguf_write.h"

#include <stdio.h>
#include <string.h>

#include "f16.h"

gguf_writer gguf_writer_init(void)
{
    return (gguf_writer){.version = 3, .alignment = 32};
}

void gguf_writer_free(gguf_writer *w)
{
    rkv_text_free(&w->keys);
    rkv_text_free(&w->tensors);
}

void gguf_add_u64(rkv_text *t, uint64_t v)
{
    char b[8];
    for (int i = 0; i < 8; i++)
        b[i] = (char)(v >> 8 * i);
    rkv_text_add(t, b, 8);
}

void gguf_add_u32(rkv_text *t, uint32_t v)
{
    char b[4];
    for (int i = 0; i < 4; i++)
        b[i] = (char)(v >> 8 * i);
    rkv_text_add(t, b, 4);
}

void gguf_add_f32(rkv_text *t, float v)
{
    gguf_add_u32(t, rkv_f32_to_bits(v));
}

void gguf_add_string(rkv_text *t, const char *s, size_t n)
{
    gguf_add_u64(t, n);
    rkv_text_add(t, s, n);
}

/* Name and type id of a key; its value follows. */
static void begin_key(gguf_writer *w, const char *name, size_t n_name, uint32_t type)
{
    gguf_add_string(&w->keys, name, n_name);
    gguf_add_u32(&w->keys, type);
    w->n_key++;
}

void gguf_key_raw(gguf_writer *w, const char *name, size_t n_name, uint32_t type, const void *value,
                  size_t bytes)
{
    begin_key(w, name, n_name, type);
    rkv_text_add(&w->keys, value, bytes);
}

void gguf_key_array(gguf_writer *w, const char *name, uint32_t type, uint64_t count,
                    const void *value, size_t bytes)
{
    begin_key(w, name, strlen(name), RKV_GGUF_ARRAY);
    gguf_add_u32(&w->keys, type);
    gguf_add_u64(&w->keys, count);
    rkv_text_add(&w->keys, value, bytes);
}

void gguf_key_u32(gguf_writer *w, const char *name, uint32_t v)
{
    begin_key(w, name, strlen(name), RKV_GGUF_U32);
    gguf_add_u32(&w->keys, v);
}

void gguf_key_f32(gguf_writer *w, const char *name, float v)
{
    begin_key(w, name, strlen(name), RKV_GGUF_F32);
    gguf_add_f32(&w->keys, v);
}

void gguf_key_bool(gguf_writer *w, const char *name, int v)
{
    const char b = v != 0;
    gguf_key_raw(w, name, strlen(name), RKV_GGUF_BOOL, &b, 1);
}

void gguf_key_string(gguf_writer *w, const char *name, const char *v)
{
    begin_key(w, name, strlen(name), RKV_GGUF_STRING);
    gguf_add_string(&w->keys, v, strlen(v));
}

void gguf_key_strings(gguf_writer *w, const char *name, const char *const *v, size_t n)
{
    gguf_key_array(w, name, RKV_GGUF_STRING, n, NULL, 0);
    for (size_t i = 0; i < n; i++)
        gguf_add_string(&w->keys, v[i], strlen(v[i]));
}

void gguf_key_split(gguf_writer *w, uint16_t no, uint16_t count, int32_t n_tensor)
{
    const char b[] = {(char)no, (char)(no >> 8), (char)count, (char)(count >> 8)};
    gguf_key_raw(w, "split.no", 8, RKV_GGUF_U16, b, 2);
    gguf_key_raw(w, "split.count", 11, RKV_GGUF_U16, b + 2, 2);
    begin_key(w, "split.tensors.count", 19, RKV_GGUF_I32);
    gguf_add_u32(&w->keys, (uint32_t)n_tensor);
}

void gguf_tensor_raw(gguf_writer *w, const char *name, size_t n_name, uint32_t type_id,
                     uint32_t n_dim, const uint64_t *dims, uint64_t offset)
{
    gguf_add_string(&w->tensors, name, n_name);
    gguf_add_u32(&w->tensors, n_dim);
    for (uint32_t i = 0; i < n_dim; i++)
        gguf_add_u64(&w->tensors, dims[i]);
    gguf_add_u32(&w->tensors, type_id);
    gguf_add_u64(&w->tensors, offset);
    w->n_tensor++;
}

void gguf_tensor(gguf_writer *w, const char *name, uint32_t type_id, uint32_t n_dim,
                 const uint64_t *dims, uint64_t bytes)
{
    gguf_tensor_raw(w, name, strlen(name), type_id, n_dim, dims, w->data_bytes);
    w->data_bytes = (w->data_bytes + bytes + w->alignment - 1) / w->alignment * w->alignment;
}

void gguf_head(const gguf_writer *w, rkv_text *t)
{
    const size_t begin = t->n;
    rkv_text_add(t, "GGUF", 4);
    gguf_add_u32(t, w->version);
    gguf_add_u64(t, w->n_tensor);
    gguf_add_u64(t, w->n_key);
    rkv_text_add(t, w->keys.data, w->keys.n);
    rkv_text_add(t, w->tensors.data, w->tensors.n);
    while ((t->n - begin) % w->alignment && !t->bad)
        rkv_text_add(t, "", 1);
}

void gguf_file(const gguf_writer *w, rkv_text *t)
{
    gguf_head(w, t);
    for (uint64_t i = 0; i < w->data_bytes; i++) {
        const char b = (char)(i * 131 >> 3);
        rkv_text_add(t, &b, 1);
    }
}

int gguf_save(const gguf_writer *w, const char *path)
{
    rkv_text t = {0};
    gguf_file(w, &t);
    FILE *f = fopen(path, "wb");
    int good = f && !t.bad && fwrite(t.data, 1, t.n, f) == t.n;
    if (f && fclose(f))
        good = 0;
    rkv_text_free(&t);
    return good;
}

/* GGUF files, versions 2 and 3, one or several shards, as typed keys and tensor views.
 *
 * The file is hostile: every length, count, type and offset is checked against the bytes that are
 * really there before it is used, and one routine (rkv_gguf_tensor_bytes) owns the size arithmetic.
 * Strings and tensor data point into the read-only mapping, which lives as long as the rkv_gguf, or
 * into memory after rkv_gguf_copy.
 * Source: the format page docs/gguf.md of ggml; faults to refuse: CVE-2024-21802, -21825, -21836,
 * -23496, -23605, CVE-2025-53630, CVE-2026-7482, -27940, -33298 and others of their kind. */
#ifndef RKV_GGUF_H
#define RKV_GGUF_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "dtypes.h"

enum { RKV_MAX_DIM = 4 };

typedef struct rkv_tensor {         /* a view: owns nothing */
    const char *name;               /* 0-terminated, owned by the rkv_gguf */
    rkv_dtype type;
    int n_dim;
    int64_t dim[RKV_MAX_DIM];       /* dim[0] is contiguous; unused ones are 1; all >= 1 */
    const void *data;               /* aligned to 8 bytes at least: what a file with a smaller
                                     * general.alignment keeps at odd places has been copied */
    size_t bytes;
} rkv_tensor;

typedef struct rkv_gguf rkv_gguf;

/* Opens and checks path and, when its keys say it is split, the other shards beside it. A file
 * whose only fault is tensors of a type we do not know opens; binding such a tensor is what fails.
 * Errors name file, key or tensor with its index, byte offset, value found and value expected:
 * RKV_E_IO (cannot open, not a regular file), RKV_E_FORMAT, RKV_E_UNSUPPORTED (version, byte
 * order), RKV_E_MEM. On failure *out is left alone. */
rkv_status rkv_gguf_open(rkv_gguf **out, const char *path, rkv_error *e);
void rkv_gguf_close(rkv_gguf *g);

/* Copies keys, strings and the data of all known tensors but the one named `stays` (NULL: none)
 * into one block of memory, in huge pages where there are any, each tensor aligned to 64 bytes, by
 * several threads when there is much. What has been copied is no longer read from the files, and
 * its pages of the mapping are let go: at any time only a few MiB are there twice. Strings and
 * tensor data that were handed out before point to the old places. At most once. RKV_E_MEM: nothing
 * has changed.
 */
rkv_status rkv_gguf_copy(rkv_gguf *g, const char *stays, rkv_error *e);
/* Size of that block. */
uint64_t rkv_gguf_copy_bytes(const rkv_gguf *g, const char *stays);

/* Reads all shards into memory and keeps them there until they are closed (mlock). RKV_E_MEM,
 * naming the limit that is in the way; parts may then be locked. */
rkv_status rkv_gguf_lock(const rkv_gguf *g, rkv_error *e);

/* Tensors will be read and dropped over and over: from now on rkv_gguf_drop also empties the
 * system's cache of the files, for which they are opened again. RKV_E_IO: a file has been replaced.
 */
rkv_status rkv_gguf_stream(rkv_gguf *g, rkv_error *e);
/* [p, p + n), part of a tensor's data, is about to be used: starts to read it, without waiting. Or
 * will not be used for a while: its memory is let go, and a later use reads it again. Nothing
 * happens to what does not lie in the mapping. Any thread, at any time. */
void rkv_gguf_ahead(const rkv_gguf *g, const void *p, size_t n);
void rkv_gguf_drop(const rkv_gguf *g, const void *p, size_t n);

const char *rkv_gguf_path(const rkv_gguf *g);
uint64_t rkv_gguf_file_bytes(const rkv_gguf *g);        /* all shards */

/* ---- keys: a missing key or another type is RKV_E_FORMAT, naming file and key ---- */
int rkv_gguf_has(const rkv_gguf *g, const char *key);
/* Any integer type, value within [min, max]. */
rkv_status rkv_gguf_int(const rkv_gguf *g, const char *key, int64_t min, int64_t max, int64_t *out,
                        rkv_error *e);
/* float32 or float64, finite, within [min, max]. */
rkv_status rkv_gguf_float(const rkv_gguf *g, const char *key, double min, double max, double *out,
                          rkv_error *e);
rkv_status rkv_gguf_bool(const rkv_gguf *g, const char *key, int *out, rkv_error *e);
/* Not 0-terminated: n bytes, which hold no NUL and are UTF-8. */
rkv_status rkv_gguf_string(const rkv_gguf *g, const char *key, const char **s, size_t *n,
                           rkv_error *e);

/* Arrays. Elements of the wrong type are refused by the count call, so that the element calls
 * cannot fail; i < count. */
rkv_status rkv_gguf_strings(const rkv_gguf *g, const char *key, size_t *count, rkv_error *e);
/* Any bytes, as they stand in the file; not 0-terminated. */
const char *rkv_gguf_strings_at(const rkv_gguf *g, const char *key, size_t i, size_t *n);
/* Copies an array of floats (f32 or f64) or of integers (any width, in the range of int64; a bool
 * is 0 or 1) that must have exactly n elements. */
rkv_status rkv_gguf_floats(const rkv_gguf *g, const char *key, float *out, size_t n, rkv_error *e);
rkv_status rkv_gguf_ints(const rkv_gguf *g, const char *key, int64_t *out, size_t n, rkv_error *e);
/* Element count of any array; 0 when the key is absent or no array. */
size_t rkv_gguf_array_count(const rkv_gguf *g, const char *key);

/* ---- tensors ---- */
int rkv_gguf_n_tensor(const rkv_gguf *g);
/* i in [0, n_tensor). type is RKV_DT_COUNT for a type we do not know (data is then NULL). */
const rkv_tensor *rkv_gguf_tensor_at(const rkv_gguf *g, int i);
/* NULL when there is none. */
const rkv_tensor *rkv_gguf_tensor(const rkv_gguf *g, const char *name);
/* GGUF type id of tensor i as it stands in the file. */
uint32_t rkv_gguf_tensor_type_id(const rkv_gguf *g, int i);

/* The size arithmetic, in one place: bytes of a tensor of this type and shape, with every overflow,
 * zero dimension and broken block row refused. dims: n_dim values, dims[0] contiguous.
 * what names the tensor for the message. */
rkv_status rkv_gguf_tensor_bytes(rkv_dtype type, const uint64_t *dims, uint32_t n_dim,
                                 size_t *bytes, const char *what, rkv_error *e);

#endif

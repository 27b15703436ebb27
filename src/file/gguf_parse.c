/* One GGUF file: header, keys, tensor list. Source: the format page docs/gguf.md of ggml. */
#include "config.h"
#include "file/gguf_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

const rkv_gguf_type_desc rkv_gguf_type_table[RKV_GGUF_N_TYPE] = {
    [RKV_GGUF_U8] = {"uint8", 1},    [RKV_GGUF_I8] = {"int8", 1},
    [RKV_GGUF_U16] = {"uint16", 2},  [RKV_GGUF_I16] = {"int16", 2},
    [RKV_GGUF_U32] = {"uint32", 4},  [RKV_GGUF_I32] = {"int32", 4},
    [RKV_GGUF_F32] = {"float32", 4}, [RKV_GGUF_BOOL] = {"bool", 1},
    [RKV_GGUF_STRING] = {"string", 0}, [RKV_GGUF_ARRAY] = {"array", 0},
    [RKV_GGUF_U64] = {"uint64", 8},  [RKV_GGUF_I64] = {"int64", 8},
    [RKV_GGUF_F64] = {"float64", 8},
};

/* The least an entry can take: what the counts of the header are held against. */
enum {
    MIN_KEY_BYTES = 8 + 1 + 4 + 1,
    MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8,
    MIN_STRING_BYTES = 8
};

typedef struct reader {
    rkv_cursor c;
    const char *path;
    char where[RKV_GGUF_WHERE];
    uint64_t n_strings;         /* seen in arrays so far */
    rkv_error *e;
} reader;

void rkv_gguf_where(char out[RKV_GGUF_WHERE], const char *path, const char *object,
                    const char *name, size_t n_name, int index, uint64_t at)
{
    enum { NAME = 80 };
    char quoted[NAME + 8] = "";
    if (name)
        snprintf(quoted, sizeof quoted, " '%.*s%s'", (int)(n_name < NAME ? n_name : NAME), name,
                 n_name > NAME ? "..." : "");
    snprintf(out, RKV_GGUF_WHERE, "%s: %s%s (#%d, at byte %" PRIu64 ")", rkv_path_end(path), object,
             quoted, index, at);
}

static void reader_place(reader *r, const char *object, int index)
{
    rkv_gguf_where(r->where, r->path, object, NULL, 0, index, r->c.at);
}

/* ---- keys ---- */

static int compare_names(const char *a, size_t na, const char *b, size_t nb)
{
    const int c = memcmp(a, b, na < nb ? na : nb);
    return c ? c : (na > nb) - (na < nb);
}

static int compare_keys(const void *a, const void *b)
{
    const rkv_gguf_key *x = *(const rkv_gguf_key *const *)a, *y = *(const rkv_gguf_key *const *)b;
    const int c = compare_names(x->name, x->n_name, y->name, y->n_name);
    return c ? c : x->index - y->index;
}

/* A string's length field and bytes. */
static rkv_status read_string(reader *r, const char **s, size_t *n, const char *what)
{
    uint64_t len;
    const unsigned char *p;
    RKV_TRY(rkv_cursor_u64(&r->c, &len, what, r->e));
    RKV_TRY(rkv_cursor_take(&r->c, &p, len, what, r->e));
    *s = (const char *)p;
    *n = (size_t)len;
    return RKV_OK;
}

/* A name of 1 to max bytes; puts it into r->where. */
static rkv_status read_name(reader *r, const char **s, size_t *n, size_t max, const char *object,
                            int index)
{
    const uint64_t at = r->c.at;
    reader_place(r, object, index);
    RKV_TRY(read_string(r, s, n, "the name"));
    if (*n < 1 || *n > max)
        return rkv_fail(r->e, RKV_E_FORMAT, "%s: the name has %zu bytes, expected 1 to %zu",
                        r->where, *n, max);
    const size_t good = rkv_utf8_check(*s, *n);
    if (good < *n)
        return rkv_fail(r->e, RKV_E_FORMAT,
                        "%s: the name has byte 0x%02x at %zu, expected UTF-8 text", r->where,
                        (unsigned char)(*s)[good], good);
    rkv_gguf_where(r->where, r->path, object, *s, *n, index, at);
    return RKV_OK;
}

static rkv_status check_bools(reader *r, const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] > 1)
            return rkv_fail(r->e, RKV_E_FORMAT, "%s: bool value %d (element %zu), expected 0 or 1",
                            r->where, p[i], i);
    return RKV_OK;
}

/* Walks an array of strings once and notes where each begins. */
static rkv_status index_strings(reader *r, rkv_gguf_key *k)
{
    r->n_strings += k->count;
    if (r->n_strings > RKV_GGUF_MAX_STRINGS)
        return rkv_fail(r->e, RKV_E_UNSUPPORTED,
                        "%s: %" PRIu64 " strings in arrays, expected at most %d", r->where,
                        r->n_strings, RKV_GGUF_MAX_STRINGS);
    k->string = rkv_mem_calloc(k->count, sizeof *k->string);
    if (!k->string)
        return rkv_fail(r->e, RKV_E_MEM, "%s: out of memory for %zu strings", r->where, k->count);
    for (size_t i = 0; i < k->count; i++) {
        const char *s;
        size_t n;
        k->string[i] = r->c.data + r->c.at;
        RKV_TRY(read_string(r, &s, &n, "a string of the array"));
    }
    return RKV_OK;
}

static rkv_status read_type(reader *r, rkv_gguf_type *type, const char *what)
{
    uint32_t id;
    RKV_TRY(rkv_cursor_u32(&r->c, &id, what, r->e));
    if (id >= RKV_GGUF_N_TYPE)
        return rkv_fail(r->e, RKV_E_FORMAT, "%s: %s %" PRIu32 ", expected 0 to %d", r->where, what,
                        id, RKV_GGUF_N_TYPE - 1);
    *type = (rkv_gguf_type)id;
    return RKV_OK;
}

/* Element type and count of an array; the count is one that the rest of the file can hold. */
static rkv_status read_array_head(reader *r, rkv_gguf_key *k)
{
    uint64_t count;
    RKV_TRY(read_type(r, &k->type, "array element type"));
    if (k->type == RKV_GGUF_ARRAY)
        return rkv_fail(r->e, RKV_E_FORMAT, "%s: array of arrays, expected plain elements",
                        r->where);
    RKV_TRY(rkv_cursor_u64(&r->c, &count, "the array count", r->e));
    const size_t left = r->c.size - r->c.at;
    const int bytes = rkv_gguf_type_table[k->type].bytes;
    if (count > left / (size_t)(bytes ? bytes : MIN_STRING_BYTES))
        return rkv_fail(r->e, RKV_E_FORMAT,
                        "%s: array of %" PRIu64 " %s elements, the file has %zu bytes left; "
                        "it is cut short or damaged", r->where, count,
                        rkv_gguf_type_table[k->type].name, left);
    k->count = (size_t)count;
    return RKV_OK;
}

static rkv_status read_value(reader *r, rkv_gguf_key *k)
{
    k->count = 1;
    RKV_TRY(read_type(r, &k->type, "value type"));
    k->is_array = k->type == RKV_GGUF_ARRAY;
    if (k->is_array)
        RKV_TRY(read_array_head(r, k));
    k->data = r->c.data + r->c.at;
    const char *s;
    size_t n;
    if (k->type != RKV_GGUF_STRING)
        RKV_TRY(rkv_cursor_take(&r->c, &k->data,
                                (uint64_t)k->count * (unsigned)rkv_gguf_type_table[k->type].bytes,
                                "the value", r->e));
    else if (k->is_array)
        RKV_TRY(index_strings(r, k));
    else
        RKV_TRY(read_string(r, &s, &n, "the string"));
    k->end = r->c.data + r->c.at;
    return k->type == RKV_GGUF_BOOL ? check_bools(r, k->data, k->count) : RKV_OK;
}

static rkv_status sort_keys(reader *r, rkv_gguf_keys *keys)
{
    const rkv_gguf_key **list = rkv_mem_calloc((size_t)keys->n, sizeof *list);
    if (!list)
        return rkv_fail(r->e, RKV_E_MEM, "%s: out of memory for %d keys", r->path, keys->n);
    for (int i = 0; i < keys->n; i++)
        list[i] = &keys->key[i];
    keys->by_name = list;
    qsort(list, (size_t)keys->n, sizeof *list, compare_keys);
    for (int i = 1; i < keys->n; i++) {
        const rkv_gguf_key *a = list[i - 1], *b = list[i];
        if (compare_names(a->name, a->n_name, b->name, b->n_name))
            continue;
        rkv_gguf_where(r->where, r->path, "key", b->name, b->n_name, b->index, b->at);
        return rkv_fail(r->e, RKV_E_FORMAT, "%s: occurs before, as #%d at byte %" PRIu64
                        ", expected once", r->where, a->index, a->at);
    }
    return RKV_OK;
}

static rkv_status read_keys(reader *r, rkv_gguf_keys *keys, int n)
{
    keys->key = rkv_mem_calloc((size_t)n, sizeof *keys->key);
    if (!keys->key)
        return rkv_fail(r->e, RKV_E_MEM, "%s: out of memory for %d keys", r->path, n);
    for (int i = 0; i < n; i++) {
        rkv_gguf_key *k = &keys->key[i];
        k->index = i;
        k->at = r->c.at;
        keys->n = i + 1;
        RKV_TRY(read_name(r, &k->name, &k->n_name, RKV_GGUF_MAX_KEY_NAME, "key", i));
        RKV_TRY(read_value(r, k));
    }
    return sort_keys(r, keys);
}

void rkv_gguf_keys_free(rkv_gguf_keys *keys)
{
    for (int i = 0; i < keys->n; i++)
        rkv_mem_free(keys->key[i].string);
    rkv_mem_free(keys->by_name);
    rkv_mem_free(keys->key);
    *keys = (rkv_gguf_keys){0};
}

const rkv_gguf_key *rkv_gguf_key_find(const rkv_gguf_keys *keys, const char *name, size_t n)
{
    int low = 0, high = keys->n;
    while (low < high) {
        const int mid = low + (high - low) / 2;
        const rkv_gguf_key *k = keys->by_name[mid];
        const int c = compare_names(name, n, k->name, k->n_name);
        if (!c)
            return k;
        if (c < 0)
            high = mid;
        else
            low = mid + 1;
    }
    return NULL;
}

/* ---- tensors ---- */

/* Elements of a shape; every dimension in [1, INT64_MAX], and so is the product. */
static rkv_status count_elements(const uint64_t *dims, uint32_t n_dim, uint64_t *n,
                                 const char *what, rkv_error *e)
{
    if (n_dim < 1 || n_dim > RKV_MAX_DIM)
        return rkv_fail(e, RKV_E_FORMAT, "%s: %" PRIu32 " dimensions, expected 1 to %d", what,
                        n_dim, RKV_MAX_DIM);
    *n = 1;
    for (uint32_t i = 0; i < n_dim; i++) {
        if (dims[i] < 1 || dims[i] > INT64_MAX)
            return rkv_fail(e, RKV_E_FORMAT, "%s: dimension %" PRIu32 " is %" PRId64
                            ", expected at least 1", what, i, (int64_t)dims[i]);
        if (*n > INT64_MAX / dims[i])
            return rkv_fail(e, RKV_E_FORMAT, "%s: dimension %" PRIu32 " is %" PRIu64
                            ", more elements than 2^63", what, i, dims[i]);
        *n *= dims[i];
    }
    return RKV_OK;
}

rkv_status rkv_gguf_tensor_bytes(rkv_dtype type, const uint64_t *dims, uint32_t n_dim,
                                 size_t *bytes, const char *what, rkv_error *e)
{
    uint64_t n;
    RKV_TRY(count_elements(dims, n_dim, &n, what, e));
    if ((unsigned)type >= RKV_DT_COUNT)
        return rkv_fail(e, RKV_E_UNSUPPORTED, "%s: unknown element type", what);
    const rkv_dtype_desc *d = rkv_dtype_get(type);
    if (dims[0] % (uint64_t)d->block_len)
        return rkv_fail(e, RKV_E_FORMAT,
                        "%s: rows of %" PRIu64 " elements, expected a multiple of %d (type %s)",
                        what, dims[0], d->block_len, d->name);
    const uint64_t n_block = n / (uint64_t)d->block_len;
    /* Half the address space: an offset or padding can be added without a second check. */
    if (n_block > PTRDIFF_MAX / (uint64_t)d->block_bytes)
        return rkv_fail(e, RKV_E_FORMAT,
                        "%s: %" PRIu64 " blocks of %d bytes, more than the address space",
                        what, n_block, d->block_bytes);
    *bytes = (size_t)n_block * (size_t)d->block_bytes;
    return RKV_OK;
}

static rkv_status read_tensor(reader *r, rkv_gguf_entry *t)
{
    t->at = r->c.at;
    const char *name;
    size_t n_name;
    RKV_TRY(read_name(r, &name, &n_name, RKV_GGUF_MAX_TENSOR_NAME, "tensor", t->index));
    memcpy(t->name, name, n_name);
    uint32_t n_dim;
    RKV_TRY(rkv_cursor_u32(&r->c, &n_dim, "the number of dimensions", r->e));
    uint64_t dims[RKV_MAX_DIM] = {1, 1, 1, 1}, n;
    for (uint32_t i = 0; i < n_dim && i < RKV_MAX_DIM; i++)
        RKV_TRY(rkv_cursor_u64(&r->c, &dims[i], "a dimension", r->e));
    RKV_TRY(count_elements(dims, n_dim, &n, r->where, r->e));
    RKV_TRY(rkv_cursor_u32(&r->c, &t->type_id, "the element type", r->e));
    RKV_TRY(rkv_cursor_u64(&r->c, &t->offset, "the data offset", r->e));
    t->view.type = rkv_dtype_from_ggml(t->type_id);
    t->view.n_dim = (int)n_dim;
    for (int i = 0; i < RKV_MAX_DIM; i++)
        t->view.dim[i] = (int64_t)dims[i];
    if (t->view.type == RKV_DT_COUNT)
        return RKV_OK;
    return rkv_gguf_tensor_bytes(t->view.type, dims, n_dim, &t->view.bytes, r->where, r->e);
}

/* Gives each tensor its data: in file order, without overlap, inside the file. Nobody writes data
 * in another order, and ggml itself refuses it, so a step back is taken for damage. */
static rkv_status place_tensors(reader *r, rkv_gguf_entry *t, int n, uint64_t alignment)
{
    const uint64_t start = (r->c.at + alignment - 1) / alignment * alignment;
    uint64_t end = 0;
    for (int i = 0; i < n; i++) {
        rkv_gguf_where(r->where, r->path, "tensor", t[i].name, strlen(t[i].name), i, t[i].at);
        if (t[i].offset % alignment)
            return rkv_fail(r->e, RKV_E_FORMAT,
                            "%s: data offset %" PRIu64 ", expected a multiple of %" PRIu64,
                            r->where, t[i].offset, alignment);
        if (t[i].offset < end)
            return rkv_fail(r->e, RKV_E_FORMAT, "%s: data offset %" PRIu64 " overlaps tensor '%s', "
                            "which ends at %" PRIu64, r->where, t[i].offset, t[i - 1].name, end);
        const int known = t[i].view.type != RKV_DT_COUNT;
        const uint64_t bytes = known ? t[i].view.bytes : 1; /* whatever it is, it is not empty */
        if (t[i].offset > r->c.size)
            return rkv_fail(r->e, RKV_E_FORMAT,
                            "%s: data offset %" PRIu64 ", the file has %zu bytes; it "
                            "is cut short or damaged",
                            r->where, t[i].offset, r->c.size);
        const uint64_t last = start + t[i].offset + bytes; /* each below 2^63, two below 2^48 */
        if (last > r->c.size)
            return rkv_fail(r->e, RKV_E_FORMAT,
                            "%s: data ends at %" PRIu64 ", the file has %zu bytes; it "
                            "is cut short or damaged",
                            r->where, last, r->c.size);
        if (known)
            t[i].view.data = r->c.data + start + t[i].offset;
        end = t[i].offset + bytes;
    }
    return RKV_OK;
}

static rkv_status read_tensors(reader *r, rkv_gguf *g, int n, uint64_t alignment)
{
    const size_t size = rkv_mem_product((size_t)g->n_tensor + (size_t)n, sizeof *g->tensor);
    rkv_gguf_entry *list = rkv_mem_realloc(g->tensor, size);
    if (!list)
        return rkv_fail(r->e, RKV_E_MEM, "%s: out of memory for %d tensors", r->path, n);
    g->tensor = list;
    list += g->n_tensor;
    memset(list, 0, (size_t)n * sizeof *list);
    g->n_tensor += n;
    for (int i = 0; i < n; i++) {
        list[i].index = i;
        RKV_TRY(read_tensor(r, &list[i]));
    }
    return place_tensors(r, list, n, alignment);
}

/* ---- the file ---- */

/* The bytes that open a file, with the mix-ups worth a name. */
static rkv_status read_magic(reader *r)
{
    const unsigned char *magic;
    RKV_TRY(rkv_cursor_take(&r->c, &magic, 4, "the magic number", r->e));
    if (!memcmp(magic, "FUGG", 4))
        return rkv_fail(r->e, RKV_E_UNSUPPORTED,
                        "%s: magic 'FUGG', byte-swapped GGUF, expected 'GGUF'; "
                        "convert the model for little-endian machines",
                        r->where);
    if (memcmp(magic, "GGUF", 4))
        return rkv_fail(r->e, RKV_E_FORMAT,
                        "%s: magic 0x%02x%02x%02x%02x, expected 'GGUF'; not a GGUF file",
                        r->where, magic[0], magic[1], magic[2], magic[3]);
    uint32_t version;
    RKV_TRY(rkv_cursor_u32(&r->c, &version, "the version", r->e));
    if (version && !(version & 0xffff))
        return rkv_fail(r->e, RKV_E_UNSUPPORTED,
                        "%s: version 0x%08" PRIx32 ", a big-endian file, "
                        "expected little-endian; convert it with gguf-py's gguf_convert_endian",
                        r->where, version);
    if (version < 2 || version > 3)
        return rkv_fail(r->e, RKV_E_UNSUPPORTED, "%s: version %" PRIu32 ", expected 2 or 3%s",
                        r->where, version, version == 1 ? "; convert the model again" : "");
    return RKV_OK;
}

/* A count of the header, held against the bytes that are left and our own limit. */
static rkv_status check_count(reader *r, const char *what, uint64_t n, int entry_bytes, int max)
{
    const size_t left = r->c.size - r->c.at;
    if (n > left / (size_t)entry_bytes)
        return rkv_fail(r->e, RKV_E_FORMAT,
                        "%s: %" PRIu64 " %s of at least %d bytes, the file has %zu "
                        "bytes left; it is cut short or damaged",
                        r->where, n, what, entry_bytes, left);
    if (n > (uint64_t)max)
        return rkv_fail(r->e, RKV_E_UNSUPPORTED, "%s: %" PRIu64 " %s, expected at most %d",
                        r->where, n, what, max);
    return RKV_OK;
}

static rkv_status read_alignment(reader *r, const rkv_gguf_keys *keys, uint64_t *alignment)
{
    static const char name[] = "general.alignment";
    *alignment = 32;
    const rkv_gguf_key *k = rkv_gguf_key_find(keys, name, sizeof name - 1);
    if (!k)
        return RKV_OK;
    rkv_gguf_where(r->where, r->path, "key", k->name, k->n_name, k->index, k->at);
    if (k->is_array || k->type != RKV_GGUF_U32)
        return rkv_fail(r->e, RKV_E_FORMAT, "%s: type %s, expected uint32", r->where,
                        rkv_gguf_type_table[k->is_array ? RKV_GGUF_ARRAY : k->type].name);
    *alignment = rkv_le32(k->data);
    if (*alignment < 1 || *alignment > RKV_GGUF_MAX_ALIGNMENT || *alignment & (*alignment - 1))
        return rkv_fail(r->e, RKV_E_FORMAT,
                        "%s: alignment %" PRIu64 ", expected a power of two from 1 to %d",
                        r->where, *alignment, RKV_GGUF_MAX_ALIGNMENT);
    return RKV_OK;
}

rkv_status rkv_gguf_parse(rkv_gguf *g, rkv_gguf_keys *keys, const rkv_map *map, const char *path,
                          rkv_error *e)
{
    reader r = {.c = {.data = map->data, .size = map->size}, .path = path, .e = e};
    r.c.where = r.where;
    reader_place(&r, "header", 0);
    RKV_TRY(read_magic(&r));
    uint64_t n_tensor, n_key, alignment;
    RKV_TRY(rkv_cursor_u64(&r.c, &n_tensor, "the number of tensors", e));
    RKV_TRY(rkv_cursor_u64(&r.c, &n_key, "the number of keys", e));
    RKV_TRY(check_count(&r, "tensors", n_tensor, MIN_TENSOR_BYTES,
                        RKV_GGUF_MAX_TENSOR - g->n_tensor));
    RKV_TRY(check_count(&r, "keys", n_key, MIN_KEY_BYTES, RKV_GGUF_MAX_KEY));
    RKV_TRY(read_keys(&r, keys, (int)n_key));
    RKV_TRY(read_alignment(&r, keys, &alignment));
    return read_tensors(&r, g, (int)n_tensor, alignment);
}

/* Typed access to the keys of a GGUF file. */
#include "config.h"
#include "file/gguf_file.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "f16.h"

static const rkv_gguf_key *find(const rkv_gguf *g, const char *key)
{
    return rkv_gguf_key_find(&g->keys, key, strlen(key));
}

static void key_where(char out[RKV_GGUF_WHERE], const char *path, const rkv_gguf_key *k)
{
    rkv_gguf_where(out, path, "key", k->name, k->n_name, k->index, k->at);
}

static rkv_status missing(const char *path, const char *key, rkv_error *e)
{
    return rkv_fail(e, RKV_E_FORMAT, "%s: key '%s' is missing", rkv_path_end(path), key);
}

static rkv_status wrong_type(const char *path, const rkv_gguf_key *k, const char *expected,
                             rkv_error *e)
{
    char where[RKV_GGUF_WHERE];
    key_where(where, path, k);
    return rkv_fail(e, RKV_E_FORMAT, "%s: type %s%s, expected %s", where,
                    k->is_array ? "array of " : "", rkv_gguf_type_table[k->type].name, expected);
}

static rkv_status get_plain(const rkv_gguf_key **k, const rkv_gguf_keys *keys, const char *path,
                            const char *key, const char *expected, rkv_error *e)
{
    *k = rkv_gguf_key_find(keys, key, strlen(key));
    if (!*k)
        return missing(path, key, e);
    return (*k)->is_array ? wrong_type(path, *k, expected, e) : RKV_OK;
}

static rkv_status get_array(const rkv_gguf_key **k, const rkv_gguf *g, const char *key, size_t n,
                            const char *expected, rkv_error *e)
{
    *k = find(g, key);
    if (!*k)
        return missing(g->path, key, e);
    if (!(*k)->is_array)
        return wrong_type(g->path, *k, expected, e);
    if ((*k)->count == n)
        return RKV_OK;
    char where[RKV_GGUF_WHERE];
    key_where(where, g->path, *k);
    return rkv_fail(e, RKV_E_FORMAT, "%s: %zu elements, expected %zu", where, (*k)->count, n);
}

static int is_integer(rkv_gguf_type t)
{
    return t <= RKV_GGUF_I32 || t == RKV_GGUF_U64 || t == RKV_GGUF_I64;
}

static int is_float(rkv_gguf_type t)
{
    return t == RKV_GGUF_F32 || t == RKV_GGUF_F64;
}

/* Integer element i as a sign and 64 bits: returns whether it is negative, *v its two's complement.
 */
static int element_int(const rkv_gguf_key *k, size_t i, uint64_t *v)
{
    const int bytes = rkv_gguf_type_table[k->type].bytes;
    const unsigned char *p = k->data + i * (size_t)bytes;
    uint64_t u = 0;
    for (int j = 0; j < bytes; j++)
        u |= (uint64_t)p[j] << 8 * j;
    const int is_signed = k->type == RKV_GGUF_I8 || k->type == RKV_GGUF_I16 ||
                          k->type == RKV_GGUF_I32 || k->type == RKV_GGUF_I64;
    const int negative = is_signed && u >> (8 * bytes - 1);
    *v = negative && bytes < 8 ? u | UINT64_MAX << 8 * bytes : u;
    return negative;
}

static double element_float(const rkv_gguf_key *k, size_t i)
{
    if (k->type == RKV_GGUF_F32)
        return rkv_f32_from_bits(rkv_le32(k->data + 4 * i));
    const uint64_t u = rkv_le64(k->data + 8 * i);
    double d;
    memcpy(&d, &u, sizeof d);
    return d;
}

int rkv_gguf_has(const rkv_gguf *g, const char *key)
{
    return find(g, key) != NULL;
}

rkv_status rkv_gguf_keys_int(const rkv_gguf_keys *keys, const char *path, const char *key,
                             int64_t min, int64_t max, int64_t *out, rkv_error *e)
{
    const rkv_gguf_key *k;
    RKV_TRY(get_plain(&k, keys, path, key, "an integer", e));
    if (!is_integer(k->type))
        return wrong_type(path, k, "an integer", e);
    uint64_t v;
    const int negative = element_int(k, 0, &v);
    if ((negative || v <= INT64_MAX) && (int64_t)v >= min && (int64_t)v <= max) {
        *out = (int64_t)v;
        return RKV_OK;
    }
    char where[RKV_GGUF_WHERE], found[32];
    key_where(where, path, k);
    if (negative)
        snprintf(found, sizeof found, "%" PRId64, (int64_t)v);
    else
        snprintf(found, sizeof found, "%" PRIu64, v);
    if (min == max)
        return rkv_fail(e, RKV_E_FORMAT, "%s: %s, expected %" PRId64, where, found, min);
    return rkv_fail(e, RKV_E_FORMAT, "%s: %s, expected %" PRId64 " to %" PRId64, where, found, min,
                    max);
}

rkv_status rkv_gguf_int(const rkv_gguf *g, const char *key, int64_t min, int64_t max, int64_t *out,
                        rkv_error *e)
{
    return rkv_gguf_keys_int(&g->keys, g->path, key, min, max, out, e);
}

rkv_status rkv_gguf_float(const rkv_gguf *g, const char *key, double min, double max, double *out,
                          rkv_error *e)
{
    const rkv_gguf_key *k;
    RKV_TRY(get_plain(&k, &g->keys, g->path, key, "a float", e));
    if (!is_float(k->type))
        return wrong_type(g->path, k, "a float", e);
    const double v = element_float(k, 0);
    if (isfinite(v) && v >= min && v <= max) {
        *out = v;
        return RKV_OK;
    }
    char where[RKV_GGUF_WHERE];
    key_where(where, g->path, k);
    return rkv_fail(e, RKV_E_FORMAT, "%s: %g, expected %g to %g", where, v, min, max);
}

rkv_status rkv_gguf_bool(const rkv_gguf *g, const char *key, int *out, rkv_error *e)
{
    const rkv_gguf_key *k;
    RKV_TRY(get_plain(&k, &g->keys, g->path, key, "bool", e));
    if (k->type != RKV_GGUF_BOOL)
        return wrong_type(g->path, k, "bool", e);
    *out = k->data[0];
    return RKV_OK;
}

rkv_status rkv_gguf_string(const rkv_gguf *g, const char *key, const char **s, size_t *n,
                           rkv_error *e)
{
    const rkv_gguf_key *k;
    RKV_TRY(get_plain(&k, &g->keys, g->path, key, "string", e));
    if (k->type != RKV_GGUF_STRING)
        return wrong_type(g->path, k, "string", e);
    const char *text = (const char *)k->data + 8;
    const size_t len = (size_t)(k->end - k->data) - 8, good = rkv_utf8_check(text, len);
    if (good < len) {
        char where[RKV_GGUF_WHERE];
        key_where(where, g->path, k);
        return rkv_fail(e, RKV_E_FORMAT,
                        "%s: byte 0x%02x at %zu of the string, expected UTF-8 text", where,
                        (unsigned char)text[good], good);
    }
    *s = text;
    *n = len;
    return RKV_OK;
}

rkv_status rkv_gguf_strings(const rkv_gguf *g, const char *key, size_t *count, rkv_error *e)
{
    const rkv_gguf_key *k = find(g, key);
    if (!k)
        return missing(g->path, key, e);
    if (!k->is_array || k->type != RKV_GGUF_STRING)
        return wrong_type(g->path, k, "array of string", e);
    *count = k->count;
    return RKV_OK;
}

const char *rkv_gguf_strings_at(const rkv_gguf *g, const char *key, size_t i, size_t *n)
{
    const unsigned char *p = find(g, key)->string[i];
    *n = (size_t)rkv_le64(p);
    return (const char *)p + 8;
}

rkv_status rkv_gguf_floats(const rkv_gguf *g, const char *key, float *out, size_t n, rkv_error *e)
{
    const rkv_gguf_key *k;
    RKV_TRY(get_array(&k, g, key, n, "array of floats", e));
    if (!is_float(k->type))
        return wrong_type(g->path, k, "array of floats", e);
    for (size_t i = 0; i < n; i++)
        out[i] = (float)element_float(k, i);
    return RKV_OK;
}

rkv_status rkv_gguf_ints(const rkv_gguf *g, const char *key, int64_t *out, size_t n, rkv_error *e)
{
    const rkv_gguf_key *k;
    RKV_TRY(get_array(&k, g, key, n, "array of integers", e));
    if (!is_integer(k->type) && k->type != RKV_GGUF_BOOL)
        return wrong_type(g->path, k, "array of integers", e);
    for (size_t i = 0; i < n; i++) {
        uint64_t v;
        if (!element_int(k, i, &v) && v > INT64_MAX) {
            char where[RKV_GGUF_WHERE];
            key_where(where, g->path, k);
            return rkv_fail(e, RKV_E_FORMAT,
                            "%s: element %zu is %" PRIu64 ", expected at most 2^63 - 1", where, i,
                            v);
        }
        out[i] = (int64_t)v;
    }
    return RKV_OK;
}

size_t rkv_gguf_array_count(const rkv_gguf *g, const char *key)
{
    const rkv_gguf_key *k = find(g, key);
    return k && k->is_array ? k->count : 0;
}

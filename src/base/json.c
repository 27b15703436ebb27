#include "config.h"
#include "base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/utf8.h"

enum { MAX_DEPTH = 64, MAX_KEY = 1024 };

/* cJSON lets duplicate keys, deep nesting and infinities pass; a profile with two values for one
 * key has no meaning. Keys are compared pairwise: a large object would take its square in time. */
static rkv_status check_tree(const cJSON *node, int depth, const char *source, rkv_error *e)
{
    if (depth > MAX_DEPTH)
        return rkv_fail(e, RKV_E_FORMAT, "%s: nested deeper than %d levels", source, MAX_DEPTH);
    if (cJSON_IsObject(node) && cJSON_GetArraySize(node) > MAX_KEY)
        return rkv_fail(e, RKV_E_FORMAT, "%s: an object of more than %d keys", source, MAX_KEY);
    for (const cJSON *c = node->child; c; c = c->next) {
        if (cJSON_IsNumber(c) && !isfinite(c->valuedouble))
            return rkv_fail(e, RKV_E_FORMAT, "%s: number out of range at key '%s'", source,
                            c->string ? c->string : "(array element)");
        if (cJSON_IsObject(node))
            for (const cJSON *d = c->next; d; d = d->next)
                if (!strcmp(c->string, d->string))
                    return rkv_fail(e, RKV_E_FORMAT, "%s: key '%s' occurs twice", source,
                                    c->string);
        if (c->child)
            RKV_TRY(check_tree(c, depth + 1, source, e));
    }
    return RKV_OK;
}

/* A NUL, raw or escaped, would silently end the string that holds it. Backslashes stand in strings
 * only, each with the character that it escapes. cJSON passes bytes on that are no UTF-8. */
static rkv_status check_text(const char *text, size_t n, const char *source, rkv_error *e)
{
    const size_t strange = rkv_utf8_check(text, n);
    if (strange < n && text[strange])
        return rkv_fail(e, RKV_E_FORMAT, "%s: not UTF-8 at byte %zu", source, strange);
    const char *nul = strange < n ? text + strange : NULL;
    for (size_t i = 0; !nul && i + 5 < n; i++)
        if (text[i] == '\\' && !memcmp(text + i + 1, "u0000", 5))
            nul = text + i;
        else
            i += text[i] == '\\';
    return nul ? rkv_fail(e, RKV_E_FORMAT, "%s: a NUL character at byte %zu, expected text", source,
                          (size_t)(nul - text))
               : RKV_OK;
}

rkv_status rkv_json_parse(cJSON **out, const char *text, size_t n, const char *source, rkv_error *e)
{
    const char *end = NULL;
    RKV_TRY(check_text(text, n, source, e));
    cJSON *tree = cJSON_ParseWithLengthOpts(text, n, &end, 0);
    if (!tree)
        return rkv_fail(e, RKV_E_FORMAT, "%s: not JSON at byte %zu%s", source,
                        end ? (size_t)(end - text) : (size_t)0,
                        strstr(source, ": line ") ? ", expected one object per line" : "");
    while (end < text + n && (*end == ' ' || *end == '\t' || *end == '\n' || *end == '\r'))
        end++;
    rkv_status s = RKV_OK;
    if (end < text + n)
        s = rkv_fail(e, RKV_E_FORMAT, "%s: trailing text after the JSON value at byte %zu", source,
                     (size_t)(end - text));
    if (!s)
        s = check_tree(tree, 0, source, e);
    if (s) {
        cJSON_Delete(tree);
        return s;
    }
    *out = tree;
    return RKV_OK;
}

rkv_status rkv_json_read_file(char **text, size_t *n, const char *path, size_t max, rkv_error *e)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not block */
    FILE *f = fd < 0 ? NULL : fdopen(fd, "rb");
    if (!f) {
        rkv_fail(e, RKV_E_IO, "%s: %s", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return RKV_E_IO;
    }
    rkv_status s = RKV_OK;
    struct stat st;
    char *buf = NULL;
    if (fstat(fileno(f), &st) || !S_ISREG(st.st_mode))
        s = rkv_fail(e, RKV_E_IO, "%s: not a regular file%s", path,
                     S_ISFIFO(st.st_mode) ? " but a pipe: write it to a file" : "");
    else if ((uint64_t)st.st_size > max)
        s = rkv_fail(e, RKV_E_FORMAT, "%s: %lld bytes, at most %zu are read", path,
                     (long long)st.st_size, max);
    else if (!(buf = rkv_mem_alloc((size_t)st.st_size + 1)))
        s = rkv_fail(e, RKV_E_MEM, "%s: out of memory for %lld bytes", path, (long long)st.st_size);
    else if (fread(buf, 1, (size_t)st.st_size, f) != (size_t)st.st_size)
        s = rkv_fail(e, RKV_E_IO, "%s: read failed: %s", path,
                     ferror(f) ? strerror(errno) : "file became shorter");
    fclose(f);
    if (s) {
        rkv_mem_free(buf);
        return s;
    }
    buf[st.st_size] = 0;
    *text = buf;
    *n = (size_t)st.st_size;
    return RKV_OK;
}

int rkv_json_has(const cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key) != NULL;
}

rkv_status rkv_json_get(const cJSON **out, const cJSON *object, const char *key, const char *source,
                        rkv_error *e)
{
    *out = cJSON_GetObjectItemCaseSensitive(object, key);
    return *out ? RKV_OK : rkv_fail(e, RKV_E_FORMAT, "%s: key '%s' is missing", source, key);
}

rkv_status rkv_json_string(const char **out, const cJSON *object, const char *key,
                           const char *source, rkv_error *e)
{
    const cJSON *v;
    RKV_TRY(rkv_json_get(&v, object, key, source, e));
    if (!cJSON_IsString(v))
        return rkv_fail(e, RKV_E_FORMAT, "%s: key '%s' is not a string", source, key);
    *out = v->valuestring;
    return RKV_OK;
}

rkv_status rkv_json_number(double *out, const cJSON *object, const char *key, double min,
                           double max, const char *source, rkv_error *e)
{
    const cJSON *v;
    RKV_TRY(rkv_json_get(&v, object, key, source, e));
    if (!cJSON_IsNumber(v))
        return rkv_fail(e, RKV_E_FORMAT, "%s: key '%s' is not a number", source, key);
    if (!(v->valuedouble >= min && v->valuedouble <= max))
        return rkv_fail(e, RKV_E_FORMAT, "%s: key '%s' is %g, expected %g to %g", source, key,
                        v->valuedouble, min, max);
    *out = v->valuedouble;
    return RKV_OK;
}

rkv_status rkv_json_int(int *out, const cJSON *object, const char *key, int min, int max,
                        const char *source, rkv_error *e)
{
    double d;
    RKV_TRY(rkv_json_number(&d, object, key, min, max, source, e));
    if (d != floor(d))
        return rkv_fail(e, RKV_E_FORMAT, "%s: key '%s' is %g, expected a whole number", source, key,
                        d);
    *out = (int)d;
    return RKV_OK;
}

rkv_status rkv_json_array(const cJSON **out, const cJSON *object, const char *key,
                          const char *source, rkv_error *e)
{
    RKV_TRY(rkv_json_get(out, object, key, source, e));
    if (!cJSON_IsArray(*out))
        return rkv_fail(e, RKV_E_FORMAT, "%s: key '%s' is not an array", source, key);
    return RKV_OK;
}

rkv_status rkv_json_ids(int32_t **ids, size_t *n, const cJSON *array, int n_vocab,
                        const char *source, rkv_error *e)
{
    const size_t count = (size_t)cJSON_GetArraySize(array);
    int32_t *out = rkv_mem_alloc(rkv_mem_product(count, sizeof *out));
    if (!out)
        return rkv_fail(e, RKV_E_MEM, "%s: out of memory for %zu token ids", source, count);
    size_t i = 0;
    for (const cJSON *v = array->child; v; v = v->next, i++) {
        const double d = cJSON_IsNumber(v) ? v->valuedouble : -1.0;
        if (!(d >= 0.0 && d < n_vocab && d == floor(d))) {
            rkv_mem_free(out);
            return rkv_fail(e, RKV_E_FORMAT, "%s: token id #%zu is not a whole number in [0, %d)",
                            source, i, n_vocab);
        }
        out[i] = (int32_t)d;
    }
    *ids = out;
    *n = count;
    return RKV_OK;
}

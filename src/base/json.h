/* Checked reading of JSON over cJSON, and writing of it as text.
 * Getters take the name of the source ("profile.json") for their messages: file, key, what was
 * found, what was expected. Duplicate keys, objects of over 1024 keys, trailing bytes, depth over
 * 64 and non-finite numbers are refused. */
#ifndef RKV_JSON_H
#define RKV_JSON_H

#include <stddef.h>
#include <stdint.h>

#include <cjson/cJSON.h>

#include "base/err.h"

/* Parses n bytes of UTF-8, which hold one value, no key twice and no NUL, escaped or not; the tree
 * belongs to the caller (cJSON_Delete). A source that ends in ": line N" is a line of JSONL.
 * RKV_E_FORMAT, RKV_E_MEM. */
rkv_status rkv_json_parse(cJSON **out, const char *text, size_t n, const char *source,
                          rkv_error *e);

/* Reads a whole regular file of at most max bytes, 0-terminated; freed with rkv_mem_free. */
rkv_status rkv_json_read_file(char **text, size_t *n, const char *path, size_t max, rkv_error *e);

/* The object has this key, written so; 0 for what is no object. */
int rkv_json_has(const cJSON *object, const char *key);

/* Members of an object. A missing key or another type is RKV_E_FORMAT. */
rkv_status rkv_json_get(const cJSON **out, const cJSON *object, const char *key, const char *source,
                        rkv_error *e);
rkv_status rkv_json_string(const char **out, const cJSON *object, const char *key,
                           const char *source, rkv_error *e);
rkv_status rkv_json_int(int *out, const cJSON *object, const char *key, int min, int max,
                        const char *source, rkv_error *e);
rkv_status rkv_json_number(double *out, const cJSON *object, const char *key, double min,
                           double max, const char *source, rkv_error *e);
rkv_status rkv_json_array(const cJSON **out, const cJSON *object, const char *key,
                          const char *source, rkv_error *e);

/* An array of token ids, each in [0, n_vocab); *ids freed with rkv_mem_free. */
rkv_status rkv_json_ids(int32_t **ids, size_t *n, const cJSON *array, int n_vocab,
                        const char *source, rkv_error *e);

/* A string that grows; every append keeps it 0-terminated. After a failed allocation it stays as it
 * is and bad is set, to be looked at once, at the end. */
typedef struct rkv_text {
    char *data;
    size_t n, cap;
    int bad;
} rkv_text;

void rkv_text_add(rkv_text *t, const char *bytes, size_t n);
void rkv_text_printf(rkv_text *t, const char *format, ...) RKV_PRINTF(2, 3);
/* n bytes, those that are not UTF-8 replaced by U+FFFD. */
void rkv_text_utf8(rkv_text *t, const char *bytes, size_t n);
/* n bytes as a JSON string in quotes; bytes that are not UTF-8 become U+FFFD. */
void rkv_text_json(rkv_text *t, const char *bytes, size_t n);
/* A number so that reading it back gives the same double; null when it is not finite. */
void rkv_text_number(rkv_text *t, double v);
void rkv_text_free(rkv_text *t);
/* Hands the text over: *text, freed with rkv_mem_free, and *n (NULL: not asked) its bytes. 0 when
 * an append had failed; then t is freed. */
int rkv_text_take(rkv_text *t, char **text, size_t *n);

/* Writes n bytes to path by temporary file, fsync, rename and fsync of the folder. A file that is
 * there keeps its mode, a link stays and its file is replaced. What is there and is no regular file
 * (a device, a pipe) is written in place. RKV_E_WRITE. */
rkv_status rkv_file_replace(const char *path, const char *bytes, size_t n, rkv_error *e);

#endif

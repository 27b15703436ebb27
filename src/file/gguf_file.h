/* What the files of the GGUF reader share: the opened file, and how one shard is parsed. */
#ifndef RKV_GGUF_FILE_H
#define RKV_GGUF_FILE_H

#include "file/gguf.h"
#include "file/map.h"

/* Limits of our own, far above any real file, that bound memory and time for a hostile one. */
enum {
    RKV_GGUF_MAX_KEY = 1 << 16,                 /* keys in a file */
    RKV_GGUF_MAX_KEY_NAME = 65535,              /* bytes; the format page's own limit */
    RKV_GGUF_MAX_TENSOR = 1 << 18,              /* tensors in all shards */
    RKV_GGUF_MAX_TENSOR_NAME = 63,              /* bytes; ggml's own limit */
    RKV_GGUF_MAX_STRINGS = 1 << 24,             /* elements of all string arrays of a file */
    RKV_GGUF_MAX_ALIGNMENT = 65536,
    RKV_GGUF_MAX_SHARD = 65535
};

/* Value types of the format, in the order of their ids. */
typedef enum rkv_gguf_type {
    RKV_GGUF_U8, RKV_GGUF_I8, RKV_GGUF_U16, RKV_GGUF_I16, RKV_GGUF_U32, RKV_GGUF_I32, RKV_GGUF_F32,
    RKV_GGUF_BOOL, RKV_GGUF_STRING, RKV_GGUF_ARRAY, RKV_GGUF_U64, RKV_GGUF_I64, RKV_GGUF_F64,
    RKV_GGUF_N_TYPE
} rkv_gguf_type;

typedef struct rkv_gguf_type_desc {
    const char *name;
    int bytes;                  /* of one value; 0: its length stands in the file */
} rkv_gguf_type_desc;

extern const rkv_gguf_type_desc rkv_gguf_type_table[RKV_GGUF_N_TYPE];

typedef struct rkv_gguf_key {
    const char *name;           /* [n_name], not 0-terminated */
    size_t n_name;
    uint64_t at;                /* byte offset of the entry */
    int index;                  /* place in the file */
    int is_array;
    rkv_gguf_type type;         /* of the value or of the array's elements; never RKV_GGUF_ARRAY */
    size_t count;               /* elements; 1 for a plain value */
    const unsigned char *data;  /* the first element; of strings the length field of the first */
    const unsigned char **string;       /* [count] length fields, for an array of strings */
    const unsigned char *end;   /* past the value */
} rkv_gguf_key;

typedef struct rkv_gguf_keys {
    rkv_gguf_key *key;          /* [n], in file order */
    const rkv_gguf_key **by_name;       /* [n], sorted; NULL until the list is complete */
    int n;
} rkv_gguf_keys;

typedef struct rkv_gguf_entry {
    rkv_tensor view;
    char name[RKV_GGUF_MAX_TENSOR_NAME + 1];
    uint32_t type_id;
    int shard, index;           /* shard, and place in it, both from 0 */
    uint64_t at;                /* byte offset of the entry in its shard */
    uint64_t offset;            /* of the data, from the start of the shard's data section */
    void *copy;                 /* the data when the file keeps it at a multiple of less than 8 */
} rkv_gguf_entry;

struct rkv_gguf {
    char *path;                 /* of the first shard */
    rkv_map *map;               /* [n_map] shards */
    int n_map;
    uint64_t file_bytes;
    rkv_gguf_keys keys;         /* of the first shard */
    rkv_gguf_entry *tensor;     /* [n_tensor], shard after shard */
    const rkv_gguf_entry **by_name;     /* [n_tensor], sorted */
    int n_tensor;
    void *block;                /* what rkv_gguf_copy made; NULL: nothing was copied */
};

/* Reads one shard: its keys into *keys (zeroed before), its tensors after those that g has.
 * On failure both hold what must be freed. */
rkv_status rkv_gguf_parse(rkv_gguf *g, rkv_gguf_keys *keys, const rkv_map *map, const char *path,
                          rkv_error *e);
void rkv_gguf_keys_free(rkv_gguf_keys *keys);
/* NULL when there is none. */
const rkv_gguf_key *rkv_gguf_key_find(const rkv_gguf_keys *keys, const char *name, size_t n);
/* rkv_gguf_int for the keys of any shard. */
rkv_status rkv_gguf_keys_int(const rkv_gguf_keys *keys, const char *path, const char *key,
                             int64_t min, int64_t max, int64_t *out, rkv_error *e);

/* Where in a file a fault is: "path: key 'name' (#3, at byte 120)". A long path loses its front, a
 * long name its end; name may be NULL. */
enum { RKV_GGUF_WHERE = 320 };
void rkv_gguf_where(char out[RKV_GGUF_WHERE], const char *path, const char *object,
                    const char *name, size_t n_name, int index, uint64_t at);

/* rkv_gguf_open for a file that is in memory: n bytes, which must outlive the rkv_gguf; name stands
 * for the path. */
rkv_status rkv_gguf_open_memory(rkv_gguf **out, const void *data, size_t n, const char *name,
                                rkv_error *e);

#endif

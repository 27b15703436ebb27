/* The GGUF reader on good files: versions, value types, getters, tensors, shards, real files. What
 * is refused is in check_gguf_bad.c. */
#include "config.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "scratch.h"
#include "tiny/gguf_walk.h"
#include "tiny/gguf_write.h"

/* One key of every type, plain and as an array of two. */
static void put_every_type(gguf_writer *w)
{
    static const unsigned char two[] = {0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
                                        1,    0,    0,    0,    0,    0,    0,    0x40};
    static const struct { const char *plain, *array; uint32_t type; int bytes; } row[] = {
        {"u8", "u8s", RKV_GGUF_U8, 1},    {"i8", "i8s", RKV_GGUF_I8, 1},
        {"u16", "u16s", RKV_GGUF_U16, 2}, {"i16", "i16s", RKV_GGUF_I16, 2},
        {"u32", "u32s", RKV_GGUF_U32, 4}, {"i32", "i32s", RKV_GGUF_I32, 4},
        {"u64", "u64s", RKV_GGUF_U64, 8}, {"i64", "i64s", RKV_GGUF_I64, 8},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        unsigned char v[16];                    /* -2 or its complement, then 1 */
        memcpy(v, two, (size_t)row[i].bytes);
        memset(v + row[i].bytes, 0, (size_t)row[i].bytes);
        v[row[i].bytes] = 1;
        gguf_key_raw(w, row[i].plain, strlen(row[i].plain), row[i].type, v, (size_t)row[i].bytes);
        gguf_key_array(w, row[i].array, row[i].type, 2, v, (size_t)row[i].bytes * 2);
    }
    const float f[2] = {0.5f, -INFINITY};
    const double d[2] = {0.1, 1e300};
    gguf_key_raw(w, "f32", 3, RKV_GGUF_F32, f, 4);
    gguf_key_raw(w, "f64", 3, RKV_GGUF_F64, d, 8);
    gguf_key_raw(w, "inf", 3, RKV_GGUF_F32, f + 1, 4);
    gguf_key_array(w, "f32s", RKV_GGUF_F32, 2, f, 8);
    gguf_key_array(w, "f64s", RKV_GGUF_F64, 2, d, 16);
    gguf_key_bool(w, "yes", 1);
    gguf_key_array(w, "bools", RKV_GGUF_BOOL, 2, "\1", 2);
    gguf_key_string(w, "string", "caf\xc3\xa9");
    gguf_key_raw(w, "bytes", 5, RKV_GGUF_STRING, "\3\0\0\0\0\0\0\0a\xff", 11);
    const char *const s[] = {"", "one", "two words"};
    gguf_key_strings(w, "strings", s, 3);
    gguf_key_array(w, "none", RKV_GGUF_STRING, 0, NULL, 0);
}

static void check_ints(const rkv_gguf *g)
{
    static const struct { const char *plain, *array; int64_t v; } row[] = {
        {"u8", "u8s", 254}, {"i8", "i8s", -2}, {"u16", "u16s", 65534}, {"i16", "i16s", -2},
        {"u32", "u32s", 4294967294}, {"i32", "i32s", -2}, {"i64", "i64s", -2},
    };
    rkv_error e = {0};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        int64_t v = 0, a[2] = {0};
        CHECK(!rkv_gguf_int(g, row[i].plain, row[i].v, row[i].v, &v, &e) && v == row[i].v,
              "%s is %lld: %s", row[i].plain, (long long)v, e.text);
        CHECK(rkv_gguf_int(g, row[i].plain, row[i].v + 1, INT64_MAX, &v, &e) == RKV_E_FORMAT &&
              strstr(e.text, row[i].plain), "%s", e.text);
        CHECK(rkv_gguf_int(g, row[i].plain, INT64_MIN, row[i].v - 1, &v, NULL) == RKV_E_FORMAT,
              "below");
        CHECK(!rkv_gguf_ints(g, row[i].array, a, 2, &e) && a[0] == row[i].v && a[1] == 1,
              "%s is %lld", row[i].array, (long long)a[0]);
    }
    int64_t v, a[3];
    CHECK(rkv_gguf_int(g, "u64", INT64_MIN, INT64_MAX, &v, &e) == RKV_E_FORMAT &&
          strstr(e.text, "18446744073709551614"), "%s", e.text);
    CHECK(rkv_gguf_ints(g, "u64s", a, 2, &e) == RKV_E_FORMAT &&
              strstr(e.text, "18446744073709551614"),
          "%s", e.text);
    CHECK(rkv_gguf_ints(g, "u8s", a, 3, &e) == RKV_E_FORMAT &&
              strstr(e.text, "2 elements, expected 3"),
          "%s", e.text);
    CHECK(!rkv_gguf_ints(g, "bools", a, 2, &e) && a[0] == 1 && a[1] == 0, "%s", e.text);
    CHECK(rkv_gguf_int(g, "f32", 0, 9, &v, &e) == RKV_E_FORMAT && strstr(e.text, "float32"), "%s",
          e.text);
    CHECK(rkv_gguf_int(g, "yes", 0, 9, &v, &e) == RKV_E_FORMAT && strstr(e.text, "bool"), "%s",
          e.text);
    CHECK(rkv_gguf_int(g, "u8s", 0, 9, &v, &e) == RKV_E_FORMAT && strstr(e.text, "array of uint8"),
          "%s", e.text);
    CHECK(rkv_gguf_int(g, "absent", 0, 9, &v, &e) == RKV_E_FORMAT &&
          !strcmp(e.text, "x.gguf: key 'absent' is missing"), "%s", e.text);
    CHECK(rkv_gguf_ints(g, "f32s", a, 2, &e) == RKV_E_FORMAT && rkv_gguf_ints(g, "u8", a, 1, &e) ==
          RKV_E_FORMAT && rkv_gguf_ints(g, "absent", a, 1, &e) == RKV_E_FORMAT, "%s", e.text);
}

static void check_floats(const rkv_gguf *g)
{
    rkv_error e = {0};
    double d = 0.0;
    float f[2];
    CHECK(!rkv_gguf_float(g, "f32", 0.0, 1.0, &d, &e) && d == 0.5, "%g: %s", d, e.text);
    CHECK(!rkv_gguf_float(g, "f64", 0.0, 1.0, &d, &e) && d == 0.1, "%g: %s", d, e.text);
    CHECK(rkv_gguf_float(g, "f32", 0.6, 1.0, &d, &e) == RKV_E_FORMAT &&
              strstr(e.text, "0.5, expected 0.6"),
          "%s", e.text);
    CHECK(rkv_gguf_float(g, "inf", -INFINITY, INFINITY, &d, &e) == RKV_E_FORMAT, "%s", e.text);
    CHECK(rkv_gguf_float(g, "u8", 0.0, 999.0, &d, &e) == RKV_E_FORMAT &&
              strstr(e.text, "type uint8"),
          "%s", e.text);
    CHECK(rkv_gguf_float(g, "f32s", 0.0, 1.0, &d, NULL) == RKV_E_FORMAT &&
          rkv_gguf_float(g, "absent", 0.0, 1.0, &d, NULL) == RKV_E_FORMAT, "array or absent");
    CHECK(!rkv_gguf_floats(g, "f32s", f, 2, &e) && f[0] == 0.5f && f[1] == -INFINITY, "%s", e.text);
    CHECK(!rkv_gguf_floats(g, "f64s", f, 2, &e) && f[0] == 0.1f && f[1] == INFINITY, "%s", e.text);
    /* tokenizer.ggml.scores declared as bytes: a reader that casts runs off its end. */
    CHECK(rkv_gguf_floats(g, "u8s", f, 2, &e) == RKV_E_FORMAT && strstr(e.text, "array of uint8"),
          "%s", e.text);
    CHECK(rkv_gguf_floats(g, "f32s", f, 1, &e) == RKV_E_FORMAT, "%s", e.text);
}

static void check_strings(const rkv_gguf *g)
{
    rkv_error e = {0};
    const char *s = NULL;
    size_t n = 0;
    int b = 0;
    CHECK(!rkv_gguf_string(g, "string", &s, &n, &e) && n == 5 && !memcmp(s, "caf\xc3\xa9", 5), "%s",
          e.text);
    CHECK(rkv_gguf_string(g, "bytes", &s, &n, &e) == RKV_E_FORMAT && strstr(e.text, "0xff at 1"),
          "%s", e.text);
    CHECK(rkv_gguf_string(g, "strings", &s, &n, &e) == RKV_E_FORMAT &&
              strstr(e.text, "array of string") &&
              rkv_gguf_string(g, "u8", &s, &n, &e) == RKV_E_FORMAT,
          "%s", e.text);
    CHECK(!rkv_gguf_strings(g, "strings", &n, &e) && n == 3, "%s", e.text);
    CHECK((s = rkv_gguf_strings_at(g, "strings", 0, &n)) && n == 0, "%zu", n);
    CHECK((s = rkv_gguf_strings_at(g, "strings", 2, &n)) && n == 9 && !memcmp(s, "two words", 9),
          "%zu", n);
    CHECK(!rkv_gguf_strings(g, "none", &n, &e) && n == 0, "%s", e.text);
    CHECK(rkv_gguf_strings(g, "u8s", &n, &e) == RKV_E_FORMAT &&
              strstr(e.text, "expected array of string") &&
              rkv_gguf_strings(g, "string", &n, &e) == RKV_E_FORMAT &&
              rkv_gguf_strings(g, "absent", &n, &e) == RKV_E_FORMAT,
          "%s", e.text);
    CHECK(!rkv_gguf_bool(g, "yes", &b, &e) && b == 1, "%s", e.text);
    CHECK(rkv_gguf_bool(g, "u8", &b, &e) == RKV_E_FORMAT && rkv_gguf_bool(g, "bools", &b, &e) ==
          RKV_E_FORMAT && rkv_gguf_bool(g, "absent", &b, &e) == RKV_E_FORMAT, "%s", e.text);
    CHECK(rkv_gguf_array_count(g, "strings") == 3 && rkv_gguf_array_count(g, "u8") == 0 &&
              rkv_gguf_array_count(g, "absent") == 0 && rkv_gguf_has(g, "u8") &&
              !rkv_gguf_has(g, "u"),
          "count");
}

/* One tensor of every type we know, and one that we do not. */
static void put_tensors(gguf_writer *w)
{
    for (int i = 0; i < RKV_DT_COUNT; i++) {
        const rkv_dtype_desc *d = rkv_dtype_get((rkv_dtype)i);
        const uint64_t dims[4] = {(uint64_t)d->block_len * 2, 3, 1, 2};
        gguf_tensor(w, d->name, d->ggml_id, i % 2 ? 4 : 2, dims,
                    (uint64_t)d->block_bytes * (i % 2 ? 12 : 6));
    }
    const uint64_t dims[] = {7};
    gguf_tensor(w, "strange", 4711, 1, dims, 100);
    gguf_tensor(w, "last", 0, 1, dims, 28);
}

static void check_tensors(const rkv_gguf *g, size_t alignment)
{
    CHECK(rkv_gguf_n_tensor(g) == RKV_DT_COUNT + 2, "%d", rkv_gguf_n_tensor(g));
    uint64_t at = 0;
    for (int i = 0; i < rkv_gguf_n_tensor(g); i++) {
        const rkv_tensor *t = rkv_gguf_tensor_at(g, i);
        const int known = i != RKV_DT_COUNT;
        CHECK(rkv_gguf_tensor(g, t->name) == t, "%s", t->name);
        CHECK((uintptr_t)t->data % 8 == 0, "%s is not aligned", t->name);
        CHECK((t->data != NULL) == known && (t->bytes != 0) == known, "%s", t->name);
        int bad = 0;
        for (size_t j = 0; j < t->bytes; j++)
            bad += ((const unsigned char *)t->data)[j] != (unsigned char)((at + j) * 131 >> 3);
        CHECK(!bad, "%d bytes of %s are wrong", bad, t->name);
        const size_t bytes = known ? t->bytes : 100;
        at = (at + bytes + alignment - 1) / alignment * alignment;
        if (i >= RKV_DT_COUNT)
            continue;
        const rkv_dtype_desc *d = rkv_dtype_get((rkv_dtype)i);
        CHECK(t->type == (rkv_dtype)i && !strcmp(t->name, d->name) && t->n_dim == (i % 2 ? 4 : 2) &&
              t->dim[0] == d->block_len * 2 && t->dim[1] == 3 && t->dim[2] == 1 &&
              t->dim[3] == (i % 2 ? 2 : 1) && t->bytes == (size_t)d->block_bytes * (i % 2 ? 12 : 6),
              "%s", t->name);
        CHECK(rkv_gguf_tensor_type_id(g, i) == d->ggml_id, "%s", t->name);
    }
    CHECK(rkv_gguf_tensor_at(g, RKV_DT_COUNT)->type == RKV_DT_COUNT &&
          rkv_gguf_tensor_type_id(g, RKV_DT_COUNT) == 4711, "the strange one");
    CHECK(!rkv_gguf_tensor(g, "q4") && !rkv_gguf_tensor(g, ""), "absent");
}

/* The same content after copying, from memory of its own: that of the file is overwritten then. */
static void check_copied(rkv_gguf *g, void *file, size_t n, uint64_t alignment)
{
    rkv_error e = {0};
    const uint64_t want = gguf_walk(g), before = rkv_mem_current();
    const uint64_t bytes = rkv_gguf_copy_bytes(g, NULL);
    CHECK(!rkv_gguf_copy(g, NULL, &e), "%s", e.text);
    CHECK(alignment % 8 == 0 ? rkv_mem_current() == before + bytes
                             : rkv_mem_current() <= before + bytes,
          "%llu bytes more, planned %llu", (unsigned long long)(rkv_mem_current() - before),
          (unsigned long long)bytes);
    memset(file, 0xff, n);
    CHECK(gguf_walk(g) == want, "another content");
    for (int i = 0; i < rkv_gguf_n_tensor(g); i++)
        CHECK((uintptr_t)rkv_gguf_tensor_at(g, i)->data % 64 == 0, "tensor #%d", i);
    check_ints(g);
    check_floats(g);
    check_strings(g);
}

/* One tensor may stay where it is; the others come from a mapping here. */
static void check_stays(rkv_gguf *g)
{
    rkv_error e = {0};
    const uint64_t want = gguf_walk(g);
    const rkv_tensor *first = rkv_gguf_tensor_at(g, 0), *second = rkv_gguf_tensor_at(g, 1);
    const void *at[] = {first->data, second->data};
    const uint64_t all = rkv_gguf_copy_bytes(g, NULL);
    const uint64_t less = rkv_gguf_copy_bytes(g, second->name);
    CHECK(all - less >= second->bytes && all - less < second->bytes + 64, "%llu, all %llu",
          (unsigned long long)less, (unsigned long long)all);
    CHECK(!rkv_gguf_copy(g, second->name, &e), "%s", e.text);
    CHECK(first->data != at[0] && second->data == at[1], "%s stays", second->name);
    CHECK(gguf_walk(g) == want, "another content");
}

static void check_file(uint32_t version, uint64_t alignment)
{
    gguf_writer w = gguf_writer_init();
    w.version = version;
    w.alignment = alignment;
    put_every_type(&w);
    if (alignment != 32)
        gguf_key_u32(&w, "general.alignment", (uint32_t)alignment);
    put_tensors(&w);
    rkv_text t = {0};
    gguf_file(&w, &t);
    rkv_gguf *g = NULL;
    rkv_error e = {0};
    const rkv_status s = rkv_gguf_open_memory(&g, t.data, t.n, "x.gguf", &e);
    CHECK(!s, "%s", e.text);
    if (!s) {
        CHECK(!strcmp(rkv_gguf_path(g), "x.gguf") && rkv_gguf_file_bytes(g) == t.n, "%s",
              rkv_gguf_path(g));
        check_ints(g);
        check_floats(g);
        check_strings(g);
        check_tensors(g, alignment);
        check_copied(g, t.data, t.n, alignment);
    }
    rkv_gguf_close(g);
    rkv_text_free(&t);

    CHECK(gguf_save(&w, scratch_path("good.gguf")), "cannot write");
    g = NULL;
    CHECK(!rkv_gguf_open(&g, scratch_path("good.gguf"), &e), "%s", e.text);
    if (g) {
        check_tensors(g, alignment);
        check_stays(g);
    }
    rkv_gguf_close(g);
    gguf_writer_free(&w);
}

/* Three shards of one, none and two tensors; other keys may stand in the later ones. */
static void check_shards(void)
{
    const uint64_t dims[] = {8};
    const char *const name[] = {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf",
                                "m-00003-of-00003.gguf"};
    static const char *const tensor[3][2] = {{"a"}, {NULL}, {"b", "c"}};
    for (int k = 0; k < 3; k++) {
        gguf_writer w = gguf_writer_init();
        gguf_key_string(&w, "general.architecture", "llama");
        gguf_key_split(&w, (uint16_t)k, 3, 3);
        if (k)
            gguf_key_u32(&w, "only.here", 1);
        for (int i = 0; i < 2 && tensor[k][i]; i++)
            gguf_tensor(&w, tensor[k][i], 0, 1, dims, 32);
        CHECK(gguf_save(&w, scratch_path(name[k])), "cannot write");
        gguf_writer_free(&w);
    }
    rkv_gguf *g = NULL;
    rkv_error e = {0};
    CHECK(!rkv_gguf_open(&g, scratch_path(name[0]), &e), "%s", e.text);
    if (g) {
        const rkv_tensor *a = rkv_gguf_tensor(g, "a"), *c = rkv_gguf_tensor(g, "c");
        CHECK(rkv_gguf_n_tensor(g) == 3 && a && c && c->bytes == 32, "tensors");
        CHECK(!memcmp(a->data, rkv_gguf_tensor(g, "b")->data, 32), "first of their shards");
        CHECK(!rkv_gguf_has(g, "only.here"), "keys are those of the first shard");
        CHECK(!strcmp(rkv_gguf_path(g), scratch_path(name[0])), "%s", rkv_gguf_path(g));
        CHECK(rkv_gguf_file_bytes(g) > 3 * 100, "%llu", (unsigned long long)rkv_gguf_file_bytes(g));
    }
    rkv_gguf_close(g);
    for (int k = 1; k < 3; k++) {
        CHECK(rkv_gguf_open(&g, scratch_path(name[k]), &e) == RKV_E_FORMAT &&
                  strstr(e.text, "the first one") && strstr(e.text, "-00001-of-00003.gguf"),
              "%s", e.text);
    }
    char here[256];
    CHECK(getcwd(here, sizeof here) && !chdir(scratch_dir), "chdir");
    g = NULL;                                   /* a name without a folder, and one that climbs */
    CHECK(!rkv_gguf_open(&g, name[0], &e), "%s", e.text);
    rkv_gguf_close(g);
    char climbing[600];
    snprintf(climbing, sizeof climbing, "../%s/./%s", strrchr(scratch_dir, '/') + 1, name[0]);
    g = NULL;
    CHECK(!rkv_gguf_open(&g, climbing, &e), "%s", e.text);
    rkv_gguf_close(g);
    CHECK(!chdir(here), "chdir");
    for (int k = 0; k < 3; k++)
        unlink(scratch_path(name[k]));
}

static void check_tensor_bytes(void)
{
    const uint64_t dims[] = {256, 3};
    rkv_error e = {0};
    for (int i = 0; i < RKV_DT_COUNT; i++) {
        size_t n = 0;
        const rkv_dtype_desc *d = rkv_dtype_get((rkv_dtype)i);
        CHECK(!rkv_gguf_tensor_bytes((rkv_dtype)i, dims, 2, &n, "t", &e) &&
              n == rkv_dtype_bytes(d, 768), "%s: %zu", d->name, n);
    }
    size_t n;
    CHECK(rkv_gguf_tensor_bytes(RKV_DT_COUNT, dims, 2, &n, "t", &e) == RKV_E_UNSUPPORTED, "%s",
          e.text);
    const uint64_t most[] = {(uint64_t)PTRDIFF_MAX / 4}, more[] = {(uint64_t)PTRDIFF_MAX / 4 + 1};
    CHECK(!rkv_gguf_tensor_bytes(RKV_DT_f32, most, 1, &n, "t", &e), "%s", e.text);
    CHECK(rkv_gguf_tensor_bytes(RKV_DT_f32, more, 1, &n, "t", &e) == RKV_E_FORMAT, "%s", e.text);
}

/* As many keys and tensors as nobody has, with names that differ late: what a quadratic search for
 * duplicates would not finish. */
static void check_many(void)
{
    enum { N_KEY = 60000, N_TENSOR = 200000 };
    const uint64_t dims[] = {1};
    gguf_writer w = gguf_writer_init();
    char name[64];
    for (int i = 0; i < N_KEY; i++) {
        snprintf(name, sizeof name, "a.rather.long.prefix.of.a.key.%d", i * 7919 % N_KEY);
        gguf_key_u32(&w, name, (uint32_t)i);
    }
    for (int i = 0; i < N_TENSOR; i++) {
        snprintf(name, sizeof name, "blk.%d.weight", i);
        gguf_tensor(&w, name, 0, 1, dims, 4);
    }
    rkv_text t = {0};
    gguf_head(&w, &t);
    const size_t n_head = t.n;
    char *data = calloc(1, n_head + w.data_bytes);
    CHECK(data && !t.bad, "memory");
    memcpy(data, t.data, n_head);
    rkv_gguf *g = NULL;
    rkv_error e = {0};
    CHECK(!rkv_gguf_open_memory(&g, data, n_head + w.data_bytes, "x.gguf", &e), "%s", e.text);
    int64_t v = -1;
    if (g) {
        CHECK(!rkv_gguf_int(g, "a.rather.long.prefix.of.a.key.7919", 0, N_KEY, &v, &e) && v == 1,
              "%s", e.text);
        const rkv_tensor *last = rkv_gguf_tensor(g, "blk.199999.weight");
        CHECK(last && last == rkv_gguf_tensor_at(g, N_TENSOR - 1), "the last tensor");
    }
    rkv_gguf_close(g);
    free(data);
    rkv_text_free(&t);
    gguf_writer_free(&w);
}

/* Vocabulary files of real models: the index of their strings. */
static void check_real(void)
{
    static const struct { const char *name; size_t n, i; const char *token; } row[] = {
        {"ggml-vocab-gpt-2.gguf", 50257, 50256, "<|endoftext|>"},
        {"ggml-vocab-llama-bpe.gguf", 128256, 128000, "<|begin_of_text|>"},
        {"ggml-vocab-llama-spm.gguf", 32000, 13, "<0x0A>"},
        {"ggml-vocab-qwen2.gguf", 151936, 0, "!"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char path[1024];
        const char *data = getenv("RKV_SHARED_DATA");
        snprintf(path, sizeof path, "%s/vocab/%s", data ? data : RKV_SRCDIR "/../shared/data",
                 row[i].name);
        if (access(path, R_OK)) {
            SKIP(1, "%s is not here", path);
            continue;
        }
        rkv_gguf *g = NULL;
        rkv_error e = {0};
        size_t n = 0;
        CHECK(!rkv_gguf_open(&g, path, &e) &&
                  !rkv_gguf_strings(g, "tokenizer.ggml.tokens", &n, &e) && n == row[i].n,
              "%s: %zu tokens: %s", path, n, e.text);
        if (g && n == row[i].n) {
            const char *s = rkv_gguf_strings_at(g, "tokenizer.ggml.tokens", row[i].i, &n);
            CHECK(n == strlen(row[i].token) && !memcmp(s, row[i].token, n), "%.*s", (int)n, s);
        }
        rkv_gguf_close(g);
    }
}

int main(void)
{
    if (!scratch_make())
        return check_end("gguf");
    const uint64_t before = rkv_mem_current();
    check_file(3, 32);
    check_file(2, 32);
    check_file(3, 1);
    check_file(3, 4);
    check_file(3, 65536);
    check_shards();
    check_tensor_bytes();
    check_many();
    check_real();
    rkv_gguf_close(NULL);
    CHECK(rkv_mem_current() == before, "%llu bytes leaked",
          (unsigned long long)(rkv_mem_current() - before));
    unlink(scratch_path("good.gguf"));
    scratch_remove();
    return check_end("gguf");
}

/* What the GGUF reader refuses: each kind of malformed file with its status and the words of its
 * message, every prefix and every flipped bit of a small file. */
#include "config.h"

#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "gguf_fault.h"
#include "scratch.h"
#include "tiny/gguf_walk.h"
#include "tiny/gguf_write.h"

static void refused(const void *data, size_t n, const fault *f)
{
    rkv_error e = {0};
    const rkv_status s = gguf_try(data, n, &e);
    CHECK(s == f->status && e.status == s, "%s: status %d: %s", f->name, s, e.text);
    check_message(f->name, &e, "x.gguf: ", f->first);
    check_message(f->name, &e, f->first, f->second);
}

/* A good small file: keys of several kinds, three tensors. */
static void put_good(gguf_writer *w)
{
    static const uint64_t matrix[] = {4, 3}, row[] = {64};
    const char *const words[] = {"a", "bc"};
    gguf_key_string(w, "general.architecture", "llama");
    gguf_key_u32(w, "general.alignment", 32);
    gguf_key_strings(w, "words", words, 2);
    gguf_key_bool(w, "yes", 1);
    gguf_key_array(w, "numbers", RKV_GGUF_U16, 2, "\1\0\2\0", 4);
    gguf_tensor(w, "matrix", 0, 2, matrix, 48);
    gguf_tensor(w, "blocks", 2, 1, row, 36);
    gguf_tensor(w, "strange", 999, 1, row, 32);
}

static void good_file(rkv_text *t)
{
    gguf_writer w = gguf_writer_init();
    put_good(&w);
    gguf_file(&w, t);
    gguf_writer_free(&w);
}

static void patch_u64(rkv_text *t, size_t at, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        t->data[at + (size_t)i] = (char)(v >> 8 * i);
}

/* Items 1 to 3: the header. */
static void check_header(void)
{
    static const struct { size_t at; uint64_t v; int bytes; fault f;
    } row[] = {
        {0, 0x47475546, 4, {"FUGG", RKV_E_UNSUPPORTED, "'FUGG'", "little-endian"}},
        {0, 0x04034b50, 4, {"zip", RKV_E_FORMAT, "0x504b0304", "not a GGUF file"}},
        {4, 0, 4, {"version 0", RKV_E_UNSUPPORTED, "version 0", "expected 2 or 3"}},
        {4, 1, 4, {"version 1", RKV_E_UNSUPPORTED, "version 1", "convert"}},
        {4, 4, 4, {"version 4", RKV_E_UNSUPPORTED, "version 4", "expected 2 or 3"}},
        {4, 0x03000000, 4, {"big-endian", RKV_E_UNSUPPORTED, "0x03000000", "big-endian"}},
        {8,
         UINT64_C(1) << 63,
         8,
         {"n_tensors 2^63", RKV_E_FORMAT, "9223372036854775808 tensors", "left"}},
        {8, UINT64_MAX, 8, {"n_tensors -1", RKV_E_FORMAT, "18446744073709551615 tensors", "left"}},
        {8, UINT64_C(1) << 32, 8, {"n_tensors 2^32", RKV_E_FORMAT, "4294967296 tensors", "left"}},
        {16, UINT64_C(1) << 63, 8, {"n_kv 2^63", RKV_E_FORMAT, "9223372036854775808 keys", "left"}},
        {16, UINT64_MAX, 8, {"n_kv -1", RKV_E_FORMAT, "18446744073709551615 keys", "left"}},
        {16, UINT64_C(1) << 32, 8, {"n_kv 2^32", RKV_E_FORMAT, "4294967296 keys", "left"}},
    };
    static const fault empty = {"empty", RKV_E_FORMAT, "magic", "the file has 0 bytes"};
    static const fault three = {"3 bytes", RKV_E_FORMAT, "magic", "the file has 3 bytes"};
    static const fault four = {"magic only", RKV_E_FORMAT, "version", "the file has 4 bytes"};
    refused(NULL, 0, &empty);
    refused("GGU", 3, &three);
    refused("GGUF", 4, &four);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        rkv_text t = {0};
        good_file(&t);
        patch_u64(&t, row[i].at, row[i].v, row[i].bytes);
        refused(t.data, t.n, &row[i].f);
        rkv_text_free(&t);
    }
}

/* Files large enough for the counts, which are then over our own limits. */
static void check_limits(void)
{
    static const fault tensors = {"too many tensors", RKV_E_UNSUPPORTED, "262145 tensors",
                                  "at most 262144"};
    static const fault keys = {"too many keys", RKV_E_UNSUPPORTED, "65537 keys", "at most 65536"};
    const size_t n = (size_t)10 << 20;
    char *data = calloc(1, n);
    CHECK(data, "memory");
    memcpy(data, "GGUF\3", 5);
    data[8] = 1, data[10] = 4;                  /* 2^18 + 1 tensors */
    refused(data, n, &tensors);
    data[8] = data[10] = 0;
    data[16] = data[18] = 1;                    /* 2^16 + 1 keys */
    refused(data, n, &keys);
    free(data);

    /* 2^24 + 1 empty strings, in a file with a hole. */
    gguf_writer w = gguf_writer_init();
    gguf_key_array(&w, "words", RKV_GGUF_STRING, (1 << 24) + 1, NULL, 0);
    rkv_text t = {0};
    gguf_head(&w, &t);
    const char *path = scratch_path("hole.gguf");
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(t.data, 1, t.n, f) == t.n && !fclose(f) && !truncate(path, (off_t)150 << 20),
          "%s", path);
    rkv_gguf *g = NULL;
    rkv_error e = {0};
    CHECK(rkv_gguf_open(&g, path, &e) == RKV_E_UNSUPPORTED, "%s", e.text);
    check_message("2^24 + 1 strings", &e, "key 'words'", "16777217 strings");
    unlink(path);
    rkv_text_free(&t);
    gguf_writer_free(&w);
}

/* Items 4 to 6: one key that is wrong, after a good one. */
static void bad_key(const char *name, size_t n_name, uint32_t type, const void *value, size_t bytes,
                    fault f)
{
    gguf_writer w = gguf_writer_init();
    w.alignment = 1;                            /* nothing after the value */
    gguf_key_u32(&w, "first", 1);
    gguf_key_raw(&w, name, n_name, type, value, bytes);
    rkv_text t = {0};
    gguf_file(&w, &t);
    refused(t.data, t.n, &f);
    rkv_text_free(&t);
    gguf_writer_free(&w);
}

static void check_keys(void)
{
    static char long_name[65536];
    memset(long_name, 'k', sizeof long_name);
    bad_key("", 0, 4, "abcd", 4,
            (fault){"empty", RKV_E_FORMAT, "key (#1, at byte 45)", "1 to 65535"});
    bad_key(long_name, 65536, 4, "abcd", 4,
            (fault){"long", RKV_E_FORMAT, "65536 bytes", "1 to 65535"});
    bad_key("a\0b", 3, 4, "abcd", 4, (fault){"NUL", RKV_E_FORMAT, "byte 0x00 at 1", "UTF-8"});
    bad_key("a\xc3(", 3, 4, "abcd", 4, (fault){"UTF-8", RKV_E_FORMAT, "byte 0xc3 at 1", "UTF-8"});
    bad_key("\xed\xa0\x80", 3, 4, "abcd", 4,
            (fault){"surrogate", RKV_E_FORMAT, "0xed at 0", "UTF-8"});
    bad_key("t", 1, 13, "abcd", 4, (fault){"type 13", RKV_E_FORMAT, "value type 13", "0 to 12"});
    bad_key("t", 1, UINT32_MAX, "abcd", 4,
            (fault){"type -1", RKV_E_FORMAT, "type 4294967295", "'t' (#1"});
    bad_key("b", 1, RKV_GGUF_BOOL, "\7", 1,
            (fault){"bool 7", RKV_E_FORMAT, "bool value 7", "0 or 1"});
    bad_key("first", 5, 0, "\7", 1,
            (fault){"twice", RKV_E_FORMAT, "'first' (#1", "as #0 at byte 24"});
    const char huge[8] = {0, 0, 0, 0, 0, 0, 0, 0x40};
    bad_key("s", 1, RKV_GGUF_STRING, huge, 8,
            (fault){"2^62", RKV_E_FORMAT, "4611686018427387904 bytes", "cut short"});
    bad_key("s", 1, RKV_GGUF_STRING, "\3\0\0\0\0\0\0\0ab", 10,
            (fault){"one more than remains", RKV_E_FORMAT, "3 bytes at byte 66", "68 bytes"});
}

static void bad_array(uint32_t type, uint64_t count, const void *value, size_t bytes, fault f)
{
    gguf_writer w = gguf_writer_init();
    gguf_key_array(&w, "list", type, count, value, bytes);
    rkv_text t = {0};
    gguf_file(&w, &t);
    refused(t.data, t.n, &f);
    rkv_text_free(&t);
    gguf_writer_free(&w);
}

static void check_arrays(void)
{
    bad_array(RKV_GGUF_F64, UINT64_C(1) << 61, "12345678", 8,
              (fault){"2^61 doubles", RKV_E_FORMAT, "2305843009213693952 float64", "left"});
    bad_array(RKV_GGUF_U8, UINT64_MAX, "1", 1,
              (fault){"-1 bytes", RKV_E_FORMAT, "uint8 elements", "left"});
    bad_array(RKV_GGUF_STRING, UINT64_C(1) << 61, "12345678", 8,
              (fault){"2^61 strings", RKV_E_FORMAT, "string elements", "left"});
    bad_array(RKV_GGUF_ARRAY, 1, "\0\0\0\0\0\0\0\0\0\0\0\0", 12,
              (fault){"nested", RKV_E_FORMAT, "key 'list' (#0, at byte 24)", "array of arrays"});
    bad_array(13, 1, "1", 1, (fault){"type 13", RKV_E_FORMAT, "array element type 13", "0 to 12"});
    bad_array(RKV_GGUF_BOOL, 3, "\1\0\2", 3,
              (fault){"bool 2", RKV_E_FORMAT, "bool value 2", "element 2"});
    bad_array(RKV_GGUF_STRING, 2, "\1\0\0\0\0\0\0\0a\xff\xff\xff\xff\xff\xff\xff\xff", 17,
              (fault){"long element", RKV_E_FORMAT, "18446744073709551615 bytes", "cut short"});
}

/* Item 7. */
static void bad_alignment(uint32_t type, uint64_t v, fault f)
{
    gguf_writer w = gguf_writer_init();
    rkv_text value = {0}, t = {0};
    gguf_add_u64(&value, v);
    gguf_key_raw(&w, "general.alignment", 17, type, value.data,
                 (size_t)(type == RKV_GGUF_STRING ? 8 : rkv_gguf_type_table[type].bytes));
    gguf_file(&w, &t);
    refused(t.data, t.n, &f);
    rkv_text_free(&value);
    rkv_text_free(&t);
    gguf_writer_free(&w);
}

static void check_alignment(void)
{
    static const char power[] = "a power of two from 1 to 65536";
    bad_alignment(RKV_GGUF_U32, 0, (fault){"0", RKV_E_FORMAT, "alignment 0", power});
    bad_alignment(RKV_GGUF_U32, 3, (fault){"3", RKV_E_FORMAT, "alignment 3", power});
    bad_alignment(RKV_GGUF_U32, 1 << 17, (fault){"2^17", RKV_E_FORMAT, "alignment 131072", power});
    bad_alignment(RKV_GGUF_U32, 1u << 31,
                  (fault){"2^31", RKV_E_FORMAT, "alignment 2147483648", power});
    bad_alignment(RKV_GGUF_I32, 32, (fault){"int32", RKV_E_FORMAT, "type int32", "uint32"});
    bad_alignment(RKV_GGUF_U64, 32, (fault){"uint64", RKV_E_FORMAT, "type uint64", "uint32"});
    bad_alignment(RKV_GGUF_STRING, 0, (fault){"string", RKV_E_FORMAT, "type string", "uint32"});
}

/* Items 8 to 10: tensors "one", good and 32 bytes, then one that is wrong. */
static void bad_tensor(const char *name, uint32_t type, uint32_t n_dim, const uint64_t *dims,
                       uint64_t offset, fault f)
{
    static const uint64_t eight[] = {8};
    gguf_writer w = gguf_writer_init();
    gguf_tensor(&w, "one", 0, 1, eight, 32);
    gguf_tensor_raw(&w, name, strlen(name), type, n_dim, dims, offset);
    w.data_bytes = 64;
    rkv_text t = {0};
    gguf_file(&w, &t);
    refused(t.data, t.n, &f);
    rkv_text_free(&t);
    gguf_writer_free(&w);
}

static void check_shapes(void)
{
    const uint64_t d[] = {8, 1, 1, 1, 1, 1}, zero[] = {8, 0}, minus[] = {UINT64_MAX}, odd[] = {33};
    const uint64_t wraps[] = {(UINT64_C(1) << 42) + 1, UINT64_C(1) << 22},
                   half[] = {UINT64_C(1) << 62};
    const uint64_t blocks[] = {(UINT64_C(1) << 63) - 32}, pad[] = {UINT64_C(0x3ffffffffffffff)};
    bad_tensor("t", 0, 0, d, 32,
               (fault){"n_dims 0", RKV_E_FORMAT, "'t' (#1, at byte 59)", "0 dimensions"});
    bad_tensor("t", 0, 5, d, 32, (fault){"n_dims 5", RKV_E_FORMAT, "5 dimensions", "1 to 4"});
    bad_tensor("t", 0, 2, zero, 32,
               (fault){"dim 0", RKV_E_FORMAT, "dimension 1 is 0", "at least 1"});
    bad_tensor("t", 0, 1, minus, 32,
               (fault){"dim -1", RKV_E_FORMAT, "dimension 0 is -1", "at least 1"});
    bad_tensor("t", 0, 2, wraps, 32,
               (fault){"product", RKV_E_FORMAT, "dimension 1 is 4194304", "2^63"});
    bad_tensor("t", 999, 2, wraps, 32,
               (fault){"product of unknown", RKV_E_FORMAT, "dimension 1", "2^63"});
    bad_tensor("t", 0, 1, half, 32,
               (fault){"bytes", RKV_E_FORMAT, "blocks of 4 bytes", "address space"});
    bad_tensor("t", 8, 1, blocks, 32,
               (fault){"q8_0 bytes", RKV_E_FORMAT, "288230376151711743 blocks of 34 bytes",
                       "address space"});
    bad_tensor("t", 24, 1, d, 1,
               (fault){"unknown at 1", RKV_E_FORMAT, "data offset 1", "multiple of 32"});
    bad_tensor("t", 2, 1, odd, 32,
               (fault){"odd row", RKV_E_FORMAT, "rows of 33", "multiple of 32 (type q4_0)"});
    bad_tensor("t", 12, 1, d, 32,
               (fault){"short row", RKV_E_FORMAT, "rows of 8", "256 (type q4_k)"});
    bad_tensor("t", 0, 1, pad, 32,
               (fault){"huge", RKV_E_FORMAT, "'t' (#1", " bytes"});
}

static void check_places(void)
{
    const uint64_t eight[] = {8}, nine[] = {9};
    char name[65] = {0};
    memset(name, 'n', 64);
    bad_tensor("t", 0, 1, eight, 40,
               (fault){"unaligned", RKV_E_FORMAT, "offset 40", "multiple of 32"});
    bad_tensor("t", 0, 1, eight, 0,
               (fault){"overlap", RKV_E_FORMAT, "offset 0", "'one', which ends at 32"});
    bad_tensor("t", 999, 1, eight, 0,
               (fault){"unknown over", RKV_E_FORMAT, "offset 0", "overlaps"});
    bad_tensor("t", 0, 1, nine, 32, (fault){"past the end", RKV_E_FORMAT, "data ends at 164",
                                            "the file has 160 bytes"});
    bad_tensor("t", 0, 1, eight, 64,
               (fault){"at the end", RKV_E_FORMAT, "ends at 192", "cut short"});
    bad_tensor("t", 0, 1, eight, UINT64_MAX - 31,
               (fault){"offset -32", RKV_E_FORMAT, "18446744073709551584", "the file has"});
    bad_tensor("t", 999, 1, eight, 64,
               (fault){"unknown at the end", RKV_E_FORMAT, "ends at 161", "cut short"});
    bad_tensor("one", 0, 1, eight, 32,
               (fault){"twice", RKV_E_FORMAT, "tensor 'one' (#1", "as #0 of part 1"});
    bad_tensor(name, 0, 1, eight, 32, (fault){"long name", RKV_E_FORMAT, "64 bytes", "1 to 63"});
    bad_tensor("", 0, 1, eight, 32,
               (fault){"no name", RKV_E_FORMAT, "tensor (#1, at byte 59)", "1 to 63"});
    bad_tensor("a\x80", 0, 1, eight, 32, (fault){"name", RKV_E_FORMAT, "byte 0x80 at 1", "UTF-8"});

    /* n_dims 2^32 - 1, and two tensors that stand in the file in falling order. */
    gguf_writer w = gguf_writer_init();
    gguf_tensor_raw(&w, "b", 1, 0, 1, eight, 32);
    gguf_tensor_raw(&w, "a", 1, 0, 1, eight, 0);
    w.data_bytes = 64;
    rkv_text t = {0};
    gguf_file(&w, &t);
    refused(t.data, t.n,
            &(fault){"falling", RKV_E_FORMAT, "tensor 'a' (#1", "overlaps tensor 'b'"});
    patch_u64(&t, 24 + 9, UINT32_MAX, 4);
    refused(t.data, t.n,
            &(fault){"n_dims", RKV_E_FORMAT, "'b' (#0, at byte 24)", "4294967295 dimensions"});
    rkv_text_free(&t);
    gguf_writer_free(&w);
}

/* A tensor that is not known is no fault of the file; one that claims the space of the next one is.
 */
static void check_unknown(void)
{
    rkv_text t = {0};
    rkv_error e = {0};
    good_file(&t);
    CHECK(!gguf_try(t.data, t.n, &e), "%s", e.text);
    rkv_text_free(&t);
}

/* Every prefix is refused, and every flipped bit before the data gives a model or one clear line.
 */
static void check_damage(void)
{
    rkv_text t = {0};
    good_file(&t);
    gguf_writer w = gguf_writer_init();
    put_good(&w);
    rkv_text head = {0};
    gguf_head(&w, &head);
    const size_t n_head = head.n;
    for (size_t n = 0; n < n_head + 48 + 16 + 36 + 1;
         n++) { /* less than the last tensor's first byte */
        rkv_error e = {0};
        const rkv_status s = gguf_try(t.data, n, &e);
        CHECK(s == RKV_E_FORMAT && !strncmp(e.text, "x.gguf: ", 8) && strstr(e.text, "cut short"),
              "prefix of %zu bytes: %d %s", n, s, e.text);
    }
    int good = 0;
    for (size_t i = 0; i < n_head * 8; i++) {
        rkv_error e = {0};
        t.data[i / 8] ^= (char)(1 << i % 8);
        const rkv_status s = gguf_try(t.data, t.n, &e);
        t.data[i / 8] ^= (char)(1 << i % 8);
        good += !s;
        CHECK(!s || ((s == RKV_E_FORMAT || s == RKV_E_UNSUPPORTED) && e.status == s &&
                     !strncmp(e.text, "x.gguf: ", 8)), "bit %zu: %d %s", i, s, e.text);
    }
    CHECK(good > 100 && good < (int)n_head * 8 - 100, "%d of %zu flips were accepted", good,
          n_head * 8);
    rkv_text_free(&head);
    rkv_text_free(&t);
    gguf_writer_free(&w);
}

int main(void)
{
    if (!scratch_make())
        return check_end("gguf_bad");
    check_header();
    check_limits();
    check_keys();
    check_arrays();
    check_alignment();
    check_shapes();
    check_places();
    check_unknown();
    check_damage();
    CHECK(rkv_mem_current() == 0, "%llu bytes leaked", (unsigned long long)rkv_mem_current());
    scratch_remove();
    return check_end("gguf_bad");
}

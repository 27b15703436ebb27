/* The GGUF reader and its surroundings: shards that do not fit together, things that are no files,
 * files that change, failing allocations. */
#include "config.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "gguf_fault.h"
#include "scratch.h"
#include "tiny/gguf_write.h"

/* ---- shards ---- */

typedef struct shard {
    int no, count, n_tensor;
    const char *tensor, *arch;
} shard;

static void write_shard(const char *name, const shard *s)
{
    const uint64_t dims[] = {8};
    gguf_writer w = gguf_writer_init();
    if (s->arch)
        gguf_key_string(&w, "general.architecture", s->arch);
    if (s->count >= 0)
        gguf_key_split(&w, (uint16_t)s->no, (uint16_t)s->count, s->n_tensor);
    gguf_tensor(&w, s->tensor, 0, 1, dims, 32);
    CHECK(gguf_save(&w, scratch_path(name)), "cannot write %s", name);
    gguf_writer_free(&w);
}

static void bad_shards(const char *first_name, shard a, const char *second_name, shard b, fault f)
{
    write_shard(first_name, &a);
    if (second_name)
        write_shard(second_name, &b);
    rkv_gguf *g = NULL;
    rkv_error e = {0};
    const rkv_status s = rkv_gguf_open(&g, scratch_path(first_name), &e);
    CHECK(s == f.status, "%s: %d %s", f.name, s, e.text);
    check_message(f.name, &e, f.first, f.second);
    rkv_gguf_close(g);
    unlink(scratch_path(first_name));
    if (second_name)
        unlink(scratch_path(second_name));
}

static void check_shards(void)
{
    static const char one[] = "m-00001-of-00002.gguf", two[] = "m-00002-of-00002.gguf";
    const shard a = {0, 2, 2, "a", "llama"}, b = {1, 2, 2, "b", NULL};
    shard x;
    bad_shards(one, a, NULL, b, (fault){"missing", RKV_E_IO, two, "part 2 of 2 is missing"});
    bad_shards("m.gguf", a, NULL, b,
               (fault){"name", RKV_E_FORMAT, "m.gguf", "-00001-of-00002.gguf"});
    bad_shards("m-00001-of-00003.gguf", a, NULL, b,
               (fault){"count in name", RKV_E_FORMAT, "part 1 of 2", "-00001-of-00002.gguf"});
    bad_shards("m-0001-of-00002.gguf", a, NULL, b,
               (fault){"digits", RKV_E_FORMAT, "part 1 of 2", "name"});
    bad_shards("m-000-1-of-00002.gguf", a, NULL, b,
               (fault){"sign", RKV_E_FORMAT, "part 1 of 2", "name"});
    bad_shards(two, b, NULL, b,
               (fault){"second", RKV_E_FORMAT, "part 2 of 2", "-00001-of-00002.gguf"});
    x = a, x.no = 2;
    bad_shards(one, x, two, b, (fault){"no", RKV_E_FORMAT, "'split.no'", "2, expected 0 to 1"});
    x = b, x.count = 3;
    bad_shards(one, a, two, x, (fault){"count", RKV_E_FORMAT, two, "'split.count' (#1"});
    x = b, x.no = 0;
    bad_shards(one, a, two, x, (fault){"its number", RKV_E_FORMAT, "'split.no'", "0, expected 1"});
    x = b, x.n_tensor = 3;
    bad_shards(one, a, two, x,
               (fault){"its total", RKV_E_FORMAT, "'split.tensors.count'", "3, expected 2"});
    x = b, x.count = -1;
    bad_shards(one, a, two, x, (fault){"no keys", RKV_E_FORMAT, two, "'split.no' is missing"});
    x = b, x.arch = "qwen2";
    bad_shards(one, a, two, x, (fault){"another model", RKV_E_FORMAT, two, "another model"});
    x = b, x.tensor = "a";
    bad_shards(one, a, two, x, (fault){"same tensor", RKV_E_FORMAT, two, "as #0 of part 1"});
    x = a, x.n_tensor = 3;
    shard y = b;
    y.n_tensor = 3;
    bad_shards(one, x, two, y,
               (fault){"total", RKV_E_FORMAT, "2 tensors in 2 parts", "expected 3"});
    x.n_tensor = -1;
    bad_shards(one, x, two, y,
               (fault){"-1", RKV_E_FORMAT, "'split.tensors.count'", "-1, expected 0"});
    /* A folder in the place of a shard. */
    CHECK(!mkdir(scratch_path(two), 0700), "mkdir");
    bad_shards(one, a, NULL, b, (fault){"folder", RKV_E_IO, two, "not a regular file"});
    rmdir(scratch_path(two));
}

/* ---- what is no file, and no memory ---- */

static void no_file(const char *path, const char *expected)
{
    rkv_gguf *g = NULL;
    rkv_error e = {0};
    CHECK(rkv_gguf_open(&g, path, &e) == RKV_E_IO && !g, "%s is opened", path);
    check_message(path, &e, path, expected);
}

static void check_no_files(void)
{
    /* The reason stands in the message, however long the path. */
    char path[1200];
    rkv_gguf *g = NULL;
    rkv_error e = {0};
    memset(path, 'd', sizeof path);
    snprintf(path + 1000, sizeof path - 1000, "/model.gguf");
    CHECK(rkv_gguf_open(&g, path, &e) == RKV_E_IO, "%s", e.text);
    check_message("long path", &e, "ddd/model.gguf: cannot open: ", "too long");
    no_file("/dev/zero", "not a regular file");
    no_file(scratch_dir, "not a regular file");
    no_file(scratch_path("none"), "cannot open");
    const char *fifo = scratch_path("fifo");
    CHECK(!mkfifo(fifo, 0600), "mkfifo");
    no_file(fifo, "not a regular file");
    unlink(fifo);
}

/* A file with a hole of 2^60 bytes, where the file system has such files. */
static void check_too_large(void)
{
    char path[] = "/dev/shm/rkv-gguf-XXXXXX";
    const int fd = mkstemp(path);
    if (fd < 0 || ftruncate(fd, (off_t)(sizeof(off_t) > 4 ? INT64_C(1) << 60 : 0))) {
        SKIP(1, "no file of 2^60 bytes in /dev/shm");
    } else {
        rkv_gguf *g = NULL;
        rkv_error e = {0};
        CHECK(rkv_gguf_open(&g, path, &e) == RKV_E_MEM && !g, "%s", e.text);
        check_message("2^60 bytes", &e, path, "1152921504606846976 bytes");
    }
    if (fd >= 0) {
        close(fd);
        unlink(path);
    }
}

/* The size is looked at again after everything has been read: a file that shrank is refused. What
 * shrinks later raises SIGBUS, as map.h says. */
static void check_shrinking(void)
{
    const char *path = scratch_path("shrinks");
    FILE *f = fopen(path, "wb");
    CHECK(f && fputs("some bytes", f) >= 0 && !fclose(f), "%s", path);
    rkv_map m;
    rkv_error e = {0};
    CHECK(!rkv_map_open(&m, path, &e) && m.size == 10 && !memcmp(m.data, "some bytes", 10), "%s",
          e.text);
    CHECK(!truncate(path, 4), "truncate");
    CHECK(rkv_map_confirm(&m, path, &e) == RKV_E_IO, "not seen");
    check_message("shrunk", &e, path, "changed from 10 to 4 bytes");
    CHECK(!rkv_map_confirm(&m, path, &e), "the second call does nothing");
    rkv_map_close(&m);
    CHECK(!truncate(path, 0) && !rkv_map_open(&m, path, &e) && m.size == 0 &&
          !rkv_map_confirm(&m, path, &e), "%s", e.text);
    rkv_map_close(&m);
    unlink(path);
}

static int count_fds(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

/* Fails the k-th allocation and all after it, for k = 1, 2, ... until the file opens and is copied.
 * A failed copy changes nothing. */
static void check_memory(void)
{
    static const char one[] = "o-00001-of-00002.gguf", two[] = "o-00002-of-00002.gguf";
    const shard b = {1, 2, 4, "b", NULL};
    const char *const words[] = {"a", "bc"};
    const uint64_t three[] = {3};
    gguf_writer w = gguf_writer_init();
    w.alignment = 4;
    gguf_key_u32(&w, "general.alignment", 4);
    gguf_key_strings(&w, "words", words, 2);
    gguf_key_split(&w, 0, 2, 4);
    gguf_tensor(&w, "x", 0, 1, three, 12);
    gguf_tensor(&w, "y", 0, 1, three, 12);      /* this one or the first has to be copied */
    gguf_tensor(&w, "z", 99, 1, three, 12);
    CHECK(gguf_save(&w, scratch_path(one)), "cannot write %s", one);
    write_shard(two, &b);
    gguf_writer_free(&w);

    const uint64_t before = rkv_mem_current();
    const int fds = count_fds();
    rkv_gguf *g = NULL;
    rkv_status s = RKV_E_MEM;
    for (long k = 1; k < 1000 && s; k++) {
        rkv_error e = {0};
        rkv_mem_fail_after(k);
        s = rkv_gguf_open(&g, scratch_path(one), &e);
        if (!s && (s = rkv_gguf_copy(g, NULL, &e))) {
            const rkv_tensor *b_data = rkv_gguf_tensor(g, "b");
            CHECK(b_data && b_data->bytes == 32 && rkv_gguf_has(g, "words"), "still there");
            rkv_gguf_close(g);
            g = NULL;
        }
        rkv_mem_fail_after(0);
        CHECK(!s || (s == RKV_E_MEM && !g && strstr(e.text, "out of memory") &&
                     rkv_mem_current() == before && count_fds() == fds),
              "allocation %ld: %d %s, %llu bytes, %d descriptors", k, s, e.text,
              (unsigned long long)(rkv_mem_current() - before), count_fds() - fds);
        if (!s)
            CHECK(k > 10 && rkv_gguf_n_tensor(g) == 4 && count_fds() == fds,
                  "after %ld allocations: %d descriptors are held", k, count_fds() - fds);
    }
    CHECK(!s, "never opened");
    rkv_gguf_close(g);
    CHECK(rkv_mem_current() == before && count_fds() == fds, "leaked");
    unlink(scratch_path(one));
    unlink(scratch_path(two));
}

int main(void)
{
    if (!scratch_make())
        return check_end("gguf_files");
    check_shards();
    check_no_files();
    check_too_large();
    check_shrinking();
    check_memory();
    CHECK(rkv_mem_current() == 0, "%llu bytes leaked", (unsigned long long)rkv_mem_current());
    scratch_remove();
    return check_end("gguf_files");
}

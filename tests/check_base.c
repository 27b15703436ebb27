/* Memory, JSON, text, the pinned generator. */
#include "config.h"
#include "check.h"

#include <math.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef HAVE_SQLITE
#include "base/db.h"
#endif
#include "base/json.h"
#include "base/mem.h"
#include "noise.h"
#include "base/thread.h"
#include "f16.h"
#include "rkv.h"

/* METHOD section 7, row "generator". */
static void check_noise(void)
{
    CHECK(rkv_noise_key(0, 0, 0) == UINT64_C(6238072747940578789), "key(0,0,0)");
    CHECK(rkv_noise_key(3, 2, 17) == UINT64_C(4780042144263421312), "key(3,2,17)");
    const double want[] = {-0.527811906779536, 1.2314283841015077, -1.4742856270537026};
    double got[3];
    rkv_noise_normal(got, rkv_noise_key(0, 0, 0), 0, 3);
    for (int i = 0; i < 3; i++)
        CHECK(fabs(got[i] - want[i]) < 1e-14, "element %d is %.17g", i, got[i]);
    rkv_noise_normal(got, rkv_noise_key(3, 2, 17), 0, 1);
    CHECK(fabs(got[0] - -0.9472830275295018) < 1e-14, "%.17g", got[0]);
    double apart;                               /* a stream may be entered anywhere */
    rkv_noise_normal(&apart, rkv_noise_key(0, 0, 0), 2, 1);
    CHECK(fabs(apart - want[2]) < 1e-14, "%.17g", apart);
    double sum = 0.0, square = 0.0, some[1000];
    for (int i = 0; i < 100; i++) {
        rkv_noise_normal(some, rkv_noise_key(7, 1, 3), (uint64_t)i * 1000, 1000);
        for (int j = 0; j < 1000; j++)
            sum += some[j], square += some[j] * some[j];
    }
    CHECK(fabs(sum / 1e5) < 0.02 && fabs(square / 1e5 - 1.0) < 0.03, "mean %g, variance %g",
          sum / 1e5, square / 1e5);
}

static void check_f16(void)
{
    int bad = 0;
    for (uint32_t h = 0; h < 0x10000; h++) {    /* every half goes to float and back unchanged */
        const float f = rkv_f16_to_f32((uint16_t)h);
        const uint16_t back = rkv_f32_to_f16(f);
        if (f != f)
            bad += (back & 0x7c00) != 0x7c00 || !(back & 0x3ff);
        else
            bad += back != h;
    }
    CHECK(bad == 0, "%d halves changed", bad);
    CHECK(rkv_f32_to_f16(65519.0f) == 0x7bff && rkv_f32_to_f16(65520.0f) == 0x7c00, "overflow");
    CHECK(rkv_f32_to_f16(1.0f + 0x1p-11f) == 0x3c00, "tie goes to even");
    CHECK(rkv_f32_to_f16(1.0f + 0x3p-11f) == 0x3c02, "tie goes to even");
    CHECK(rkv_f32_to_f16(-0x1p-25f) == 0x8000 && rkv_f32_to_f16(0x1.8p-25f) == 1, "smallest");
    CHECK(rkv_f32_to_bf16(1.0f + 0x1p-8f) == 0x3f80 && rkv_bf16_to_f32(0x4049) == 3.140625f,
          "bf16");
}

static void check_mem(void)
{
    const uint64_t before = rkv_mem_current();
    char *p = rkv_mem_alloc(100), *big = rkv_mem_alloc((size_t)8 << 20);
    CHECK(p && big && !((uintptr_t)p % 64) && !((uintptr_t)big % 64), "alignment");
    CHECK(rkv_mem_current() == before + 100 + (8 << 20), "accounting");
    p = rkv_mem_realloc(p, 200);
    rkv_mem_free(p);
    rkv_mem_free(big);
    CHECK(rkv_mem_current() == before && rkv_mem_peak() >= before + (8 << 20), "after free");
    CHECK(!rkv_mem_alloc(SIZE_MAX) && !rkv_mem_calloc(SIZE_MAX / 2, 3), "overflow is refused");
    rkv_mem_fail_after(2);
    void *first = rkv_mem_alloc(1), *second = rkv_mem_alloc(1), *third = rkv_mem_alloc(1);
    rkv_mem_fail_after(0);
    CHECK(first && !second && !third, "the second and all later ones fail");
    rkv_mem_free(first);
    uint64_t total = 0;
    const uint64_t left = rkv_mem_available(&total);
    CHECK(left > 0 && left <= total, "%llu of %llu", (unsigned long long)left,
          (unsigned long long)total);
    CHECK(rkv_thread_available() >= 1 && rkv_thread_count(3) >= 1, "threads");
}

static void put(const char *folder, const char *name, const char *text)
{
    char path[200];
    for (const char *slash = strchr(name, '/'); slash; slash = strchr(slash + 1, '/')) {
        snprintf(path, sizeof path, "%s/%.*s", folder, (int)(slash - name), name);
        mkdir(path, 0777);
    }
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    fputs(text, f);
    fclose(f);
}

/* Groups in a folder of ours: which limit holds, and what is not in the way. */
static void check_cgroups(void)
{
    char folder[] = "/tmp/rkv-cgroup-XXXXXX", listing[64], command[64];
    CHECK(mkdtemp(folder) != NULL, "%s", folder);
    snprintf(listing, sizeof listing, "%s/listing", folder);
    put(folder, "a/b/memory.max", "max\n");
    put(folder, "a/b/memory.current", "500\n");
    put(folder, "a/memory.max", "10000\n");
    put(folder, "a/memory.current", "9000\n");
    put(folder, "a/memory.stat", "anon 600\ninactive_file 3000\nactive_file 400\n");
    put(folder, "memory/c/memory.limit_in_bytes", "9223372036854771712\n");
    put(folder, "memory/c/memory.usage_in_bytes", "900\n");
    put(folder, "memory/memory.limit_in_bytes", "7000\n");
    put(folder, "memory/memory.usage_in_bytes", "6000\n");
    put(folder, "memory/memory.stat", "inactive_file 5\ntotal_inactive_file 1000\n");
    static const struct {
        const char *listing;
        uint64_t left, limit;
    } cases[] = {
        {"0::/a/b\n", 4400, 10000},                 /* of the group above; cache makes room */
        {"0::/gone/b\n", UINT64_MAX, UINT64_MAX},
        {"0::/../a\n", UINT64_MAX, UINT64_MAX},
        {"0::/\n", UINT64_MAX, UINT64_MAX},
        {"3:cpu,memory:/c\n", 2000, 7000},
        {"4:memory:/only/outside\n0::/a\n", 2000, 7000},
        {"3:memoryless:/c\n5:cpu:/\nnonsense\n", UINT64_MAX, UINT64_MAX},
        {"", UINT64_MAX, UINT64_MAX},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t limit = 0;
        put(folder, "listing", cases[i].listing);
        const uint64_t left = rkv_mem_cgroup_left(listing, folder, &limit);
        CHECK(left == cases[i].left && limit == cases[i].limit, "%s: %llu of %llu",
              cases[i].listing, (unsigned long long)left, (unsigned long long)limit);
    }
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK(!system(command), "%s", command);
}

static void check_huge_pages(void)
{
    char folder[] = "/tmp/rkv-huge-XXXXXX", path[64];
    CHECK(mkdtemp(folder) != NULL, "%s", folder);
    snprintf(path, sizeof path, "%s/enabled", folder);
    CHECK(!rkv_mem_huge_pages(path), "no such file");
    static const struct { const char *text; int yes; } cases[] = {
        {"always [madvise] never\n", 1}, {"[always] madvise never\n", 1},
        {"always madvise [never]\n", 0}, {"", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put(folder, "enabled", cases[i].text);
        CHECK(rkv_mem_huge_pages(path) == cases[i].yes, "%s", cases[i].text);
    }
    unlink(path);
    rmdir(folder);
}

/* Limits of this process, in a child: they cannot be taken back. */
static void check_limits(void)
{
    static const int limits[] = {RLIMIT_AS, RLIMIT_DATA};
    for (int i = 0; i < 2; i++) {
        const pid_t pid = fork();
        if (!pid) {
            const uint64_t room = 64 << 20;
            struct rlimit r = {1 << 30, 1 << 30}, got;
            if (setrlimit(limits[i], &r) || getrlimit(limits[i], &got) ||
                got.rlim_cur != r.rlim_cur)
                _exit(77);
            const uint64_t before = rkv_mem_available(NULL);
            void *p = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            const uint64_t after = rkv_mem_available(NULL);
            _exit(p == MAP_FAILED || before >= 1 << 30 || before - after < room);
        }
        int status = -1;
        waitpid(pid, &status, 0);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
            SKIP(1, "limit #%d cannot be set here (as under qemu-user)", i);
        else
            CHECK(status == 0, "limit #%d is not seen", i);
    }
}

static void check_refused(const char *text, const char *expected)
{
    cJSON *t = NULL;
    rkv_error e = {0};
    const rkv_status s = rkv_json_parse(&t, text, strlen(text), "x.json", &e);
    CHECK(s == RKV_E_FORMAT && strstr(e.text, expected), "%s gives '%s'", text, e.text);
    if (!s)
        cJSON_Delete(t);
}

static void check_json(void)
{
    check_refused("", "not JSON");
    check_refused("{\"a\":1,\"a\":2}", "occurs twice");
    check_refused("{} x", "trailing text");
    check_refused("{'a':1}", "not JSON");
    check_refused("[1e999]", "out of range");
    check_refused("{\"a\":NaN}", "not JSON");
    check_refused("{\"a\":\"\xe9 \"}", "not UTF-8 at byte 6");
    check_refused("\"\xed\xa0\x80\"", "not UTF-8 at byte 1");
    char deep[400];
    memset(deep, '[', 200);
    memset(deep + 200, ']', 199);
    deep[399] = 0;
    check_refused(deep, "not JSON");
    deep[399] = ']';
    cJSON *t = NULL;
    rkv_error e = {0};
    static const struct {
        const char *text;
        size_t n;
        int accepted;
    } nul[] = {{"{}\0{}", 5, 0}, {"{}\0", 3, 0}, {"\"a\0b\"", 5, 0}, {"\"a\\u0000b\"", 10, 0},
               {"{\"\\u0000\":1}", 12, 0}, {"\"\\\\\\u0000\"", 10, 0}, {"\"\\u0000\"", 8, 0},
               {"\"\\\\u0000\"", 9, 1}, {"\"\\u00000\"", 9, 0}, {"\"\\u0001\"", 8, 1},
               {"\"\\u000\"", 7, 0}, {"\"u0000\"", 7, 1}};
    for (size_t i = 0; i < sizeof nul / sizeof *nul; i++) {
        t = NULL;
        const rkv_status got = rkv_json_parse(&t, nul[i].text, nul[i].n, "x", &e);
        CHECK(got == (nul[i].accepted ? RKV_OK : RKV_E_FORMAT), "%s: %s", nul[i].text, e.text);
        if (!got)
            cJSON_Delete(t);
    }
    CHECK(rkv_json_parse(&t, deep, 400, "x", &e) == RKV_E_FORMAT && strstr(e.text, "nested"), "%s",
          e.text);

    char *many = malloc(20000), *at = many; /* 1025 keys */
    for (int i = 0; i < 1025; i++)
        at += sprintf(at, "%s\"%d\":0", i ? "," : "{", i);
    check_refused(strcat(many, "}"), "more than 1024 keys");
    free(many);

    const char *ok = " {\"n\": 3, \"s\": \"x\", \"ids\": [0, 5, 9], \"f\": 1.5} \n";
    CHECK(!rkv_json_parse(&t, ok, strlen(ok), "x", &e), "%s", e.text);
    int n = 0;
    double f = 0.0;
    const char *s = NULL;
    CHECK(!rkv_json_int(&n, t, "n", 0, 9, "x", &e) && n == 3, "%s", e.text);
    CHECK(rkv_json_int(&n, t, "n", 4, 9, "x", &e) == RKV_E_FORMAT, "range");
    CHECK(rkv_json_int(&n, t, "f", 0, 9, "x", &e) == RKV_E_FORMAT, "whole number");
    CHECK(rkv_json_int(&n, t, "none", 0, 9, "x", &e) == RKV_E_FORMAT && strstr(e.text, "missing"),
          "missing");
    CHECK(rkv_json_has(t, "ids") && !rkv_json_has(t, "IDS"), "keys have a case");
    CHECK(!rkv_json_number(&f, t, "f", 0, 9, "x", &e) && f == 1.5, "%s", e.text);
    CHECK(!rkv_json_string(&s, t, "s", "x", &e) && !strcmp(s, "x"), "%s", e.text);
    const cJSON *a = NULL;
    int32_t *ids = NULL;
    size_t n_id = 0;
    CHECK(!rkv_json_array(&a, t, "ids", "x", &e) && !rkv_json_ids(&ids, &n_id, a, 10, "x", &e),
          "%s", e.text);
    CHECK(n_id == 3 && ids[2] == 9, "ids");
    rkv_mem_free(ids);
    CHECK(rkv_json_ids(&ids, &n_id, a, 9, "x", &e) == RKV_E_FORMAT, "9 is out of range");
    cJSON_Delete(t);
}

static void check_text(void)
{
    rkv_text t = {0};
    rkv_text_json(&t, "a\"\\\n\x01\xff\xc3\xa9\xed\xa0\x80", 11);
    CHECK(
        !strcmp(t.data,
                "\"a\\\"\\\\\\n\\u0001\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""),
        "%s", t.data);
    rkv_text_free(&t);
    const double some[] = {0.1, 1.0 / 3.0, 1e-300, 12345678901234567.0, -0.0, 5e-324};
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        rkv_text_number(&t, some[i]);
        CHECK(strtod(t.data, NULL) == some[i], "%s", t.data);
        rkv_text_free(&t);
    }
    rkv_text_number(&t, NAN);
    CHECK(!strcmp(t.data, "null"), "%s", t.data);
    rkv_text_free(&t);
    for (int i = 0; i < 1000; i++)
        rkv_text_printf(&t, "%d,", i);
    CHECK(t.n == 3890 && !t.bad && !strncmp(t.data + t.n - 4, "999,", 4), "%zu", t.n);
    rkv_text_free(&t);

    rkv_error e = {0};
    char path[] = "/tmp/rkv-check-XXXXXX", *back = NULL;
    const int fd = mkstemp(path);
    CHECK(fd >= 0, "mkstemp");
    close(fd);
    size_t n = 0;
    CHECK(!rkv_file_replace(path, "hello", 5, &e), "%s", e.text);
    CHECK(!rkv_json_read_file(&back, &n, path, 100, &e) && n == 5 && !strcmp(back, "hello"), "%s",
          e.text);
    rkv_mem_free(back);
    CHECK(rkv_json_read_file(&back, &n, path, 4, &e) == RKV_E_FORMAT, "too large");
    struct stat st;
    char link[] = "/tmp/rkv-check-link-XXXXXX";
    const int at = mkstemp(link);
    close(at);
    unlink(link);
    CHECK(!chmod(path, 0604) && !symlink(path, link), "a link");
    CHECK(!rkv_file_replace(link, "more", 4, &e), "%s", e.text);
    CHECK(!lstat(link, &st) && S_ISLNK(st.st_mode), "the link stays one");
    CHECK(!lstat(path, &st) && S_ISREG(st.st_mode) && st.st_size == 4, "its file is written");
    CHECK((st.st_mode & 07777) == 0604, "with its mode, not %o", (unsigned)st.st_mode);
    unlink(link);
    CHECK(rkv_json_read_file(&back, &n, "/dev/zero", 4, &e) == RKV_E_IO, "not a regular file");
    CHECK(rkv_file_replace("/nonexistent/x", "", 0, &e) == RKV_E_WRITE, "no folder");
    unlink(path);
    rkv_fail(&e, RKV_E_FORMAT, "two\nlines\x1b");
    CHECK(!strcmp(e.text, "two?lines?"), "%s", e.text);
}

enum { N_WRITER = 4, N_WRITE = 50 };

static void *write_often(void *arg)
{
    const char *path = arg;
    char text[100];
    rkv_error e = {0};
    uintptr_t failed = 0;
    memset(text, 'x', sizeof text);
    for (int i = 0; i < N_WRITE; i++)
        failed += rkv_file_replace(path, text, sizeof text, &e) != RKV_OK;
    return (void *)failed;
}

/* Writers of one file do not take each other's temporary names, whatever process left one there. */
static void check_writers(void)
{
    char folder[] = "/tmp/rkv-writers-XXXXXX", path[64], left[96];
    CHECK(mkdtemp(folder) != NULL, "%s", folder);
    snprintf(path, sizeof path, "%s/out", folder);
    snprintf(left, sizeof left, "%s.tmp.%ld.0", path, (long)getpid());
    fclose(fopen(left, "w"));
    pthread_t writer[N_WRITER];
    uintptr_t failed = 0;
    for (int i = 0; i < N_WRITER; i++)
        pthread_create(&writer[i], NULL, write_often, path);
    for (int i = 0; i < N_WRITER; i++) {
        void *n;
        pthread_join(writer[i], &n);
        failed += (uintptr_t)n;
    }
    char *back = NULL;
    size_t n = 0;
    rkv_error e = {0};
    CHECK(failed == 0, "%d of %d writes failed", (int)failed, N_WRITER * N_WRITE);
    CHECK(!rkv_json_read_file(&back, &n, path, 1000, &e) && n == 100, "%zu bytes: %s", n, e.text);
    rkv_mem_free(back);
    unlink(path);
    CHECK(!unlink(left), "the file of another process stays");
    CHECK(!rmdir(folder), "no temporary file stays");
}

static void *look_at_machine(void *arg)
{
    rkv_machine_info i;
    rkv_error e = {0};
    uintptr_t other = 0;
    (void)arg;
    for (int k = 0; k < 20; k++) {
        char before[256];
        if (rkv_machine_get_info(&i, &e))
            return (void *)(uintptr_t)1;
        snprintf(before, sizeof before, "%s", i.cpu);
        if (rkv_machine_get_info(&i, &e))
            return (void *)(uintptr_t)1;
        other += strcmp(before, i.cpu) != 0;
    }
    return (void *)other;
}

/* The machine's description is the same for all who ask at once (a data race shows under the thread
 * sanitizer). */
static void check_machine(void)
{
    pthread_t thread[N_WRITER];
    uintptr_t other = 0;
    for (int i = 0; i < N_WRITER; i++)
        pthread_create(&thread[i], NULL, look_at_machine, NULL);
    for (int i = 0; i < N_WRITER; i++) {
        void *n;
        pthread_join(thread[i], &n);
        other += (uintptr_t)n;
    }
    CHECK(other == 0, "%d differ", (int)other);
}

/* What a failure of SQLite comes to, of a read and of a write. */
static void check_db(void)
{
#ifdef HAVE_SQLITE
    sqlite3 *db;
    const int opened = sqlite3_open(":memory:", &db);
    CHECK(!opened && !rkv_db_set_up(db, "CREATE TABLE x (a INTEGER PRIMARY KEY)"), "a new one");
    CHECK(rkv_db_status(NULL, 0) == RKV_E_MEM && rkv_db_status(NULL, 1) == RKV_E_MEM, "none");
    CHECK(sqlite3_exec(db, "SELECT b FROM x", NULL, NULL, NULL), "other columns");
    CHECK(rkv_db_status(db, 0) == RKV_E_FORMAT && rkv_db_status(db, 1) == RKV_E_FORMAT, "format");
    CHECK(sqlite3_exec(db, "INSERT INTO x VALUES (1); INSERT INTO x VALUES (1)", NULL, NULL, NULL),
          "a row twice");
    CHECK(rkv_db_status(db, 0) == RKV_E_IO && rkv_db_status(db, 1) == RKV_E_WRITE, "by writes");
#if SQLITE_VERSION_NUMBER >= 3031000
    sqlite3_hard_heap_limit64(sqlite3_memory_used());
    const int no_room = sqlite3_exec(db, "INSERT INTO x VALUES (2)", NULL, NULL, NULL);
    const rkv_status read = rkv_db_status(db, 0), written = rkv_db_status(db, 1);
    sqlite3_hard_heap_limit64(0);
    CHECK(no_room && read == RKV_E_MEM && written == RKV_E_MEM, "no memory: %d %d", read, written);
#else
    SKIP(1, "an SQLite without a limit of its memory");
#endif
    sqlite3_close(db);
#else
    SKIP(7, "no SQLite in this build");
#endif
}

int main(void)
{
    check_db();
    check_noise();
    check_f16();
    check_mem();
    check_cgroups();
    check_huge_pages();
    if (CHECK_SANITIZED)
        SKIP(2, "sanitizers need their address space");
    else
        check_limits();
    check_json();
    check_text();
    check_writers();
    check_machine();
    return check_end("base");
}

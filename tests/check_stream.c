/* Load mode "stream": a model much larger than its bound of memory gives the same bits within it,
 * and the bound's arithmetic says so before. */
#include "config.h"
#include "made.h"
#include "scratch.h"
#include "status.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>

#include "base/mem.h"
#include "engine/bound.h"
#include "file/map.h"

enum { N = 60, MORE = 4, MOST = 8, CANNOT = 77 };

static int32_t ids[N + MORE];
static rkv_error e;
static char path[512];

static void must(rkv_status s)
{
    if (s) {
        fprintf(stderr, "unexpected: %s\n", e.text);
        exit(1);
    }
}

static rkv_model *load(const char *mode)
{
    rkv_model_options o = rkv_model_options_default();
    rkv_model *m = NULL;
    o.load = mode;
    must(rkv_model_load_with(&m, path, &o, &e));
    return m;
}

static rkv_session *make(const rkv_model *m)
{
    rkv_session_options o = rkv_session_options_default();
    rkv_session *s;
    o.n_ctx = N + MORE;
    o.n_thread = 1;
    must(rkv_session_create(&s, m, &o, &e));
    return s;
}

static uint64_t digest(uint64_t h, const void *p, size_t n)
{
    for (const unsigned char *b = p; n--; b++)
        h = (h ^ *b) * 1099511628211u;
    return h;
}

static int add_rows(void *ctx, int64_t i0, int n_row, const float *logits)
{
    const rkv_session *s = ((void **)ctx)[1];
    uint64_t *h = ((void **)ctx)[0];
    (void)i0;
    *h = digest(*h, logits, (size_t)n_row * (size_t)s->m->config.n_vocab * sizeof *logits);
    return 0;
}

static uint64_t look(uint64_t h, const rkv_session *s)
{
    return digest(h, s->logits, (size_t)s->m->config.n_vocab * sizeof *s->logits);
}

/* All ways through the weights: rows of a prompt, a prompt of one token, decode of one and two. */
static uint64_t answers(const rkv_model *m)
{
    rkv_session *s[2] = {make(m), make(m)};
    uint64_t h = 1;
    void *ctx[2] = {&h, s[0]};
    must(rkv_session_score(s[0], ids, N, N - 3, add_rows, ctx, &e));
    must(rkv_session_prefill(s[1], ids, 1, &e));
    for (int i = 0; i < MORE; i++) {
        const int32_t id[2] = {ids[N + i], ids[i + 1]};
        must(rkv_sessions_decode(s, id, 1 + (size_t)i % 2, &e));
        h = look(look(h, s[0]), s[1]);
    }
    rkv_session_free(s[0]);
    rkv_session_free(s[1]);
    return h;
}

/* ---- what the process and the system hold ---- */

/* Bytes of the file that the system has in memory. */
static uint64_t cached(void)
{
    struct stat st;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const int fd = open(path, O_RDONLY);
    if (fd < 0 || fstat(fd, &st))
        exit(1);
    const size_t size = (size_t)st.st_size, n = (size + page - 1) / page;
    void *map = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    unsigned char *in = malloc(n);
    uint64_t pages = 0;
    if (map == MAP_FAILED || mincore(map, size, in))
        exit(1);
    for (size_t i = 0; i < n; i++)
        pages += in[i] & 1;
    munmap(map, size);
    free(in);
    close(fd);
    return pages * page;
}

/* Writes what the file system has not written yet, and empties its cache of the file. */
static void settle(void)
{
    const int fd = open(path, O_RDONLY);
    if (fd < 0 || fsync(fd) || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED))
        exit(1);
    close(fd);
}

/* ---- in a child each ---- */

static uint64_t *want;  /* answers of the mapped model, in memory that children share */

static int in_child(int (*test)(void))
{
    fflush(NULL);
    const pid_t pid = fork();
    if (!pid)
        _exit(test());
    int status = -1;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int complain(const char *what, double mib, double most)
{
    fprintf(stderr, "%s: %.1f MiB, at most %.1f\n", what, mib / 0x1p20, most / 0x1p20);
    return mib > most;
}

static int answer_mapped(void)
{
    rkv_model *m = load("mmap");
    *want = answers(m);
    rkv_model_free(m);
    return 0;
}

/* Weights leave no trace: neither in the process nor in the system's cache. */
static int lets_go(void)
{
    settle();
    if (cached() > 1 << 20)
        return CANNOT;
    rkv_model *m = load("stream");
    const uint64_t slack = 8 << 20, text = 2 << 20;
    int bad = complain("cached after loading", (double)cached(), (double)(text + slack / 2));
    const uint64_t before = status_bytes("VmRSS:");
    if (answers(m) != *want)
        return 1;
    bad |= complain("cached after use", (double)cached(), (double)(text + slack / 2));
    const uint64_t now = status_bytes("VmRSS:"), peak = status_bytes("VmHWM:");
    bad |= complain("stays", (double)now - (double)before, (double)slack);
    bad |= complain("peak", (double)peak - (double)before,
                    (double)(rkv_model_stream_bytes(m) + rkv_mem_peak() - rkv_mem_current() +
                             slack));
    rkv_model_free(m);
    return bad;
}

/* When a layer begins, it and the next one come, though nobody touches them. */
static int reads_ahead(void)
{
    settle();
    rkv_model *m = load("stream");
    const uint64_t both = rkv_model_layer_bytes(m, 0) + rkv_model_layer_bytes(m, 1);
    const uint64_t before = cached(), enough = before + both / 10 * 9;
    if (before > both)
        return CANNOT;
    rkv_model_layer_begin(m, 0);
    for (int i = 0; i < 1000 && cached() < enough; i++) {
        const struct timespec t = {0, 10000000};
        nanosleep(&t, NULL);
    }
    const uint64_t now = cached();
    fprintf(stderr, "read ahead: %.1f MiB of %.1f\n", (double)(now - before) / 0x1p20,
            (double)both / 0x1p20);
    rkv_model_free(m);
    return now < enough;
}

/* As many prompts together as a third of the file bounds. */
static int stays_within(void)
{
    struct stat st;
    settle();
    if (stat(path, &st))
        return 1;
    const uint64_t bound = (uint64_t)st.st_size / 3;
    rkv_model *m = load("stream");
    rkv_session *s[MOST] = {make(m)};
    const int32_t *prompt[MOST], next[MOST] = {0};
    size_t n[MOST];
    int count = 0, streams = 0;
    const rkv_bound b = rkv_bound_of(s[0], N, MORE, N);
    /* beside the library: the program itself, and pages that the kernel maps around used ones */
    const uint64_t program = status_bytes("VmRSS:") - rkv_mem_current() + (4 << 20);
    must(rkv_bound_fit(&count, &streams, &b, MOST, bound - program, &e));
    for (int i = 1; i < count; i++)
        s[i] = make(m);
    for (int i = 0; i < count; i++)
        prompt[i] = ids, n[i] = N;
    must(rkv_sessions_prefill(s, prompt, n, (size_t)count, &e));
    for (int i = 0; i < MORE; i++)
        must(rkv_sessions_decode(s, next, (size_t)count, &e));
    const uint64_t peak = status_bytes("VmHWM:");
    fprintf(stderr, "%d examples of %d tokens, file %.1f MiB\n", count, N,
            (double)st.st_size / 0x1p20);
    const int bad = complain("peak under a bound", (double)peak, (double)bound) || !streams ||
                    count < 2;
    for (int i = 0; i < count; i++)
        rkv_session_free(s[i]);
    rkv_model_free(m);
    return bad;
}

/* ---- several users ---- */

static void *use(void *m)
{
    return answers(m) == *want ? NULL : m;
}

static void check_shared(void)
{
    rkv_model *m = load("stream");
    pthread_t t[3];
    for (int i = 0; i < 3; i++)
        if (pthread_create(&t[i], NULL, use, m))
            exit(1);
    for (int i = 0; i < 3; i++) {
        void *got;
        pthread_join(t[i], &got);
        CHECK(!got, "thread %d: other logits", i);
    }
    rkv_model_free(m);
}

/* ---- the bound ---- */

/* What a batch takes at its peak, counted: never more than said, and not much less. */
static void check_bound(const rkv_model *m, int count)
{
    rkv_session *s[MOST] = {make(m)};
    const int32_t *prompt[MOST], next[MOST] = {0};
    size_t n[MOST];
    const rkv_bound b = rkv_bound_of(s[0], N, MORE, 0);
    const uint64_t head = rkv_panels_bytes(&m->backend, RKV_HEAD_COLUMNS, m->config.d_model) +
                          rkv_panels_scratch(&m->backend, m->config.d_model);
    const uint64_t said = b.fixed - head + (uint64_t)count * b.example; /* no walk is made here */
    for (int i = 1; i < count; i++)
        s[i] = make(m);
    for (int i = 0; i < count; i++)
        prompt[i] = ids, n[i] = N;
    rkv_mem_peak_reset();
    must(rkv_sessions_prefill(s, prompt, n, (size_t)count, &e));
    for (int i = 0; i < MORE; i++)
        must(rkv_sessions_decode(s, next, (size_t)count, &e));
    CHECK(rkv_mem_peak() <= said && said - said / 4 <= rkv_mem_peak(),
          "%d examples take %.2f MiB, said %.2f", count, (double)rkv_mem_peak() / 0x1p20,
          (double)said / 0x1p20);
    for (int i = 0; i < count; i++)
        rkv_session_free(s[i]);
}

static void check_fit(void)
{
    const uint64_t mib = 1 << 20;
    const rkv_bound b = {.whole = 100 * mib, .streamed = 20 * mib, .fixed = 30 * mib,
                         .example = 10 * mib};
    static const struct { int bytes, most, n, streams; } cases[] = {
        {59, 8, 0, 1}, {60, 8, 1, 1}, {79, 8, 2, 1}, {139, 8, 8, 1}, {139, 20, 8, 1},
        {140, 8, 1, 0}, {169, 8, 3, 0}, {1000, 8, 8, 0}, {1000, 1, 1, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int n = 0, streams = -1;
        const rkv_status s = rkv_bound_fit(&n, &streams, &b, cases[i].most,
                                           (uint64_t)cases[i].bytes * mib, &e);
        if (!cases[i].n)
            CHECK(s == RKV_E_MEM && strstr(e.text, "one example takes 10.0 MiB beside 20.0 MiB") &&
                      strstr(e.text, "--batch-rows") &&
                      strstr(e.text, "60.0 MiB in all; the bound is 59.0 MiB"), "%s", e.text);
        else
            CHECK(!s && n == cases[i].n && streams == cases[i].streams, "%d MiB: %d, %d",
                  cases[i].bytes, n, streams);
    }
}

/* ---- the file under the mapping ---- */

static void check_replaced(void)
{
    rkv_map m;
    char other[520];
    snprintf(other, sizeof other, "%s.new", path);
    must(rkv_map_open(&m, path, &e));
    must(rkv_map_confirm(&m, path, &e));
    must(rkv_map_stream(&m, path, &e));
    const unsigned char first = m.data[0];
    rkv_map_drop(&m, m.data, m.size);
    rkv_map_ahead(&m, m.data + 1, m.size - 1);
    CHECK(m.data[0] == first, "read again");
    rkv_map_close(&m);
    must(rkv_map_open(&m, path, &e));
    must(rkv_map_confirm(&m, path, &e));
    FILE *f = fopen(other, "w");
    CHECK(f && !fclose(f) && !rename(other, path), "cannot replace %s", path);
    CHECK(rkv_map_stream(&m, path, &e) == RKV_E_IO && strstr(e.text, "another file"), "%s", e.text);
    CHECK(!unlink(path) && rkv_map_stream(&m, path, &e) == RKV_E_IO, "%s", e.text);
    CHECK(m.data[0] == first, "the old file");
    rkv_map_close(&m);
    rkv_map_borrow(&m, &first, 1);
    CHECK(!rkv_map_stream(&m, path, &e), "%s", e.text);
    rkv_map_ahead(&m, &first, 1);
    rkv_map_drop(&m, &first, 1);
}

static void check_large(void)
{
    static const struct { int (*test)(void); const char *what; } tests[] = {
        {lets_go, "memory after use"}, {reads_ahead, "reading ahead"},
        {stays_within, "a third of the model"},
    };
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        const int code = in_child(tests[i].test);
        if (code == CANNOT)
            SKIP(1, "%s: the file system does not let go of the file", tests[i].what);
        else
            CHECK(!code, "%s: %d", tests[i].what, code);
    }
}

/* Room for the large file, on disk and once in memory. */
static int has_room(uint64_t bytes)
{
    struct statvfs v;
    return !statvfs(scratch_dir, &v) && (uint64_t)v.f_bavail * v.f_frsize > 2 * bytes &&
           rkv_mem_available(NULL) > 2 * bytes;
}

int main(void)
{
    const uint64_t large = 190 << 20;
    tiny_options t = tiny_defaults();
    if (!scratch_make())
        return check_end("stream");
    snprintf(path, sizeof path, "%s", scratch_path("m.gguf"));
    const int whole = !CHECK_SANITIZED && has_room(large);
    t.n_layer = 3;
    t.n_vocab = 9000;           /* three runs of the head */
    if (whole)
        t.n_layer = 14, t.d_model = 512, t.d_head = 128, t.d_ff = 1024, t.type = "f32";
    else
        SKIP(3, "a file of %.0f MiB: no room, or a sanitizer", (double)large / 0x1p20);
    made_ids(ids, N + MORE, t.n_vocab, 3);
    must(tiny_write(&t, path, &e));
    want = mmap(NULL, sizeof *want, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (want == MAP_FAILED)
        return 1;
    CHECK(!in_child(answer_mapped) && *want, "the mapped model");
    if (whole)
        check_large();          /* while this process is small: children begin with what it holds */
    rkv_model *m = load("mmap");
    for (int count = 1; count <= MOST; count += 3)
        check_bound(m, count);
    rkv_model_free(m);
    check_fit();
    check_shared();
    check_replaced();
    scratch_remove();
    return check_end("stream");
}

/* Where the weights of a loaded model are: the same bits in every mode, what the modes promise of
 * memory, and what they survive. */
#include "config.h"
#include "made.h"
#include "scratch.h"
#include "status.h"

#include <errno.h>
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/mem.h"
#include "engine/plan.h"

enum { N = 40, MORE = 3 };

static const char enabled[] = "/sys/kernel/mm/transparent_hugepage/enabled";
static int32_t ids[N + MORE];

/* Stands before the C library's: what the library takes for huge pages can be made to fail alone.
 */
static int huge_fails;

void *aligned_alloc(size_t align, size_t n)
{
    void *p = NULL;
    if (huge_fails && align > 4096)
        return NULL;
    return posix_memalign(&p, align, n) ? NULL : p;
}

static void must(rkv_status s, const rkv_error *e)
{
    if (s) {
        fprintf(stderr, "unexpected: %s\n", e->text);
        exit(1);
    }
}

static rkv_status load(rkv_model **m, const char *path, const char *mode, rkv_error *e)
{
    rkv_model_options o = rkv_model_options_default();
    o.load = mode;
    return rkv_model_load_with(m, path, &o, e);
}

/* Logits behind a prompt and behind some decoded ids, [2][n_vocab]; freed by the caller. */
static float *logits_of(const rkv_model *m)
{
    rkv_session_options o = rkv_session_options_default();
    rkv_session *s;
    rkv_error e = {0};
    const size_t row = (size_t)rkv_model_get_info(m)->n_vocab * sizeof(float);
    char *out = malloc(2 * row);
    o.n_ctx = N + MORE;
    must(rkv_session_create(&s, m, &o, &e), &e);
    must(rkv_session_prefill(s, ids, N, &e), &e);
    memcpy(out, rkv_session_logits(s), row);
    for (int i = 0; i < MORE; i++)
        must(rkv_session_decode(s, ids[N + i], &e), &e);
    memcpy(out + row, rkv_session_logits(s), row);
    rkv_session_free(s);
    return (float *)(void *)out;
}

static int same_logits(const rkv_model *m, const float *want)
{
    float *got = logits_of(m);
    const size_t n = 2 * (size_t)rkv_model_get_info(m)->n_vocab;
    const int same = !memcmp(got, want, n * sizeof *got);
    free(got);
    return same;
}

static const char *made(const tiny_options *o)
{
    const char *path = scratch_path(o->n_shard > 1 ? "m-00001-of-00003.gguf" : "m.gguf");
    rkv_error e = {0};
    must(tiny_write(o, path, &e), &e);
    return path;
}

static const char *const shards[] = {"m.gguf", "m-00001-of-00003.gguf", "m-00002-of-00003.gguf",
                                     "m-00003-of-00003.gguf"};

static void remove_files(void)
{
    for (size_t i = 0; i < sizeof shards / sizeof *shards; i++)
        unlink(scratch_path(shards[i]));
}

static void check_modes(const tiny_options *o, const char *what)
{
    static const struct { const char *mode, *load; } modes[] = {
        {"mmap", "mmap"}, {"none", "memory"}, {"mlock", "mlock"}, {"auto", NULL},
        {"stream", "stream"},
    };
    rkv_error e = {0};
    rkv_model *first = NULL;
    char path[512];
    snprintf(path, sizeof path, "%s", made(o));
    must(load(&first, path, "mmap", &e), &e);
    float *want = logits_of(first);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        rkv_model *m = NULL;
        const rkv_status s = load(&m, path, modes[i].mode, &e);
        if (s == RKV_E_MEM && !strcmp(modes[i].mode, "mlock")) {
            SKIP(3, "%s", e.text);
            continue;
        }
        must(s, &e);
        const rkv_model_info *info = rkv_model_get_info(m);
        const char *load = modes[i].load           ? modes[i].load
                           : rkv_mem_huge_pages(enabled) ? "memory"
                                                         : "mmap";
        CHECK(!strcmp(info->load, load), "%s, %s: %s", what, modes[i].mode, info->load);
        CHECK(!strcmp(info->fingerprint, rkv_model_get_info(first)->fingerprint), "%s, %s", what,
              modes[i].mode);
        CHECK(same_logits(m, want), "%s, %s: other logits", what, modes[i].mode);
        rkv_model_free(m);
    }
    rkv_model_free(first);
    free(want);
    remove_files();
}

static void check_names(const tiny_options *o)
{
    static const char *const bad[] = {"", "Auto", "memory", "mmap+mlock", NULL};
    rkv_error e = {0};
    const char *path = made(o);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        rkv_model *m = NULL;
        CHECK(load(&m, path, bad[i], &e) == RKV_E_ARG && !m, "'%s'", bad[i] ? bad[i] : "NULL");
        CHECK(strstr(e.text, "auto, none, mmap, mlock or stream"), "%s", e.text);
    }
    CHECK(!strcmp(rkv_model_options_default().load, "auto"), "the default");
    rkv_model *m = NULL;
    must(rkv_model_load_vocab(&m, path, &e), &e);
    CHECK(!strcmp(rkv_model_get_info(m)->load, "mmap"), "%s", rkv_model_get_info(m)->load);
    rkv_model_free(m);
    remove_files();
}

/* Every allocation fails once, with all after it. */
static void check_no_memory(const tiny_options *o, const char *mode)
{
    rkv_error e = {0};
    rkv_status s = RKV_E_MEM;
    const char *path = made(o);
    const uint64_t before = rkv_mem_current();
    int k = 0;
    while (s) {
        rkv_model *m = NULL;
        rkv_mem_fail_after(++k);
        s = load(&m, path, mode, &e);
        rkv_mem_fail_after(0);
        CHECK(!s || (s == RKV_E_MEM && !m), "%s, allocation %d: %d %s", mode, k, s, e.text);
        rkv_model_free(m);
        CHECK(rkv_mem_current() == before, "%s, allocation %d leaks", mode, k);
    }
    CHECK(k > 20, "only %d allocations", k);
    remove_files();
}

/* All shards are emptied while a copied model is in use: its weights, keys and texts are its own.
 */
static void check_survives(const tiny_options *o)
{
    rkv_error e = {0};
    rkv_model *m = NULL;
    must(load(&m, made(o), "none", &e), &e);
    float *want = logits_of(m);
    for (size_t i = o->n_shard > 1; i < (o->n_shard > 1 ? 4 : 1); i++)
        CHECK(!truncate(scratch_path(shards[i]), 0), "%s", shards[i]);
    CHECK(same_logits(m, want), "other logits");
    int32_t *text = NULL;
    size_t n = 0;
    char *back = NULL;
    must(rkv_tokenize(m, "some words", 10, 0, &text, &n, &e), &e);
    must(rkv_detokenize(m, text, n, 0, &back, NULL, &e), &e);
    CHECK(!strcmp(back, "some words"), "'%s'", back);
    rkv_free(text);
    rkv_free(back);
    free(want);
    rkv_model_free(m);
    remove_files();
}

/* ---- in a child each: limits and peaks of a process ---- */

static int in_child(int (*test)(const char *path), const char *path)
{
    fflush(NULL);
    const pid_t pid = fork();
    if (!pid)
        _exit(test(path));
    int status = -1;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

enum { CANNOT = 77 };

static int lock_refused(const char *path)
{
    struct rlimit r = {8192, 8192};
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {{0}};
    rkv_model *m = NULL;
    rkv_error e = {0};
    static char page[3 * 8192];
    if (setrlimit(RLIMIT_MEMLOCK, &r) || syscall(SYS_capset, &head, none) ||
        !mlock(page, sizeof page))
        return CANNOT;
    const int ok = load(&m, path, "mlock", &e) == RKV_E_MEM && !m &&
                   strstr(e.text, "RLIMIT_MEMLOCK is 8192 bytes: raise it");
    if (!ok)
        fprintf(stderr, "%s\n", e.text);
    return !ok;
}

/* Leaves the process so many MiB. */
static int leave(int mib)
{
    struct rlimit r = {1 << 30, 1 << 30};
    if (setrlimit(RLIMIT_DATA, &r))
        return 0;
    const uint64_t left = rkv_mem_available(NULL);
    if (left >= 1 << 30)
        return 0;
    r.rlim_cur = (1 << 30) - left + ((rlim_t)mib << 20);
    return !setrlimit(RLIMIT_DATA, &r);
}

/* The status and place of one way to load. */
static int loads(const char *path, const char *mode, rkv_status want, const char *place)
{
    rkv_model *m = NULL;
    rkv_error e = {0};
    const rkv_status s = load(&m, path, mode, &e);
    const int ok = s == want && (s ? !!strstr(e.text, place)
                                   : !strcmp(rkv_model_get_info(m)->load, place));
    if (!ok)
        fprintf(stderr, "%s: %d %s\n", mode, s, s ? e.text : rkv_model_get_info(m)->load);
    rkv_model_free(m);
    return ok;
}

static int too_little(const char *path)
{
    return !leave(30) ? CANNOT
                      : !(loads(path, "none", RKV_E_MEM, "use --load-mode mmap") &&
                          loads(path, "auto", RKV_OK, "mmap"));
}

/* Room for the copy, but not for four. */
static int enough_for_one(const char *path)
{
    return !leave(100) ? CANNOT
                       : !(loads(path, "none", RKV_OK, "memory") &&
                           loads(path, "auto", RKV_OK, "mmap"));
}

/* Whether a prompt that takes about 70 MiB is let through. */
static rkv_status prompt_fits(const char *path, const char *mode)
{
    rkv_session_options o = rkv_session_options_default();
    rkv_prefill_plan plan = {0};
    rkv_error e = {0};
    rkv_model *m = NULL;
    rkv_session *s = NULL;
    size_t n = 0;
    o.n_thread = 1;
    o.n_ctx = 100000;
    must(load(&m, path, mode, &e), &e);
    must(rkv_session_create(&s, m, &o, &e), &e);
    while (plan.total < (uint64_t)70 << 20) {
        n += 200;
        must(rkv_session_budget(s, &s->o.policy, (int)n, &e), &e);
        plan = rkv_prefill_plan_of(&s, &n, 1, 0);
    }
    const rkv_status status = rkv_prefill_plan_check(&plan, &e);
    rkv_session_free(s);
    rkv_model_free(m);
    return status;
}

/* The copy is taken before the plan looks at what is left. */
static int plan_sees_copy(const char *path)
{
    return !leave(100) ? CANNOT
                       : !(prompt_fits(path, "mmap") == RKV_OK &&
                           prompt_fits(path, "none") == RKV_E_MEM);
}

static int fails_to_allocate(const char *path)
{
    huge_fails = 1;
    return !(loads(path, "none", RKV_E_MEM, "out of memory for a copy") &&
             loads(path, "auto", RKV_OK, "mmap"));
}

static int once_in_memory(const char *path)
{
    const uint64_t before = status_bytes("VmRSS:");
    rkv_model *m = NULL;
    rkv_error e = {0};
    must(load(&m, path, "none", &e), &e);
    const uint64_t bytes = rkv_mem_current(), took = status_bytes("VmHWM:") - before;
    if (!before || took < bytes / 2)
        return CANNOT;
    fprintf(stderr, "a copy of %.1f MiB: peak %.1f MiB\n", (double)bytes / 0x1p20,
            (double)took / 0x1p20);
    return took > bytes + bytes / 4;
}

static void check_processes(tiny_options o)
{
    static const struct { int (*test)(const char *path); const char *what; } tests[] = {
        {lock_refused, "a lock beyond the limit"}, {too_little, "too little memory"},
        {enough_for_one, "memory for one copy"}, {fails_to_allocate, "no huge block"},
        {once_in_memory, "the peak"}, {plan_sees_copy, "the plan beside a copy"},
    };
    o.d_model = 512, o.d_head = 128, o.d_ff = 2048, o.n_layer = 3;
    const char *path = scratch_path("m.gguf");
    made(&o);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        const int code = CHECK_SANITIZED ? CANNOT : in_child(tests[i].test, path);
        if (code == CANNOT)
            SKIP(1, "%s: cannot be told here (sanitizer, emulator)", tests[i].what);
        else
            CHECK(!code, "%s: %d", tests[i].what, code);
    }
    remove_files();
    check_modes(&o, "several threads");
}

int main(void)
{
    tiny_options o = tiny_defaults();
    if (!scratch_make())
        return check_end("load");
    made_ids(ids, N + MORE, o.n_vocab, 7);
    static const char *const families[] = {"llama", "qwen2", "qwen3", "gemma3"};
    for (int i = 0; i < 4; i++) {
        o.family = families[i];
        check_modes(&o, families[i]);
    }
    o = tiny_defaults();
    check_names(&o);
    check_no_memory(&o, "none");
    check_no_memory(&o, "auto");
    check_no_memory(&o, "stream");
    o.tied = 1;
    check_survives(&o);
    o.n_shard = 3;
    o.type = "q8_0";
    check_modes(&o, "three shards");
    check_survives(&o);
    o = tiny_defaults();
    o.d_model = 256, o.d_head = 64, o.d_ff = 256, o.type = "all";
    check_modes(&o, "all types");
    check_processes(tiny_defaults());
    CHECK(rkv_mem_current() == 0, "%llu bytes leaked", (unsigned long long)rkv_mem_current());
    scratch_remove();
    return check_end("load");
}

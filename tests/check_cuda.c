/* The CUDA plug-in without a GPU: its host code over a recording runtime whose calls fail one by
 * one, its kernels as a host compiler builds them, and the loader. With RKV_CUDA_PLUGIN also that
 * plug-in, on the devices it finds. */
#include "config.h"
#include "check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda_plugin.h"
#include "base/mem.h"
#include "noise.h"
#include "cuda/kernels.h"
#include "cuda/recorder.h"

#define MODULE "./.libs/rkv_recorder.so"

static const rkv_cuda_plugin *const plugin = &rkv_cuda_plugin_v1;

static int one_line(const char *text)
{
    return *text && !strchr(text, '\n');
}

/* ---- devices ---- */

/* The reason of a machine without devices. */
static void check_none(const char *what, const char *expected)
{
    rkv_device_info *d = (void *)&d;
    rkv_error e = {0};
    int n = -1;
    const rkv_status s = rkv_cuda_plugin_devices(&d, &n, plugin, &e);
    CHECK(s == RKV_E_UNSUPPORTED && e.status == s && !d && n == 0, "%s: status %d, %d devices",
          what, s, n);
    CHECK(one_line(e.text) && !strncmp(e.text, "CUDA: ", 6) && strstr(e.text, expected),
          "%s: '%s', expected '%s'", what, e.text, expected);
    CHECK(rkv_cuda_plugin_devices(&d, &n, plugin, NULL) == s, "%s: without an error", what);
}

static void check_no_device(void)
{
    recorder_reset();
    recorder.driver = 0;
    check_none("no driver", "no driver");
    CHECK(recorder.n_call == 2, "without a driver nothing else is asked: %d", recorder.n_call);
    recorder_reset();
    recorder.driver = 12080;
    check_none("old driver", "serves CUDA 12.8, this plug-in needs 13.0");
    recorder_reset();
    recorder.n_device = 0;
    check_none("no device", "shows no device");
}

static void check_devices(void)
{
    rkv_device_info *d = NULL;
    rkv_error e = {0};
    int n = 0;
    for (int want = 1; want <= RECORDER_MAX_DEVICE; want++) {
        recorder_reset();
        recorder.n_device = want;
        CHECK(!rkv_cuda_plugin_devices(&d, &n, plugin, &e) && n == want, "%s", e.text);
        for (int i = 0; i < n; i++) {
            char name[] = "Recorder0x";
            name[8] = (char)('0' + i);
            CHECK(!strncmp(d[i].name, name, 10) && strlen(d[i].name) == sizeof d[i].name - 1,
                  "device %d is '%s'", i, d[i].name);
            CHECK(d[i].memory_bytes == UINT64_C(80) << 30 &&
                      d[i].free_bytes == (UINT64_C(40) << 30) + (uint64_t)i,
                  "device %d: memory", i);
            CHECK(d[i].cc_major == 9 && d[i].cc_minor == 0 && !d[i].trouble[0], "device %d: '%s'",
                  i, d[i].trouble);
        }
        rkv_mem_free(d);
    }
    recorder_reset();
    recorder.cc_major = 7;
    CHECK(!rkv_cuda_plugin_devices(&d, &n, plugin, &e) && n == 2, "%s", e.text);
    CHECK(strstr(d[1].trouble, "7.0") && d[1].memory_bytes && !d[1].free_bytes, "'%s'",
          d[1].trouble);
    CHECK(recorder.device == -1, "an old device is not started");
    rkv_mem_free(d);
}

/* Two devices, eight calls; the one that fails costs the list or one device, nothing more. */
static void check_failing_list(void)
{
    int n_failed = 0, done = 0;
    for (int k = 1; !done && k < 100; k++) {
        rkv_device_info *d = NULL;
        rkv_error e = {0};
        int n = -1;
        recorder_reset();
        recorder.fail_at = k;
        recorder.fail_with = 999;
        const rkv_status s = rkv_cuda_plugin_devices(&d, &n, plugin, &e);
        done = recorder.n_call < k;
        if (done)
            CHECK(!s && n == 2 && !d[0].trouble[0] && !d[1].trouble[0], "nothing fails: %s",
                  e.text);
        else if (k <= 2)
            CHECK(s == RKV_E_UNSUPPORTED && !d && n == 0 && strstr(e.text, "error 999"),
                  "call %d: '%s'", k, e.text);
        else
            CHECK(!s && n == 2 && strstr(d[(k - 3) / 3].trouble, "error 999") &&
                      !d[(k - 3) / 3].free_bytes && !d[1 - (k - 3) / 3].trouble[0],
                  "call %d: '%s', '%s'", k, d ? d[0].trouble : "", d ? d[1].trouble : "");
        CHECK(recorder.n_misuse == 0, "call %d: misuse", k);
        n_failed += !done;
        rkv_mem_free(d);
    }
    CHECK(done && n_failed == 8, "%d calls were made to fail", n_failed);
}

static void check_memory(void)
{
    const uint64_t before = rkv_mem_current();
    rkv_device_info *d = NULL;
    rkv_error e = {0};
    int n = -1;
    recorder_reset();
    rkv_mem_fail_after(1);
    const rkv_status s = rkv_cuda_plugin_devices(&d, &n, plugin, &e);
    rkv_mem_fail_after(0);
    CHECK(s == RKV_E_MEM && !d && n == 0 && one_line(e.text), "status %d: %s", s, e.text);
    CHECK(rkv_mem_current() == before, "leak");
}

/* ---- noise ---- */

static int close_to(const double *got, const double *want, int n, const char *what)
{
    for (int i = 0; i < n; i++)
        if (!(fabs(got[i] - want[i]) <= RKV_NOISE_TOL * fabs(want[i]))) {
            fprintf(stderr, "%s: element %d of %d is %.17g, expected %.17g\n", what, i, n, got[i],
                    want[i]);
            return 0;
        }
    return 1;
}

/* Sizes around warps and blocks, streams entered anywhere, also where the counter wraps. */
static const int sizes[] = {1, 2, 31, 32, 33, 63, 255, 256, 257, 511, 513, 1000, 4097};
static const uint64_t starts[] = {0, 1, 255, 12345678901, UINT64_MAX / 2 - 3, UINT64_MAX - 100};
enum { N_SIZE = sizeof sizes / sizeof *sizes, N_START = sizeof starts / sizeof *starts };

/* A plug-in's op against the CPU: numbers, and nothing written behind them. */
static void compare_noise(const rkv_cuda_plugin *p, int device, const char *what)
{
    static double got[4097 + 1], want[4097];
    for (int i = 0; i < N_SIZE; i++)
        for (int j = 0; j < N_START; j++) {
            const uint64_t key = rkv_noise_key((uint64_t)i, (uint64_t)j, 7);
            const int n = sizes[i];
            rkv_error e = {0};
            for (int k = 0; k <= n; k++)
                got[k] = -77.0;
            rkv_noise_normal(want, key, starts[j], n);
            CHECK(!p->noise_normal(got, key, starts[j], n, device, &e), "%s: %s", what, e.text);
            CHECK(close_to(got, want, n, what) && got[n] == -77.0, "%s: %d from %llu", what, n,
                  (unsigned long long)starts[j]);
        }
    const double probe[] = {-0.527811906779536, 1.2314283841015077, -1.4742856270537026};
    CHECK(!p->noise_normal(got, UINT64_C(6238072747940578789), 0, 3, device, NULL) &&
              close_to(got, probe, 3, what),
          "%s: METHOD section 7, first stream", what);
    const double second = -0.9472830275295018;
    CHECK(!p->noise_normal(got, UINT64_C(4780042144263421312), 0, 1, device, NULL) &&
              close_to(got, &second, 1, what),
          "%s: METHOD section 7, second stream", what);
}

#ifdef HAVE_HOST_KERNELS
static void check_kernels(void)
{
    recorder_reset();
    recorder.noise_normal = host_noise_normal;
    compare_noise(plugin, 1, "host");
    CHECK(recorder.n_launch == N_SIZE * N_START + 2 && recorder.n_alloc == recorder.n_launch,
          "%d launches, %d allocations", recorder.n_launch, recorder.n_alloc);
    CHECK(recorder_n_live() == 0 && recorder.n_misuse == 0 && recorder.device == 1,
          "%d live, %d misused", recorder_n_live(), recorder.n_misuse);

    /* what is promised to the bit */
    int n_key = 0, n_word = 0, n_uniform = 0;
    CHECK(host_noise_key(0, 0, 0) == UINT64_C(6238072747940578789), "key(0,0,0)");
    CHECK(host_noise_key(3, 2, 17) == UINT64_C(4780042144263421312), "key(3,2,17)");
    for (uint64_t i = 0; i < 20000; i++) {
        const uint64_t key = rkv_noise_key(i, i % 5, i % 31), j = rkv_hash_mix(i);
        const double a = host_noise_uniform(key, j), b = rkv_noise_uniform(key, j);
        n_key += host_noise_key(i, i % 5, i % 31) != key;
        n_word += host_noise_word(key, j) != rkv_noise_word(key, j);
        n_uniform += memcmp(&a, &b, sizeof a) != 0;
    }
    CHECK(!n_key && !n_word && !n_uniform, "%d keys, %d words, %d uniforms differ", n_key, n_word,
          n_uniform);
}

/* The comparison sees a kernel that is wrong. */
static int one_late(double *out, uint64_t key, uint64_t first, int n)
{
    return host_noise_normal(out, key, first + 1, n);
}

static int short_tail(double *out, uint64_t key, uint64_t first, int n)
{
    return n > 1 ? host_noise_normal(out, key, first, n - 1) : 0;
}

static int long_tail(double *out, uint64_t key, uint64_t first, int n)
{
    return host_noise_normal(out, key, first, n + 1);
}

static void check_planted(void)
{
    int (*const planted[])(double *, uint64_t, uint64_t, int) = {one_late, short_tail, long_tail};
    const uint64_t key = rkv_noise_key(1, 2, 3);
    double got[257], want[257];
    rkv_noise_normal(want, key, 0, 257);
    for (size_t i = 0; i < sizeof planted / sizeof *planted; i++) {
        recorder_reset();
        recorder.noise_normal = planted[i];
        const rkv_status s = plugin->noise_normal(got, key, 0, 257, 0, NULL);
        int wrong = recorder.n_misuse > 0;      /* the guard behind the block */
        for (int k = 0; k < 257; k++)
            wrong |= !(fabs(got[k] - want[k]) <= RKV_NOISE_TOL * fabs(want[k]));
        CHECK(!s && wrong, "planted fault %zu went unseen", i);
    }
}
#else
static void check_kernels(void)
{
    SKIP(2 * N_SIZE * N_START + 7, "kernels on the host: no C++ compiler");
}

static void check_planted(void)
{
    SKIP(3, "planted faults: no C++ compiler");
}
#endif

/* Whatever call fails, no block stays and the status says what kind it was. */
static void check_failing_noise(void)
{
    double out[8];
    int n_failed = 0, done = 0;
    for (int k = 1; !done && k < 100; k++) {
        const int with = k % 2 ? 999 : 2;       /* 2: out of memory */
        rkv_error e = {0};
        recorder_reset();
        recorder.fail_at = k;
        recorder.fail_with = with;
        const rkv_status s = plugin->noise_normal(out, 1, 0, 8, 1, &e);
        done = recorder.n_call < k;
        rkv_status want = with == 2 ? RKV_E_MEM : RKV_E_INTERNAL;
        if (done || k <= 2)
            want = done ? RKV_OK : RKV_E_UNSUPPORTED;
        CHECK(s == want, "call %d: status %d, expected %d", k, s, want);
        CHECK(done || (one_line(e.text) && strstr(e.text, with == 2 ? "error 2" : "error 999")),
              "call %d: '%s'", k, e.text);
        CHECK(recorder_n_live() == 0 && recorder.n_misuse == 0, "call %d: %d live, %d misused", k,
              recorder_n_live(), recorder.n_misuse);
        n_failed += !done;
    }
    CHECK(done && n_failed == 7, "%d calls were made to fail", n_failed);
}

static void check_noise_arguments(void)
{
    double out[2] = {5.0, 6.0};
    rkv_error e = {0};
    recorder_reset();
    CHECK(plugin->noise_normal(out, 1, 0, -1, 0, &e) == RKV_E_ARG && strstr(e.text, "-1"), "%s",
          e.text);
    CHECK(!plugin->noise_normal(NULL, 1, 0, 0, 0, &e) && recorder.n_alloc == 0, "nothing to do");
    CHECK(plugin->noise_normal(out, 1, 0, 2, 2, &e) == RKV_E_INTERNAL &&
              strstr(e.text, "CUDA device 2"),
          "no such device: %s", e.text);
    recorder.room = 15;
    CHECK(plugin->noise_normal(out, 1, 0, 2, 0, &e) == RKV_E_MEM && strstr(e.text, "16 bytes"),
          "no room: %s", e.text);
    recorder_reset();
    recorder.driver = 0;
    CHECK(plugin->noise_normal(out, 1, 0, 2, 0, &e) == RKV_E_UNSUPPORTED &&
              strstr(e.text, "no driver"),
          "%s", e.text);
    CHECK(out[0] == 5.0 && out[1] == 6.0 && recorder_n_live() == 0, "untouched");
    recorder_reset();
}

/* ---- the loader ---- */

static void check_not_loaded(const char *path, const char *expected)
{
    const rkv_cuda_plugin *p = plugin;
    rkv_error e = {0};
    CHECK(rkv_cuda_plugin_open(&p, path, &e) == RKV_E_UNSUPPORTED && !p && one_line(e.text) &&
              strstr(e.text, path) && strstr(e.text, expected),
          "%s: '%s'", path, e.text);
}

static void check_loader(void)
{
    check_not_loaded("./no/such/plugin.so", "no plug-in");
    check_not_loaded("/proc/self/maps", "no plug-in");
    check_not_loaded("libm.so.6", "lacks " RKV_CUDA_PLUGIN_SYMBOL);
    const rkv_cuda_plugin *p = NULL;
    rkv_device_info *d = NULL;
    rkv_error e = {0};
    int n = 0;
    FILE *f = fopen(MODULE, "rb");
    if (!f) {
        SKIP(2, "a loaded plug-in: this build has no shared objects");
        return;
    }
    fclose(f);
    CHECK(!rkv_cuda_plugin_open(&p, MODULE, &e) && p && p != plugin, "%s", e.text);
    CHECK(p && !rkv_cuda_plugin_devices(&d, &n, p, &e) && n == 2, "%s", e.text);
    rkv_mem_free(d);
}

/* The real plug-in, where the caller names one. */
static void check_real(void)
{
    if (!getenv("RKV_CUDA_PLUGIN")) {
        SKIP(1, "a device: RKV_CUDA_PLUGIN names no plug-in");
        return;
    }
    const rkv_cuda_plugin *p = NULL;
    rkv_device_info *d = NULL, *same = NULL;
    rkv_error e = {0}, again = {0};
    int n = 0, n_same = 0;
    CHECK(!rkv_cuda_plugin_load(&p, &e), "%s", e.text);
    if (!p)
        return;
    const rkv_status s = rkv_device_list(&d, &n, &e);
    CHECK(rkv_device_list(&same, &n_same, &again) == s && n_same == n &&
              !strcmp(again.text, e.text),
          "asked twice: '%s', '%s'", e.text, again.text);
    CHECK(s ? s == RKV_E_UNSUPPORTED && n == 0 && one_line(e.text) : n >= 1, "status %d: %s", s,
          e.text);
    for (int i = 0; i < n; i++)
        if (!d[i].trouble[0])
            compare_noise(p, i, d[i].name);
    if (!n)
        SKIP(1, "a device: %s", e.text);
    rkv_free(d);
    rkv_free(same);
}

int main(void)
{
    check_no_device();
    check_devices();
    check_failing_list();
    check_memory();
    check_kernels();
    check_planted();
    check_failing_noise();
    check_noise_arguments();
    check_loader();
    check_real();
    return check_end("check_cuda");
}

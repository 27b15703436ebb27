/* Weight formats against the Python package gguf: golden blocks of formats.txt, and fresh random
 * ones from formats.py where numpy and gguf can be imported. RKV_PYTHON names the interpreter; when
 * it is set, a missing package is a failure. check_formats [SEED] */
#include "config.h"
#include "check.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "cpu.h"
#include "f16.h"
#include "kernels.h"

#ifndef RKV_SRCDIR
#error "RKV_SRCDIR: where tests/ lies"
#endif

enum { MAX_BLOCKS = 4096, MAX_WEIGHTS = 400 * 256, MAX_BLOCK_BYTES = 400 * 210 };

static const char *const tiers[] = {"ref", "avx2", "avx512", "vnni", "amx"};
enum { n_tier = sizeof tiers / sizeof *tiers };

static unsigned char blocks[MAX_BLOCK_BYTES];
static float got[MAX_WEIGHTS], want[MAX_WEIGHTS];
static int types_seen[RKV_DT_COUNT];

/* The unpack kernel that serves a tier; NULL when this CPU lacks the tier. */
static RKV_PROTO_unpack(*kernel(int tier, rkv_dtype dt))
{
    int ok = 0;
    const uint32_t mask = rkv_cpu_tier_mask(tiers[tier], &ok), have = rkv_cpu_detect();
    rkv_ops ops;
    rkv_ops_init(&ops, mask);
    return ok && (have & mask) == mask ? ops.unpack[dt] : NULL;
}

static uint32_t bits(float v)
{
    return isnan(v) ? 0x7fc00000 : rkv_f32_to_bits(v);
}

/* FNV-1a over the bits, every NaN as one. */
static uint64_t hash(const float *w, size_t n)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < 4 * n; i++)
        h = (h ^ (bits(w[i / 4]) >> 8 * (i % 4) & 0xff)) * UINT64_C(0x100000001b3);
    return h;
}

/* Bytes of a text of hexadecimal digits; 0 when it is none or too long. */
static size_t unhex(unsigned char *out, size_t max, const char *text)
{
    size_t n = 0;
    for (; isxdigit((unsigned char)text[0]) && isxdigit((unsigned char)text[1]) && n < max;
         text += 2, n++) {
        const char byte[3] = {text[0], text[1], 0};
        out[n] = (unsigned char)strtoul(byte, NULL, 16);
    }
    return *text ? 0 : n;
}

static void check_golden_line(const char *line, int number)
{
    char name[16], hex[2 * 256 + 1], first[24];
    uint64_t sum;
    int at = 0;
    if (sscanf(line, "%15s %512s %16" SCNx64 " %n", name, hex, &sum, &at) != 3 || !at) {
        CHECK(0, "formats.txt:%d: not a golden block", number);
        return;
    }
    const rkv_dtype dt = rkv_dtype_from_name(name);
    const size_t n_byte = unhex(blocks, sizeof blocks, hex);
    if (dt == RKV_DT_COUNT || n_byte != (size_t)rkv_dtype_get(dt)->block_bytes) {
        CHECK(0, "formats.txt:%d: '%s' with %zu bytes", number, name, n_byte);
        return;
    }
    const int n = rkv_dtype_get(dt)->block_len;
    types_seen[dt] = 1;
    for (int t = 0; t < n_tier; t++) {
        if (!kernel(t, dt))
            continue;
        kernel(t, dt)(got, blocks, n);
        snprintf(first, sizeof first, "%.9g", (double)got[0]);
        CHECK(hash(got, (size_t)n) == sum &&
                  (isnan(got[0]) || !strncmp(first, line + at, strlen(first))),
              "formats.txt:%d: %s, %s: hash %016" PRIx64 ", first weight %s", number, name,
              tiers[t], hash(got, (size_t)n), first);
    }
}

static void check_golden(void)
{
    char line[1024];
    FILE *f = fopen(RKV_SRCDIR "/tests/formats.txt", "r");
    CHECK(f, "cannot open " RKV_SRCDIR "/tests/formats.txt");
    for (int number = 1; f && fgets(line, sizeof line, f); number++)
        if (*line != '#')
            check_golden_line(line, number);
    for (int dt = 0; dt < RKV_DT_COUNT && f; dt++)
        CHECK(types_seen[dt], "formats.txt has no %s", rkv_dtype_get((rkv_dtype)dt)->name);
    if (f)
        fclose(f);
}

/* n_block blocks of a type, with their weights in want. */
static void check_blocks(rkv_dtype dt, int n_block)
{
    const rkv_dtype_desc *d = rkv_dtype_get(dt);
    const int n = n_block * d->block_len;
    types_seen[dt] = 1;
    for (int t = 0; t < n_tier; t++) {
        if (!kernel(t, dt)) {
            SKIP(1, "%s: this CPU has no %s", d->name, tiers[t]);
            continue;
        }
        kernel(t, dt)(got, blocks, n);
        int i = 0;
        while (i < n && bits(got[i]) == bits(want[i]))
            i++;
        CHECK(i == n, "%s, %s: weight %d of block %d is %.9g, gguf has %.9g", d->name, tiers[t],
              i % d->block_len, i / d->block_len, (double)got[i], (double)want[i]);
    }
}

/* One part of what formats.py writes; 0 at its end. */
static int check_part(FILE *f)
{
    char line[256], name[16];
    int n_block = 0;
    if (!fgets(line, sizeof line, f))
        line[0] = 0;
    line[strcspn(line, "\n")] = 0;
    if (!strcmp(line, "end"))
        return 0;
    const rkv_dtype dt =
        sscanf(line, "%15s %d", name, &n_block) == 2 ? rkv_dtype_from_name(name) : RKV_DT_COUNT;
    if (dt == RKV_DT_COUNT || n_block < 1 || n_block > MAX_BLOCKS) {
        if (getenv("RKV_PYTHON"))
            CHECK(0, "formats.py: %s", *line ? line : "no answer");
        else
            SKIP(1, "formats.py: %s", *line ? line : "no python3");
        return -1;
    }
    const rkv_dtype_desc *d = rkv_dtype_get(dt);
    const size_t n_byte = (size_t)n_block * (size_t)d->block_bytes,
                 n = (size_t)n_block * (size_t)d->block_len;
    const int whole = n_byte <= sizeof blocks && n <= MAX_WEIGHTS &&
                      fread(blocks, 1, n_byte, f) == n_byte && fread(want, sizeof *want, n, f) == n;
    CHECK(whole, "formats.py: %d blocks of %s end early", n_block, name);
    if (whole)
        check_blocks(dt, n_block);
    return whole ? 1 : -1;
}

static void check_python(unsigned long seed)
{
    char command[256];
    memset(types_seen, 0, sizeof types_seen);
    snprintf(command, sizeof command,
             "exec \"${RKV_PYTHON:-python3}\" '%s/tests/formats.py' --seed %lu", RKV_SRCDIR, seed);
    FILE *f = popen(command, "r");
    CHECK(f, "popen");
    if (!f)
        return;
    int more;
    do
        more = check_part(f);
    while (more > 0);
    pclose(f);
    for (int dt = 0; dt < RKV_DT_COUNT && !more; dt++)
        CHECK(types_seen[dt], "formats.py has no %s", rkv_dtype_get((rkv_dtype)dt)->name);
}

int main(int argc, char **argv)
{
    const unsigned long seed = argc > 1 ? strtoul(argv[1], NULL, 0) : (unsigned long)time(NULL);
    printf("seed %lu\n", seed);
    fflush(stdout);
    check_golden();
    check_python(seed);
    return check_end("formats");
}

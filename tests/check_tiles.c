/* The emulation of AMX tested: every misuse that the hardware refuses is refused, and a right use
 * is not. */
#include "config.h"
#include "check.h"

#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>

#include "kernels/emulated_amx.h"

static unsigned char config[64];
static float c[16][16];
static uint16_t a[16][32], b[16][32];

static void set(int tile, int rows, int colsb)
{
    config[48 + tile] = (unsigned char)rows;
    config[16 + 2 * tile] = (unsigned char)colsb;
}

/* Tiles 0, 1, 2 as c, a, b of a whole product. */
static void set_whole(void)
{
    memset(config, 0, sizeof config);
    config[0] = 1;
    for (int t = 0; t < 3; t++)
        set(t, 16, 64);
}

static void load(void)
{
    _tile_loadconfig(config);
    _tile_zero(0);
    _tile_loadd(1, a, sizeof *a);
    _tile_loadd(2, b, sizeof *b);
}

static void run(void)
{
    load();
    _tile_dpbf16ps(0, 1, 2);
    _tile_stored(0, c, sizeof *c);
    _tile_release();
    emulated_amx_must_be_free();
}

static void use_released(void)
{
    load();
    _tile_release();
    _tile_stored(0, c, sizeof *c);
}

static void use_unnamed(void)
{
    load();
    _tile_zero(3);
}

static void use_ninth(void)
{
    load();
    _tile_zero(8);
}

static void use_twice(void)
{
    load();
    _tile_dpbf16ps(0, 1, 1);
}

static void keep(void)
{
    load();
    emulated_amx_must_be_free();
}

/* Changes one byte of the whole configuration, then does something. */
static const struct {
    const char *name;
    int at, value;
    void (*act)(void);
    int signal_number;
} cases[] = {
    {"right use", 0, 1, run, 0},
    {"palette 2", 0, 2, run, SIGSEGV},
    {"palette 0 configures nothing", 0, 0, run, SIGILL},
    {"a start row", 1, 1, run, SIGSEGV},
    {"a reserved byte", 8, 1, run, SIGSEGV},
    {"columns of a ninth tile", 32, 64, run, SIGSEGV},
    {"rows of a ninth tile", 56, 16, run, SIGSEGV},
    {"17 rows", 48, 17, run, SIGSEGV},
    {"68 bytes in a row", 16, 68, run, SIGSEGV},
    {"256 bytes and more in a row", 17, 1, run, SIGSEGV},
    {"rows without columns", 18, 0, run, SIGSEGV},
    {"columns without rows", 49, 0, run, SIGSEGV},
    {"rows of c and a differ", 49, 15, run, SIGILL},
    {"columns of c and b differ", 20, 60, run, SIGILL},
    {"depth of a and b differs", 18, 60, run, SIGILL},
    {"a part of a word", 16, 62, run, SIGILL},
    {"after the release", 0, 1, use_released, SIGILL},
    {"a tile without a shape", 0, 1, use_unnamed, SIGILL},
    {"a tile that does not exist", 0, 1, use_ninth, SIGILL},
    {"a tile twice", 0, 1, use_twice, SIGILL},
    {"not released", 0, 1, keep, SIGILL},
};

static sigjmp_buf before;

static void on_signal(int number)
{
    siglongjmp(before, number);
}

/* The signal that ends the act; 0: none. */
static int signal_of(void (*act)(void))
{
    const int number = sigsetjmp(before, 1);
    if (!number)
        act();
    return number;
}

int main(void)
{
    signal(SIGILL, on_signal);
    signal(SIGSEGV, on_signal);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        _tile_release();
        set_whole();
        config[cases[i].at] = (unsigned char)cases[i].value;
        const int number = signal_of(cases[i].act);
        CHECK(number == cases[i].signal_number, "%s: signal %d", cases[i].name, number);
    }
    /* a = 1, 2 in its first pair, b = 3, 4 in its first: 11, beside what c held */
    set_whole();
    a[0][0] = 0x3f80, a[0][1] = 0x4000, b[0][0] = 0x4040, b[0][1] = 0x4080;
    run();
    CHECK(c[0][0] == 11.0f && c[0][1] == 0.0f && c[1][0] == 0.0f, "%g", (double)c[0][0]);
    return check_end("tiles");
}

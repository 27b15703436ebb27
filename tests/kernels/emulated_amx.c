#include "config.h"
#include "emulated_amx.h"

#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { TILES = 8, ROWS = 16, ROW_BYTES = 64, CONFIG_BYTES = 64 };

static struct {
    int configured;
    int rows[TILES], colsb[TILES];
    unsigned char data[TILES][ROWS][ROW_BYTES];
} amx;

static void refuse(int signal_number, const char *what, int tile)
{
    fprintf(stderr, "emulated AMX: %s (%d)\n", what, tile);
    raise(signal_number);
}

void emulated_tile_loadconfig(const void *config)
{
    const unsigned char *c = config;
    memset(&amx, 0, sizeof amx);
    if (c[0] > 1)
        refuse(SIGSEGV, "unknown palette", c[0]);
    for (int i = 1; i < CONFIG_BYTES; i++) {
        const int used = (i >= 16 && i < 16 + 2 * TILES) || (i >= 48 && i < 48 + TILES);
        if (c[i] && c[0] && !used)
            refuse(SIGSEGV, "a start row, or a reserved byte of the configuration is set", i);
    }
    for (int t = 0; t < TILES && c[0]; t++) {
        uint16_t colsb;
        memcpy(&colsb, c + 16 + 2 * t, sizeof colsb);
        const int rows = c[48 + t];
        if (rows > ROWS || colsb > ROW_BYTES)
            refuse(SIGSEGV, "a tile is configured too large", t);
        if (!rows != !colsb)
            refuse(SIGSEGV, "a tile has rows or columns only", t);
        amx.rows[t] = rows;
        amx.colsb[t] = colsb;
    }
    amx.configured = c[0] != 0;
}

void emulated_tile_release(void)
{
    memset(&amx, 0, sizeof amx);
}

void emulated_amx_must_be_free(void)
{
    if (amx.configured)
        refuse(SIGILL, "tiles were not released", 0);
}

static void need(int tile)
{
    if (!amx.configured || tile < 0 || tile >= TILES || !amx.rows[tile])
        refuse(SIGILL, "a tile is used that is not configured", tile);
}

void emulated_tile_zero(int tile)
{
    need(tile);
    memset(amx.data[tile], 0, sizeof amx.data[tile]);
}

void emulated_tile_loadd(int tile, const void *base, ptrdiff_t stride)
{
    emulated_tile_zero(tile);
    for (int r = 0; r < amx.rows[tile]; r++)
        memcpy(amx.data[tile][r], (const char *)base + r * stride, (size_t)amx.colsb[tile]);
}

void emulated_tile_stored(int tile, void *base, ptrdiff_t stride)
{
    need(tile);
    for (int r = 0; r < amx.rows[tile]; r++)
        memcpy((char *)base + r * stride, amx.data[tile][r], (size_t)amx.colsb[tile]);
}

/* Denormals are zeros, whatever the processor's mode. */
static float daz(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    u = u & 0x7f800000 ? u : u & 0x80000000;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* Number `half` of the pair at p. */
static float half_of(const unsigned char *p, int half)
{
    uint16_t h;
    memcpy(&h, p + 2 * half, sizeof h);
    const uint32_t u = (uint32_t)h << 16;
    float x;
    memcpy(&x, &u, sizeof x);
    return daz(x);
}

static void need_shapes(int c, int a, int b)
{
    need(c), need(a), need(b);
    if (c == a || c == b || a == b)
        refuse(SIGILL, "a product uses a tile twice", c);
    if (amx.colsb[c] % 4 || amx.colsb[a] % 4 || amx.colsb[b] % 4)
        refuse(SIGILL, "a product's tile has a part of a word", c);
    if (amx.rows[c] != amx.rows[a] || amx.colsb[c] != amx.colsb[b] ||
        amx.colsb[a] / 4 != amx.rows[b])
        refuse(SIGILL, "the shapes of a product do not agree", c);
}

void emulated_tile_dpbf16ps(int c, int a, int b)
{
    need_shapes(c, a, b);
    for (int m = 0; m < amx.rows[c]; m++)
        for (int n = 0; n < amx.colsb[c]; n += 4) {
            float sum[2] = {0.0f, 0.0f}, whole;
            for (int k = 0; k < amx.rows[b]; k++)
                for (int half = 0; half < 2; half++)
                    sum[half] = daz(fmaf(half_of(&amx.data[a][m][4 * k], half),
                                         half_of(&amx.data[b][k][n], half), sum[half]));
            memcpy(&whole, &amx.data[c][m][n], sizeof whole);
            whole = daz(daz(whole) + daz(sum[0] + sum[1]));
            memcpy(&amx.data[c][m][n], &whole, sizeof whole);
        }
}

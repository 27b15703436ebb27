/* AMX's tiles in portable C under the names of the intrinsics, for CPUs without them: read before
 * the sources of the amx tier. What the hardware refuses is refused with the same signal: SIGILL
 * for #UD, SIGSEGV for #GP; the reason goes to stderr. One thread. Source: Intel SDM volume 2,
 * LDTILECFG, TILELOADD, TILESTORED, TILEZERO, TDPBF16PS, TILERELEASE; palette 1. */
#ifndef EMULATED_AMX_H
#define EMULATED_AMX_H

#if defined __x86_64__ || defined __i386__
#include <immintrin.h>
#endif
#include <stddef.h>

void emulated_tile_loadconfig(const void *config);
void emulated_tile_release(void);
void emulated_tile_zero(int tile);
void emulated_tile_loadd(int tile, const void *base, ptrdiff_t stride);
void emulated_tile_stored(int tile, void *base, ptrdiff_t stride);
void emulated_tile_dpbf16ps(int c, int a, int b);

/* SIGILL when tiles are still configured: a kernel leaves no state. */
void emulated_amx_must_be_free(void);

#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbf16ps
#define _tile_loadconfig emulated_tile_loadconfig
#define _tile_release emulated_tile_release
#define _tile_zero emulated_tile_zero
#define _tile_loadd emulated_tile_loadd
#define _tile_stored emulated_tile_stored
#define _tile_dpbf16ps emulated_tile_dpbf16ps

#endif

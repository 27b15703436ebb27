/* What every test program uses: counted checks that name their place, and a last line for the
 * runner. A program prints "NAME: N passed, N failed, N skipped" and exits 1 when something failed,
 * 77 when everything was skipped. */
#ifndef RKV_CHECK_H
#define RKV_CHECK_H

#include <stdio.h>
#include <stdlib.h>

/* Sanitizers map terabytes: a limit of the address space says nothing under them. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { CHECK_SANITIZED = 1 };
#else
enum { CHECK_SANITIZED = 0 };
#endif

static int check_passed, check_failed, check_skipped;

#define CHECK(condition, ...) \
    do { \
        if (condition) { \
            check_passed++; \
        } else { \
            check_failed++; \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition); \
            fprintf(stderr, __VA_ARGS__); \
            fputc('\n', stderr); \
        } \
    } while (0)

/* Counts n things that could not be tested here, and says why. */
#define SKIP(n, ...) \
    do { \
        check_skipped += (n); \
        fprintf(stderr, "skipped %d: ", (n)); \
        fprintf(stderr, __VA_ARGS__); \
        fputc('\n', stderr); \
    } while (0)

static inline int check_end(const char *name)
{
    printf("%s: %d passed, %d failed, %d skipped\n", name, check_passed, check_failed,
           check_skipped);
    return check_failed ? 1 : check_passed ? 0 : 77;
}

#endif

/* Filling and forwarding errors. The place that detects a fault fills the error once: what, where,
 * the value found, what to do. Callers only forward. */
#ifndef RKV_ERR_H
#define RKV_ERR_H

#include "rkv.h"

#if defined __GNUC__
#define RKV_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define RKV_PRINTF(fmt, args)
#endif

/* Writes status and text into *e (e may be NULL) and returns the status. */
rkv_status rkv_fail(rkv_error *e, rkv_status s, const char *format, ...) RKV_PRINTF(3, 4);

/* Returns from the calling function when the call failed. */
#define RKV_TRY(call) \
    do { \
        const rkv_status rkv_try_status = (call); \
        if (rkv_try_status) \
            return rkv_try_status; \
    } while (0)

/* One line to the log callback. */
void rkv_log(int level, const char *format, ...) RKV_PRINTF(2, 3);

#endif

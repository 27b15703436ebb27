#include "config.h"
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>

static rkv_log_fn *log_fn;
static void *log_ctx;

rkv_status rkv_fail(rkv_error *e, rkv_status s, const char *format, ...)
{
    if (e) {
        e->status = s;
        va_list ap;
        va_start(ap, format);
        vsnprintf(e->text, sizeof e->text, format, ap);
        va_end(ap);
        /* The text is one line on a terminal, whatever a hostile file put into a name. */
        for (char *c = e->text; *c; c++)
            if ((unsigned char)*c < ' ' || *c == 0x7f)
                *c = '?';
    }
    return s;
}

void rkv_log_set(rkv_log_fn *fn, void *ctx)
{
    log_fn = fn;
    log_ctx = ctx;
}

void rkv_log(int level, const char *format, ...)
{
    if (!log_fn)
        return;
    char line[512];
    va_list ap;
    va_start(ap, format);
    vsnprintf(line, sizeof line, format, ap);
    va_end(ap);
    log_fn(log_ctx, level, line);
}

const char *rkv_status_name(rkv_status s)
{
    static const char *const name[] = {"ok", "bad argument", "input/output error", "bad file",
                                       "unsupported", "mismatch", "out of memory", "interrupted",
                                       "internal error", "output error"};
    const int i = -(int)s;
    return i >= 0 && i < (int)(sizeof name / sizeof *name) ? name[i] : "unknown status";
}

const char *rkv_version(void)
{
    return PACKAGE_VERSION;
}

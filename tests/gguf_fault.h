/* What a test of the GGUF reader expects of a refusal. */
#ifndef RKV_GGUF_FAULT_H
#define RKV_GGUF_FAULT_H

#include <string.h>

#include "base/err.h"
#include "check.h"

/* One fault: what it is, the status, two pieces of the message. */
typedef struct fault {
    const char *name;
    rkv_status status;
    const char *first, *second;
} fault;

static inline void check_message(const char *name, const rkv_error *e, const char *first,
                          const char *second)
{
    CHECK(strstr(e->text, first) && strstr(e->text, second), "%s: '%s' lacks '%s' or '%s'", name,
          e->text, first, second);
    size_t printable = 0;
    while ((unsigned char)e->text[printable] >= ' ')
        printable++;
    CHECK(!e->text[printable], "%s: a control character in '%s'", name, e->text);
}

#endif

/* Reading a profile while memory runs out. */
#ifndef RKV_PARSE_FAILING_H
#define RKV_PARSE_FAILING_H

#include "check.h"

#include "base/mem.h"
#include "profile/profile.h"

/* Every allocation but cJSON's fails once. */
static inline void check_parse_without_memory(const char *text, size_t n)
{
    for (int k = 1;; k++) {
        rkv_profile *back = NULL;
        rkv_error e = {0};
        rkv_mem_fail_after(k);
        const rkv_status status = rkv_profile_parse(&back, text, n, "p.json", &e);
        rkv_mem_fail_after(0);
        rkv_profile_free(back);
        if (!status)
            break;
        CHECK(status == RKV_E_MEM, "allocation %d: %s", k, e.text);
    }
}

#endif

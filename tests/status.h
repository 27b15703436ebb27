/* What the system tells of the test program's memory. */
#ifndef RKV_STATUS_H
#define RKV_STATUS_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Number of kB in /proc/self/status, in bytes. */
static inline uint64_t status_bytes(const char *key)
{
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    unsigned long long v = 0;
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, key, strlen(key)))
            v = strtoull(line + strlen(key), NULL, 10);
    if (f)
        fclose(f);
    return v << 10;
}

#endif

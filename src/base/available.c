/* How much memory this process may still take: the machine, its control groups, its limits;
 * and whether in huge pages. Sources: proc(5); the kernel's admin-guide/cgroup-v1/memory.rst,
 * cgroup-v2.rst and mm/transhuge.rst. */
#include "config.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Number behind a line's first word, which is `key`; UINT64_MAX when there is no such line. */
static uint64_t value_of(const char *path, const char *key)
{
    FILE *f = fopen(path, "r");
    char line[256];
    uint64_t v = UINT64_MAX;
    const size_t n = strlen(key);
    while (f && v == UINT64_MAX && fgets(line, sizeof line, f))
        if (!strncmp(line, key, n) && (line[n] == ':' || line[n] == ' '))
            v = strtoull(line + n + 1, NULL, 10);
    if (f)
        fclose(f);
    return v;
}

/* The same for a file of /proc, which counts in kB. */
static uint64_t proc_bytes(const char *path, const char *key)
{
    const uint64_t kb = value_of(path, key);
    return kb == UINT64_MAX ? kb : kb << 10;
}

/* The number in a one-line file; UINT64_MAX for "max" or when it cannot be read. */
static uint64_t file_number(const char *path)
{
    FILE *f = fopen(path, "r");
    unsigned long long v = UINT64_MAX;
    if (f) {
        if (fscanf(f, "%llu", &v) != 1)
            v = UINT64_MAX;
        fclose(f);
    }
    return v;
}

int rkv_mem_huge_pages(const char *path)
{
    FILE *f = fopen(path, "r");
    char line[128] = "";                        /* "always [madvise] never" */
    const int got = f && fgets(line, sizeof line, f);
    if (f)
        fclose(f);
    return got && (strstr(line, "[always]") || strstr(line, "[madvise]"));
}

/* ---- control groups ---- */

typedef struct hierarchy {      /* names of version 1 or 2 */
    const char *folder, *limit, *used, *file_inactive, *file_active;
} hierarchy;

static const hierarchy version1 = {"/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                                   "total_inactive_file", "total_active_file"};
static const hierarchy version2 = {"", "memory.max", "memory.current", "inactive_file",
                                   "active_file"};

/* Headroom of one group. What it caches of files counts as used there, but makes room when asked
 * to: a model that was read once must not look like a full group. */
static uint64_t group_left(const hierarchy *h, const char *folder, uint64_t *limit)
{
    const uint64_t none = UINT64_C(1) << 62;    /* version 1 writes a huge number for no limit */
    char path[1200];
    snprintf(path, sizeof path, "%s/%s", folder, h->limit);
    const uint64_t most = file_number(path);
    snprintf(path, sizeof path, "%s/%s", folder, h->used);
    uint64_t used = file_number(path);
    if (most >= none || used == UINT64_MAX)
        return UINT64_MAX;
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    const uint64_t cached[] = {value_of(path, h->file_inactive), value_of(path, h->file_active)};
    for (int i = 0; i < 2; i++)
        used -= cached[i] == UINT64_MAX ? 0 : least(used, cached[i]);
    *limit = least(*limit, most);
    return most > used ? most - used : 0;
}

/* The group at path and all above it; inside a container only the root may be visible. */
static uint64_t path_left(const hierarchy *h, const char *root, const char *path, uint64_t *limit)
{
    char folder[1100];
    const int n_root = snprintf(folder, sizeof folder, "%.500s%s", root, h->folder);
    uint64_t left = UINT64_MAX;
    snprintf(folder + n_root, sizeof folder - (size_t)n_root, "%.500s",
             strstr(path, "/..") ? "" : path);
    for (;;) {
        left = least(left, group_left(h, folder, limit));
        char *slash = strrchr(folder + n_root, '/');
        if (!slash)
            return left;
        *slash = 0;
    }
}

uint64_t rkv_mem_cgroup_left(const char *listing, const char *root, uint64_t *limit)
{
    FILE *f = fopen(listing, "r");
    char line[700];
    uint64_t left = UINT64_MAX;
    *limit = UINT64_MAX;
    while (f && fgets(line, sizeof line, f)) {  /* "4:memory:/path", "0::/path" */
        char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = 0;
        path[strcspn(path, "\n")] = 0;
        const char *memory = strstr(names, "memory");
        if (!names[1])
            left = least(left, path_left(&version2, root, path, limit));
        else if (memory && (memory[6] == 0 || memory[6] == ','))
            left = least(left, path_left(&version1, root, path, limit));
    }
    if (f)
        fclose(f);
    return left;
}

/* ---- the whole ---- */

/* What a limit leaves of the address space, or of what may be written in it. */
static uint64_t limit_left(int resource, const char *key)
{
    struct rlimit limit;
    if (getrlimit(resource, &limit) || limit.rlim_cur == RLIM_INFINITY)
        return UINT64_MAX;
    const uint64_t used = proc_bytes("/proc/self/status", key);
    return used == UINT64_MAX ? used : limit.rlim_cur > used ? limit.rlim_cur - used : 0;
}

uint64_t rkv_mem_available(uint64_t *total)
{
    uint64_t limit;
    uint64_t left = rkv_mem_cgroup_left("/proc/self/cgroup", "/sys/fs/cgroup", &limit);
    left = least(left, proc_bytes("/proc/meminfo", "MemAvailable"));
    left = least(left, limit_left(RLIMIT_AS, "VmSize"));
    left = least(left, limit_left(RLIMIT_DATA, "VmData"));
    if (total)
        *total = least(proc_bytes("/proc/meminfo", "MemTotal"), limit);
    return left;
}

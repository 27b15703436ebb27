/* A folder of the test program's own, for the files it makes. */
#ifndef RKV_SCRATCH_H
#define RKV_SCRATCH_H

#include <string.h>
#include <unistd.h>

#include "check.h"

static char scratch_dir[400];

/* Returns whether there is one now. */
static inline int scratch_make(void)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(scratch_dir, sizeof scratch_dir, "%s/rkv-check-XXXXXX", tmp ? tmp : "/tmp");
    const int made = mkdtemp(scratch_dir) != NULL;
    CHECK(made, "cannot make %s", scratch_dir);
    return made;
}

/* Path of a file in it; valid until the next call. */
static inline const char *scratch_path(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", scratch_dir, name);
    return path;
}

/* The folder must be empty again. */
static inline void scratch_remove(void)
{
    CHECK(!rmdir(scratch_dir), "%s is not empty", scratch_dir);
}

#endif

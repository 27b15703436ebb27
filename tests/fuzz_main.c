/* Stands in for libFuzzer: runs a fuzz target on stored inputs, files or folders of them, so that
 * make check replays the corpus with any compiler. Without arguments: the target's own corpus,
 * RKV_CORPUS. */
#include "config.h"
#include "check.h"

#include <dirent.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void run_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    struct stat st;
    CHECK(f && !fstat(fileno(f), &st), "cannot read %s", path);
    if (!f)
        return;
    const size_t n = (size_t)st.st_size;
    uint8_t *data = malloc(n ? n : 1);          /* just the input: a byte too far is seen */
    CHECK(data && fread(data, 1, n, f) == n, "cannot read %s", path);
    fclose(f);
    if (data)
        CHECK(!LLVMFuzzerTestOneInput(data, n), "%s", path);
    free(data);
}

static void run(const char *path)
{
    DIR *d = opendir(path);
    if (!d) {
        run_file(path);
        return;
    }
    for (struct dirent *entry; (entry = readdir(d));) {
        char name[4096];
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        if (entry->d_name[0] != '.')
            run_file(name);
    }
    closedir(d);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        run(argv[i]);
    if (argc == 1)
        run(RKV_CORPUS);
    return check_end("corpus");
}

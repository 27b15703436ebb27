/* Profile runs that cannot go on: models without finite logits, damaged folders of --resume. */
#include "config.h"
#include "made.h"

#include <math.h>

#include "model/model.h"
#include "profile/resume.h"

static void must(rkv_status s, const rkv_error *e)
{
    if (s) {
        fprintf(stderr, "unexpected: %s\n", e->text);
        exit(1);
    }
}

/* A model that overflows gives an error, neither an abort nor a profile of zeros. */
static void check_not_finite(void)
{
    tiny_options t = tiny_defaults();
    rkv_model *m = made_model(&t);
    m->layer[1].v[RKV_V_ATTN_NORM][0] = INFINITY;
    char path[] = "/tmp/rkv-data-XXXXXX";
    FILE *f = fdopen(mkstemp(path), "w");
    fputs("{\"prompt_ids\": [1, 2, 3, 4], \"response_ids\": [5, 6, 7, 8, 9, 10, 11, 12]}\n", f);
    fclose(f);
    rkv_profile_options o = rkv_profile_options_default();
    o.from_answers = 1;
    o.n_thread = 1;
    rkv_profile *p = NULL;
    rkv_error e = {0};
    CHECK(rkv_profile_run(&p, m, path, &o, &e) == RKV_E_UNSUPPORTED &&
              strstr(e.text, "not finite"), "%s", e.text);
    rkv_profile_free(p);
    unlink(path);
    rkv_model_free(m);
}

/* What a damaged database holds is an error, not an example that was never run. */
static void check_damaged_resume(void)
{
#ifdef HAVE_SQLITE
    enum { ROWS = 100, VALUES = 200 };
    char dir[] = "/tmp/rkv-resume-XXXXXX", path[64];
    static double kl[VALUES];
    rkv_error e = {0};
    rkv_resume *r = NULL;
    CHECK(mkdtemp(dir) != NULL, "%s", dir);
    snprintf(path, sizeof path, "%s/profile.sqlite", dir);
    must(rkv_resume_open(&r, dir, "signature", &e), &e);
    for (int i = 0; i < ROWS; i++)
        must(rkv_resume_put(r, i, RKV_EXAMPLE_USED, kl, VALUES, 8, &e), &e);
    rkv_resume_close(r);
    FILE *f = fopen(path, "r+b");
    fseek(f, 0, SEEK_END);
    const long size = ftell(f);
    fseek(f, size / 2, SEEK_SET);
    for (long i = size / 2; i < size; i++)
        fputc(0xff, f);
    fclose(f);
    must(rkv_resume_open(&r, dir, "signature", &e), &e);
    int lost = 0, refused = 0;
    for (int i = 0; i < ROWS; i++) {
        enum rkv_example_state state;
        int n_fed;
        const rkv_status s = rkv_resume_get(r, i, &state, kl, VALUES, &n_fed, &e);
        refused += s == RKV_E_IO;
        lost += !s && state == RKV_EXAMPLE_NEW;
    }
    CHECK(refused > 0 && lost == 0, "%d refused, %d lost of %d", refused, lost, ROWS);
    rkv_resume_close(r);
    static const char *const ends[] = {"", "-wal", "-shm"};
    for (int i = 0; i < 3; i++) {
        char name[80];
        snprintf(name, sizeof name, "%s%s", path, ends[i]);
        unlink(name);
    }
    rmdir(dir);
#else
    SKIP(1, "built without SQLite");
#endif
}

int main(void)
{
    check_damaged_resume();
    check_not_finite();
    return check_end("sweep");
}

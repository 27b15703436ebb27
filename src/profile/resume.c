#include "config.h"
#include "profile/resume.h"

#ifdef HAVE_SQLITE

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <sqlite3.h>

#include "base/mem.h"

struct rkv_resume {
    sqlite3 *db;
    char path[1024];
};

static rkv_status failed(const rkv_resume *r, const char *what, rkv_error *e)
{
    return rkv_fail(e, RKV_E_IO, "%s: %s: %s", r->path, what,
                    r->db ? sqlite3_errmsg(r->db) : "out of memory");
}

static rkv_status run(rkv_resume *r, const char *sql, rkv_error *e)
{
    return sqlite3_exec(r->db, sql, NULL, NULL, NULL) ? failed(r, "cannot prepare the database", e)
                                                      : RKV_OK;
}

/* The signature is written once, by whoever makes the file, and compared ever after. */
static rkv_status check_signature(rkv_resume *r, const char *signature, rkv_error *e)
{
    sqlite3_stmt *q = NULL;
    rkv_status s = RKV_OK;
    if (sqlite3_prepare_v2(r->db, "INSERT OR IGNORE INTO meta VALUES ('signature', ?)", -1, &q,
                           NULL) ||
        sqlite3_bind_text(q, 1, signature, -1, SQLITE_STATIC) || sqlite3_step(q) != SQLITE_DONE)
        s = failed(r, "cannot write", e);
    sqlite3_finalize(q);
    q = NULL;
    if (!s && (sqlite3_prepare_v2(r->db, "SELECT value FROM meta WHERE key = 'signature'", -1, &q,
                                  NULL) ||
               sqlite3_step(q) != SQLITE_ROW))
        s = failed(r, "cannot read", e);
    if (!s) {
        const char *found = (const char *)sqlite3_column_text(q, 0);
        if (!found || strcmp(found, signature))
            s = rkv_fail(e, RKV_E_MISMATCH,
                         "%s: belongs to another run (%.150s), this one is %.150s; name "
                         "another folder",
                         r->path, found ? found : "unknown", signature);
    }
    sqlite3_finalize(q);
    return s;
}

rkv_status rkv_resume_open(rkv_resume **out, const char *dir, const char *signature, rkv_error *e)
{
    if (mkdir(dir, 0777) && errno != EEXIST)
        return rkv_fail(e, RKV_E_IO, "%s: cannot make the folder: %s", dir, strerror(errno));
    rkv_resume *r = rkv_mem_calloc(1, sizeof *r);
    if (!r)
        return rkv_fail(e, RKV_E_MEM, "%s: out of memory", dir);
    rkv_status s = RKV_OK;
    if (snprintf(r->path, sizeof r->path, "%s/profile.sqlite", dir) >= (int)sizeof r->path)
        s = rkv_fail(e, RKV_E_ARG, "%.100s...: the path is too long", dir);
    if (!s && sqlite3_open(r->path, &r->db))
        s = failed(r, "cannot open", e);
    if (!s)
        s = run(r,
                "PRAGMA busy_timeout = 10000; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
                "CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);"
                "CREATE TABLE IF NOT EXISTS example (i INTEGER PRIMARY KEY, state INTEGER NOT NULL,"
                " n_fed INTEGER NOT NULL, kl BLOB)",
                e);
    if (!s)
        s = check_signature(r, signature, e);
    if (s) {
        rkv_resume_close(r);
        return s;
    }
    *out = r;
    return RKV_OK;
}

void rkv_resume_close(rkv_resume *r)
{
    if (!r)
        return;
    sqlite3_close(r->db);
    rkv_mem_free(r);
}

rkv_status rkv_resume_damaged(const rkv_resume *r, int i, rkv_error *e)
{
    return rkv_fail(e, RKV_E_FORMAT, "%s: example %d is damaged; remove the folder", r->path, i);
}

rkv_status rkv_resume_get(rkv_resume *r, int i, enum rkv_example_state *state, double *kl, int n,
                          int *n_fed, rkv_error *e)
{
    *state = RKV_EXAMPLE_NEW;
    if (!r)
        return RKV_OK;
    sqlite3_stmt *q = NULL;
    rkv_status s = RKV_OK;
    int step = SQLITE_ERROR;
    if (!sqlite3_prepare_v2(r->db, "SELECT state, n_fed, kl FROM example WHERE i = ?", -1, &q,
                            NULL) &&
        !sqlite3_bind_int(q, 1, i))
        step = sqlite3_step(q);
    if (step != SQLITE_ROW && step != SQLITE_DONE) {
        s = failed(r, "cannot read", e);
    } else if (step == SQLITE_ROW) {
        const int found = sqlite3_column_int(q, 0), bytes = sqlite3_column_bytes(q, 2);
        *n_fed = sqlite3_column_int(q, 1);
        if (found < RKV_EXAMPLE_USED || found > RKV_EXAMPLE_LONG ||
            (found == RKV_EXAMPLE_USED && (*n_fed < 1 || bytes != n * (int)sizeof *kl))) {
            s = rkv_resume_damaged(r, i, e);
        } else {
            *state = (enum rkv_example_state)found;
            if (found == RKV_EXAMPLE_USED)
                memcpy(kl, sqlite3_column_blob(q, 2), (size_t)bytes);
        }
    }
    sqlite3_finalize(q);
    return s;
}

rkv_status rkv_resume_put(rkv_resume *r, int i, enum rkv_example_state state, const double *kl,
                          int n, int n_fed, rkv_error *e)
{
    if (!r)
        return RKV_OK;
    sqlite3_stmt *q = NULL;
    rkv_status s = RKV_OK;
    const int bytes = state == RKV_EXAMPLE_USED ? n * (int)sizeof *kl : 0;
    if (sqlite3_prepare_v2(r->db, "INSERT OR REPLACE INTO example VALUES (?, ?, ?, ?)", -1, &q,
                           NULL) ||
        sqlite3_bind_int(q, 1, i) || sqlite3_bind_int(q, 2, state) ||
        sqlite3_bind_int(q, 3, n_fed) || sqlite3_bind_blob(q, 4, kl, bytes, SQLITE_STATIC) ||
        sqlite3_step(q) != SQLITE_DONE)
        s = failed(r, "cannot write", e);
    sqlite3_finalize(q);
    return s;
}

#else

rkv_status rkv_resume_damaged(const rkv_resume *r, int i, rkv_error *e)
{
    (void)r;
    return rkv_fail(e, RKV_E_FORMAT, "example %d is damaged", i);
}

rkv_status rkv_resume_open(rkv_resume **out, const char *dir, const char *signature, rkv_error *e)
{
    (void)out, (void)signature;
    return rkv_fail(e, RKV_E_UNSUPPORTED,
                    "%s: this build cannot resume: it was configured without SQLite "
                    "(libsqlite3-dev)",
                    dir);
}

void rkv_resume_close(rkv_resume *r)
{
    (void)r;
}

rkv_status rkv_resume_get(rkv_resume *r, int i, enum rkv_example_state *state, double *kl, int n,
                          int *n_fed, rkv_error *e)
{
    (void)r, (void)i, (void)kl, (void)n, (void)n_fed, (void)e;
    *state = RKV_EXAMPLE_NEW;
    return RKV_OK;
}

rkv_status rkv_resume_put(rkv_resume *r, int i, enum rkv_example_state state, const double *kl,
                          int n, int n_fed, rkv_error *e)
{
    (void)r, (void)i, (void)state, (void)kl, (void)n, (void)n_fed, (void)e;
    return RKV_OK;
}

#endif

#include "config.h"
#include "profile/resume.h"

#ifdef HAVE_SQLITE

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/db.h"
#include "base/hash.h"
#include "base/mem.h"

struct rkv_resume {
    sqlite3 *db;
    char path[1024];
};

/* writes: what failed was to keep something. */
static rkv_status failed(const rkv_resume *r, int writes, const char *what, rkv_error *e)
{
    const int code = r->db ? sqlite3_errcode(r->db) & 0xff : SQLITE_NOMEM;
    const int cause = code == SQLITE_CANTOPEN || code == SQLITE_IOERR
                          ? sqlite3_system_errno(r->db) : 0;
    const int damaged = code == SQLITE_CORRUPT || code == SQLITE_NOTADB;
    return rkv_fail(e, rkv_db_status(r->db, writes), "%s: %s: %s%s%s%s", r->path, what,
                    r->db ? sqlite3_errmsg(r->db) : "out of memory", cause ? ": " : "",
                    cause ? strerror(cause) : "",
                    damaged ? "; remove the folder"
                    : code == SQLITE_BUSY ? "; another process uses the folder" : "");
}

static rkv_status cannot_read(const rkv_resume *r, rkv_error *e)
{
    return failed(r, 0, "cannot read", e);
}

static rkv_status cannot_write(const rkv_resume *r, rkv_error *e)
{
    return failed(r, 1, "cannot write", e);
}

static rkv_status run(rkv_resume *r, const char *sql, rkv_error *e)
{
    return sqlite3_exec(r->db, sql, NULL, NULL, NULL) ? cannot_write(r, e) : RKV_OK;
}

/* What a row is known by: a change of any of its numbers is told. */
static int64_t sum_of(int i, int which, const void *data, size_t n)
{
    const int32_t key[] = {i, which};
    rkv_hash h = rkv_hash_init();
    rkv_hash_add(&h, key, sizeof key);
    rkv_hash_add(&h, data, n);
    return (int64_t)rkv_hash_end(&h);
}

static int64_t sum_of_outcome(int i, int variant, const rkv_outcome *o)
{
    const double number[] = {o->kl + 0.0, o->local + 0.0};      /* SQLite keeps no -0.0 */
    return sum_of(i, variant, number, sizeof number);
}

/* Signatures are items with ", " between them: the first item in which two differ, of a, begins. */
static size_t first_difference(const char *a, const char *b)
{
    size_t start = 0;
    for (size_t i = 0; a[i] && a[i] == b[i]; i++)
        if (a[i] == ',' && a[i + 1] == ' ')
            start = i + 2;
    return start;
}

/* The signature is written once, by whoever makes the file, and compared ever after. */
static rkv_status check_signature(rkv_resume *r, const char *signature, rkv_error *e)
{
    sqlite3_stmt *q = NULL;
    rkv_status s = RKV_OK;
    if (sqlite3_prepare_v2(r->db, "INSERT OR IGNORE INTO meta VALUES ('signature', ?)", -1, &q,
                           NULL) ||
        sqlite3_bind_text(q, 1, signature, -1, SQLITE_STATIC) || sqlite3_step(q) != SQLITE_DONE)
        s = cannot_write(r, e);
    sqlite3_finalize(q);
    q = NULL;
    if (!s && (sqlite3_prepare_v2(r->db, "SELECT value FROM meta WHERE key = 'signature'", -1, &q,
                                  NULL) ||
               sqlite3_step(q) != SQLITE_ROW))
        s = cannot_read(r, e);
    if (!s) {
        const char *found = (const char *)sqlite3_column_text(q, 0);
        const size_t at = found ? first_difference(found, signature) : 0;
        if (!found || strcmp(found, signature))
            s = rkv_fail(e, RKV_E_MISMATCH,
                         "%.200s: belongs to another run (%.*s), this one has %.*s; name another "
                         "folder",
                         r->path, found ? (int)strcspn(found + at, ",") : 7,
                         found ? found + at : "unknown", (int)strcspn(signature + at, ","),
                         signature + at);
    }
    sqlite3_finalize(q);
    return s;
}

static rkv_status make_folder(const char *dir, rkv_error *e)
{
    struct stat st;
    if (!mkdir(dir, 0777) || (errno == EEXIST && !stat(dir, &st) && S_ISDIR(st.st_mode)))
        return RKV_OK;
    return rkv_fail(e, RKV_E_WRITE, "%s: cannot make the folder: %s", dir,
                    errno == EEXIST ? "not a folder" : strerror(errno));
}

static const char tables[] =
    "CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);"
    "CREATE TABLE IF NOT EXISTS example (i INTEGER PRIMARY KEY, state INTEGER NOT NULL,"
    " fed BLOB, sum INTEGER NOT NULL);"
    "CREATE TABLE IF NOT EXISTS outcome (i INTEGER, variant INTEGER, kl REAL,"
    " local REAL, sum INTEGER NOT NULL, PRIMARY KEY (i, variant)) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS estimate (i INTEGER PRIMARY KEY, error BLOB,"
    " sum INTEGER NOT NULL);";

rkv_status rkv_resume_open(rkv_resume **out, const char *dir, const char *name,
                           const char *signature, rkv_error *e)
{
    RKV_TRY(make_folder(dir, e));
    rkv_resume *r = rkv_mem_calloc(1, sizeof *r);
    if (!r)
        return rkv_fail(e, RKV_E_MEM, "%s: out of memory", dir);
    rkv_status s = RKV_OK;
    if (snprintf(r->path, sizeof r->path, "%s/%s.sqlite", dir, name) >= (int)sizeof r->path)
        s = rkv_fail(e, RKV_E_ARG, "%.100s...: the path is too long", dir);
    if (!s && sqlite3_open(r->path, &r->db))
        s = failed(r, 1, "cannot open", e);
    if (!s && rkv_db_set_up(r->db, tables))
        s = failed(r, 1, "cannot prepare the database", e);
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

/* A statement whose first parameter is the number of an example. */
static rkv_status prepare(rkv_resume *r, sqlite3_stmt **q, int writes, const char *sql, int i,
                          rkv_error *e)
{
    *q = NULL;
    if (sqlite3_prepare_v2(r->db, sql, -1, q, NULL) || sqlite3_bind_int(*q, 1, i))
        return failed(r, writes, "cannot prepare a statement", e);
    return RKV_OK;
}

/* From a row of state, fed and sum; 0: it cannot be one that was stored. */
static int take_example(sqlite3_stmt *q, int i, enum rkv_example_state *state, int32_t *fed,
                        int n_max, int *n_fed)
{
    const int found = sqlite3_column_int(q, 0), bytes = sqlite3_column_bytes(q, 1);
    const int n = bytes / (int)sizeof *fed, used = found == RKV_EXAMPLE_USED;
    if (found < RKV_EXAMPLE_USED || found > RKV_EXAMPLE_LONG ||
        sqlite3_column_int64(q, 2) != sum_of(i, found, sqlite3_column_blob(q, 1), (size_t)bytes) ||
        (used && (n < 1 || n > n_max || bytes % (int)sizeof *fed)))
        return 0;
    *state = (enum rkv_example_state)found;
    *n_fed = used ? n : 0;
    if (used)
        memcpy(fed, sqlite3_column_blob(q, 1), (size_t)bytes);
    return 1;
}

rkv_status rkv_resume_get(rkv_resume *r, int i, enum rkv_example_state *state, int32_t *fed,
                          int n_max, int *n_fed, rkv_error *e)
{
    *state = RKV_EXAMPLE_NEW;
    *n_fed = 0;
    if (!r)
        return RKV_OK;
    sqlite3_stmt *q;
    rkv_status s = prepare(r, &q, 0, "SELECT state, fed, sum FROM example WHERE i = ?", i, e);
    const int step = s ? SQLITE_DONE : sqlite3_step(q);
    if (step != SQLITE_ROW && step != SQLITE_DONE)
        s = cannot_read(r, e);
    else if (step == SQLITE_ROW && !take_example(q, i, state, fed, n_max, n_fed))
        s = rkv_resume_damaged(r, i, e);
    sqlite3_finalize(q);
    return s;
}

rkv_status rkv_resume_put(rkv_resume *r, int i, enum rkv_example_state state, const int32_t *fed,
                          int n_fed, rkv_error *e)
{
    if (!r)
        return RKV_OK;
    sqlite3_stmt *q;
    rkv_status s = prepare(r, &q, 1, "INSERT OR REPLACE INTO example VALUES (?, ?, ?, ?)", i, e);
    if (!s && (sqlite3_bind_int(q, 2, state) ||
               sqlite3_bind_blob(q, 3, fed, n_fed * (int)sizeof *fed, SQLITE_STATIC) ||
               sqlite3_bind_int64(q, 4, sum_of(i, state, fed, (size_t)n_fed * sizeof *fed)) ||
               sqlite3_step(q) != SQLITE_DONE))
        s = cannot_write(r, e);
    sqlite3_finalize(q);
    return s;
}

rkv_status rkv_resume_get_outcomes(rkv_resume *r, int i, rkv_outcome *out, uint8_t *have, int n,
                                   rkv_error *e)
{
    if (!r)
        return RKV_OK;
    sqlite3_stmt *q;
    int step = SQLITE_DONE;
    rkv_status s =
        prepare(r, &q, 0, "SELECT variant, kl, local, sum FROM outcome WHERE i = ?", i, e);
    while (!s && (step = sqlite3_step(q)) == SQLITE_ROW) {
        const int v = sqlite3_column_int(q, 0);
        const rkv_outcome o = {sqlite3_column_double(q, 1), sqlite3_column_double(q, 2)};
        if (v < 0 || v >= n || sqlite3_column_type(q, 1) != SQLITE_FLOAT ||
            sqlite3_column_type(q, 2) != SQLITE_FLOAT ||
            sqlite3_column_int64(q, 3) != sum_of_outcome(i, v, &o)) {
            s = rkv_resume_damaged(r, i, e);
        } else {
            out[v] = o;
            have[v] = 1;
        }
    }
    if (!s && step != SQLITE_DONE)
        s = cannot_read(r, e);
    sqlite3_finalize(q);
    return s;
}

static rkv_status insert_outcomes(rkv_resume *r, int i, const rkv_outcome *out, const int *index,
                                  int n, rkv_error *e)
{
    sqlite3_stmt *q;
    rkv_status s = prepare(r, &q, 1, "INSERT OR REPLACE INTO outcome VALUES (?, ?, ?, ?, ?)", i, e);
    for (int j = 0; !s && j < n; j++) {
        const rkv_outcome *o = &out[index[j]];
        if (sqlite3_bind_int(q, 2, index[j]) || sqlite3_bind_double(q, 3, o->kl) ||
            sqlite3_bind_double(q, 4, o->local) ||
            sqlite3_bind_int64(q, 5, sum_of_outcome(i, index[j], o)) ||
            sqlite3_step(q) != SQLITE_DONE || sqlite3_reset(q))
            s = cannot_write(r, e);
    }
    sqlite3_finalize(q);
    return s;
}

static rkv_status insert_errors(rkv_resume *r, int i, const double *error, size_t n, rkv_error *e)
{
    sqlite3_stmt *q;
    rkv_status s = prepare(r, &q, 1, "INSERT OR REPLACE INTO estimate VALUES (?, ?, ?)", i, e);
    if (!s && (sqlite3_bind_blob64(q, 2, error, n * sizeof *error, SQLITE_STATIC) ||
               sqlite3_bind_int64(q, 3, sum_of(i, 0, error, n * sizeof *error)) ||
               sqlite3_step(q) != SQLITE_DONE))
        s = cannot_write(r, e);
    sqlite3_finalize(q);
    return s;
}

rkv_status rkv_resume_put_outcomes(rkv_resume *r, int i, const rkv_outcome *out, const int *index,
                                   int n, const double *error, size_t n_error, rkv_error *e)
{
    if (!r)
        return RKV_OK;
    RKV_TRY(run(r, "BEGIN IMMEDIATE", e));
    rkv_status s = insert_outcomes(r, i, out, index, n, e);
    if (!s && error)
        s = insert_errors(r, i, error, n_error, e);
    if (!s)
        s = run(r, "COMMIT", e);
    if (s)
        sqlite3_exec(r->db, "ROLLBACK", NULL, NULL, NULL);
    return s;
}

rkv_status rkv_resume_get_errors(rkv_resume *r, int i, double *error, size_t n, int *have,
                                 rkv_error *e)
{
    *have = 0;
    if (!r)
        return RKV_OK;
    sqlite3_stmt *q;
    rkv_status s = prepare(r, &q, 0, "SELECT error, sum FROM estimate WHERE i = ?", i, e);
    const int step = s ? SQLITE_DONE : sqlite3_step(q);
    if (step != SQLITE_ROW && step != SQLITE_DONE) {
        s = cannot_read(r, e);
    } else if (step == SQLITE_ROW) {
        const size_t bytes = (size_t)sqlite3_column_bytes(q, 0);
        *have = bytes == n * sizeof *error &&
                sqlite3_column_int64(q, 1) == sum_of(i, 0, sqlite3_column_blob(q, 0), bytes);
        if (*have && n)
            memcpy(error, sqlite3_column_blob(q, 0), bytes);
        else
            s = rkv_resume_damaged(r, i, e);
    }
    sqlite3_finalize(q);
    return s;
}

#else

rkv_status rkv_resume_damaged(const rkv_resume *r, int i, rkv_error *e)
{
    (void)r;
    return rkv_fail(e, RKV_E_FORMAT, "example %d is damaged", i);
}

rkv_status rkv_resume_open(rkv_resume **out, const char *dir, const char *name,
                           const char *signature, rkv_error *e)
{
    (void)out, (void)name, (void)signature;
    return rkv_fail(e, RKV_E_UNSUPPORTED,
                    "%s: this build cannot resume: it was configured without SQLite "
                    "(libsqlite3-dev)",
                    dir);
}

void rkv_resume_close(rkv_resume *r)
{
    (void)r;
}

rkv_status rkv_resume_get(rkv_resume *r, int i, enum rkv_example_state *state, int32_t *fed,
                          int n_max, int *n_fed, rkv_error *e)
{
    (void)r, (void)i, (void)fed, (void)n_max, (void)e;
    *state = RKV_EXAMPLE_NEW;
    *n_fed = 0;
    return RKV_OK;
}

rkv_status rkv_resume_put(rkv_resume *r, int i, enum rkv_example_state state, const int32_t *fed,
                          int n_fed, rkv_error *e)
{
    (void)r, (void)i, (void)state, (void)fed, (void)n_fed, (void)e;
    return RKV_OK;
}

rkv_status rkv_resume_get_outcomes(rkv_resume *r, int i, rkv_outcome *out, uint8_t *have, int n,
                                   rkv_error *e)
{
    (void)r, (void)i, (void)out, (void)have, (void)n, (void)e;
    return RKV_OK;
}

rkv_status rkv_resume_put_outcomes(rkv_resume *r, int i, const rkv_outcome *out, const int *index,
                                   int n, const double *error, size_t n_error, rkv_error *e)
{
    (void)r, (void)i, (void)out, (void)index, (void)n, (void)error, (void)n_error, (void)e;
    return RKV_OK;
}

rkv_status rkv_resume_get_errors(rkv_resume *r, int i, double *error, size_t n, int *have,
                                 rkv_error *e)
{
    (void)r, (void)i, (void)error, (void)n, (void)e;
    *have = 0;
    return RKV_OK;
}

#endif

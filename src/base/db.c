#include "config.h"

#ifdef HAVE_SQLITE

#include "base/clock.h"
#include "base/db.h"

enum { PATIENCE_MS = 10000, STEP_MS = 20 };

static int attempt(sqlite3 *db, const char *sql)
{
    int code = sqlite3_exec(db, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
                            "BEGIN IMMEDIATE", NULL, NULL, NULL);
    if (!code)
        code = sqlite3_exec(db, sql, NULL, NULL, NULL);
    return code ? code : sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
}

/* The change to a write-ahead log does not wait by itself for others who do the same. */
int rkv_db_set_up(sqlite3 *db, const char *sql)
{
    const int64_t end = rkv_clock_ns() + (int64_t)PATIENCE_MS * 1000000;
    sqlite3_busy_timeout(db, PATIENCE_MS);
    int code = attempt(db, sql);
    while ((code & 0xff) == SQLITE_BUSY && rkv_clock_ns() < end) {
        if (!sqlite3_get_autocommit(db))
            sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
        sqlite3_sleep(STEP_MS);
        code = attempt(db, sql);
    }
    return code;
}

rkv_status rkv_db_status(sqlite3 *db, int writes)
{
    const int code = db ? sqlite3_errcode(db) & 0xff : SQLITE_NOMEM;
    if (code == SQLITE_NOMEM)
        return RKV_E_MEM;
    if (code == SQLITE_CORRUPT || code == SQLITE_NOTADB || code == SQLITE_ERROR)
        return RKV_E_FORMAT;
    return writes ? RKV_E_WRITE : RKV_E_IO;
}

#endif

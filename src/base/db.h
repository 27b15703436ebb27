/* SQLite files that several processes open at once, in builds that have SQLite. */
#ifndef RKV_DB_H
#define RKV_DB_H

#include <sqlite3.h>

#include "base/err.h"

/* Makes the tables of a new file, durable through a write-ahead log: sql, which may run again.
 * Waits up to 10 s for other processes, now and in all later calls. An SQLite result code; db has
 * its message. */
int rkv_db_set_up(sqlite3 *db, const char *sql);

/* What the last call on db, which failed, comes to: RKV_E_MEM (also for db NULL); RKV_E_FORMAT: the
 * file is no database, damaged, or has other tables; else RKV_E_WRITE, if writes: what failed was
 * to keep something; else RKV_E_IO. */
rkv_status rkv_db_status(sqlite3 *db, int writes);

#endif

/* SQLite files that several processes open at once, in builds that have SQLite. */
#ifndef RKV_DB_H
#define RKV_DB_H

#include <sqlite3.h>

/* Makes the tables of a new file, durable through a write-ahead log: sql, which may run again.
 * Waits up to 10 s for other processes, now and in all later calls. An SQLite result code; db has
 * its message. */
int rkv_db_set_up(sqlite3 *db, const char *sql);

#endif

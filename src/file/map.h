/* A regular file as read-only memory, and a cursor that cannot leave it.
 *
 * A mapping follows its file: when somebody shortens the file, touching the lost pages raises
 * SIGBUS. The size is therefore looked at again once everything has been checked (rkv_map_confirm),
 * and a file that changed by then is refused. After that the file must not be shortened in place
 * while it is in use; replacing it (rename over it, or unlink) is harmless, the mapping keeps the
 * old content. */
#ifndef RKV_MAP_H
#define RKV_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* As much of a path's end as a message has room for. */
const char *rkv_path_end(const char *path);

typedef struct rkv_map {
    const unsigned char *data;  /* [size], never NULL; page aligned unless it was borrowed */
    size_t size;
    int mapped, fd_open, fd;    /* the descriptor lives until confirmed; again once streamed */
    uint64_t device, inode;     /* the file's */
} rkv_map;

/* Maps path, which must be a regular file (RKV_E_IO when it is none or cannot be opened; RKV_E_MEM
 * when it does not fit in the address space). An empty file gives size 0. Never blocks on a fifo.
 * On failure m is as after rkv_map_close. */
rkv_status rkv_map_open(rkv_map *m, const char *path, rkv_error *e);
/* n bytes of the caller's, which must outlive m. */
void rkv_map_borrow(rkv_map *m, const void *data, size_t n);
/* Checks that the file still has the size it had when it was mapped (RKV_E_IO) and lets go of the
 * descriptor. Calls after the first do nothing. */
rkv_status rkv_map_confirm(rkv_map *m, const char *path, rkv_error *e);
/* Opens path again, which must still be the file that was mapped (RKV_E_IO), so that rkv_map_drop
 * also empties the system's cache of it. Does nothing to borrowed memory. */
rkv_status rkv_map_stream(rkv_map *m, const char *path, rkv_error *e);
/* Starts to read the pages that hold [p, p + n), which lies in m, and does not wait for them. */
void rkv_map_ahead(const rkv_map *m, const void *p, size_t n);
/* Lets go of the pages that hold [p, p + n), which lies in m; a later read fetches them again. Does
 * nothing to borrowed memory. */
void rkv_map_drop(const rkv_map *m, const void *p, size_t n);
/* Reads all of it and keeps it in memory until it is closed. RKV_E_MEM, naming the limit. */
rkv_status rkv_map_lock(const rkv_map *m, const char *path, rkv_error *e);
/* A zeroed map is fine. */
void rkv_map_close(rkv_map *m);

/* Reads little-endian fields of a map one after the other. A call that would pass the end reads
 * nothing and returns RKV_E_FORMAT with "where: what needs n bytes at byte x, the file has y". */
typedef struct rkv_cursor {
    const unsigned char *data;
    size_t size, at;            /* at <= size */
    const char *where;          /* file and object, for messages; the caller's */
} rkv_cursor;

/* n bytes; *p points into the map. */
rkv_status rkv_cursor_take(rkv_cursor *c, const unsigned char **p, uint64_t n, const char *what,
                           rkv_error *e);
rkv_status rkv_cursor_u32(rkv_cursor *c, uint32_t *v, const char *what, rkv_error *e);
rkv_status rkv_cursor_u64(rkv_cursor *c, uint64_t *v, const char *what, rkv_error *e);

/* Little-endian numbers at p, whatever p's alignment and the machine's byte order. */
static inline uint32_t rkv_le32(const unsigned char *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint64_t rkv_le64(const unsigned char *p)
{
    return rkv_le32(p) | (uint64_t)rkv_le32(p + 4) << 32;
}

#endif

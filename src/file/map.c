#include "config.h"
#include "file/map.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

const char *rkv_path_end(const char *path)
{
    enum { ROOM = 160 };
    const size_t n = strlen(path);
    const char *p = n > ROOM ? path + n - ROOM : path;
    while (p > path && ((unsigned char)*p & 0xc0) == 0x80)      /* not amid a character */
        p++;
    return p;
}

rkv_status rkv_map_open(rkv_map *m, const char *path, rkv_error *e)
{
    static const unsigned char nothing[1];
    const char *shown = rkv_path_end(path);
    *m = (rkv_map){.data = nothing};
    rkv_status s = RKV_E_IO;
    struct stat st = {0};
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return rkv_fail(e, s, "%s: cannot open: %s", shown, strerror(errno));
    if (fstat(fd, &st)) {
        rkv_fail(e, s, "%s: cannot look at it: %s", shown, strerror(errno));
        goto done;
    }
    if (!S_ISREG(st.st_mode)) {
        rkv_fail(e, s, "%s: not a regular file", shown);
        goto done;
    }
    m->size = (size_t)st.st_size;
    if ((uintmax_t)m->size != (uintmax_t)st.st_size || m->size > PTRDIFF_MAX) {
        s = rkv_fail(e, RKV_E_MEM, "%s: %jd bytes do not fit in the address space", shown,
                     (intmax_t)st.st_size);
        goto done;
    }
    if (m->size) {
        void *p = mmap(NULL, m->size, PROT_READ, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED) {
            s = rkv_fail(e, errno == ENOMEM ? RKV_E_MEM : RKV_E_IO, "%s: cannot map %zu bytes: %s",
                         shown, m->size, strerror(errno));
            goto done;
        }
        m->data = p;
        m->mapped = 1;
    }
    m->fd = fd;
    m->fd_open = 1;
    m->device = st.st_dev;
    m->inode = st.st_ino;
    return RKV_OK;
done:
    close(fd);
    m->size = 0;
    return s;
}

void rkv_map_borrow(rkv_map *m, const void *data, size_t n)
{
    *m = (rkv_map){.data = data, .size = n};
}

rkv_status rkv_map_confirm(rkv_map *m, const char *path, rkv_error *e)
{
    if (!m->fd_open)
        return RKV_OK;
    rkv_status s = RKV_OK;
    struct stat st = {0};
    if (fstat(m->fd, &st))
        s = rkv_fail(e, RKV_E_IO, "%s: cannot look at it: %s", rkv_path_end(path), strerror(errno));
    else if ((uintmax_t)st.st_size != m->size)
        s = rkv_fail(e, RKV_E_IO, "%s: changed from %zu to %jd bytes while it was being read",
                     rkv_path_end(path), m->size, (intmax_t)st.st_size);
    close(m->fd);
    m->fd_open = 0;
    return s;
}

rkv_status rkv_map_stream(rkv_map *m, const char *path, rkv_error *e)
{
    struct stat st = {0};
    if (!m->mapped)
        return RKV_OK;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return rkv_fail(e, RKV_E_IO, "%s: cannot open: %s", rkv_path_end(path), strerror(errno));
    if (fstat(fd, &st) || st.st_dev != m->device || st.st_ino != m->inode) {
        close(fd);
        return rkv_fail(e, RKV_E_IO, "%s: became another file while it was being read",
                        rkv_path_end(path));
    }
    m->fd = fd;
    m->fd_open = 1;
    return RKV_OK;
}

/* Offset of the page that holds p. */
static size_t page_of(const rkv_map *m, const void *p)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (size_t)((const unsigned char *)p - m->data) / page * page;
}

/* Linux reads no more ahead for one call than its read-ahead window, 128 KiB by default. */
void rkv_map_ahead(const rkv_map *m, const void *p, size_t n)
{
    enum { WINDOW = 128 << 10 };
    if (!m->mapped)
        return;
    const size_t end = (size_t)((const unsigned char *)p - m->data) + n;
    for (size_t at = page_of(m, p); at < end; at += WINDOW)
        madvise((void *)(m->data + at), end - at < WINDOW ? end - at : WINDOW, MADV_WILLNEED);
}

void rkv_map_drop(const rkv_map *m, const void *p, size_t n)
{
    if (!m->mapped)
        return;
    const size_t first = page_of(m, p), end = (size_t)((const unsigned char *)p - m->data) + n;
    madvise((void *)(m->data + first), end - first, MADV_DONTNEED);
    if (m->fd_open)             /* the cache keeps pages that are mapped: hence in this order */
        posix_fadvise(m->fd, (off_t)first, (off_t)(end - first), POSIX_FADV_DONTNEED);
}

rkv_status rkv_map_lock(const rkv_map *m, const char *path, rkv_error *e)
{
    if (!m->mapped || !mlock(m->data, m->size))
        return RKV_OK;
    const int why = errno;
    struct rlimit limit = {0};
    getrlimit(RLIMIT_MEMLOCK, &limit);
    return rkv_fail(
        e, RKV_E_MEM,
        "%s: cannot lock %zu bytes in memory: %s; RLIMIT_MEMLOCK is %ju bytes: raise it "
        "(ulimit -l) or load without locking",
        rkv_path_end(path), m->size, strerror(why), (uintmax_t)limit.rlim_cur);
}

void rkv_map_close(rkv_map *m)
{
    if (m->mapped)
        munmap((void *)m->data, m->size);
    if (m->fd_open)
        close(m->fd);
    *m = (rkv_map){0};
}

rkv_status rkv_cursor_take(rkv_cursor *c, const unsigned char **p, uint64_t n, const char *what,
                           rkv_error *e)
{
    if (n > c->size - c->at)
        return rkv_fail(e, RKV_E_FORMAT,
                        "%s: %s needs %" PRIu64 " bytes at byte %zu, the file has %zu bytes; "
                        "it is cut short or damaged", c->where, what, n, c->at, c->size);
    *p = c->data + c->at;
    c->at += (size_t)n;
    return RKV_OK;
}

rkv_status rkv_cursor_u32(rkv_cursor *c, uint32_t *v, const char *what, rkv_error *e)
{
    const unsigned char *p = NULL;
    RKV_TRY(rkv_cursor_take(c, &p, 4, what, e));
    *v = rkv_le32(p);
    return RKV_OK;
}

rkv_status rkv_cursor_u64(rkv_cursor *c, uint64_t *v, const char *what, rkv_error *e)
{
    const unsigned char *p = NULL;
    RKV_TRY(rkv_cursor_take(c, &p, 8, what, e));
    *v = rkv_le64(p);
    return RKV_OK;
}

/* Growing text and durable files. */
#include "config.h"
#include "base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/utf8.h"

static int reserve(rkv_text *t, size_t more)
{
    if (t->bad)
        return 0;
    if (t->cap - t->n > more)
        return 1;
    const size_t cap = more > SIZE_MAX / 4 || t->n > SIZE_MAX / 4 ? 0 : (t->n + more + 1) * 2;
    char *p = cap ? rkv_mem_realloc(t->data, cap) : NULL;
    if (!p) {
        t->bad = 1;
        return 0;
    }
    t->data = p;
    t->cap = cap;
    return 1;
}

void rkv_text_add(rkv_text *t, const char *bytes, size_t n)
{
    if (!reserve(t, n))
        return;
    if (n)
        memcpy(t->data + t->n, bytes, n);
    t->n += n;
    t->data[t->n] = 0;
}

void rkv_text_printf(rkv_text *t, const char *format, ...)
{
    char small[512];
    va_list ap;
    va_start(ap, format);
    const int n = vsnprintf(small, sizeof small, format, ap);
    va_end(ap);
    if (n < (int)sizeof small) {
        rkv_text_add(t, small, n < 0 ? 0 : (size_t)n);
        return;
    }
    if (!reserve(t, (size_t)n))
        return;
    va_start(ap, format);
    vsnprintf(t->data + t->n, (size_t)n + 1, format, ap);
    va_end(ap);
    t->n += (size_t)n;
}

void rkv_text_utf8(rkv_text *t, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n;) {
        const size_t len = rkv_utf8_length((const unsigned char *)bytes + i, n - i);
        rkv_text_add(t, len ? bytes + i : "\xef\xbf\xbd", len ? len : 3);
        i += len ? len : 1;
    }
}

void rkv_text_json(rkv_text *t, const char *bytes, size_t n)
{
    rkv_text_add(t, "\"", 1);
    for (size_t i = 0; i < n;) {
        const unsigned char *p = (const unsigned char *)bytes + i;
        const size_t len = rkv_utf8_length(p, n - i);
        if (len == 0)
            rkv_text_add(t, "\xef\xbf\xbd", 3);
        else if (*p == '"' || *p == '\\')
            rkv_text_printf(t, "\\%c", *p);
        else if (*p == '\n')
            rkv_text_add(t, "\\n", 2);
        else if (*p < ' ' || *p == 0x7f)
            rkv_text_printf(t, "\\u%04x", *p);
        else
            rkv_text_add(t, (const char *)p, len);
        i += len ? len : 1;
    }
    rkv_text_add(t, "\"", 1);
}

void rkv_text_number(rkv_text *t, double v)
{
    if (!isfinite(v)) {
        rkv_text_add(t, "null", 4);
        return;
    }
    char s[40];
    for (int digits = 6; digits <= 17; digits += digits < 15 ? 9 : 1) {   /* 6, 15, 16, 17 */
        snprintf(s, sizeof s, "%.*g", digits, v);
        if (strtod(s, NULL) == v)
            break;
    }
    for (char *c = s; *c; c++)                  /* whatever the locale of the caller's process */
        if (*c == ',')
            *c = '.';
    rkv_text_add(t, s, strlen(s));
}

void rkv_text_free(rkv_text *t)
{
    rkv_mem_free(t->data);
    *t = (rkv_text){0};
}

int rkv_text_take(rkv_text *t, char **text, size_t *n)
{
    if (t->bad) {
        rkv_text_free(t);
        return 0;
    }
    *text = t->data;
    if (n)
        *n = t->n;
    return 1;
}

static int write_bytes(int fd, const char *bytes, size_t n)
{
    while (n) {
        const ssize_t w = write(fd, bytes, n);
        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0)
            return -1;
        bytes += w;
        n -= (size_t)w;
    }
    return 0;
}

/* Makes the rename itself durable; a file system that cannot sync a folder is not our failure. */
static void sync_folder(const char *path)
{
    char *folder = rkv_mem_strdup(path);
    if (!folder)
        return;
    char *slash = strrchr(folder, '/');
    if (slash == folder)
        slash[1] = 0;
    else if (slash)
        *slash = 0;
    const int fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
    rkv_mem_free(folder);
}

/* A device or a pipe is written, not replaced: as root the rename would remove /dev/null. */
static rkv_status write_special(const char *path, const char *bytes, size_t n, rkv_error *e)
{
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    const int bad = fd < 0 || write_bytes(fd, bytes, n);
    const int cause = errno;
    if (fd >= 0)
        close(fd);
    return bad ? rkv_fail(e, RKV_E_WRITE, "%s: cannot write: %s", path, strerror(cause)) : RKV_OK;
}

/* A new file beside the one of this path, whose name it gives; -1: none, errno tells why. */
static int open_beside(char *tmp, size_t len, const char *path, mode_t mode)
{
    int fd = -1;
    for (int i = 0; fd < 0 && i < 1000; i++) { /* another thread or container may have the name */
        snprintf(tmp, len, "%s.tmp.%ld.%d", path, (long)getpid(), i);
        fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        if (fd < 0 && errno != EEXIST)
            break;
    }
    return fd;
}

/* A file that was there keeps its mode, and a link to it stays a link. */
rkv_status rkv_file_replace(const char *path, const char *bytes, size_t n, rkv_error *e)
{
    struct stat st;
    char target[PATH_MAX];
    const int there = !stat(path, &st);
    if (there && !S_ISREG(st.st_mode))
        return write_special(path, bytes, n, e);
    const char *to = there && realpath(path, target) ? target : path;
    const size_t len = strlen(to) + 32;
    char *tmp = rkv_mem_alloc(len);
    if (!tmp)
        return rkv_fail(e, RKV_E_MEM, "%s: out of memory", path);
    rkv_status s = RKV_OK;
    const int fd = open_beside(tmp, len, to, there ? st.st_mode & 0777 : 0666);
    if (fd < 0) {
        s = rkv_fail(e, RKV_E_WRITE, "%s: cannot create: %s", path, strerror(errno));
    } else {
        int bad = there && fchmod(fd, st.st_mode & 0777); /* as it was, whatever the umask */
        bad |= write_bytes(fd, bytes, n) || fsync(fd);
        if (close(fd))
            bad = 1;
        if (bad || rename(tmp, to)) {
            s = rkv_fail(e, RKV_E_WRITE, "%s: cannot write: %s", path, strerror(errno));
            unlink(tmp);
        } else {
            sync_folder(to);
        }
    }
    rkv_mem_free(tmp);
    return s;
}

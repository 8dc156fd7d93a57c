/* SPDX-License-Identifier: Apache-2.0
 * ps_file.c: making and mapping files of a daemon directory. */
#define _GNU_SOURCE 1 /* fallocate */
#include "ps_set_up.h"

#include "ps_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "ps_error.h"

int ps_file_join(char *out, const char *directory, const char *name)
{
    if (directory == NULL || directory[0] == '\0') {
        return ps_fail(PS_E_INVALID, "no directory given");
    }
    const int written = snprintf(out, PS_PATH_BYTES, "%s/%s", directory, name);
    if (written < 0 || written >= PS_PATH_BYTES) {
        return ps_fail(PS_E_INVALID, "path longer than %d bytes: %.64s...", PS_PATH_BYTES - 1,
                       directory);
    }
    return PS_OK;
}

int ps_file_create(const char *path, int64_t length, int32_t mode)
{
    const int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, (mode_t)(mode & 0777));
    if (fd < 0) {
        return ps_fail(PS_E_SYSTEM, "cannot create %s: %s", path, strerror(errno));
    }
    if (fchmod(fd, (mode_t)(mode & 0777)) != 0 || ftruncate(fd, (off_t)length) != 0) {
        const int cause = errno;
        close(fd);
        unlink(path);
        return ps_fail(PS_E_SYSTEM, "cannot size %s to %lld bytes: %s", path, (long long)length,
                       strerror(cause));
    }
    return fd;
}

static int64_t ps_free_bytes_fd(int fd)
{
    struct statvfs info;
    if (fstatvfs(fd, &info) != 0) {
        return -1;
    }
    return (int64_t)info.f_bavail * (int64_t)info.f_frsize;
}

int64_t ps_free_bytes(const char *path)
{
    struct statvfs info;
    if (path == NULL || statvfs(path, &info) != 0) {
        return ps_fail(PS_E_SYSTEM, "cannot ask %s for free space: %s",
                       path != NULL ? path : "NULL", path != NULL ? strerror(errno) : "no path");
    }
    return (int64_t)info.f_bavail * (int64_t)info.f_frsize;
}

int ps_file_reserve(int fd, const char *path, int64_t offset, int64_t length)
{
    int cause;
    int tries = 0;
    do {
        cause = posix_fallocate(fd, (off_t)offset, (off_t)length);
    } while (cause == EINTR && ++tries < 64);
    if (cause == ENOSPC || cause == EFBIG || cause == EDQUOT) {
        return ps_fail(PS_E_NO_SPACE, "no space for %s: needs %lld bytes, %lld available", path,
                       (long long)length, (long long)ps_free_bytes_fd(fd));
    }
    if (cause != 0) {
        return ps_fail(PS_E_SYSTEM, "cannot allocate %lld bytes of %s: %s", (long long)length, path,
                       strerror(cause));
    }
    return PS_OK;
}

int ps_file_zero(int fd, const char *path, int64_t offset, int64_t length)
{
    enum { PIECES = 16 };
    static const uint8_t zeroes[4096];
    while (length > 0) {
        struct iovec pieces[PIECES];
        int count = 0;
        for (int64_t left = length; count < PIECES && left > 0; count++) {
            const size_t part = left < (int64_t)sizeof zeroes ? (size_t)left : sizeof zeroes;
            pieces[count] = (struct iovec){ (void *)(uintptr_t)zeroes, part };
            left -= (int64_t)part;
        }
        const ssize_t written = pwritev(fd, pieces, count, (off_t)offset);
        if (written < 0 && errno != EINTR) {
            return ps_fail(PS_E_SYSTEM, "cannot zero %lld bytes of %s: %s", (long long)length, path,
                           strerror(errno));
        }
        offset += written > 0 ? written : 0;
        length -= written > 0 ? written : 0;
    }
    return PS_OK;
}

int ps_file_release(int fd, const char *path, int64_t offset, int64_t length)
{
    int result;
    do {
        result =
            fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)length);
    } while (result != 0 && errno == EINTR);
    return result == 0 ? PS_OK : ps_file_zero(fd, path, offset, length);
}

int ps_file_map(const char *path, int32_t read_only, int64_t least, uint8_t **map, uint64_t *length)
{
    if (path == NULL) {
        return ps_fail(PS_E_INVALID, "no path given");
    }
    const int fd = open(path, (read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC);
    if (fd < 0) {
        return ps_fail(errno == EACCES || errno == EPERM ? PS_E_PERMISSION : PS_E_SYSTEM,
                       "cannot open %s: %s", path, strerror(errno));
    }
    struct stat info;
    if (fstat(fd, &info) != 0) {
        const int cause = errno;
        close(fd);
        return ps_fail(PS_E_SYSTEM, "cannot stat %s: %s", path, strerror(cause));
    }
    if (!S_ISREG(info.st_mode) || (int64_t)info.st_size < least) {
        close(fd);
        return ps_fail(PS_E_CORRUPT, "%s is too short: %lld bytes, at least %lld expected", path,
                       (long long)info.st_size, (long long)least);
    }
    const int protection = read_only ? PROT_READ : PROT_READ | PROT_WRITE;
    void *mapped = mmap(NULL, (size_t)info.st_size, protection, MAP_SHARED, fd, 0);
    const int cause = errno;
    close(fd);
    if (mapped == MAP_FAILED) {
        return ps_fail(cause == ENOMEM ? PS_E_NO_MEMORY : PS_E_SYSTEM, "cannot map %s: %s", path,
                       strerror(cause));
    }
    *map = mapped;
    *length = (uint64_t)info.st_size;
    return PS_OK;
}

int ps_file_reserve_in(const char *path, int64_t offset, int64_t length)
{
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return ps_fail(PS_E_SYSTEM, "cannot open %s: %s", path, strerror(errno));
    }
    const int code = ps_file_reserve(fd, path, offset, length);
    close(fd);
    return code;
}

static int ps_file_reserve_around(int fd, const char *path, int64_t length,
                                  const ps_file_range_t *holes, int32_t hole_count)
{
    int64_t from = 0;
    int code = PS_OK;
    for (int32_t i = 0; i <= hole_count && code == PS_OK; i++) {
        const int64_t to = i < hole_count ? holes[i].from : length;
        if (to > from) {
            code = ps_file_reserve(fd, path, from, to - from);
        }
        from = i < hole_count ? holes[i].to : length;
    }
    return code;
}

int ps_file_make(const char *path, int64_t length, int32_t mode, const ps_file_range_t *holes,
                 int32_t hole_count, uint8_t **map)
{
    const int fd = ps_file_create(path, length, mode);
    if (fd < 0) {
        return fd;
    }
    int code = ps_file_reserve_around(fd, path, length, holes, hole_count);
    if (code == PS_OK) {
        void *mapped = mmap(NULL, (size_t)length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (mapped == MAP_FAILED) {
            code = ps_fail(PS_E_SYSTEM, "cannot map %s: %s", path, strerror(errno));
        } else {
            *map = mapped;
        }
    }
    close(fd);
    if (code != PS_OK) {
        unlink(path);
    }
    return code;
}

void ps_file_unmap(uint8_t *map, uint64_t length)
{
    if (map != NULL) {
        munmap(map, (size_t)length);
    }
}

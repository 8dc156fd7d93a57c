/* SPDX-License-Identifier: Apache-2.0
 *
 * Larger pages than this processor has, for LD_PRELOAD: PAGES=65536.  Mappings start at a multiple
 * of the page, an offset or an address that is not such a multiple is refused, and lengths are
 * rounded up, as a kernel with such pages does. */
#define _GNU_SOURCE 1
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static size_t page(void)
{
    const char *text = getenv("PAGES");
    return text == NULL ? 4096 : (size_t)strtoul(text, NULL, 10);
}

static size_t whole(size_t length)
{
    return (length + page() - 1) & ~(page() - 1);
}

long sysconf(int name)
{
    static long (*real)(int);
    if (name == _SC_PAGESIZE) {
        return (long)page();
    }
    if (real == NULL) {
        *(void **)&real = dlsym(RTLD_NEXT, "sysconf");
    }
    return real(name);
}

int getpagesize(void)
{
    return (int)page();
}

void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
    const size_t room = whole(length) + page();
    if ((uint64_t)offset % page() != 0 || (flags & MAP_FIXED && (uintptr_t)address % page() != 0)) {
        errno = EINVAL;
        return MAP_FAILED;
    }
    if (flags & MAP_FIXED) {
        return (void *)syscall(SYS_mmap, address, length, protection, flags, fd, offset);
    }
    const int free_room = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    const long found = syscall(SYS_mmap, NULL, room, PROT_NONE, free_room, -1, 0L);
    if (found < 0) {
        return MAP_FAILED;
    }
    const uintptr_t at = whole((size_t)found);
    const long mapped = syscall(SYS_mmap, at, length, protection, flags | MAP_FIXED, fd, offset);
    if (mapped < 0) {
        return MAP_FAILED;
    }
    if (at > (uintptr_t)found) {
        syscall(SYS_munmap, found, at - (uintptr_t)found);
    }
    const uintptr_t end = at + ((length + 4095) & ~(size_t)4095);
    if ((uintptr_t)found + room > end) {
        syscall(SYS_munmap, end, (uintptr_t)found + room - end);
    }
    return (void *)mapped;
}

void *mmap64(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
    return mmap(address, length, protection, flags, fd, offset);
}

int madvise(void *address, size_t length, int advice)
{
    if ((uintptr_t)address % page() != 0) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_madvise, address, whole(length), advice);
}

int mprotect(void *address, size_t length, int protection)
{
    if ((uintptr_t)address % page() != 0) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_mprotect, address, length, protection);
}

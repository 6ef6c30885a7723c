/* A library for LD_PRELOAD with which a test sets the clocks of a running program and makes its file operations fail.
 *
 * The file that the environment variable SHIM names contains four 64-bit numbers: the offset of the wall clock and the
 * time for which the machine was suspended, both in seconds, the error number, and the sum of the operations that fail.
 * CLOCK_MONOTONIC does not include suspended time. On a full disk, only writes beyond the end of a file fail. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { CREATE = 1, WRITE = 2, REMOVE = 4 };

static volatile int64_t *numbers(void) {
    static volatile int64_t none[4], *mapped;
    if (!mapped) {
        const char *path = getenv("SHIM");
        int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
        void *place = file < 0 ? MAP_FAILED : mmap(NULL, sizeof none, PROT_READ, MAP_SHARED, file, 0);
        if (file >= 0) close(file);
        mapped = place == MAP_FAILED ? none : place;
    }
    return mapped;
}

static int fails(int operation) {
    if (!(numbers()[3] & operation)) return 0;
    errno = (int) numbers()[2];
    return 1;
}

/* Files 0 to 2 can be the program's own log. */
static int fails_to_write(int file, int64_t end) {
    struct stat found;
    if (file <= 2 || !(numbers()[3] & WRITE) || fstat(file, &found) != 0 || !S_ISREG(found.st_mode)) return 0;
    return (numbers()[2] != ENOSPC || end > found.st_size) && fails(WRITE);
}

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) real = (__typeof__(name) *) dlsym(RTLD_NEXT, #name)

int clock_gettime(clockid_t clock, struct timespec *now) {
    REAL(clock_gettime);
    int result = real(clock, now);
    if (clock == CLOCK_REALTIME) now->tv_sec += numbers()[0];
    if (clock == CLOCK_MONOTONIC) now->tv_sec -= numbers()[1];
    return result;
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        REAL(name); \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = va_arg(rest, mode_t); \
        va_end(rest); \
        return (flags & O_CREAT) && fails(CREATE) ? -1 : real(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name) \
    int name(int folder, const char *path, int flags, ...) { \
        REAL(name); \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = va_arg(rest, mode_t); \
        va_end(rest); \
        return (flags & O_CREAT) && fails(CREATE) ? -1 : real(folder, path, flags, mode); \
    }
OPENAT(openat)
OPENAT(openat64)

#define PWRITE(name, offset_type) \
    ssize_t name(int file, const void *data, size_t size, offset_type offset) { \
        REAL(name); \
        return fails_to_write(file, (int64_t) (offset + size)) ? -1 : real(file, data, size, offset); \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

ssize_t write(int file, const void *data, size_t size) {
    REAL(write);
    return fails_to_write(file, INT64_MAX) ? -1 : real(file, data, size);
}

int unlinkat(int folder, const char *path, int flags) {
    REAL(unlinkat);
    return fails(REMOVE) ? -1 : real(folder, path, flags);
}

int unlink(const char *path) {
    REAL(unlink);
    return fails(REMOVE) ? -1 : real(path);
}

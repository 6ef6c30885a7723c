/* A library for LD_PRELOAD that records which data a server writes below one directory and which syncs succeed, so that
 * a power failure can be simulated. Also refuses more space while the disk counts as full, delays syncs while the disk
 * counts as slow, and sets the wall clock.
 *
 * JUDGE_DIR is the directory, and JUDGE_TRACE is the file of records. The disk counts as full while the file JUDGE_FULL
 * exists, and as slow while the file JUDGE_SLOW exists. A record is a line "kind offset size length count", followed by a path of `length` bytes and by `count` written
 * bytes. Writes through mmap(2) are not recorded. The file JUDGE_BUSY contains the number of changes that are not yet
 * recorded, and JUDGE_CLOCK contains the number of seconds to add to the wall clock. Both are 64-bit integers. The shift
 * of the clock has no effect on a program that reads the clock with its own system calls.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define REAL(result, name, ...) \
    static result (*real)(__VA_ARGS__); \
    if (!real) real = (result (*)(__VA_ARGS__)) dlsym(RTLD_NEXT, #name)

static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;
static int trace = -1;
static unsigned long syncs;

/* Maps the integer in the file that an environment variable names. */
static int64_t *shared(const char *variable) {
    const char *name = getenv(variable);
    REAL(int, open, const char *, int, ...);
    int file = name ? real(name, O_RDWR | O_CLOEXEC) : -1;
    void *found = file < 0 ? MAP_FAILED : mmap(NULL, sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file >= 0) close(file);
    return found == MAP_FAILED ? NULL : found;
}

/* Serializes changes with their records. If the process is killed between a change and its record, JUDGE_BUSY remains
 * above zero. */
static int64_t *busy;
static void lock(void) {
    int saved = errno;
    pthread_mutex_lock(&order);
    if (!busy) busy = shared("JUDGE_BUSY");
    if (busy) __atomic_add_fetch(busy, 1, __ATOMIC_SEQ_CST);
    errno = saved;
}

static void unlock(void) {
    if (busy) __atomic_sub_fetch(busy, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&order);
}

static const char *base(void) {
    const char *dir = getenv("JUDGE_DIR");
    return dir && *dir ? dir : NULL;
}

/* Returns the part of an absolute path below the directory, or NULL if the path is elsewhere. */
static const char *below(const char *path) {
    const char *dir = base();
    size_t length = dir ? strlen(dir) : 0;
    if (!dir || strncmp(path, dir, length)) return NULL;
    return path[length] == '/' ? path + length + 1 : path[length] ? NULL : ".";
}

static const char *of_file(int file, char *path) {
    char link[64];
    if (!base()) return NULL;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length <= 0) return NULL;
    path[length] = 0;
    return strstr(path, " (deleted)") ? NULL : below(path);
}

static const char *of_name(int at, const char *name, char *path) {
    char whole[2 * PATH_MAX];
    if (!base()) return NULL;
    if (name[0] == '/') return below(name);
    if (at == AT_FDCWD) {
        if (!getcwd(path, PATH_MAX)) return NULL;
    } else {
        snprintf(whole, sizeof whole, "/proc/self/fd/%d", at);
        ssize_t length = readlink(whole, path, PATH_MAX - 1);
        if (length <= 0) return NULL;
        path[length] = 0;
    }
    snprintf(whole, sizeof whole, "%s/%s", path, name);
    memcpy(path, whole, PATH_MAX - 1);
    path[PATH_MAX - 1] = 0;
    return below(path);
}

static void all(const char *bytes, size_t count) {
    REAL(ssize_t, write, int, const void *, size_t);
    while (count) {
        ssize_t done = real(trace, bytes, count);
        if (done <= 0) _exit(97);
        bytes += done;
        count -= done;
    }
}

static void record(char kind, const char *path, long long offset, long long size, const void *bytes, size_t count) {
    char line[PATH_MAX + 100];
    int saved = errno;
    if (trace < 0) {
        REAL(int, open, const char *, int, ...);
        trace = real(getenv("JUDGE_TRACE"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    }
    int length = snprintf(line, sizeof line, "%c %lld %lld %zu %zu\n%s", kind, offset, size, strlen(path), count, path);
    all(line, length);
    all(bytes, count);
    errno = saved;
}

static int full(int file, long long end) {
    struct stat now;
    const char *flag = getenv("JUDGE_FULL");
    return flag && !access(flag, F_OK) && (end < 0 || (!fstat(file, &now) && end > now.st_size));
}

static int opened(int at, const char *name, int flags, int file) {
    char path[PATH_MAX];
    const char *part;
    if (file >= 0 && flags & (O_CREAT | O_TRUNC) && (part = of_name(at, name, path)))
        record(flags & O_TRUNC ? 'C' : 'O', part, 0, 0, "", 0);
    return file;
}

static int refused(int at, const char *name, int flags) {
    char path[PATH_MAX];
    return flags & O_CREAT && of_name(at, name, path) && faccessat(at, name, F_OK, 0) && full(-1, -1);
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        va_list rest; \
        va_start(rest, flags); \
        int mode = flags & O_CREAT ? va_arg(rest, int) : 0; \
        va_end(rest); \
        REAL(int, name, const char *, int, ...); \
        lock(); \
        int file = refused(AT_FDCWD, path, flags) \
            ? (errno = ENOSPC, -1) : opened(AT_FDCWD, path, flags, real(path, flags, mode)); \
        unlock(); \
        return file; \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name) \
    int name(int at, const char *path, int flags, ...) { \
        va_list rest; \
        va_start(rest, flags); \
        int mode = flags & O_CREAT ? va_arg(rest, int) : 0; \
        va_end(rest); \
        REAL(int, name, int, const char *, int, ...); \
        lock(); \
        int file = refused(at, path, flags) ? (errno = ENOSPC, -1) : opened(at, path, flags, real(at, path, flags, mode)); \
        unlock(); \
        return file; \
    }
OPENAT(openat)
OPENAT(openat64)

static size_t total(const struct iovec *pieces, int number) {
    size_t sum = 0;
    for (int i = 0; i < number; i++) sum += pieces[i].iov_len;
    return sum;
}

static void pieces_record(const char *part, long long offset, const struct iovec *pieces, int number, ssize_t done) {
    for (int i = 0; i < number && done > 0; i++) {
        ssize_t here = (ssize_t) pieces[i].iov_len < done ? (ssize_t) pieces[i].iov_len : done;
        record('W', part, offset, 0, pieces[i].iov_base, here);
        offset += here;
        done -= here;
    }
}

/* Defines a write function. If `place` is -1, the function writes at the current position of the file. */
#define WRITE(name, parameters, types, call, pieces, number, place) \
    ssize_t name parameters { \
        static ssize_t (*real) types; \
        if (!real) real = (ssize_t (*) types) dlsym(RTLD_NEXT, #name); \
        char path[PATH_MAX]; \
        const char *part = of_file(file, path); \
        if (!part) return real call; \
        lock(); \
        long long offset = place; \
        if (offset < 0) offset = fcntl(file, F_GETFL) & O_APPEND ? lseek(file, 0, SEEK_END) : lseek(file, 0, SEEK_CUR); \
        ssize_t done = full(file, offset + total(pieces, number)) ? (errno = ENOSPC, -1) : real call; \
        if (done > 0) pieces_record(part, offset, pieces, number, done); \
        unlock(); \
        return done; \
    }
#define ONE (&(struct iovec){(void *) bytes, count})
WRITE(write, (int file, const void *bytes, size_t count), (int, const void *, size_t), (file, bytes, count), ONE, 1, -1)
WRITE(pwrite, (int file, const void *bytes, size_t count, off_t at), (int, const void *, size_t, off_t), (file, bytes, count, at), ONE, 1, at)
WRITE(pwrite64, (int file, const void *bytes, size_t count, off_t at), (int, const void *, size_t, off_t), (file, bytes, count, at), ONE, 1, at)
WRITE(writev, (int file, const struct iovec *v, int n), (int, const struct iovec *, int), (file, v, n), v, n, -1)
WRITE(pwritev, (int file, const struct iovec *v, int n, off_t at), (int, const struct iovec *, int, off_t), (file, v, n, at), v, n, at)
WRITE(pwritev64, (int file, const struct iovec *v, int n, off_t at), (int, const struct iovec *, int, off_t), (file, v, n, at), v, n, at)
#define FLAGGED (int file, const struct iovec *v, int n, off_t at, int flags)
WRITE(pwritev2, FLAGGED, (int, const struct iovec *, int, off_t, int), (file, v, n, at, flags), v, n, at)
WRITE(pwritev64v2, FLAGGED, (int, const struct iovec *, int, off_t, int), (file, v, n, at, flags), v, n, at)

/* Records a new file size ('T') or a minimum file size ('A'). */
static int resized(int file, char kind, long long size, int refused, int result) {
    char path[PATH_MAX];
    const char *part = refused || result ? NULL : of_file(file, path);
    if (part) record(kind, part, 0, size, "", 0);
    return result;
}
#define RESIZE(name, parameters, types, call, kind, end, failed) \
    int name parameters { \
        static int (*real) types; \
        if (!real) real = (int (*) types) dlsym(RTLD_NEXT, #name); \
        char path[PATH_MAX]; \
        if (!of_file(file, path)) return real call; \
        lock(); \
        int refused = full(file, end), result = refused ? (errno = ENOSPC, failed) : resized(file, kind, end, 0, real call); \
        unlock(); \
        return result; \
    }
RESIZE(ftruncate, (int file, off_t size), (int, off_t), (file, size), 'T', size, -1)
RESIZE(ftruncate64, (int file, off_t size), (int, off_t), (file, size), 'T', size, -1)
RESIZE(posix_fallocate, (int file, off_t at, off_t size), (int, off_t, off_t), (file, at, size), 'A', at + size, ENOSPC)
RESIZE(posix_fallocate64, (int file, off_t at, off_t size), (int, off_t, off_t), (file, at, size), 'A', at + size, ENOSPC)
/* With a mode, fallocate usually does not change the size. */
#define END (mode ? 0 : at + size)
RESIZE(fallocate, (int file, int mode, off_t at, off_t size), (int, int, off_t, off_t), (file, mode, at, size), 'A', END, -1)
RESIZE(fallocate64, (int file, int mode, off_t at, off_t size), (int, int, off_t, off_t), (file, mode, at, size), 'A', END, -1)

/* Delays a sync by up to 20 ms if the disk counts as slow. The multiplication spreads the delays evenly. */
static void wait_for_disk(unsigned long sync) {
    const char *flag = getenv("JUDGE_SLOW");
    if (!flag || access(flag, F_OK)) return;
    uint32_t fraction = (uint32_t) sync * 2654435761u;
    nanosleep(&(struct timespec){0, (long) ((uint64_t) fraction * 20000000 >> 32)}, NULL);
}

/* Defines a sync function. A successful sync makes all data durable that was written before the sync began. */
#define SYNC(name) \
    int name(int file) { \
        REAL(int, name, int); \
        char path[PATH_MAX]; \
        const char *part = of_file(file, path); \
        if (!part) return real(file); \
        lock(); \
        unsigned long sync = ++syncs; \
        record('s', part, sync, 0, "", 0); \
        unlock(); \
        wait_for_disk(sync); \
        int result = real(file); \
        lock(); \
        if (!result) record('S', part, sync, 0, "", 0); \
        unlock(); \
        return result; \
    }
SYNC(fsync)
SYNC(fdatasync)

static int renamed(int from, const char *old, int to, const char *new, int result) {
    char one[PATH_MAX], two[PATH_MAX];
    const char *before = of_name(from, old, one), *after = of_name(to, new, two);
    if (!result && before && after) record('R', before, 0, 0, after, strlen(after));
    return result;
}

int rename(const char *old, const char *new) {
    REAL(int, rename, const char *, const char *);
    lock();
    int result = renamed(AT_FDCWD, old, AT_FDCWD, new, real(old, new));
    unlock();
    return result;
}

int renameat(int from, const char *old, int to, const char *new) {
    REAL(int, renameat, int, const char *, int, const char *);
    lock();
    int result = renamed(from, old, to, new, real(from, old, to, new));
    unlock();
    return result;
}

static int removed(int at, const char *name, int result) {
    char path[PATH_MAX];
    const char *part = of_name(at, name, path);
    if (!result && part) record('U', part, 0, 0, "", 0);
    return result;
}

int unlink(const char *name) {
    REAL(int, unlink, const char *);
    lock();
    int result = removed(AT_FDCWD, name, real(name));
    unlock();
    return result;
}

int unlinkat(int at, const char *name, int flags) {
    REAL(int, unlinkat, int, const char *, int);
    lock();
    int result = removed(at, name, real(at, name, flags));
    unlock();
    return result;
}

/* Returns the number of seconds by which the wall clock was set forward. */
static int64_t shift(void) {
    static volatile int64_t *page;
    if (!page) page = shared("JUDGE_CLOCK");
    return page ? *page : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    REAL(int, clock_gettime, clockid_t, struct timespec *);
    int result = real(clock, now);
    if (!result && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += shift();
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    REAL(int, gettimeofday, struct timeval *, void *);
    int result = real(now, zone);
    if (!result) now->tv_sec += shift();
    return result;
}

time_t time(time_t *place) {
    REAL(time_t, time, time_t *);
    time_t now = real(NULL) + shift();
    if (place) *place = now;
    return now;
}

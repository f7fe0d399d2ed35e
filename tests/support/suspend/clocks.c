/* Clocks that stand still while their process is stopped: what a process sees of a machine that was suspended.
 *
 * Loaded before libc, by LD_PRELOAD. The file that DELAYLINE_STOOD_STILL names has two numbers of 64 bits: for how many
 * nanoseconds CLOCK_MONOTONIC and its kin have stood still so far, and for how many CLOCK_BOOTTIME. A test that stops the
 * process counts there; the clock of the day goes on.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SECOND INT64_C(1000000000)

enum { MONOTONIC, BOOTTIME };

static const volatile int64_t *stood_still;

__attribute__((constructor)) static void look(void)
{
    const char *path = getenv("DELAYLINE_STOOD_STILL");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *seen = file < 0 ? MAP_FAILED : mmap(NULL, 2 * sizeof *stood_still, PROT_READ, MAP_SHARED, file, 0);
    if (file >= 0)
        close(file);
    if (seen == MAP_FAILED)
        /* A test that sees true clocks would not see what it is there for. */
        abort();
    stood_still = seen;
}

/* Waiting for a futex until a moment of CLOCK_MONOTONIC, as Rust's standard library does, is until one of the kernel's clock,
 * which is ahead by what was hidden: else that moment has always passed, and who waits in a loop takes a processor.
 */
long syscall(long number, ...)
{
    static long (*true_syscall)(long, ...);
    long arguments[6];
    va_list given;
    va_start(given, number);
    for (int i = 0; i < 6; i++)
        arguments[i] = va_arg(given, long);
    va_end(given);
    struct timespec until;
    if (number == SYS_futex && (arguments[1] & ~FUTEX_PRIVATE_FLAG) == FUTEX_WAIT_BITSET && arguments[3] != 0 &&
        stood_still != NULL) {
        int64_t nanos;
        until = *(const struct timespec *)arguments[3];
        nanos = until.tv_nsec + stood_still[MONOTONIC];
        until.tv_sec += nanos / SECOND;
        until.tv_nsec = nanos % SECOND;
        arguments[3] = (long)&until;
    }
    /* Not where the file is looked at, as others begin before this does. */
    if (true_syscall == NULL)
        true_syscall = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    return true_syscall(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    int64_t nanos, hidden = 0;
    if (syscall(SYS_clock_gettime, clock, time) != 0)
        return -1;
    if (stood_still == NULL)
        return 0;
    switch (clock) {
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_RAW:
    case CLOCK_MONOTONIC_COARSE:
        hidden = stood_still[MONOTONIC];
        break;
    case CLOCK_BOOTTIME:
    case CLOCK_BOOTTIME_ALARM:
        hidden = stood_still[BOOTTIME];
        break;
    }
    nanos = time->tv_sec * SECOND + time->tv_nsec - hidden;
    time->tv_sec = nanos / SECOND;
    time->tv_nsec = nanos % SECOND;
    return 0;
}

/* Loaded into a member (LD_PRELOAD), it makes the clock on the wall wrong, and no other:
 * by WALL_CLOCK_OFFSET_S seconds, and with WALL_CLOCK_JUMPS set only in every other second. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

typedef int (*getter)(clockid_t, struct timespec *);

static getter real_getter(void)
{
    static getter found;
    if (!found)
        found = (getter)dlsym(RTLD_NEXT, "clock_gettime");
    return found;
}

static long offset_s(void)
{
    static long offset;
    static int is_read, jumps;
    struct timespec now;

    if (!is_read) {
        const char *text = getenv("WALL_CLOCK_OFFSET_S");
        offset = text ? atol(text) : 0;
        jumps = getenv("WALL_CLOCK_JUMPS") != NULL;
        is_read = 1;
    }
    if (jumps && real_getter()(CLOCK_MONOTONIC, &now) == 0 && now.tv_sec % 2 == 0)
        return 0;
    return offset;
}

int clock_gettime(clockid_t id, struct timespec *time)
{
    int result = real_getter()(id, time);
    if (result == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
        time->tv_sec += offset_s();
    return result;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone)
{
    struct timespec now;
    int result = clock_gettime(CLOCK_REALTIME, &now);
    (void)zone;
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return result;
}

time_t time(time_t *out)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}

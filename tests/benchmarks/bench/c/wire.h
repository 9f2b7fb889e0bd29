/* What the control and the peer share: the clock, whole files, and where the frames of a WebSocket stream end. */
#ifndef WIRE_H
#define WIRE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>

#define FRAME_NS 20000000LL
#define TICK_NS 1000000LL
#define SLOTS (FRAME_NS / TICK_NS)

static inline void fail(const char *what) {
    perror(what);
    exit(1);
}

static inline int64_t now_ns(void) {
    struct timespec moment;
    clock_gettime(CLOCK_MONOTONIC, &moment);
    return moment.tv_sec * 1000000000LL + moment.tv_nsec;
}

/* User and system time of this process. */
static inline int64_t cpu_ns(void) {
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1000000000LL + (use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1000LL;
}

static inline unsigned char *whole_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) < 0) fail(path);
    *size = ftell(file);
    rewind(file);
    unsigned char *bytes = malloc(*size + 1);
    if (!bytes || fread(bytes, 1, *size, file) != *size) fail(path);
    fclose(file);
    return bytes;
}

static inline void write_numbers(const char *path, const int64_t *numbers, int64_t count) {
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(numbers, sizeof *numbers, count, file) != (size_t)count || fclose(file)) fail(path);
}

/* How much later the wall clock, which the kernel stamps with, reads than the monotonic one: the tightest of some looks. */
static inline int64_t wall_offset(void) {
    int64_t best = INT64_MAX, offset = 0;
    for (int i = 0; i < 9; i++) {
        struct timespec wall;
        int64_t before = now_ns();
        clock_gettime(CLOCK_REALTIME, &wall);
        int64_t after = now_ns();
        if (after - before >= best) continue;
        best = after - before;
        offset = wall.tv_sec * 1000000000LL + wall.tv_nsec - (before + after) / 2;
    }
    return offset;
}

/* The kernel's stamp of a read, on the monotonic clock; `seen` where it has none. */
static inline int64_t stamp_of(struct msghdr *message, int64_t offset, int64_t seen) {
    for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part; part = CMSG_NXTHDR(message, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_TIMESTAMPNS) continue;
        struct timespec stamp;
        memcpy(&stamp, CMSG_DATA(part), sizeof stamp);
        return stamp.tv_sec * 1000000000LL + stamp.tv_nsec - offset;
    }
    return seen;
}

/* A timerfd that fires each millisecond from `base` on. */
static inline int ticker(int64_t base) {
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct itimerspec spec = {{0, TICK_NS}, {(base + TICK_NS) / 1000000000LL, (base + TICK_NS) % 1000000000LL}};
    if (fd < 0 || timerfd_settime(fd, TFD_TIMER_ABSTIME, &spec, NULL) < 0) fail("timerfd");
    return fd;
}

/* A stream of frames, looked at only as far as their heads. */
typedef struct {
    uint64_t skip;          /* bytes of the current frame still to come */
    unsigned char head[14]; /* the part of a head that has arrived */
    int have;
    int closing; /* a close frame was seen */
} Stream;

/* How many frames with `wanted` bytes of payload begin in `data`. */
static inline int64_t count_frames(Stream *stream, const unsigned char *data, size_t size, uint64_t wanted) {
    int64_t found = 0;
    size_t at = 0;
    while (at < size) {
        if (stream->skip) {
            uint64_t step = size - at < stream->skip ? size - at : stream->skip;
            stream->skip -= step;
            at += step;
            continue;
        }
        stream->head[stream->have++] = data[at++];
        if (stream->have < 2) continue;
        int small = stream->head[1] & 0x7f, masked = stream->head[1] >> 7;
        int extra = small == 126 ? 2 : small == 127 ? 8 : 0;
        if (stream->have < 2 + extra) continue;
        uint64_t length = small;
        if (extra) {
            length = 0;
            for (int i = 0; i < extra; i++) length = length << 8 | stream->head[2 + i];
        }
        stream->closing |= (stream->head[0] & 0x0f) == 8;
        stream->skip = length + (masked ? 4 : 0);
        stream->have = 0;
        found += length == wanted;
    }
    return found;
}

#endif

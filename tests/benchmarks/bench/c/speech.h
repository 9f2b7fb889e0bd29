/* What caller and endpoint share: the clock, whole files, the kernel's stamps, and what callers say, as
   tests.benchmarks.bench.modes writes it: numbers of 64 bits and bytes, in the order in which they are read here. */
#ifndef SPEECH_H
#define SPEECH_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS 1000000000LL
#define FRAME_NS 20000000LL
#define RATE_HZ 24000LL
#define FRAME_SAMPLES 480LL

typedef struct {
    const unsigned char *bytes;
    size_t size;
} Bytes;

typedef struct {
    int64_t count, start, start_offset, end, end_offset; /* frames, and samples into them */
    Bytes *frames;
} Clip;

typedef struct {
    int64_t clips, background_frames;
    Clip *clip;
    Bytes *background;
} Speech;

static inline void fail(const char *what) {
    perror(what);
    exit(1);
}

static inline int64_t now_ns(void) {
    struct timespec moment;
    clock_gettime(CLOCK_MONOTONIC, &moment);
    return moment.tv_sec * SECOND_NS + moment.tv_nsec;
}

/* User and system time of this process. */
static inline int64_t cpu_ns(void) {
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (use.ru_utime.tv_sec + use.ru_stime.tv_sec) * SECOND_NS + (use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1000LL;
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
        offset = wall.tv_sec * SECOND_NS + wall.tv_nsec - (before + after) / 2;
    }
    return offset;
}

/* Read what came, with the kernel's stamp of the last of it on the monotonic clock: the moment of the read without one. */
static inline ssize_t read_stamped(int fd, void *into, size_t room, int64_t offset, int64_t *stamp) {
    char control[64];
    struct iovec place = {into, room};
    struct msghdr message = {.msg_iov = &place, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t size = recvmsg(fd, &message, 0);
    *stamp = now_ns();
    for (struct cmsghdr *part = CMSG_FIRSTHDR(&message); size > 0 && part; part = CMSG_NXTHDR(&message, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_TIMESTAMPNS) continue;
        struct timespec came;
        memcpy(&came, CMSG_DATA(part), sizeof came);
        *stamp = came.tv_sec * SECOND_NS + came.tv_nsec - offset;
    }
    return size;
}

static inline int64_t take_number(const unsigned char **at) {
    int64_t number;
    memcpy(&number, *at, sizeof number);
    *at += sizeof number;
    return number;
}

static inline Bytes take_bytes(const unsigned char **at) {
    Bytes found = {.size = take_number(at)};
    found.bytes = *at;
    *at += found.size;
    return found;
}

static inline Bytes *take_frames(const unsigned char **at, int64_t count) {
    Bytes *frames = malloc(sizeof *frames * (count + 1));
    for (int64_t i = 0; i < count; i++) frames[i] = take_bytes(at);
    return frames;
}

static inline Speech read_speech(const char *path) {
    size_t size;
    const unsigned char *at = whole_file(path, &size);
    Speech speech = {.background_frames = take_number(&at)};
    speech.background = take_frames(&at, speech.background_frames);
    speech.clips = take_number(&at);
    speech.clip = calloc(speech.clips, sizeof *speech.clip);
    for (int64_t i = 0; i < speech.clips; i++) {
        Clip *clip = &speech.clip[i];
        clip->start = take_number(&at), clip->start_offset = take_number(&at);
        clip->end = take_number(&at), clip->end_offset = take_number(&at);
        clip->count = take_number(&at);
        clip->frames = take_frames(&at, clip->count);
    }
    return speech;
}

/* When a sample was spoken, from when its frame was sent or came: a frame leaves with its last sample. */
static inline int64_t spoken_at(int64_t offset, int64_t frame_moment) {
    return frame_moment - (FRAME_SAMPLES - offset) * SECOND_NS / RATE_HZ;
}

#endif

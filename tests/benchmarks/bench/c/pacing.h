/* A caller in C: frames every 20 ms on each of many connections, spread over 20 phases by epoll and a timerfd, and what
   comes back with the kernel's receive stamps. What is sent and what is made of that which comes, each program says by
   the functions that are declared here and defined there. */
#ifndef PACING_H
#define PACING_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "wire.h"

typedef struct {
    int fd; /* -1 once the other end has closed it */
    int64_t due;
    const unsigned char *rest; /* what the socket did not take yet of the last frame */
    size_t rest_size;
} Line;

typedef struct {
    int64_t cpu, began, ended, sent, sent_ever, blocked, lines_lost;
} Paced;

static Line *lines;
static Paced paced;
static int64_t *lateness; /* of each frame of the window, in the order of sending */

/* Of the program: the frame that is due on a line, asked for again until some of it was taken; that it was sent; what
   came, with its stamp and the moment at which it was seen; and that the window begins. */
static const unsigned char *next_frame(int number, int64_t now, size_t *size);
static void frame_sent(int number, int64_t now);
static void take(int number, const unsigned char *data, size_t size, int64_t stamp, int64_t seen);
static void window_begins(int64_t now);

static void dial(int number, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    static const char *upgrade =
        "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dm9pY2Vwcm9iZS1iZW5jaA==\r\nSec-WebSocket-Version: 13\r\n\r\n";
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) < 0) fail("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one);
    if (send(fd, upgrade, strlen(upgrade), 0) != (ssize_t)strlen(upgrade)) fail("upgrade");
    char head[4096];
    size_t have = 0;
    char *end = NULL;
    while (!end) {
        ssize_t size = recv(fd, head + have, sizeof head - 1 - have, 0);
        if (size <= 0) fail("upgrade");
        have += size;
        head[have] = 0;
        end = strstr(head, "\r\n\r\n");
    }
    if (strncmp(head, "HTTP/1.1 101", 12)) exit(1);
    size_t after = end + 4 - head;
    int64_t now = now_ns();
    lines[number].fd = fd;
    take(number, (unsigned char *)head + after, have - after, now, now);
    fcntl(fd, F_SETFL, O_NONBLOCK);
}

static void line_is_lost(Line *line) {
    close(line->fd); /* which ends its watching, too */
    line->fd = -1;
    paced.lines_lost++;
}

/* One frame, or what the socket did not take of the last one. */
static void send_frame(int number, int in_window, int64_t now) {
    Line *line = &lines[number];
    if (line->rest_size) {
        ssize_t done = send(line->fd, line->rest, line->rest_size, MSG_NOSIGNAL);
        if (done > 0) line->rest += done, line->rest_size -= done;
        if (line->rest_size) return;
    }
    size_t size;
    const unsigned char *frame = next_frame(number, now, &size);
    ssize_t done = send(line->fd, frame, size, MSG_NOSIGNAL);
    if (done < 0 && errno != EAGAIN) {
        line_is_lost(line);
        return;
    }
    if (done < 0) done = 0;
    if ((size_t)done < size) {
        paced.blocked++;
        if (!done) return;
        line->rest = frame + done;
        line->rest_size = size - done;
    }
    if (in_window) lateness[paced.sent++] = now - line->due;
    paced.sent_ever++;
    line->due += FRAME_NS;
    frame_sent(number, now);
}

static void receive(int number, int64_t offset) {
    static unsigned char buffer[262144];
    char control[64];
    struct iovec into = {buffer, sizeof buffer};
    struct msghdr message = {.msg_iov = &into, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t size = recvmsg(lines[number].fd, &message, 0);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (size <= 0) {
        line_is_lost(&lines[number]);
        return;
    }
    int64_t seen = now_ns();
    take(number, buffer, size, stamp_of(&message, offset, seen), seen);
}

/* Let the peer read to the end: closing while data is unread would break the connection off. */
static void hang_up(Line *line) {
    unsigned char ignored[4096];
    struct timeval patience = {2, 0};
    if (line->fd < 0) return;
    fcntl(line->fd, F_SETFL, 0);
    setsockopt(line->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(line->fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (line->rest_size) send(line->fd, line->rest, line->rest_size, MSG_NOSIGNAL);
    shutdown(line->fd, SHUT_WR);
    while (recv(line->fd, ignored, sizeof ignored, 0) > 0) continue;
    close(line->fd);
}

/* Connect everybody, warm up, and fill `paced` and `lateness` in the window. */
static void pace(int port, int total, int64_t warm_up, int64_t window) {
    lateness = malloc(sizeof *lateness * total * (window / FRAME_NS + 100) * 2);
    lines = calloc(total, sizeof *lines);
    int poll = epoll_create1(0);
    for (int i = 0; i < total; i++) {
        dial(i, port);
        struct epoll_event want = {EPOLLIN, {.u32 = i}};
        epoll_ctl(poll, EPOLL_CTL_ADD, lines[i].fd, &want);
    }
    int64_t base = now_ns(), began = base + warm_up, ended = began + window, next = 0;
    for (int i = 0; i < total; i++) lines[i].due = base + FRAME_NS + (i % SLOTS) * TICK_NS;
    int timer = ticker(base), measuring = 0, behind = 0;
    struct epoll_event want = {EPOLLIN, {.u32 = UINT32_MAX}}, events[256];
    epoll_ctl(poll, EPOLL_CTL_ADD, timer, &want);
    int64_t cpu_before = 0, offset = wall_offset();
    for (;;) {
        int ready = epoll_wait(poll, events, 256, -1), tick = 0;
        for (int i = 0; i < ready; i++) tick |= events[i].data.u32 == UINT32_MAX;
        if (tick) {
            uint64_t passed;
            if (read(timer, &passed, sizeof passed) < 0 && errno != EAGAIN) fail("timerfd");
            int64_t now = now_ns(), last = (now - base) / TICK_NS;
            if (!measuring && now >= began) {
                measuring = 1;
                began = now;
                ended = now + window;
                cpu_before = cpu_ns();
                paced.blocked = 0;
                window_begins(now);
            }
            if (measuring && now >= ended) {
                ended = now;
                break;
            }
            /* Who fell behind catches up one frame a tick; everybody else is served in his slot. */
            int all = behind || last - next >= SLOTS;
            behind = 0;
            for (int64_t at = all ? last - SLOTS + 1 : next; at <= last; at++)
                for (int i = ((at % SLOTS) + SLOTS) % SLOTS; i < total; i += SLOTS) {
                    int64_t moment = now_ns();
                    if (lines[i].due > moment || lines[i].fd < 0) continue;
                    send_frame(i, measuring, moment);
                    behind |= lines[i].due <= moment;
                }
            next = last + 1;
        }
        for (int i = 0; i < ready; i++)
            if (events[i].data.u32 != UINT32_MAX && lines[events[i].data.u32].fd >= 0) receive(events[i].data.u32, offset);
    }
    paced.cpu = cpu_ns() - cpu_before;
    paced.began = began;
    paced.ended = ended;
    for (int i = 0; i < total; i++) hang_up(&lines[i]);
}

/* What the window cost, as the beginning of one JSON object. */
static void print_paced(void) {
    printf("{\"cpu_ns\": %lld, \"began_perf_ns\": %lld, \"ended_perf_ns\": %lld, \"sent\": %lld, \"sent_ever\": %lld, "
           "\"blocked\": %lld, \"lines_lost\": %lld",
           (long long)paced.cpu, (long long)paced.began, (long long)paced.ended, (long long)paced.sent,
           (long long)paced.sent_ever, (long long)paced.blocked, (long long)paced.lines_lost);
}

#endif

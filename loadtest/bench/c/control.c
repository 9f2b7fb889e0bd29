/* The limit that the engine is held against: the same frames at the same times, from C with epoll and a timerfd.

   control PORT CALLERS WARM_UP_MS WINDOW_MS FRAME RECORD IN_BYTES

   Sends the bytes of the file FRAME every 20 ms on each of CALLERS connections, spread over 20 phases, and reads what
   comes with the kernel's receive stamps. The lateness of each frame of the window goes to the file RECORD (64-bit
   nanoseconds, in the order of sending); what the window cost is printed as one JSON object. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "wire.h"

typedef struct {
    int fd;
    int64_t due;
    size_t rest; /* bytes of the last frame that the socket did not take yet */
    Stream stream;
} Caller;

static Caller *callers;
static unsigned char *frame, buffer[262144];
static size_t frame_size;
static int64_t sent, sent_ever, received, blocked, lag_worst, *lateness;
static uint64_t in_bytes;

static void dial(Caller *caller, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    static const char *upgrade =
        "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dm9pY2Vwcm9iZS1iZW5jaA==\r\nSec-WebSocket-Version: 13\r\n\r\n";
    int one = 1;
    caller->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (caller->fd < 0 || connect(caller->fd, (struct sockaddr *)&address, sizeof address) < 0) fail("connect");
    setsockopt(caller->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(caller->fd, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one);
    if (send(caller->fd, upgrade, strlen(upgrade), 0) != (ssize_t)strlen(upgrade)) fail("upgrade");
    char head[4096];
    size_t have = 0;
    char *end = NULL;
    while (!end) {
        ssize_t size = recv(caller->fd, head + have, sizeof head - 1 - have, 0);
        if (size <= 0) fail("upgrade");
        have += size;
        head[have] = 0;
        end = strstr(head, "\r\n\r\n");
    }
    if (strncmp(head, "HTTP/1.1 101", 12)) exit(1);
    size_t after = end + 4 - head;
    received += count_frames(&caller->stream, (unsigned char *)head + after, have - after, in_bytes);
    fcntl(caller->fd, F_SETFL, O_NONBLOCK);
}

/* One frame, or what the socket did not take of the last one. */
static void send_frame(Caller *caller, int in_window, int64_t now) {
    if (caller->rest) {
        ssize_t size = send(caller->fd, frame + frame_size - caller->rest, caller->rest, MSG_NOSIGNAL);
        if (size > 0) caller->rest -= size;
        if (caller->rest) return;
    }
    ssize_t size = send(caller->fd, frame, frame_size, MSG_NOSIGNAL);
    if (size < 0 && errno != EAGAIN) fail("send");
    if (size < 0) size = 0;
    if ((size_t)size < frame_size) {
        blocked++;
        if (!size) return;
        caller->rest = frame_size - size;
    }
    if (in_window) lateness[sent++] = now - caller->due;
    sent_ever++;
    caller->due += FRAME_NS;
}

static void receive(Caller *caller, int64_t offset) {
    char control[64];
    struct iovec into = {buffer, sizeof buffer};
    struct msghdr message = {.msg_iov = &into, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t size = recvmsg(caller->fd, &message, 0);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (size <= 0) fail("recv");
    int64_t seen = now_ns();
    for (struct cmsghdr *part = CMSG_FIRSTHDR(&message); part; part = CMSG_NXTHDR(&message, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_TIMESTAMPNS) continue;
        struct timespec stamp;
        memcpy(&stamp, CMSG_DATA(part), sizeof stamp);
        int64_t lag = seen - (stamp.tv_sec * 1000000000LL + stamp.tv_nsec - offset);
        if (lag > lag_worst) lag_worst = lag;
    }
    received += count_frames(&caller->stream, buffer, size, in_bytes);
}

/* Let the peer read to the end: closing while data is unread would break the connection off. */
static void hang_up(Caller *caller) {
    struct timeval patience = {2, 0};
    fcntl(caller->fd, F_SETFL, 0);
    setsockopt(caller->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (caller->rest) send(caller->fd, frame + frame_size - caller->rest, caller->rest, MSG_NOSIGNAL);
    shutdown(caller->fd, SHUT_WR);
    while (recv(caller->fd, buffer, sizeof buffer, 0) > 0) continue;
    close(caller->fd);
}

static int64_t wall_offset(void) {
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    return wall.tv_sec * 1000000000LL + wall.tv_nsec - now_ns();
}

int main(int count, char **words) {
    if (count != 8) return 2;
    int port = atoi(words[1]), total = atoi(words[2]);
    int64_t warm_up = atoll(words[3]) * 1000000LL, window = atoll(words[4]) * 1000000LL;
    frame = whole_file(words[5], &frame_size);
    in_bytes = strtoull(words[7], NULL, 10);
    lateness = malloc(sizeof *lateness * total * (window / FRAME_NS + 100) * 2);
    callers = calloc(total, sizeof *callers);
    int poll = epoll_create1(0);
    for (int i = 0; i < total; i++) {
        dial(&callers[i], port);
        struct epoll_event want = {EPOLLIN, {.u32 = i}};
        epoll_ctl(poll, EPOLL_CTL_ADD, callers[i].fd, &want);
    }
    int64_t base = now_ns(), began = base + warm_up, ended = began + window, next = 0;
    for (int i = 0; i < total; i++) callers[i].due = base + FRAME_NS + (i % SLOTS) * TICK_NS;
    int timer = ticker(base), measuring = 0, behind = 0;
    struct epoll_event want = {EPOLLIN, {.u32 = UINT32_MAX}}, events[256];
    epoll_ctl(poll, EPOLL_CTL_ADD, timer, &want);
    int64_t cpu_before = 0, received_before = 0, offset = wall_offset();
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
                received_before = received;
                lag_worst = blocked = 0;
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
                    if (callers[i].due > moment) continue;
                    send_frame(&callers[i], measuring, moment);
                    behind |= callers[i].due <= moment;
                }
            next = last + 1;
        }
        for (int i = 0; i < ready; i++)
            if (events[i].data.u32 != UINT32_MAX) receive(&callers[events[i].data.u32], offset);
    }
    int64_t cost = cpu_ns() - cpu_before;
    int64_t received_in = received - received_before;
    for (int i = 0; i < total; i++) hang_up(&callers[i]);
    FILE *record = fopen(words[6], "wb");
    if (!record || fwrite(lateness, sizeof *lateness, sent, record) != (size_t)sent || fclose(record)) fail(words[6]);
    printf("{\"cpu_ns\": %lld, \"began_perf_ns\": %lld, \"ended_perf_ns\": %lld, \"sent\": %lld, \"sent_ever\": %lld, \"received\": %lld, "
           "\"blocked\": %lld, \"receive_lag_worst_ns\": %lld}\n",
           (long long)cost, (long long)began, (long long)ended, (long long)sent, (long long)sent_ever,
           (long long)received_in, (long long)blocked, (long long)lag_worst);
    return 0;
}

/* The other end of every connection: a sink, and in duplex a source that paces as well as the senders should.

   peer GREETING FRAME|- OUT_BYTES RECORD [CERTIFICATE KEY]

   Prints {"port": N}, takes WebSocket upgrades, sends the bytes of the file GREETING, and counts the frames with
   OUT_BYTES of payload. With FRAME it sends those bytes every 20 ms to each caller whose first frames have come. On
   SIGTERM it reads to the end and prints what it saw; RECORD gets (moment, lateness) of each frame that it sent, so
   that it can be told whether it was the limit itself. With a certificate it speaks TLS (built with -DPEER_TLS). */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#ifdef PEER_TLS
#include <openssl/err.h>
#include <openssl/ssl.h>
static SSL_CTX *tls;
#endif

#include "upgrade.h"
#include "wire.h"

#define MOST_FDS 65536
#define FRAMES_BEFORE_SPEAKING 5 /* then the caller's turn has begun, and what comes is an answer */

typedef struct {
    int fd, open, speaking;
    char head[4096];
    size_t have;
    int64_t due, heard;
    unsigned char *late; /* what the socket did not take yet, and goes first */
    size_t late_size;
    Stream stream;
#ifdef PEER_TLS
    SSL *ssl;
#endif
} Caller;

static Caller *callers[MOST_FDS];
static int slots[SLOTS][MOST_FDS], in_slot[SLOTS], behind;
static unsigned char *greeting, *frame, buffer[262144];
static size_t greeting_size, frame_size;
static uint64_t out_bytes;
static int64_t accepted, received, sent, dropped, base, (*records)[2], record_room;
static volatile sig_atomic_t ending;

static void end(int number) {
    (void)number;
    ending = 1;
}

static ssize_t get(Caller *caller, void *into, size_t size) {
#ifdef PEER_TLS
    if (caller->ssl) {
        ERR_clear_error();
        int got = SSL_read(caller->ssl, into, size);
        if (got > 0) return got;
        int why = SSL_get_error(caller->ssl, got);
        errno = EAGAIN;
        return why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE ? -1 : 0;
    }
#endif
    return recv(caller->fd, into, size, 0);
}

static ssize_t put(Caller *caller, const void *from, size_t size) {
#ifdef PEER_TLS
    if (caller->ssl) {
        ERR_clear_error();
        int done = SSL_write(caller->ssl, from, size);
        errno = EAGAIN;
        return done > 0 ? done : -1;
    }
#endif
    return send(caller->fd, from, size, MSG_NOSIGNAL);
}

static void hang_up(Caller *caller) {
    for (int slot = 0; slot < SLOTS && caller->speaking; slot++)
        for (int i = 0; i < in_slot[slot]; i++)
            if (slots[slot][i] == caller->fd) slots[slot][i] = slots[slot][--in_slot[slot]];
    callers[caller->fd] = NULL;
#ifdef PEER_TLS
    if (caller->ssl) SSL_free(caller->ssl);
#endif
    close(caller->fd);
    free(caller->late);
    free(caller);
}

/* Take the upgrade once it is whole; how many bytes of what was read come behind it, -1 for a broken one. */
static ssize_t upgrade(Caller *caller) {
    caller->head[caller->have] = 0;
    char *stop = strstr(caller->head, "\r\n\r\n");
    if (!stop) return caller->have < sizeof caller->head - 1 ? 0 : -1;
    char answer[65536];
    int size = upgrade_answer(caller->head, answer, sizeof answer - greeting_size);
    if (size < 0) return -1;
    memcpy(answer + size, greeting, greeting_size);
    size += greeting_size;
    if (put(caller, answer, size) != size) return -1;
    caller->open = 1;
    accepted++;
    return caller->have - (stop + 4 - caller->head);
}

/* From the next moment of the emptiest slot on. */
static void begin_to_speak(Caller *caller) {
    int64_t first = (now_ns() - base) / TICK_NS + 1, best = first;
    for (int64_t tick = first; tick < first + SLOTS; tick++)
        if (in_slot[tick % SLOTS] < in_slot[best % SLOTS]) best = tick;
    caller->speaking = 1;
    caller->due = base + best * TICK_NS;
    slots[best % SLOTS][in_slot[best % SLOTS]++] = caller->fd;
}

static void receive(Caller *caller) {
    for (;;) {
        ssize_t size;
        if (caller->open) {
            size = get(caller, buffer, sizeof buffer);
        } else {
            size = get(caller, caller->head + caller->have, sizeof caller->head - 1 - caller->have);
        }
        if (size < 0 && errno == EAGAIN) return;
        if (size <= 0) {
            hang_up(caller);
            return;
        }
        const unsigned char *data = buffer;
        if (!caller->open) {
            caller->have += size;
            size = upgrade(caller);
            if (size < 0) {
                hang_up(caller);
                return;
            }
            data = (unsigned char *)caller->head + caller->have - size;
        }
        int64_t frames = count_frames(&caller->stream, data, size, out_bytes);
        received += frames;
        caller->heard += frames;
        if (frame && !caller->speaking && caller->heard >= FRAMES_BEFORE_SPEAKING) begin_to_speak(caller);
        if (caller->stream.closing) {
            hang_up(caller);
            return;
        }
    }
}

static void speak(Caller *caller, int64_t now) {
    if (caller->late_size) {
        ssize_t done = put(caller, caller->late, caller->late_size);
        if (done > 0) memmove(caller->late, caller->late + done, caller->late_size -= done);
    }
    if (caller->late_size) {
        dropped++; /* the caller does not read: that is not this peer's lateness */
    } else {
        ssize_t done = put(caller, frame, frame_size);
        if (done < 0) done = 0;
        if (done < (ssize_t)frame_size) {
            if (!caller->late) caller->late = malloc(frame_size);
            memcpy(caller->late, frame + done, caller->late_size = frame_size - done);
        }
        if (sent == record_room) records = realloc(records, sizeof *records * (record_room = record_room * 2 + 65536));
        records[sent][0] = now;
        records[sent++][1] = now - caller->due;
    }
    caller->due += FRAME_NS;
}

static int64_t tick(int64_t next) {
    int64_t last = (now_ns() - base) / TICK_NS, first = behind || last - next >= SLOTS ? last - SLOTS + 1 : next;
    behind = 0;
    for (int64_t at = first < 0 ? 0 : first; at <= last; at++)
        for (int i = 0; i < in_slot[at % SLOTS]; i++) {
            Caller *caller = callers[slots[at % SLOTS][i]];
            int64_t now = now_ns();
            if (caller->due > now) continue;
            speak(caller, now);
            behind |= caller->due <= now;
        }
    return last + 1;
}

static void welcome(int listener, int poll) {
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK), one = 1;
        if (fd < 0) return;
        if (fd >= MOST_FDS) exit(1);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        Caller *caller = callers[fd] = calloc(1, sizeof *caller);
        caller->fd = fd;
#ifdef PEER_TLS
        if (tls) {
            caller->ssl = SSL_new(tls);
            SSL_set_fd(caller->ssl, fd);
            SSL_set_accept_state(caller->ssl);
        }
#endif
        struct epoll_event want = {EPOLLIN, {.fd = fd}};
        epoll_ctl(poll, EPOLL_CTL_ADD, fd, &want);
    }
}

static void secure(const char *certificate, const char *key) {
#ifdef PEER_TLS
    tls = SSL_CTX_new(TLS_server_method());
    SSL_CTX_set_mode(tls, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    if (SSL_CTX_use_certificate_chain_file(tls, certificate) == 1 && SSL_CTX_use_PrivateKey_file(tls, key, SSL_FILETYPE_PEM) == 1)
        return;
#endif
    fprintf(stderr, "no TLS with %s and %s\n", certificate, key);
    exit(1);
}

int main(int count, char **words) {
    if (count != 5 && count != 7) return 2;
    struct sigaction action = {.sa_handler = end};
    sigaction(SIGTERM, &action, NULL);
    signal(SIGPIPE, SIG_IGN); /* a caller may be gone, and SSL_write has no MSG_NOSIGNAL */
    greeting = whole_file(words[1], &greeting_size);
    if (strcmp(words[2], "-")) frame = whole_file(words[2], &frame_size);
    out_bytes = strtoull(words[3], NULL, 10);
    if (count == 7) secure(words[5], words[6]);
    int listener = listen_on_loopback(), poll = epoll_create1(0), timer = -1;
    struct epoll_event want = {EPOLLIN, {.fd = listener}}, events[256];
    epoll_ctl(poll, EPOLL_CTL_ADD, listener, &want);
    base = now_ns();
    if (frame) {
        want.data.fd = timer = ticker(base);
        epoll_ctl(poll, EPOLL_CTL_ADD, timer, &want);
    }
    for (int64_t next = 0;;) {
        int ready = epoll_wait(poll, events, 256, ending ? 0 : -1), other = 0;
        for (int i = 0; i < ready; i++) {
            int fd = events[i].data.fd;
            uint64_t passed;
            other |= fd != timer;
            if (fd == timer) {
                if (read(timer, &passed, sizeof passed) == sizeof passed && !ending) next = tick(next);
            } else if (fd == listener) {
                welcome(listener, poll);
            } else if (callers[fd]) {
                receive(callers[fd]);
            }
        }
        if (ending && ready >= 0 && !other) break;
    }
    write_numbers(words[4], (int64_t *)records, 2 * sent);
    printf("{\"accepted\": %lld, \"received\": %lld, \"sent\": %lld, \"dropped\": %lld, \"cpu_ns\": %lld}\n",
           (long long)accepted, (long long)received, (long long)sent, (long long)dropped, (long long)cpu_ns());
    return 0;
}

/* The limit that the engine is held against: callers in C who speak, wait and hear, with epoll and a timerfd.

   caller PORT CALLERS WARM_UP_MS WINDOW_MS SPEECH LATENESS TURNS THINK_MS STAGGER_MS REPLY_MS

   Each caller sends the prepared frames of SPEECH, an utterance or the background, every 20 ms, spread over 20 phases,
   and reads everything with the kernel's stamps. It looks into what comes as far as it takes to know its kind, its reply
   and the length of its audio; when the reply has ended and would have been played, it thinks for THINK_MS and speaks
   again. First turns are spread over STAGGER_MS; REPLY_MS after its speech a caller waits no longer. The lateness of each
   frame of the window goes to LATENESS, and eight numbers for each turn to TURNS: see TurnColumn in figures.py. What the
   window cost is printed as one JSON object. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>

#include "speech.h"

#define TICK_NS 1000000LL
#define SLOTS (FRAME_NS / TICK_NS)
#define TIMER UINT32_MAX
#define KEPT 224 /* of each message: its kind and ids, up to where the audio begins */
#define TURN_FIELDS 8

typedef enum { THINKING, SPEAKING, WAITING } State;

typedef struct {
    int fd; /* -1 once the other end has closed it */
    int64_t due;
    const unsigned char *rest; /* what the socket did not take yet of the last frame */
    size_t rest_size;
    State state;
    int64_t turn, frame, background, next, end_of_speech; /* `next`: when a thinking caller speaks */
    int64_t first_chunk, playing_until, number, of_turn;
    int done;
    /* The message under way. */
    unsigned char head[14], kept[KEPT + 1];
    int have;
    uint64_t length, seen;
} Caller;

static Caller *callers;
static Speech speech;
static int total;
static int64_t think, stagger, patience, unanswered, sent, sent_ever, lines_lost;
static int64_t *turns, turn_count, turn_room;
static int64_t *lateness; /* of each frame of the window, in the order of sending */

static void turn_is_over(Caller *caller, int64_t now) {
    if (turn_count == turn_room) {
        turn_room = turn_room * 2 + 4096;
        turns = realloc(turns, sizeof *turns * TURN_FIELDS * turn_room);
    }
    int64_t *row = &turns[TURN_FIELDS * turn_count++];
    row[0] = caller->number, row[1] = caller->of_turn, row[2] = caller->end_of_speech, row[3] = caller->first_chunk;
    row[4] = now, row[5] = caller->done && caller->first_chunk;
    row[6] = row[7] = -1; /* it states no interval */
    unanswered += !row[5];
    caller->turn++;
    caller->state = THINKING;
    caller->next = now + think;
}

static const Clip *clip_of(const Caller *caller) {
    return &speech.clip[(caller - callers + caller->turn) % speech.clips];
}

/* The frame that is due, asked for again until some of it was taken. */
static const Bytes *next_frame(Caller *caller, int64_t now) {
    if (caller->state == THINKING && !caller->next) caller->next = now + think + stagger * (caller - callers) / total;
    if (caller->state == THINKING && now >= caller->next) {
        caller->state = SPEAKING;
        caller->frame = caller->end_of_speech = caller->first_chunk = caller->playing_until = caller->done = 0;
        caller->number = caller->of_turn = -1;
    }
    if (caller->state == WAITING) {
        int heard = caller->done && now >= caller->playing_until;
        if (heard || now >= caller->end_of_speech + patience) turn_is_over(caller, heard ? caller->playing_until : now);
    }
    return caller->state == SPEAKING ? &clip_of(caller)->frames[caller->frame] : &speech.background[caller->background];
}

static void frame_sent(Caller *caller, int64_t now) {
    if (caller->state != SPEAKING) {
        caller->background = (caller->background + 1) % speech.background_frames;
        return;
    }
    const Clip *clip = clip_of(caller);
    if (caller->frame == clip->end) caller->end_of_speech = spoken_at(clip->end_offset, now);
    if (++caller->frame == clip->count) caller->state = WAITING;
}

static void message_came(Caller *caller, int64_t stamp) {
    size_t size = caller->length < KEPT ? caller->length : KEPT;
    caller->kept[size] = 0;
    char *text = (char *)caller->kept, *kind = strstr(text, "\"type\":\""), *name = strstr(text, "\"resp_");
    if (!kind) return;
    kind += 8;
    if (!strncmp(kind, "response.output_audio.delta\"", 28)) {
        char *audio = strstr(text, "\"delta\":\"");
        if (!audio) return;
        int64_t samples = (caller->length - (audio + 9 - text) - 2) / 4 * 3 / 2;
        if (!caller->first_chunk && caller->end_of_speech) {
            caller->first_chunk = stamp;
            if (name) sscanf(name, "\"resp_%" SCNd64 "-%" SCNd64, &caller->number, &caller->of_turn);
        }
        int64_t start = stamp > caller->playing_until ? stamp : caller->playing_until;
        caller->playing_until = start + samples * SECOND_NS / RATE_HZ;
    } else if (!strncmp(kind, "response.done\"", 14) && caller->first_chunk) {
        caller->done = 1;
    }
}

static void take(Caller *caller, const unsigned char *data, size_t size, int64_t stamp) {
    for (size_t at = 0; at < size;) {
        if (caller->have >= 0) { /* in the head of a frame */
            caller->head[caller->have++] = data[at++];
            int small = caller->head[1] & 0x7f, extra = small == 126 ? 2 : small == 127 ? 8 : 0;
            if (caller->have < 2 + (caller->have < 2 ? 0 : extra)) continue;
            caller->length = extra ? 0 : small;
            for (int i = 0; i < extra; i++) caller->length = caller->length << 8 | caller->head[2 + i];
            caller->seen = 0;
            caller->have = -1;
        } else {
            uint64_t step = size - at < caller->length - caller->seen ? size - at : caller->length - caller->seen;
            if (caller->seen < KEPT) {
                uint64_t room = KEPT - caller->seen;
                memcpy(caller->kept + caller->seen, data + at, step < room ? step : room);
            }
            caller->seen += step;
            at += step;
        }
        if (caller->have < 0 && caller->seen == caller->length) {
            if ((caller->head[0] & 0x0f) == 1) message_came(caller, stamp);
            caller->have = 0;
        }
    }
}

static void dial(Caller *caller, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    static const char *upgrade =
        "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dm9pY2Vwcm9iZS1iZW5jaA==\r\nSec-WebSocket-Version: 13\r\n\r\n";
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) < 0) fail("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one);
    if (send(fd, upgrade, strlen(upgrade), 0) != (ssize_t)strlen(upgrade)) fail("upgrade");
    char head[4096], *end = NULL;
    size_t have = 0;
    while (!end) {
        ssize_t size = recv(fd, head + have, sizeof head - 1 - have, 0);
        if (size <= 0) fail("upgrade");
        have += size;
        head[have] = 0;
        end = strstr(head, "\r\n\r\n");
    }
    if (strncmp(head, "HTTP/1.1 101", 12)) exit(1);
    caller->fd = fd;
    take(caller, (unsigned char *)end + 4, have - (end + 4 - head), now_ns());
    fcntl(fd, F_SETFL, O_NONBLOCK);
}

static void line_is_lost(Caller *caller) {
    close(caller->fd); /* which ends its watching, too */
    caller->fd = -1;
    lines_lost++;
}

/* One frame, or what the socket did not take of the last one. */
static void send_frame(Caller *caller, int in_window, int64_t now) {
    if (caller->rest_size) {
        ssize_t done = send(caller->fd, caller->rest, caller->rest_size, MSG_NOSIGNAL);
        if (done > 0) caller->rest += done, caller->rest_size -= done;
        if (caller->rest_size) return;
    }
    const Bytes *frame = next_frame(caller, now);
    ssize_t done = send(caller->fd, frame->bytes, frame->size, MSG_NOSIGNAL);
    if (done < 0) {
        if (errno != EAGAIN) line_is_lost(caller);
        return;
    }
    caller->rest = frame->bytes + done;
    caller->rest_size = frame->size - done;
    if (in_window) lateness[sent++] = now - caller->due;
    sent_ever++;
    caller->due += FRAME_NS;
    frame_sent(caller, now);
}

static void receive(Caller *caller, int64_t offset) {
    static unsigned char buffer[262144];
    int64_t stamp;
    ssize_t size = read_stamped(caller->fd, buffer, sizeof buffer, offset, &stamp);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (size <= 0) {
        line_is_lost(caller);
        return;
    }
    take(caller, buffer, size, stamp);
}

/* Let the endpoint read to the end: closing while data is unread would break the connection off. */
static void hang_up(Caller *caller) {
    unsigned char ignored[4096];
    struct timeval limit = {2, 0};
    if (caller->fd < 0) return;
    fcntl(caller->fd, F_SETFL, 0);
    setsockopt(caller->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(caller->fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (caller->rest_size) send(caller->fd, caller->rest, caller->rest_size, MSG_NOSIGNAL);
    shutdown(caller->fd, SHUT_WR);
    int64_t until = now_ns() + SECOND_NS; /* an endpoint may speak without end */
    while (now_ns() < until && recv(caller->fd, ignored, sizeof ignored, 0) > 0) continue;
    close(caller->fd);
}

/* Serve the slots that have come since `next`. Who fell behind catches up one frame a tick; everybody else is served in
   his slot. Where the ticks go on from. */
static int64_t tick(int64_t base, int64_t next, int measuring) {
    static int behind;
    int64_t last = (now_ns() - base) / TICK_NS, first = behind || last - next >= SLOTS ? last - SLOTS + 1 : next;
    behind = 0;
    for (int64_t at = first; at <= last; at++)
        for (int i = ((at % SLOTS) + SLOTS) % SLOTS; i < total; i += SLOTS) {
            int64_t now = now_ns();
            if (callers[i].due > now || callers[i].fd < 0) continue;
            send_frame(&callers[i], measuring, now);
            behind |= callers[i].due <= now;
        }
    return last + 1;
}

int main(int count, char **words) {
    if (count != 11) return 2;
    int64_t warm_up = atoll(words[3]) * 1000000LL, window = atoll(words[4]) * 1000000LL;
    total = atoi(words[2]);
    speech = read_speech(words[5]);
    think = atoll(words[8]) * 1000000LL, stagger = atoll(words[9]) * 1000000LL, patience = atoll(words[10]) * 1000000LL;
    callers = calloc(total, sizeof *callers);
    lateness = malloc(sizeof *lateness * total * (window / FRAME_NS + 100) * 2);
    int poll = epoll_create1(0), timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK), measuring = 0;
    for (int i = 0; i < total; i++) {
        dial(&callers[i], atoi(words[1]));
        struct epoll_event want = {EPOLLIN, {.u32 = i}};
        epoll_ctl(poll, EPOLL_CTL_ADD, callers[i].fd, &want);
    }
    int64_t base = now_ns(), began = base + warm_up, ended = began + window, next = 0, cpu_before = 0, offset = wall_offset();
    for (int i = 0; i < total; i++) callers[i].due = base + FRAME_NS + (i % SLOTS) * TICK_NS;
    struct itimerspec spec = {{0, TICK_NS}, {(base + TICK_NS) / SECOND_NS, (base + TICK_NS) % SECOND_NS}};
    struct epoll_event want = {EPOLLIN, {.u32 = TIMER}}, events[256];
    if (timer < 0 || timerfd_settime(timer, TFD_TIMER_ABSTIME, &spec, NULL) < 0) fail("timerfd");
    epoll_ctl(poll, EPOLL_CTL_ADD, timer, &want);
    for (;;) {
        int ready = epoll_wait(poll, events, 256, -1), is_due = 0;
        for (int i = 0; i < ready; i++) is_due |= events[i].data.u32 == TIMER;
        if (is_due) {
            uint64_t passed;
            if (read(timer, &passed, sizeof passed) < 0 && errno != EAGAIN) fail("timerfd");
            int64_t now = now_ns();
            if (!measuring && now >= began) measuring = 1, began = now, ended = now + window, cpu_before = cpu_ns();
            if (measuring && now >= ended) {
                ended = now;
                break;
            }
            next = tick(base, next, measuring);
        }
        for (int i = 0; i < ready; i++)
            if (events[i].data.u32 != TIMER && callers[events[i].data.u32].fd >= 0) receive(&callers[events[i].data.u32], offset);
    }
    int64_t cpu = cpu_ns() - cpu_before;
    for (int i = 0; i < total; i++) hang_up(&callers[i]);
    write_numbers(words[6], lateness, sent);
    write_numbers(words[7], turns, TURN_FIELDS * turn_count);
    printf("{\"cpu_ns\": %lld, \"began_perf_ns\": %lld, \"ended_perf_ns\": %lld, \"sent\": %lld, \"sent_ever\": %lld, "
           "\"lines_lost\": %lld, \"turns_ever\": %lld, \"unanswered_ever\": %lld}\n",
           (long long)cpu, (long long)began, (long long)ended, (long long)sent, (long long)sent_ever, (long long)lines_lost,
           (long long)turn_count, (long long)unanswered);
    return 0;
}

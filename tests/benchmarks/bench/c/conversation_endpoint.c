/* An endpoint that answers speech by a script and knows when it did.

   conversation_endpoint GREETING SPEECH ANSWERS RECORD

   Prints {"port": N}, takes WebSocket upgrades and sends the bytes of the file GREETING. Among the frames that come it
   knows those that hold the first and the last speech sample of an utterance in SPEECH; from the kernel's stamp of the
   last one on, it sends the next answer of ANSWERS at its times, each with its own ids. RECORD gets eleven numbers for each
   answer that was sent to its end: of the caller and of its turn, as the answer names them, the end of the speech and
   whether that is certain, when the first chunk and when the first audible sample were sent and whether that is certain,
   when the reply is over for a real-time player, when the last event was sent, how late the latest of them was, and how
   much later than it says the first audible sample can have been sent. On SIGTERM it prints what it saw. */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "script.h"
#include "upgrade.h"

#define MOST_FDS 65536
#define WIDEST_NS 500000LL /* a longer interval of sending says too little about the moment */
#define MOST_WAITING (8 << 20)
#define RECORD_FIELDS 11

typedef struct {
    int fd, open;
    char head[4096];
    size_t have;
    unsigned char *part; /* of a frame, or what has not been parsed yet */
    size_t part_size, part_room;
    unsigned char *late; /* what the socket did not take yet, and goes first */
    size_t late_size, late_room;
    int64_t number, turn, answered, playing_until;
    /* The turn under way. */
    int64_t speech_start, speech_end, end_certain, sent_samples, begun, first_chunk, first_audio, audio_certain, worst_lag;
    int64_t audio_within; /* the longest that it took to send a chunk up to the first audible one */
    const Answer *answer;
} Caller;

typedef struct {
    int64_t due, turn, event;
    Caller *caller;
} Send;

static Caller *callers[MOST_FDS];
static Speech speech;
static Answer *answers;
static int64_t answer_count, accepted, frames, begun, broken, waited, *records, record_count, record_room, offset;
static int64_t (*usage)[2], usage_count, usage_room;
static unsigned char *greeting, buffer[262144];
static size_t greeting_size;
static Send *due;
static size_t due_count, due_room;
static int poll_fd;
static volatile sig_atomic_t ending;

static void end(int number) {
    (void)number;
    ending = 1;
}

static void push(Send send) {
    if (due_count == due_room) due = realloc(due, sizeof *due * (due_room = due_room * 2 + 1024));
    size_t at = due_count++;
    for (; at && due[(at - 1) / 2].due > send.due; at = (at - 1) / 2) due[at] = due[(at - 1) / 2];
    due[at] = send;
}

static Send pop(void) {
    Send first = due[0], last = due[--due_count];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= due_count) break;
        if (child + 1 < due_count && due[child + 1].due < due[child].due) child++;
        if (due[child].due >= last.due) break;
        due[at] = due[child];
        at = child;
    }
    due[at] = last;
    return first;
}

/* Its memory stays: what is still to be sent refers to it. */
static void hang_up(Caller *caller) {
    if (caller->fd < 0) return;
    callers[caller->fd] = NULL;
    close(caller->fd);
    caller->fd = -1;
    broken += caller->answer != NULL;
}

static void watch(Caller *caller) {
    struct epoll_event want = {EPOLLIN | (caller->late_size ? EPOLLOUT : 0), {.fd = caller->fd}};
    epoll_ctl(poll_fd, EPOLL_CTL_MOD, caller->fd, &want);
}

/* Whether the kernel has all of it now. */
static int put(Caller *caller, const unsigned char *data, size_t size) {
    ssize_t done = caller->late_size ? 0 : send(caller->fd, data, size, MSG_NOSIGNAL);
    if (done == (ssize_t)size) return 1;
    if (done < 0 && errno != EAGAIN) return 0; /* whoever reads will notice */
    if (done < 0) done = 0;
    waited++;
    size_t rest = size - done;
    if (caller->late_size + rest > MOST_WAITING) {
        hang_up(caller);
        return 0;
    }
    if (caller->late_size + rest > caller->late_room)
        caller->late = realloc(caller->late, caller->late_room = 2 * (caller->late_size + rest));
    memcpy(caller->late + caller->late_size, data + done, rest);
    caller->late_size += rest;
    watch(caller);
    return 0;
}

static void flush(Caller *caller) {
    ssize_t done = send(caller->fd, caller->late, caller->late_size, MSG_NOSIGNAL);
    if (done > 0) memmove(caller->late, caller->late + done, caller->late_size -= done);
    if (!caller->late_size) watch(caller);
}

/* What is due before the frame has come that it follows is due then. */
static void schedule(Caller *caller, int64_t event, int64_t earliest) {
    const Event *next = &caller->answer->events[event];
    int64_t moment = (next->after_speech ? caller->speech_end : caller->speech_start) + next->due;
    push((Send){moment > earliest ? moment : earliest, caller->turn, event, caller});
}

static void note_answer(Caller *caller, int64_t now) {
    if (record_count == record_room)
        records = realloc(records, sizeof *records * RECORD_FIELDS * (record_room = record_room * 2 + 4096));
    int64_t row[RECORD_FIELDS] = {caller->number, caller->turn, caller->speech_end, caller->end_certain, caller->first_chunk,
                                  caller->first_audio, caller->audio_certain, caller->playing_until, now, caller->worst_lag,
                                  caller->audio_within};
    memcpy(&records[RECORD_FIELDS * record_count++], row, sizeof row);
    caller->answered++;
    caller->answer = NULL;
    caller->turn++;
}

static void send_event(Send next) {
    Caller *caller = next.caller;
    if (caller->fd < 0 || !caller->answer || next.turn != caller->turn) return;
    const Event *event = &caller->answer->events[next.event];
    static unsigned char bytes[65536];
    char name[32];
    memcpy(bytes, event->frame.bytes, event->frame.size);
    snprintf(name, sizeof name, "%06d-%06d", (int)(caller->number % 1000000), (int)(caller->turn % 1000000));
    for (int64_t i = 0; i < event->named; i++) memcpy(bytes + event->names[i], name, strlen(NAME));
    int64_t sending = now_ns();
    int taken = put(caller, bytes, event->frame.size);
    int64_t took = now_ns() - sending;
    int certain = taken && took <= WIDEST_NS;
    if (caller->fd < 0) return;
    if (sending - next.due > caller->worst_lag) caller->worst_lag = sending - next.due;
    if (event->samples) {
        int64_t start = sending > caller->playing_until ? sending : caller->playing_until;
        int64_t leading = caller->answer->leading_samples - caller->sent_samples;
        caller->audio_certain &= certain;
        if (!caller->first_audio && took > caller->audio_within) caller->audio_within = took;
        if (!caller->sent_samples) caller->first_chunk = sending;
        if (leading >= 0 && leading < event->samples) caller->first_audio = start + leading * SECOND_NS / RATE_HZ;
        caller->sent_samples += event->samples;
        caller->playing_until = start + event->samples * SECOND_NS / RATE_HZ;
    }
    if (event->is_last) {
        note_answer(caller, sending);
    } else if (caller->answer->events[next.event + 1].after_speech == event->after_speech) {
        schedule(caller, next.event + 1, next.due);
    }
}

static void speech_began(Caller *caller, int64_t moment) {
    if (caller->answer) {
        broken++;
        caller->turn++;
    }
    begun++;
    caller->answer = &answers[(4 * caller->number + caller->turn) % answer_count];
    caller->speech_start = moment;
    caller->speech_end = caller->end_certain = 0;
    caller->sent_samples = caller->first_chunk = caller->first_audio = caller->worst_lag = caller->audio_within = 0;
    caller->audio_certain = 1;
    schedule(caller, 0, now_ns());
}

static void speech_ended(Caller *caller, int64_t moment, int certain) {
    if (!caller->answer || caller->speech_end) return;
    caller->speech_end = moment;
    caller->end_certain = certain;
    for (int64_t event = 0; event < caller->answer->count; event++)
        if (caller->answer->events[event].after_speech) {
            schedule(caller, event, now_ns());
            return;
        }
}

/* `certain`: nothing came behind it in the same read, whose stamp is its own then. */
static void frame_came(Caller *caller, const unsigned char *frame, size_t size, int64_t stamp, int certain) {
    frames++;
    for (int64_t i = 0; i < speech.clips; i++) {
        const Clip *clip = &speech.clip[i];
        const Bytes *first = &clip->frames[clip->start], *last = &clip->frames[clip->end];
        if (first->size == size && !memcmp(first->bytes, frame, size)) speech_began(caller, spoken_at(clip->start_offset, stamp));
        if (last->size == size && !memcmp(last->bytes, frame, size))
            speech_ended(caller, spoken_at(clip->end_offset, stamp), certain);
    }
}

/* Take the upgrade once it is whole; how many bytes of what was read come behind it, -1 for a broken one. */
static ssize_t upgrade(Caller *caller) {
    caller->head[caller->have] = 0;
    char *stop = strstr(caller->head, "\r\n\r\n"), answer[1024];
    if (!stop) return caller->have < sizeof caller->head - 1 ? 0 : -1;
    int size = upgrade_answer(caller->head, answer, sizeof answer);
    if (size < 0) return -1;
    put(caller, (unsigned char *)answer, size);
    put(caller, greeting, greeting_size);
    caller->open = 1;
    caller->number = accepted++;
    return caller->have - (stop + 4 - caller->head);
}

/* How long the frame at `data` is, 0 while its head is incomplete. */
static size_t frame_size(const unsigned char *data, size_t size) {
    if (size < 2) return 0;
    size_t length = data[1] & 0x7f, head = 2;
    if (length >= 126) {
        size_t extra = length == 126 ? 2 : 8;
        head += extra;
        if (size < head) return 0;
        length = 0;
        for (size_t i = 0; i < extra; i++) length = length << 8 | data[2 + i];
    }
    return head + (data[1] >> 7 ? 4 : 0) + length;
}

static void take(Caller *caller, const unsigned char *data, size_t size, int64_t stamp) {
    if (caller->part_size) { /* a frame began in an earlier read */
        if (caller->part_size + size > caller->part_room)
            caller->part = realloc(caller->part, caller->part_room = 2 * (caller->part_size + size));
        memcpy(caller->part + caller->part_size, data, size);
        data = caller->part;
        size += caller->part_size;
    }
    size_t at = 0, one;
    while ((one = frame_size(data + at, size - at)) && one <= size - at) {
        if ((data[at] & 0x0f) == 8) {
            hang_up(caller);
            return;
        }
        frame_came(caller, data + at, one, stamp, at + one == size);
        at += one;
    }
    if (size - at > caller->part_room) caller->part = realloc(caller->part, caller->part_room = 2 * (size - at));
    if (at < size) memmove(caller->part, data + at, size - at);
    caller->part_size = size - at;
}

static void receive(Caller *caller) {
    char control[64];
    struct iovec into = {buffer, sizeof buffer};
    if (!caller->open) into = (struct iovec){caller->head + caller->have, sizeof caller->head - 1 - caller->have};
    struct msghdr message = {.msg_iov = &into, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t size = recvmsg(caller->fd, &message, 0);
    if (size < 0 && errno == EAGAIN) return;
    const unsigned char *data = buffer;
    if (size > 0 && !caller->open) {
        caller->have += size;
        size = upgrade(caller);
        if (!size) return;
        if (size > 0) data = (unsigned char *)caller->head + caller->have - size;
    }
    if (size <= 0) {
        hang_up(caller);
        return;
    }
    take(caller, data, size, stamp_of(&message, offset, now_ns()));
}

static void welcome(int listener) {
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK), one = 1;
        if (fd < 0) return;
        if (fd >= MOST_FDS) exit(1);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one);
        Caller *caller = callers[fd] = calloc(1, sizeof *caller);
        caller->fd = fd;
        struct epoll_event want = {EPOLLIN, {.fd = fd}};
        epoll_ctl(poll_fd, EPOLL_CTL_ADD, fd, &want);
    }
}

/* What this process used so far, once a second; the clocks drift apart no further than that. */
static int64_t look_at_clocks(int64_t now) {
    if (usage_count == usage_room) usage = realloc(usage, sizeof *usage * (usage_room = usage_room * 2 + 64));
    usage[usage_count][0] = now;
    usage[usage_count++][1] = cpu_ns();
    offset = wall_offset();
    return now + SECOND_NS;
}

static void arm(int timer, int64_t moment) {
    struct itimerspec spec = {{0, 0}, {moment / SECOND_NS, moment % SECOND_NS}};
    timerfd_settime(timer, TFD_TIMER_ABSTIME, &spec, NULL);
}

int main(int count, char **words) {
    if (count != 5) return 2;
    struct sigaction action = {.sa_handler = end};
    sigaction(SIGTERM, &action, NULL);
    greeting = whole_file(words[1], &greeting_size);
    speech = read_speech(words[2]);
    answers = read_answers(words[3], &answer_count);
    poll_fd = epoll_create1(0);
    int listener = listen_on_loopback(), timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct epoll_event want = {EPOLLIN, {.fd = listener}}, events[64];
    epoll_ctl(poll_fd, EPOLL_CTL_ADD, listener, &want);
    want.data.fd = timer;
    epoll_ctl(poll_fd, EPOLL_CTL_ADD, timer, &want);
    int64_t look_at = look_at_clocks(now_ns()), armed = look_at;
    arm(timer, armed);
    while (!ending) {
        int ready = epoll_wait(poll_fd, events, 64, -1);
        for (int i = 0; i < ready; i++) {
            int fd = events[i].data.fd;
            uint64_t passed;
            if (fd == timer) {
                if (read(timer, &passed, sizeof passed) > 0) armed = 0;
            } else if (fd == listener) {
                welcome(listener);
            } else if (callers[fd]) {
                if (events[i].events & EPOLLOUT && callers[fd]->late_size) flush(callers[fd]);
                if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) receive(callers[fd]);
            }
        }
        int64_t now = now_ns();
        while (due_count && due[0].due <= now) {
            send_event(pop());
            now = now_ns();
        }
        if (now >= look_at) look_at = look_at_clocks(now);
        int64_t next = due_count && due[0].due < look_at ? due[0].due : look_at;
        if (next != armed) arm(timer, armed = next);
    }
    write_numbers(words[4], records, RECORD_FIELDS * record_count);
    look_at_clocks(now_ns());
    printf("{\"accepted\": %lld, \"frames\": %lld, \"turns_begun\": %lld, \"turns_answered\": %lld, \"turns_broken\": %lld, "
           "\"sends_that_waited\": %lld, \"cpu\": [",
           (long long)accepted, (long long)frames, (long long)begun, (long long)record_count, (long long)broken, (long long)waited);
    for (int64_t i = 0; i < usage_count; i++)
        printf("%s[%lld, %lld]", i ? ", " : "", (long long)usage[i][0], (long long)usage[i][1]);
    printf("]}\n");
    return 0;
}

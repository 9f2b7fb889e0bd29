/* An endpoint that answers speech by a script and knows when it did.

   endpoint GREETING SPEECH ANSWERS TRUTH AT_ONCE [CERTIFICATE KEY]

   Prints {"port": N}, takes WebSocket upgrades and sends the bytes of the file GREETING. Among the frames that come it
   knows those that hold the first and the last speech sample of an utterance in SPEECH; from the kernel's stamp of the
   last one on, it sends the next answer of ANSWERS at its times, each with its own ids. With AT_ONCE above 0 it speaks the
   first answer again and again from a caller's frame of that number on, whatever it holds. With a certificate it speaks
   TLS. TRUTH gets eleven numbers for each answer that was sent to its end: see TruthColumn in figures.py. On SIGTERM it
   prints what it saw. */
#define _GNU_SOURCE
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <signal.h>

#include "speech.h"

#define MOST_FDS 65536
#define WIDEST_NS 500000LL /* a longer interval of sending says too little about the moment */
#define MOST_WAITING (8 << 20)
#define RECORD_FIELDS 11
#define NAME "000000-000000" /* in what is answered: the numbers of the caller and of its turn take this place */

typedef struct {
    int64_t due, after_speech, samples, is_last; /* due after the speech's end, or else after its start */
    Bytes frame;
    int64_t names[8], named; /* where the name is */
} Event;

typedef struct {
    int64_t count, leading_samples;
    Event *events;
} Answer;

typedef struct {
    int fd, open;
    SSL *ssl;
    char head[4096];
    size_t have;
    unsigned char *part; /* of a frame, or what has not been parsed yet */
    size_t part_size, part_room;
    unsigned char *late; /* what the socket did not take yet, and goes first */
    size_t late_size, late_room;
    int64_t number, turn, heard, playing_until;
    int64_t stamp; /* of the records that were read last */
    /* The turn under way. */
    int64_t speech_start, speech_end, end_certain, sent_samples, first_chunk, first_audio, audio_certain, worst_lag;
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
static SSL_CTX *tls;
static int64_t answer_count, at_once, accepted, frames, begun, broken, waited, *records, record_count, record_room, offset;
static int64_t (*usage)[2], usage_count, usage_room;
static unsigned char *greeting, buffer[262144], records_read[262144];
static size_t greeting_size;
static Send *due;
static size_t due_count, due_room;
static int poll_fd;
static volatile sig_atomic_t ending;

static void end(int number) {
    (void)number;
    ending = 1;
}

static Answer *read_answers(const char *path, int64_t *count) {
    size_t size;
    const unsigned char *at = whole_file(path, &size);
    *count = take_number(&at);
    Answer *found = calloc(*count + 1, sizeof *found);
    for (int64_t i = 0; i < *count; i++) {
        found[i].leading_samples = take_number(&at);
        found[i].count = take_number(&at);
        found[i].events = calloc(found[i].count, sizeof(Event));
        for (int64_t j = 0; j < found[i].count; j++) {
            Event *event = &found[i].events[j];
            event->due = take_number(&at), event->after_speech = take_number(&at);
            event->samples = take_number(&at), event->is_last = take_number(&at);
            event->frame = take_bytes(&at);
            const unsigned char *from = event->frame.bytes, *stop = from + event->frame.size, *name;
            while ((name = memmem(from, stop - from, NAME, strlen(NAME)))) {
                if (event->named == 8) exit(1);
                event->names[event->named++] = name - event->frame.bytes;
                from = name + strlen(NAME);
            }
        }
    }
    return found;
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
    if (caller->ssl) SSL_free(caller->ssl);
    close(caller->fd);
    caller->fd = -1;
    broken += caller->answer != NULL && !at_once;
}

static void watch(Caller *caller) {
    struct epoll_event want = {EPOLLIN | (caller->late_size ? EPOLLOUT : 0), {.fd = caller->fd}};
    epoll_ctl(poll_fd, EPOLL_CTL_MOD, caller->fd, &want);
}

static ssize_t write_now(Caller *caller, const unsigned char *data, size_t size) {
    if (!caller->ssl) return send(caller->fd, data, size, MSG_NOSIGNAL);
    ERR_clear_error();
    int done = SSL_write(caller->ssl, data, size);
    errno = EAGAIN;
    return done > 0 ? done : -1;
}

/* Whether the kernel has all of it now. */
static int put(Caller *caller, const unsigned char *data, size_t size) {
    ssize_t done = caller->late_size ? 0 : write_now(caller, data, size);
    if (done == (ssize_t)size) return 1;
    if (done < 0 && errno != EAGAIN) return 0; /* the reader will see it */
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
    ssize_t done = write_now(caller, caller->late, caller->late_size);
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
    if (event->is_last && at_once) {
        caller->speech_start = next.due;
        schedule(caller, 1, next.due);
    } else if (event->is_last) {
        note_answer(caller, sending);
    } else if (caller->answer->events[next.event + 1].after_speech == event->after_speech) {
        schedule(caller, next.event + 1, next.due);
    }
}

static void speech_began(Caller *caller, int64_t moment) {
    if (!answer_count) return;
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

/* Whether more has been read than was decrypted: the stamp is that of the last of it. */
static int has_more(const Caller *caller) {
    return caller->ssl && (SSL_pending(caller->ssl) || BIO_ctrl_pending(SSL_get_rbio(caller->ssl)));
}

/* `certain`: nothing came behind it in the same read, whose stamp is its own then. */
static void frame_came(Caller *caller, const unsigned char *frame, size_t size, int64_t stamp, int certain) {
    frames++;
    if (at_once) {
        if (++caller->heard == at_once) speech_began(caller, stamp);
        return;
    }
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
    char *stop = strstr(caller->head, "\r\n\r\n"), *key = strcasestr(caller->head, "sec-websocket-key:");
    if (!stop) return caller->have < sizeof caller->head - 1 ? 0 : -1;
    if (!key) return -1;
    for (key += 18; *key == ' ';) key++;
    char text[128], answer[512];
    unsigned char digest[EVP_MAX_MD_SIZE], accept[64];
    unsigned int length;
    snprintf(text, sizeof text, "%.*s258EAFA5-E914-47DA-95CA-C5AB0DC85B11", (int)strcspn(key, " \r\n"), key);
    EVP_Digest(text, strlen(text), digest, &length, EVP_sha1(), NULL);
    EVP_EncodeBlock(accept, digest, length);
    int size = snprintf(answer, sizeof answer,
                        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                        "Sec-WebSocket-Accept: %s\r\n\r\n", accept);
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
        frame_came(caller, data + at, one, stamp, at + one == size && !has_more(caller));
        at += one;
    }
    if (size - at > caller->part_room) caller->part = realloc(caller->part, caller->part_room = 2 * (size - at));
    if (at < size) memmove(caller->part, data + at, size - at);
    caller->part_size = size - at;
}

/* Read once; 0 at the end, -1 with EAGAIN where nothing is there. TLS decrypts what the kernel stamped as it came: the
   moment of decrypting it is later by as long as this process had to wait for the processor. */
static ssize_t read_now(Caller *caller, void *into, size_t room, int64_t *stamp) {
    if (!caller->ssl) return read_stamped(caller->fd, into, room, offset, stamp);
    for (;;) {
        ERR_clear_error();
        int size = SSL_read(caller->ssl, into, room);
        *stamp = caller->stamp;
        if (size > 0) return size;
        int why = SSL_get_error(caller->ssl, size);
        errno = EAGAIN;
        if (why != SSL_ERROR_WANT_READ) return why == SSL_ERROR_WANT_WRITE ? -1 : 0;
        ssize_t came = read_stamped(caller->fd, records_read, sizeof records_read, offset, &caller->stamp);
        if (came <= 0) return came;
        BIO_write(SSL_get_rbio(caller->ssl), records_read, came);
    }
}

/* Once, or over TLS as often as records are there: the socket is silent about what is decrypted already. */
static void receive(Caller *caller) {
    do {
        int64_t stamp;
        unsigned char *into = caller->open ? buffer : (unsigned char *)caller->head + caller->have;
        size_t room = caller->open ? sizeof buffer : sizeof caller->head - 1 - caller->have;
        ssize_t size = read_now(caller, into, room, &stamp);
        if (size < 0 && errno == EAGAIN) return;
        if (size > 0 && !caller->open) {
            caller->have += size;
            size = upgrade(caller);
            if (!size) continue;
            into = (unsigned char *)caller->head + caller->have - size;
        }
        if (size <= 0) {
            hang_up(caller);
            return;
        }
        take(caller, into, size, stamp);
    } while (caller->fd >= 0 && caller->ssl);
}

static int listen_on_loopback(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, size) < 0 || listen(listener, 4096) < 0) fail("listen");
    getsockname(listener, (struct sockaddr *)&address, &size);
    printf("{\"port\": %d}\n", ntohs(address.sin_port));
    fflush(stdout);
    return listener;
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
        if (tls) {
            caller->ssl = SSL_new(tls);
            SSL_set_bio(caller->ssl, BIO_new(BIO_s_mem()), BIO_new_socket(fd, BIO_NOCLOSE));
            SSL_set_accept_state(caller->ssl);
        }
        struct epoll_event want = {EPOLLIN, {.fd = fd}};
        epoll_ctl(poll_fd, EPOLL_CTL_ADD, fd, &want);
    }
}

static void secure(const char *certificate, const char *key) {
    tls = SSL_CTX_new(TLS_server_method());
    SSL_CTX_set_mode(tls, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    if (SSL_CTX_use_certificate_chain_file(tls, certificate) == 1 && SSL_CTX_use_PrivateKey_file(tls, key, SSL_FILETYPE_PEM) == 1)
        return;
    fprintf(stderr, "no TLS with %s and %s\n", certificate, key);
    exit(1);
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
    if (count != 6 && count != 8) return 2;
    struct sigaction action = {.sa_handler = end};
    sigaction(SIGTERM, &action, NULL);
    signal(SIGPIPE, SIG_IGN); /* a caller may be gone, and SSL_write has no MSG_NOSIGNAL */
    greeting = whole_file(words[1], &greeting_size);
    speech = read_speech(words[2]);
    answers = read_answers(words[3], &answer_count);
    at_once = atoll(words[5]);
    if (count == 8) secure(words[6], words[7]);
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

/* The limit for conversations: callers who speak, wait and hear, in C.

   conversation_caller PORT CALLERS WARM_UP_MS WINDOW_MS SPEECH RECORD TURNS THINK_MS STAGGER_MS REPLY_MS

   Each caller sends the prepared frames of SPEECH, an utterance or the background, every 20 ms, and reads everything
   with the kernel's stamps. It looks into what comes as far as it takes to know its kind, its reply and the length of its
   audio; when the reply has ended and would have been played, it thinks for THINK_MS and speaks again. First turns are
   spread over STAGGER_MS; REPLY_MS after its speech a caller waits no longer. The lateness of each frame of the window
   goes to RECORD, and six numbers for each turn to TURNS: of the caller and of its turn, as the reply names them, the end
   of speech, the stamp of the reply's first chunk, the turn's end, and whether it was answered. */
#define _GNU_SOURCE
#include <inttypes.h>

#include "pacing.h"
#include "script.h"

#define KEPT 224 /* of each message: its kind and ids, up to where the audio begins */
#define TURN_FIELDS 8

typedef enum { THINKING, SPEAKING, WAITING } State;

typedef struct {
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
static int64_t think, stagger, patience, messages, chunks, samples, reads, bytes, unanswered;
static int64_t *turns, turn_count, turn_room, before[5];

static void begin_at(Caller *caller, int64_t moment) {
    caller->state = THINKING;
    caller->next = moment;
}

static void turn_is_over(Caller *caller, int64_t now) {
    if (turn_count == turn_room) {
        turn_room = turn_room * 2 + 4096;
        turns = realloc(turns, sizeof *turns * TURN_FIELDS * turn_room);
    }
    int64_t *row = &turns[TURN_FIELDS * turn_count++];
    row[0] = caller->number, row[1] = caller->of_turn, row[2] = caller->end_of_speech, row[3] = caller->first_chunk;
    row[4] = now, row[5] = caller->done && caller->first_chunk;
    row[6] = row[7] = -1; // it states no interval
    unanswered += !row[5];
    caller->turn++;
    begin_at(caller, now + think);
}

static const Clip *clip_of(const Caller *caller) {
    return &speech.clip[(caller - callers + caller->turn) % speech.clips];
}

static const unsigned char *next_frame(int number, int64_t now, size_t *size) {
    Caller *caller = &callers[number];
    if (caller->state == THINKING && !caller->next) caller->next = now + think + stagger * number / total;
    if (caller->state == THINKING && now >= caller->next) {
        caller->state = SPEAKING;
        caller->frame = caller->end_of_speech = caller->first_chunk = caller->playing_until = caller->done = 0;
        caller->number = caller->of_turn = -1;
    }
    if (caller->state == WAITING) {
        int heard = caller->done && now >= caller->playing_until;
        if (heard || now >= caller->end_of_speech + patience) turn_is_over(caller, heard ? caller->playing_until : now);
    }
    int speaks = caller->state == SPEAKING;
    const Bytes *frame = speaks ? &clip_of(caller)->frames[caller->frame] : &speech.background[caller->background];
    *size = frame->size;
    return frame->bytes;
}

static void frame_sent(int number, int64_t now) {
    Caller *caller = &callers[number];
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
    messages++;
    caller->kept[size] = 0;
    char *text = (char *)caller->kept, *kind = strstr(text, "\"type\":\""), *name = strstr(text, "\"resp_");
    if (!kind) return;
    kind += 8;
    if (!strncmp(kind, "response.output_audio.delta\"", 28)) {
        char *audio = strstr(text, "\"delta\":\"");
        if (!audio) return;
        int64_t count = (caller->length - (audio + 9 - text) - 2) / 4 * 3 / 2;
        chunks++;
        samples += count;
        if (!caller->first_chunk && caller->end_of_speech) {
            caller->first_chunk = stamp;
            if (name) sscanf(name, "\"resp_%" SCNd64 "-%" SCNd64, &caller->number, &caller->of_turn);
        }
        int64_t start = stamp > caller->playing_until ? stamp : caller->playing_until;
        caller->playing_until = start + count * SECOND_NS / RATE_HZ;
    } else if (!strncmp(kind, "response.done\"", 14) && caller->first_chunk) {
        caller->done = 1;
    }
}

static void take(int number, const unsigned char *data, size_t size, int64_t stamp, int64_t seen) {
    Caller *caller = &callers[number];
    (void)seen;
    reads++;
    bytes += size;
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

static void window_begins(int64_t now) {
    (void)now;
    int64_t counts[] = {messages, chunks, samples, reads, bytes};
    memcpy(before, counts, sizeof before);
}

int main(int count, char **words) {
    if (count != 11) return 2;
    total = atoi(words[2]);
    speech = read_speech(words[5]);
    think = atoll(words[8]) * 1000000LL, stagger = atoll(words[9]) * 1000000LL, patience = atoll(words[10]) * 1000000LL;
    callers = calloc(total, sizeof *callers);
    pace(atoi(words[1]), total, atoll(words[3]) * 1000000LL, atoll(words[4]) * 1000000LL);
    write_numbers(words[6], lateness, paced.sent);
    write_numbers(words[7], turns, TURN_FIELDS * turn_count);
    print_paced();
    printf(", \"received\": %lld, \"chunks\": %lld, \"samples\": %lld, \"reads\": %lld, \"bytes\": %lld, \"turns_ever\": %lld, "
           "\"unanswered_ever\": %lld}\n",
           (long long)(messages - before[0]), (long long)(chunks - before[1]), (long long)(samples - before[2]),
           (long long)(reads - before[3]), (long long)(bytes - before[4]), (long long)turn_count, (long long)unanswered);
    return 0;
}

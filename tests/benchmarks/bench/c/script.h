/* What callers say and an endpoint answers, from the files that tests.benchmarks.bench.conversations.script writes: numbers of
   64 bits and bytes, in the order in which they are read here. */
#ifndef SCRIPT_H
#define SCRIPT_H

#include "wire.h"

#define RATE_HZ 24000LL
#define FRAME_SAMPLES 480LL
#define SECOND_NS 1000000000LL
#define NAME "000000-000000" /* in what is answered: the numbers of the caller and of its turn take this place */

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

typedef struct {
    int64_t due, after_speech, samples, is_last; /* due after the speech's end, or else after its start */
    Bytes frame;
    int64_t names[8], named; /* where the name stands */
} Event;

typedef struct {
    int64_t count, leading_samples;
    Event *events;
} Answer;

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

static inline Answer *read_answers(const char *path, int64_t *count) {
    size_t size;
    const unsigned char *at = whole_file(path, &size);
    *count = take_number(&at);
    Answer *answers = calloc(*count, sizeof *answers);
    for (int64_t i = 0; i < *count; i++) {
        answers[i].leading_samples = take_number(&at);
        answers[i].count = take_number(&at);
        answers[i].events = calloc(answers[i].count, sizeof(Event));
        for (int64_t j = 0; j < answers[i].count; j++) {
            Event *event = &answers[i].events[j];
            event->due = take_number(&at), event->after_speech = take_number(&at);
            event->samples = take_number(&at), event->is_last = take_number(&at);
            event->frame = take_bytes(&at);
            const unsigned char *from = event->frame.bytes, *stop = from + event->frame.size, *found;
            while ((found = memmem(from, stop - from, NAME, strlen(NAME)))) {
                if (event->named == 8) exit(1);
                event->names[event->named++] = found - event->frame.bytes;
                from = found + strlen(NAME);
            }
        }
    }
    return answers;
}

#endif

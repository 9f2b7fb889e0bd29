/* The limit that the engine is held against: the same frames at the same times, from C with epoll and a timerfd.

   control PORT CALLERS WARM_UP_MS WINDOW_MS FRAME RECORD IN_BYTES

   Sends the bytes of the file FRAME every 20 ms on each of CALLERS connections, spread over 20 phases, and reads what
   comes with the kernel's receive stamps. The lateness of each frame of the window goes to the file RECORD (64-bit
   nanoseconds, in the order of sending); what the window cost is printed as one JSON object. */
#define _GNU_SOURCE
#include "pacing.h"

static Stream *streams;
static unsigned char *frame;
static size_t frame_size;
static int64_t received, received_before, lag_worst;
static uint64_t in_bytes;

static const unsigned char *next_frame(int number, int64_t now, size_t *size) {
    (void)number, (void)now;
    *size = frame_size;
    return frame;
}

static void frame_sent(int number, int64_t now) {
    (void)number, (void)now;
}

static void take(int number, const unsigned char *data, size_t size, int64_t stamp, int64_t seen) {
    if (seen - stamp > lag_worst) lag_worst = seen - stamp;
    received += count_frames(&streams[number], data, size, in_bytes);
}

static void window_begins(int64_t now) {
    (void)now;
    received_before = received;
    lag_worst = 0;
}

int main(int count, char **words) {
    if (count != 8) return 2;
    int total = atoi(words[2]);
    frame = whole_file(words[5], &frame_size);
    in_bytes = strtoull(words[7], NULL, 10);
    streams = calloc(total, sizeof *streams);
    pace(atoi(words[1]), total, atoll(words[3]) * 1000000LL, atoll(words[4]) * 1000000LL);
    write_numbers(words[6], lateness, paced.sent);
    print_paced();
    printf(", \"received\": %lld, \"receive_lag_worst_ns\": %lld}\n", (long long)(received - received_before), (long long)lag_worst);
    return paced.lines_lost ? 1 : 0;
}

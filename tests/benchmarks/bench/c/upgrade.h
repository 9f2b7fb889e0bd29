/* What servers of WebSocket in C share: listening, and the answer to an upgrade, which RFC 6455 asks for. */
#ifndef UPGRADE_H
#define UPGRADE_H

#include <arpa/inet.h>
#include <sys/socket.h>

#include "wire.h"

/* SHA-1 of a short text, for the answer to an upgrade: RFC 6455 asks for it. */
static inline void sha1(const char *text, unsigned char out[20]) {
    uint32_t h[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0}, w[80];
    unsigned char block[256] = {0};
    size_t size = strlen(text), padded = (size + 9 + 63) / 64 * 64;
    memcpy(block, text, size);
    block[size] = 0x80;
    for (int i = 0; i < 8; i++) block[padded - 1 - i] = (unsigned char)((uint64_t)size * 8 >> (8 * i));
#define ROLL(x, n) ((x) << (n) | (x) >> (32 - (n)))
    for (size_t at = 0; at < padded; at += 64) {
        for (int i = 0; i < 16; i++) {
            const unsigned char *p = block + at + 4 * i;
            w[i] = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
        }
        for (int i = 16; i < 80; i++) w[i] = ROLL(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
        uint32_t a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];
        for (int i = 0; i < 80; i++) {
            uint32_t f = i < 20 ? (b & c) | (~b & d) : i < 40 ? b ^ c ^ d : i < 60 ? (b & c) | (b & d) | (c & d) : b ^ c ^ d;
            uint32_t k = i < 20 ? 0x5a827999 : i < 40 ? 0x6ed9eba1 : i < 60 ? 0x8f1bbcdc : 0xca62c1d6;
            uint32_t t = ROLL(a, 5) + f + e + k + w[i];
            e = d, d = c, c = ROLL(b, 30), b = a, a = t;
        }
        h[0] += a, h[1] += b, h[2] += c, h[3] += d, h[4] += e;
    }
    for (int i = 0; i < 20; i++) out[i] = (unsigned char)(h[i / 4] >> (24 - 8 * (i % 4)));
}

static inline void base64_of_20(const unsigned char *in, char *out) {
    static const char *letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (int i = 0; i < 21; i += 3) {
        uint32_t three = (uint32_t)in[i] << 16 | (uint32_t)in[i + 1] << 8 | (i + 2 < 20 ? in[i + 2] : 0);
        for (int j = 0; j < 4; j++) *out++ = letters[three >> (18 - 6 * j) & 63];
    }
    out[-1] = '=';
    *out = 0;
}

/* Write the answer to a whole request; its size, or -1 for a request that asks for no WebSocket. */
static inline int upgrade_answer(char *request, char *answer, size_t room) {
    char *key = strcasestr(request, "sec-websocket-key:"), text[128], accept[32];
    if (!key) return -1;
    for (key += 18; *key == ' ';) key++;
    snprintf(text, sizeof text, "%.*s258EAFA5-E914-47DA-95CA-C5AB0DC85B11", (int)strcspn(key, " \r\n"), key);
    unsigned char digest[21] = {0};
    sha1(text, digest);
    base64_of_20(digest, accept);
    return snprintf(answer, room,
                    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                    "Sec-WebSocket-Accept: %s\r\n\r\n", accept);
}

static inline int listen_on_loopback(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, size) < 0 || listen(listener, 4096) < 0) fail("listen");
    getsockname(listener, (struct sockaddr *)&address, &size);
    printf("{\"port\": %d}\n", ntohs(address.sin_port));
    fflush(stdout);
    return listener;
}

#endif

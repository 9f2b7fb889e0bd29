"""Stage services over HTTP with known delays, which remembers when it sent what: `python stage_server.py PORT`.

Standard library only. It keeps two moments of what it sends, right before it is handed to the kernel and right after:
a process that waits for it may run first. They are those of the system's monotonic clock, which the load generator
reads too.
"""

import asyncio
import json
import math
import struct
import sys
import time

RECOGNITION_S = 0.060
FIRST_TOKEN_S = 0.080
TOKEN_S = 0.005
SYNTHESIS_S = 0.070
RATE_HZ = 24_000
ANSWER = ("It is", " mild in Paris.", " Take", " a coat.")
WORDS = "what is the weather like"

SENT: list[dict[str, object]] = []


async def read_request(reader: asyncio.StreamReader) -> tuple[str, dict[str, str], bytes]:
    """The path, the headers and the body of the next request."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:]) if name}
    return head[0].split()[1], headers, await reader.readexactly(int(headers.get("content-length", "0")))


def begin(writer: asyncio.StreamWriter, kind: str) -> None:
    """Send the head of a response whose body comes in chunks."""
    writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())


def chunk(writer: asyncio.StreamWriter, data: bytes) -> tuple[int, int]:
    """Send a chunk; the moments right before it was handed to the kernel, and right after."""
    framed = b"%x\r\n%b\r\n" % (len(data), data)
    before = time.perf_counter_ns()
    writer.write(framed)
    return before, time.perf_counter_ns()


def event(value: object) -> bytes:
    """A server-sent event."""
    return f"data: {value if isinstance(value, str) else json.dumps(value)}\n\n".encode()


async def transcribe(writer: asyncio.StreamWriter, body: bytes) -> dict[str, object]:
    await asyncio.sleep(RECOGNITION_S)
    if b'name="stream"' not in body:
        begin(writer, "application/json")
        return {"asr_final": chunk(writer, json.dumps({"text": WORDS}).encode()), "has_wav": b"WAVEfmt " in body}
    begin(writer, "text/event-stream")
    chunk(writer, event({"type": "transcript.text.delta", "delta": WORDS[:4]}))
    sent = chunk(writer, event({"type": "transcript.text.done", "text": WORDS}))
    return {"asr_final": sent, "has_wav": b"WAVEfmt " in body}


async def answer(writer: asyncio.StreamWriter, body: bytes) -> dict[str, object]:
    await asyncio.sleep(FIRST_TOKEN_S)
    begin(writer, "text/event-stream")
    stamps: list[tuple[int, int]] = []
    for text in ANSWER:
        stamps.append(chunk(writer, event({"choices": [{"index": 0, "delta": {"content": text}}]})))
        await asyncio.sleep(TOKEN_S)
    chunk(writer, event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}))
    chunk(writer, event({"choices": [], "usage": {"prompt_tokens": 20, "completion_tokens": 8}}))
    chunk(writer, event("[DONE]"))
    return {"llm_first_token": stamps[0], "messages": json.loads(body)["messages"]}


async def speak(writer: asyncio.StreamWriter, body: bytes) -> dict[str, object]:
    text = json.loads(body)["input"]
    await asyncio.sleep(SYNTHESIS_S)
    begin(writer, "audio/pcm")
    count = RATE_HZ * len(text) // 15
    tone = struct.pack(f"<{count}h", *(round(9000 * math.cos(i / 8)) for i in range(count)))
    stamps = [chunk(writer, tone[at : at + 4801]) for at in range(0, len(tone), 4801)]
    return {"tts_first_chunk": stamps[0], "text": text}


ANSWERS = {
    "/v1/audio/transcriptions": transcribe,
    "/v1/chat/completions": answer,
    "/v1/audio/speech": speak,
}


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One connection, request after request."""
    while True:
        try:
            path, headers, body = await read_request(reader)
            if path in ANSWERS:
                kept = {name: headers.get(name) for name in ("traceparent", "x-client-request-id", "authorization")}
                entry: dict[str, object] = {"path": path, **kept}
                SENT.append(entry)
                entry |= await ANSWERS[path](writer, body)
                writer.write(b"0\r\n\r\n")
                entry["complete"] = True
            else:
                data = json.dumps(SENT if path == "/sent" else {"data": []}).encode()
                head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
                writer.write(head.encode() + data)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()
            return


async def main(port: int) -> None:
    """Serve until the process is ended."""
    async with await asyncio.start_server(serve, "127.0.0.1", port) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))

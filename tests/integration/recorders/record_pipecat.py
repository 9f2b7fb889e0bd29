"""Records sessions with a Pipecat bot into fixtures: `python record_pipecat.py PORT SPEECH.wav FOLDER`.

Runs in the environment of the peer: messages are made and read by Pipecat's own generated protobuf classes and the
plain `websockets` library, so the fixtures owe nothing to the code that they test. One line of a fixture is one
message as it came, base64 for binary ones; of each run of audio messages only the first three are kept. The first line
says what was recorded.
"""

import asyncio
import base64
import importlib.metadata
import json
import sys
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pipecat.frames.protobufs.frames_pb2 as protos
from websockets.asyncio.client import ClientConnection, connect

RATE_HZ = 16_000
FRAME_S = 0.02
FRAME_BYTES = 640
KEPT_AUDIO = 3
READY = {"version": "2.2.0", "about": {"library": "recorder"}}


def as_protobuf(message: dict[str, Any]) -> bytes:
    return protos.Frame(message=protos.MessageFrame(data=json.dumps(message))).SerializeToString()


def protobuf_audio(pcm: bytes) -> bytes:
    return protos.Frame(audio=protos.AudioRawFrame(audio=pcm, sample_rate=RATE_HZ, num_channels=1)).SerializeToString()


def json_audio(pcm: bytes) -> str:
    data = {"base64Audio": base64.b64encode(pcm).decode(), "sampleRate": RATE_HZ, "numChannels": 1}
    return json.dumps(rtvi("raw-audio", data))


def rtvi(kind: str, data: object) -> dict[str, Any]:
    return {"label": "rtvi-ai", "type": kind, "id": "1", "data": data}


class Wire:
    """Encoding of one of the two wires."""

    def __init__(self, encode: Callable[[dict[str, Any]], str | bytes], audio: Callable[[bytes], str | bytes]) -> None:
        self.encode = encode
        self.audio = audio

    def kind(self, message: str | bytes) -> str:
        """The RTVI type of a message, or which protobuf frame it is."""
        if isinstance(message, bytes):
            frame = protos.Frame.FromString(message)
            which = frame.WhichOneof("frame")
            return json.loads(frame.message.data)["type"] if which == "message" else which
        return json.loads(message)["type"]


async def record(url: str, wire: Wire, first: dict[str, Any] | None, speech: bytes, out: Path) -> None:
    received: list[str | bytes] = []
    kinds: list[str] = []

    async with connect(url, compression=None, additional_headers={"traceparent": f"00-{1:032x}-{1:016x}-01"}) as line:

        async def until(kind: str, count: int = 1) -> None:
            async with asyncio.timeout(30):
                while kinds.count(kind) < count:
                    received.append(await line.recv())
                    kinds.append(wire.kind(received[-1]))

        if first is not None:
            await line.send(wire.encode(first))
        await line.send(wire.encode(rtvi("client-ready", READY)))
        await until("bot-ready")
        talking = asyncio.create_task(talk(line, wire, speech))
        await until("bot-started-speaking")
        await until("bot-stopped-speaking")
        talking.cancel()
        # A second turn, which is interrupted by a third.
        talking = asyncio.create_task(talk(line, wire, speech))
        await until("bot-started-speaking", 2)
        talking.cancel()
        talking = asyncio.create_task(talk(line, wire, speech))
        await until("bot-started-speaking", 3)
        await until("bot-stopped-speaking", 3)
        talking.cancel()
        await line.send(wire.encode(rtvi("client-message", {"t": "trace", "d": {"traceparent": "00-x"}})))
        await until("server-response")
        await line.send(wire.encode(rtvi("no-such-type", {})))
        await until("error-response")
    await asyncio.to_thread(write, out, url, kinds, received)


def write(out: Path, url: str, kinds: list[str], received: list[str | bytes]) -> None:
    """Write what was received, without most of the audio."""
    note = {"peer": "pipecat-ai", "version": importlib.metadata.version("pipecat-ai"), "url": url.rsplit("/", 1)[1]}
    lines = [json.dumps({"recorded": note})]
    audio = 0
    for kind, message in zip(kinds, received, strict=True):
        audio = audio + 1 if kind in ("audio", "eval-bot-audio") else audio
        if kind in ("bot-stopped-speaking", "bot-interrupted"):
            audio = 0
        if audio <= KEPT_AUDIO or kind not in ("audio", "eval-bot-audio"):
            binary = isinstance(message, bytes)
            lines.append(json.dumps({"binary": base64.b64encode(message).decode()} if binary else {"text": message}))
    out.write_text("\n".join(lines) + "\n")
    print(out.name, *kinds)


async def talk(line: ClientConnection, wire: Wire, speech: bytes) -> None:
    """Say the speech, and silence after it, in real time."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    for index in range(10**6):
        pcm = speech[index * FRAME_BYTES : (index + 1) * FRAME_BYTES].ljust(FRAME_BYTES, b"\0")
        await asyncio.sleep(began + index * FRAME_S - loop.time())
        await line.send(wire.audio(pcm))


async def main(port: int, speech: Path, folder: Path) -> None:
    with wave.open(str(speech)) as sound:
        assert (sound.getframerate(), sound.getnchannels(), sound.getsampwidth()) == (RATE_HZ, 1, 2)
        pcm = sound.readframes(sound.getnframes())
    version = importlib.metadata.version("pipecat-ai")
    url = f"ws://127.0.0.1:{port}"
    await record(f"{url}/ws-client", Wire(as_protobuf, protobuf_audio), None, pcm, folder / f"bot-{version}.jsonl")
    flags = {"skip_tts": False, "capture_bot_audio": True, "capture_bot_images": False}
    hello = rtvi("client-message", {"t": "eval-connect", "d": flags}) | {"id": "eval-connect"}
    await record(f"{url}/ws", Wire(json.dumps, json_audio), hello, pcm, folder / f"eval-{version}.jsonl")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])))

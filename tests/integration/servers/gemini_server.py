"""A server of Gemini Live's wire that answers after a known delay.

`python -m tests.integration.servers.gemini_server PORT LOG OPTIONS`. Over TLS with the options `cert` and `key`. It
plays the scripts of the contract suite, and is as strict as the service: what it does not know closes the session with
code 1007. A model whose name is in `CLOSES` is refused.

It hears speech in loud frames of audio and its end in quiet ones, or receives both from a caller with manual turns. The
instructions of a session say how it answers: at once, after a call of a tool, or with a reply that only speech stops.
LOG gets a line of JSON for each message, with the moment at which it was received, or those right before it was handed
to the socket and right after (`at_ns` and `done_ns`), on the clock that all processes of a machine share.
"""

import asyncio
import base64
import itertools
import json
import ssl
import sys
import time
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TextIO

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from tests.unit.loadtest.protocols.contract.line import TEXT, tone
from tests.unit.loadtest.protocols.contract.scripts.gemini import NO_KEY, GeminiScript, GeminiWordsScript
from tests.unit.loadtest.protocols.contract.wire_script import UTTERANCE, Messages

LOUD: Final = 500
LOUD_FRAMES: Final = 10  # 20 ms each
QUIET_FRAMES: Final = 30  # longer than any pause within the words
LONG_MS: Final = 6000
CLOSES: Final[Mapping[str, tuple[int, str]]] = {
    "models/full": (1011, "[ORIGINAL ERROR] generic::resource_exhausted: RESOURCE_EXHAUSTED: Maximum concurrent se"),
    "models/keyless": (1007, NO_KEY),
    "models/none": (
        1008,
        "models/none is not found for API version v1beta, or is not supported for bidiGenerateContent.",
    ),
}
# What the service knows, under each of its two names for it.
_SETUP: Final = {
    "model",
    "generationConfig",
    "systemInstruction",
    "tools",
    "realtimeInputConfig",
    "inputAudioTranscription",
    "outputAudioTranscription",
    "explicitVadSignal",
}
_REALTIME: Final = {"audio", "activityStart", "activityEnd", "audioStreamEnd"}
_NUMBERS: Final = itertools.count(1)
_PLACES: Final = {"setup": _SETUP, "realtimeInput": _REALTIME, "toolResponse": {"functionResponses"}}


class ClosedByUs(Exception):  # noqa: N818 - not a failure of the server
    """The session is closed with this code and reason."""


def camel(value: Any) -> Any:
    """A copy of a JSON value with the names of all members as `serverContent`."""
    if isinstance(value, dict):
        renamed: dict[str, Any] = {}
        for name, inner in value.items():  # pyright: ignore[reportUnknownVariableType]
            head, *rest = str(name).split("_")  # pyright: ignore[reportUnknownArgumentType]
            renamed[head + "".join(map(str.capitalize, rest))] = camel(inner)
        return renamed
    return [camel(element) for element in value] if isinstance(value, list) else value  # pyright: ignore[reportUnknownVariableType]


class Service:
    """One session."""

    def __init__(self, connection: ServerConnection, log: TextIO, options: Mapping[str, Any]) -> None:
        self.connection, self.log, self.options = connection, log, options
        self.number = next(_NUMBERS)
        self.script: GeminiScript = GeminiScript()
        self.manual = False
        self.answers = "at once"
        self.loud = self.quiet = 0
        self.stoppable = False  # a reply that only speech stops
        self.tasks: set[asyncio.Task[None]] = set()

    def note(self, what: str, at_ns: int, **more: object) -> None:
        self.log.write(json.dumps({"session": self.number, "what": what, "at_ns": at_ns, **more}) + "\n")

    async def send(self, what: str, messages: Messages | None) -> None:
        for message in messages or ():
            before = time.perf_counter_ns()
            await self.connection.send(message)
            self.note(what, before, done_ns=time.perf_counter_ns(), message=bytes(message).decode())

    async def run(self) -> None:
        request = self.connection.request
        assert request is not None
        headers = {name.lower(): value for name, value in request.headers.raw_items()}
        self.note("opened", time.perf_counter_ns(), path=request.path, headers=headers)
        try:
            async for message in self.connection:
                await self.receive(message, time.perf_counter_ns())
        except ClosedByUs as closing:
            code, reason = closing.args
            await self.connection.close(code, reason)
        except ConnectionClosed:
            pass
        finally:
            for task in self.tasks:
                task.cancel()

    async def receive(self, message: str | bytes, read_ns: int) -> None:
        fields = camel(json.loads(message))
        (place,) = fields
        inner = fields[place]
        unknown = set(inner) - _PLACES.get(place, set())
        if unknown or place not in _PLACES:
            raise ClosedByUs(1007, f'Invalid JSON payload received. Unknown name "{min({place} | unknown)}"')
        if place == "realtimeInput" and "audio" in inner:
            await self.hear(inner["audio"], read_ns)
            return
        self.note("received", read_ns, fields=json.loads(message))
        if place == "setup":
            await self.set_up(inner)
        elif "activityStart" in inner:
            await self.interrupt()
        elif "activityEnd" in inner:
            self.asked(read_ns)
        elif place == "toolResponse":
            self.later(self.reply(read_ns))

    async def set_up(self, setup: Mapping[str, Any]) -> None:
        if setup.get("model") in CLOSES:
            raise ClosedByUs(*CLOSES[setup["model"]])
        detection = setup.get("realtimeInputConfig", {}).get("automaticActivityDetection", {})
        self.manual = bool(detection.get("disabled"))
        for part in setup.get("systemInstruction", {}).get("parts", []):
            self.answers = part["text"]
        # The vendor's client can ask only the Enterprise platform for its detection of speech.
        if setup.get("explicitVadSignal") or self.answers == "in words":
            self.script = GeminiWordsScript()
        await self.send("ready", self.script.answers('{"setup":{}}'))

    async def hear(self, audio: Mapping[str, str], read_ns: int) -> None:
        if set(audio) != {"data", "mimeType"} or audio["mimeType"] != "audio/pcm;rate=16000":
            raise ClosedByUs(1007, "Unable to process input audio")
        samples = array(
            "h", base64.b64decode(audio["data"], altchars=b"-_" if set("-_") & set(audio["data"]) else None)
        )
        if max(map(abs, samples)) > LOUD:
            self.loud, self.quiet = self.loud + 1, 0
            if self.loud == LOUD_FRAMES and not self.manual:
                self.note("first", read_ns, audio=audio)
                await self.send("started", self.script.speech_started())
                await self.interrupt()
                await self.send("partial", self.script.partial(UTTERANCE.text))
            return
        self.quiet += 1
        if not self.manual and self.loud >= LOUD_FRAMES and self.quiet == QUIET_FRAMES:
            self.asked(read_ns)

    async def interrupt(self) -> None:
        if self.stoppable:
            self.stoppable = False
            self.answers = "at once"
            await self.send("stopped", self.script.broken_off())

    def asked(self, read_ns: int) -> None:
        """The caller has finished."""
        self.loud = self.quiet = 0
        self.later(self.call_tool() if self.answers == "after a tool" else self.reply(read_ns))

    def later(self, what: Any) -> None:
        task = asyncio.create_task(what)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def call_tool(self) -> None:
        await self.send("ended", self.script.speech_stopped())
        call = {"id": "call-1", "name": "light", "args": {"on": True}}
        await self.send("tool", [json.dumps({"toolCall": {"functionCalls": [call]}}).encode()])

    async def reply(self, asked_ns: int) -> None:
        script, delay_s = self.script, float(self.options["delay_ms"]) / 1000
        await self.send("ended", script.speech_stopped())
        await self.send("final", script.final(UTTERANCE.text))
        if self.answers == "until it is stopped":
            self.stoppable = True
        pcm = tone(script.reply_rate_hz, LONG_MS if self.stoppable else int(self.options["tone_ms"]))
        await asyncio.sleep(asked_ns / 1e9 + delay_s - time.perf_counter())
        if self.options.get("short") and self.stoppable:
            pcm = pcm[:192]
        await self.send("audio", script.audio(pcm))
        await self.send("text", script.text(TEXT))
        if not self.stoppable:
            await self.send("report", script.service_report())
            await self.send("done", script.reply_done())


async def main(port: int, log_path: Path, options: Mapping[str, Any]) -> None:
    context: ssl.SSLContext | None = None
    if "cert" in options:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(options["cert"], options["key"])
    with log_path.open("w", buffering=1) as log:
        async with serve(
            lambda connection: Service(connection, log, options).run(),
            "127.0.0.1",
            port,
            compression=None,
            ssl=context,
        ) as server:
            await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])))

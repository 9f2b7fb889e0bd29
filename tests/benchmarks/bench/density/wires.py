"""The wires that are compared: how their callers are made, and what an endpoint says until audio is expected of them.

Every frame carries 20 ms of audio (Exotel's 100 ms) at the wire's default rate.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from loadtest.protocols import registry
from loadtest.protocols.base import CallerOptions, CallerProtocol, Message
from loadtest.protocols.built_in import BUILT_IN
from loadtest.protocols.pipecat import frames
from tests.benchmarks.bench.messages import RESPONSE_ID, server_frame, tone

CHUNK_MS: Final = 20
RAW: Final = "raw WebSocket"


@dataclass(frozen=True, slots=True)
class DensityWire:
    """One wire. `greeting` opens the session, `beginning` a reply, and each `chunk` is 20 ms of it.

    `chunk` is None for a wire whose endpoint sends nothing until a stage before it has run.
    """

    name: str
    protocol: str
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    greeting: tuple[Message, ...] = ()
    beginning: tuple[Message, ...] = ()
    chunk: Message | None = None

    def caller(self) -> CallerProtocol:
        """Create the protocol of one call."""
        return registry.make_caller(self.protocol, CallerOptions(settings=self.settings))

    @property
    def is_tcp(self) -> bool:
        """Whether the wire has no WebSocket."""
        return BUILT_IN[self.protocol].description.transport == "tcp"

    def on_wire(self, *messages: Message) -> bytes:
        """Return messages of the endpoint as they go on the wire."""
        if self.is_tcp:
            return b"".join(each.encode() if isinstance(each, str) else each for each in messages)
        return b"".join(map(_server_frame, messages))


def _server_frame(message: Message) -> bytes:
    if isinstance(message, str):
        return server_frame(message)
    whole = server_frame("m" * len(message))
    return bytes((0x82,)) + whole[1 : len(whole) - len(message)] + message


def _pcm(rate_hz: int) -> bytes:
    return tone(rate_hz * CHUNK_MS // 1000 * 2)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _typed(kind: str, **fields: object) -> str:
    return json.dumps({"type": kind, **fields})


def _openai(name: str = "openai-realtime") -> DensityWire:
    ids = {"response_id": RESPONSE_ID, "item_id": "item_1", "output_index": 0, "content_index": 0}
    session = {"id": "sess_1", "type": "realtime"}
    return DensityWire(
        name,
        name,
        greeting=(_typed("session.created", session=session), _typed("session.updated", session=session)),
        beginning=(_typed("response.created", response={"id": RESPONSE_ID}),),
        chunk=_typed("response.output_audio.delta", **ids, delta=_base64(_pcm(24_000))),
    )


def _elevenlabs() -> DensityWire:
    began = {"conversation_id": "conv_1", "agent_output_audio_format": "pcm_16000"}

    def audio(data: bytes) -> str:
        return _typed("audio", audio_event={"audio_base_64": _base64(data), "event_id": 1})

    return DensityWire(
        "elevenlabs",
        "elevenlabs",
        greeting=(_typed("conversation_initiation_metadata", conversation_initiation_metadata_event=began),),
        # Two pieces with one id, so that the same chunk again does not count as a repetition.
        beginning=(audio(_pcm(16_000)[:320]), audio(_pcm(16_000)[320:])),
        chunk=audio(_pcm(16_000)),
    )


def _media(name: str, event: str, octets: bytes, **about: object) -> DensityWire:
    media = {**about, "payload": _base64(octets)}
    return DensityWire(name, name, chunk=json.dumps({"event": event, "media": media}))


def _pipecat() -> tuple[DensityWire, DensityWire]:
    about = {"label": "rtvi-ai", "id": "1", "data": {"version": "2.2.0"}}
    ready = _typed("bot-ready", **about)
    began = tuple(_typed(kind, label="rtvi-ai") for kind in ("user-stopped-speaking", "bot-llm-started"))
    spoken = _typed("eval-bot-audio", label="rtvi-ai", data={"audio": _base64(_pcm(24_000)), "sampleRate": 24_000})
    encoded = frames.message_frame
    return (
        DensityWire(
            "pipecat",
            "pipecat",
            greeting=(encoded(ready),),
            beginning=tuple(map(encoded, began)),
            chunk=frames.audio_frame(_pcm(24_000), 24_000),
        ),
        DensityWire("pipecat-eval", "pipecat-eval", greeting=(ready,), beginning=began, chunk=spoken),
    )


_BINARY: Final[dict[str, Any]] = {
    "name": "raw",
    "audio": {"rate_hz": 16_000, "frame": "binary"},
    "reply": {"audio": "binary", "rate_hz": 16_000, "end": "silence"},
    "events": [],
}
_PLAIN_JSON: Final[dict[str, Any]] = {
    "name": "json",
    "audio": {"rate_hz": 16_000, "frame": {"type": "audio", "data": "{audio}"}},
    "reply": {"audio": "json", "rate_hz": 16_000, "end": "silence"},
    "events": [{"when": {"$.type": "audio"}, "is": "audio", "audio": "$.data"}],
}
_COUNTED_JSON: Final[dict[str, Any]] = {
    **_PLAIN_JSON,
    "audio": {
        "rate_hz": 16_000,
        "frame": {"type": "audio", "sequence": "{sequence}", "at": "{timestamp_ms} ms", "data": "{audio}"},
    },
}


def _declared() -> tuple[DensityWire, ...]:
    chunk = _typed("audio", data=_base64(_pcm(16_000)))
    return (
        DensityWire("declared (JSON)", "declared", {"spec": _PLAIN_JSON}, chunk=chunk),
        DensityWire("declared (JSON with counters)", "declared", {"spec": _COUNTED_JSON}, chunk=chunk),
    )


def _deepgram() -> DensityWire:
    welcome, spoken = (_typed("Welcome", request_id="1"), _typed("SettingsApplied")), _pcm(24_000)
    return DensityWire("deepgram-agent", "deepgram-agent", greeting=welcome, beginning=(spoken,), chunk=spoken)


def _gemini() -> DensityWire:
    blob = {"mimeType": "audio/pcm;rate=24000", "data": _base64(_pcm(24_000))}
    chunk = json.dumps({"serverContent": {"modelTurn": {"parts": [{"inlineData": blob}]}}}).encode()
    return DensityWire(
        "gemini-live", "gemini-live", greeting=(b'{"setupComplete":{}}',), beginning=(chunk,), chunk=chunk
    )


def _wyoming() -> DensityWire:
    # One service, and so one connection for a call, as on the other wires.
    info = {"type": "info", "data": {"asr": [{"name": "any", "models": []}]}}
    return DensityWire("wyoming", "wyoming", {"stages": ["asr"]}, greeting=(json.dumps(info) + "\n",))


RAW_WIRE: Final = DensityWire(RAW, "declared", {"spec": _BINARY}, chunk=_pcm(16_000))
_ULAW: Final = b"\x95" * 160
WIRES: Final = (
    _openai(),
    _media("twilio", "media", _ULAW),
    _media("telnyx", "media", _ULAW),
    _media("plivo", "playAudio", _ULAW, contentType="audio/x-mulaw", sampleRate=8000),
    _media("exotel", "media", _pcm(8000)),
    DensityWire("vonage", "vonage", chunk=_pcm(16_000)),
    *_pipecat(),
    _deepgram(),
    _elevenlabs(),
    _gemini(),
    *_declared(),
    DensityWire(
        "vllm-realtime",
        "vllm-realtime",
        greeting=(_typed("session.created", id="sess-1", created=1_780_000_000),),
        chunk=_typed("transcription.delta", delta="light "),
    ),
    _wyoming(),
)
BY_NAME: Final = {wire.name: wire for wire in (RAW_WIRE, *WIRES)}


def not_compared() -> tuple[str, ...]:
    """Return the protocols that send audio in frames and have no wire here."""
    known = {wire.protocol for wire in WIRES} | {"openai-realtime-beta"}  # whose frames are the same bytes
    streamed = [name for name, row in BUILT_IN.items() if row.description.transport in ("websocket", "tcp")]
    return tuple(name for name in streamed if name not in known)

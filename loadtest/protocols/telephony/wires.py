"""The providers' media streams, one row each, as their own references and the agents' libraries have them. Pure.

Proof for an agent that a call comes from its provider is made from the token we are given: Twilio and Plivo sign with
the account's token, which is never sent; Telnyx and Vonage send a token; Exotel sends a key and a token as a user and a
password.
"""

import base64
import hashlib
import hmac
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import parse_qsl, urlsplit, urlunsplit

import orjson

from loadtest.audio import g711
from loadtest.protocols.audio_format import AudioFormat
from loadtest.protocols.json_fields import Json, MalformedError, required_object, required_text

# What an agent's message asks of the provider.
Request = Literal["audio", "mark", "clear", "unused"]
Message = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamedCall:
    """The facts of one call that the provider sends to the agent."""

    digits: str  # 32 hexadecimal ones, which the ids are made of
    stream_id: str
    call_id: str
    account_id: str
    from_number: str
    to_number: str
    encoding: str  # as the provider calls it
    format: AudioFormat
    parameters: Mapping[str, str]  # custom ones, the trace among them


def nested_mark_name(fields: Json) -> str:
    """Return the name in `{"mark": {"name": …}}`. Raises MalformedError."""
    return required_text(required_object(fields, "mark"), "name")


def nested_mark(name: str) -> Message:
    """Return such a mark."""
    return {"event": "mark", "mark": {"name": name}}


def two_uuids(digits: str) -> tuple[str, str]:
    """Return one UUID as both ids."""
    return str(uuid.UUID(digits)), str(uuid.UUID(digits))


@dataclass(frozen=True, slots=True, kw_only=True)
class TelephonyWire:
    """One provider's messages. Members are named as they are on the wire; None where the wire has no such member.

    `media_head` has a `%d` for the sequence number, the chunk and the time in ms, in this order, and STREAM for the
    member with the stream's id; the payload follows. EXTRA is replaced by the custom parameters.
    """

    name: str
    provider: str
    encodings: Mapping[str, Literal["pcm16", "pcmu", "pcma"]]  # by the provider's names
    rates_hz: tuple[int, ...]  # of PCM; the first one is the default
    frame_ms: int = 20
    stream_key: str | None = None  # of the stream's id, in both directions
    sequence_key: str | None = None
    sequence_is_text: bool = True
    type_key: str = "event"
    requests: Mapping[str, Request]
    marks_outlive_clear: bool = True  # whether a mark is answered although its audio was cleared
    binary_audio: bool = False
    # The ids that the provider gives to a stream and a call, from 32 hexadecimal digits.
    ids: Callable[[str], tuple[str, str]] = two_uuids
    greeting: Callable[[str | None], Message] | None = None  # before `start`; takes the token
    start: Callable[[StreamedCall], Message]  # without its sequence number
    stop: Callable[[StreamedCall], Message] | None = None
    dtmf: Callable[[str], Message]
    media_head: str | None = None
    mark_name: Callable[[Json], str] = nested_mark_name
    mark_answer: Callable[[str], Message] = nested_mark
    clear_answer: Message | None = None
    declared_format: Callable[[Json], AudioFormat] | None = None  # of the agent's audio, where its messages state it
    most_parameter_bytes: int | None = None  # of names and values together
    reserved: str = ""  # characters that parameters cannot contain


def encoded(message: Message) -> str:
    """Return a message as JSON text."""
    return orjson.dumps(message).decode()


def media_head(wire: TelephonyWire, call: StreamedCall) -> bytes | None:
    """Return the beginning of the call's media messages, with its three `%d`; None for binary audio."""
    if wire.media_head is None:
        return None
    stream_id = orjson.dumps({wire.stream_key: call.stream_id})[1:-1]
    parts = {b"STREAM": stream_id, b"EXTRA": orjson.dumps(_extra_headers(call.parameters))}
    head = wire.media_head.encode()
    for place, part in parts.items():
        head = head.replace(place, part.replace(b"%", b"%%"))
    return head


PAYLOAD_END: Final = b'"}}'


# Twilio Media Streams, bidirectional (`<Connect><Stream>`).


def _twilio_start(call: StreamedCall) -> Message:
    start = {
        "accountSid": call.account_id,
        "streamSid": call.stream_id,
        "callSid": call.call_id,
        "tracks": ["inbound"],
        "mediaFormat": {"encoding": call.encoding, "sampleRate": call.format.rate_hz, "channels": 1},
        "customParameters": dict(call.parameters),
    }
    return {"event": "start", "streamSid": call.stream_id, "start": start}


TWILIO: Final = TelephonyWire(
    name="twilio",
    provider="Twilio",
    encodings={"audio/x-mulaw": "pcmu"},
    rates_hz=(),
    stream_key="streamSid",
    sequence_key="sequenceNumber",
    requests={"media": "audio", "mark": "mark", "clear": "clear"},
    ids=lambda digits: (f"MZ{digits}", f"CA{digits}"),
    greeting=lambda token: {"event": "connected", "protocol": "Call", "version": "1.0.0"},
    start=_twilio_start,
    stop=lambda call: {"event": "stop", "stop": {"accountSid": call.account_id, "callSid": call.call_id}},
    dtmf=lambda digit: {"event": "dtmf", "dtmf": {"track": "inbound_track", "digit": digit}},
    media_head=(
        '{"event":"media","sequenceNumber":"%d",STREAM,'
        '"media":{"track":"inbound","chunk":"%d","timestamp":"%d","payload":"'
    ),
)


# Telnyx media streaming, bidirectional in its RTP mode.


def _telnyx_connected(token: str | None) -> Message:
    connected: Message = {"event": "connected", "version": "1.0.0"}
    return connected if token is None else connected | {"connected": {"x-telnyx-streaming-auth-token": token}}


def _telnyx_start(call: StreamedCall) -> Message:
    start = {
        "user_id": call.account_id,
        "call_control_id": call.call_id,
        "call_session_id": str(uuid.UUID(call.digits)),
        "from": call.from_number,
        "to": call.to_number,
        "custom_parameters": dict(call.parameters),
        "media_format": {"encoding": call.encoding, "sample_rate": call.format.rate_hz, "channels": 1},
    }
    return {"event": "start", "stream_id": call.stream_id, "start": start}


TELNYX: Final = TelephonyWire(
    name="telnyx",
    provider="Telnyx",
    # L16 has no documented byte order, and the other codecs (G722, OPUS, AMR-WB) need libraries.
    encodings={"PCMU": "pcmu", "PCMA": "pcma"},
    rates_hz=(),
    stream_key="stream_id",
    sequence_key="sequence_number",
    requests={"media": "audio", "mark": "mark", "clear": "clear"},
    ids=lambda digits: (str(uuid.UUID(digits)), f"v3:{digits}"),
    greeting=_telnyx_connected,
    start=_telnyx_start,
    stop=lambda call: {"event": "stop", "stop": {"user_id": call.account_id, "call_control_id": call.call_id}},
    dtmf=lambda digit: {"event": "dtmf", "dtmf": {"digit": digit}},
    media_head=(
        '{"event":"media","sequence_number":"%d",STREAM,'
        '"media":{"track":"inbound","chunk":"%d","timestamp":"%d","payload":"'
    ),
)


# Plivo audio streaming, bidirectional.


def _plivo_start(call: StreamedCall) -> Message:
    start = {
        "callId": call.call_id,
        "streamId": call.stream_id,
        "accountId": call.account_id,
        "tracks": ["inbound"],
        "mediaFormat": {"encoding": call.encoding, "sampleRate": call.format.rate_hz},
    }
    return {"event": "start", "start": start, "extra_headers": _extra_headers(call.parameters)}


def _extra_headers(parameters: Mapping[str, str]) -> str:
    return ";".join(f"{name}={value}" for name, value in parameters.items())


_PLAYED: Final = (
    ("audio/x-mulaw", AudioFormat("pcmu", g711.RATE_HZ)),
    ("audio/x-l16", AudioFormat("pcm16", 8000)),
    ("audio/x-l16", AudioFormat("pcm16", 16000)),
)


def _plivo_format(media: Json) -> AudioFormat:
    """Return the format that a playAudio message states. Raises MalformedError for one that Plivo does not play."""
    kind, rate_hz = media.get("contentType"), media.get("sampleRate")
    for played in _PLAYED:
        # Some agents send the rate as text.
        if kind == played[0] and rate_hz in (played[1].rate_hz, str(played[1].rate_hz)):
            return played[1]
    shown = f"{kind!r:.40} at {rate_hz!r:.20} Hz"
    raise MalformedError(f"Plivo plays audio/x-mulaw at 8000 Hz and audio/x-l16 at 8000 or 16000 Hz, not {shown}")


PLIVO: Final = TelephonyWire(
    name="plivo",
    provider="Plivo",
    encodings={"audio/x-mulaw": "pcmu", "audio/x-l16": "pcm16"},
    rates_hz=(8000, 16000),
    stream_key="streamId",
    sequence_key="sequenceNumber",
    sequence_is_text=False,
    requests={"playAudio": "audio", "checkpoint": "mark", "clearAudio": "clear", "sendDTMF": "unused"},
    marks_outlive_clear=False,  # playedStream is only sent if the audio was played
    start=_plivo_start,
    dtmf=lambda digit: {"event": "dtmf", "dtmf": {"track": "inbound", "digit": digit}},
    media_head=(
        '{"event":"media","sequenceNumber":%d,STREAM,"extra_headers":EXTRA,'
        '"media":{"track":"inbound","chunk":%d,"timestamp":"%d","payload":"'
    ),
    mark_name=lambda fields: required_text(fields, "name"),
    mark_answer=lambda name: {"event": "playedStream", "name": name},
    clear_answer={"event": "clearedAudio"},
    declared_format=_plivo_format,
    most_parameter_bytes=512,
    reserved=";=,",
)


# Exotel AgentStream, the Voicebot applet.


def _exotel_start(call: StreamedCall) -> Message:
    start = {
        "stream_sid": call.stream_id,
        "call_sid": call.call_id,
        "account_sid": call.account_id,
        "from": call.from_number,
        "to": call.to_number,
        "custom_parameters": dict(call.parameters),
        "media_format": {"encoding": call.encoding, "sample_rate": str(call.format.rate_hz), "bit_rate": "16"},
    }
    return {"event": "start", "stream_sid": call.stream_id, "start": start}


def _exotel_stop(call: StreamedCall) -> Message:
    return {
        "event": "stop",
        "stop": {"call_sid": call.call_id, "account_sid": call.account_id, "reason": "callended"},
    }


EXOTEL: Final = TelephonyWire(
    name="exotel",
    provider="Exotel",
    encodings={"audio/x-raw": "pcm16"},
    rates_hz=(8000, 16000, 24000),
    frame_ms=100,
    stream_key="stream_sid",
    sequence_key="sequence_number",
    requests={"media": "audio", "mark": "mark", "clear": "clear"},
    ids=lambda digits: (digits, digits),
    greeting=lambda token: {"event": "connected"},
    start=_exotel_start,
    stop=_exotel_stop,
    dtmf=lambda digit: {"event": "dtmf", "dtmf": {"digit": digit, "duration": "100"}},
    media_head=('{"event":"media","sequence_number":"%d",STREAM,"media":{"chunk":"%d","timestamp":"%d","payload":"'),
    most_parameter_bytes=256,
)


# Vonage Voice API WebSockets, and the Audio Connector of its Video API: audio is binary, the rest is JSON.


def _vonage_connected(call: StreamedCall) -> Message:
    content_type = f"audio/l16;rate={call.format.rate_hz}"
    return {**call.parameters, "event": "websocket:connected", "content-type": content_type}


def _notify_name(fields: Json) -> str:
    """Return the name in the payload of a notify request, or the payload as JSON text if it is not just a name."""
    payload = required_object(fields, "payload")
    name = payload.get("name")
    if isinstance(name, str) and len(payload) == 1 and not name.startswith("{"):
        return name
    return encoded(dict(payload))


def _notify_answer(name: str) -> Message:
    """Repeat the payload, as Vonage does, whatever it contains."""
    payload = orjson.loads(name) if name.startswith("{") else {"name": name}
    return {"event": "websocket:notify", "payload": payload}


VONAGE: Final = TelephonyWire(
    name="vonage",
    provider="Vonage",
    encodings={"audio/l16": "pcm16"},
    rates_hz=(16000, 8000, 24000),
    type_key="action",
    requests={"clear": "clear", "notify": "mark"},
    marks_outlive_clear=False,
    binary_audio=True,
    start=_vonage_connected,
    dtmf=lambda digit: {"event": "websocket:dtmf", "digit": digit, "duration": 100},
    mark_name=_notify_name,
    mark_answer=_notify_answer,
    clear_answer={"event": "websocket:cleared"},
    most_parameter_bytes=512,
)

WIRES: Final = {wire.name: wire for wire in (TWILIO, TELNYX, PLIVO, EXOTEL, VONAGE)}


Headers = tuple[tuple[str, str], ...]
TWILIO_HEADER = "X-Twilio-Signature"


def upgrade_headers(wire: str, url: str, token: str | None, nonce: str) -> Headers:
    """Return the headers by which a provider proves itself when it opens a stream; none without a token."""
    if token is None:
        return ()
    match wire:
        case "twilio":
            return ((TWILIO_HEADER, twilio_signature(token, url)),)
        case "plivo":
            return plivo_headers(token, url, nonce)
        case "telnyx":
            return (("x-telnyx-streaming-auth-token", token),)
        case "exotel":
            return (("Authorization", f"Basic {base64.b64encode(token.encode()).decode()}"),)
        case _:
            return (("Authorization", f"Bearer {token}"),)


def twilio_signature(token: str, url: str, form: Mapping[str, str] | None = None) -> str:
    """Return X-Twilio-Signature: HMAC-SHA1 of the URL followed by the form's names and values in the names' order."""
    signed = url + "".join(f"{name}{value}" for name, value in sorted((form or {}).items()))
    return base64.b64encode(hmac.new(token.encode(), signed.encode(), hashlib.sha1).digest()).decode()


def plivo_headers(token: str, url: str, nonce: str, form: Mapping[str, str] | None = None) -> Headers:
    """Return the headers with the signature of a GET, or with a form, of a POST."""
    signed = plivo_signature(token, url, nonce, form)
    return (("X-Plivo-Signature-V3", signed), ("X-Plivo-Signature-V3-Nonce", nonce))


def plivo_signature(token: str, url: str, nonce: str, form: Mapping[str, str] | None = None) -> str:
    """Return X-Plivo-Signature-V3: HMAC-SHA256 of the URL with its query in order, the form, a dot and the nonce.

    Where there is a form, a question mark ends a URL without a query, and a dot one with a query; its names and values
    follow in the names' order.
    """
    parts = urlsplit(url)
    query = "&".join(sorted(f"{name}={value}" for name, value in parse_qsl(parts.query, keep_blank_values=True)))
    signed = urlunsplit(parts._replace(query=query, fragment=""))
    if form:
        signed += "." if query else "?"
        signed += "".join(f"{name}{value}" for name, value in sorted(form.items()))
    signed += f".{nonce}"
    return base64.b64encode(hmac.new(token.encode(), signed.encode(), hashlib.sha256).digest()).decode()

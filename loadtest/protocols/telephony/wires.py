"""The providers' media streams, one row each, as their own references and the agents' libraries have them. Pure."""

import uuid
from collections.abc import Mapping
from typing import Final

import orjson

from loadtest.audio import g711
from loadtest.protocols.audio_format import AudioFormat
from loadtest.protocols.json_fields import Json, MalformedError, required_text
from loadtest.protocols.telephony.wire import (
    Message,
    StreamedCall,
    TelephonyWire,
    encoded,
    nested_mark_name,
    required_object,
    template,
)

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
    media_head=lambda call: template(
        '{"event":"media","sequenceNumber":"%d",STREAM,'
        '"media":{"track":"inbound","chunk":"%d","timestamp":"%d","payload":"',
        call,
        "streamSid",
    ),
    mark_name=nested_mark_name,
    mark_answer=lambda name: {"event": "mark", "mark": {"name": name}},
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
    media_head=lambda call: template(
        '{"event":"media","sequence_number":"%d",STREAM,'
        '"media":{"track":"inbound","chunk":"%d","timestamp":"%d","payload":"',
        call,
        "stream_id",
    ),
    mark_name=nested_mark_name,
    mark_answer=lambda name: {"event": "mark", "mark": {"name": name}},
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


def _plivo_head(call: StreamedCall) -> bytes:
    extra_headers = orjson.dumps(_extra_headers(call.parameters)).replace(b"%", b"%%")
    head = template(
        '{"event":"media","sequenceNumber":%d,STREAM,"extra_headers":EXTRA,'
        '"media":{"track":"inbound","chunk":%d,"timestamp":"%d","payload":"',
        call,
        "streamId",
    )
    return head.replace(b"EXTRA", extra_headers)


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
    ids=lambda digits: (str(uuid.UUID(digits)), str(uuid.UUID(digits))),
    start=_plivo_start,
    dtmf=lambda digit: {"event": "dtmf", "dtmf": {"track": "inbound", "digit": digit}},
    media_head=_plivo_head,
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
    media_head=lambda call: template(
        '{"event":"media","sequence_number":"%d",STREAM,"media":{"chunk":"%d","timestamp":"%d","payload":"',
        call,
        "stream_sid",
    ),
    mark_name=nested_mark_name,
    mark_answer=lambda name: {"event": "mark", "mark": {"name": name}},
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
    ids=lambda digits: (str(uuid.UUID(digits)), str(uuid.UUID(digits))),
    start=_vonage_connected,
    dtmf=lambda digit: {"event": "websocket:dtmf", "digit": digit, "duration": 100},
    mark_name=_notify_name,
    mark_answer=_notify_answer,
    clear_answer={"event": "websocket:cleared"},
    most_parameter_bytes=512,
)

WIRES: Final = {wire.name: wire for wire in (TWILIO, TELNYX, PLIVO, EXOTEL, VONAGE)}

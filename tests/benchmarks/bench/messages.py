"""The bytes that every sender and the peer exchange: made once, the same for all, so that only the senders differ.

A frame of audio is a text message of 640 bytes in a masked WebSocket frame of 648, one every 20 ms and caller. It is
the JSON that callers of OpenAI Realtime send; what comes back in duplex is its audio delta, 648 bytes on the wire too.
"""

import base64
import json
from typing import Final

import numpy as np

from loadtest.protocols.transports.masked_frames import FramePreparer

FRAME_MS: Final = 20
FRAME_NS: Final = FRAME_MS * 1_000_000
OUT_BYTES: Final = 640  # and 8 bytes of head: two, two of length, four of mask
IN_BYTES: Final = 644  # and 4 bytes of head: a server does not mask
RESPONSE_ID: Final = "resp_1"
# Who calls an endpoint that knows the truth says by its path how its messages are stamped.
STAMP_KINDS: Final = ("kernel", "user")


def tone(size: int) -> bytes:
    """An audible tone of at most `size` bytes of PCM16."""
    return (8000 * np.sin(np.arange(size // 2) / 9)).astype("<i2").tobytes()


def _filled(fields: dict[str, object], audio_field: str, id_field: str, size: int) -> tuple[str, bytes]:
    """A message of exactly `size` bytes: as much audio as fits, the rest made up by the length of an id."""
    bare = len(json.dumps({**fields, audio_field: "", id_field: ""}))
    audio = tone((size - bare - 4) // 4 * 3 // 2 * 2)
    encoded = base64.b64encode(audio).decode()
    return "e" * (size - bare - len(encoded)), audio


_OUT: Final[dict[str, object]] = {"type": "input_audio_buffer.append"}
_IN: Final[dict[str, object]] = {
    "type": "response.output_audio.delta",
    "response_id": RESPONSE_ID,
    "output_index": 0,
    "content_index": 0,
}
OUT_EVENT_ID, OUT_AUDIO = _filled(_OUT, "audio", "event_id", OUT_BYTES)
# Each message of the peer is the same bytes: with an event id it would be the same event, sent again.
_IN_ITEM_ID, _IN_AUDIO = _filled(_IN, "delta", "item_id", IN_BYTES)
IN_SAMPLES: Final = len(_IN_AUDIO) // 2


def out_message() -> str:
    """What a caller says every 20 ms."""
    return append_message(OUT_AUDIO)


def append_message(audio: bytes) -> str:
    """One frame of audio as a locustfile writes it: base64 in JSON."""
    return json.dumps({**_OUT, "audio": base64.b64encode(audio).decode(), "event_id": OUT_EVENT_ID})


def out_frame() -> bytes:
    """The same, masked and ready for the wire."""
    return FramePreparer().frame(out_message().encode(), text=True)


def in_message() -> str:
    """What the peer says every 20 ms in duplex."""
    return json.dumps({**_IN, "item_id": _IN_ITEM_ID, "delta": base64.b64encode(_IN_AUDIO).decode()})


def bare_message() -> str:
    """As long, and nothing that a caller waits for."""
    event = {"type": "rate_limits.updated", "padding_": ""}
    return json.dumps({**event, "padding_": "e" * (IN_BYTES - len(json.dumps(event)))})


def server_frame(message: str) -> bytes:
    """An unmasked text frame."""
    payload = message.encode()
    size = len(payload)
    head = bytes((0x81, size)) if size < 126 else bytes((0x81, 126)) + size.to_bytes(2, "big")
    return head + payload


def greeting() -> bytes:
    """What the peer says first: the session stands, and takes audio."""
    session = {"id": "sess_1"}
    return b"".join(
        server_frame(json.dumps({"type": kind, "session": session})) for kind in ("session.created", "session.updated")
    )

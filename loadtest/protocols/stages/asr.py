"""`POST /audio/transcriptions`: the form for one utterance, and its response as a stream, as JSON or as text."""

import struct
from collections.abc import Sequence
from typing import Final

from loadtest.protocols.json_fields import Json, optional_object, required_text
from loadtest.protocols.stages.parts import Part, Partial, Transcript
from loadtest.protocols.stages.reader import TypedEventReader, cut_short
from loadtest.protocols.stages.settings import StageSettings
from loadtest.protocols.usage import flat_usage

_BOUNDARY: Final = b"voiceprobe-form-data"
WAV_HEADER_BYTES: Final = 44


def wav(pcm: bytes, rate_hz: int) -> bytes:
    """Return a WAV file of 16-bit mono samples."""
    byte_rate = rate_hz * 2
    header = struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        b"RIFF",
        len(pcm) + WAV_HEADER_BYTES - 8,
        b"WAVE",
        b"fmt ",
        16,
        1,
        1,
        rate_hz,
        byte_rate,
        2,
        16,
        b"data",
        len(pcm),
    )
    return header + pcm


def form(fields: Sequence[tuple[str, str]], file: bytes) -> tuple[bytes, str]:
    """Return the body of a form with these fields and a file `file`, and its Content-Type."""
    boundary = _BOUNDARY
    while boundary in file:
        boundary += b"-"
    parts = [
        b'--%b\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n' % (boundary, name.encode(), value.encode())
        for name, value in fields
    ]
    head = b'--%b\r\nContent-Disposition: form-data; name="file"; filename="speech.wav"\r\n' % boundary
    parts.append(head + b"Content-Type: audio/wav\r\n\r\n" + file + b"\r\n--%b--\r\n" % boundary)
    return b"".join(parts), f"multipart/form-data; boundary={boundary.decode()}"


PATH = "audio/transcriptions"


def transcription_form(pcm: bytes, settings: StageSettings) -> tuple[bytes, str]:
    """Return the body and the Content-Type of the request for one utterance."""
    fields = [("response_format", "json")]
    if settings.asr_model is not None:
        fields.append(("model", settings.asr_model))
    if settings.asr_stream:
        fields.append(("stream", "true"))
    if settings.asr_language is not None:
        fields.append(("language", settings.asr_language))
    fields += sorted(settings.asr_form.items())
    return form(fields, wav(pcm, settings.asr_rate_hz))


class TranscriptionReader(TypedEventReader):
    """The transcript of one utterance. Models that ignore `stream` answer with one JSON object."""

    stage = "asr"

    def __init__(self) -> None:
        super().__init__()
        self._text = bytearray()

    def typed(self, kind: object, fields: Json) -> list[Part] | None:
        """Decode `transcript.text.delta`, `.segment` and `.done`."""
        match kind:
            case "transcript.text.delta":
                return [Partial(required_text(fields, "delta"))]
            case "transcript.text.segment":
                return [Partial(required_text(fields, "text"))]
            case "transcript.text.done":
                return self.whole(fields)
            case _:
                return None

    def whole(self, fields: Json) -> list[Part]:
        """Decode an object with the whole text."""
        text = required_text(fields, "text")
        self.over = True
        return [Transcript(text, flat_usage(optional_object(fields, "usage")))]

    def raw(self, data: bytes) -> list[Part]:
        """Keep a piece of a transcript that comes as plain text."""
        self._text += data
        return []

    def ended(self) -> list[Part]:
        """Return the plain text, which alone is complete with its end."""
        if not self._text:
            return [cut_short(self.stage)]
        self.over = True
        return [Transcript(self._text.decode(errors="replace").strip())]

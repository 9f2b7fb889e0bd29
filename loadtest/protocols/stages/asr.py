"""`POST /audio/transcriptions`: the form for one utterance, and its response as a stream, as JSON or as text."""

from loadtest.protocols.json_fields import Json, optional_object, required_text
from loadtest.protocols.stages.multipart import form, wav
from loadtest.protocols.stages.parts import Part, Partial, Transcript
from loadtest.protocols.stages.reader import TypedEventReader, cut_short
from loadtest.protocols.stages.settings import StageSettings
from loadtest.protocols.usage import flat_usage

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

"""The requests to recognition, language model and synthesis by OpenAI's HTTP API, and what their responses say.

`POST /audio/transcriptions` gets a form with one utterance; its response is a stream, JSON or text. `POST
/chat/completions` asks for one answer, as a stream of server-sent events or as JSON. `POST /audio/speech` asks for the
speech of one sentence, which comes as raw PCM, as WAV or as server-sent events. Pure.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Final

import orjson

from loadtest.audio.containers import container_of, may_become_container
from loadtest.audio.wav_stream import PCM as WAV_PCM
from loadtest.audio.wav_stream import WavStream
from loadtest.protocols.audio_format import AudioFormat, SampleStream
from loadtest.protocols.failure import Failure
from loadtest.protocols.json_fields import (
    Json,
    MalformedError,
    as_list,
    as_object,
    excerpt,
    optional_object,
    parse_object,
    required_base64,
    required_text,
)
from loadtest.protocols.received import flat_usage
from loadtest.protocols.stages.parts import Broken, Finished, Part, Partial, Pcm, StageName, Transcript, Words
from loadtest.protocols.stages.reader import ResponseReader, SseEvent, TypedEventReader, cut_short, error_in_stream
from loadtest.protocols.stages.settings import StageSettings

PATHS: Final[Mapping[StageName, str]] = {
    "asr": "audio/transcriptions",
    "llm": "chat/completions",
    "tts": "audio/speech",
}
_BOUNDARY: Final = b"voiceprobe-form-data"
WAV_HEADER_BYTES: Final = 44


def wav(pcm: bytes, rate_hz: int) -> bytes:
    """Return a WAV file of 16-bit mono samples."""
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, rate_hz, rate_hz * 2, 2, 16)
    size = len(pcm)
    return (
        struct.pack("<4sI4s", b"RIFF", size + WAV_HEADER_BYTES - 8, b"WAVE")
        + form
        + struct.pack("<4sI", b"data", size)
        + pcm
    )


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


_REASONING_FIELDS = ("reasoning_content", "reasoning")


def chat_body(messages: Sequence[Mapping[str, str]], settings: StageSettings) -> bytes:
    """Return the body of the request for the answer to these messages, streamed with its usage."""
    body: dict[str, object] = {
        "messages": list(messages),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if settings.llm_model is not None:
        body["model"] = settings.llm_model
    if settings.llm_max_tokens is not None:
        body["max_tokens"] = settings.llm_max_tokens
    return orjson.dumps(body | settings.llm_body)


class AnswerReader(ResponseReader):
    """The text of one answer, with what it used."""

    stage = "llm"

    def __init__(self) -> None:
        super().__init__()
        self.why: str | None = None  # the service's reason to end the answer
        self._usage: dict[str, int] = {}
        self._tool_call = False
        self._declined = False  # the model declined to answer, which it says in a text separate from the answer's

    def event(self, event: SseEvent) -> list[Part]:
        """Decode one chunk, or the end of the stream."""
        if event.data.strip() == "[DONE]":
            return self._finish()
        fields = parse_object(event.data)
        if event.event == "error" or fields.get("error"):
            return [error_in_stream(self.stage, fields)]
        return self.chunk(fields, "delta")

    def whole(self, fields: Json) -> list[Part]:
        """Decode an answer that was not streamed."""
        if fields.get("error"):
            return [error_in_stream(self.stage, fields)]
        return [*self.chunk(fields, "message"), *self._finish()]

    def chunk(self, fields: Json, key: str) -> list[Part]:
        """Decode what one event says, or the whole answer, whose choices have it at `key`. May raise MalformedError."""
        self._usage |= chat_usage(optional_object(fields, "usage"))
        return self._choice(fields, key)

    def ended(self) -> list[Part]:
        """Finish an answer that gave its reason to end; some services send no [DONE] after it."""
        return [cut_short(self.stage)] if self.why is None else self._finish()

    def _finish(self) -> list[Part]:
        self.over = True
        why = "refusal" if self._declined and self.why in (None, "stop") else self.why
        return [Finished(why, self._usage, self._tool_call)]

    def _choice(self, fields: Json, key: str) -> list[Part]:
        choices = as_list(fields.get("choices"))
        if not choices:
            if choices is None and fields.get("choices") is not None:
                raise MalformedError(f"'choices' is no array: {excerpt(repr(fields['choices']))}")
            return []
        choice = as_object(choices[0])
        if choice is None:
            raise MalformedError(f"a choice is no object: {excerpt(repr(choices[0]))}")
        if choice.get("index") not in (None, 0):
            return []
        if isinstance(why := choice.get("finish_reason"), str):
            self.why = why
        delta = as_object(choice.get(key)) or {}
        self._declined = self._declined or bool(delta.get("refusal"))
        self._tool_call = self._tool_call or bool(delta.get("tool_calls") or delta.get("function_call"))
        parts: list[Part] = []
        for name in _REASONING_FIELDS:
            if isinstance(text := delta.get(name), str) and text:
                parts.append(Words(text, reasoning=True))
                break
        content = delta.get("content")
        parts += [Words(content)] if isinstance(content, str) and content else _typed_words(as_list(content) or ())
        return parts


def _typed_words(pieces: Sequence[object]) -> list[Part]:
    """Decode a content that is a list of typed pieces, as Mistral's reasoning models write it."""
    words: list[Part] = []
    for piece in map(as_object, pieces):
        thoughts = as_list((piece or {}).get("thinking")) or ()
        for of, reasoning in ((piece, False), *((as_object(thought), True) for thought in thoughts)):
            text = (of or {}).get("text")
            words += [Words(text, reasoning=reasoning)] if isinstance(text, str) and text else []
    return words


def chat_usage(usage: Json | None) -> dict[str, int]:
    """Return the counts of tokens by the names that reports use; a count that is missing is left out, never 0."""
    usage = usage or {}
    prompt, completion = (
        as_object(usage.get("prompt_tokens_details")),
        as_object(usage.get("completion_tokens_details")),
    )
    stated = {
        "input_tokens": usage.get("prompt_tokens"),
        "output_tokens": usage.get("completion_tokens"),
        "total_tokens": usage.get("total_tokens"),
        "cached_tokens": (prompt or {}).get("cached_tokens"),
        "input_audio_tokens": (prompt or {}).get("audio_tokens"),
        "reasoning_tokens": (completion or {}).get("reasoning_tokens"),
    }
    counts = {
        name: value
        for name, value in stated.items()
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0
    }
    if "output_tokens" in counts:
        counts["output_text_tokens"] = max(0, counts["output_tokens"] - counts.get("reasoning_tokens", 0))
    return counts


_PCM: Final = AudioFormat.of("pcm16")  # the rate is that of the setting, or the file's


def speech_body(text: str, settings: StageSettings) -> bytes:
    """Return the body of the request for the speech of one text."""
    body: dict[str, object] = {"input": text, "response_format": settings.tts_format}
    if settings.tts_stream_format is not None:
        body["stream_format"] = settings.tts_stream_format
    if settings.tts_model is not None:
        body["model"] = settings.tts_model
    if settings.tts_voice is not None:
        body["voice"] = settings.tts_voice
    return orjson.dumps(body | settings.tts_body)


class SpeechReader(TypedEventReader):
    """The audio of one text: s16le mono. Raw PCM does not say its rate, so that it is a setting."""

    stage = "tts"

    def __init__(self, rate_hz: int) -> None:
        super().__init__()
        self._rate_hz = rate_hz
        self._start: bytes | None = b""  # the first bytes, until they show what format this is
        self._wav: WavStream | None = None
        self._samples = SampleStream(_PCM)
        self._usage: dict[str, int] = {}

    def typed(self, kind: object, fields: Json) -> list[Part] | None:
        """Decode `speech.audio.delta` and `speech.audio.done`."""
        match kind:
            case "speech.audio.delta":
                return self.raw(required_base64(fields, "audio"))
            case "speech.audio.done":
                self._usage = flat_usage(optional_object(fields, "usage"))
                return self.ended()
            case _:
                return None

    def whole(self, fields: Json) -> list[Part]:
        """Refuse a JSON object in the place of audio."""
        return [error_in_stream(self.stage, fields)]

    def raw(self, data: bytes) -> list[Part]:
        """Decode a piece of audio."""
        if self._start is not None:
            data = self._start + data
            container = container_of(data)
            if container is None and may_become_container(data):
                self._start = data
                return []
            self._start = None
            if container in ("WAV", "RIFF"):
                self._wav = WavStream()
            elif container is not None:
                return [self._bad(f"it sent {container}, not {self._named()}")]
        if self._wav is not None:
            data = b"".join(run for is_samples, run in self._wav.feed(data) if is_samples)
            fault = self._fault_of(self._wav)
            if fault is not None:
                return [self._bad(fault)]
        return self._pieces(data)

    def _fault_of(self, wav: WavStream) -> str | None:
        """Return why a WAV file cannot be used; takes its rate where it can."""
        stated = wav.format
        if wav.fault is not None or stated is None:
            return wav.fault
        is_known = stated.kind == WAV_PCM and stated.channels == 1 and stated.bits == 16
        if not is_known or not stated.rate_hz:
            return f"{stated}, not 16-bit mono PCM"
        self._rate_hz = stated.rate_hz
        return None

    def _pieces(self, data: bytes) -> list[Part]:
        whole = self._samples.feed(data)
        return [Pcm(whole, self._rate_hz)] if whole else []

    def ended(self) -> list[Part]:
        """Return the end of the audio, or the fault of one that is no whole number of samples."""
        # Audio so short that its first bytes showed no format.
        start, self._start = self._start or b"", None
        parts = self._pieces(start)
        if self._wav is not None:
            parts += self._pieces(self._wav.rest())
        elif self._samples.half:
            return [*parts, self._bad("its audio ended inside a sample: an odd number of bytes of 16-bit PCM")]
        self.over = True
        return [*parts, Finished(usage=self._usage)]

    def _named(self) -> str:
        return f"{self._rate_hz} Hz PCM; set --protocol-option tts_format to pcm or wav"

    def _bad(self, what: str) -> Broken:
        return Broken(f"the tts service's audio cannot be used: {what}", Failure("bad_audio", "format"))

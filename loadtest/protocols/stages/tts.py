"""`POST /audio/speech`: the request for one sentence, and its audio as raw PCM, as WAV or as server-sent events."""

from typing import Final

import orjson

from loadtest.audio.containers import container_of, may_become_container
from loadtest.audio.wav_stream import PCM, WavStream
from loadtest.protocols.failure import Failure
from loadtest.protocols.json_fields import Json, optional_object, required_base64
from loadtest.protocols.stages.parts import Broken, Finished, Part, Pcm
from loadtest.protocols.stages.reader import TypedEventReader, error_in_stream
from loadtest.protocols.stages.settings import StageSettings
from loadtest.protocols.usage import flat_usage

PATH = "audio/speech"
_BYTES_A_SAMPLE: Final = 2


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
        self._odd = b""
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
        return self._samples(data)

    def _fault_of(self, wav: WavStream) -> str | None:
        """Return why a WAV file cannot be used; takes its rate where it can."""
        stated = wav.format
        if wav.fault is not None or stated is None:
            return wav.fault
        is_known = stated.kind == PCM and stated.channels == 1 and stated.bits == 8 * _BYTES_A_SAMPLE
        if not is_known or not stated.rate_hz:
            return f"{stated}, not 16-bit mono PCM"
        self._rate_hz = stated.rate_hz
        return None

    def _samples(self, data: bytes) -> list[Part]:
        data = self._odd + data
        whole = len(data) - len(data) % 2
        self._odd = data[whole:]
        return [Pcm(data[:whole], self._rate_hz)] if whole else []

    def ended(self) -> list[Part]:
        """Return the end of the audio, or the fault of one that is no whole number of samples."""
        parts: list[Part] = []
        if self._start:
            parts += self._rest_of_start()
        if self._wav is not None:
            parts += self._samples(self._wav.rest())
        elif self._odd:
            return [*parts, self._bad("its audio ended inside a sample: an odd number of bytes of 16-bit PCM")]
        self.over = True
        return [*parts, Finished(usage=self._usage)]

    def _rest_of_start(self) -> list[Part]:
        """Return audio so short that its first bytes showed no format."""
        start, self._start = self._start or b"", None
        whole = len(start) - len(start) % 2
        self._odd = start[whole:]
        return [Pcm(start[:whole], self._rate_hz)] if whole else []

    def _named(self) -> str:
        return f"{self._rate_hz} Hz PCM; set --protocol-option tts_format to pcm or wav"

    def _bad(self, what: str) -> Broken:
        return Broken(f"the tts service's audio cannot be used: {what}", Failure("bad_audio", "format"))

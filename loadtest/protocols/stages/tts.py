"""`POST /audio/speech`: the request for one sentence, and its audio as raw PCM, as WAV or as server-sent events."""

from typing import Final

import orjson

from loadtest.protocols.failure import Failure
from loadtest.protocols.json_fields import Json, optional_object, required_base64
from loadtest.protocols.stages.parts import Broken, Finished, Part, Pcm
from loadtest.protocols.stages.reader import TypedEventReader, error_in_stream
from loadtest.protocols.stages.settings import StageSettings
from loadtest.protocols.stages.wav_stream import WavStream
from loadtest.protocols.usage import flat_usage

PATH = "audio/speech"
_OTHER_FORMATS: Final = {b"ID3": "MP3", b"OggS": "Ogg", b"fLaC": "FLAC", b"\xff\xfb": "MP3", b"\xff\xf3": "MP3"}
_MAGIC_BYTES: Final = 4


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
            if len(data) < _MAGIC_BYTES:
                self._start = data
                return []
            self._start = None
            for magic, name in _OTHER_FORMATS.items():
                if data.startswith(magic):
                    return [self._bad(f"it sent {name}, not {self._named()}")]
            if data.startswith(b"RIFF"):
                self._wav = WavStream()
        if self._wav is not None:
            data = self._wav.feed(data)
            if self._wav.fault is not None:
                return [self._bad(self._wav.fault)]
            self._rate_hz = self._wav.rate_hz or self._rate_hz
        data = self._odd + data
        whole = len(data) - len(data) % 2
        self._odd = data[whole:]
        return [Pcm(data[:whole], self._rate_hz)] if whole else []

    def ended(self) -> list[Part]:
        """Return the end of the audio, or the fault of one that is no whole number of samples."""
        parts: list[Part] = []
        if self._start:
            parts += self._rest_of_start()
        if self._odd and self._wav is None:
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
        return f"{self._rate_hz} Hz PCM; set tts_format to pcm or wav"

    def _bad(self, what: str) -> Broken:
        return Broken(f"the tts service's audio cannot be used: {what}", Failure("bad_audio", "format"))

"""The engines that say a text: flite, espeak-ng, and any endpoint with the OpenAI speech API."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final, Protocol, Self
from urllib.parse import urlsplit

import httpx
import msgspec
import numpy as np

from corpora.manifest.clips import Samples, decode
from corpora.manifest.errors import CorpusError
from corpora.sources.synth import LANGUAGE_BY_VOICE, speak_with_flite

ENGINES: Final = ("flite", "espeak-ng", "openai")
TOKEN_VARIABLE: Final = "VOICEPROBE_SAY_TOKEN"  # noqa: S105 - the name of the variable, not a secret
DEFAULT_VOICES: Final = {"flite": "slt", "espeak-ng": "en-us", "openai": "alloy"}
_TIMEOUT_S: Final = 120.0
_MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024


class Voice(Protocol):
    """Says texts. `source` says of a clip how it was made."""

    def say(self, text: str, voice: str) -> tuple[Samples, int]:
        """Mono samples of shape (samples,) at full scale ±1.0, and their rate in Hz. Raises CorpusError."""
        ...

    def source(self, voice: str) -> str:
        """How a clip of this voice was made."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class Flite:
    """flite, the program."""

    def say(self, text: str, voice: str) -> tuple[Samples, int]:
        """As `Voice`."""
        if voice not in LANGUAGE_BY_VOICE:
            raise CorpusError(f"flite has no voice {voice!r} here; use one of {', '.join(LANGUAGE_BY_VOICE)}.")
        return speak_with_flite(text, voice, 1.0, called="the text")

    def source(self, voice: str) -> str:
        """As `Voice`."""
        return f"flite voice {voice}"

    def __enter__(self) -> Self:
        if shutil.which("flite") is None:
            raise CorpusError(
                "flite is not installed; install the package flite of your distribution, or use another --engine."
            )
        return self

    def __exit__(self, *_: object) -> None:
        return


class Espeak:
    """espeak-ng, a process for each voice."""

    def __init__(self) -> None:
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.communicate(timeout=_TIMEOUT_S)

    def source(self, voice: str) -> str:
        """As `Voice`."""
        return f"espeak-ng voice {voice}"

    def say(self, text: str, voice: str) -> tuple[Samples, int]:
        """As `Voice`."""
        process = self._processes.get(voice) or self._start(voice)
        if process.stdin is None or process.stdout is None:
            raise CorpusError("espeak-ng's process has no pipes; run the command again.")
        try:
            process.stdin.write(msgspec.json.encode(text) + b"\n")
            process.stdin.flush()
            head = msgspec.json.decode(process.stdout.readline(), type=_EspeakAnswer)
            pcm = process.stdout.read(head.bytes)
        except (OSError, msgspec.DecodeError) as error:
            raise CorpusError("espeak-ng's process ended; run the command again.") from error
        if head.fault is not None:
            raise CorpusError(f"{head.fault}; name another voice with --voice.")
        return np.frombuffer(pcm, np.int16).astype(np.float64) / 32_768.0, head.rate_hz

    def _start(self, voice: str) -> subprocess.Popen[bytes]:
        folder = Path(__file__).parents[3]
        surroundings = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}
        command = [sys.executable, "-m", "corpora.sources.synthesis.espeak_process", voice]
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=surroundings,
        )
        self._processes[voice] = process
        return process


class _EspeakAnswer(msgspec.Struct):
    rate_hz: int
    bytes: int
    fault: str | None


class OpenAiSpeech:
    """An endpoint with the OpenAI speech API: POST {url}/audio/speech. The token comes from the environment."""

    def __init__(self, url: str, model: str, token: str | None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise CorpusError(f"--url {url!r} is no address; give one such as http://127.0.0.1:8000/v1.")
        self._url = f"{url.rstrip('/')}/audio/speech"
        self._model = model
        headers = {"authorization": f"Bearer {token}"} if token else {}
        self._client = httpx.Client(headers=headers, timeout=_TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def source(self, voice: str) -> str:
        """As `Voice`."""
        return f"{self._model} voice {voice}"

    def say(self, text: str, voice: str) -> tuple[Samples, int]:
        """As `Voice`."""
        asked = {"model": self._model, "voice": voice, "input": text, "response_format": "wav"}
        content = bytearray()
        try:
            with self._client.stream("POST", self._url, json=asked) as answer:
                if answer.is_error:
                    said = answer.read()[:200].decode(errors="replace").strip().replace("\n", " ")
                    raise CorpusError(
                        f"{self._url}: answers {answer.status_code} ({said or 'and says nothing'}); check --url, "
                        f"--model, --voice and the token in {TOKEN_VARIABLE}."
                    )
                for piece in answer.iter_bytes():
                    content += piece
                    if len(content) > _MAX_ANSWER_BYTES:
                        raise CorpusError(f"{self._url}: answers with more than {_MAX_ANSWER_BYTES >> 20} MB of audio.")
        except httpx.HTTPError as error:
            raise CorpusError(f"{self._url}: does not answer ({type(error).__name__}); check --url.") from error
        return decode(bytes(_with_true_sizes(content)), f"{self._url}: the answer")


def _with_true_sizes(wav: bytearray) -> bytearray:
    """A WAV that was streamed says 0 or 2^32 - 1 where its sizes stand, because its writer did not know them yet."""
    at = wav.find(b"data", 12, 512)
    if wav.startswith(b"RIFF") and wav.startswith(b"WAVE", 8) and at > 0:
        size = len(wav) - at - 8
        if int.from_bytes(wav[at + 4 : at + 8], "little") not in range(1, size + 1):
            wav[at + 4 : at + 8] = size.to_bytes(4, "little")
            wav[4:8] = (len(wav) - 8).to_bytes(4, "little")
    return wav

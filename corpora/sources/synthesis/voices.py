"""The text-to-speech engines: flite, espeak-ng, and any endpoint with the OpenAI speech API."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, Protocol, Self
from urllib.parse import urlsplit

import httpx
import msgspec
import numpy as np

from corpora.manifest.clips import Samples, decode
from corpora.manifest.errors import CorpusError

ENGINES: Final = ("flite", "espeak-ng", "openai")
TOKEN_VARIABLE: Final = "VOICEPROBE_SAY_TOKEN"  # noqa: S105 - the name of the variable, not a secret
DEFAULT_VOICES: Final = {"flite": "slt", "espeak-ng": "en-us", "openai": "alloy"}
LANGUAGE_BY_VOICE: Final = {"slt": "en-US", "rms": "en-US", "kal16": "en-US", "awb": "en-GB"}  # of flite
_TIMEOUT_S: Final = 120.0
_FLITE_TIMEOUT_S: Final = 60.0
_MAX_RESPONSE_BYTES: Final = 64 * 1024 * 1024


class SpeechEngine(Protocol):
    """A text-to-speech engine."""

    def synthesize(self, text: str, voice: str) -> tuple[Samples, int]:
        """Synthesize a text: mono samples of shape (samples,), full scale ±1.0, and their rate in Hz.

        Raises CorpusError.
        """
        ...

    def source(self, voice: str) -> str:
        """The source of a clip with this voice, as written to the manifest."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class Flite:
    """The flite program."""

    def synthesize(self, text: str, voice: str, stretch: float = 1.0) -> tuple[Samples, int]:
        """See `SpeechEngine`; `stretch` is the duration relative to the voice's own."""
        if voice not in LANGUAGE_BY_VOICE:
            raise CorpusError(f"The flite voice {voice!r} is not supported; use one of {', '.join(LANGUAGE_BY_VOICE)}.")
        with tempfile.TemporaryDirectory(prefix="voiceprobe-flite-") as scratch:
            wav = Path(scratch) / "speech.wav"
            command = ["flite", "-voice", voice, "--setf", f"duration_stretch={stretch:g}", "-t", text, "-o", str(wav)]
            try:
                completed = subprocess.run(command, capture_output=True, timeout=_FLITE_TIMEOUT_S, check=False)
            except subprocess.TimeoutExpired as error:
                raise CorpusError(
                    f"flite did not finish within {_FLITE_TIMEOUT_S:g} s; run it manually to find the cause."
                ) from error
            if completed.returncode or not wav.is_file():
                raise CorpusError(
                    f"flite exited with code {completed.returncode} and without speech; run it manually to find the "
                    "cause."
                )
            return decode(wav.read_bytes(), "flite's output")

    def source(self, voice: str) -> str:
        """See `SpeechEngine`."""
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
    """espeak-ng, with a child process for each voice."""

    def __init__(self) -> None:
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.communicate(timeout=_TIMEOUT_S)

    def source(self, voice: str) -> str:
        """See `SpeechEngine`."""
        return f"espeak-ng voice {voice}"

    def synthesize(self, text: str, voice: str) -> tuple[Samples, int]:
        """See `SpeechEngine`."""
        process = self._processes.get(voice) or self._start(voice)
        if process.stdin is None or process.stdout is None:
            raise CorpusError("The espeak-ng process has no pipes; run the command again.")
        try:
            process.stdin.write(msgspec.json.encode(text) + b"\n")
            process.stdin.flush()
            head = msgspec.json.decode(process.stdout.readline(), type=_EspeakResponse)
            pcm = process.stdout.read(head.bytes)
        except (OSError, msgspec.DecodeError) as error:
            raise CorpusError("The espeak-ng process ended unexpectedly; run the command again.") from error
        if head.fault is not None:
            raise CorpusError(f"{head.fault}; choose another voice with --voice.")
        return np.frombuffer(pcm, np.int16).astype(np.float64) / 32_768.0, head.rate_hz

    def _start(self, voice: str) -> subprocess.Popen[bytes]:
        folder = Path(__file__).parents[3]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}
        command = [sys.executable, "-m", "corpora.sources.synthesis.espeak_process", voice]
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        self._processes[voice] = process
        return process


class _EspeakResponse(msgspec.Struct):
    rate_hz: int
    bytes: int
    fault: str | None


def speech_token() -> str | None:
    """The endpoint's token, from the environment. Raises CorpusError, which does not show it."""
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    if not all("!" <= character <= "~" for character in token):
        raise CorpusError(f"{TOKEN_VARIABLE} holds no token: it must be ASCII characters without spaces, in one line.")
    return token or None


class OpenAiSpeech:
    """An endpoint with the OpenAI speech API: POST {url}/audio/speech. The token comes from the environment."""

    def __init__(self, url: str, model: str, token: str | None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise CorpusError(
                f"--url {url.rpartition('@')[2]!r} is not a URL; give one such as http://127.0.0.1:8000/v1."
            )
        self._url = f"{url.rstrip('/')}/audio/speech"
        self._model = model
        headers = {"authorization": f"Bearer {token}"} if token else {}
        self._client = httpx.Client(headers=headers, timeout=_TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def source(self, voice: str) -> str:
        """See `SpeechEngine`."""
        return f"{self._model} voice {voice}"

    def synthesize(self, text: str, voice: str) -> tuple[Samples, int]:
        """See `SpeechEngine`."""
        request = {"model": self._model, "voice": voice, "input": text, "response_format": "wav"}
        content = bytearray()
        try:
            with self._client.stream("POST", self._url, json=request) as response:
                if response.is_error:
                    body = response.read()[:200].decode(errors="replace").strip().replace("\n", " ")
                    raise CorpusError(
                        f"{self._url}: responded with {response.status_code} ({body or 'empty body'}); check --url, "
                        f"--model, --voice and the token in {TOKEN_VARIABLE}."
                    )
                for chunk in response.iter_bytes():
                    content += chunk
                    if len(content) > _MAX_RESPONSE_BYTES:
                        raise CorpusError(
                            f"{self._url}: responded with more than {_MAX_RESPONSE_BYTES >> 20} MB of audio; "
                            "shorten the text."
                        )
        except httpx.HTTPError as error:
            raise CorpusError(f"{self._url}: did not respond ({type(error).__name__}); check --url.") from error
        return decode(bytes(_with_actual_sizes(content)), f"{self._url}: the response")


def _with_actual_sizes(wav: bytearray) -> bytearray:
    """Correct the sizes in the header of a streamed WAV, which are 0 or 2^32 - 1 because they were not known."""
    data_offset = wav.find(b"data", 12, 512)
    if wav.startswith(b"RIFF") and wav.startswith(b"WAVE", 8) and data_offset > 0:
        size = len(wav) - data_offset - 8
        if int.from_bytes(wav[data_offset + 4 : data_offset + 8], "little") not in range(1, size + 1):
            wav[data_offset + 4 : data_offset + 8] = size.to_bytes(4, "little")
            wav[4:8] = (len(wav) - 8).to_bytes(4, "little")
    return wav

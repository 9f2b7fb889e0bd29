"""The clips that can be labeled: prompts and test data of Debian packages, and synthesis by flite and espeak-ng.

Audio of others is not committed: a clip is identified by its package, its file, and the hash of its decoded samples.
"""

import gzip
import re
import subprocess
import tempfile
import wave
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from corpora.manifest.clips import decode
from corpora.rendering.g722 import decode_lanes
from corpora.sources.archives import read_members
from corpora.sources.recorded import pocketsphinx_drafts
from corpora.sources.synth import TEXTS_NAME, read_texts, synthesize_with_flite
from corpora.sources.synthesis.voices import Espeak

Pcm = NDArray[np.int16]
LANGUAGES: Final = ("en", "fr", "es", "it", "ru")
_PROMPT: Final = re.compile(r"^(?P<id>[A-Za-z0-9][A-Za-z0-9/_-]*):\s*(?P<text>.*?)\s*$")
_NO_SPEECH: Final = re.compile(r"[\[\]<>()#*]|^(un )?suon[oi] ")  # descriptions of sounds, or names of characters
_BUNDLED_FOLDER: Final = Path(__file__).resolve().parents[3] / "corpora" / "data" / "voiceprobe-en"
FLITE_TEXTS: Final = (
    ("kal", "Please leave a message after the tone."),
    ("kal", "The meeting is on the second of June."),
    ("kal", "Put it back."),
    ("kal", "That is not enough."),
    ("kal", "Where do you want to go?"),
    ("kal", "We will call you back this afternoon."),
    ("kal", "Tell me when you would like to start."),
    ("kal", "Nobody has told me the price."),
    ("kal", "The doctor is not in today."),
    ("kal", "Please hold the line for a moment."),
    ("kal", "My phone number has changed."),
    ("kal", "Can I bring my dog?"),
)
ESPEAK_TEXTS: Final = (
    ("en-us", "en", "The station is closed on Sunday evening."),
    ("en-us", "en", "Could you please read it back?"),
    ("en-gb-x-rp", "en", "I would like to change my address."),
    ("en-gb-x-rp", "en", "Where is the nearest bank?"),
    ("fr", "fr", "Je voudrais un rendez-vous demain."),
    ("it", "it", "Vorrei parlare con un operatore."),
    ("en-us", "en", "My order number is seventeen."),
    ("en-gb-x-rp", "en", "I have lost my credit card."),
    ("fr", "fr", "Il faut que je change d'adresse."),
    ("it", "it", "Quando parte il prossimo treno?"),
    ("en-us", "en", "The bus leaves at half past six."),
    ("fr", "fr", "Est-ce que le magasin est ouvert le dimanche ?"),
    ("it", "it", "Il mio numero di telefono non funziona."),
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A clip that can be chosen. `load` decodes it; `g722` clips are decoded together instead (`decode_all`)."""

    id: str
    source: str  # asterisk-en-8k, ..., pocketsphinx, alsa, bundled, flite, espeak
    package: str
    file: str
    language: str
    rate_hz: int
    text: str
    prompt: str  # the same for one prompt at two rates
    load: Callable[[], Pcm]
    g722: bytes | None = None


def decode_all(clips: Sequence[Candidate]) -> list[Pcm]:
    """Decode clips; those in G.722 in parallel, which is much faster."""
    lanes = [clip.g722 for clip in clips if clip.g722 is not None]
    decoded = iter(decode_lanes(lanes) if lanes else ())
    return [clip.load() if clip.g722 is None else next(decoded) for clip in clips]


def _deb(folder: Path, package: str) -> Path:
    files = sorted(folder.glob(f"{package}_*.deb"))
    if len(files) != 1:
        raise FileNotFoundError(
            f"{folder}: contains {len(files)} files of {package} instead of 1; run `apt-get download {package}` in it"
        )
    return files[0]


def asterisk(folder: Path, language: str) -> list[Candidate]:
    """The prompts of one language at 8 kHz (wav) and at 16 kHz (G.722)."""
    stem = f"asterisk-core-sounds-{language}"
    texts = prompt_texts(read_members(_deb(folder, stem), lambda name: name.endswith(".txt.gz")))
    found: list[Candidate] = []
    for kind, rate_hz in (("wav", 8_000), ("g722", 16_000)):
        package = _deb(folder, f"{stem}-{kind}")
        for name, content in sorted(read_members(package, lambda name, kind=kind: name.endswith(f".{kind}")).items()):
            prompt = name.split("/sounds/", 1)[-1].split("/", 1)[-1].removesuffix(f".{kind}")
            if prompt not in texts or prompt.startswith("silence/"):
                continue
            short = f"{language}{rate_hz // 1000}.{prompt.replace('/', '_')}"
            found.append(
                Candidate(
                    short, f"asterisk-{language}-{rate_hz // 1000}k", package.name, name, language, rate_hz,
                    texts[prompt], f"{language}.{prompt}", lambda content=content, name=name: _pcm(content, name),
                    content if kind == "g722" else None,
                )
            )  # fmt: skip
    return found


def prompt_texts(members: dict[str, bytes]) -> dict[str, str]:
    """The texts of the prompts that are speech, by name; a name with two texts is left out."""
    texts: dict[str, str] = {}
    ambiguous: set[str] = set()
    for content in members.values():
        for line in gzip.decompress(content).decode("utf-8", "replace").splitlines():
            match = _PROMPT.match(line)
            if match is None or not re.search(r"[^\W\d_]", match["text"]) or _NO_SPEECH.search(match["text"]):
                continue
            if match["id"] in texts and texts[match["id"]] != match["text"]:
                ambiguous.add(match["id"])
            texts[match["id"]] = match["text"].replace("…", "...")
    return {name: text for name, text in texts.items() if name not in ambiguous}


def pocketsphinx(folder: Path) -> list[Candidate]:
    """The twelve clips of the project's preferred default corpus, 16 kHz."""
    package = _deb(folder, "pocketsphinx-testdata")
    members = read_members(package, lambda name: "/test/data/" in name)
    return [
        Candidate(
            f"ps.{draft.id}", "pocketsphinx", package.name, draft.source.split(", ", 1)[-1], "en", draft.rate_hz,
            draft.text or "", f"ps.{draft.id}", lambda draft=draft: draft.pcm,
        )
        for draft in pocketsphinx_drafts(members)
    ]  # fmt: skip


def alsa(folder: Path) -> list[Candidate]:
    """The spoken channel names of alsa-utils, 48 kHz."""
    package = _deb(folder, "alsa-utils")
    members = read_members(package, lambda name: "/sounds/alsa/" in name and not name.endswith("Noise.wav"))
    return [
        Candidate(
            f"alsa.{Path(name).stem}", "alsa", package.name, name, "en", 48_000,
            Path(name).stem.replace("_", " "), f"alsa.{Path(name).stem}",
            lambda content=content, name=name: _pcm(content, name),
        )
        for name, content in sorted(members.items())
    ]  # fmt: skip


def bundled() -> list[Candidate]:
    """The texts of the bundled corpus as synthesized by flite.

    When these were labeled, the published clips had digital silence outside the detected speech, which would have shown
    the detector's result to the labelers. Today both have the same samples.
    """
    lines = read_texts(_BUNDLED_FOLDER / TEXTS_NAME)
    return [
        Candidate(
            f"gen.{line.id}", "bundled", "flite", f"voice {line.voice}, duration_stretch={line.stretch:g}", "en",
            16_000, line.text, f"gen.{line.id}",
            lambda line=line: _int16(synthesize_with_flite(line.text, line.voice, line.stretch, label=line.id)[0]),
        )
        for line in lines
    ]  # fmt: skip


def flite() -> list[Candidate]:
    """flite's diphone voice at 8 kHz."""
    return [
        Candidate(
            f"flite8.{voice}-{number}", "flite-8k", "flite", f"voice {voice}", "en", 8_000, text,
            f"flite8.{voice}-{number}", lambda voice=voice, text=text: _flite(voice, text),
        )
        for number, (voice, text) in enumerate(FLITE_TEXTS, 1)
    ]  # fmt: skip


def espeak() -> list[Candidate]:
    """espeak-ng at its own rate, 22,050 Hz."""
    return [
        Candidate(
            f"espeak.{voice}-{number}", "espeak", "espeakng-loader", f"voice {voice}", language, 22_050, text,
            f"espeak.{voice}-{number}", lambda voice=voice, text=text: _espeak(voice, text),
        )
        for number, (voice, language, text) in enumerate(ESPEAK_TEXTS, 1)
    ]  # fmt: skip


def _pcm(content: bytes, name: str) -> Pcm:
    return _int16(decode(content, name)[0])


def _int16(samples: NDArray[np.float64]) -> Pcm:
    return np.clip(np.rint(samples * 32_768.0), -32_768, 32_767).astype(np.int16)


def _flite(voice: str, text: str) -> Pcm:
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "speech.wav"
        subprocess.run(["flite", "-voice", voice, "-t", text, "-o", str(file)], check=True, timeout=60)
        with wave.open(str(file)) as opened:
            if opened.getframerate() != 8_000:
                raise ValueError(f"The flite voice {voice} has a rate of {opened.getframerate()} Hz instead of 8000 Hz")
            return np.frombuffer(opened.readframes(opened.getnframes()), "<i2").astype(np.int16)


def _espeak(voice: str, text: str) -> Pcm:
    with Espeak() as engine:
        return _int16(engine.synthesize(text, voice)[0])

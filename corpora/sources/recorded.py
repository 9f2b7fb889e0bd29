"""Corpora of recorded human speech in Debian packages: which files are used, and their text, speaker and license.

The functions take the members of a package as a mapping of names to bytes; `install` obtains the packages.
"""

import gzip
import io
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from corpora.manifest.clips import decode
from corpora.manifest.errors import CorpusError
from corpora.rendering.profiles.channels import G722_HZ, decode_g722
from corpora.sources.authoring import Draft

_RAW_RATE_HZ = 16_000
_TRANSCRIPT_LINE = re.compile(r"^\s*<s>\s*(?P<text>.*?)\s*</s>\s*\((?P<id>[^()]+)\)\s*$")
_PROMPT_LINE = re.compile(r"^(?P<id>[A-Za-z0-9][A-Za-z0-9/_-]*):\s*(?P<text>.*?)\s*$")
_LONGEST_PROMPT_S = 12  # longer prompts are menus, which no caller would say
_MAX_TRANSCRIPT_BYTES = 1024 * 1024
_PROMPT_TEXTS: Final = ("core-sounds-en.txt.gz", "core-sounds-en.txt")

_POCKETSPHINX_PACKAGES: Final = ("pocketsphinx-testdata",)
_ASTERISK_PACKAGES: Final = ("asterisk-core-sounds-en", "asterisk-core-sounds-en-g722")

Members = Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Recipe:
    """A recipe for a corpus of recorded speech from packages."""

    name: str
    packages: tuple[str, ...]  # names of Debian packages
    wanted: Callable[[str], bool]
    drafts: Callable[[Members], list[Draft]]
    about: str


def _pocketsphinx_wanted(name: str) -> bool:
    return (
        re.search(r"(^|/)test/data/(cards/[^/]+|librivox/[^/]+|goforward\.(raw|gram)|something\.raw)$", name)
        is not None
    )


@dataclass(frozen=True, slots=True)
class _Origin:
    """The properties that the utterances of one folder share."""

    domain: str
    speaker: str
    consent: str | None = None


_LIBRIVOX: Final = _Origin("reading", "librivox-austen", "public-domain reading for LibriVox")
# The package names no speaker. By the cosine of speaker embeddings (GE2E), one man speaks both commands (0.81, as
# between two sentences of the reader: 0.84); he, the reader and the speaker of the cards are three (0.50 to 0.64).
_COMMANDS: Final = _Origin("commands", "cmu-commands")


def pocketsphinx_drafts(members: Members) -> list[Draft]:
    """Twelve utterances by three speakers: five read sentences, five card phrases and two commands.

    `numbers` is left out because it has no transcript, `tidigits` because it has another license. Raises CorpusError
    if the package lacks an expected file.
    """
    by_tail = {name.rsplit("test/data/", 1)[-1]: content for name, content in members.items()}
    drafts = [
        *_transcribed(by_tail, "librivox", "transcription", _LIBRIVOX),
        *_transcribed(by_tail, "cards", "cards.transcription", _Origin("games", "cmu-cards")),
    ]
    # The first text is the package's own test sentence; the second is what every recognizer returns for the recording.
    for stem, text in (("goforward", "go forward ten meters"), ("something", "go somewhere and do something")):
        content = _member(by_tail, f"{stem}.raw")
        pcm = np.frombuffer(content[: len(content) // 2 * 2], dtype="<i2").astype(np.int16)
        drafts.append(_pocketsphinx_draft(stem, text, _COMMANDS, pcm, f"{stem}.raw"))
    return drafts


def _transcribed(members: Members, folder: str, transcripts: str, origin: _Origin) -> list[Draft]:
    drafts: list[Draft] = []
    text = _member(members, f"{folder}/{transcripts}").decode("utf-8", "replace")
    for line in text.splitlines():
        match = _TRANSCRIPT_LINE.match(line)
        if match is None:
            continue
        file = f"{folder}/{match['id']}.wav"
        samples, rate_hz = decode(_member(members, file), file)
        if rate_hz != _RAW_RATE_HZ:
            raise CorpusError(
                f"{file}: has a rate of {rate_hz} Hz instead of {_RAW_RATE_HZ} Hz; use another version of the package."
            )
        pcm = np.rint(samples * 32_768.0).astype(np.int16)
        name = f"{folder}-{match['id'].rsplit('-', 1)[-1]}"
        drafts.append(_pocketsphinx_draft(name, match["text"], origin, pcm, file))
    if not drafts:
        raise CorpusError(f"{folder}/{transcripts}: contains no transcript; use another version of the package.")
    return drafts


def _pocketsphinx_draft(name: str, text: str, origin: _Origin, pcm: NDArray[np.int16], file: str) -> Draft:
    return Draft(
        id=re.sub(r"[^A-Za-z0-9._-]", "_", name),
        text=text,
        speaker=origin.speaker,
        language="en-US",
        domain=origin.domain,
        license="BSD-2-Clause",
        source=f"pocketsphinx test data, {file}",
        pcm=pcm,
        rate_hz=_RAW_RATE_HZ,
        consent=origin.consent,
    )


def _asterisk_wanted(name: str) -> bool:
    return name.endswith((".g722", *_PROMPT_TEXTS))


def asterisk_drafts(members: Members) -> list[Draft]:
    """The prompts of a telephone system by one speaker, with transcripts; tones and single sounds are left out.

    Raises CorpusError if sounds or transcripts are missing.
    """
    sounds = {
        _prompt_id(name): content
        for name, content in members.items()
        if name.endswith(".g722") and len(content) <= _LONGEST_PROMPT_S * G722_HZ // 2
    }
    texts = _prompt_texts(members)
    ids = sorted(sounds.keys() & texts.keys())
    if not ids:
        raise CorpusError(
            "The packages contain no prompt with a transcript; give both the package of G.722 sounds and that of texts."
        )
    return [
        Draft(
            id=name.replace("/", "."),
            text=texts[name],
            speaker="asterisk-allison",
            language="en-US",
            domain="telephony",
            license="CC-BY-SA-3.0",
            source=f"asterisk-core-sounds-en, {name}.g722",
            pcm=decode_g722(sounds[name]),
            rate_hz=G722_HZ,
            consent="recorded by Allison Smith for publication",
        )
        for name in ids
    ]


# The telephone prompts in `recorded-en`, by domain: words and whole sentences of all lengths from every part of the
# system, whose texts are what is said. Prompts with a pause of 300 ms or more are left out: an assistant with the usual
# endpointing takes each for two turns.
RECORDED_EN_PROMPTS: Final = {
    "agents": ("agent-loggedoff", "agent-loginok", "agent-newlocation", "agent-pass", "auth-incorrect"),
    "calls": (
        *("all-circuits-busy-now", "call-waiting", "cannot-complete-as-dialed", "check-number-dial-again", "demo-nogo"),
        *("do-not-disturb", "entr-num-rmv-blklist", "followme/pls-hold-while-try", "followme/sorry"),
        *("number-not-answering", "please-try-call-later", "ss-noservice", "tt-allbusy"),
    ),
    "conference": (
        *("conf-full", "conf-invalidpin", "conf-locked", "conf-onlyperson", "conf-waitforleader", "confbridge-pin"),
        *("confbridge-removed", "confbridge-unmuted"),
    ),
    "dates": ("digits/day-1", "digits/mon-11", "digits/tomorrow", "digits/yesterday"),
    "directory": ("dir-nomatch", "dir-nomore", "dir-welcome", "privacy-prompt"),
    "numbers": ("digits/17", "digits/90", "digits/h-20", "telephone-number"),
    "queue": ("one-moment-please", "queue-holdtime", "queue-thankyou", "queue-thereare"),
    "small-talk": (
        *("auth-thankyou", "demo-nomatch", "goodbye", "hello-world", "sorry-youre-having-problems"),
        *("something-terribly-wrong", "tt-monkeysintro", "tt-weasels"),
    ),
    "voicemail": (
        *("vm-changeto", "vm-deleted", "vm-mailboxfull", "vm-mismatch", "vm-msgsaved", "vm-newuser", "vm-nobodyavail"),
        *("vm-nobox", "vm-nomore", "vm-nonumber", "vm-record-prepend", "vm-review", "vm-review-nonurgent"),
        *("vm-savefolder", "vm-tooshort"),
    ),
}
_DOMAIN_BY_PROMPT: Final = {prompt: domain for domain, prompts in RECORDED_EN_PROMPTS.items() for prompt in prompts}


def _recorded_en_wanted(name: str) -> bool:
    if name.endswith(".g722"):
        return _prompt_id(name) in _DOMAIN_BY_PROMPT
    return _pocketsphinx_wanted(name) or _asterisk_wanted(name)


def recorded_en_drafts(members: Members) -> list[Draft]:
    """The corpus of the demo: all clips of pocketsphinx, and chosen telephone prompts, each with its own domain.

    Raises CorpusError if a package or an expected file is missing.
    """
    for packages, wanted in ((_POCKETSPHINX_PACKAGES, _pocketsphinx_wanted), (_ASTERISK_PACKAGES, _asterisk_wanted)):
        if not any(map(wanted, members)):
            raise CorpusError(
                f"The packages contain no file of {' and '.join(packages)}; give --from for each package."
            )
    utterances = pocketsphinx_drafts(members)
    prompts = {draft.id: draft for draft in asterisk_drafts(members)}
    chosen = {prompt.replace("/", "."): domain for prompt, domain in _DOMAIN_BY_PROMPT.items()}
    missing = sorted(chosen.keys() - prompts.keys())
    if missing:
        raise CorpusError(
            f"The packages do not contain {len(missing)} of {len(chosen)} prompts (the first is {missing[0]}); use "
            f"another version of {' and '.join(_ASTERISK_PACKAGES)}."
        )
    return [*utterances, *(replace(prompts[name], domain=chosen[name]) for name in sorted(chosen))]


def _prompt_id(name: str) -> str:
    return name.split("/sounds/", 1)[-1].split("/", 1)[-1].removesuffix(".g722")


def _prompt_texts(members: Members) -> dict[str, str]:
    texts: dict[str, str] = {}
    for name, content in members.items():
        if name.endswith(_PROMPT_TEXTS):
            for line in _gunzipped(content, name).decode("utf-8", "replace").splitlines():
                match = _PROMPT_LINE.match(line)
                # Texts in brackets describe tones, silence and other sounds that are not speech.
                if match and re.search("[A-Za-z]", match["text"]) and not re.search(r"[\[\]<>()]", match["text"]):
                    texts[match["id"]] = match["text"]
    return texts


def _gunzipped(content: bytes, name: str) -> bytes:
    if not name.endswith(".gz"):
        return content
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as stream:
            return stream.read(_MAX_TRANSCRIPT_BYTES)
    except (OSError, EOFError, zlib.error) as error:
        raise CorpusError(f"{name}: the transcripts are damaged ({error}); download the package again.") from error


def _member(members: Members, name: str) -> bytes:
    if name not in members:
        raise CorpusError(f"The package does not contain {name}; use the package that this corpus is made from.")
    return members[name]


RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            "recorded-en",
            (*_POCKETSPHINX_PACKAGES, *_ASTERISK_PACKAGES),
            _recorded_en_wanted,
            recorded_en_drafts,
            f"{12 + len(_DOMAIN_BY_PROMPT)} utterances by four speakers in twelve domains, BSD-2-Clause and "
            "CC-BY-SA-3.0",
        ),
        Recipe(
            "pocketsphinx-testdata",
            _POCKETSPHINX_PACKAGES,
            _pocketsphinx_wanted,
            pocketsphinx_drafts,
            "12 utterances by three speakers, BSD-2-Clause",
        ),
        Recipe(
            "asterisk-core-sounds-en",
            _ASTERISK_PACKAGES,
            _asterisk_wanted,
            asterisk_drafts,
            "some 500 telephone prompts by one speaker, CC-BY-SA-3.0",
        ),
    )
}

"""Finds corpora by name or folder, and selects utterances from one.

Bundled corpora are in `corpora/data`; installed ones in `$VOICEPROBE_HOME/corpora`, or in the user's data folder if
that variable is not set.
"""

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final, get_args

import platformdirs

from corpora.manifest.clips import Samples, read_clip
from corpora.manifest.conversations import ScriptedConversation, read_conversations
from corpora.manifest.errors import CorpusError, ManifestError
from corpora.manifest.manifest import (
    DEFAULT_EDGES,
    MANIFEST_NAME,
    CorpusKind,
    Edges,
    LengthClass,
    Manifest,
    Utterance,
    read_manifest,
)

BUNDLED: Final = "voiceprobe-en"
BUNDLED_ROOT = Path(__file__).parents[1] / "data"
_PREFERRED_RECORDED = ("recorded-en", "pocketsphinx-testdata", "asterisk-core-sounds-en")


@dataclass(frozen=True, eq=False)
class Corpus:
    """A corpus whose manifest was valid when it was opened, and whose clips were, too, unless they were not checked."""

    name: str
    path: Path
    kind: CorpusKind
    utterances: tuple[Utterance, ...]
    conversations: tuple[ScriptedConversation, ...] = ()
    edges: Edges = DEFAULT_EDGES

    def select(
        self, length: str | None = None, domains: Collection[str] | None = None, include_pii: bool = True
    ) -> tuple[Utterance, ...]:
        """Return the utterances of a length class and of any of the domains (None: all), in the manifest's order.

        Raises CorpusError for an unknown class or domain, and if no utterance remains.
        """
        classes = get_args(LengthClass)
        if length is not None and length not in classes:
            raise CorpusError(f"The length {length!r} is unknown; use one of {', '.join(classes)}.")
        known = sorted({utterance.domain for utterance in self.utterances})
        unknown = sorted(set(domains or ()) - set(known))
        if unknown:
            raise CorpusError(f"The corpus {self.name} has no domain {', '.join(unknown)}; it has {', '.join(known)}.")
        chosen = tuple(
            utterance
            for utterance in self.utterances
            if (length is None or utterance.length == length)
            and (domains is None or utterance.domain in domains)
            and (include_pii or not utterance.pii)
        )
        if not chosen:
            asked = [length or "", "/".join(sorted(domains or ())), "" if include_pii else "free of PII"]
            wanted = ", ".join(word for word in asked if word)
            raise CorpusError(
                f"The corpus {self.name} has no utterance that is {wanted}; select less narrowly or use another corpus."
            )
        return chosen

    def read(self, utterance: Utterance) -> Samples:
        """Return the clip of one utterance: mono, shape (samples,), full scale ±1.0, at `utterance.sample_rate_hz`.

        Raises CorpusError if the clip is not the one that its manifest describes.
        """
        return read_clip(self.path, utterance)


@dataclass(frozen=True, slots=True)
class CorpusInfo:
    """A summary of a corpus from its manifest alone; `fault` is the reason if the corpus cannot be used."""

    name: str
    path: Path
    kind: CorpusKind | None
    utterance_count: int
    short_count: int
    medium_count: int
    long_count: int
    speech_s: float
    speakers: tuple[str, ...]
    licenses: tuple[str, ...]
    edges: Edges | None = None
    fault: str | None = None


def data_home() -> Path:
    """Return the folder of data that outlives a run: `$VOICEPROBE_HOME`, or the user's data folder."""
    home = os.environ.get("VOICEPROBE_HOME")
    return Path(home).expanduser() if home else Path(platformdirs.user_data_dir("voiceprobe", False))


def installed_root() -> Path:
    """Return the folder of the installed corpora."""
    return data_home() / "corpora"


def available() -> list[CorpusInfo]:
    """Return the corpora that can be opened by name, bundled ones first; a broken one is listed with its fault."""
    return [_info(name, folder) for name, folder in _known().items()]


def open_corpus(where: str | Path | None = None, *, check_clips: bool = True) -> Corpus:
    """Open a corpus and check every clip against its manifest.

    `where` is a folder, or the name of a bundled or installed corpus; None opens recorded human speech if some is
    installed, otherwise the bundled corpus. Without `check_clips` a clip is checked when it is read. Raises
    ManifestError with every fault, and CorpusError for an unknown name.
    """
    folder = corpus_folder(where)
    manifest = read_manifest(folder)
    faults = _clip_faults(folder, manifest) if check_clips else []
    conversations: tuple[ScriptedConversation, ...] = ()
    try:
        conversations = read_conversations(folder, {utterance.id for utterance in manifest.utterances})
    except ManifestError as error:
        faults += error.faults
    if faults:
        raise ManifestError(folder / MANIFEST_NAME, faults)
    return Corpus(manifest.name, folder, manifest.kind, manifest.utterances, conversations, manifest.edges)


def _clip_faults(folder: Path, manifest: Manifest) -> list[str]:
    faults: list[str] = []
    for utterance, line in zip(manifest.utterances, manifest.lines, strict=True):
        try:
            read_clip(folder, utterance)
        except CorpusError as error:
            faults.append(f"{folder / MANIFEST_NAME}:{line}: {utterance.id}: {error}")
    return faults


def _known() -> dict[str, Path]:
    folders: dict[str, Path] = {}
    for root in (BUNDLED_ROOT, installed_root()):
        if root.is_dir():
            for folder in sorted(root.iterdir()):
                if (folder / MANIFEST_NAME).is_file() and not folder.name.startswith("."):
                    folders.setdefault(folder.name, folder)
    return folders


def corpus_folder(where: str | Path | None) -> Path:
    """Return the folder of a corpus as `open_corpus` finds it. Raises CorpusError for an unknown name."""
    known = _known()
    if where is None:
        return next((known[name] for name in _PREFERRED_RECORDED if name in known), BUNDLED_ROOT / BUNDLED)
    if isinstance(where, str) and where in known:
        return known[where]
    folder = Path(where).expanduser()
    if folder.is_dir():
        return folder
    raise CorpusError(
        f"The corpus {str(where)!r} is neither a folder nor one of {', '.join(known) or 'none installed'}."
    )


def _info(name: str, folder: Path) -> CorpusInfo:
    try:
        manifest = read_manifest(folder)
    except ManifestError as error:
        return CorpusInfo(name, folder, None, 0, 0, 0, 0, 0.0, (), (), fault=error.faults[0])
    lengths = [utterance.length for utterance in manifest.utterances]
    return CorpusInfo(
        name=name,
        path=folder,
        kind=manifest.kind,
        utterance_count=len(manifest.utterances),
        short_count=lengths.count("short"),
        medium_count=lengths.count("medium"),
        long_count=lengths.count("long"),
        speech_s=sum(utterance.speech_s for utterance in manifest.utterances),
        speakers=tuple(sorted({utterance.speaker for utterance in manifest.utterances})),
        licenses=tuple(sorted({utterance.license for utterance in manifest.utterances})),
        edges=manifest.edges,
    )

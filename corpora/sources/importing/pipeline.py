"""From a source to a corpus folder: find the items, make their clips, and let the whole appear in one step.

A new corpus is built beside its place and renamed into it, so a killed import leaves nothing that looks like one. An
import that appends adds to what is there from time to time, and knows what it has by each utterance's source: started
again, it goes on.
"""

import glob
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence, Set
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil

from corpora.manifest.conversations import (
    ConversationTurn,
    ScriptedConversation,
    find_conversation_faults,
    read_conversations,
    write_conversations,
)
from corpora.manifest.errors import CorpusError, SourceError
from corpora.manifest.locking import corpus_lock
from corpora.manifest.manifest import CorpusKind, Utterance, read_manifest, write_manifest
from corpora.sources.importing.clipping import ClipJob, make_clips, source_of
from corpora.sources.importing.items import Fault, Item, Layout, Settings
from corpora.sources.importing.tree import MAX_FILES, SourceTree, is_audio, open_tree, printable
from corpora.sources.importing.unpacking import is_archive, unpack

_CHECKPOINT = 64
_NOT_IN_ID = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_ID = 90
_TEXTS = frozenset((".txt", ".lab"))
_LISTS = frozenset((".csv", ".tsv", ".json", ".jsonl", ".gz"))

Progress = Callable[[int, int], None]  # how many are done, of how many


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an import has done."""

    folder: Path
    format: str
    imported: tuple[Utterance, ...]
    already: int
    faults: tuple[str, ...]
    conversations: int
    skipped: tuple[str, ...] = ()  # what is in the source and was not used, one sentence each


@contextmanager
def opened_source(source: Path, scratch_in: Path) -> Generator[SourceTree]:
    """The tree of a folder or file, or of an archive that is unpacked for the while. Raises CorpusError."""
    if not (source.is_file() and is_archive(source)):
        yield open_tree(source)
        return
    with _scratch(scratch_in, f".{source.name}.unpacked-") as scratch:
        unpack(source, scratch)
        yield open_tree(scratch)


def import_corpus(
    tree: SourceTree,
    layout: Layout,
    into: Path,
    settings: Settings,
    *,
    skip_bad: bool = False,
    append: bool = False,
    processes: int = 1,
    progress: Progress = lambda done, total: None,
    waiting: Callable[[], None] = lambda: None,
) -> Outcome:
    """Import what a source holds into the folder `into`. Where another import is adding to it, this one waits for that;
    `waiting` is then called once.

    Raises SourceError with every fault in it, unless bad items are to be skipped; CorpusError when nothing is left or
    the folder cannot be written.
    """
    settings = replace(settings, label=printable(settings.label))
    items, bad, skipped = _collect(tree, layout, settings, progress)
    try:
        with _appended(into, settings.kind, waiting) if append else _fresh(into, settings.kind) as corpus:
            work = _Work(corpus, settings, append, [fault.text for fault in bad])
            work.clips(items, processes, progress)
            work.dialogues(items, {fault.conversation for fault in bad})
            if append:
                corpus.write()
            if work.faults and not skip_bad:
                kept = "what is good was kept." if append else "nothing was written."
                raise SourceError(settings.label, work.faults, kept)
            if not corpus.utterances:
                raise CorpusError(_nothing(settings, layout, work.faults))
            corpus.write()
            return Outcome(
                folder=into,
                format=layout.name,
                imported=tuple(work.imported),
                already=work.already,
                faults=tuple(work.faults),
                conversations=len(corpus.conversations),
                skipped=tuple(skipped),
            )
    except OSError as error:
        reason = error.strerror or str(error)
        raise CorpusError(f"{into}: cannot be written ({reason}); check space and permissions.") from error


def _nothing(settings: Settings, layout: Layout, faults: Sequence[str]) -> str:
    why = f" The first fault: {faults[0]}" if faults else ""
    return f"{settings.label}: holds nothing that can be imported as {layout.name}.{why}"


def _collect(
    tree: SourceTree, layout: Layout, settings: Settings, progress: Progress
) -> tuple[list[Item], list[Fault], list[str]]:
    """What is to be imported, what cannot be, and what else there is."""
    items: list[Item] = []
    faults: list[Fault] = []
    skipped: list[str] = []
    for count, found in enumerate(layout.items(tree, settings), start=1):
        if count > MAX_FILES:
            raise CorpusError(f"{settings.label}: lists more than {MAX_FILES} utterances; import a part of it.")
        progress(0, count)
        if isinstance(found, Item):
            if wrong := _cannot_be_kept(found):
                conversation = None if found.place is None else found.place.conversation
                faults.append(Fault(printable(wrong), conversation))
            else:
                items.append(found)
        elif isinstance(found, Fault):
            faults.append(replace(found, text=printable(found.text)))
        else:
            skipped.append(printable(found.text))
    return items, faults, skipped + [printable(sentence) for sentence in _unused(tree)]


def _cannot_be_kept(item: Item) -> str | None:
    """Why an item cannot be written into a manifest, which is in UTF-8; None where it can."""
    if printable(item.shown) != item.shown:
        return f"{item.shown}: its name is not in UTF-8; rename it."
    for what in ("text", "name", "speaker", "language", "domain", "license", "consent"):
        value: str | None = getattr(item, what)
        if value is not None and not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
            return f"{item.shown}: its {what} holds half a character (a lone surrogate); correct it."
    return None


def _unused(tree: SourceTree) -> Iterator[str]:
    """The files of a folder that nothing has asked for, each with why."""
    if tree.file is not None:
        return
    for path in tree.walk():
        if path in tree.used:
            continue
        suffix = path.suffix.lower()
        if is_audio(path):
            why = "no line of a list names it"
        elif suffix in _TEXTS:
            why = "no recording of this name is beside it"
        elif suffix in _LISTS:
            why = "it was not taken for a list of recordings; if it is one, name it, or its format with --format"
        else:
            why = "its name is not that of a recording that can be read"
        yield f"{tree.shown(path)}: {why}."


@dataclass(slots=True)
class _Corpus:
    """The corpus in the making."""

    folder: Path
    name: str
    kind: CorpusKind
    utterances: list[Utterance] = field(default_factory=list[Utterance])
    conversations: list[ScriptedConversation] = field(default_factory=list[ScriptedConversation])

    def write(self) -> None:
        """Write down what there is; utterances before the conversations that speak of them."""
        if self.utterances:
            write_manifest(self.folder, self.name, self.kind, self.utterances)
            if self.conversations:
                write_conversations(self.folder, self.conversations)


@dataclass(slots=True)
class _Work:
    """An import under way."""

    corpus: _Corpus
    settings: Settings
    append: bool
    faults: list[str]
    imported: list[Utterance] = field(default_factory=list[Utterance])
    already: int = 0
    ids: list[str | None] = field(default_factory=list[str | None])  # of the items, in their order; None: not imported

    def clips(self, items: Sequence[Item], processes: int, progress: Progress) -> None:
        """Make the clips of the items that the corpus does not have yet."""
        known = {utterance.source: utterance.id for utterance in self.corpus.utterances}
        taken = {Path(utterance.path).stem.casefold() for utterance in self.corpus.utterances}
        taken |= {utterance.id.casefold() for utterance in self.corpus.utterances}
        self.ids = [known.get(source_of(item, self.settings)) for item in items]
        self.already = sum(name is not None for name in self.ids)
        missing = [place for place, name in enumerate(self.ids) if name is None]
        jobs = [ClipJob(_free_id(items[n].name, taken), items[n], self.corpus.folder, self.settings) for n in missing]
        progress(0, len(jobs))
        unsaved = 0
        # Closed at once when this ends early: whoever removes the folder must not race with those who write into it.
        with closing(make_clips(jobs, min(processes, len(jobs)))) as clips:
            for count, (place, (job, made)) in enumerate(zip(missing, clips, strict=True), start=1):
                progress(count, len(jobs))
                if isinstance(made, str):
                    self.faults.append(made)
                    continue
                self.ids[place] = job.id
                self.imported.append(made)
                self.corpus.utterances.append(made)
                unsaved += 1
                # A manifest is written whole; the larger it is, the more rarely.
                if self.append and unsaved >= max(_CHECKPOINT, len(self.corpus.utterances) // 10):
                    self.corpus.write()
                    unsaved = 0

    def dialogues(self, items: Sequence[Item], torn: Set[str | None]) -> None:
        """Put the utterances that have a place in a conversation into it; those that miss one are left out."""
        turns: dict[str, list[ConversationTurn | None]] = {}
        for item, name in zip(items, self.ids, strict=True):
            if (place := item.place) is not None:
                turn = ConversationTurn(name or "", place.think_s, place.intent, place.barge_in_after_s)
                turns.setdefault(place.conversation, []).append(turn if name else None)
        ids = {utterance.id for utterance in self.corpus.utterances}
        found = {conversation.id: conversation for conversation in self.corpus.conversations}
        taken = {name.casefold() for name in found}
        # A conversation that begins with the same utterance is the same one, imported again.
        begun = {conversation.turns[0].utterance: name for name, conversation in found.items()}
        for name, said in turns.items():
            whole = tuple(turn for turn in said if turn is not None)
            if len(whole) < len(said) or name in torn:
                self.faults.append(f"The conversation {name!r} is left out: not all of its utterances can be imported.")
                continue
            conversation = ScriptedConversation(begun.get(whole[0].utterance) or _free_id(name, taken), whole)
            wrong = find_conversation_faults(conversation, ids)
            self.faults += [f"The conversation {name!r}: {fault}" for fault in wrong]
            if not wrong:
                found[conversation.id] = conversation
        self.corpus.conversations = list(found.values())


def _free_id(name: str, taken: set[str]) -> str:
    """An id made of a name, unlike all that are taken; it is then taken itself."""
    plain = _NOT_IN_ID.sub("-", name).lstrip("-._")[-_LONGEST_ID:].lstrip("-._") or "clip"
    found, count = plain, 1
    while found.casefold() in taken:
        count += 1
        found = f"{plain}-{count}"
    taken.add(found.casefold())
    return found


@contextmanager
def _fresh(into: Path, kind: CorpusKind) -> Generator[_Corpus]:
    """A corpus beside its place, which takes the place when all went well."""
    if into.exists() and (not into.is_dir() or any(into.iterdir())):
        raise CorpusError(f"{into}: is there already; name another folder, or add to this corpus with --append.")
    into.parent.mkdir(parents=True, exist_ok=True)
    with _scratch(into.parent, f".{into.name}.importing-") as scratch:
        folder = scratch / "fresh"
        (folder / "clips").mkdir(parents=True)
        yield _Corpus(folder, _free_id(into.name, set()), kind)
        if into.exists():
            into.rmdir()
        folder.rename(into)


@contextmanager
def _appended(into: Path, kind: CorpusKind, waiting: Callable[[], None]) -> Generator[_Corpus]:
    """A corpus in its place, with what it has already; nobody else changes it meanwhile."""
    into.mkdir(parents=True, exist_ok=True)
    with corpus_lock(into, waiting):
        yield _begun(into, kind)


def _begun(into: Path, kind: CorpusKind) -> _Corpus:
    # Clips without a manifest are what an import leaves that was killed before it had written down any.
    if {entry.name for entry in into.iterdir()} <= {"clips"}:
        (into / "clips").mkdir(exist_ok=True)
        return _Corpus(into, _free_id(into.name, set()), kind)
    manifest = read_manifest(into)
    if manifest.kind != kind:
        raise CorpusError(f"{into}: is a corpus of {manifest.kind} speech; import this into one of its own.")
    conversations = read_conversations(into, {utterance.id for utterance in manifest.utterances})
    if (into / "clips").is_symlink():
        raise CorpusError(f"{into / 'clips'}: is a symbolic link; put the clips themselves into the corpus.")
    (into / "clips").mkdir(exist_ok=True)
    return _Corpus(into, manifest.name, manifest.kind, list(manifest.utterances), list(conversations))


@contextmanager
def _scratch(parent: Path, prefix: str) -> Generator[Path]:
    """A scratch folder beside a corpus; its name tells whose it is, so what a killed import left is removed later."""
    parent.mkdir(parents=True, exist_ok=True)
    for left in parent.glob(f"{glob.escape(prefix)}*"):
        owner = left.name.removeprefix(prefix).split("-", 1)[0]
        if owner.isdecimal() and not left.is_symlink() and not psutil.pid_exists(int(owner)):
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{prefix}{os.getpid()}-", dir=parent) as scratch:
        yield Path(scratch)

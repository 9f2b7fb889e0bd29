"""Import of a source into a corpus folder: find the items, make their clips, and write the corpus atomically.

A new corpus is built under a temporary name and then renamed, so a killed import leaves no incomplete corpus. An import
that appends saves its progress from time to time and recognizes imported utterances by their source, so it can be
resumed.
"""

import glob
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence, Set
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
from corpora.manifest.manifest import DEFAULT_EDGES, CorpusKind, Edges, Utterance, read_manifest, write_manifest
from corpora.sources.archives import MAX_FILES, SUFFIXES, unpack
from corpora.sources.importing.clip_processes import ClipJob, make_clips, source_of
from corpora.sources.importing.items import Fault, Item, Settings
from corpora.sources.importing.layouts import Layout
from corpora.sources.importing.tree import SourceTree, has_suffix, is_audio, open_tree, printable

_CHECKPOINT = 64
_NOT_IN_ID = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_ID = 90
_TEXTS = frozenset((".txt", ".lab"))
_LISTS = frozenset((".csv", ".tsv", ".json", ".jsonl", ".gz"))

Progress = Callable[[int, int], None]  # the number done, and the total


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an import."""

    folder: Path
    format: str
    imported: tuple[Utterance, ...]
    already: int
    faults: tuple[str, ...]
    conversations: int
    edges: Edges = DEFAULT_EDGES
    skipped: tuple[str, ...] = ()  # parts of the source that were not used, one sentence each


@contextmanager
def opened_source(source: Path, scratch_in: Path) -> Generator[SourceTree]:
    """Open a folder or file, or an archive, which is unpacked temporarily. Raises CorpusError."""
    if not (source.is_file() and has_suffix(source, *SUFFIXES)):
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
    """Import a source into the folder `into`.

    If another import is appending to the folder, `waiting` is called once and this import waits. Raises SourceError
    with every fault of the source, unless `skip_bad` is set; CorpusError if there is nothing to import or the folder
    cannot be written.
    """
    settings = replace(settings, label=printable(settings.label))
    items, bad, skipped = _collect(tree, layout, settings, progress)
    faults = [fault.text for fault in bad]
    try:
        with _existing_corpus(into, settings, waiting) if append else _new_corpus(into, settings) as corpus:
            before = len(corpus.utterances)
            ids = _add_clips(corpus, items, settings, faults, processes=processes, append=append, progress=progress)
            _add_conversations(corpus, zip(items, ids, strict=True), {fault.conversation for fault in bad}, faults)
            if append:
                corpus.write()
            if faults and not skip_bad:
                kept = "the valid recordings were kept." if append else "nothing was written."
                raise SourceError(settings.label, faults, kept)
            if not corpus.utterances:
                reason = f" The first fault: {faults[0]}" if faults else ""
                raise CorpusError(f"{settings.label}: contains nothing that can be imported as {layout.name}.{reason}")
            corpus.write()
            imported = tuple(corpus.utterances[before:])
            return Outcome(
                folder=into,
                format=layout.name,
                imported=imported,
                already=sum(name is not None for name in ids) - len(imported),
                faults=tuple(faults),
                conversations=len(corpus.conversations),
                edges=corpus.edges,
                skipped=tuple(skipped),
            )
    except OSError as error:
        reason = error.strerror or str(error)
        raise CorpusError(f"{into}: cannot be written ({reason}); check space and permissions.") from error


def _collect(
    tree: SourceTree, layout: Layout, settings: Settings, progress: Progress
) -> tuple[list[Item], list[Fault], list[str]]:
    """Find the items to import, the faults, and sentences about everything else in the source."""
    items: list[Item] = []
    faults: list[Fault] = []
    skipped: list[str] = []
    for count, entry in enumerate(layout.items(tree, settings), start=1):
        if count > MAX_FILES:
            raise CorpusError(f"{settings.label}: lists more than {MAX_FILES} utterances; import a part of it.")
        progress(0, count)
        if isinstance(entry, Item):
            if fault := _cannot_be_kept(entry):
                conversation = None if entry.place is None else entry.place.conversation
                faults.append(Fault(printable(fault), conversation))
            else:
                items.append(entry)
        elif isinstance(entry, Fault):
            faults.append(replace(entry, text=printable(entry.text)))
        else:
            skipped.append(printable(entry.text))
    return items, faults, skipped + [printable(sentence) for sentence in _unused(tree)]


def _cannot_be_kept(item: Item) -> str | None:
    """Return a sentence if an item cannot be written to a manifest, which is UTF-8, or None."""
    if printable(item.shown) != item.shown:
        return f"{item.shown}: its name is not in UTF-8; rename it."
    for what in ("text", "name", "speaker", "language", "domain", "license", "consent"):
        value: str | None = getattr(item, what)
        if value is not None and not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
            return f"{item.shown}: its {what} contains half a character (a lone surrogate); correct it."
    return None


def _unused(tree: SourceTree) -> Iterator[str]:
    """Yield a sentence for each unused file of a folder, with the reason."""
    if tree.file is not None:
        return
    for path in tree.walk():
        if path in tree.used:
            continue
        suffix = path.suffix.lower()
        if is_audio(path):
            reason = "no list names it"
        elif suffix in _TEXTS:
            reason = "there is no recording with this name next to it"
        elif suffix in _LISTS:
            reason = "it was not recognized as a list of recordings; if it is one, give its path or use --format"
        else:
            reason = "it does not have the suffix of a supported recording"
        yield f"{tree.shown(path)}: {reason}."


@dataclass(slots=True)
class _Corpus:
    """The corpus that an import is building."""

    folder: Path
    name: str
    kind: CorpusKind
    edges: Edges
    utterances: list[Utterance] = field(default_factory=list[Utterance])
    conversations: list[ScriptedConversation] = field(default_factory=list[ScriptedConversation])

    def write(self) -> None:
        """Write the manifest, and then the conversations that refer to it."""
        if self.utterances:
            write_manifest(self.folder, self.name, self.kind, self.utterances, edges=self.edges)
            if self.conversations:
                write_conversations(self.folder, self.conversations)


def _add_clips(
    corpus: _Corpus,
    items: Sequence[Item],
    settings: Settings,
    faults: list[str],
    *,
    processes: int,
    append: bool,
    progress: Progress,
) -> list[str | None]:
    """Make the clips of the items that are not in the corpus yet; returns the ids of all items, None without a clip."""
    known = {utterance.source: utterance.id for utterance in corpus.utterances}
    taken = {Path(utterance.path).stem.casefold() for utterance in corpus.utterances}
    taken |= {utterance.id.casefold() for utterance in corpus.utterances}
    ids = [known.get(source_of(item, settings)) for item in items]
    missing = [place for place, name in enumerate(ids) if name is None]
    jobs = [ClipJob(_free_id(items[n].name, taken), items[n], corpus.folder, settings) for n in missing]
    progress(0, len(jobs))
    unsaved = 0
    # Close the generator immediately on errors, so that no process writes to the folder while it is removed.
    with closing(make_clips(jobs, min(processes, len(jobs)))) as clips:
        for count, (place, (job, result)) in enumerate(zip(missing, clips, strict=True), start=1):
            progress(count, len(jobs))
            if isinstance(result, str):
                faults.append(result)
                continue
            ids[place] = job.id
            corpus.utterances.append(result)
            unsaved += 1
            # The whole manifest is rewritten each time, so a larger one is written less often.
            if append and unsaved >= max(_CHECKPOINT, len(corpus.utterances) // 10):
                corpus.write()
                unsaved = 0
    return ids


def _add_conversations(
    corpus: _Corpus, named: Iterable[tuple[Item, str | None]], incomplete: Set[str | None], faults: list[str]
) -> None:
    """Add the conversations of items with their ids; those with missing utterances are left out."""
    turns: dict[str, list[ConversationTurn | None]] = {}
    for item, name in named:
        if (place := item.place) is not None:
            turn = ConversationTurn(name or "", place.think_s, place.intent, place.barge_in_after_s)
            turns.setdefault(place.conversation, []).append(turn if name else None)
    ids = {utterance.id for utterance in corpus.utterances}
    by_id = {conversation.id: conversation for conversation in corpus.conversations}
    taken = {name.casefold() for name in by_id}
    # A conversation that begins with the same utterance as an existing one is that one, imported again.
    existing = {conversation.turns[0].utterance: name for name, conversation in by_id.items()}
    for name, found_turns in turns.items():
        whole = tuple(turn for turn in found_turns if turn is not None)
        if len(whole) < len(found_turns) or name in incomplete:
            faults.append(
                f"The conversation {name!r} is left out because some of its utterances cannot be imported; "
                "correct them."
            )
            continue
        conversation = ScriptedConversation(existing.get(whole[0].utterance) or _free_id(name, taken), whole)
        conversation_faults = find_conversation_faults(conversation, ids)
        faults += [f"The conversation {name!r}: {fault}" for fault in conversation_faults]
        if not conversation_faults:
            by_id[conversation.id] = conversation
    corpus.conversations = list(by_id.values())


def _free_id(name: str, taken: set[str]) -> str:
    """Derive an id from a name that differs from all in `taken`, and add it to them."""
    plain = _NOT_IN_ID.sub("-", name).lstrip("-._")[-_LONGEST_ID:].lstrip("-._") or "clip"
    candidate, count = plain, 1
    while candidate.casefold() in taken:
        count += 1
        candidate = f"{plain}-{count}"
    taken.add(candidate.casefold())
    return candidate


@contextmanager
def _new_corpus(into: Path, settings: Settings) -> Generator[_Corpus]:
    """A new corpus in a temporary folder that is renamed to `into` if the import succeeds."""
    if into.exists() and (not into.is_dir() or any(into.iterdir())):
        raise CorpusError(f"{into}: already exists; choose another folder, or add to this corpus with --append.")
    into.parent.mkdir(parents=True, exist_ok=True)
    with _scratch(into.parent, f".{into.name}.importing-") as scratch:
        folder = scratch / "fresh"
        (folder / "clips").mkdir(parents=True)
        yield _Corpus(folder, _free_id(into.name, set()), settings.kind, settings.edges or DEFAULT_EDGES)
        if into.exists():
            into.rmdir()
        folder.rename(into)


@contextmanager
def _existing_corpus(into: Path, settings: Settings, waiting: Callable[[], None]) -> Generator[_Corpus]:
    """An existing corpus, locked against changes by other processes."""
    into.mkdir(parents=True, exist_ok=True)
    with corpus_lock(into, waiting):
        if (into / "clips").is_symlink():
            raise CorpusError(f"{into / 'clips'}: is a symbolic link; replace it with the folder of clips.")
        # Clips without a manifest remain of an import that was killed before it wrote the manifest.
        is_new = {entry.name for entry in into.iterdir()} <= {"clips"}
        corpus = _Corpus(into, _free_id(into.name, set()), settings.kind, settings.edges or DEFAULT_EDGES)
        if not is_new:
            manifest = read_manifest(into)
            corpus = _Corpus(into, manifest.name, manifest.kind, manifest.edges, list(manifest.utterances))
            corpus.conversations += read_conversations(into, {utterance.id for utterance in manifest.utterances})
        if corpus.kind != settings.kind:
            raise CorpusError(f"{into}: is a corpus of {corpus.kind} speech; import this into another corpus.")
        if settings.edges not in (None, corpus.edges):
            raise CorpusError(
                f"{into}: is a corpus with {corpus.edges} edges; omit --edges to keep them, or change those of the "
                f"whole corpus first: voiceprobe corpus edges {into} {settings.edges}"
            )
        (into / "clips").mkdir(exist_ok=True)
        yield corpus


@contextmanager
def _scratch(parent: Path, prefix: str) -> Generator[Path]:
    """A temporary folder next to a corpus, with the process id in its name; those of killed imports are removed."""
    parent.mkdir(parents=True, exist_ok=True)
    for left in parent.glob(f"{glob.escape(prefix)}*"):
        owner = left.name.removeprefix(prefix).split("-", 1)[0]
        if owner.isdecimal() and not left.is_symlink() and not psutil.pid_exists(int(owner)):
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{prefix}{os.getpid()}-", dir=parent) as scratch:
        yield Path(scratch)

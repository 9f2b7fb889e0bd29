"""Filling the cache with what a swarm is going to say: in this process, or in several beside it when it is much.

The processes are started anew rather than forked: a worker is patched by Locust, and numbers are best crunched
elsewhere. Each takes every n-th utterance and publishes packs of its own; a lock sees to it that of several workers
that need the same one makes it and the others find it.
"""

import contextlib
import ctypes
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

import loadtest
from corpora.cache import cache_root, limit_bytes, trim
from corpora.errors import CorpusError
from corpora.library import open_corpus
from corpora.manifest import Utterance
from corpora.profiles.words import profile_from_text, text_of
from corpora.render import forget
from loadtest.protocols import registry
from loadtest.protocols.base import CallerOptions
from loadtest.swarm.frames import FrameShelf, Wire

ALONE_BELOW_S: Final = 120.0  # speech; below, starting processes takes longer than rendering
_LOOK_EVERY_S: Final = 0.05
_ROOT: Final = Path(loadtest.__file__).resolve().parents[1]
# A process has one core; a library that starts threads for each would only stand in its own way.
_ONE_THREAD: Final = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

Progress = Callable[[int, int], None]


class Job(msgspec.Struct, frozen=True):
    """What one of several processes has to render."""

    corpus: str
    profile: str
    seed: int
    protocol: str
    mask: str
    cache: str
    ids: list[str]
    progress: str  # a file that grows by an octet with each utterance


def fill(shelf: FrameShelf, utterances: Sequence[Utterance], protocol: str, progress: Progress | None = None) -> None:
    """Make everything that is not on disk. Raises CorpusError with a line for each utterance that cannot be had."""
    utterances = list(dict.fromkeys(utterances))  # a mix may hold one several times
    with shelf.shelf.locked(lambda: _told(progress, 0, len(utterances))):
        shelf.look()
        missing = shelf.missing(utterances)
        if missing or shelf.background() is None:
            done = len(utterances) - len(missing)

            def tell(count: int) -> None:
                _told(progress, done + count, len(utterances))

            workers = _processes(missing)
            if workers == 1:
                render_here(shelf, missing, tell, with_background=True)
            else:
                render_here(shelf, [], tell, with_background=True)
                _render_beside(shelf, missing, protocol, workers, tell)
            shelf.look()
            _keep_within_limit(shelf)
            forget()
            _give_memory_back()


def render_here(
    shelf: FrameShelf, utterances: Sequence[Utterance], tell: Callable[[int], None], *, with_background: bool
) -> None:
    """Render and encode in this process. Raises CorpusError with a line for each utterance that cannot be had."""
    noise = shelf.background_pcm()
    faults: list[str] = []
    with shelf.renderings.shelf.writer() as samples, shelf.shelf.writer() as frames:
        if with_background and shelf.background() is None:
            shelf.put_background(noise, frames)
        for count, utterance in enumerate(utterances, 1):
            try:
                shelf.put(shelf.renderings.make(utterance, samples), noise, frames)
            except CorpusError as error:
                faults += str(error).splitlines()
            tell(count)
        if faults:
            raise CorpusError("\n".join(dict.fromkeys(faults)))


def _processes(missing: Sequence[Utterance]) -> int:
    seconds = sum(utterance.samples / utterance.sample_rate_hz for utterance in missing)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, round(seconds / ALONE_BELOW_S)))


def _render_beside(
    shelf: FrameShelf, missing: Sequence[Utterance], protocol: str, workers: int, tell: Callable[[int], None]
) -> None:
    made = shelf.renderings
    path = os.environ.get("PYTHONPATH")
    environment = {**os.environ, **_ONE_THREAD}
    environment["PYTHONPATH"] = f"{_ROOT}{os.pathsep}{path}" if path else str(_ROOT)
    with tempfile.TemporaryDirectory(prefix="voiceprobe-") as scratch, contextlib.ExitStack() as stack:
        children: list[tuple[subprocess.Popen[bytes], Path, Path]] = []
        for number in range(workers):
            progress, job, words = (Path(scratch) / f"{name}-{number}" for name in ("progress", "job", "words"))
            ids = [utterance.id for utterance in missing[number::workers]]
            root = str(shelf.shelf.folder.parents[1])
            content = Job(
                str(made.corpus.path),
                text_of(made.profile),
                made.seed,
                protocol,
                shelf.wire.mask,
                root,
                ids,
                str(progress),
            )
            job.write_bytes(msgspec.json.encode(content))
            child = subprocess.Popen(
                [sys.executable, "-m", "loadtest.swarm.rendering", str(job)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stack.enter_context(words.open("wb")),
                env=environment,
            )
            children.append((child, progress, words))
        try:
            while any(child.poll() is None for child, _, _ in children):
                tell(sum(progress.stat().st_size for _, progress, _ in children if progress.exists()))
                time.sleep(_LOOK_EVERY_S)
        finally:
            for child, _, _ in children:
                child.kill()
                child.wait()
        said = [words.read_text(errors="replace").strip() for child, _, words in children if child.returncode]
        if said:
            raise CorpusError("\n".join(dict.fromkeys(line for words in said for line in words.splitlines())))


def _keep_within_limit(shelf: FrameShelf) -> None:
    keep = (shelf.shelf.folder, shelf.renderings.shelf.folder)
    if shelf.shelf.folder.is_relative_to(cache_root()):
        trim(limit_bytes(), keep=keep)


def _give_memory_back() -> None:
    """Return to the system what rendering has used: a C library keeps it otherwise, between what is still in use."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        if hasattr(libc, "malloc_trim"):  # glibc; other libraries do it by themselves
            libc.malloc_trim(0)


def _told(progress: Progress | None, done: int, total: int) -> None:
    if progress is not None:
        progress(done, total)


def main(arguments: Sequence[str]) -> int:
    """Do a job that is described in a file; what went wrong goes to standard error, a line a fault."""
    job = msgspec.json.decode(Path(arguments[0]).read_bytes(), type=Job)
    try:
        corpus = open_corpus(Path(job.corpus), check_clips=False)
        wire = Wire.of(registry.make_caller(job.protocol, CallerOptions()), job.mask)
        shelf = FrameShelf.open(corpus, profile_from_text(job.profile), job.seed, wire, Path(job.cache))
        wanted = set(job.ids)
        mine = [utterance for utterance in corpus.utterances if utterance.id in wanted]
        with Path(job.progress).open("ab", buffering=0) as grows:

            def tell(count: int) -> None:
                del count
                grows.write(b".")

            render_here(shelf, mine, tell, with_background=False)
    except (CorpusError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

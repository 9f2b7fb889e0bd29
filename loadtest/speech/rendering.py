"""Fills the cache with a swarm's utterances: in this process, or in several processes if there are many.

The processes are spawned rather than forked, because Locust patches its workers with gevent. Each renders its share of
what is missing and publishes its own archives; a lock ensures that only one of several workers that need the same
utterances renders them.
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
from typing import Any, Final

import msgspec

import loadtest
from corpora.manifest.errors import CorpusError
from corpora.manifest.library import open_corpus
from corpora.manifest.manifest import Utterance
from corpora.rendering.cache import cache_root, limit_bytes, trim
from corpora.rendering.profiles.parsing import profile_from_text, text_of
from corpora.rendering.render import clear_memory_cache
from loadtest.errors import UsageError
from loadtest.protocols import registry
from loadtest.protocols.base import CallerOptions
from loadtest.speech.frames import FrameCache, Take, Wire

ALONE_BELOW_S: Final = 120.0  # of speech; below this, starting processes takes longer than rendering
_POLL_S: Final = 0.05
_ROOT: Final = Path(loadtest.__file__).resolve().parents[1]
# Each process uses one core; libraries that start a thread per core would only slow each other down.
_ONE_THREAD: Final = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

Progress = Callable[[int, int], None]


class ProtocolChoice(msgspec.Struct, frozen=True):
    """The protocol whose frames are rendered. Its settings may change them, even their rate."""

    name: str
    settings: dict[str, Any]


class RenderJob(msgspec.Struct, frozen=True):
    """The share of one of several rendering processes."""

    corpus: str
    profile: str
    seed: int
    protocol: ProtocolChoice
    mask: str
    cache: str
    takes: list[tuple[str, int]]  # an utterance's id and the index of a variant
    progress: str  # a file that grows by one byte per utterance


def fill(
    frame_cache: FrameCache,
    utterances: Sequence[Utterance],
    protocol: ProtocolChoice,
    progress: Progress | None = None,
    variants: int = 1,
) -> None:
    """Render everything that is not on disk, in `variants` variants.

    Raises CorpusError with a line for each utterance that cannot be rendered.
    """
    utterances = list(dict.fromkeys(utterances))  # a mix may contain one several times
    total = len(utterances) * variants
    with frame_cache.cache_entry.locked(lambda: _report(progress, 0, total)):
        frame_cache.refresh()
        missing = frame_cache.missing(utterances, variants)
        if missing or frame_cache.background() is None:
            done = total - len(missing)

            def report(count: int) -> None:
                _report(progress, done + count, total)

            workers = _processes(missing)
            if workers == 1:
                render_here(frame_cache, missing, report, with_background=True)
            else:
                render_here(frame_cache, [], report, with_background=True)
                _render_in_processes(frame_cache, missing, protocol, workers, report)
            frame_cache.refresh()
            _keep_within_limit(frame_cache)
            clear_memory_cache()
            _release_memory()


def render_here(
    frame_cache: FrameCache, takes: Sequence[Take], report: Callable[[int], None], *, with_background: bool
) -> None:
    """Render and encode in this process.

    Raises CorpusError with a line for each utterance that cannot be rendered.
    """
    noise = frame_cache.background_pcm()
    faults: list[str] = []
    with frame_cache.renderings.cache_entry.writer() as samples, frame_cache.cache_entry.writer() as frames:
        if with_background and frame_cache.background() is None:
            frame_cache.put_background(noise, frames)
        for count, (utterance, variant) in enumerate(takes, 1):
            try:
                frame_cache.put(frame_cache.renderings.make(utterance, samples, variant), noise, frames)
            except CorpusError as error:
                faults += str(error).splitlines()
            report(count)
        if faults:
            raise CorpusError("\n".join(dict.fromkeys(faults)))


def _processes(missing: Sequence[Take]) -> int:
    seconds = sum(utterance.samples / utterance.sample_rate_hz for utterance, _ in missing)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, round(seconds / ALONE_BELOW_S)))


def _render_in_processes(
    frame_cache: FrameCache,
    missing: Sequence[Take],
    protocol: ProtocolChoice,
    workers: int,
    report: Callable[[int], None],
) -> None:
    made = frame_cache.renderings
    path = os.environ.get("PYTHONPATH")
    environment = {**os.environ, **_ONE_THREAD}
    environment["PYTHONPATH"] = f"{_ROOT}{os.pathsep}{path}" if path else str(_ROOT)
    with tempfile.TemporaryDirectory(prefix="voiceprobe-") as scratch, contextlib.ExitStack() as stack:
        children: list[tuple[subprocess.Popen[bytes], Path, Path]] = []
        # In contiguous blocks: variants of an utterance share work, so one process renders them in a row.
        bounds = [round(number * len(missing) / workers) for number in range(workers + 1)]
        for number in range(workers):
            progress, job, errors = (Path(scratch) / f"{name}-{number}" for name in ("progress", "job", "errors"))
            mine = missing[bounds[number] : bounds[number + 1]]
            takes = [(utterance.id, variant) for utterance, variant in mine]
            root = str(frame_cache.cache_entry.folder.parents[1])
            content = RenderJob(
                str(made.corpus.path),
                text_of(made.profile),
                made.seed,
                protocol,
                frame_cache.wire.mask,
                root,
                takes,
                str(progress),
            )
            job.write_bytes(msgspec.json.encode(content))
            child = subprocess.Popen(
                [sys.executable, "-m", "loadtest.speech.rendering", str(job)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stack.enter_context(errors.open("wb")),
                env=environment,
            )
            children.append((child, progress, errors))
        try:
            while any(child.poll() is None for child, _, _ in children):
                report(sum(progress.stat().st_size for _, progress, _ in children if progress.exists()))
                time.sleep(_POLL_S)
        finally:
            for child, _, _ in children:
                child.kill()
                child.wait()
        failed = [errors.read_text(errors="replace").strip() for child, _, errors in children if child.returncode]
        if failed:
            raise CorpusError("\n".join(dict.fromkeys(line for text in failed for line in text.splitlines())))


def _keep_within_limit(frame_cache: FrameCache) -> None:
    keep = (frame_cache.cache_entry.folder, frame_cache.renderings.cache_entry.folder)
    if frame_cache.cache_entry.folder.is_relative_to(cache_root()):
        trim(limit_bytes(), keep=keep)


def _release_memory() -> None:
    """Return the memory that rendering used to the system; otherwise the C library keeps it."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        if hasattr(libc, "malloc_trim"):  # glibc; other libraries do this automatically
            libc.malloc_trim(0)


def _report(progress: Progress | None, done: int, total: int) -> None:
    if progress is not None:
        progress(done, total)


def main(arguments: Sequence[str]) -> int:
    """Run the job described in a file; errors go to standard error, one per line."""
    job = msgspec.json.decode(Path(arguments[0]).read_bytes(), type=RenderJob)
    try:
        corpus = open_corpus(Path(job.corpus), check_clips=False)
        options = CallerOptions(settings=job.protocol.settings)
        wire = Wire.of(registry.make_caller(job.protocol.name, options), job.mask)
        frame_cache = FrameCache.open(corpus, profile_from_text(job.profile), job.seed, wire, Path(job.cache))
        by_id = {utterance.id: utterance for utterance in corpus.utterances}
        mine = [(by_id[name], variant) for name, variant in job.takes]
        with Path(job.progress).open("ab", buffering=0) as progress:

            def report(count: int) -> None:
                del count
                progress.write(b".")

            render_here(frame_cache, mine, report, with_background=False)
    except (CorpusError, UsageError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Making the clips of many items at once, in processes of their own, a bounded number under way at a time.

A decoder that dies of a hostile file takes its process along, not the import: the file gets its sentence, the rest
goes on.
"""

import multiprocessing
import re
import threading
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path

import numpy as np

from corpora.manifest.errors import CorpusError
from corpora.manifest.manifest import Utterance
from corpora.sources.authoring import Draft, write_clip
from corpora.sources.importing.conditioning import recorded
from corpora.sources.importing.items import Item, Settings

_UNDER_WAY_PER_PROCESS = 3
_LONGEST_TEXT = 10_000
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")


@dataclass(frozen=True, slots=True)
class ClipJob:
    """An item with the id and the place its clip gets."""

    id: str
    item: Item
    folder: Path
    settings: Settings


Made = Utterance | str  # or the sentence that says why not


def source_of(item: Item, settings: Settings) -> str:
    """Where an utterance came from, in words that are the same each time; an import that goes on knows it by them."""
    stretch = "" if item.end_s is None and not item.start_s else f", from {item.start_s:.3f} s"
    stretch += "" if item.end_s is None else f" to {item.end_s:.3f} s"
    channel = "" if item.channel is None else f", channel {item.channel}"
    done = "".join(f", {transform.label}" for transform in item.transforms)
    return one_line(f"{settings.label}: {item.shown}{stretch}{channel}{done}")


def one_line(text: str) -> str:
    """A text without line breaks and control characters."""
    return " ".join(_CONTROL.sub(" ", text).split())


def make_clip(job: ClipJob) -> Made:
    """Write an item's clip; returns its annotation, or the sentence that says why there is none."""
    item, settings = job.item, job.settings
    text = one_line(item.text or "")
    if len(text) > _LONGEST_TEXT:
        return f"{item.shown}: its text has {len(text)} characters, more than {_LONGEST_TEXT}; correct it."
    try:
        samples, rate_hz, done = recorded(item, settings)
        draft = Draft(
            id=job.id,
            text=text or None,
            speaker=one_line(item.speaker or settings.speaker),
            language=one_line(item.language or settings.language),
            domain=one_line(item.domain or settings.domain),
            license=one_line(item.license or settings.license),
            source=source_of(item, settings),
            pcm=np.clip(np.rint(samples * 32_768.0), -32_768, 32_767).astype(np.int16),
            rate_hz=rate_hz,
            consent=one_line(item.consent or settings.consent) or None,
            processing="; ".join(done) or None,
        )
        return write_clip(job.folder, draft)
    except CorpusError as error:
        message = str(error).removeprefix(f"{job.id}: ")
        return message if message.startswith(item.shown) else f"{item.shown}: {message}"
    except MemoryError:
        return f"{item.shown}: needs more memory than there is; cut it into utterances."


def make_clips(jobs: Iterable[ClipJob], processes: int) -> Generator[tuple[ClipJob, Made]]:
    """Make the clips of all jobs, yielded in their order; with one process or none, in this one."""
    if processes <= 1:
        yield from ((job, make_clip(job)) for job in jobs)
        return
    waiting = iter(jobs)
    while True:
        under_way: deque[tuple[ClipJob, Future[Made]]] = deque()
        with _pool(processes) as pool:
            try:
                yield from _through(pool, waiting, under_way, processes * _UNDER_WAY_PER_PROCESS)
            except BrokenProcessPool:
                pool.shutdown()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        if not under_way:
            return
        # One of those under way did it.
        yield from _one_by_one([job for job, _ in under_way])


def _through(
    pool: ProcessPoolExecutor, waiting: Iterator[ClipJob], under_way: deque[tuple[ClipJob, Future[Made]]], most: int
) -> Iterator[tuple[ClipJob, Made]]:
    for job in waiting:
        # It is noted before it is handed over, so that a pool that refuses it does not lose it.
        under_way.append((job, Future()))
        under_way[-1] = (job, pool.submit(make_clip, job))
        if len(under_way) >= most:
            yield _first(under_way)
    while under_way:
        yield _first(under_way)


def _first(under_way: deque[tuple[ClipJob, Future[Made]]]) -> tuple[ClipJob, Made]:
    job, future = under_way[0]
    made = future.result()
    under_way.popleft()
    return job, made


def _one_by_one(jobs: Iterable[ClipJob]) -> Iterator[tuple[ClipJob, Made]]:
    """Make clips one after the other; the one under way when the process breaks is the one that broke it."""
    pool: ProcessPoolExecutor | None = None
    for job in jobs:
        pool = pool or _pool(1)
        try:
            yield job, pool.submit(make_clip, job).result()
        except BrokenProcessPool:
            pool.shutdown()
            pool = None
            yield (
                job,
                f"{job.item.shown}: its decoder ended abnormally, it is damaged or made to do so; convert it anew.",
            )
    if pool is not None:
        pool.shutdown()


def _pool(processes: int) -> ProcessPoolExecutor:
    # Forked from a process that has imported what is needed and does nothing else: quick, and with nothing inherited.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return ProcessPoolExecutor(processes, context, initializer=_follow_parent)


def _follow_parent() -> None:
    """End with the process that started this one, even when it was killed: its queues never tell."""
    import os
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its pool itself
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def follow() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()

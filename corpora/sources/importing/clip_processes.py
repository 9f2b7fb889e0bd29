"""Creation of clips in child processes, with a limited number of pending items.

If a malformed file crashes a decoder, only its process ends: the file is reported as a fault, and the import continues.
"""

import multiprocessing
import os
import re
import signal
import threading
from collections.abc import Generator, Iterable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import wait
from pathlib import Path

import numpy as np

from corpora.manifest.errors import CorpusError
from corpora.manifest.manifest import Utterance
from corpora.sources.authoring import Draft, write_clip
from corpora.sources.importing.conditioning import read_recording
from corpora.sources.importing.items import Item, Settings

_BATCH_PER_PROCESS = 16
_LONGEST_TEXT = 10_000
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")


@dataclass(frozen=True, slots=True)
class ClipJob:
    """An item with the id and the folder of its clip."""

    id: str
    item: Item
    folder: Path
    settings: Settings


ClipResult = Utterance | str  # or the sentence of a fault


def source_of(item: Item, settings: Settings) -> str:
    """Describe where an utterance came from; a resumed import recognizes it by this text."""
    stretch = "" if item.end_s is None and not item.start_s else f", from {item.start_s:.3f} s"
    stretch += "" if item.end_s is None else f" to {item.end_s:.3f} s"
    channel = "" if item.channel is None else f", channel {item.channel}"
    steps = "".join(f", {transform.label}" for transform in item.transforms)
    return one_line(f"{settings.label}: {item.shown}{stretch}{channel}{steps}")


def one_line(text: str) -> str:
    """Replace line breaks, control characters and repeated spaces in a text by single spaces."""
    return " ".join(_CONTROL.sub(" ", text).split())


def make_clip(job: ClipJob) -> ClipResult:
    """Write an item's clip; returns its annotation, or the sentence of a fault."""
    item, settings = job.item, job.settings
    text = one_line(item.text or "")
    if len(text) > _LONGEST_TEXT:
        return f"{item.shown}: its text has {len(text)} characters, more than {_LONGEST_TEXT}; shorten it."
    try:
        samples, rate_hz, steps = read_recording(item, settings)
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
            processing="; ".join(steps) or None,
        )
        return write_clip(job.folder, draft)
    except CorpusError as error:
        message = str(error).removeprefix(f"{job.id}: ")
        return message if message.startswith(item.shown) else f"{item.shown}: {message}"
    except MemoryError:
        return f"{item.shown}: requires more memory than is available; cut it into utterances."


def make_clips(jobs: Iterable[ClipJob], processes: int) -> Generator[tuple[ClipJob, ClipResult]]:
    """Make the clips of all jobs and yield them in order; with `processes` up to 1, in this process."""
    if processes <= 1:
        yield from ((job, make_clip(job)) for job in jobs)
        return
    remaining, pool = iter(jobs), _pool(processes)
    try:
        while batch := list(islice(remaining, processes * _BATCH_PER_PROCESS)):
            made = 0
            try:
                for job, result in zip(batch, pool.map(make_clip, batch), strict=True):
                    made += 1
                    yield job, result
            except BrokenProcessPool:
                pool.shutdown()
                pool = _pool(processes)
                yield from ((job, _make_clip_alone(job)) for job in batch[made:])
    finally:
        pool.shutdown(cancel_futures=True)


def _make_clip_alone(job: ClipJob) -> ClipResult:
    """Make a clip in a process of its own, so that it is known whether the job breaks its process."""
    with _pool(1) as pool:
        try:
            return pool.submit(make_clip, job).result()
        except BrokenProcessPool:
            return f"{job.item.shown}: its decoder crashed, so the file is damaged or malicious; convert it again."


def _pool(processes: int) -> ProcessPoolExecutor:
    # Forking from a server process with the required imports is fast and inherits no other state.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return ProcessPoolExecutor(processes, context, initializer=_exit_with_parent)


def _exit_with_parent() -> None:
    """End this process when its parent ends, even if the parent is killed, which its queues do not report."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its pool itself
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def wait_for_parent() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=wait_for_parent, daemon=True).start()

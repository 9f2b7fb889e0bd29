"""Recordings of calls with the caller on one channel, cut at the caller's pauses and kept in order as a conversation.

The think time before an utterance is measured from the end of the other side's preceding speech. An utterance that
starts while the other side is speaking is an interruption, timed from the start of that speech. The texts come from a
transcript next to the recording (same name, .json, .tsv or .csv, with start and end in seconds, text and optionally
channel).
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from corpora.manifest.conversations import MAX_PAUSE_S
from corpora.manifest.errors import CorpusError
from corpora.sources.importing.decoding import open_stream
from corpora.sources.importing.items import Fault, Item, Place, Settings
from corpora.sources.importing.tables import number, read_objects, read_table, string
from corpora.sources.importing.tree import SourceTree, file_with_suffix, has_suffix, is_audio

STEP_S = 0.010

_SILENCE_DB = -75.0  # anything quieter is silence, whatever the noise floor of the line
_OVER_FLOOR_DB = 9.0
_UNDER_LOUD_DB = 32.0
_SHORTEST_RUN_STEPS = 4
_CROSSTALK_DB = 15.0

Levels = NDArray[np.float32]
Runs = list[tuple[int, int]]


def step_levels_db(blocks: Iterable[NDArray[np.float32]], rate_hz: int) -> Levels:
    """The level of every 10 ms of each channel in dBov, shape (steps, channels), from blocks of (frames, channels)."""
    step = round(rate_hz * STEP_S)
    rows: list[Levels] = []
    leftover: NDArray[np.float32] | None = None
    for block in blocks:
        available = block if leftover is None else np.concatenate((leftover, block))
        steps = len(available) // step
        leftover = available[steps * step :].copy()
        if steps:
            parts = available[: steps * step].reshape(steps, step, available.shape[1])
            # The variance excludes a DC offset, which is not speech.
            power = np.var(parts, axis=1, dtype=np.float64)
            rows.append((10.0 * np.log10(np.maximum(power, 1e-12))).astype(np.float32))
    return np.concatenate(rows) if rows else np.zeros((0, 1), dtype=np.float32)


def speech_steps(levels: Levels, others: Levels | None = None) -> Runs:
    """Find speech on one channel, as (first, end) in steps; both arrays have shape (steps,).

    A step in which the `others` are more than 15 dB louder is taken for their crosstalk.
    """
    if not len(levels):
        return []
    floor_db, loud_db = (float(value) for value in np.percentile(levels, (5, 99)))
    threshold_db = max(floor_db + _OVER_FLOOR_DB, loud_db - _UNDER_LOUD_DB, _SILENCE_DB)
    active = levels >= threshold_db
    if others is not None:
        active &= levels >= others - _CROSSTALK_DB
    edges = np.flatnonzero(np.diff(np.concatenate(([False], active, [False])).astype(np.int8)))
    runs = zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
    return [(first, end) for first, end in runs if end - first >= _SHORTEST_RUN_STEPS]


def merge_close_runs(runs: Runs, pause_steps: int) -> Runs:
    """Join runs that are less than a pause apart."""
    merged: Runs = []
    for first, end in runs:
        if merged and first - merged[-1][1] < pause_steps:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((first, end))
    return merged


_EDGE_S = 0.2  # silence kept around an utterance, if the pause is long enough
_LONGEST_CALL_S = 6 * 3600


def find_calls(tree: SourceTree, settings: Settings) -> Iterator[Item | Fault]:
    """Yield the utterances of the caller in every recorded call of a source. Raises CorpusError without a channel."""
    if settings.caller_channel is None:
        raise CorpusError("The caller's channel is unknown; choose it with --caller-channel left or right.")
    named = [tree.file] if tree.file is not None else [path for path in tree.walk() if is_audio(path)]
    for path in named:
        shown = tree.shown(path)
        try:
            yield from _call(tree, shown, settings, settings.caller_channel)
        except CorpusError as error:
            yield Fault(str(error))


def _call(tree: SourceTree, shown: str, settings: Settings, caller: int) -> Iterator[Item | Fault]:
    audio = tree.find(shown)
    levels = _levels(audio, shown, settings, caller)
    others = np.max(np.delete(levels, caller, axis=1), axis=1)
    pause_steps = round(settings.pause_s / STEP_S)
    utterances = merge_close_runs(speech_steps(levels[:, caller], others), pause_steps)
    utterances = [(first, end) for first, end in utterances if (end - first) * STEP_S >= settings.min_s]
    if not utterances:
        raise CorpusError(
            f"{shown}: nobody speaks on channel {caller}; check --caller-channel, or remove the recording."
        )
    replies = merge_close_runs(speech_steps(others, levels[:, caller]), pause_steps)
    transcript = _transcript(tree, audio, caller)
    name, slack_s = str(Path(shown).with_suffix("")), settings.pause_s / 2
    for position, (first, end) in enumerate(utterances):
        begins_s, ends_s = first * STEP_S, end * STEP_S
        start_s, end_s = _edges(utterances, position, len(levels))
        if end_s - start_s > settings.max_s:
            yield Fault(
                f"{shown}: the caller speaks from {begins_s:.1f} to {ends_s:.1f} s without a pause of "
                f"{settings.pause_s:g} s; lower --pause or raise --max-seconds.",
                name,
            )
            continue
        texts = [text for middle_s, text in transcript if begins_s - slack_s <= middle_s <= ends_s + slack_s]
        yield Item(
            name=f"{name}-{position + 1:03d}",
            audio=audio,
            shown=shown,
            text=" ".join(texts) or None,
            start_s=start_s,
            end_s=end_s,
            channel=caller,
            place=_place(name, utterances, replies, position),
        )


def _levels(audio: Path, shown: str, settings: Settings, caller: int) -> Levels:
    with open_stream(audio, shown, settings.raw) as stream:
        if stream.channels < 2 or caller >= stream.channels:
            raise CorpusError(
                f"{shown}: has {stream.channels} channel{'s' * (stream.channels != 1)}, "
                f"so it has no channel {caller} for the caller; use --format folder or another channel."
            )

        def bounded() -> Iterator[NDArray[np.float32]]:
            frames = 0
            for block in stream.blocks:
                frames += len(block)
                if max(frames, stream.frames or 0) > _LONGEST_CALL_S * stream.rate_hz:
                    raise CorpusError(f"{shown}: lasts more than {_LONGEST_CALL_S // 3600} hours; cut it into calls.")
                yield block

        levels = step_levels_db(bounded(), stream.rate_hz)
    if not len(levels):
        raise CorpusError(f"{shown}: is shorter than 10 ms; remove it.")
    return levels


def _edges(utterances: Runs, position: int, steps: int) -> tuple[float, float]:
    """The start and end of a cut in seconds: up to 200 ms around the speech, but at most the middle of a pause."""
    first, end = utterances[position]
    before = (utterances[position - 1][1] + first) / 2 if position else 0
    after = (end + utterances[position + 1][0]) / 2 if position + 1 < len(utterances) else steps
    edge = _EDGE_S / STEP_S
    return max(before, first - edge) * STEP_S, min(after, end + edge) * STEP_S


def _place(conversation: str, utterances: Runs, replies: Runs, position: int) -> Place:
    first, _ = utterances[position]
    since = utterances[position - 1][0] if position else 0
    before = [(begun, ended) for begun, ended in replies if since <= begun < first]
    if not before:
        return Place(conversation)
    begun, ended = before[-1]
    if ended > first and position:
        return Place(conversation, barge_in_after_s=_seconds(first - begun))
    return Place(conversation, think_s=_seconds(max(0, first - ended)))


def _seconds(steps: int) -> float:
    return round(min(steps * STEP_S, MAX_PAUSE_S), 3)


def _transcript(tree: SourceTree, audio: Path, caller: int) -> list[tuple[float, str]]:
    """The middle in seconds and the text of each line of the caller in the transcript next to a recording."""
    files = (file_with_suffix(audio, suffix) for suffix in (".json", ".tsv", ".csv"))
    path = next((file for file in files if file.is_symlink() or file.is_file()), None)
    if path is None:
        return []
    shown = tree.shown(path)
    file, lines = tree.find(shown), list[tuple[float, str]]()
    for line, row in _segments(file, shown) if has_suffix(file, ".json") else read_table(file, shown):
        try:
            start_s, end_s = number(row, "start_s", "start"), number(row, "end_s", "end")
            channel = number(row, "channel")
        except CorpusError as error:
            raise CorpusError(f"{shown}:{line}: {error}") from error
        if start_s is None or end_s is None:
            raise CorpusError(f"{shown}:{line}: has no start and end in seconds; add them.")
        text = string(row, "text", "transcript")
        if text is not None and channel in (None, float(caller)):
            lines.append(((start_s + end_s) / 2, text))
    return lines


def _segments(file: Path, shown: str) -> list[tuple[int, Mapping[str, Any]]]:
    """The rows of a JSON transcript: an array, lines of objects, or one object with an array of segments."""
    rows = [(line, row) for line, row in read_objects(file, shown) if row is not None]
    if len(rows) == 1 and isinstance(rows[0][1].get("segments"), list):
        inner = cast("list[object]", rows[0][1]["segments"])
        return [(place, cast("Mapping[str, Any]", row)) for place, row in enumerate(inner, 1) if isinstance(row, dict)]
    return list(rows)

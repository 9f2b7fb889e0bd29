"""The checks of `voiceprobe corpus check`: every fault of a corpus, one line each.

A corpus with faults in its manifest or files cannot be used. With the other faults it can be used but should not be
trusted: clipped or cut-off audio, wrong texts, doubtful bounds, unknown rights. One clip is in memory at a time.
"""

import hashlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from corpora.annotation.boundary_review import uncertain
from corpora.annotation.boundary_uncertainty import LARGE_MS, SURE_MS, stated_ms
from corpora.annotation.bounds import find_speech_bounds
from corpora.annotation.exact_end import find_exact_end
from corpora.annotation.levels import level_dbov
from corpora.manifest.clips import Samples, read_clip
from corpora.manifest.conversations import read_conversations
from corpora.manifest.errors import CorpusError, ManifestError
from corpora.manifest.manifest import MANIFEST_NAME, Edges, Utterance, read_manifest

# This many samples in a row at full scale are clipping, not just a loud sound.
CLIPPED_RUN_SAMPLES: Final = 3
_FULL_SCALE: Final = 32_766.5 / 32_768.0
# How the processing of a clip begins to say that it was clipped before: lowering its level hides that from the clip.
CAME_CLIPPED: Final = "came clipped in "
# The slowest and fastest speech of any language, in letters and digits per second. Beyond that, the text is that of
# another clip or the sample rate is wrong. A single word can be drawn out, so short texts have no lower limit.
LETTERS_PER_S_RANGE: Final = (3.0, 30.0)
MIN_LETTERS_FOR_SLOW: Final = 12
LONGEST_PAUSE_S: Final = 2.0
_PAUSE_BELOW_SPEECH_DB: Final = 40.0
# A bound that is further than this from where the speech is detected is wrong.
BOUNDS_OFF_S: Final = 0.1
# Speech this close to the first or the last sample was probably cut off.
EDGE_S: Final = 0.005
_QUIET_DBOV: Final = -50.0
_UPPER_BAND_HZ: Final = 4_300.0
_EMPTY_BAND_DB: Final = 60.0
_NO_LICENSE: Final = re.compile(r"(unknown|none|n/?a|no licen[cs]e|todo|tbd|\?+|-+|null|unlicensed)", re.IGNORECASE)


def diagnostics(folder: Path, progress: Callable[[int, int], None] | None = None) -> Iterator[str]:
    """Yield every fault of the corpus in a folder, one sentence each: what is wrong, where, and how to fix it.

    `progress(done, total)` is called after each clip. Faults of the corpus are yielded and never raised.
    """
    try:
        manifest = read_manifest(folder)
    except ManifestError as error:
        yield from error.faults
        return
    first_with: dict[bytes, str] = {}
    for position, (utterance, line) in enumerate(zip(manifest.utterances, manifest.lines, strict=True), start=1):
        where = f"{folder / MANIFEST_NAME}:{line}: {utterance.id}"
        try:
            samples = read_clip(folder, utterance)
        except CorpusError as error:
            yield f"{where}: {error}"
        else:
            for finding in (*_text_faults(utterance), *_clip_faults(samples, utterance, manifest.edges)):
                yield f"{where}: {finding}"
            duplicate = first_with.setdefault(_audio_hash(samples), utterance.id)
            if duplicate != utterance.id:
                yield f"{where}: has the same audio as {duplicate}; keep one of them."
        if progress is not None:
            progress(position, len(manifest.utterances))
    try:
        read_conversations(folder, {utterance.id for utterance in manifest.utterances})
    except ManifestError as error:
        yield from error.faults


def _audio_hash(samples: Samples) -> bytes:
    """A hash of the decoded samples, equal for clips with the same audio in different files."""
    return hashlib.sha256(np.rint(samples * 2.0**23).astype(np.int32).tobytes()).digest()


def _text_faults(utterance: Utterance) -> Iterator[str]:
    if _NO_LICENSE.fullmatch(utterance.license.strip()):
        yield f"its license is {utterance.license!r}, which is not a license; write the SPDX name of the actual one."
    if utterance.text is None:
        return  # without a transcript there is nothing to compare with the audio
    letters = sum(character.isalnum() for character in utterance.text)
    rate = letters / utterance.speech_s
    slow, fast = LETTERS_PER_S_RANGE
    if rate > fast or (letters >= MIN_LETTERS_FOR_SLOW and rate < slow):
        yield (
            f"its text has {letters} letters for {utterance.speech_s:.2f} s of speech, {rate:.1f} per second where "
            f"people speak {slow:g} to {fast:g}: correct the text, the bounds or the sample rate."
        )


def _clip_faults(samples: Samples, utterance: Utterance, edges: Edges) -> Iterator[str]:
    rate_hz = utterance.sample_rate_hz
    runs = find_runs(np.abs(samples) >= _FULL_SCALE, CLIPPED_RUN_SAMPLES)
    steps = (utterance.processing or "").split("; ")
    came = next((step for step in steps if step.startswith(CAME_CLIPPED)), None)
    if runs:
        at = runs[0][0] / rate_hz
        yield f"is clipped in {len(runs)} places, first at {at:.2f} s; record it with less gain."
    elif came is not None:
        yield f"{came}, before its level was set; record it with less gain."
    speech = samples[utterance.speech_start_sample : utterance.speech_end_sample + 1]
    level = level_dbov(speech)
    if level is not None and level < _QUIET_DBOV:
        yield f"is almost silent: its speech is at {level:.0f} dBov; record it louder or normalize it."
    yield from _pause_faults(speech, rate_hz)
    yield from _bounds_faults(samples, utterance, edges)
    if rate_hz >= 16_000 and _upper_band_is_empty(speech, rate_hz):
        yield (
            f"has nothing above {_UPPER_BAND_HZ / 1000:g} kHz at a rate of {rate_hz} Hz, so it was recorded at 8 kHz; "
            "use the wideband original, or keep it at 8 kHz."
        )


def _pause_faults(speech: Samples, rate_hz: int) -> Iterator[str]:
    hop = round(0.010 * rate_hz)
    power = np.mean(np.square(speech[: len(speech) // hop * hop]).reshape(-1, hop), axis=1)
    if not len(power):
        return
    quiet = power < np.max(power) * 10.0 ** (-_PAUSE_BELOW_SPEECH_DB / 10.0)
    pauses = find_runs(quiet, round(LONGEST_PAUSE_S / 0.010))
    if pauses:
        start, stop = max(pauses, key=lambda run: run[1] - run[0])
        yield (
            f"is silent for {(stop - start) / 100:.1f} s in the middle of its speech, which an endpoint would take for "
            "the end of the turn; cut it in two."
        )


def _bounds_faults(samples: Samples, utterance: Utterance, edges: Edges) -> Iterator[str]:
    rate_hz = utterance.sample_rate_hz
    edge = round(EDGE_S * rate_hz)
    if utterance.speech_start_sample < edge or utterance.speech_end_sample >= len(samples) - edge:
        side = "begins" if utterance.speech_start_sample < edge else "ends"
        yield f"{side} with speech at the edge of the file, as if cut off; leave 50 ms around the speech."
    for reason in uncertain(utterance, edges, LARGE_MS):
        yield f"{reason}; review it (voiceprobe corpus review)."
    is_faded_out = edges == "exact" and find_exact_end(samples, utterance) is not None
    if edges == "exact" and not is_faded_out:
        yield from _recorded_end_faults(utterance)
    outside = np.concatenate((samples[: utterance.speech_start_sample], samples[utterance.speech_end_sample + 1 :]))
    if utterance.bounds_confidence_db is None or utterance.reviewed or not np.any(outside):
        return  # a person has set the bounds, or they are exact because digital silence surrounds them
    try:
        bounds = find_speech_bounds(samples, rate_hz)
    except CorpusError:
        yield "contains no speech above its noise floor; record it again."
        return
    for name, stated_half_width_ms, detected_s in (
        ("begins", utterance.speech_start_uncertainty_ms, bounds.start_uncertainty_s),
        ("ends", utterance.speech_end_uncertainty_ms, bounds.end_uncertainty_s),
    ):
        if is_faded_out and name == "ends":
            continue
        if stated_half_width_ms is not None and stated_half_width_ms <= SURE_MS < stated_ms(detected_s):
            yield (
                f"where its speech {name} is known to ±{stated_ms(detected_s):g} ms, not to "
                f"±{stated_half_width_ms:g} ms as its manifest states; annotate it again."
            )
    for name, stated, detected in (
        ("begins", utterance.speech_start_sample, bounds.start_sample),
        ("ends", utterance.speech_end_sample, bounds.end_sample),
    ):
        if abs(stated - detected) > BOUNDS_OFF_S * rate_hz:
            yield (
                f"its speech {name} at {detected / rate_hz:.3f} s, not at {stated / rate_hz:.3f} s as its manifest "
                "states; annotate it again."
            )


def _recorded_end_faults(utterance: Utterance) -> Iterator[str]:
    """Yield a sentence if the end of a clip that cannot be faded out is uncertain."""
    half_width_ms = utterance.speech_end_uncertainty_ms
    if half_width_ms is None or half_width_ms > LARGE_MS:
        known = "unknown to any accuracy" if half_width_ms is None else f"known only to ±{half_width_ms:g} ms"
        yield (
            f"no sound in it is certain enough to end it exactly, and where it ends in the recording is {known}; "
            "record it with less noise, or review it (voiceprobe corpus review --all)."
        )


def _upper_band_is_empty(speech: Samples, rate_hz: int) -> bool:
    spectrum = np.square(np.abs(np.fft.rfft(speech * np.hanning(len(speech)))))
    hertz = np.fft.rfftfreq(len(speech), 1.0 / rate_hz)
    total, upper = float(np.sum(spectrum)), float(np.sum(spectrum[hertz > _UPPER_BAND_HZ]))
    return total > 0.0 and upper < total * 10.0 ** (-_EMPTY_BAND_DB / 10.0)


def find_runs(true: NDArray[np.bool_], shortest: int) -> list[tuple[int, int]]:
    """The runs of True that are at least so long: the first place of each, and the one after its last."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], true, [False])).astype(np.int8)))
    pairs = zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
    return [(start, stop) for start, stop in pairs if stop - start >= shortest]

"""The calibration speech: bursts of constant magnitude between stretches of digital silence, bounds exact to a sample.

Every utterance has the same number of speech frames, wherever in its first and last frame the speech begins and ends:
the endpoint counts frames and knows the last one without listening.
"""

import hashlib
import io
from pathlib import Path
from typing import Final

import numpy as np
import soundfile

from corpora.manifest import Utterance, write_manifest
from loadtest.audio.pcm import Pcm16

NAME: Final = "calibration"
RATE_HZ: Final = 24_000
FRAME_SAMPLES: Final = 480
LEAD_FRAMES: Final = 5
SPEECH_FRAMES: Final = 30
TAIL_FRAMES: Final = 3
# Where the speech begins in its first frame and ends in its last one: the edges of a frame among them.
BOUNDS: Final = ((0, 479), (479, 0), (0, 0), (479, 479), (120, 359), (241, 77), (33, 400), (360, 190))
_MAGNITUDE: Final = 3000


def burst(samples: int, seed: int) -> Pcm16:
    """Noise of one magnitude and random sign: loud from its first sample to its last."""
    signs = np.random.default_rng(seed).integers(0, 2, samples, np.int16) * 2 - 1
    return (signs * _MAGNITUDE).astype(np.int16)


def utterance_pcm(number: int) -> tuple[Pcm16, int, int]:
    """The samples of an utterance, and its first and last speech sample."""
    first_offset, last_offset = BOUNDS[number]
    first = LEAD_FRAMES * FRAME_SAMPLES + first_offset
    last = (LEAD_FRAMES + SPEECH_FRAMES - 1) * FRAME_SAMPLES + last_offset
    pcm = np.zeros((LEAD_FRAMES + SPEECH_FRAMES + TAIL_FRAMES) * FRAME_SAMPLES, np.int16)
    pcm[first : last + 1] = burst(last + 1 - first, number)
    return pcm, first, last


def write_calibration_corpus(folder: Path) -> None:
    """Write the utterances as a corpus that any caller can speak from."""
    (folder / "clips").mkdir(parents=True, exist_ok=True)
    utterances: list[Utterance] = []
    for number in range(len(BOUNDS)):
        pcm, first, last = utterance_pcm(number)
        encoded = io.BytesIO()
        soundfile.write(encoded, pcm, RATE_HZ, format="FLAC", subtype="PCM_16")
        path = f"clips/calibration-{number}.flac"
        (folder / path).write_bytes(encoded.getvalue())
        utterances.append(
            Utterance(
                id=f"calibration-{number}",
                path=path,
                text=f"calibration burst {number}",
                speaker="generator",
                language="en-US",
                domain="calibration",
                licence="CC0-1.0",
                source="made of random signs by the calibration",
                sha256=hashlib.sha256(encoded.getvalue()).hexdigest(),
                sample_rate_hz=RATE_HZ,
                samples=len(pcm),
                speech_start_sample=first,
                speech_end_sample=last,
            )
        )
    write_manifest(folder, NAME, "generated", utterances)

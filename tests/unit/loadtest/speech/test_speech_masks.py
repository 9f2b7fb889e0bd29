"""Prepared frames go on the wire unchanged, so their masks must be right before the first call."""

from itertools import chain

from loadtest.protocols import registry
from loadtest.protocols.base import CallerOptions
from loadtest.protocols.transports.masked_frames import FIXED_MASK
from loadtest.scenario.settings import SwarmSettings
from loadtest.speech.preparation import PreparedCorpus, prepare

MASK = slice(4, 8)  # after two header bytes and two length bytes


def _prepared(mask: str) -> PreparedCorpus:
    settings = SwarmSettings(host="ws://h/", corpus="voiceprobe-en", length="short", clips=1, mask=mask)
    return prepare(settings, registry.make_caller("openai-realtime", CallerOptions()))


def _frames(prepared: PreparedCorpus) -> list[bytes]:
    return list(chain(prepared.background, *(clip.frames for clip in prepared.clips)))


def _unmasked(frame: bytes) -> bytes:
    mask = frame[MASK]
    return bytes(byte ^ mask[place % 4] for place, byte in enumerate(frame[MASK.stop :]))


def test_masks_are_fixed_or_random_and_mask_the_same_audio() -> None:
    fixed, drawn, again = (_frames(_prepared(mask)) for mask in ("fixed", "random", "random"))
    assert {frame[MASK] for frame in fixed} == {FIXED_MASK}
    assert len({frame[MASK] for frame in drawn}) > 0.99 * len(drawn)
    assert drawn == again, "the same seed gives the same bytes"
    assert [_unmasked(frame) for frame in fixed[-20:]] == [_unmasked(frame) for frame in drawn[-20:]]

"""Noise, losses and rooms are drawn again for each turn, so that a run has the requested rates."""

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from corpora.manifest.conversations import ConversationTurn, ScriptedConversation
from corpora.manifest.library import open_corpus
from corpora.rendering.profiles.parsing import profile_from_text
from corpora.rendering.profiles.profile import Profile
from corpora.rendering.render import render
from loadtest.conversation.plan import CallPlan, Limits
from loadtest.conversation.prepared_clip import PreparedClip
from loadtest.errors import UsageError
from loadtest.protocols import registry
from loadtest.protocols.base import CallerOptions
from loadtest.scenario.arrivals import WHOLE, Share
from loadtest.scenario.behavior import CallerBehavior
from loadtest.scenario.options import settings_from
from loadtest.scenario.settings import SwarmSettings
from loadtest.speech import rendering
from loadtest.speech.preparation import (
    MAX_VARIANTS,
    MIN_VARIANTS,
    VARIED_S,
    PreparedCorpus,
    PreparedLine,
    choose,
    prepare,
    variants_of,
)
from loadtest.swarm.planner import CallPlanner

SETTINGS = SwarmSettings(host="ws://x", corpus="voiceprobe-en", length="short", clips=6, seed=3)
PACKETS_A_SECOND = 50


def prepared_with(profiles: str, **changes: object) -> PreparedCorpus:
    settings = SETTINGS.replaced(speech_profiles=profiles, **changes)  # pyright: ignore[reportArgumentType] - by name
    return prepare(settings, registry.make_caller("openai-realtime", CallerOptions()))


def planned(
    prepared: PreparedCorpus, calls: int, *, share: Share = WHOLE, conversations: bool = False, seed: int = 3
) -> list[CallPlan]:
    ids = [clip.rendered.utterance.id for clip in prepared.clips]
    script = ScriptedConversation("script", tuple(ConversationTurn(name) for name in ids))
    planner = CallPlanner(
        prepared.lines,
        behavior=CallerBehavior(turns=3, conversations=conversations, talk_over=0.5),
        limits=Limits(),
        manual_turns=False,
        seed=seed,
        share=share,
        conversations=(script,),
    )
    return [planner.plan(f"call-{number}") for number in range(len(range(share.index, calls, share.of)))]


def clips_of(plans: list[CallPlan]) -> list[PreparedClip]:
    return [turn.clip for plan in plans for turn in plan.turns if turn.clip is not None]


def packets(pcm: NDArray[np.int16], rate_hz: int) -> NDArray[np.int16]:
    """Return packets of 20 ms without their first 6 ms, where the concealment of the previous packet fades out."""
    size = rate_hz // PACKETS_A_SECOND
    whole = pcm[: len(pcm) // size * size].reshape(-1, size)
    return whole[:, rate_hz * 6 // 1000 :]


def lost_of(clip: PreparedClip) -> NDArray[np.bool_]:
    """Return which packets were lost: those that differ from the same audio without losses."""
    rendered = clip.rendered
    whole = replace(rendered.profile, loss=None)
    same = render(open_english(), rendered.utterance, whole, rendered.rate_hz, SETTINGS.seed, variant=rendered.variant)
    return np.any(packets(rendered.pcm, rendered.rate_hz) != packets(same.pcm, rendered.rate_hz), axis=1)


def open_english():
    return open_corpus("voiceprobe-en", check_clips=False)


@pytest.mark.slow
@pytest.mark.parametrize(("words", "leave"), [("loss=5%", 0.95), ("loss=5%/3", 1 / 3), ("loss=10%/1", 1.0)])
def test_losses_over_run_have_requested_rate_and_burst_length(words: str, leave: float) -> None:
    """Compare losses in the audio with the profile's Markov chain: transition rates and burst lengths.

    The run has as many turns as there are variants.
    """
    ratio = float(words.removeprefix("loss=").partition("%")[0]) / 100
    prepared = prepared_with(f"noise=white snr=20 {words}", variants=24)
    clips = clips_of(planned(prepared, 6 * 24 // 3))
    assert len({id(clip) for clip in clips}) == len(clips) == 144
    lost = [lost_of(clip) for clip in clips]
    total = sum(map(len, lost))
    enter = ratio * leave / (1 - ratio)
    alike = 1 - leave - enter  # the correlation of one packet with the next
    spread = np.sqrt(ratio * (1 - ratio) / total * (1 + alike) / (1 - alike))
    assert total > 6_000
    assert abs(np.mean(np.concatenate(lost)) - ratio) < 3.5 * spread

    after: dict[int, list[bool]] = defaultdict(
        list
    )  # by the number of consecutive losses before a packet: whether it was lost
    for lost_packets in lost:
        run = 0
        for gone in lost_packets.tolist():
            after[run].append(gone)
            run = run + 1 if gone else 0
    for run in range(4):
        chance = enter if run == 0 else 1 - leave
        count = len(after[run])
        assert abs(np.sum(after[run]) - chance * count) <= 4 * np.sqrt(max(chance * (1 - chance), 1e-9) * count) + 1e-6
    # The losses that each turn records are those in its audio.
    for clip, lost_packets in zip(clips, lost, strict=True):
        rendered = clip.rendered
        first, last = (
            sample * PACKETS_A_SECOND // rendered.rate_hz
            for sample in (rendered.speech_start_sample, rendered.speech_end_sample)
        )
        if last < len(lost_packets):
            assert rendered.obtained.loss_ratio == pytest.approx(np.mean(lost_packets[first : last + 1]))
        assert rendered.obtained.snr_db == pytest.approx(20.0, abs=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["white", "pink", "babble", "music"])
def test_turns_with_the_same_utterance_have_different_noise(noise: str) -> None:
    prepared = prepared_with(f"noise={noise} snr=5", variants=4)
    by_utterance: dict[str, list[PreparedClip]] = defaultdict(list)
    for clip in clips_of(planned(prepared, 8)):
        by_utterance[clip.rendered.utterance.id].append(clip)
    assert {len(clips) for clips in by_utterance.values()} == {4}
    for clips in by_utterance.values():
        clean = render(open_english(), clips[0].rendered.utterance, Profile(), clips[0].rendered.rate_hz, 3).pcm
        under = [clip.rendered.pcm.astype(float) - clean for clip in clips]
        alike = np.abs(np.corrcoef(under) - np.eye(4))
        assert alike.max() < (0.95 if noise == "music" else 0.25)  # chords of one progression are alike
        assert len({clip.frames[clip.speech_start_frame] for clip in clips}) == 4
        bounds = {(clip.rendered.speech_start_sample, clip.rendered.speech_end_sample) for clip in clips}
        assert len(bounds) == 1


@pytest.mark.parametrize("conversations", [False, True])
@pytest.mark.parametrize("processes", [2, 3])
def test_cohorts_and_processes_use_the_same_audio_per_turn(processes: int, conversations: bool) -> None:
    def ids_of(plan: CallPlan) -> list[tuple[str, int]]:
        return [
            (clip.rendered.utterance.id, clip.rendered.variant)
            for turn in plan.turns
            for clip in (turn.clip, None if turn.backchannel is None else turn.backchannel.clip)
            if clip is not None
        ]

    prepared = prepared_with("loss=5%", variants=5)
    alone = planned(prepared, 24, conversations=conversations)
    again = planned(prepared_with("loss=5%", variants=5), 24, conversations=conversations)
    assert [ids_of(plan) for plan in alone] == [ids_of(plan) for plan in again]
    assert [plan.background for plan in alone] == [plan.background for plan in again]
    assert [list(clip.frames) for clip in clips_of(alone)] == [list(clip.frames) for clip in clips_of(again)]
    shared = [
        planned(prepared, 24, share=Share(index, processes), conversations=conversations) for index in range(processes)
    ]
    for number, plan in enumerate(alone):
        other = shared[number % processes][number // processes]
        assert ids_of(other) == ids_of(plan)
        assert other.background == plan.background
    assert {variant for plan in alone for _, variant in ids_of(plan)} == set(range(5))


def test_every_variant_is_used_before_one_is_repeated() -> None:
    used: dict[str, list[int]] = defaultdict(list)
    for clip in clips_of(planned(prepared_with("loss=5%", variants=5), 40)):
        used[clip.rendered.utterance.id].append(clip.rendered.variant)
    assert {len(variants) for variants in used.values()} == {20}
    for variants in used.values():
        for begin in range(0, 20, 5):
            assert sorted(variants[begin : begin + 5]) == list(range(5))
    assert len({tuple(variants[:5]) for variants in used.values()}) > 1


@pytest.mark.slow
def test_profiles_differing_in_one_setting_share_variants() -> None:
    """Two SNRs can be compared on equal noise, and the choice of utterances does not change."""
    settings = SETTINGS.replaced(variants=4)
    loud, quiet = (
        [
            (clip.rendered.utterance.id, clip.rendered.variant)
            for clip in clips_of(planned(prepared_with(f"noise=pink snr={snr}", variants=settings.variants), 20))
        ]
        for snr in (0, 20)
    )
    clean = [(clip.rendered.utterance.id, 0) for clip in clips_of(planned(prepared_with("clean", variants=4), 20))]
    assert loud == quiet
    assert [name for name, _ in loud] == [name for name, _ in clean]


def test_callers_do_not_all_start_at_the_first_background_frame() -> None:
    prepared = prepared_with("noise=pink snr=10", variants=1)
    plans = planned(prepared, 30)
    assert len({plan.background[0] for plan in plans}) > 25
    assert all(sorted(plan.background) == sorted(prepared.background) for plan in plans)


@pytest.mark.slow
def test_several_processes_draw_the_same_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def content() -> list[list[bytes]]:
        (line,) = prepared_with("noise=babble snr=10 channel=g722 loss=5%/2", variants=3).lines
        return [list(clip.frames) for clips in line.variants for clip in clips]

    alone = content()
    monkeypatch.setattr(rendering, "_processes", lambda missing: 2)  # pyright: ignore[reportUnknownLambdaType]
    monkeypatch.setenv("VOICEPROBE_CACHE", str(tmp_path / "other"))
    assert content() == alone
    assert len({tuple(frames) for frames in alone}) == len(alone) == 18


@pytest.mark.parametrize("words", ["clean", "noise=hum snr=10", "noise=hum-60 snr=10 channel=opus", "room=0.4 gain=6"])
def test_profiles_without_random_parts_are_rendered_once(words: str) -> None:
    _, utterances = choose(SETTINGS)
    assert variants_of(SETTINGS.replaced(variants=9), profile_from_text(words), utterances) == 1


def test_variants_last_half_an_hour_within_limits() -> None:
    noisy = profile_from_text("loss=5%")
    settings = SwarmSettings(host="ws://x", corpus="voiceprobe-en")
    _, everything = choose(settings)
    seconds = sum(utterance.samples / utterance.sample_rate_hz for utterance in everything)
    count = variants_of(settings, noisy, everything)
    assert seconds * (count - 1) < VARIED_S <= seconds * count
    assert variants_of(settings, noisy, everything[:1]) == MAX_VARIANTS
    long = tuple(replace(utterance, samples=utterance.samples * 1_000) for utterance in everything)
    assert variants_of(settings, noisy, long) == MIN_VARIANTS
    assert variants_of(settings.replaced(variants=7), noisy, everything) == 7


@pytest.mark.parametrize("variants", [0, -1, 1_001])
def test_an_invalid_number_of_variants(variants: int) -> None:
    with pytest.raises(UsageError, match=f"^--variants is {variants}; a whole number from 1 to 1000 is expected$"):
        settings_from({"variants": variants})


def test_a_handmade_line_has_one_variant() -> None:
    line = PreparedLine(Profile(), 1.0, (), (b"-",))
    assert line.variants == ((),)

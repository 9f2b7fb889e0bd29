"""Prepared speech is the same from the cache as newly rendered, and by one process as by several; it is mapped."""

import hashlib
import json
import os
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import soundfile

from corpora.manifest.errors import CorpusError
from corpora.manifest.library import open_corpus
from corpora.rendering.cache import cache_entries, cache_root, entry_key
from corpora.rendering.profiles.profile import Profile
from corpora.rendering.render import background, render
from loadtest.protocols import registry
from loadtest.protocols.base import CallerOptions, CallerProtocol
from loadtest.protocols.transports.masked_frames import FIXED_MASK
from loadtest.scenario.declaration import NOT_ASKED, declaration
from loadtest.scenario.settings import SwarmSettings
from loadtest.speech import rendering
from loadtest.speech.frames import BACKGROUND_S, FrameCache, MappedFrames, Wire
from loadtest.speech.preparation import PreparedCorpus, choose, prepare, render_ahead

SETTINGS = SwarmSettings(host="ws://x", corpus="voiceprobe-en", length="short", clips=4, channel="telephone", seed=3)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VOICEPROBE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def wire_of(name: str = "openai-realtime") -> CallerProtocol:
    return registry.make_caller(name, CallerOptions())


def content(prepared: PreparedCorpus) -> list[list[bytes]]:
    return [list(clip.frames) for line in prepared.lines for clip in line.clips] + [list(prepared.background)]


def test_frames_equal_rendering_padded_with_background() -> None:
    prepared, wire = prepare(SETTINGS, wire_of()), Wire.of(wire_of())
    corpus, chosen = choose(SETTINGS)
    profile = Profile(channel=("telephone",))
    noise = background(corpus, profile, 24_000, BACKGROUND_S, 3)
    assert [clip.rendered.utterance for clip in prepared.clips] == list(chosen)
    for clip in prepared.clips:
        rendered = render(corpus, clip.rendered.utterance, profile, 24_000, 3)
        filled = np.concatenate((rendered.pcm, noise[: -len(rendered.pcm) % 480]))
        assert tuple(clip.frames) == wire.frames(filled, 0)
        assert np.array_equal(clip.rendered.pcm, rendered.pcm)
        assert clip.rendered.obtained == rendered.obtained
        assert clip.speech_end_frame == rendered.speech_end_sample // 480
    assert prepared.background == wire.frames(noise, 0)


def test_mapped_frames_are_a_sequence() -> None:
    frames = prepare(SETTINGS, wire_of()).clips[0].frames
    assert isinstance(frames, MappedFrames)
    whole = list(frames)
    assert len(frames) == len(whole)
    assert (frames[0], frames[-1], frames[3]) == (whole[0], whole[-1], whole[3])
    for run in (slice(1, 3), slice(0, 4), slice(None), slice(-2, None), slice(3, 1), slice(2, 9_999), slice(8, 1, -2)):
        assert frames[run] == tuple(whole[run])
    with pytest.raises(IndexError):
        _ = frames[len(whole)]
    with pytest.raises(IndexError):
        _ = frames[-len(whole) - 1]


def test_the_second_time_nothing_is_rendered(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    progress: list[tuple[int, int]] = []
    first = content(prepare(SETTINGS, wire_of(), lambda done, total: progress.append((done, total))))
    assert progress[-1] == (4, 4)

    def never(*_: object, **__: object) -> None:
        raise AssertionError("rendered again")

    monkeypatch.setattr(rendering, "render_here", never)
    assert content(prepare(SETTINGS, wire_of())) == first


def test_only_new_utterances_are_rendered(cache: Path) -> None:
    small = prepare(SETTINGS, wire_of())
    archives = sorted(cache.glob("*/*/*.pack"))
    large = prepare(
        SwarmSettings(host="ws://x", corpus="voiceprobe-en", length="short", clips=6, channel="telephone", seed=3),
        wire_of(),
    )
    assert len(large.clips) == 6
    assert set(archives) < set(cache.glob("*/*/*.pack"))
    known = {clip.rendered.utterance.id: list(clip.frames) for clip in large.clips}
    for clip in small.clips:
        assert known.get(clip.rendered.utterance.id, list(clip.frames)) == list(clip.frames)


@pytest.mark.slow
def test_several_processes_render_the_same_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus, chosen = choose(SETTINGS)
    alone = content(prepare(SETTINGS, wire_of()))
    monkeypatch.setattr(rendering, "_processes", lambda missing: 2)
    monkeypatch.setenv("VOICEPROBE_CACHE", str(tmp_path / "other"))
    progress: list[int] = []
    assert content(prepare(SETTINGS, wire_of(), lambda done, total: progress.append(done))) == alone
    frame_cache = FrameCache.open(corpus, Profile(channel=("telephone",)), 3, Wire.of(wire_of()))
    assert not frame_cache.missing(chosen)
    assert (
        len(list(frame_cache.cache_entry.folder.glob("*.pack"))) == 3
    )  # one for the background and one from each process


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_rate_setting_of_protocol_applies_to_all_rendering(
    processes: int, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rendering, "_processes", lambda missing: processes)
    names: set[str] = set()
    for rate_hz in (8_000, 24_000):
        settings = SETTINGS.replaced(protocol="pipecat", protocol_option=(f"input_rate_hz={rate_hz}",), clips=2)
        wire = Wire.of(registry.make_caller(settings.protocol, settings.caller_options))
        names.add(wire.name)
        corpus, _ = choose(settings)
        for clip in prepare(settings, wire.protocol).clips:
            rendered = render(corpus, clip.rendered.utterance, Profile(channel=("telephone",)), rate_hz, 3)
            assert np.array_equal(clip.rendered.pcm, rendered.pcm)
            assert len(clip.frames) == -(-len(rendered.pcm) // (rate_hz // 50))
    assert len(names) == 2
    assert len(cache_entries(cache_root())) == 4  # samples and frames of each rate


@pytest.mark.slow
def test_random_masks_do_not_depend_on_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = SETTINGS.replaced(mask="random")
    alone = content(prepare(settings, wire_of()))
    masks = {frame[4:8] for frames in alone for frame in frames}
    assert len(masks) > 100
    monkeypatch.setattr(rendering, "_processes", lambda missing: 2)
    monkeypatch.setenv("VOICEPROBE_CACHE", str(tmp_path / "other"))
    assert content(prepare(settings, wire_of())) == alone


@pytest.mark.slow
def test_every_unusable_clip_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOICEPROBE_CACHE", str(tmp_path / "empty"))  # what is rendered already needs no clip
    bundled = open_corpus("voiceprobe-en", check_clips=False)
    folder = tmp_path / "broken"
    folder.mkdir()
    lines = (bundled.path / "manifest.jsonl").read_text().splitlines()[:5]
    (folder / "manifest.jsonl").write_text("\n".join(lines) + "\n")
    for number, line in enumerate(lines[1:]):
        path = json.loads(line)["path"]
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        if number in (0, 1):
            (folder / path).write_bytes((bundled.path / path).read_bytes())
    settings = SwarmSettings(host="ws://x", corpus=str(folder))
    for workers in (1, 2):
        monkeypatch.setattr(rendering, "_processes", lambda missing, workers=workers: workers)
        with pytest.raises(CorpusError) as caught:
            prepare(settings, wire_of())
        lines = str(caught.value).splitlines()
        assert len(lines) == 2
        assert all("is missing; restore it" in line for line in lines)


def test_a_damaged_frame_is_rendered_again(cache: Path) -> None:
    before = content(prepare(SETTINGS, wire_of()))
    corpus, chosen = choose(SETTINGS)
    frame_cache = FrameCache.open(corpus, Profile(channel=("telephone",)), 3, Wire.of(wire_of())).cache_entry
    entry = frame_cache.get(entry_key(chosen[2]))
    assert entry is not None
    damaged = bytearray(entry[0].data[:])
    (file,) = (path for path in cache.rglob("*") if path.is_file() and path.read_bytes() == damaged)
    damaged[entry[1].offset + 2_000] ^= 255
    file.unlink()
    file.write_bytes(damaged)
    assert content(prepare(SETTINGS, wire_of())) == before


@pytest.mark.skipif(os.geteuid() == 0 and not Path("/proc").exists(), reason="needs a folder that is not writable")
def test_without_a_writable_cache_speech_is_still_rendered(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_cache = content(prepare(SETTINGS, wire_of()))
    occupied = tmp_path / "a-file"
    occupied.write_text("no folder")
    monkeypatch.setenv("VOICEPROBE_CACHE", str(occupied))
    assert content(prepare(SETTINGS, wire_of())) == with_cache
    render_ahead(SETTINGS, wire_of())
    assert occupied.read_text() == "no folder"


def test_different_wires_share_renderings_but_not_frames(cache: Path) -> None:
    protocol = wire_of()
    wires = [Wire.of(protocol), Wire(protocol, "fixed", 24_000, 240), Wire.of(protocol, "random")]
    assert len({wire.name for wire in wires}) == 3
    assert Wire.of(wire_of()).name == wires[0].name
    corpus, chosen = choose(SETTINGS)
    for wire in wires[:2]:
        frame_cache = FrameCache.open(corpus, Profile(), 3, wire)
        rendering.fill(frame_cache, chosen, rendering.ProtocolChoice(SETTINGS.protocol, {}))
    assert len(cache_entries(cache_root())) == 3  # one of samples, two of frames


@pytest.mark.slow
def test_each_profile_has_its_own_clips_and_background() -> None:
    settings = SwarmSettings(
        host="ws://x",
        corpus="voiceprobe-en",
        length="short",
        clips=3,
        speech_profiles="share=3 clean; share=1 noise=white snr=5 channel=g711a",
    )
    prepared = prepare(settings, wire_of())
    assert [(line.profile.label, line.share) for line in prepared.lines] == [("clean", 0.75), ("white-5dB+g711a", 0.25)]
    ids = [[clip.rendered.utterance.id for clip in line.clips] for line in prepared.lines]
    assert ids[0] == ids[1]
    assert prepared.lines[0].background != prepared.lines[1].background


def test_a_mix_has_its_shares_and_repetitions_share_their_frames() -> None:
    settings = SwarmSettings(host="ws://x", corpus="voiceprobe-en", clips=20, mix="short=60 medium=30 long=10")
    _, chosen = choose(settings)
    assert [sum(utterance.length == length for utterance in chosen) for length in ("short", "medium", "long")] == [
        12,
        6,
        2,
    ]
    some = SwarmSettings(host="ws://x", corpus="voiceprobe-en", clips=60, length="short", mix="short=1")
    clips = prepare(some, wire_of()).clips
    assert len(clips) == 60
    assert len({id(clip) for clip in clips}) == len({clip.rendered.utterance.id for clip in clips}) < 60


@pytest.mark.parametrize("edges", ["exact", "recorded"])
def test_utterances_that_end_as_recorded_are_counted(tmp_path: Path, edges: str) -> None:
    """One clip of the corpus has so much noise that no sound in it is certainly speech."""
    folder = tmp_path / "noisy"
    (folder / "clips").mkdir(parents=True)
    header, *lines = (open_corpus("voiceprobe-en", check_clips=False).path / "manifest.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines[:3]]
    for number, row in enumerate(rows):
        samples, rate_hz = soundfile.read(open_corpus("voiceprobe-en", check_clips=False).path / row["path"])
        if number == 1:
            samples = samples + np.random.default_rng(1).standard_normal(len(samples)) * 0.02
        soundfile.write(folder / row["path"], samples, rate_hz, "PCM_16")
        row["sha256"] = hashlib.sha256((folder / row["path"]).read_bytes()).hexdigest()
    head = json.loads(header) | {"edges": edges}
    (folder / "manifest.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in (head, *rows)))
    settings = SwarmSettings(host="ws://x", corpus=str(folder))
    prepared = prepare(settings, wire_of())
    assert prepared.recorded_ends == (1 if edges == "exact" else 3)
    ends = [clip.rendered.speech_end_uncertainty_ns for clip in prepared.clips]
    assert [end == 0 for end in ends] == ([True, False, True] if edges == "exact" else [False] * 3)
    declared = declaration(settings, prepared.corpus, 3, NOT_ASKED)
    assert declared["edges"] == edges
    assert declared.get("fade_ms") == (5.0 if edges == "exact" else None)


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

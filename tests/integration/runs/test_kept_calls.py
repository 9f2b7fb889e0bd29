"""Calls that are kept: on the clock of their turns, private, and only where a run was asked to."""

import subprocess
from pathlib import Path

import numpy as np
import pytest
import scipy.signal
import soundfile
import soxr

from corpora.manifest.library import open_corpus
from telemetry.model.turns import Turn
from telemetry.store.reader import StoreReader
from telemetry.store.recordings.files import find_call
from telemetry.store.recordings.kept_call import FOLDER, KeptCall
from tests.integration.calling import CORPUS
from tests.integration.commands import carried_out, completed
from tests.integration.raw_endpoint import READY, raw_endpoint, upgraded

NS_PER_S = 1_000_000_000
FRAME_NS = 20_000_000
QUICK = ["--corpus", CORPUS, "--length", "short", "--clips", "6", "--think", "0.2", "--endpointing", "300ms"]


def run(url: str, out: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    return completed("run", url, *QUICK, "--out", str(out), *flags)


def kept(store: Path) -> list[tuple[KeptCall, np.ndarray, dict[int, Turn]]]:
    """Every kept call of a store, its samples, and its turns by number."""
    with StoreReader(store) as reader:
        turns = reader.turns(source="client")
    calls: dict[str, dict[int, Turn]] = {}
    for turn in turns:
        calls.setdefault(turn.call_id, {})[turn.turn_index] = turn
    recorded: list[tuple[KeptCall, np.ndarray, dict[int, Turn]]] = []
    for call_id, of_call in calls.items():
        answer = find_call(store, turns[0].run_id, call_id, 0)
        assert answer is not None
        assert answer.call is not None
        assert answer.audio is not None
        samples, rate = soundfile.read(answer.audio, dtype="int16")
        assert (len(samples), rate) == (answer.call.samples, answer.call.rate_hz)
        recorded.append((answer.call, samples, of_call))
    return recorded


def onset_perf_ns(call: KeptCall, channel: np.ndarray, from_perf_ns: int) -> int:
    """The end of the first 10 ms that are louder than 1 % of full scale, found by a running mean of squares."""
    rate = call.rate_hz or 1
    first = (from_perf_ns - call.began_perf_ns) * rate // NS_PER_S
    power = np.convolve((channel[first:] / 32_768.0) ** 2, np.ones(rate // 100) / (rate // 100), "valid")
    return call.began_perf_ns + int(first + np.argmax(power > 1e-4) + rate // 100 - 1) * NS_PER_S // rate


def speech_end_perf_ns(call: KeptCall, channel: np.ndarray, turn: Turn) -> int:
    """Where the last speech sample of a turn's clip lies, found by correlating the file of the corpus with it."""
    corpus = open_corpus(CORPUS, check_clips=False)
    utterance = next(candidate for candidate in corpus.utterances if candidate.id == turn.utterance_id)
    clip, own_rate = soundfile.read(corpus.path / utterance.path)
    rate = call.rate_hz or 1
    assert turn.speech_end_perf_ns is not None
    first = max(0, (turn.started_perf_ns - call.began_perf_ns) * rate // NS_PER_S)
    end = (turn.speech_end_perf_ns + NS_PER_S - call.began_perf_ns) * rate // NS_PER_S
    heard = scipy.signal.correlate(channel[first:end].astype(float), soxr.resample(clip, own_rate, rate), "full")
    begin = int(np.argmax(heard)) - round(len(clip) * rate / own_rate) + 1
    speech_end = first + begin + utterance.speech_end_sample * rate // own_rate
    return call.began_perf_ns + speech_end * NS_PER_S // rate


@pytest.mark.nightly
def test_both_channels_lie_on_the_clock_of_the_turns(url: str, tmp_path: Path) -> None:
    done = run(url, tmp_path, "--users", "2", "--calls", "4", "--turns", "3", "--keep-audio", "--keep-text")
    assert done.stderr == ""
    calls = kept(tmp_path / "store")
    assert len(calls) == 4
    heard = spoken = 0
    for call, samples, turns in calls:
        assert call.note is None
        assert not call.missing
        assert [turn.turn_index for turn in call.turns] == sorted(turns)
        for kept_turn in call.turns:
            turn = turns[kept_turn.turn_index]
            assert kept_turn.asked
            assert turn.transcript_pii is None  # the store itself keeps no words
            if turn.outcome_observed == "ok" and turn.first_audio_perf_ns and turn.speech_end_perf_ns:
                heard += 1
                onset_ns = onset_perf_ns(call, samples[:, 1], turn.speech_end_perf_ns)
                assert abs(onset_ns - turn.first_audio_perf_ns) < 1_000_000
            if turn.speech_end_perf_ns is not None:
                spoken += 1
                lateness_ns = max(FRAME_NS, turn.frame_lateness_worst_ns or 0)
                assert abs(speech_end_perf_ns(call, samples[:, 0], turn) - turn.speech_end_perf_ns) < lateness_ns
    assert min(heard, spoken) >= 8
    for path in (tmp_path / "store" / FOLDER).rglob("*"):
        assert path.stat().st_mode & 0o077 == 0


@pytest.mark.nightly
@pytest.mark.parametrize("flag", ["--keep-audio", "--keep-text"])
def test_run_keeps_only_what_was_requested(url: str, tmp_path: Path, flag: str) -> None:
    done = run(url, tmp_path, "--users", "1", "--calls", "2", "--turns", "2", flag, "--keep-for", "2h")
    assert done.stderr == ""
    store, is_audio = tmp_path / "store", flag == "--keep-audio"
    with StoreReader(store) as reader:
        calls = {(turn.run_id, turn.call_id) for turn in reader.turns(source="client")}
    assert len(calls) == 2
    heard: list[object] = []
    for run_id, call_id in calls:
        entry = find_call(store, run_id, call_id, 0)
        assert entry is not None
        assert entry.call is not None
        assert (entry.audio is not None) is is_audio
        assert entry.call.keep_until_unix_ns - entry.call.created_unix_ns == 2 * 3_600 * NS_PER_S
        # The words of the clip are of the corpus: they say to what one listens.
        heard += [text for turn in entry.call.turns for text in (turn.transcript, turn.reply, *turn.partials) if text]
    assert bool(heard) is not is_audio
    sound = [path for path in tmp_path.rglob("*") if path.is_file() and path.read_bytes()[:4] in (b"fLaC", b"RIFF")]
    assert len(sound) == (2 if is_audio else 0)


def test_unwritable_folder_is_named_before_any_call(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / FOLDER).write_text("in the way")
    flags = ("--users", "1", "--calls", "1", "--keep-audio", "--out", str(tmp_path))
    with raw_endpoint(upgraded(READY)) as endpoint:
        done = carried_out("run", endpoint.url, *QUICK, *flags, cwd=tmp_path)
    assert done.returncode == 2
    assert "recordings: cannot be made (File exists)" in " ".join(done.stderr.split())

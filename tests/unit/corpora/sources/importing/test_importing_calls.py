"""Tests of recorded calls: cut at the caller's pauses, in order, with the think times after the agent's speech."""

import json
from pathlib import Path

import numpy as np
import pytest

from corpora.manifest.conversations import ScriptedConversation
from corpora.manifest.errors import SourceError
from corpora.manifest.library import Corpus
from tests.unit.corpora.sources.importing.sources import RATE_HZ, Samples, import_source, opened, put, speech

# The caller's and the agent's speech as (start, end) in seconds. The fourth utterance interrupts the agent.
CALLER = ((2.0, 3.0), (5.0, 6.2), (7.1, 8.0), (10.0, 11.0))
AGENT = ((0.2, 1.5), (3.5, 4.5), (8.4, 10.5))


def speech_rows(spans: tuple[tuple[float, float], ...], seed: int, seconds: float = 12.0) -> Samples:
    rng = np.random.default_rng(seed)
    line = rng.standard_normal(round(seconds * RATE_HZ)) * 1e-4
    for start_s, end_s in spans:
        first, end = round(start_s * RATE_HZ), round(end_s * RATE_HZ)
        line[first:end] = rng.standard_normal(end - first) * 0.08
    return line


@pytest.fixture
def call(tmp_path: Path) -> Path:
    echo = speech_rows(AGENT, 2)
    # The echo is more than 50 dB below the speech; a louder one could not be distinguished from soft speech.
    caller = speech_rows(CALLER, 1) + 0.002 * echo
    return put(tmp_path / "in" / "call.wav", np.stack((caller, echo), axis=1))


def cut(call: Path, **changes: float) -> tuple[Corpus, ScriptedConversation]:
    corpus = opened(import_source(call.parent, call.parent.parent / "out", caller_channel=0, **changes))
    (conversation,) = corpus.conversations
    return corpus, conversation


def test_a_call_is_cut_at_the_pauses_and_kept_in_order(call: Path) -> None:
    corpus, conversation = cut(call)
    assert conversation.id == "call"
    assert [turn.utterance for turn in conversation.turns] == ["call-001", "call-002", "call-003", "call-004"]
    spoken_s = [utterance.speech_s for utterance in corpus.utterances]
    assert spoken_s == pytest.approx([1.0, 1.2, 0.9, 1.0], abs=0.03)


def test_think_times_are_measured_from_the_end_of_the_agents_speech(call: Path) -> None:
    _, conversation = cut(call)
    think_s = [turn.think_s for turn in conversation.turns]
    # The third follows a pause of the caller without a reply, so its think time is unknown. The fourth interrupts.
    assert think_s[:2] == [pytest.approx(0.5, abs=0.03), pytest.approx(0.5, abs=0.03)]
    assert think_s[2:] == [None, None]
    barge_in = [turn.barge_in_after_s for turn in conversation.turns]
    assert barge_in == [None, None, None, pytest.approx(1.6, abs=0.03)]


def test_a_longer_pause_setting_joins_utterances(call: Path) -> None:
    corpus, _ = cut(call, pause_s=1.0)
    assert [utterance.speech_s for utterance in corpus.utterances] == pytest.approx([1.0, 3.0, 1.0], abs=0.03)


def test_the_texts_come_from_a_transcript_beside_the_call(call: Path) -> None:
    segments = [
        {"start": 2.1, "end": 2.5, "text": "hello", "channel": 0},
        {"start": 2.5, "end": 2.9, "text": "there", "channel": 0},
        {"start": 3.6, "end": 4.4, "text": "how can I help", "channel": 1},
        {"start": 5.0, "end": 6.1, "text": "my card is gone"},
    ]
    call.with_suffix(".json").write_text(json.dumps({"segments": segments}))
    corpus, _ = cut(call)
    assert [utterance.text for utterance in corpus.utterances] == ["hello there", "my card is gone", None, None]


def test_a_call_with_one_channel_or_a_silent_caller_is_a_fault(tmp_path: Path) -> None:
    put(tmp_path / "in" / "mono.wav", speech())
    put(tmp_path / "in" / "silent.wav", np.stack((np.zeros(RATE_HZ), speech_rows(AGENT, 2)[:RATE_HZ]), axis=1))
    with pytest.raises(SourceError) as caught:
        import_source(tmp_path / "in", tmp_path / "out", caller_channel=0)
    mono, silent = caught.value.faults
    assert mono.startswith("mono.wav: has 1 channel, so it has no channel 0 for the caller")
    assert silent.startswith("silent.wav: nobody speaks on channel 0")


def test_a_caller_without_pauses_is_a_fault_with_the_times(tmp_path: Path) -> None:
    line = np.stack((speech_rows(((0.5, 11.0),), 1), speech_rows(AGENT, 2) * 0.1), axis=1)
    put(tmp_path / "in" / "long.wav", line)
    with pytest.raises(SourceError, match=r"from 0\.5 to 11\.0 s without a pause of 0\.7 s"):
        import_source(tmp_path / "in", tmp_path / "out", caller_channel=0, max_s=5.0)

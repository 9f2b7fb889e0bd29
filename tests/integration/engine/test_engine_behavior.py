"""Callers who speak into replies, say nothing or follow a script, against our assistant as a process of its own."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from corpora.manifest.conversations import ConversationTurn, ScriptedConversation, write_conversations
from corpora.manifest.library import open_corpus
from loadtest.conversation.record import BY_THE_CALLER, SILENT_BY_THEN
from loadtest.distributions import parse_delay
from loadtest.scenario.behavior import BargeIn, CallerBehavior, parse_point, parse_think
from telemetry.model.metrics import METRICS
from telemetry.model.turns import Turn
from tests.integration.calling import CORPUS, Callers, assistant
from tests.integration.runs.provoking import TRIES

MS = 1_000_000
PATIENT = CallerBehavior(turns=3, think=parse_think(0.1))
INTERRUPTING = CallerBehavior(turns=3, think=PATIENT.think, barge_in=[BargeIn(share=1.0, after=parse_point("500ms"))])


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An assistant that speaks no faster than people do: what it has sent when it stops is what it wanted to say."""
    with assistant(tmp_path_factory.mktemp("logs"), "--tts-pace", "1.5", "--llm-ttft", "constant:50ms") as address:
        yield address


def _reported(turns: list[Turn]) -> str:
    return str([(turn.outcome, turn.outcome_reason, turn.barge_in_reason) for turn in turns])


def test_barge_in_stops_reply_and_assistant_answers_it(url: str) -> None:
    # Of an assistant that the machine itself made silent for a while, a caller says so: then there is nothing to stop.
    for _ in range(TRIES):
        callers = Callers(url, 1, behavior=INTERRUPTING)
        (turns,) = callers.call()
        if not any(turn.barge_in_reason == SILENT_BY_THEN for turn in turns):
            break
    assert [turn.outcome for turn in turns] == ["ok"] * 3, _reported(turns)
    assert [turn.cut_short for turn in turns] == [True, True, None]
    assert [turn.turn_kind for turn in turns] == ["question", "barge_in", "barge_in"]
    for turn in turns:
        assert METRICS["voice_to_voice"].value(turn) is not None, "also the interrupted ones were answered"
        assert turn.wer_errors == 0, "each transcript belongs to its own turn"
    for turn in turns[1:]:
        assert turn.barge_in_at_ns is not None
        assert turn.barge_in_at_ns >= 480 * MS
        assert turn.barge_in_stop_ns is not None
        assert turn.barge_in_stop_ns > 0
        assert turn.talk_over_ns is not None
        assert turn.talk_over_ns > 0
        assert turn.barge_in_recovered is True
        assert turn.barge_in_reason is None
    # What the assistant says that it sent until it stopped is what arrived, and the caller heard no more than that.
    for exchange in callers.exchanges[:2]:
        reply = exchange.timeline.answer
        assert reply is not None
        assert reply.playback is not None
        assert reply.status == "cancelled"
        sent_ns = orjson.loads(reply.metadata["voice.injected"])["reply_audio_ns"]
        assert reply.playback.audio_ns == pytest.approx(sent_ns, abs=MS)
        assert reply.playback.first_audio_perf_ns is not None
        assert reply.playback.last_audio_perf_ns is not None
        assert reply.playback.last_audio_perf_ns - reply.playback.first_audio_perf_ns <= sent_ns
        assert not exchange.timeline.errors, "the assistant took the truncation"


@pytest.mark.nightly
def test_client_stops_reply_and_recovers_with_manual_turns(url: str) -> None:
    (turns,) = Callers(url, 1, behavior=INTERRUPTING.model_copy(update={"turns": 2}), manual_turns=True).call()
    assert [turn.outcome for turn in turns] == ["ok"] * 2, _reported(turns)
    assert (turns[1].barge_in_reason, turns[1].barge_in_stop_ns) == (BY_THE_CALLER, None)
    assert turns[1].barge_in_recovered is True


@pytest.mark.nightly
def test_silent_caller_gets_no_prompt_and_backchannel_stops(url: str) -> None:
    silent = CallerBehavior(turns=1, think=PATIENT.think, silence=1.0, silence_for=parse_delay("constant:700ms"))
    ((quiet,),) = Callers(url, 1, behavior=silent).call()
    assert (quiet.outcome, quiet.turn_kind, quiet.reprompted) == ("ok", "silence", False)
    assert quiet.utterance_id is None
    attentive = CallerBehavior(turns=1, think=PATIENT.think, talk_over=1.0)
    ((turn,),) = Callers(url, 1, behavior=attentive).call()
    assert (turn.outcome, turn.turn_kind) == ("ok", "question"), turn.outcome_reason
    assert turn.backchannel_stopped is True
    assert turn.wer_errors == 0


def test_script_is_replayed_in_order_and_intents_are_compared(url: str, tmp_path: Path) -> None:
    bundled = open_corpus(CORPUS)
    corpus = tmp_path / "scripted"
    shutil.copytree(bundled.path, corpus)
    turns = (ConversationTurn("home-lights-on", 0.1, "light"), ConversationTurn("home-lights-off", 0.1, "music"))
    write_conversations(corpus, [ScriptedConversation("evening", turns)])
    behavior = CallerBehavior(conversations=True)
    (heard,) = Callers(url, 1, behavior=behavior, corpus=str(corpus), length=None).call()
    assert [turn.utterance_id for turn in heard] == ["home-lights-on", "home-lights-off"]
    assert {turn.conversation for turn in heard} == {"evening"}
    assert [(turn.expected_intent, turn.intent) for turn in heard] == [("light", "light"), ("music", "light")]

"""Our callers against our assistant, as a process of its own: whole turns, what each side says of them, and callers who
speak into replies, say nothing or follow a script."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from corpora.manifest.conversations import ConversationTurn, ScriptedConversation, write_conversations
from corpora.manifest.library import open_corpus
from loadtest.conversation.record import BY_THE_CALLER, SILENT_BY_THEN
from loadtest.distributions import parse_delay
from loadtest.scenario.behavior import CallerBehavior, parse_think
from telemetry.model.metrics import METRICS
from tests.integration.calling import CORPUS, Callers, assistant, in_order, interrupting, reasons
from tests.integration.runs.provoking import TRIES

MS = 1_000_000
PATIENT = CallerBehavior(turns=3, think=parse_think(0.1))


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An assistant that speaks no faster than people do: what it has sent when it stops is what it wanted to say."""
    flags = ("--tts-pace", "1.5", "--llm-ttft", "constant:100ms", "--cohort", "treatment=0.5")
    with assistant(tmp_path_factory.mktemp("logs"), *flags) as address:
        yield address


def test_a_caller_completes_a_call_of_several_turns(url: str) -> None:
    (turns,) = Callers(url, 1, turns_per_call=2).call()
    assert [(turn.outcome, turn.turn_index) for turn in turns] == [("ok", 0), ("ok", 1)], reasons(turns)
    for turn in turns:
        in_order(
            turn.speech_end_perf_ns,
            turn.endpoint_perf_ns,
            turn.asr_final_perf_ns,
            turn.llm_first_token_perf_ns,
            turn.tts_first_chunk_perf_ns,
            turn.first_audio_perf_ns,
        )
        for name in (
            "voice_to_voice",
            "asr_final_latency",
            "llm_first_token_latency",
            "endpointing",
            "leading_silence",
        ):
            value = METRICS[name].value(turn)
            assert value is not None, name
            assert value > 0, name
        assert turn.wer_errors == 0
        assert turn.pacer == "thread"
        assert turn.receive_stamp == "kernel"
        assert turn.cohort in ("treatment", "control")
        assert turn.route in ("local", "cache")
    assert turns[0].connect_ns is not None
    assert turns[1].connect_ns is None


def test_manual_turns_do_not_wait_for_silence(url: str) -> None:
    for (turn,) in Callers(url, 2, manual_turns=True).call():
        assert turn.outcome == "ok", turn.outcome_reason
        latency = METRICS["asr_final_latency"].value(turn)
        assert latency is not None


@pytest.mark.nightly
def test_callers_with_noise_are_answered_at_the_requested_snr(url: str) -> None:
    for (turn,) in Callers(url, 3, noise="white", snr_db=20.0).call():
        assert turn.outcome == "ok", turn.outcome_reason
        assert turn.snr_obtained_db == pytest.approx(20.0, abs=0.1)


@pytest.mark.nightly
def test_a_caller_whose_patience_is_over_hangs_up(url: str) -> None:
    calls = Callers(url, 6, patience_s=0.05).call()
    assert {turns[0].outcome for turns in calls} == {"abandoned"}
    assert all("hung up" in (turns[0].outcome_reason or "") for turns in calls)


def test_endpoint_without_server_fails_first_turn() -> None:
    ((turn,),) = Callers("ws://127.0.0.1:9/v1/realtime", 1).call()
    assert turn.outcome == "error"
    assert "127.0.0.1:9" in (turn.outcome_reason or "")
    assert turn.connect_ns is None


def test_barge_in_stops_reply_and_assistant_answers_it(url: str) -> None:
    # Of an assistant that the machine itself made silent for a while, a caller says so: then there is nothing to stop.
    for _ in range(TRIES):
        callers = Callers(url, 1, behavior=interrupting("500ms", 3))
        (turns,) = callers.call()
        if not any(turn.barge_in_reason == SILENT_BY_THEN for turn in turns):
            break
    assert [turn.outcome for turn in turns] == ["ok"] * 3, reasons(turns)
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
    (turns,) = Callers(url, 1, behavior=interrupting("500ms"), manual_turns=True).call()
    assert [turn.outcome for turn in turns] == ["ok"] * 2, reasons(turns)
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

"""Our callers against our assistant, as processes of their own: whole turns, and what each side says of them."""

from pathlib import Path

import pytest

from telemetry.model.metrics import METRICS
from tests.integration.calling import Callers, assistant, in_order, reasons

MS = 1_000_000


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> object:
    with assistant(tmp_path_factory.mktemp("logs"), "--llm-ttft", "constant:100ms", "--cohort", "treatment=0.5") as url:
        yield url


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


def test_endpoint_without_server_fails_first_turn(tmp_path: Path) -> None:
    ((turn,),) = Callers("ws://127.0.0.1:9/v1/realtime", 1).call()
    assert turn.outcome == "error"
    assert "127.0.0.1:9" in (turn.outcome_reason or "")
    assert turn.connect_ns is None

"""Our callers against a real voice server that we did not write: the engine, not only the codec."""

from collections.abc import Iterator

import pytest

from telemetry.model.metrics import METRICS
from tests.integration.calling import Callers
from tests.integration.engine.s2s_process import s2s_server

MS = 1_000_000


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with s2s_server(units=2) as port:
        yield f"ws://127.0.0.1:{port}/v1/realtime?model=any"


def test_callers_complete_calls_of_several_turns(url: str) -> None:
    calls = Callers(url, 2, turns_per_call=2, endpointing_ms=None).call()
    output = [[(turn.outcome, turn.outcome_reason) for turn in turns] for turns in calls]
    assert output == [[("ok", None)] * 2] * 2
    leading_ns: list[int] = []
    for turn in (turn for turns in calls for turn in turns):
        values = {name: metric.value(turn) for name, metric in METRICS.items()}
        voice_to_voice, leading = values["voice_to_voice"], values["leading_silence"]
        assert voice_to_voice is not None
        assert voice_to_voice > 250 * MS, "the server waits for 320 ms of silence"
        # The server's reply begins with 100 ms of silence, which a caller has to wait for; a busy machine can only
        # stretch it.
        assert leading is not None
        assert leading >= 95 * MS
        leading_ns.append(leading)
        assert values["asr_final_latency"] is not None
        assert values["llm_first_token_latency"] is not None
        assert turn.asr_first_partial_perf_ns is not None
        assert turn.wer_errors, "its transcript is a fixed sentence that nobody said"
    assert min(leading_ns) <= 130 * MS, leading_ns

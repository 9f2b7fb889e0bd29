"""Our callers on telephone wires against Pipecat's runner: its own serializers, voice activity and turns."""

import pytest

from tests.integration.calling import Callers
from tests.nightly import nightly_after

MS = 1_000_000


@pytest.mark.parametrize(
    ("wire", "count"), nightly_after(1, [("twilio", 2), ("telnyx", 1), ("plivo", 1), ("exotel", 1)])
)
def test_a_call(wire: str, count: int, pipecat_port: int) -> None:
    url = f"ws://127.0.0.1:{pipecat_port}/ws"
    callers = Callers(url, 1, turns_per_call=count, endpointing_ms=None, protocol=wire, length="medium")
    (turns,) = callers.call()
    assert [(turn.outcome, turn.outcome_reason) for turn in turns] == [("ok", None)] * count
    for turn in turns:
        assert turn.tts_first_chunk_perf_ns is not None
        assert turn.leading_silence_ns is not None
        # The bot's replies begin with 100 ms of silence, which Pipecat resamples to the telephone's rate.
        assert 80 * MS <= turn.leading_silence_ns <= 130 * MS
        assert turn.reply_end_perf_ns is not None
        assert turn.first_audio_perf_ns is not None
        assert turn.asr_final_perf_ns is None
        assert "asr_final_latency" in turn.withheld_metrics

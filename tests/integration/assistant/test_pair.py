"""`voiceprobe pair` on two assistants that differ by a declared time."""

import json
from pathlib import Path
from typing import Any

import pytest

from telemetry.store.answers import Filter
from telemetry.store.reader import StoreReader
from tests.integration.assistant.assistant_process import assistant
from tests.integration.commands import completed

pytestmark = pytest.mark.nightly

EXACT = ("--asr-delay", "constant:10ms", "--tts-delay", "constant:10ms", "--tts-pace", "0", "--cache", "off")


def test_a_declared_difference_is_found_in_the_stage_that_has_it(tmp_path: Path) -> None:
    declared = ("constant:30ms", "constant:330ms")
    with (
        assistant(*EXACT, "--llm-answer", "Done.", "--llm-ttft", declared[0], quick=False) as fast,
        assistant(*EXACT, "--llm-answer", "Done.", "--llm-ttft", declared[1], quick=False) as slow,
    ):
        command = ["pair", f"fast={fast}", f"slow={slow}", "--corpus", "voiceprobe-en", "--length", "short"]
        done = completed(*command, "--pairs", "25", "--think", "0.05", "--out", "run", "--json", "p.json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "slow is slower than fast: voice to voice p50 +" in done.stdout
    result: dict[str, Any] = json.loads((tmp_path / "p.json").read_text())
    control, variant = result["variants"]
    assert (control["name"], variant["name"], variant["decision"]) == ("fast", "slow", "slower")
    of_stage = {
        difference["metric"]: difference for difference in variant["differences"] if difference["quantile"] == 0.5
    }
    for stage in ("voice_to_voice", "llm_first_token_latency"):
        assert of_stage[stage]["lower_ns"] <= 300e6 <= of_stage[stage]["upper_ns"], of_stage[stage]
    assert of_stage["asr_final_latency"]["lower_ns"] <= 0 <= of_stage["asr_final_latency"]["upper_ns"]
    with StoreReader(tmp_path / "run" / "store") as reader:
        for name in ("fast", "slow"):
            summary = reader.summary(Filter(run_id=result["run_id"], cohort=name))
            assert summary.turns.total == result["pairs"]

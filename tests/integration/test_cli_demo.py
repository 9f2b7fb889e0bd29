"""The whole way, once: the demo with recorded callers, checked against what its assistant says that it injected."""

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from loadtest.cli import processes
from loadtest.exit_codes import ExitCode
from loadtest.reports.summary import schema
from telemetry.store.reader import StoreReader
from telemetry.turns import Turn

CALLERS = 8
RUN_TIME = "90s"


def _pairs(store: Path) -> list[tuple[Turn, Turn]]:
    """Valid turns as the caller heard them, with what the assistant reports of the same turn."""
    with StoreReader(store) as reader:
        turns = reader.turns(limit=1_000_000)
    service = {(turn.trace_id, turn.response_id): turn for turn in turns if turn.source == "service"}
    return [
        (turn, service[turn.trace_id, turn.response_id])
        for turn in turns
        if turn.source == "client" and turn.outcome == "ok" and (turn.trace_id, turn.response_id) in service
    ]


def _voice_to_voice_ns(turn: Turn) -> int:
    assert turn.first_audio_perf_ns is not None
    assert turn.speech_end_perf_ns is not None
    return turn.first_audio_perf_ns - turn.speech_end_perf_ns


@pytest.mark.slow
def test_the_demo_measures_what_its_assistant_injected(tmp_path: Path) -> None:
    file = tmp_path / "summary.json"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "loadtest.cli.main",
            "demo",
            "--users",
            str(CALLERS),
            "--run-time",
            RUN_TIME,
            "--exit",
            "--json",
            str(file),
            "--out",
            str(tmp_path / "out"),
        ],
        env=processes.environment(),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.stderr == ""
    summary = json.loads(file.read_text())
    jsonschema.validate(summary, schema())
    assert done.returncode == summary["exit_code"]
    assert done.returncode in (ExitCode.OK, ExitCode.OBJECTIVE_MISSED, ExitCode.GENERATOR_LIMITED), done.stdout
    assert (done.returncode == ExitCode.GENERATOR_LIMITED) == summary["generator"]["limited"]
    assert summary["run"]["corpus"]["kind"] == "recorded human", "recorded speech can be had where CI runs"
    assert summary["telemetry"]["missing"] == 0
    assert len(summary["cohorts"]) == 2
    assert summary["cache"]["reported"] > 0
    assert summary["metrics"]["wer"]["n"] > 0

    pairs = _pairs(tmp_path / "out" / "store")
    assert len(pairs) >= 30
    errors_ms = []
    for client, service in pairs:
        # Each side believes that speech ended at its own place in the stream: the same moment is compared.
        assert client.speech_end_audio_ns is not None
        assert service.speech_end_audio_ns is not None
        expected_ns = _voice_to_voice_ns(service) + service.speech_end_audio_ns - client.speech_end_audio_ns
        errors_ms.append((_voice_to_voice_ns(client) - expected_ns) / 1e6)
    errors_ms.sort(key=abs)
    # p99 by the nearest rank: of n turns, all but the worst hundredth.
    worst = errors_ms[max(0, -(-len(errors_ms) * 99 // 100) - 1)]
    sys.stdout.write(f"voice-to-voice error over {len(pairs)} turns: p99 {worst:.2f} ms, max {errors_ms[-1]:.2f} ms\n")
    assert abs(worst) <= 5.0
    assert summary["agreement"]["joined"] == len(pairs)
    assert summary["agreement"]["max_abs_s"] == pytest.approx(abs(errors_ms[-1]) / 1e3, abs=1e-6)

    # What it injected is what it reports: the planned delays add up to its own voice-to-voice.
    for _, service in pairs:
        planned = (
            service.injected_endpointing_ns,
            service.injected_asr_ns,
            service.injected_tts_ns,
            service.injected_leading_silence_ns,
        )
        assert all(value is not None for value in planned)


def test_engines_that_are_unknown_are_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "loadtest.cli.main", "demo", "--engines", "magic"],
        env=processes.environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == ExitCode.USAGE
    assert done.stderr == "voiceprobe: --engines 'magic' is unknown: use scripted or real\n"

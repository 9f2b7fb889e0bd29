"""The whole way, once: the demo with recorded callers, checked against what its assistant says that it injected."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from loadtest.exit_codes import ExitCode
from loadtest.reports.summary import schema
from telemetry.model.stats import percentile
from telemetry.model.turns import Turn
from telemetry.store.reader import StoreReader
from tests.integration.commands import carried_out, completed
from tests.integration.runs.expected_exit import code_by_objectives

CALLERS = 8
RUN_TIME = "20s"
LIMIT_MS = 5.0
ENOUGH = 10  # valid turns, on a machine that leaves them valid


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


def _errors_ms(pairs: list[tuple[Turn, Turn]]) -> list[float]:
    """Heard - injected, the smallest error first. Each side believes that speech ended at its own place in the stream:
    the same moment is compared."""
    errors_ms = []
    for client, service in pairs:
        assert client.speech_end_audio_ns is not None
        assert service.speech_end_audio_ns is not None
        expected_ns = _voice_to_voice_ns(service) + service.speech_end_audio_ns - client.speech_end_audio_ns
        errors_ms.append((_voice_to_voice_ns(client) - expected_ns) / 1e6)
    return sorted(errors_ms, key=abs)


def _demo(out: Path, run_time: str = RUN_TIME) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    file = out / "summary.json"
    load = ("--users", str(CALLERS), "--run-time", run_time)
    done = completed("demo", *load, "--exit", "--json", str(file), "--out", str(out))
    assert done.stderr == ""
    return done, json.loads(file.read_text())


def test_the_demo_measures_what_its_assistant_injected(tmp_path: Path) -> None:
    # A machine that pauses in the wrong microsecond, or in most turns, is not the instrument: it gets a second chance.
    for attempt in ("first", "second"):
        done, summary = _demo(tmp_path / attempt)
        pairs = _pairs(tmp_path / attempt / "store")
        assert pairs
        errors_ms = _errors_ms(pairs)
        p50_ms, p99_ms = (percentile([abs(error_ms) for error_ms in errors_ms], share) for share in (0.5, 0.99))
        assert p50_ms is not None
        assert p99_ms is not None
        sys.stdout.write(f"{len(pairs)} turns, heard - injected: p50 {p50_ms:.2f} ms, p99 {p99_ms:.2f} ms\n")
        if len(pairs) >= ENOUGH and p50_ms <= LIMIT_MS:
            break
    # What is wrong with the instrument shows in every turn; the worst ones show what else this machine was doing.
    assert p50_ms <= LIMIT_MS
    assert summary["client_service_delta"]["joined"] == len(pairs)
    assert summary["client_service_delta"]["max_abs_s"] == pytest.approx(abs(errors_ms[-1]) / 1e3, abs=1e-6)
    _check_summary(done, summary)
    for _, service in pairs:
        planned_ns = [
            service.injected_endpointing_ns,
            service.injected_asr_ns,
            service.injected_llm_ns,
            service.injected_tts_ns,
            service.injected_leading_silence_ns,
        ]
        assert None not in planned_ns
        assert _voice_to_voice_ns(service) >= sum(value or 0 for value in planned_ns) - 1_000_000, "never early"


def _check_summary(done: subprocess.CompletedProcess[str], summary: dict[str, Any]) -> None:
    jsonschema.validate(summary, schema())
    assert done.returncode == summary["exit_code"]
    assert done.returncode == code_by_objectives(summary), done.stdout
    assert summary["run"]["corpus"]["kind"] == "recorded human", "recorded speech can be had where CI runs"
    assert summary["telemetry"]["missing"] == 0
    assert len(summary["cohorts"]) == 2
    assert summary["cache"]["reported"] > 0
    assert summary["metrics"]["wer"]["n"] > 0
    assert {objective["name"] for objective in summary["objectives"]} >= {"voice-to-voice", "good-turns"}
    assert "dashboard: http://127.0.0.1:" in done.stdout


def test_engines_that_are_unknown_are_refused(tmp_path: Path) -> None:
    done = carried_out("demo", "--engines", "magic", cwd=tmp_path)
    assert done.returncode == ExitCode.USAGE
    assert done.stderr == "voiceprobe: --engines 'magic' is unknown: use scripted or real\n"


@pytest.fixture
def busy_machine() -> Iterator[None]:
    """Keep every core busy all the time, at the priority of the demo."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    yield
    ended = [loop.poll() for loop in loops]
    for loop in loops:
        loop.kill()
        loop.wait()
    assert ended == [None] * len(loops), "it was busy until the end"


@pytest.mark.nightly
@pytest.mark.usefixtures("busy_machine")
def test_the_demo_ends_well_on_a_busy_machine(tmp_path: Path) -> None:
    done, summary = _demo(tmp_path / "out", "10s")
    assert done.returncode == code_by_objectives(summary)
    # How many turns are valid is up to the machine; that callers were heard, and that nothing is lost, is not.
    assert summary["turns"]["total"] > 0
    assert set(summary["turns"]["by_outcome"]) <= {"ok", "cut", "invalid"}
    assert summary["telemetry"]["missing"] == 0
    assert "report: " in done.stdout
    assert "Traceback" not in "".join(path.read_text() for path in (tmp_path / "out" / "logs").iterdir())

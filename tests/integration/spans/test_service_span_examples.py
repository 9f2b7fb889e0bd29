"""The examples of a service's own spans are run against a sidecar, and their turns come out of its store."""

import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from telemetry.model.metrics import METRICS
from telemetry.model.services import service_run_id
from telemetry.model.turns import Turn
from telemetry.store.reader import StoreReader
from tests import asking
from tests.fixtures_sidecar import ROOT, SidecarProcess, running_sidecar
from tests.integration.waiting import wait_until
from tests.programs import needed

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
EXAMPLES = ROOT / "examples" / "service-spans"
MS = 1_000_000


def _run(sidecar: SidecarProcess, *command: str | Path) -> None:
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": sidecar.http, "OTEL_SERVICE_NAME": "my-bot", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def _turns(store: Path) -> list[Turn]:
    with StoreReader(store) as reader:
        return reader.turns(limit=10, source="service")


def _value_ms(turn: Turn, metric: str) -> float:
    value = METRICS[metric].value(turn)
    assert value is not None
    return value / MS


def test_the_example_in_python(tmp_path: Path) -> None:
    with running_sidecar(tmp_path) as sidecar:
        _run(sidecar, sys.executable, EXAMPLES / "turn.py")
        assert sidecar.terminate() == 0
    (turn,) = _turns(tmp_path)
    assert turn.run_id == service_run_id("my-bot", turn.started_unix_ns)
    assert (turn.call_id, turn.turn_index, turn.outcome) == ("call-1", 0, "ok")
    assert (turn.route, turn.cache_tier, turn.cache_hit, turn.fallback) == ("cache", "edge", True, "cached")
    assert (turn.cohort, turn.model) == ("canary", "small")
    # The example waits at least so long between its moments.
    assert _value_ms(turn, "asr_partial_latency") >= 50
    assert _value_ms(turn, "asr_final_latency") >= 200
    assert _value_ms(turn, "llm_first_token_latency") >= 250
    assert _value_ms(turn, "tts_first_chunk_latency") >= 50
    assert _value_ms(turn, "voice_to_voice") >= 300


def test_turn_of_the_node_example_is_in_every_view(tmp_path: Path) -> None:
    asked = 'cohort="canary",objective="voice-to-voice",service_name="my-bot",source="service",stage="turn"'
    with running_sidecar(tmp_path) as sidecar:
        _run(sidecar, needed("node"), EXAMPLES / "turn.mjs")
        wait_until(
            lambda: f"voice_objective_good_turns_total{{{asked}}} 1.0\n" in asking.get(f"{sidecar.http}/metrics").text
        )
        (turn,) = _turns(tmp_path)
        assert (turn.call_id, turn.outcome, turn.route, turn.cohort) == (turn.trace_id, "ok", "cloud", "canary")
        latencies = ("asr_final_latency", "llm_first_token_latency", "tts_first_chunk_latency", "voice_to_voice")
        assert [_value_ms(turn, name) for name in latencies] == [250, 450, 150, 600]
        assert turn.asr_first_partial_perf_ns is None
        with StoreReader(tmp_path) as reader:
            assert turn.run_id in {run.run_id for run in reader.runs()}
        page = asking.get(f"{sidecar.http}/metrics", headers={"accept": OPENMETRICS}).text
        families = {family.name: family for family in text_string_to_metric_families(page)}
        (bucket,) = [
            sample
            for sample in families["voice_service_turn_voice_to_voice_seconds"].samples
            if sample.exemplar is not None
        ]
        assert bucket.exemplar is not None
        assert (bucket.labels["le"], bucket.exemplar.labels) == ("0.6", {"trace_id": turn.trace_id})
        plain = asking.get(f"{sidecar.http}/metrics").content
        done = subprocess.run(
            [needed("promtool"), "check", "metrics"], input=plain, capture_output=True, timeout=180, check=False
        )
        assert (done.returncode, done.stdout + done.stderr) == (0, b"")


HELPED = """
import time
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from voice_turns import VoiceTurn

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
for outcome in ("ok", "abandoned"):
    with VoiceTurn("call-7", cohort="control") as turn:
        turn.mark("speech.end", seconds_ago=0.3)
        for _ in range(500):
            turn.mark("asr.partial")
            turn.mark("llm.first_token")
        if outcome == "ok":
            turn.mark("tts.first_chunk")
        turn.set(route="cloud", fallback="model", model="small", outcome=outcome)
provider.shutdown()
"""


@pytest.mark.nightly
def test_the_helper_in_python(tmp_path: Path) -> None:
    (tmp_path / "voice_turns.py").write_text((EXAMPLES / "voice_turns.py").read_text())
    (tmp_path / "service.py").write_text(HELPED)
    with running_sidecar(tmp_path / "store") as sidecar:
        _run(sidecar, sys.executable, tmp_path / "service.py")
        assert sidecar.terminate() == 0
    turns = sorted(_turns(tmp_path / "store"), key=lambda turn: turn.started_unix_ns)
    assert [turn.outcome for turn in turns] == ["ok", "abandoned"]
    for turn in turns:
        assert (turn.call_id, turn.cohort, turn.route, turn.fallback) == ("call-7", "control", "cloud", "model")
        assert turn.model == "small"
        assert _value_ms(turn, "llm_first_token_latency") >= 300
        assert turn.asr_first_partial_perf_ns is not None
        assert turn.llm_first_token_perf_ns is not None
        # The first of 500 counts, and it was not lost.
        assert abs(turn.llm_first_token_perf_ns - turn.asr_first_partial_perf_ns) < 100 * MS
    assert turns[0].first_audio_perf_ns is not None
    assert turns[1].first_audio_perf_ns is None

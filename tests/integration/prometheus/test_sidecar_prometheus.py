"""/metrics against the real thing: promtool's linter, and a Prometheus that scrapes it."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from telemetry.model.metrics import METRICS
from telemetry.objectives.slo import count_turns, load_objectives
from tests import asking
from tests.fixtures_sidecar import ROOT, SidecarProcess, running_sidecar, turns_request
from tests.fixtures_turns import synthetic_run
from tests.integration.prometheus.prometheus_process import running_prometheus
from tests.programs import needed

PROTOBUF = {"content-type": "application/x-protobuf"}
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
TURNS = 120


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarProcess]:
    with running_sidecar(tmp_path_factory.mktemp("store")) as sidecar:
        body = turns_request(synthetic_run(turns=TURNS).turns).SerializeToString()
        for _ in range(2):  # a retry must not count twice
            assert asking.post(f"{sidecar.http}/v1/traces", content=body, headers=PROTOBUF).status_code == 200
        yield sidecar


def _samples(text: str, name: str) -> float:
    return sum(
        float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith((f"{name}{{", f"{name} "))
    )


def test_counts_are_those_of_the_turns_that_were_stored(sidecar: SidecarProcess) -> None:
    text = asking.get(f"{sidecar.http}/metrics").text
    run = synthetic_run(turns=TURNS)
    clients = [turn for turn in run.turns if turn.source == "client"]
    valid = [turn for turn in clients if turn.outcome != "invalid"]
    heard = [v for turn in valid if (v := METRICS["voice_to_voice"].value(turn)) is not None]
    assert _samples(text, "voice_turns_total") == TURNS
    assert _samples(text, "voice_turns_invalid_total") == len(clients) - len(valid) > 0
    assert _samples(text, "voice_turn_voice_to_voice_seconds_count") == len(heard)
    assert _samples(text, "voice_turn_voice_to_voice_seconds_sum") == pytest.approx(sum(heard) / 1e9)
    assert _samples(text, "voice_telemetry_duplicate_items_total") == 4 * TURNS
    assert _samples(text, "voice_telemetry_missing_turns") == 0


def test_no_label_identifies_a_call_a_user_or_an_utterance(sidecar: SidecarProcess) -> None:
    text = asking.get(f"{sidecar.http}/metrics", headers={"accept": OPENMETRICS}).text
    assert '# {trace_id="' in text, "exemplars carry the trace"
    without_exemplars = "\n".join(line.partition(" # ")[0] for line in text.splitlines() if not line.startswith("#"))
    for identity in ("call-", "utterance-", "resp-", "trace_id", "span_id"):
        assert identity not in without_exemplars


def test_promtool_finds_nothing_to_say(sidecar: SidecarProcess) -> None:
    body = asking.get(f"{sidecar.http}/metrics").content
    done = subprocess.run(
        [needed("promtool"), "check", "metrics"], input=body, capture_output=True, timeout=180, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")


def test_the_objectives_of_a_file_are_boundaries_and_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "objectives.yaml"
    example = (ROOT / "examples" / "objectives.yaml").read_text()
    file.write_text(example.replace("threshold: 1s", "threshold: 777ms"))
    clients = [turn for turn in synthetic_run(turns=TURNS).turns if turn.source == "client"]
    with running_sidecar(tmp_path / "store", "--slo", str(file)) as sidecar:
        body = turns_request(clients).SerializeToString()
        assert asking.post(f"{sidecar.http}/v1/traces", content=body, headers=PROTOBUF).status_code == 200
        text = asking.get(f"{sidecar.http}/metrics").text
    series = {sample: value for sample, _, value in (line.rpartition(" ") for line in text.splitlines())}
    within = [v for name, v in series.items() if name.startswith("voice_turn_voice_to_voice") and 'le="0.777"' in name]
    heard = [
        value
        for turn in clients
        if turn.outcome != "invalid" and (value := METRICS["voice_to_voice"].value(turn)) is not None
    ]
    assert sum(map(float, within)) == sum(value <= 777_000_000 for value in heard) > 0
    (promise,) = [
        name for name in series if name.startswith("voice_objective_target_ratio") and "voice-to-voice" in name
    ]
    assert "at most 777 ms" in promise
    good, eligible = (
        sum(
            float(v)
            for name, v in series.items()
            if name.startswith(f"voice_objective_{which}_turns_total{{") and 'objective="v' in name
        )
        for which in ("good", "eligible")
    )
    (objective, _) = load_objectives(file)
    counted = count_turns(clients)(objective)
    assert (good, eligible) == (counted.good, counted.eligible)


@pytest.mark.nightly
def test_a_real_prometheus_scrapes_it_with_exemplars(sidecar: SidecarProcess, tmp_path: Path) -> None:
    with running_prometheus(tmp_path, [sidecar.http], interval="2s") as prometheus:
        counted = "sum(voice_turn_voice_to_voice_seconds_count)"
        (sample,) = prometheus.until(lambda: prometheus.query(counted), counted)
        assert float(sample["value"][1]) > 100
        (up,) = prometheus.query("max_over_time(up[1m])")
        assert up["value"][1] == "1"
        asked = {"query": "voice_turn_voice_to_voice_seconds_bucket", "start": "0", "end": "9999999999"}
        exemplars = prometheus.data("/api/v1/query_exemplars", asked)
        assert len(exemplars[0]["exemplars"][0]["labels"]["trace_id"]) == 32

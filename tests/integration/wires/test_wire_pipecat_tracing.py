"""A real Pipecat bot with tracing on, its exporter pointed at our sidecar: both sides of each turn, joined."""

import json
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from loadtest.run.report import report
from loadtest.run.run_place import NamedRun
from telemetry.model.metrics import METRICS
from telemetry.model.turns import Turn
from telemetry.store.answers import Filter
from telemetry.store.reader import StoreReader
from tests import asking
from tests.fixtures_sidecar import running_sidecar, turns_request
from tests.integration.calling import Callers, reasons
from tests.integration.commands import completed
from tests.integration.peers import processes
from tests.integration.waiting import stored_turns, wait_until

pytestmark = pytest.mark.nightly

PROTOBUF = {"content-type": "application/x-protobuf"}
CALLERS = 3
PROVIDER = {"TWILIO_ACCOUNT_SID": "ACtest", "TWILIO_AUTH_TOKEN": "none", "OTEL_PROPAGATORS": "baggage"}


def assert_joined(reader: StoreReader, heard: Sequence[Turn], *, has_trace: bool) -> None:
    """Each turn of callers has what the bot reported of it, and the store's difference is that of the two."""
    (view,) = (run for run in reader.runs() if run.service is not None)
    assert view.service is not None
    assert view.service.service == "pipecat-bot"
    differences: list[float] = []
    for client in heard:
        own, service = reader.turn(client.trace_id, client.turn_index)
        assert own is not None
        assert service is not None, f"the bot reported nothing of turn {client.turn_index}"
        assert (service.trace_id == client.trace_id) is has_trace
        ours, theirs = (METRICS["voice_to_voice"].value(turn) for turn in (own, service))
        assert ours is not None
        assert theirs is not None
        differences.append(ours - theirs)
    for run_id in (heard[0].run_id, view.run_id):
        delta = reader.summary(Filter(run_id=run_id)).client_service_delta
        assert (delta.joined, delta.client_only) == (len(heard), 0)
        assert delta.difference_abs_max_ns == max(map(abs, differences))
        assert delta.difference_p50_ns is not None
        assert delta.uncorrected == len(heard), "Pipecat does not state where on the line speech ended"


@pytest.mark.parametrize(
    ("protocol", "path", "turns_per_call", "has_trace"),
    # A provider of telephone calls passes no header on.
    [("pipecat", "/ws-client", 2, True), ("twilio", "/ws", 1, False)],
)
def test_bot_under_load_reports_turns_that_its_callers_heard(
    tmp_path: Path, protocol: str, path: str, turns_per_call: int, has_trace: bool
) -> None:
    store, port = tmp_path / "store", processes.free_port()
    with running_sidecar(store) as sidecar:
        # All that a team changes for its bot's turns to be seen is the address.
        environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": sidecar.http} | ({} if has_trace else PROVIDER)
        with processes.running(processes.pipecat_runner(port), port, tmp_path / "log", environment=environment):
            callers = Callers(f"ws://127.0.0.1:{port}{path}", CALLERS, turns_per_call, endpointing_ms=None)
            callers.protocol, callers.clips = protocol, 4
            calls = callers.call()
            # The bot exports what has ended every five seconds, and a turn of it is whole some time later.
            wait_until(lambda: stored_turns(store) >= CALLERS * turns_per_call)
        heard = [
            msgspec.structs.replace(turn, trace_id=f"{call + 1:032x}", span_id=f"{call + 1:08x}{turn.turn_index:08x}")
            for call, turns in enumerate(calls)
            for turn in turns
        ]
        assert [turn.outcome for turn in heard] == ["ok"] * CALLERS * turns_per_call, reasons(heard)
        body = turns_request(heard).SerializeToString()
        assert asking.post(f"{sidecar.http}/v1/traces", content=body, headers=PROTOBUF).status_code == 200
        assert sidecar.terminate() == 0
    with StoreReader(store) as reader:
        assert_joined(reader, heard, has_trace=has_trace)
    shown = StringIO()
    report(NamedRun(str(store), heard[0].run_id), Console(file=shown, width=200))
    assert f"client against service on {len(heard)} turns" in " ".join(shown.getvalue().split())


def test_run_report_waits_for_turns_the_bot_still_reports(tmp_path: Path) -> None:
    """The last ones are whole up to 15 s after they were heard: their export takes 5 s, and their assembly 10."""
    store, port, out = tmp_path / "store", processes.free_port(), tmp_path / "out"
    with running_sidecar(store) as sidecar:
        environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": sidecar.http}
        with processes.running(processes.pipecat_runner(port), port, tmp_path / "log", environment=environment):
            load = ("--users", "2", "--calls", "4", "--turns", "2", "--length", "short")
            url = f"ws://127.0.0.1:{port}/ws-client"
            done = completed(
                "run", url, "--protocol", "pipecat", *load, "--sidecar", sidecar.http, "--out", str(out), cwd=tmp_path
            )
    delta = json.loads((out / "summary.json").read_text())["client_service_delta"]
    assert (delta["joined"], delta["client_only"]) == (8, 0), done.stdout + done.stderr
    assert "client against service on 8 turns" in (out / "report.html").read_text()

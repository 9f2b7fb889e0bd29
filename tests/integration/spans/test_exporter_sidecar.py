"""The whole of the telemetry way: emitted here, received by the real sidecar, read from the store, equal."""

from pathlib import Path

from telemetry.export.encoded_spans import EncodedRequest
from telemetry.export.instrumentation import CallTrace, GeneratorGauges, announce_run
from telemetry.export.otlp_http import OtlpHttpExporter
from telemetry.export.sdk import SdkOptions, start
from telemetry.export.span_log import replay
from telemetry.model.turns import Turn
from telemetry.store.answers import Filter
from telemetry.store.reader import StoreReader
from tests.fixtures_sidecar import running_sidecar
from tests.fixtures_turns import MS, exchange

UNIX = 1_790_000_000_000_000_000


def turn(index: int) -> Turn:
    """A turn that is heard after 510 ms, and 1 ms more for each before it."""
    return exchange(index, run_id="run", call_id="call", turn_index=index, network_ms=float(index))[0]


def test_emitted_turns_equal_those_of_the_store(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with running_sidecar(store) as sidecar:
        telemetry = start(SdkOptions(sidecar.http, "generator", {}, tmp_path / "spool"))
        announce_run(telemetry, "run", "start", {"users": 8}, wall_ns=lambda: UNIX)
        GeneratorGauges(telemetry, "run").report(cpu_ratio=0.5, loop_lag_worst_ns=3 * MS)
        call = CallTrace(
            telemetry,
            run_id="run",
            call_id="call",
            source="client",
            started_unix_ns=UNIX,
            started_perf_ns=0,
            attributes={},
        )
        emitted = [call.emit(turn(index)) for index in range(40)]
        call.end(300_000 * MS, {})
        announce_run(telemetry, "run", "end", {}, wall_ns=lambda: UNIX + 300_000 * MS)
        assert telemetry.flush(30)
        telemetry.shutdown(10)
        stats = telemetry.export_stats()
        assert (stats.exported_spans, stats.spooled_spans, stats.dropped_spans, stats.rejected_spans) == (163, 0, 0, 0)
        with StoreReader(store) as reader:
            summary = reader.summary(Filter(run_id="run"))
            (run,) = reader.runs()
            stored = reader.turns(Filter(run_id="run"))
        assert sorted(stored, key=lambda turn: turn.turn_index) == emitted
        assert (summary.turns.total, summary.turns.ok) == (40, 40)
        assert (summary.loss.emitted, summary.loss.received, summary.loss.missing) == (40, 40, 0)
        assert summary.metrics["voice_to_voice"].p50 == 529.5 * MS
        assert summary.generator["cpu_ratio_worst"] == 0.5
        assert summary.generator["loop_lag_worst_ns"] == 3 * MS
        assert run.ended
        assert run.declared["users"] == "8"


def test_spooled_turns_reach_a_later_sidecar(tmp_path: Path) -> None:
    alone = start(SdkOptions(None, "generator", {}, tmp_path / "spool"))
    call = CallTrace(
        alone, run_id="run", call_id="call", source="client", started_unix_ns=UNIX, started_perf_ns=0, attributes={}
    )
    emitted = [call.emit(turn(index)) for index in range(5)]
    alone.shutdown(10)
    assert alone.export_stats().spooled_spans == 20
    store = tmp_path / "store"
    with running_sidecar(store) as sidecar:
        sender = OtlpHttpExporter(sidecar.http, None, timeout_s=60.0)

        def deliver(record: EncodedRequest) -> bool:
            return sender.send(record).outcome == "taken"

        assert replay(tmp_path / "spool", deliver).spans == 20
        with StoreReader(store) as reader:
            summary = reader.summary(Filter(run_id="run"))
            stored = reader.turns(Filter(run_id="run"))
    assert sorted(stored, key=lambda turn: turn.turn_index) == emitted
    assert (summary.loss.emitted, summary.loss.received) == (5, 5)

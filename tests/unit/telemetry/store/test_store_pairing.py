"""Both sides of a turn in one row, however and in which order they come. Expected: by a search of every service's turn
for every client's, in Python, of the turns that were given."""

import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pytest

import telemetry
from telemetry.model.services import service_run_id
from telemetry.model.turns import Turn
from telemetry.store import pairing
from telemetry.store.answers import Filter
from telemetry.store.database import read_only
from telemetry.store.export import export, import_export
from telemetry.store.pairing import digest
from telemetry.store.reader import StoreReader
from telemetry.store.retention import Keep, Retention
from telemetry.store.schema import PAIRED_COLUMNS, WHOLE_SCHEMAS, Batch
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import MS, SECOND, START_UNIX_NS, client_turn, exchange
from tests.nightly import nightly_after

VIEW: Final = service_run_id("bot", START_UNIX_NS)
HOUR: Final = 3600 * SECOND
Ids = tuple[str, str]


def made(seed: int) -> list[Turn]:
    """Turns of both sides of 40 calls: services that continue the trace, name it, name the call, or nothing; of some
    turns one side alone, of some two reports; clocks apart by less than an hour."""
    rng, turns = random.Random(seed), list[Turn]()
    for call in range(40):
        apart_ns, known_by, has_ids = rng.randrange(-40, 40) * 60 * SECOND, rng.randrange(4), rng.random() < 0.5
        for index in range(call * 3, call * 3 + 3):
            client, service = exchange(index, network_ms=rng.randrange(80), asr_ms=rng.randrange(20, 90))
            own: dict[str, Any] = {"started_unix_ns": service.started_unix_ns + apart_ns}
            if known_by:
                own |= {"trace_id": f"{call + 1:032x}", "run_id": VIEW}
                own["call_id"] = ("", f"v3:{client.trace_id.upper()}", client.call_id, f"other-{call}")[known_by]
            if not has_ids:
                own["response_id"] = None
            if rng.random() < 0.2:
                own["speech_end_audio_ns"] = 2_350 * MS
            if rng.random() < 0.1:
                own["first_audio_perf_ns"] = None
            service = msgspec.structs.replace(service, **own)
            again = msgspec.structs.replace(service, span_id="f" * 8 + f"{index:08x}")
            again = msgspec.structs.replace(again, started_unix_ns=service.started_unix_ns + 1)
            client = msgspec.structs.replace(client, outcome="invalid" if rng.random() < 0.1 else "ok")
            sides = rng.choices([[client, service], [client], [service], [client, service, again]], [6, 2, 1, 1])[0]
            turns += sides
    return turns


def expected(turns: Sequence[Turn]) -> dict[Ids, tuple[str | None, ...]]:
    """Return the run, trace and span of the other side by the ids of a turn."""
    clients = [turn for turn in turns if turn.source == "client"]
    services = sorted((turn for turn in turns if turn.source == "service"), key=lambda turn: turn.started_unix_ns)
    heard: dict[Ids, Turn | None] = {}
    for service in services:
        of_trace = [c for c in clients if c.trace_id == service.trace_id]
        of_name = [c for c in clients if service.call_id.replace("-", "").lower().endswith(c.trace_id)]
        of_call = [c for c in clients if c.call_id == service.call_id]
        heard[service.trace_id, service.span_id] = next(iter(of_trace or of_name or of_call), None)
    calls: dict[Ids, tuple[str | None, ...]] = {(c.trace_id, c.span_id): (None, None, None) for c in clients}
    for service in services:
        ids, call = (service.trace_id, service.span_id), heard[service.trace_id, service.span_id]
        if call is None:
            calls[ids] = (None, None, None)
            continue
        mine = [
            c
            for c in clients
            if c.trace_id == call.trace_id
            and (
                c.turn_index == service.turn_index
                if service.response_id is None
                else c.response_id == service.response_id
            )
        ]
        calls[ids] = (call.run_id, call.trace_id, mine[0].span_id if mine else None)
        if mine and calls[mine[0].trace_id, mine[0].span_id][2] is None:
            calls[mine[0].trace_id, mine[0].span_id] = (service.run_id, *ids)
    return calls


def held(store: Path) -> dict[Ids, tuple[int | None, ...]]:
    """The digests that the rows of a store have of the other side's run, call and turn."""
    with read_only(store) as database, database.snapshot() as cursor:
        rows = cursor.execute("SELECT trace_id, span_id, heard_call, other_run, other_turn FROM turns").fetchall()
    return {(trace, span): tuple(other) for trace, span, *other in rows}


def digests(turns: Sequence[Turn]) -> dict[Ids, tuple[int | None, ...]]:
    """Return the expected `held`: a turn of a caller names its own call, one of a service that which a caller heard."""
    clients = {(turn.trace_id, turn.span_id): turn.trace_id for turn in turns if turn.source == "client"}
    return {
        ids: (
            digest(clients[ids]) if ids in clients else None if trace is None else digest(trace),
            None if run is None else digest(run),
            None if trace is None or span is None else digest(trace, span),
        )
        for ids, (run, trace, span) in expected(turns).items()
    }


def heard_ms(turn: Turn) -> float | None:
    if turn.first_audio_perf_ns is None or turn.speech_end_perf_ns is None:
        return None
    return (turn.first_audio_perf_ns - turn.speech_end_perf_ns) / MS


def differences_ms(turns: Sequence[Turn]) -> list[float]:
    """Client-heard minus service-reported, of valid turns, by the moment at which both believe that speech ended."""
    by_ids = {(turn.trace_id, turn.span_id): turn for turn in turns}
    values: list[float] = []
    for ids, (_, trace, span) in expected(turns).items():
        client = by_ids[ids]
        if client.source != "client" or client.outcome == "invalid" or trace is None or span is None:
            continue
        service = by_ids[trace, span]
        if (heard := heard_ms(client)) is not None and (reported := heard_ms(service)) is not None:
            later = ((service.speech_end_audio_ns or 0) - (client.speech_end_audio_ns or 0)) / MS
            values.append(heard - reported - later)
    return values


@pytest.mark.slow
# One seed of each order every day.
@pytest.mark.parametrize("seed", nightly_after(3, range(6)))
def test_sides_are_joined_in_any_order_of_any_batches(tmp_path: Path, seed: int) -> None:
    turns, rng = made(seed), random.Random(seed)
    arriving = [turns, turns[::-1], rng.sample(turns, len(turns))][seed % 3]
    place = 0
    while place < len(arriving):
        with StoreWriter(tmp_path) as writer:  # the store is opened again and again
            for _ in range(4):
                size = rng.choice((1, 3, 40))
                writer.append(Batch(arriving[place : place + size]))
                writer.append(Batch(arriving[max(0, place - 5) : place + size]))  # sent again
                place += size
    assert held(tmp_path) == digests(turns)
    with StoreReader(tmp_path) as reader:
        delta = reader.summary(Filter(run_id="run-1")).client_service_delta
    differences = differences_ms(turns)
    assert delta.joined == len(differences) > 30
    assert (delta.difference_p50_ns or 0) / MS == pytest.approx(np.percentile(differences, 50))
    assert (delta.difference_abs_max_ns or 0) / MS == pytest.approx(max(map(abs, differences)))
    export(tmp_path, tmp_path / "files")
    import_export(tmp_path / "files", tmp_path / "imported")
    assert held(tmp_path / "imported") == digests(turns)


@pytest.mark.slow
def test_late_side_is_paired_after_names_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairing, "_MANY_NAMES", 0)
    turns = made(7)
    later = [client_turn(900 + day, started_unix_ns=START_UNIX_NS + day * 24 * HOUR) for day in range(3)]
    with StoreWriter(tmp_path) as writer:
        writer.append(Batch([turn for turn in turns if turn.source == "service"]))
        writer.append(Batch(later))
        for client in (turn for turn in turns if turn.source == "client"):
            writer.append(Batch([client]))
    assert held(tmp_path) == digests([*turns, *later])


@pytest.mark.slow
def test_updated_turn_is_paired_again_and_removed_one_is_not(tmp_path: Path) -> None:
    client, service = exchange(0)
    pending = msgspec.structs.replace(
        service, outcome="pending", first_audio_perf_ns=None, tts_first_chunk_perf_ns=None
    )

    def tts_ms(reader: StoreReader) -> tuple[float | None, bool, int]:
        stage = reader.stage_budget()["tts"]
        return (stage.p50_ns or 0) / MS, stage.by_service, reader.summary().client_service_delta.joined

    with StoreWriter(tmp_path) as writer, StoreReader(tmp_path) as reader:
        writer.append(Batch([client]))
        writer.replace_turns([(None, pending)])
        assert reader.turn(client.trace_id, 0) == (client, pending)
        assert tts_ms(reader) == (80.0, False, 0)  # as the client saw it
        slower = msgspec.structs.replace(
            service, tts_first_chunk_perf_ns=(service.tts_first_chunk_perf_ns or 0) + 5 * MS
        )
        for before, turn in ((pending, service), (service, slower)):
            writer.replace_turns([(before, turn)])
            assert reader.turn(client.trace_id, 0) == (client, turn)
        assert tts_ms(reader) == (85.0, True, 1)
        writer.replace_turns([(slower, None)])
        assert reader.turn(client.trace_id, 0) == (client, None)
        assert tts_ms(reader) == (80.0, False, 0)


def test_a_name_that_two_calls_have_says_nothing(tmp_path: Path) -> None:
    clients = [client_turn(index, call_id="call-1", turn_index=index) for index in range(2)]
    service = msgspec.structs.replace(exchange(0)[1], trace_id="a" * 32, call_id="call-1", response_id=None)
    with StoreWriter(tmp_path) as writer:
        writer.append(Batch([*clients, service]))
    assert {other[1:] for other in held(tmp_path).values()} == {(None, None)}


def test_retention_of_one_side_leaves_measures_of_the_other(tmp_path: Path) -> None:
    now = [START_UNIX_NS]
    client, service = exchange(0, network_ms=9)
    with StoreWriter(tmp_path, unix_ns=lambda: now[0]) as writer, StoreReader(tmp_path) as reader:
        writer.append(Batch([service]))
        now[0] += 2 * HOUR
        writer.append(Batch([client]))
        assert Retention(writer, Keep(age_ns=HOUR), unix_ns=lambda: now[0]).remove_some() == 1
        assert reader.turn(client.trace_id, 0) == (client, None)
        delta = reader.summary().client_service_delta
    assert (delta.joined, delta.service_only, delta.difference_p50_ns) == (1, 0, 9 * MS)


def test_turns_with_times_beyond_integer_range_are_stored(tmp_path: Path) -> None:
    far = 2**62 - 1
    client, service = exchange(0)
    client = msgspec.structs.replace(client, speech_end_audio_ns=-far)
    service = msgspec.structs.replace(service, speech_end_audio_ns=far, speech_end_perf_ns=-far)
    with StoreWriter(tmp_path) as writer, StoreReader(tmp_path) as reader:
        writer.append(Batch([client]))
        assert writer.append(Batch([service])).rows == 1
        assert reader.turn(client.trace_id, 0) == (client, service)
        assert reader.summary().client_service_delta.joined == 0
        assert "endpointing" not in reader.stage_budget()


def test_rows_are_changed_where_they_are_in_numbers_only() -> None:
    """A commit may fail with texts: "Corrupted uncompressed string segment" (DuckDB 2.0.0)."""
    sources = [file.read_text(encoding="utf-8") for file in Path(telemetry.__file__).parent.rglob("*.py")]
    assert {table for source in sources for table in re.findall(r"\bUPDATE (\w+)", source)} == {"turns", "store_state"}
    assert {WHOLE_SCHEMAS["turns"].field(name).type for name in PAIRED_COLUMNS} == {pa.int64()}

"""Figures of a run by load and by profile: each compared with exact statistics over the same turns by hand."""

from pathlib import Path

import msgspec
import numpy as np

from telemetry.model.generator_health import gauge_metric
from telemetry.model.intervals import quantile_interval
from telemetry.model.stats import shown_percentile
from telemetry.model.turns import Turn
from telemetry.store.schema import PointRow
from tests.fixtures_turns import SECOND, START_UNIX_NS, client_turn
from tests.unit.telemetry.store.opened_stores import reader_of

PROFILES = ("clean", "babble", "street")
COUNTS = {"clean": 300, "babble": 72, "street": 7}


def turns_of(seed: int = 7) -> list[Turn]:
    rng = np.random.default_rng(seed)
    turns: list[Turn] = []
    for profile in PROFILES:
        for _ in range(COUNTS[profile]):
            index = len(turns)
            turn = client_turn(
                index,
                voice_to_voice_ms=float(rng.lognormal(6.3, 0.4)),
                started_unix_ns=START_UNIX_NS + index // 10 * SECOND,
            )
            turns.append(msgspec.structs.replace(turn, noise_profile=profile))
    return turns


def test_percentiles_and_intervals_are_those_of_the_turns(tmp_path: Path) -> None:
    turns = turns_of()
    (run_id,) = {str(turn.run_id) for turn in turns}
    # One call more in flight every ten seconds.
    calls = [
        PointRow(
            gauge_metric("calls_in_flight"),
            START_UNIX_NS + second * SECOND,
            float(second // 10 + 1),
            {"run_id": run_id, "process_id": "1"},
        )
        for second in range(40)
    ]
    with reader_of(tmp_path, *turns, points=calls) as reader:
        details = reader.run_details(run_id)
    assert [latency.noise_profile for latency in details.latencies] == ["clean", "babble", "street"]
    for latency in details.latencies:
        values = [heard_ns(turn) for turn in turns if turn.noise_profile == latency.noise_profile]
        assert (latency.turns, latency.p50, latency.p95, latency.p95_interval) == expected(values)
    assert [(load.low, load.high) for load in details.loads] == [(1, 1), (2, 2), (3, 3), (4, 4)]
    for load in details.loads:
        began = {(START_UNIX_NS + second * SECOND) for second in range(40) if second // 10 + 1 == load.low}
        values = [heard_ns(turn) for turn in turns if turn.started_unix_ns in began]
        assert (load.turns, load.p50, load.p95, load.p95_interval) == expected(values)


def heard_ns(turn: Turn) -> int:
    assert turn.first_audio_perf_ns is not None
    assert turn.speech_end_perf_ns is not None
    return turn.first_audio_perf_ns - turn.speech_end_perf_ns


def expected(values: list[int]) -> tuple[int, float | None, float | None, tuple[float, float] | None]:
    p50, p95 = (shown_percentile(values, name) for name in ("p50", "p95"))
    return len(values), p50, p95, quantile_interval(values, 0.95)


def test_profiles_go_from_clean_speech_to_the_loudest_noise(tmp_path: Path) -> None:
    asked_db = (0.0, None, 20.0, -5.0, 5.0)
    turns = [
        msgspec.structs.replace(
            client_turn(index, voice_to_voice_ms=500.0 + place, started_unix_ns=START_UNIX_NS + index * SECOND),
            noise_profile="clean" if db is None else "babble",
            snr_asked_db=db,
        )
        for index, (place, db) in enumerate((place, db) for place, db in enumerate(asked_db) for _ in range(30))
    ]
    with reader_of(tmp_path, *turns) as reader:
        latencies = reader.run_details(str(turns[0].run_id)).latencies
    assert [(latency.noise_profile, latency.snr_asked_db) for latency in latencies] == [
        ("clean", None),
        ("babble", 20.0),
        ("babble", 5.0),
        ("babble", 0.0),
        ("babble", -5.0),
    ]
    assert [latency.p50 for latency in latencies] == [
        (500 + asked_db.index(latency.snr_asked_db)) * 1e6 for latency in latencies
    ]

"""The reader's answers on turns made by hand, where the right answer can be worked out on paper."""

from pathlib import Path

import msgspec
import pytest

from telemetry.model.errors import StoreError
from telemetry.model.generator_health import HEALTH_FIGURES
from telemetry.model.turns import Turn
from telemetry.objectives.judgment import EligibleTurns
from telemetry.objectives.slo import NotObservable, Objective, count_turns, judge
from telemetry.store.answers import Filter, ShareByName, TelemetryLoss
from telemetry.store.questions import percentiles
from telemetry.store.questions.timelines import bucket_width_ns
from telemetry.store.reader import StoreReader
from telemetry.store.schema import PointRow
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import (
    MS,
    SECOND,
    START_UNIX_NS,
    Run,
    client_turn,
    exchange,
    fill_store,
    mixed_turns,
    synthetic_run,
)
from tests.unit.telemetry.store.opened_stores import reader_of, reader_of_runs


@pytest.mark.slow
def test_a_percentile_of_too_few_turns_is_not_a_figure(tmp_path: Path) -> None:
    sizes = {19: (False, False), 20: (True, False), 99: (True, False), 100: (True, True)}
    turns = (client_turn(1_000 * n + i, run_id=f"run of {n}") for n in sizes for i in range(n))
    with reader_of(tmp_path, *turns) as reader:
        for n, (p95, p99) in sizes.items():
            stats = reader.summary(Filter(f"run of {n}")).metrics["voice_to_voice"]
            known = (stats.n, stats.p50 is not None, stats.p95 is not None, stats.p99 is not None)
            assert known == (n, True, p95, p99)


@pytest.mark.slow
def test_invalid_turns_are_counted_apart_from_failures(tmp_path: Path) -> None:
    def invalid(number: int, *reasons: str, cohort: str = "A", phase: str = "hold 1") -> Turn:
        turn = client_turn(number, outcome="invalid", invalid_reasons=reasons)
        return msgspec.structs.replace(turn, cohort=cohort, phase=phase, phase_kind="hold")

    turns = (
        invalid(0, "frame lateness", "drift"),
        invalid(1, "clock step", "drift"),
        invalid(2, "clock step"),
        invalid(3, "drift", cohort="B", phase="hold 2"),
        invalid(4, cohort="B", phase="hold 2"),
        # Its reasons are kept where its outcome is another: it is not invalid.
        msgspec.structs.replace(client_turn(5), cohort="A", invalid_reasons=("drift",)),
    )
    with reader_of(tmp_path, *turns) as reader:
        summary = reader.summary(Filter("run-1"))
        assert (summary.turns.invalid, summary.turns.not_as_recorded, summary.turns.faults) == (5, 3, 2)
        by_cohort = {group.cohort: (group.turns.not_as_recorded, group.turns.faults) for group in summary.cohorts}
        assert by_cohort == {"A": (2, 1), "B": (1, 1)}
        by_phase = {group.phase: (group.turns.not_as_recorded, group.turns.faults) for group in summary.phases}
        assert by_phase == {"hold 1": (2, 1), "hold 2": (1, 1)}
        narrowed = reader.summary(Filter("run-1", phase="hold 2")).turns
        assert (narrowed.not_as_recorded, narrowed.faults) == (1, 1)


def test_invalid_turns_are_counted_and_left_out(tmp_path: Path) -> None:
    invalid = client_turn(1, voice_to_voice_ms=9_000, outcome="invalid", invalid_reasons=("drift", "frame lateness"))
    with reader_of(tmp_path, client_turn(0), invalid, client_turn(2, voice_to_voice_ms=None)) as reader:
        summary = reader.summary()
        assert (summary.turns.total, summary.turns.ok, summary.turns.invalid, summary.turns.eligible) == (3, 1, 1, 2)
        assert summary.turns.by_outcome == {"ok": 1, "no_reply": 1, "invalid": 1}
        assert summary.turns.invalid_by_reason == {"drift": 1, "frame lateness": 1}
        assert (summary.turns.not_as_recorded, summary.turns.faults) == (1, 0)
        assert summary.metrics["voice_to_voice"].max == 500 * MS
        assert [turn.sequence for turn in reader.slowest()] == [0]


def test_a_negative_latency_is_kept(tmp_path: Path) -> None:
    with reader_of(tmp_path, client_turn(0, voice_to_voice_ms=-120)) as reader:
        assert reader.summary().metrics["voice_to_voice"].p50 == -120 * MS
        assert reader.metric_values(Filter(), "voice_to_voice") == [-120.0 * MS]


def test_a_withheld_metric_says_why(tmp_path: Path) -> None:
    turn = client_turn(
        0,
        asr_first_partial_perf_ns=1_200 * MS,
        withheld_metrics=("asr_partial_latency",),
        withheld_reasons=("fixed cadence",),
    )
    with reader_of(tmp_path, turn) as reader:
        stats = reader.summary().metrics["asr_partial_latency"]
        assert (stats.n, stats.p50, stats.withheld) == (0, None, "fixed cadence")
        objective = Objective("partials", "metric", 0.9, "asr_partial_latency", 10**12)
        with pytest.raises(NotObservable, match="fixed cadence"):
            reader.count()(objective)
        (verdict,) = judge([objective], reader.count())
        assert (verdict.met, verdict.reason) == (None, "not observable: fixed cadence")


@pytest.mark.slow
def test_good_turns_count_those_without_a_reply_as_bad(tmp_path: Path) -> None:
    in_time = Objective("v2v", "metric", 0.9, "voice_to_voice", 800 * MS)
    turns = [
        client_turn(0, voice_to_voice_ms=800),
        client_turn(1, voice_to_voice_ms=801),
        client_turn(2, voice_to_voice_ms=None),
        client_turn(3, voice_to_voice_ms=None, outcome="abandoned"),
        client_turn(4, voice_to_voice_ms=100, outcome="invalid"),
        client_turn(5, voice_to_voice_ms=100, source="service"),
    ]
    with reader_of(tmp_path, *turns) as reader:
        assert reader.count()(in_time) == EligibleTurns(1, 5, {"generator": 1})
        assert reader.count(Filter(run_id="another"))(in_time) == EligibleTurns()
        assert reader.count()(Objective("stop", "metric", 0.9, "barge_in_stop", 800 * MS)) == EligibleTurns()
    with reader_of(tmp_path / "none", client_turn(0, voice_to_voice_ms=None)) as reader:
        assert reader.count()(in_time) == EligibleTurns(0, 1)


def test_client_service_delta_allows_for_speech_end_of_each_side(tmp_path: Path) -> None:
    turns: list[Turn] = []
    for index in range(100):
        client, service = exchange(index, network_ms=6.0)
        # The service's detector puts the end of speech 40 ms late: it waits 40 ms less by its own account.
        assert service.speech_end_perf_ns is not None
        assert service.speech_end_audio_ns is not None
        turns += [
            client,
            msgspec.structs.replace(
                service,
                speech_end_perf_ns=service.speech_end_perf_ns + 40 * MS,
                speech_end_audio_ns=service.speech_end_audio_ns + 40 * MS,
            ),
        ]
    turns.append(exchange(200)[0])
    turns.append(exchange(301)[1])
    with reader_of(tmp_path, *turns) as reader:
        client_service_delta = reader.summary(Filter(run_id="run-1")).client_service_delta
        assert (client_service_delta.joined, client_service_delta.client_only, client_service_delta.service_only) == (
            100,
            1,
            1,
        )
        assert (
            client_service_delta.difference_p50_ns
            == client_service_delta.difference_p99_ns
            == client_service_delta.difference_abs_max_ns
            == 6 * MS
        )


def test_a_stage_s_part_in_voice_to_voice(tmp_path: Path) -> None:
    stages = {"endpointing_ms": 200.0, "asr_ms": 60.0, "llm_ms": 150.0, "tts_ms": 80.0, "leading_silence_ms": 20.0}
    turns = [turn for index in range(20) for turn in exchange(index, network_ms=10.0, **stages)]
    with reader_of(tmp_path, *turns) as reader:
        budget = reader.stage_budget()
        assert {name: stats.p50_ns for name, stats in budget.items()} == {
            "endpointing": 200 * MS,
            "asr": 60 * MS,
            "llm": 150 * MS,
            "tts": 80 * MS,
            "leading_silence": 20 * MS,
            "unexplained": 10 * MS,
        }
    with reader_of(tmp_path / "client", *(turn for turn in turns if turn.source == "client")) as reader:
        budget = reader.stage_budget()
        assert (budget["endpointing"].p50_ns, budget["unexplained"].p50_ns) == (210 * MS, 0.0)


def _emitted(count: int, process: str = "worker-1", run_id: str = "run-1") -> PointRow:
    return PointRow("voice.generator.turns_emitted", START_UNIX_NS, count, {"run_id": run_id, "process_id": process})


@pytest.mark.slow
def test_loss_is_counted_from_holes_and_from_what_was_emitted(tmp_path: Path) -> None:
    """Each case is a run of its own, whose one process says how many turns it emitted, or does not."""
    cases: dict[str, tuple[list[int], int | None, TelemetryLoss]] = {
        "whole": ([0, 1, 2], None, TelemetryLoss(1, None, 3, 0)),
        "holes": ([0, 2, 5], None, TelemetryLoss(1, None, 3, 3)),
        "late start": ([2, 3], None, TelemetryLoss(1, None, 2, 2)),
        "all emitted": ([0, 1], 2, TelemetryLoss(1, 2, 2, 0)),
        "end lost": ([0, 1], 5, TelemetryLoss(1, 5, 2, 3)),
        "hole emitted": ([0, 2], 3, TelemetryLoss(1, 3, 2, 1)),
        "none arrived": ([], 4, TelemetryLoss(1, 4, 0, 4)),
        "nothing": ([], None, TelemetryLoss(0, None, 0, 0)),
    }
    turns = (
        client_turn(100 * place + number, run_id=name, process_id=name, sequence=number)
        for place, (name, (received, _, _)) in enumerate(cases.items())
        for number in received
    )
    points = [_emitted(emitted, name, run_id=name) for name, (_, emitted, _) in cases.items() if emitted is not None]
    with reader_of(tmp_path, *turns, points=points) as reader:
        for name, (_, _, expected) in cases.items():
            assert reader.summary(Filter(run_id=name, cohort="whatever")).loss == expected, name
        every = reader.summary().loss
    assert (every.processes, every.received, every.missing) == (7, 14, 13)


def test_turns_on_their_way_are_not_yet_missing(tmp_path: Path) -> None:
    with reader_of(tmp_path, client_turn(0), points=(_emitted(3),), now_unix_ns=START_UNIX_NS + SECOND) as reader:
        assert reader.summary().loss == TelemetryLoss(1, 3, 1, 0)


@pytest.mark.slow
def test_process_that_outlives_run_keeps_turns_of_its_next_run(tmp_path: Path) -> None:
    turns = [client_turn(i, run_id="run-1" if i < 3 else "run-2") for i in (0, 1, 2, 3, 5)]
    with reader_of(tmp_path, *turns) as reader:
        assert reader.summary(Filter(run_id="run-1")).loss == TelemetryLoss(1, None, 3, 0)
        assert reader.summary(Filter(run_id="run-2")).loss == TelemetryLoss(1, None, 2, 1)


def test_runs_are_listed_by_declaration_or_by_their_turns(tmp_path: Path) -> None:
    undeclared, begun = synthetic_run("run-3", 3), synthetic_run("new", 1, ended=False)
    undeclared.spans.clear()
    begun.turns.clear()
    runs = (synthetic_run("run-1", 3), synthetic_run("run-2", 3, ended=False), undeclared, begun)
    with reader_of_runs(tmp_path, *runs) as reader:
        runs = {run.run_id: run for run in reader.runs()}
    assert {name: (run.turns, run.ended) for name, run in runs.items()} == {
        "run-1": (3, True),
        "run-2": (3, False),
        "run-3": (3, False),
        "new": (0, False),
    }
    assert runs["run-1"].declared["users"] == "8"
    assert "phase" not in runs["run-1"].declared
    assert (runs["run-3"].target, runs["run-3"].declared) == ("ws://127.0.0.1:8080/v1/realtime", {})
    assert runs["new"].protocol == "openai-realtime"


@pytest.mark.slow
def test_filters(tmp_path: Path) -> None:
    with reader_of_runs(tmp_path, synthetic_run("run-1", 60), synthetic_run("run-2", 12)) as reader:
        assert reader.summary(Filter(run_id="run-2")).turns.total == 12
        assert reader.summary(Filter(run_id="run-1", cohort="control")).turns.total == 30
        assert reader.summary(Filter(run_id="run-1", noise_profile="babble")).turns.total == 10
        assert reader.summary(Filter(run_id="run-1", length_class="short")).turns.total == 20
        assert reader.summary(Filter(target="elsewhere")).turns.total == 0
        window = Filter("run-1", since_unix_ns=START_UNIX_NS + SECOND, until_unix_ns=START_UNIX_NS + 4 * SECOND)
        assert [turn.sequence for turn in reader.turns(window, source="client")] == [0, 1, 1]
        assert len(reader.turns(Filter("run-2"), limit=5, offset=22)) == 2
        assert {turn.outcome for turn in reader.turns(Filter("run-1"), outcome="invalid")} == {"invalid"}


@pytest.mark.slow
def test_cohorts_add_up_to_whole(tmp_path: Path) -> None:
    with reader_of_runs(tmp_path, synthetic_run(turns=120)) as reader:
        summary = reader.summary()
    assert [cohort.cohort for cohort in summary.cohorts] == ["control", "streaming"]
    assert sum(cohort.turns.total for cohort in summary.cohorts) == summary.turns.total
    assert sum(cohort.cache.hits for cohort in summary.cohorts) == summary.cache.hits
    assert sum(cohort.metrics["itl"].n for cohort in summary.cohorts) == summary.metrics["itl"].n
    assert sum(summary.cache.hits_by_tier.values()) == summary.cache.hits


def test_fallback_is_a_share_of_the_turns_that_reported_it(tmp_path: Path) -> None:
    turns = [client_turn(0), client_turn(1, route="cloud"), client_turn(2, fallback="rule", route="rule")]
    with reader_of(tmp_path, *turns) as reader:
        summary = reader.summary()
        assert summary.fallback == ShareByName(3, 2, {"rule": 1})
        assert summary.routes == ShareByName(3, 2, {"cloud": 1, "rule": 1})


def test_turns_that_endpoint_did_not_read_count_and_are_counted(tmp_path: Path) -> None:
    unread = [client_turn(i, endpoint_did_not_read=True, phase="p", phase_kind="hold", cohort="a") for i in range(2)]
    read = [client_turn(2, endpoint_did_not_read=False, cohort="a"), client_turn(3, cohort="b")]
    ours = client_turn(4, endpoint_did_not_read=True, outcome="invalid", invalid_reasons=("frame lateness",))
    with reader_of(tmp_path, *unread, *read, ours) as reader:
        summary = reader.summary()
        assert (summary.turns.eligible, summary.turns.endpoint_did_not_read) == (4, 2)
        assert summary.metrics["voice_to_voice"].n == 4
        assert {cohort.cohort: cohort.turns.endpoint_did_not_read for cohort in summary.cohorts} == {"a": 2, "b": 0}
        assert [phase.turns.endpoint_did_not_read for phase in summary.phases] == [2]


@pytest.mark.slow
def test_generator_health_is_worst_of_its_processes(tmp_path: Path) -> None:
    def output(name: str, process: str, *values: float) -> list[PointRow]:
        attributes = {"run_id": "run-1", "process_id": process}
        return [
            PointRow(name, START_UNIX_NS + second * SECOND, value, attributes) for second, value in enumerate(values)
        ]

    points = (
        *output("voice.generator.clock_offset_drift_ns", "a", -10, -80_000_000, -20),
        *output("voice.generator.clock_offset_drift_ns", "b", 30, 5_000),
        *output("voice.generator.unsent_worst_bytes", "a", 0, 40_000, 0),
        *output("voice.generator.frames_held_up", "a", 0, 3, 5),
        *output("voice.generator.frames_held_up", "b", 1, 1),
    )
    turns = [client_turn(0, unsent_bytes_at_speech_end=1_300, send_blocked_worst_ns=7 * MS), client_turn(1)]
    with reader_of(tmp_path, *turns, points=points) as reader:
        health = reader.summary(Filter("run-1")).generator
    assert health["clock_offset_drift_worst_ns"] == -80_000_000, "the furthest, in its direction"
    assert (health["unsent_worst_bytes"], health["send_blocked_worst_ns"]) == (40_000, 7 * MS)
    assert health["frames_held_up"] == 6
    with reader_of(tmp_path / "silent", client_turn(0, send_blocked_worst_ns=None)) as reader:
        assert reader.summary().generator["frames_held_up"] is None, "nobody said"


def test_positive_gauge_wins_over_equally_large_negative_one(tmp_path: Path) -> None:
    name = "voice.generator.clock_offset_drift_ns"
    points = [
        PointRow(name, START_UNIX_NS + second * SECOND, value, {"run_id": run_id, "process_id": process})
        for run_id, first in (("run-1", 19), ("run-2", -19))
        for process in ("a", "b")
        for second, value in enumerate((5, first, -first, 3))
    ]
    with reader_of(tmp_path, client_turn(0), points=points) as reader:
        for run_id in ("run-1", "run-2"):
            assert reader.summary(Filter(run_id)).generator["clock_offset_drift_worst_ns"] == 19


def test_generator_percentile_of_too_few_turns_is_marked(tmp_path: Path) -> None:
    texts = {0: "not reported", 99: "too few (99)", 100: "0.6 ms"}
    turns = [
        client_turn(1_000 * n + index, run_id=f"run of {n}", frame_lateness_worst_ns=None if index == n else 600_000)
        for n in texts
        for index in range(n + 1)
    ]
    with reader_of(tmp_path, *turns) as reader:
        for n, text in texts.items():
            health = reader.summary(Filter(f"run of {n}")).generator
            assert health.describe(HEALTH_FIGURES["frame_lateness_p99_ns"]) == f"pacing p99 {text}"
            assert (health["frame_lateness_p99_ns"] is None) == (n < 100)


def test_the_timeline_has_a_point_for_every_bucket(tmp_path: Path) -> None:
    turns = [client_turn(i, started_unix_ns=START_UNIX_NS + at * SECOND) for i, at in enumerate((0, 1, 1, 9))]
    calls = PointRow("voice.generator.calls_in_flight", START_UNIX_NS, 3, {"run_id": "run-1", "process_id": "a"})
    more = PointRow("voice.generator.calls_in_flight", START_UNIX_NS, 2, {"run_id": "run-1", "process_id": "b"})
    with reader_of(tmp_path, *turns, points=(calls, more)) as reader:
        points = reader.timeline(Filter("run-1"))
        assert [point.n for point in points] == [1, 2, 0, 0, 0, 0, 0, 0, 0, 1]
        assert points[2].p50 is None
        assert (points[0].calls_in_flight, points[1].calls_in_flight) == (5, None)
        assert len(reader.timeline(buckets=4)) <= 4
        assert sum(point.n for point in reader.timeline(buckets=1)) == 4


@pytest.mark.parametrize("length_s", [0, 1, 59, 60, 61, 3_600, 86_400, 86_400 * 365])
@pytest.mark.parametrize("buckets", [2, 7, 60])
def test_bucket_widths_keep_to_the_number_asked_for(length_s: int, buckets: int) -> None:
    width = bucket_width_ns(length_s * SECOND, buckets)
    for first in (0, width - 1):
        assert (first + length_s * SECOND) // width - first // width + 1 <= buckets


def test_an_unknown_metric_is_one_sentence(tmp_path: Path) -> None:
    with StoreReader(tmp_path) as reader, pytest.raises(StoreError, match="there is no metric 'latency'"):
        reader.timeline(metric="latency")


def test_directories_with_awkward_names_are_read(tmp_path: Path) -> None:
    directory = tmp_path / 'o\'clock [1] * "%41" ;'
    with reader_of(directory, client_turn(0)) as reader:
        assert reader.summary().turns.total == 1


def test_a_name_that_the_database_cuts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"\?: a store cannot be in a folder with `\?` in its path; name another one"):
        StoreWriter(tmp_path / "why?")


def test_percentiles_of_the_answered_say_how_many_were_not(tmp_path: Path) -> None:
    turns = [
        *(client_turn(index, connect_ns=5 * MS) for index in range(20)),
        client_turn(20, voice_to_voice_ms=None, connect_ns=5 * MS),
        client_turn(21, voice_to_voice_ms=None, outcome="error"),  # never connected
        client_turn(22, voice_to_voice_ms=None, outcome="error", turn_kind="silence"),  # asked nothing
        client_turn(23, voice_to_voice_ms=700, outcome="error", turn_index=1),  # answered, and then it broke
        client_turn(24, voice_to_voice_ms=None, outcome="invalid"),
    ]
    with reader_of(tmp_path, *turns) as reader:
        summary = reader.summary()
        heard, connect = summary.metrics["voice_to_voice"], summary.metrics["connect"]
        assert (heard.n, heard.eligible, heard.unanswered) == (21, 23, 2)
        # The call that was to begin in silence was not connected either.
        assert (connect.n, connect.eligible, connect.unanswered) == (21, 23, 2), (
            "a call that is to begin in silence connects"
        )
        stop = summary.metrics["barge_in_stop"]
        assert (stop.n, stop.eligible, stop.unanswered) == (0, None, 0)
        objective = Objective("connect", "metric", 0.9, "connect", 1_000 * MS)
        assert reader.count()(objective) == count_turns(turns)(objective) == EligibleTurns(21, 24, {"generator": 1})


def test_a_turn_of_a_newer_version_is_named_in_a_sentence(tmp_path: Path) -> None:
    store = fill_store(tmp_path, Run([client_turn(0), client_turn(1, outcome="paused")]))
    with StoreReader(store) as reader:
        with pytest.raises(StoreError, match=r"a turn cannot be read .*paused.*; update voiceprobe to the version"):
            reader.turns()
        assert reader.summary().turns.total == 2


@pytest.mark.slow
def test_summary_does_not_depend_on_values_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = fill_store(tmp_path, Run(mixed_turns(1, 90)))
    with StoreReader(store) as reader:
        at_once = reader.summary(Filter(run_id="run-1"))
        monkeypatch.setattr(percentiles, "_NUMBERS_AT_ONCE", 1)
        assert reader.summary(Filter(run_id="run-1")) == at_once
    assert at_once.metrics["voice_to_voice"].measured_within is not None

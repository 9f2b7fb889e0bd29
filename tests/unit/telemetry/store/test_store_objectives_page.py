"""The page of objectives, narrowed by run and by values, compared with counts that are taken turn by turn."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from telemetry.model import semconv
from telemetry.model.services import service_run_id
from telemetry.model.turn_spans import SpanRow
from telemetry.model.turns import Turn
from telemetry.objectives.error_budgets import DAY_NS, window_ns
from telemetry.objectives.objective import Objective
from telemetry.objectives.slo import is_good
from telemetry.store.answers import Filter
from telemetry.store.questions import burn_rates
from telemetry.store.questions.burn_rates import CountedTurns, LimitedTurns
from telemetry.store.reader import StoreReader
from telemetry.store.schema import Batch, PointRow
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import SECOND, Run, client_turn, fill_store, run_span

NOW = 1_795_000_000 * SECOND
HOUR = 3600 * SECOND
PERIOD_NS = 28 * DAY_NS
FAST = Objective("fast", "metric", 0.9, "voice_to_voice", 800e6)
WELL = Objective("well", "outcome", 0.99, outcomes=("ok",))
# One of its two processes never announced its end; a quarter of its turns are invalid.
LIMITED = "limited"
RUNS = ("fine", LIMITED, "other")


def mixed_turns(seed: int = 5, turns: int = 900) -> list[Turn]:
    """Turns of the last 35 days, of three runs that went on all the time, in all that a page is narrowed by."""
    dice = Random(seed)
    made: list[Turn] = []
    for index in range(turns):
        run_id = RUNS[index % 3]
        age = dice.choice((35 * DAY_NS, 8 * HOUR, HOUR)) * dice.random()
        turn = client_turn(
            index,
            voice_to_voice_ms=dice.choice((500.0, 900.0, None)),
            run_id=run_id,
            process_id=f"worker-{run_id}",
            started_unix_ns=NOW - int(age),
            cohort=dice.choice(("a", "b", None)),
            noise_profile=dice.choice(("clean", "babble", None)),
            length_class=dice.choice(("short", "long")),
            route=dice.choice(("cloud", "cache", None)),
            turn_kind="silence" if dice.random() < 0.1 else None,
            phase="up" if index % 7 == 0 else None,
            phase_kind="ramp" if index % 7 == 0 else None,
        )
        is_invalid = dice.random() < 0.25 if run_id == LIMITED else index in (30, 32, 60, 62)
        made.append(msgspec.structs.replace(turn, outcome="invalid") if is_invalid else turn)
    return sorted(made, key=lambda turn: turn.started_unix_ns)


TURNS = mixed_turns()
FILTERS = (
    Filter(),
    Filter(run_id="fine"),
    Filter(run_id=LIMITED),
    Filter(cohort="a"),
    Filter(run_id=LIMITED, cohort="b"),
    Filter(noise_profile="babble"),
    Filter(run_id="other", length_class="long", route="cache"),
    Filter(run_id="nobody's"),
    Filter(cohort="nobody's"),
)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreReader]:
    """Each run has announced its end."""
    folder = fill_store(tmp_path_factory.mktemp("objectives"), Run(turns=TURNS))
    with StoreWriter(folder) as writer:
        writer.append(Batch((), [ended_span(run_id, phase) for run_id in RUNS for phase in ("start", "end")]))
        lost = ended_span(LIMITED, "start", process_id="lost", processes="2")
        writer.append(Batch((), [replace(lost, span_id="10570000ffffffff")]))
    with StoreReader(folder, wall_clock_ns=lambda: NOW) as opened:
        yield opened


def ended_span(run_id: str, phase: str, **declared: str) -> SpanRow:
    span = run_span(run_id, NOW - HOUR, phase)
    named = {f"voice.run.{name}": value for name, value in declared.items()}
    return replace(span, attributes={**span.attributes, "voice.run.process_id": f"worker-{run_id}", **named})


def meant(f: Filter, since: int = NOW - PERIOD_NS + 1) -> list[Turn]:
    """The turns of callers that a filter means, none of a ramp."""
    asked = ("run_id", "cohort", "noise_profile", "length_class", "route")
    return [
        turn
        for turn in TURNS
        if since <= turn.started_unix_ns <= NOW
        and turn.phase_kind != "ramp"
        and all(getattr(f, name) in (None, getattr(turn, name)) for name in asked)
    ]


def good_and_eligible(turns: Sequence[Turn], objective: Objective) -> tuple[int, int]:
    verdicts = [is_good(objective, turn) for turn in turns if turn.outcome != "invalid"]
    invalid = sum(turn.outcome == "invalid" and turn.turn_kind != "silence" for turn in turns)  # eligible, and open
    return verdicts.count(True), len(verdicts) - verdicts.count(None) + invalid


@pytest.mark.parametrize("f", FILTERS, ids=str)
def test_every_count_is_of_the_turns_that_the_filter_means(reader: StoreReader, f: Filter) -> None:
    page = reader.objectives_page([FAST, WELL], f)
    turns = meant(f)
    asked = [turn for turn in turns if turn.turn_kind != "silence"]
    valid = [turn for turn in asked if turn.outcome != "invalid"]
    assert page.burn.counted == CountedTurns(len(asked), len(asked) - len(valid))
    assert page.evidence.runs == len({turn.run_id for turn in asked})
    of_limited = [turn for turn in valid if turn.run_id == LIMITED]
    assert page.burn.limited == LimitedTurns(int(bool(of_limited)), len(of_limited))
    assert page.burn.claims_nothing is (0 < len(valid) == len(of_limited))
    begun = [turn.started_unix_ns for turn in turns if turn.outcome != "invalid"]
    assert page.burn.newest_unix_ns == max(begun, default=None)
    for objective in (FAST, WELL):
        budget = next(candidate for candidate in page.burn.budgets if candidate.name == objective.name)
        for window in budget.windows:
            expected = good_and_eligible(meant(f, NOW - window_ns(window.window) + 1), objective)
            assert (window.counts.good, window.counts.eligible) == expected, (objective.name, window.window)
    assert reader.burn_rates([FAST, WELL], f) == page.burn


def test_the_filters_are_about_turns_that_differ() -> None:
    """Each of them, but those of nobody, leaves turns out and some in, and the period leaves out some of each run."""
    assert [bool(meant(f)) for f in FILTERS] == [True] * 7 + [False] * 2
    assert len({len(meant(f)) for f in FILTERS[:7]}) == 7
    for run_id in RUNS:
        assert any(turn.started_unix_ns <= NOW - PERIOD_NS for turn in TURNS if turn.run_id == run_id)


def test_choices_are_values_that_occur_in_the_period(reader: StoreReader) -> None:
    page = reader.objectives_page([FAST])
    assert {run.run_id for run in page.runs} == set(RUNS)
    assert page.run is None
    assert page.choices == {
        "cohort": ("a", "b"),
        "noise_profile": ("babble", "clean"),
        "length_class": ("long", "short"),
        "route": ("cache", "cloud"),
    }
    narrowed = reader.objectives_page([FAST], Filter(run_id="fine", cohort="a"))
    assert narrowed.run is not None
    assert narrowed.run.run_id == "fine"
    assert (narrowed.runs, narrowed.choices) == (page.runs, page.choices)


def of_run(run_id: str, numbers: Sequence[int], age: int = HOUR, **changes: Any) -> list[Turn]:
    return [
        client_turn(
            number,
            run_id=run_id,
            process_id=f"worker-{run_id}",
            started_unix_ns=NOW - age + number,
            span_id=f"{run_id:>8.8}{number:08x}".replace(" ", "0").encode().hex()[:16],
            **changes,
        )
        for number in numbers
    ]


def emitted(run_id: str, turns: int, age: int) -> PointRow:
    attributes = {"run_id": run_id, "process_id": f"worker-{run_id}"}
    return PointRow(semconv.METRIC_TURNS_EMITTED, NOW - age, float(turns), attributes, "voiceprobe")


@pytest.mark.slow
def test_runs_with_turns_in_period_are_offered_newest_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turns = [*of_run("new", range(3)), *of_run("mid", range(3), 2 * HOUR, cohort="c"), *of_run("old", range(3), DAY_NS)]
    fill_store(tmp_path, Run(turns=turns), Run(turns=of_run("gone", range(3), 29 * DAY_NS, cohort="gone")))
    with StoreReader(tmp_path, wall_clock_ns=lambda: NOW) as opened:
        assert [run.run_id for run in opened.objectives_page([FAST]).runs] == ["new", "mid", "old"]
        assert opened.objectives_page([FAST], Filter("mid")).choices["cohort"] == ("c",)
        monkeypatch.setattr(burn_rates, "MOST_RUNS", 2)
        gone = opened.objectives_page([FAST], Filter("gone"))
    assert [run.run_id for run in gone.runs] == ["new", "mid"]
    assert gone.run is not None
    assert gone.run.run_id == "gone"
    assert gone.burn.newest_unix_ns is None
    # A viewer may still choose another value.
    assert gone.choices["cohort"] == ("c",)


@pytest.mark.slow
def test_loss_and_calibration_are_of_the_runs_that_are_meant(tmp_path: Path) -> None:
    """The numbers 3 and 4 of run "holes" never arrived; "silent" says that it emitted twelve turns, of which ten
    arrived, and since then five more, which may still be under way."""
    turns = [
        *of_run("holes", [0, 1, 2, *range(5, 10)]),
        *of_run("silent", range(10), cohort="s"),
        *of_run("whole", range(4)),
    ]
    folder = fill_store(tmp_path, Run(turns=turns))
    bounds = {"holes": "0.4", "silent": "1.2", "whole": "wide"}
    spans = [
        ended_span(run_id, phase, calibrated_to_ms=ms) for run_id, ms in bounds.items() for phase in ("start", "end")
    ]
    points = [emitted("holes", 10, HOUR), emitted("silent", 12, 60 * SECOND), emitted("silent", 17, 5 * SECOND)]
    with StoreWriter(folder) as writer:
        writer.append(Batch((), spans, points))
        writer.append(Batch((), (), [emitted("silent", 13, 5 * SECOND)]))
    with StoreReader(folder, wall_clock_ns=lambda: NOW) as opened:

        def evidence(f: Filter) -> tuple[int, int, int, str | None, int | None, int]:
            evidence = opened.objectives_page([FAST], f).evidence
            assert evidence.loss is not None
            loss = evidence.loss
            return (
                evidence.runs,
                evidence.calibrated,
                loss.missing,
                evidence.calibrated_to_ms,
                loss.emitted,
                loss.received,
            )

        assert evidence(Filter()) == (3, 2, 4, "1.2", None, 8 + 10 + 4)
        assert evidence(Filter("holes")) == (1, 1, 2, "0.4", 10, 8)
        assert evidence(Filter(cohort="s")) == (1, 1, 2, "1.2", 17, 10)
        assert evidence(Filter("whole")) == (1, 0, 0, None, None, 4)
        for run_id in bounds:
            loss = opened.objectives_page([FAST], Filter(run_id)).evidence.loss
            assert loss == opened.summary(Filter(run_id)).loss


def test_a_day_of_a_service_is_a_run_as_any_other(tmp_path: Path) -> None:
    day = service_run_id("assistant", NOW - HOUR)
    reported = of_run(day, range(30), source="service", cohort="x")
    fill_store(tmp_path, Run(turns=[*of_run("called", range(20), cohort="y"), *reported]))
    with StoreReader(tmp_path, wall_clock_ns=lambda: NOW) as opened:
        every, narrowed = opened.objectives_page([FAST]), opened.objectives_page([FAST], Filter(day))
    assert {run.run_id for run in every.runs} == {"called", day}
    assert (every.burn.source, every.burn.counted.total, every.choices["cohort"]) == ("client", 20, ("y",))
    assert (narrowed.burn.source, narrowed.burn.counted, narrowed.evidence.runs) == ("service", CountedTurns(30), 1)
    assert narrowed.choices["cohort"] == ("x",)

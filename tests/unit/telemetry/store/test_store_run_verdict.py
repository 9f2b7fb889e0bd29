"""The evidence of a verdict: the turns of the store as the objective counts them, of callers and of services."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from telemetry.model.turns import Turn
from telemetry.objectives.run_verdict import RunVerdict, run_verdict
from telemetry.objectives.slo import default_objectives, judge
from telemetry.store.answers import Filter
from telemetry.store.questions import explanation
from telemetry.store.reader import StoreReader
from tests.fixtures_turns import START_UNIX_NS, Run, exchange, fill_store

SECOND = 1_000_000_000
TURNS = 900
HOSTILE = "\x1b]0;owned\x07<b>candidate"


def planted(*, source: str = "client", cohort: str = HOSTILE) -> Run:
    """Turns of calls of three, every second call of the candidate, whose model takes 700 ms longer in the last half."""
    chance = np.random.default_rng(3)
    run = Run()
    for index in range(TURNS):
        is_candidate = index // 3 % 2 == 0
        slow = 700.0 if is_candidate and index >= TURNS // 2 else 0.0
        client, service = exchange(
            index,
            llm_ms=float(chance.normal(150, 20)) + slow,
            asr_ms=float(chance.normal(60, 5)),
            cohort=cohort if is_candidate else "control",
        )
        run.turns.append(client if source == "client" else service)
    return run


def asked(store: Path, f: Filter) -> RunVerdict:
    objectives = default_objectives()
    with StoreReader(store) as reader:
        verdict = reader.run_verdict(f, objectives)
        assert verdict.counts == reader.objective_counts(f, objectives)
    verdicts = judge(objectives, verdict.counts.count)
    return run_verdict(objectives, verdicts, cause=verdict.cause)


@pytest.fixture(scope="module")
def run() -> Run:
    return planted()


@pytest.fixture(scope="module")
def store(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill_store(tmp_path_factory.mktemp("store"), run)


@pytest.mark.slow
def test_a_planted_cause_is_found_in_the_store(store: Path, run: Run) -> None:
    verdict = asked(store, Filter("run-1"))
    assert verdict.state == "missed"
    assert verdict.cause is not None
    cause = verdict.cause
    assert (cause.cohorts, cause.within, cause.turns) == ((HOSTILE,), ("control",), TURNS)
    assert cause.since_unix_ns is not None
    assert abs(cause.since_unix_ns - (START_UNIX_NS + TURNS // 2 * SECOND)) <= 6 * SECOND
    assert cause.stage is not None
    assert cause.stage.stage == "llm"

    def model_ns(cohort: str) -> float:
        turns = [turn for turn in run.turns if turn.cohort == cohort and turn.started_unix_ns >= cause.since_unix_ns]
        return float(np.median([_model_ns(turn) for turn in turns]))

    assert cause.stage.by_ns == pytest.approx(model_ns(HOSTILE) - model_ns("control"))
    assert "\x1b" not in verdict.sentence
    assert "\x07" not in verdict.sentence
    assert "LLM first token + 699 ms at p50; control is within it" in verdict.sentence


def _model_ns(turn: Turn) -> int:
    assert turn.llm_first_token_perf_ns is not None
    assert turn.asr_final_perf_ns is not None
    return turn.llm_first_token_perf_ns - turn.asr_final_perf_ns


@pytest.mark.slow
def test_a_service_s_own_turns_have_their_cause(tmp_path: Path) -> None:
    run = planted(source="service", cohort="candidate")
    day = "2026-09-21"
    turns = [msgspec.structs.replace(turn, run_id=f"service:assistant:{day}") for turn in run.turns]
    verdict = asked(fill_store(tmp_path / "store", Run(turns)), Filter(f"service:assistant:{day}"))
    assert verdict.state == "missed"
    assert verdict.cause is not None
    assert (verdict.cause.cohorts, verdict.cause.turns) == (("candidate",), TURNS)


@pytest.mark.slow
def test_a_run_without_turns_and_one_that_is_met_have_no_cause(tmp_path: Path) -> None:
    store = fill_store(tmp_path / "store", Run([exchange(index)[0] for index in range(120)]))
    met = asked(store, Filter("run-1"))
    assert (met.state, met.cause) == ("met", None)
    assert asked(store, Filter("gone")).sentence == (
        "Undecided: 0 of the 100 turns that the 99 % objective needs; 100 more needed"
    )


@pytest.mark.slow
def test_sample_of_many_turns_over_time_shows_the_cause(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sample has every other call, and a window on them."""
    whole = asked(store, Filter("run-1"))
    monkeypatch.setattr(explanation, "MOST_TURNS", TURNS - 1)
    verdict = asked(store, Filter("run-1"))
    assert whole.cause is not None
    assert verdict.cause is not None
    assert (verdict.cause.cohorts, verdict.cause.within) == (whole.cause.cohorts, ("control",))
    assert 0.35 < verdict.cause.turns / TURNS < 0.65
    assert verdict.cause.stage is not None
    assert verdict.cause.stage.stage == "llm"
    half = asked(store, Filter("run-1", since_unix_ns=START_UNIX_NS + TURNS // 2 * SECOND))
    assert half.cause is not None
    assert half.cause.since_unix_ns is None

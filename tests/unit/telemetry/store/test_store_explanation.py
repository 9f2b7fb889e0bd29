"""The selection is what was asked for, the dimensions are those of the turns, and a planted cause comes first."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from telemetry.model.errors import StoreError
from telemetry.objectives.slo import default_objectives, is_good
from telemetry.store.answers import Filter
from telemetry.store.questions import explanation
from telemetry.store.questions.explanation import DIMENSIONS, ExplanationQuestion, TurnSelection
from telemetry.store.reader import StoreReader
from tests.fixtures_turns import START_UNIX_NS, Run, exchange, fill_store
from tests.unit.telemetry.store.opened_stores import reader_of_runs

SECOND = 1_000_000_000
MS = 1_000_000
TURNS = 900
HEARD = next(objective for objective in default_objectives() if objective.metric == "voice_to_voice")
SLOW = "domain <b>4\x1b"


def planted() -> Run:
    """Turns of calls of three, of one domain 600 ms slower in six of ten cases."""
    chance = np.random.default_rng(5)
    run = Run()
    for index in range(TURNS):
        domain = SLOW if chance.random() < 0.2 else f"domain {chance.integers(3)}"
        llm_ms = 150 + (600 if domain == SLOW and chance.random() < 0.6 else 0)
        client, service = exchange(
            index,
            llm_ms=llm_ms,
            domain=domain,
            cache_hit=bool(index % 2),
            cache_tier="central" if index % 2 else None,
            process_id=f"worker-{index // 3 % 4}",
            utterance_id=f"utterance-{chance.integers(200)}",
        )
        run.turns += [client, service]
    return run


PLANTED = planted()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill_store(tmp_path_factory.mktemp("store"), PLANTED)


def test_the_planted_domain_comes_first(store: Path) -> None:
    clients = [turn for turn in PLANTED.turns if turn.source == "client"]
    bad = [turn for turn in clients if is_good(HEARD, turn) is False]
    with StoreReader(store) as reader:
        answer = reader.explanation(ExplanationQuestion(TurnSelection(HEARD), Filter("run-1")))
    assert (answer.selected, answer.others) == (len(bad), TURNS - len(bad))
    first = answer.dimensions[0]
    assert (first.name, first.is_shown) == ("domain", True)
    assert first.value is not None
    assert (first.value.label, first.value.selected) == (SLOW, sum(turn.domain == SLOW for turn in bad))
    assert [dimension.name for dimension in answer.dimensions if dimension.is_shown] == ["domain"]
    assert {dimension.name for dimension in answer.dimensions} == set(DIMENSIONS)
    assert {dimension.name: dimension.untried for dimension in answer.dimensions if dimension.untried} == {
        "cohort": "not reported",
        "noise": "not reported",
        "channel": "not reported",
        "region": "not reported",
        "route": "one value",
        "model": "one value",
    }


def named(field: str) -> tuple[dict[str, Any], list[dict[str, Any]], str]:
    """Return what VALUES has for a dimension whose values are any text of one field."""
    return {field: SLOW}, [{field: f"{field} {place}"} for place in range(3)], SLOW


# The fields of a turn with the slow value of each dimension, those with each of its other values, and what the slow one
# is called.
VALUES = {
    "cohort": named("cohort"),
    "domain": named("domain"),
    "length": ({"length_class": "long"}, [{"length_class": "short"}, {"length_class": "medium"}], "long"),
    "noise": named("noise_profile"),
    "channel": named("channel_profile"),
    "route": ({"route": "cloud"}, [{"route": "local"}, {"route": "rule"}], "cloud"),
    "cache": (
        {"cache_hit": True, "cache_tier": "edge"},
        [{"cache_hit": True, "cache_tier": "central"}, {"cache_hit": False}],
        "hit: edge",
    ),
    "model": named("model"),
    "region": named("region"),
    "utterance": named("utterance_id"),
    "worker": named("process_id"),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run for each dimension: all are reported and vary, and the turns of one value of that one are often slow."""
    run = Run()
    for dimension, (slow, _, _) in VALUES.items():
        chance = np.random.default_rng(11)
        for index in range(TURNS // 3):
            fields: dict[str, Any] = {}
            for _, others, _ in VALUES.values():
                fields |= others[chance.integers(len(others))]
            is_of_slow = chance.random() < 0.25
            fields |= slow if is_of_slow else {}
            llm_ms = 150 + (600 if is_of_slow and chance.random() < 0.7 else 0)
            run.turns.append(exchange(index, run_id=dimension, llm_ms=llm_ms, **fields)[0])
    return fill_store(tmp_path_factory.mktemp("runs"), run)


@pytest.mark.parametrize("dimension", VALUES)
def test_cause_comes_first_and_alone_in_any_dimension(runs: Path, dimension: str) -> None:
    with StoreReader(runs) as reader:
        answer = reader.explanation(ExplanationQuestion(TurnSelection(HEARD), Filter(dimension)))
    assert [explained.untried for explained in answer.dimensions] == [None] * len(DIMENSIONS)
    assert [explained.name for explained in answer.dimensions if explained.is_shown] == [dimension]
    first = answer.dimensions[0].value
    assert first is not None
    assert first.label == VALUES[dimension][2]
    assert first.selected == answer.selected
    assert 20 < answer.selected < TURNS // 3


def test_a_cause_is_planted_in_every_dimension() -> None:
    assert set(VALUES) == set(DIMENSIONS)


@pytest.mark.slow
def test_a_selection_is_what_meets_all_that_was_asked(store: Path) -> None:
    middle = START_UNIX_NS + TURNS // 2 * SECOND
    slow = [
        turn
        for turn in PLANTED.turns
        if turn.source == "client" and turn.first_audio_perf_ns is not None and turn.speech_end_perf_ns is not None
        and turn.first_audio_perf_ns - turn.speech_end_perf_ns >= 800 * MS
    ]  # fmt: skip
    cases = {
        TurnSelection(metric="voice_to_voice", at_least=800 * MS): len(slow),
        TurnSelection(metric="voice_to_voice", below=800 * MS): TURNS - len(slow),
        TurnSelection(since_unix_ns=middle): TURNS // 2,
        TurnSelection(until_unix_ns=middle): TURNS // 2,
        TurnSelection(metric="voice_to_voice", at_least=800 * MS, since_unix_ns=middle): sum(
            turn.started_unix_ns >= middle for turn in slow
        ),
        TurnSelection(metric="barge_in_stop"): 0,
        TurnSelection(metric="itl", at_least=0): TURNS,
    }
    with StoreReader(store) as reader:
        for selection, expected in cases.items():
            answer = reader.explanation(ExplanationQuestion(selection, Filter("run-1")))
            assert (answer.selected, answer.others) == (expected, TURNS - expected), selection
        with pytest.raises(StoreError, match="no metric 'nonsense'"):
            reader.explanation(ExplanationQuestion(TurnSelection(metric="nonsense")))
        nothing = reader.explanation(ExplanationQuestion(TurnSelection(HEARD), Filter("gone")))
    assert (nothing.selected, nothing.others) == (0, 0)
    assert {dimension.untried for dimension in nothing.dimensions} == {"not reported"}


def test_sample_is_used_for_many_turns(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explanation, "MOST_TURNS", TURNS - 1)
    with StoreReader(store) as reader:
        answer = reader.explanation(ExplanationQuestion(TurnSelection(HEARD), Filter("run-1")))
        every = reader.explanation(ExplanationQuestion(TurnSelection(metric="itl", at_least=0), Filter("run-1")))
    assert answer.is_sample
    assert answer.dimensions[0].name == "domain"
    assert 0.35 < every.selected / TURNS < 0.65, "of every other call"


def test_a_service_s_own_turns_are_explained(tmp_path: Path) -> None:
    run_id = "service:assistant:2026-09-21"
    turns = [msgspec.structs.replace(turn, run_id=run_id) for turn in PLANTED.turns if turn.source == "service"]
    with reader_of_runs(tmp_path / "services", Run(turns)) as reader:
        answer = reader.explanation(ExplanationQuestion(TurnSelection(HEARD), Filter(run_id)))
    assert answer.selected + answer.others == TURNS
    assert answer.dimensions[0].name == "domain"

"""Locust's own statistics of turns: voice to voice is the response time, the rest are separate rows."""

from typing import Any

import pytest
from locust.env import Environment
from locust.event import Events

from loadtest.swarm.users import report_to_locust
from telemetry.model.turns import Turn
from tests.fixtures_turns import MS, client_turn


@pytest.fixture
def environment() -> Environment:
    locust_environment = Environment(events=Events())
    locust_environment.create_local_runner()  # it listens to requests
    return locust_environment


def _report(environment: Environment, *turns: Turn) -> None:
    for turn in turns:
        report_to_locust(environment, turn)


def _row(environment: Environment, name: str) -> Any:
    return environment.stats.get(name, "voice")


def test_aggregated_is_voice_to_voice_alone(environment: Environment) -> None:
    token = {"llm_first_token_perf_ns": 3_100 * MS}
    turns = [client_turn(0, voice_to_voice_ms=500.0, **token), client_turn(1, voice_to_voice_ms=900.0, **token)]
    _report(environment, *turns)
    total = environment.stats.total
    assert (total.num_requests, total.num_failures) == (2, 0)
    assert (total.min_response_time, total.max_response_time) == (500, 900)
    assert total.get_response_time_percentile(1.0) == 900
    assert _row(environment, "voice_to_voice (of the answered)").num_requests == 2
    tokens = _row(environment, "llm_first_token_latency (of the answered)")
    assert (tokens.num_requests, tokens.max_response_time) == (2, 100)


def test_a_turn_without_an_answer_fails_and_has_no_response_time(environment: Environment) -> None:
    _report(environment, client_turn(0, voice_to_voice_ms=500.0), client_turn(1, outcome="no_reply"))
    total = environment.stats.total
    assert (total.num_requests, total.num_none_requests, total.num_failures) == (2, 1, 1)
    assert total.avg_response_time == pytest.approx(500, abs=1)
    (failure,) = environment.stats.errors.values()
    assert failure.name == "turn"
    assert "no_reply" in str(failure.error)


def test_an_invalid_turn_is_no_failure_of_the_service(environment: Environment) -> None:
    late = client_turn(0, outcome="invalid", invalid_reasons=("frame lateness",))
    _report(environment, late, late, client_turn(1, voice_to_voice_ms=500.0))
    total = environment.stats.total
    assert (total.num_requests, total.num_failures) == (1, 0)
    row = _row(environment, "invalid turn")
    assert (row.num_requests, row.num_failures) == (2, 2)
    (failure,) = environment.stats.errors.values()
    assert (failure.name, failure.occurrences) == ("invalid turn", 2)
    assert "frame lateness" in str(failure.error)
    assert total.max_response_time == pytest.approx(500, abs=1)

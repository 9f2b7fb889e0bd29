"""Filters of a list of runs."""

import msgspec
import pytest

from telemetry.store.run_folders.entries import RunEntry, RunFilter, narrowed

RUN = RunEntry(
    run_id="r",
    store="store",
    state="met",
    began_unix_ns=1_000,
    target="ws://a",
    protocol="openai-realtime",
    users=8,
    scenario="ramp",
    profile="babble 10 dB",
    cohorts=("A", "B"),
)


@pytest.mark.parametrize(
    ("asked", "other"),
    [
        (RunFilter(cohort="B"), {"cohorts": ("A",)}),
        (RunFilter(target="ws://a"), {"target": "ws://b"}),
        (RunFilter(state="met"), {"state": "missed"}),
        (RunFilter(profile="babble 10 dB"), {"profile": "clean"}),
        (RunFilter(scenario="ramp"), {"scenario": "soak"}),
        (RunFilter(protocol="openai-realtime"), {"protocol": "pipecat"}),
        (RunFilter(users=8), {"users": 80}),
        (RunFilter(since_unix_ns=1_000), {"began_unix_ns": 999}),
    ],
)
def test_a_run_matches_by_what_is_asked_for_alone(asked: RunFilter, other: dict[str, object]) -> None:
    changed = msgspec.structs.replace(RUN, **other)
    assert narrowed([changed, RUN], asked) == [RUN]
    assert narrowed([changed, RUN], RunFilter()) == [changed, RUN]


@pytest.mark.parametrize(
    ("asked", "unknown"),
    [
        (RunFilter(since_unix_ns=0), {"began_unix_ns": None}),
        (RunFilter(cohort="A"), {"cohorts": None}),
        (RunFilter(target="ws://a"), {"target": None}),
        (RunFilter(users=8), {"users": None}),
    ],
)
def test_unknown_value_of_run_matches_no_filter(asked: RunFilter, unknown: dict[str, object]) -> None:
    assert not asked.matches(msgspec.structs.replace(RUN, **unknown))


def test_everything_that_is_asked_for_has_to_match() -> None:
    assert RunFilter(cohort="A", users=8).matches(RUN)
    assert not RunFilter(cohort="A", users=9).matches(RUN)

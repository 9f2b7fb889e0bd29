"""What a viewer chose, on every page, and its one form in a link."""

from dataclasses import replace
from typing import get_args
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard import links
from dashboard.components.selectors import LABELS
from dashboard.links import (
    BEGAN_LABELS,
    BEGAN_NS,
    DIMENSION_OF,
    Choice,
    RolloutChoice,
    RunsChoice,
    choice_of,
    names_of,
    rollout_choice_of,
    runs_choice_of,
    values_of,
)
from telemetry.model.formatting import NS_PER_S
from telemetry.objectives.slo import default_objectives
from telemetry.rollout.plan import Decision
from telemetry.rollout.progress import Funnel, FunnelPoint, LoggedVerdict, RolloutProgress
from telemetry.rollout.verdict import RolloutVerdict, VerdictPlan
from telemetry.store.answers import Filter
from telemetry.store.questions.pages import NEWEST, PageQuestion
from telemetry.store.run_folders.entries import EntryState, RunEntry, RunFilter

NAMES = names_of(RunsChoice)
STATES = get_args(EntryState)


def test_a_choice_is_a_question_to_the_store() -> None:
    choice = Choice(run="r1", cohort="B", phase="up", noise="babble", length="short", route="cache", window="5m")
    asked = choice.question(default_objectives())
    assert asked.filter == Filter(
        run_id="r1", cohort="B", phase="up", noise_profile="babble", length_class="short", route="cache"
    )
    assert asked.window_ns == 300 * NS_PER_S
    assert asked.objectives == tuple(default_objectives())
    assert Choice().question([]) == PageQuestion(window_ns=NEWEST, with_timeline=False, with_cause=True)


def test_a_link_that_asks_for_what_cannot_be_is_reported() -> None:
    choice, faults = choice_of({"length": "huge", "cohort": "A", "window": "7y", "theme": "x", "run": ""})
    assert choice == Choice(cohort="A")
    assert len(faults) == 2
    assert "'huge'" in faults[0]
    assert "short, medium, long" in faults[0]


def test_only_a_filter_narrows_not_the_run() -> None:
    assert not Choice(run="r1").narrows
    assert Choice(run="r1", window="1m").narrows


@given(
    st.builds(
        Choice,
        run=st.none() | st.text(min_size=1),
        cohort=st.none() | st.text(min_size=1),
        length=st.sampled_from([None, "short", "long"]),
        window=st.sampled_from([None, "1m", "1h"]),
    )
)
def test_a_link_gives_the_choice_back(choice: Choice) -> None:
    link = choice.link(trace="t&u")
    assert choice_of(dict(parse_qsl(link.partition("?")[2]))) == (choice, [])


def test_an_empty_choice_links_to_the_page_itself() -> None:
    assert Choice().link() == "./"


@pytest.mark.parametrize(("name", "dimension"), DIMENSION_OF.items())
def test_a_choice_of_a_value_is_asked_of_its_dimension(name: str, dimension: str) -> None:
    assert Choice(**{name: "this"}).view().filter == replace(Filter(), **{dimension: "this"})


NOW_NS = 2_000_000_000_000_000_000
CHOSEN = {
    "began": "7d",
    "cohort": "B",
    "target": "ws://a",
    "state": "not judged",
    "profile": "babble 10 dB, clean",
    "scenario": "ramp",
    "callers": "8",
    "protocol": "openai-realtime",
}


def test_a_link_is_a_filter_at_the_moment_when_it_is_looked_at() -> None:
    choice, faults = runs_choice_of(CHOSEN)
    assert faults == []
    assert choice.filter(NOW_NS) == RunFilter(
        since_unix_ns=NOW_NS - 604_800_000_000_000,
        cohort="B",
        target="ws://a",
        state="not judged",
        profile="babble 10 dB, clean",
        scenario="ramp",
        protocol="openai-realtime",
        users=8,
    )


def test_what_other_pages_choose_narrows_nothing_here() -> None:
    choice, faults = runs_choice_of({"run": "r-1", "window": "1h", "noise": "babble", "ticked": "[]", "cohort": ""})
    assert (choice, faults) == (RunsChoice(), [])
    assert not choice.narrows
    assert choice.filter(NOW_NS) == RunFilter()


def test_only_the_cohort_is_shared_with_other_pages() -> None:
    others = {
        *links.Choice.__slots__,
        "trace",
        "turn",
        "view",
        "rollout",
        "objective",
        "control",
        "candidate",
        "turns",
    }
    assert set(NAMES) & others == {"cohort"}


@pytest.mark.parametrize("name", NAMES)
def test_each_of_them_narrows_and_has_a_label(name: str) -> None:
    assert runs_choice_of({name: CHOSEN[name]})[0].narrows
    assert name in LABELS


@pytest.mark.parametrize(
    ("link", "fault"),
    [
        ({"began": "7y"}, "the link asks for began '7y', not one of 1d, 7d, 28d, 90d: left out"),
        ({"state": "bad"}, f"the link asks for state 'bad', not one of {', '.join(STATES)}: left out"),
        ({"callers": "many"}, "the link asks for callers 'many', which is not a number of callers: left out"),
        ({"callers": "08"}, "the link asks for callers '08', which is not a number of callers: left out"),
        ({"callers": "-1"}, "the link asks for callers '-1', which is not a number of callers: left out"),
        ({"callers": "٣"}, "the link asks for callers '٣', which is not a number of callers: left out"),
    ],
)
def test_a_value_that_cannot_be_meant_is_left_out_with_a_sentence(link: dict[str, str], fault: str) -> None:
    assert runs_choice_of({**link, "target": "ws://a"}) == (RunsChoice(target="ws://a"), [fault])


def test_a_number_of_callers_that_is_too_long_is_left_out() -> None:
    choice, (fault,) = runs_choice_of({"callers": "9" * 5_000})
    assert choice == RunsChoice()
    assert len(fault) < 150


@given(st.dictionaries(st.sampled_from(NAMES), st.text(max_size=12)))
def test_no_link_breaks_the_page(link: dict[str, str]) -> None:
    choice, faults = runs_choice_of(link)
    choice.filter(NOW_NS)
    assert len(faults) + sum(getattr(choice, name) is not None for name in NAMES) == sum(map(bool, link.values()))


def test_there_is_to_choose_from_what_occurs() -> None:
    runs = [
        RunEntry(run_id="1", store="s", state="missed", cohorts=("B", ""), users=10, target="ws://b", scenario="soak"),
        RunEntry(run_id="2", store="s", state="met", cohorts=("A", "B"), users=9, target="ws://a", protocol="pipecat"),
        RunEntry(run_id="3", store="s", state="met", cohorts=None, users=10, target="ws://a", profile="clean"),
    ]
    assert values_of(runs) == {
        "began": ("1d", "7d", "28d", "90d"),
        "cohort": ("A", "B"),
        "target": ("ws://a", "ws://b"),
        "state": ("met", "missed"),
        "profile": ("clean",),
        "scenario": ("soak",),
        "callers": ("9", "10"),
        "protocol": ("pipecat",),
    }
    assert list(BEGAN_LABELS) == list(BEGAN_NS)


HOUR_NS = 3600 * NS_PER_S
NEWEST_UNIX_NS = 1_800_000_000 * NS_PER_S
# How old each look was at the newest one, its stage and its decision.
LOOKS: tuple[tuple[float, str, Decision], ...] = (
    (200, "5-percent", "hold"),
    (30, "5-percent", "promote"),
    (24, "25-percent", "hold"),
    (2, "25-percent", "hold"),
    (1, "25-percent", "promote"),
    (0, "100-percent", "hold"),
)


def verdict_of(decision: Decision) -> RolloutVerdict:
    plan = VerdictPlan("p", "f")
    return RolloutVerdict(
        verdict=decision, sentence="", reasons=(), turns_needed=None, plan=plan, stage="", share=0.05, cohorts=None
    )


def progress() -> RolloutProgress:
    verdicts = [
        LoggedVerdict(NEWEST_UNIX_NS - round(age_h * HOUR_NS), stage, None, verdict_of(decision))
        for age_h, stage, decision in LOOKS
    ]
    return RolloutProgress(
        newest=verdicts[-1],
        stages=(),
        checks=(),
        slices=(),
        funnel=Funnel(
            tuple(FunnelPoint(each.at_unix_ns, each.stage, each.decision, None, None, None) for each in verdicts)
        ),
        turns_needed=None,
        turns_per_hour=None,
        ready_unix_ns=None,
        changes=tuple(verdicts[place] for place in (5, 4, 2, 1, 0)),
    )


def ages_h(choice: RolloutChoice) -> tuple[list[float], list[float]]:
    """How old, in hours, the looks of the chart and those of the history are."""
    found = choice.narrowed(progress())
    assert found.newest == progress().newest, "what the newest look says stands"
    of_chart, of_history = (
        [(NEWEST_UNIX_NS - each.at_unix_ns) / HOUR_NS for each in looks]
        for looks in (found.funnel.points, found.changes)
    )
    return of_chart, of_history


@pytest.mark.parametrize(
    ("link", "of_chart", "of_history"),
    [
        ({}, [200, 30, 24, 2, 1, 0], [0, 1, 24, 30, 200]),
        ({"looks": "1h"}, [1, 0], [0, 1]),
        ({"looks": "1d"}, [24, 2, 1, 0], [0, 1, 24]),
        ({"looks": "7d"}, [30, 24, 2, 1, 0], [0, 1, 24, 30]),
        ({"at_stage": "25-percent"}, [24, 2, 1], [1, 24]),
        ({"decision": "promote"}, [30, 1], [1, 30]),
        ({"looks": "1d", "at_stage": "25-percent", "decision": "hold"}, [24, 2], [24]),
        ({"at_stage": "another"}, [], []),
    ],
)
def test_the_looks_that_a_link_means(link: dict[str, str], of_chart: list[float], of_history: list[float]) -> None:
    choice, faults = rollout_choice_of(link)
    assert faults == []
    assert ages_h(choice) == (of_chart, of_history)
    assert choice.narrows is bool(link)


def test_a_value_that_cannot_be_meant_is_left_out_and_named() -> None:
    choice, faults = rollout_choice_of({"looks": "2h", "decision": "go", "rollout": "streaming", "run": "r-1"})
    assert choice == RolloutChoice(rollout="streaming")
    assert faults == [
        "the link asks for looks '2h', not one of 1h, 1d, 7d: left out",
        "the link asks for decision 'go', not one of promote, hold, roll_back: left out",
    ]

"""A viewer's selection, on every page, and its one form in a link."""

from dataclasses import fields, replace
from typing import Any, get_args
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.components.selectors import LABELS
from dashboard.links import DIMENSION_OF, Choice, LinkChoice, RolloutChoice, RunsChoice, TurnsChoice, values_of
from telemetry.model.formatting import NS_PER_S
from telemetry.objectives.slo import default_objectives
from telemetry.rollout.plan import Decision
from telemetry.rollout.progress import Funnel, FunnelPoint, LoggedVerdict, RolloutProgress
from telemetry.rollout.verdict import RolloutVerdict, VerdictPlan
from telemetry.store.answers import Filter
from telemetry.store.questions.pages import NEWEST, PageQuestion
from telemetry.store.questions.turns import MOST_PAGED, ORDERS
from telemetry.store.run_folders.entries import EntryState, RunEntry, RunFilter
from tests.unit.dashboard.opened_pages import opened, pictures

STATES = ", ".join(get_args(EntryState))
NOW_NS = 2_000_000_000 * NS_PER_S
HOUR_NS = 3600 * NS_PER_S


def test_a_choice_is_a_question_to_the_store() -> None:
    choice = Choice(run="r1", cohort="B", phase="up", noise="babble", length="short", route="cache", window="5m")
    asked = choice.question(default_objectives())
    assert asked.filter == Filter(
        run_id="r1", cohort="B", phase="up", noise_profile="babble", length_class="short", route="cache"
    )
    assert asked.window_ns == 300 * NS_PER_S
    assert asked.objectives == tuple(default_objectives())
    assert Choice().question([]) == PageQuestion(window_ns=NEWEST, with_cause=True)
    assert not Choice(run="r1").narrows
    assert Choice(run="r1", window="1m").narrows


@pytest.mark.parametrize(("name", "dimension"), DIMENSION_OF.items())
def test_a_choice_of_a_value_is_asked_of_its_dimension(name: str, dimension: str) -> None:
    assert Choice(**{name: "this"}).view().filter == replace(Filter(), **{dimension: "this"})


def test_a_list_of_turns_asks_the_store_for_what_the_link_says() -> None:
    asked = TurnsChoice("x", from_ms=500, below_ms=600, since_s=10, until_s=20).question(Choice(run="r", window="1m"))
    query, ms = asked.search, 1_000_000
    assert (asked.filter.run_id, query.since_unix_ns, query.until_unix_ns) == ("r", 10 * NS_PER_S, 20 * NS_PER_S)
    assert (asked.filter.since_unix_ns, asked.filter.until_unix_ns) == (None, None)
    assert (asked.window_ns, query.from_ns, query.below_ns) == (None, 500 * ms, 600 * ms)


def test_runs_filter_is_relative_to_moment_of_display() -> None:
    same = {"cohort": "B", "target": "ws://a", "state": "not judged", "profile": "clean", "scenario": "ramp"}
    choice, faults = RunsChoice.of({"began": "7d", "callers": "8", "protocol": "pipecat", **same})
    since = NOW_NS - 604_800 * NS_PER_S
    assert faults == []
    assert choice.filter(NOW_NS) == RunFilter(since_unix_ns=since, users=8, protocol="pipecat", **same)
    assert RunsChoice().filter(NOW_NS) == RunFilter()


CHOICES = (
    Choice(run="r 1", cohort="A&B", length="long", window="1h", store="s"),
    TurnsChoice("a b&c", "ok", "m", 0, 900, 17, 27, "newest", 3, 50),
    RunsChoice("7d", "B", "ws://a", "not judged", "babble 10 dB, clean", "ramp", "8", "pipecat"),
    RolloutChoice("streaming", "1h", "5-percent", "hold"),
)


@pytest.mark.parametrize("choice", [*CHOICES, *(type(choice)() for choice in CHOICES)])
def test_a_link_gives_the_choice_back(choice: LinkChoice) -> None:
    assert type(choice).of(choice.query()) == (choice, [])


@given(st.builds(Choice, run=st.none() | st.text(min_size=1), cohort=st.none() | st.text(min_size=1)))
def test_a_link_of_any_names_gives_the_choice_back(choice: Choice) -> None:
    assert Choice.of(dict(parse_qsl(choice.link(trace="t&u").partition("?")[2]))) == (choice, [])
    assert Choice().link() == "./"


def test_pages_share_the_cohort_and_no_other_parameter() -> None:
    others = {"trace", "turn", "view", "objective", "control", "candidate", "turns", "ticked", "stage"}
    others |= {"baseline", "margin"}
    every = [name for choice in CHOICES for name in (field.name for field in fields(choice))]  # pyright: ignore[reportArgumentType]
    assert sorted(name for name in set(every) if every.count(name) > 1) == ["cohort"]
    assert not others & set(every)
    assert set(RunsChoice.names()) <= set(LABELS)


@pytest.mark.parametrize(
    ("kind", "link", "fault"),
    [
        (Choice, {"length": "huge"}, "the link asks for length 'huge', not one of short, medium, long: left out"),
        (
            Choice,
            {"window": "7d"},
            "the link asks for window '7d', not one of 1m, 5m, 15m, 1h, newest, whole: left out",
        ),
        (TurnsChoice, {"order": "up"}, f"the link asks for order 'up', not one of {', '.join(ORDERS)}: left out"),
        (TurnsChoice, {"at_page": "-1"}, "the link asks for at_page '-1', not a whole number: left out"),
        (TurnsChoice, {"rows": "7"}, "the link asks for rows '7', not one of 25, 50, 100: left out"),
        (TurnsChoice, {"from_ms": "a"}, "the link asks for from_ms 'a', not a whole number: left out"),
        (TurnsChoice, {"at_page": f"{MOST_PAGED + 1}"}, f"at_page '{MOST_PAGED + 1}', too large: left out"),
        (RunsChoice, {"began": "7y"}, "the link asks for began '7y', not one of 1d, 7d, 28d, 90d: left out"),
        (RunsChoice, {"state": "bad"}, f"the link asks for state 'bad', not one of {STATES}: left out"),
        *(
            (RunsChoice, {"callers": callers}, f"asks for callers '{callers}', which is not a number of callers")
            for callers in ("many", "08", "-1", "٣")
        ),
        (RunsChoice, {"callers": "9" * 5_000}, "which is not a number of callers: left out"),
        (RolloutChoice, {"looks": "2h"}, "the link asks for looks '2h', not one of 1h, 1d, 7d: left out"),
        (RolloutChoice, {"decision": "go"}, "decision 'go', not one of promote, hold, roll_back: left out"),
    ],
)
def test_invalid_link_value_is_left_out_with_a_sentence(
    kind: type[LinkChoice], link: dict[str, str], fault: str
) -> None:
    choice, (reported,) = kind.of({**link, "theme": "x", "run": ""})
    assert (choice, choice.query()) == (kind(), {})
    assert fault in reported
    assert len(reported) < 250


@pytest.mark.parametrize("kind", [type(choice) for choice in CHOICES])
@given(data=st.data())
def test_no_link_breaks_a_page(kind: Any, data: st.DataObject) -> None:
    link = data.draw(st.dictionaries(st.sampled_from(kind.names()), st.text(max_size=12)))
    choice, faults = kind.of(link)
    assert len(faults) + len(choice.query()) == sum(map(bool, link.values()))


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


def progress() -> RolloutProgress:
    plan = VerdictPlan("p", "f")
    none: Any = {"stages": (), "checks": (), "slices": (), "turns_needed": None, "turns_per_hour": None}
    verdicts: list[LoggedVerdict] = []
    for age_h, stage, decision in LOOKS:
        verdict = RolloutVerdict(
            verdict=decision, sentence="", reasons=(), turns_needed=None, plan=plan, stage="", share=0.05, cohorts=None
        )
        verdicts.append(LoggedVerdict(NEWEST_UNIX_NS - round(age_h * HOUR_NS), stage, None, verdict))
    points = (FunnelPoint(entry.at_unix_ns, entry.stage, entry.decision, None, None, None) for entry in verdicts)
    changes = tuple(verdicts[place] for place in (5, 4, 2, 1, 0))
    return RolloutProgress(verdicts[-1], funnel=Funnel(tuple(points)), changes=changes, ready_unix_ns=None, **none)


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
    choice, faults = RolloutChoice.of(link)
    shown = choice.narrowed(progress())
    assert (faults, choice.narrows) == ([], bool(link))
    assert shown.newest == progress().newest, "the result of the newest look stays"
    assert [(NEWEST_UNIX_NS - point.at_unix_ns) / HOUR_NS for point in shown.funnel.points] == of_chart
    assert [(NEWEST_UNIX_NS - change.at_unix_ns) / HOUR_NS for change in shown.changes] == of_history


@pytest.mark.slow
@pytest.mark.usefixtures("full")
def test_objective_of_budget_chart_is_in_the_link() -> None:
    app = opened("objectives")
    first = pictures(app)
    app.selectbox(key="choice_objective").select_index(1).run()
    assert not app.exception
    second = pictures(app)
    assert second != first
    assert pictures(opened("objectives", objective=app.query_params["objective"])) == second

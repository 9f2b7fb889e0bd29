"""Which runs a viewer chose, and its link."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard import filters
from dashboard.controls import _LABELS
from dashboard.runs_choice import BEGAN_LABELS, BEGAN_NS, NAMES, STATES, RunsChoice, runs_choice_of, values_of
from telemetry.store.run_folders.entries import RunEntry, RunFilter

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
        *filters.Choice.__slots__,
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
    assert name in _LABELS


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

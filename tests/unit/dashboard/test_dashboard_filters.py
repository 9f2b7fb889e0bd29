"""What a viewer chose, and its link."""

from dataclasses import replace
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.filters import DIMENSION_OF, Choice, choice_of
from telemetry.model.formatting import NS_PER_S
from telemetry.objectives.slo import default_objectives
from telemetry.store.answers import Filter
from telemetry.store.questions.pages import PageQuestion


def test_a_choice_is_a_question_to_the_store() -> None:
    choice = Choice(run="r1", cohort="B", phase="up", noise="babble", length="short", route="cache", window="5m")
    asked = choice.question(default_objectives())
    assert asked.filter == Filter(
        run_id="r1", cohort="B", phase="up", noise_profile="babble", length_class="short", route="cache"
    )
    assert asked.window_ns == 300 * NS_PER_S
    assert asked.objectives == tuple(default_objectives())
    assert Choice().question([]) == PageQuestion(with_timeline=False, with_cause=True)


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

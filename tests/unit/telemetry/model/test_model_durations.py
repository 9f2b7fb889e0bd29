"""Durations: the text that people write, the text that is shown, and the sentence for what is not a duration."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.model.durations import Duration, DurationError

MS = 1_000_000


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("90", 90_000 * MS),
        ("0", 0),
        ("0.25", 250 * MS),
        ("500ms", 500 * MS),
        ("2s", 2_000 * MS),
        ("1.5m", 90_000 * MS),
        ("1h", 3_600_000 * MS),
        ("1h30m", 5_400_000 * MS),
        ("7d", 604_800_000 * MS),
        ("1m30s", 90_000 * MS),
        (" 2M ", 120_000 * MS),
        ("1.5 s", 1_500 * MS),
        ("200us", 200_000),
        ("200µs", 200_000),
        ("7ns", 7),
        ("0.1s", 100 * MS),  # 0.1 is not a binary fraction
        ("0.000000001s", 1),
    ],
)
def test_what_people_write_is_read_exactly(text: str, ns: int) -> None:
    assert Duration.parse(text) == Duration(ns)


@pytest.mark.parametrize(
    "text",
    ["", " ", "s", "2 m x", "-3s", "-1", "1..5s", "3w", "2 weeks", "m2", "nan", "inf", ".", "1e3", "9" * 400, "1_000"],
)
def test_what_is_not_a_duration_is_refused_with_how_to_write_one(text: str) -> None:
    with pytest.raises(DurationError) as refused:
        Duration.parse(text)
    assert str(refused.value) == f"{text!r} is not a duration: write it as 500ms, 2s, 1.5m or 1h"


def test_a_number_alone_is_refused_where_a_unit_is_required() -> None:
    assert Duration.parse("2s", bare=False) == Duration.parse("2")
    with pytest.raises(DurationError, match="'2' is not a duration"):
        Duration.parse("2", bare=False)


@pytest.mark.parametrize("seconds", [-1.0, -1e-9, float("nan"), float("inf")])
def test_a_number_of_seconds_is_finite_and_not_negative(seconds: float) -> None:
    with pytest.raises(DurationError):
        Duration.of_s(seconds)


@pytest.mark.parametrize(("value", "ns"), [("20ms", 20 * MS), ("2", 2_000 * MS), (2, 2_000 * MS), (0.25, 250 * MS)])
def test_a_file_holds_a_text_or_a_number_of_seconds(value: object, ns: int) -> None:
    assert Duration.of_value(value) == Duration(ns)


@pytest.mark.parametrize("value", [None, True, ["2s"], {}, 10**400, pytest.param(-(16**6000), id="huge")])
def test_a_file_holds_nothing_else(value: object) -> None:
    with pytest.raises(ValueError, match=r"^(neither text nor a number|too large)$"):
        Duration.of_value(value)


@pytest.mark.parametrize("value", ["soon", -1, float("nan")])
def test_a_text_or_a_number_that_is_not_a_duration(value: object) -> None:
    with pytest.raises(DurationError):
        Duration.of_value(value)


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0s"),
        (10_000 * MS, "10s"),
        (90_000 * MS, "90s"),
        (120_000 * MS, "2m"),
        (1_500 * MS, "1500ms"),
        (3_600_000 * MS, "1h"),
        (1_001, "1001ns"),
    ],
)
def test_it_is_shown_in_its_largest_whole_unit(ns: int, text: str) -> None:
    assert str(Duration(ns)) == text


@given(st.integers(0, 10**18))
def test_the_text_form_reads_back_equal(ns: int) -> None:
    assert Duration.parse(str(Duration(ns)), bare=False) == Duration(ns)


@given(st.integers(0, 10**18), st.integers(0, 10**18))
def test_durations_are_ordered_by_their_length(first: int, second: int) -> None:
    assert (Duration(first) < Duration(second)) == (first < second)


def test_days_are_shown_from_two_on_as_people_write_them() -> None:
    assert [str(Duration.parse(text)) for text in ("24h", "1d", "48h", "7d", "36h")] == [
        "24h",
        "24h",
        "2d",
        "7d",
        "36h",
    ]

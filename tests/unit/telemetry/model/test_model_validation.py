"""Faults of a section: each with its path, a sentence that says how to mend it, and all of them at once."""

from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, date, datetime
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, Field

from telemetry.model.file_faults import FaultAt, Path, nearest, path_text, shown
from telemetry.model.validation import CheckedTable, refused, validated


def _even(value: int) -> int:
    if value % 2:
        raise refused(f"{value} is odd; write an even number")
    return value


class Inner(CheckedTable):
    size: Annotated[int, AfterValidator(_even)] = Field(default=2, ge=0, description="a number from 0 on is expected")
    share: float = 0.5


class Outer(CheckedTable):
    inner: Inner
    many: list[Inner] = Field(default=[], description="a list is expected")
    low: int = 0
    high: int = 1

    @classmethod
    def rules(cls, table: Mapping[str, Any], faulty: Collection[str]) -> Iterator[tuple[Path, str]]:
        if not {"low", "high"} & {*faulty} and table.get("low", 0) >= table.get("high", 1):
            yield ("low",), "is not below high; lower it"


def test_what_is_right_is_read() -> None:
    outer, faults = validated(Outer, {"inner": {"size": 4}, "many": [{}, {"share": 1}]})
    assert faults == []
    assert outer == Outer(inner=Inner(size=4), many=[Inner(), Inner(share=1.0)])


def test_every_fault_comes_at_once_in_the_order_of_the_fields_with_rules_last() -> None:
    value = {"inner": {"size": 3, "sizze": 1}, "many": [{}, {"share": True}, 7], "low": 9, "higgh": None}
    outer, faults = validated(Outer, value)
    assert outer is None
    assert faults == [
        FaultAt(("inner", "size"), "3 is odd; write an even number"),
        FaultAt(("inner", "sizze"), "is not a known key; did you mean size?"),
        FaultAt(("many", 1, "share"), "is true; input should be a valid number"),
        FaultAt(("many", 2), "is 7; a mapping with the keys size, share is expected"),
        FaultAt(("higgh",), "is not a known key; did you mean high?"),
        FaultAt(("low",), "is not below high; lower it"),
    ]


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ({}, "is missing; it holds size, share"),
        ({"inner": None}, "is null; a mapping with the keys size, share is expected"),
        ({"inner": {"size": -2}}, "is -2; a number from 0 on is expected"),
        ({"inner": {"size": 2.0}}, "is 2.0; a number from 0 on is expected"),
        ({"inner": {"size": True}}, "is true; a number from 0 on is expected"),
        ({"inner": {"size": "2"}}, "is '2'; a number from 0 on is expected"),
        ({"inner": {"share": float("nan")}}, "is nan; input should be a finite number"),
        ({"inner": {"share": 10**400}}, "is a number of more than 60 digits; input should be a valid number"),
        ({"inner": {7: 1}}, "is not a known key; known are size, share"),
        ({"inner": {None: 1}}, "is not a known key; known are size, share"),
        ({"inner": {"\ud800": 1}}, "is not a known key; known are size, share"),
        ({"inner": {}, "many": ()}, "is (); a list is expected"),
    ],
)
def test_each_kind_of_fault_is_a_sentence(value: object, sentence: str) -> None:
    (fault,) = validated(Outer, value)[1]
    assert fault.sentence == sentence


def test_a_rule_is_not_asked_about_values_that_cannot_be_used() -> None:
    (fault,) = validated(Outer, {"inner": {}, "low": "9"})[1]
    assert fault.path == ("low",)
    assert fault.sentence.startswith("is '9'; ")


def test_a_path_is_written_as_in_the_file() -> None:
    assert path_text(("spec", "objectives", 0, "target")) == "spec.objectives[0].target"
    assert path_text(("phases", 1, "users"), first=1) == "phases[2].users"
    assert path_text(()) == ""
    assert path_text(("a\x1b[2J\u202e",)) == "a\\x1b[2J\\u202e"
    assert len(path_text(("x" * 1_000_000, "\n" * 1_000_000))) < 200


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        ([False, None], "[false, null]"),
        ("a\x1b[2J", "'a\\x1b[2J'"),
        ([16**6000], "[a number of more than 60 digits]"),  # Python refuses to write it out
        ([[[[1]]]], "[[[...]]]"),
        (date(2026, 1, 2), "2026-01-02"),
        (datetime(2026, 1, 2, 3, 4, tzinfo=UTC), "2026-01-02 03:04:00+00:00"),
    ],
)
def test_a_value_is_shown_as_the_file_has_it(value: object, text: str) -> None:
    assert shown(value) == text


@pytest.mark.parametrize(
    "value", ["x" * 1_000_000, ["\x1b" * 1_000_000] * 9, {"k" * 1_000_000: [1] * 1_000_000}, b"\x00" * 100_000]
)
def test_a_value_is_shown_in_little_space_whatever_it_is(value: object) -> None:
    assert len(shown(value)) <= 80
    assert shown(value).isprintable()


def test_an_unknown_name_gets_the_nearest_or_all() -> None:
    assert nearest("sizze", ("size", "share")) == "; did you mean size?"
    assert nearest("q" * 1_000_000, ("size", "share")) == "; known are size, share"

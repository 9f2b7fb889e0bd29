"""Faults of a section, all at once, and TOML with the line of each key."""

from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, date, datetime
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, Field

from loadtest.errors import UsageError
from loadtest.toml_text import parse_toml as parse_for_users
from telemetry.model.errors import ConfigError
from telemetry.model.file_faults import FaultAt, Path, nearest, parse_toml, path_text, shown
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


def test_valid_document_is_read() -> None:
    outer, faults = validated(Outer, {"inner": {"size": 4}, "many": [{}, {"share": 1}]})
    assert faults == []
    assert outer == Outer(inner=Inner(size=4), many=[Inner(), Inner(share=1.0)])


def test_all_faults_come_in_field_order_with_rules_last() -> None:
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


TEXT = '''# A comment with [brackets] and a = sign.
name = "x # no comment" # = 1
a.b."c.d" = 1.5
long = """
[not.a.table]
key = 1 \\""" ""x"""""
literal = \'\'\'
[[no]]
\'\'\'
at = 1979-05-27 07:32:00
many = [
    1, # [
    [2,
     3],
    { x = 1, y = { z = [1, 2] } },
]

[one]
k = 'a\\'
[one.two]
k = true
[[list]]
k = 1
[[list.inner]]
k = 2
[[list.inner]]
k = 3
[list.inner.deep]
k = 4
[[list]]
k = 5
  ["quoted \\" key".'x']
k = 6
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("name",), 2),
        (("a",), 3),
        (("a", "b", "c.d"), 3),
        (("long",), 4),
        (("literal",), 7),
        (("at",), 10),
        (("many",), 11),
        (("many", 0), 12),
        (("many", 1), 13),
        (("many", 1, 1), 14),
        (("many", 2, "y", "z", 1), 15),
        (("one",), 18),
        (("one", "k"), 19),
        (("one", "two", "k"), 21),
        (("list",), 22),
        (("list", 0, "k"), 23),
        (("list", 0, "inner", 0, "k"), 25),
        (("list", 0, "inner", 1), 26),
        (("list", 0, "inner", 1, "deep", "k"), 29),
        (("list", 1, "k"), 31),
        (('quoted " key', "x", "k"), 33),
        (("list", 1, "missing", 3), 30),
        (("missing",), 1),
    ],
)
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_a_fault_has_the_line_of_its_key_or_of_what_lacks_it(path: Path, line: int, ending: str) -> None:
    text = parse_toml(TEXT.replace("\n", ending), "a.toml")
    (sentence,) = text.sentences([FaultAt(path, "is wrong")])
    assert sentence.startswith(f"a.toml: line {line}, ")
    assert sentence.endswith(": is wrong")


def test_faults_come_in_line_order_and_positions_count_from_1() -> None:
    text = parse_toml("a = 1\nb = [\n1,\n2]\n", "a.toml")
    assert text.sentences([FaultAt(("b", 1), "x"), FaultAt(("a",), "y"), FaultAt(("b",), "z")]) == [
        "a.toml: line 1, a: y",
        "a.toml: line 2, b: z",
        "a.toml: line 4, b[2]: x",
    ]


@pytest.mark.parametrize(
    "text", ["x =", "x = 1\nx = 2", "x = " + "[" * 5000, "x = " + "9" * 5000, "x = 1987-13-45", "\x1b[2J = 1"]
)
def test_invalid_toml_is_one_sentence(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^a\.toml: is not valid TOML: ") as caught:
        parse_toml(text, "a.toml")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 600
    with pytest.raises(UsageError) as for_users:
        parse_for_users(text, "a.toml")
    assert str(for_users.value) == str(caught.value)


@pytest.mark.slow
def test_a_long_text_is_gone_through_once() -> None:
    text = parse_toml('x = """' + '\\"' * 500_000 + '"""\n' + "y = [" + "1,\n" * 100_000 + "]\nz = 1\n", "a.toml")
    assert text.sentences([FaultAt(("z",), "is wrong")]) == ["a.toml: line 100003, z: is wrong"]

"""TOML with the line of each key: every way to write one, and the sentences about faults."""

import pytest

from loadtest.errors import UsageError
from loadtest.toml_text import parse_toml as parse_for_users
from telemetry.model.errors import ConfigError
from telemetry.model.file_faults import FaultAt, Path, parse_toml

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


def test_faults_come_in_the_order_of_the_lines_and_positions_count_from_1() -> None:
    text = parse_toml("a = 1\nb = [\n1,\n2]\n", "a.toml")
    assert text.sentences([FaultAt(("b", 1), "x"), FaultAt(("a",), "y"), FaultAt(("b",), "z")]) == [
        "a.toml: line 1, a: y",
        "a.toml: line 2, b: z",
        "a.toml: line 4, b[2]: x",
    ]


@pytest.mark.parametrize(
    "text", ["x =", "x = 1\nx = 2", "x = " + "[" * 5000, "x = " + "9" * 5000, "x = 1987-13-45", "\x1b[2J = 1"]
)
def test_what_is_not_toml_is_one_sentence(text: str) -> None:
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

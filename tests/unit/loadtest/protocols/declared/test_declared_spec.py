"""Specs of declared wires: all faults at once with line and field, paths, and places in templates."""

import contextlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.errors import UsageError
from loadtest.protocols.base import CallerOptions
from loadtest.protocols.declared.spec import parse_spec
from loadtest.protocols.declared.templates import filled, parse_path
from loadtest.protocols.registry import make_caller

EXAMPLES = sorted((Path(__file__).parents[5] / "examples" / "protocols").glob("*.yaml"))

FAULTY = """\
name: faulty
audio:
  encoding: pcmu
  rate_hz: 16000
turn:
  end: [{type: stop, id: "{$.id}"}]
  begin: [{type: start, model: "{mood}"}]
reply: {audio: binary, ends: silence}
events:
  - when: {type: ready}
    is: ready
  - when: {$.type: words}
    is: partial
  - when: {$.type: done}
    is: replied
  - is: ignored
"""


def test_all_faults_are_reported_at_once_each_with_its_line_and_field() -> None:
    with pytest.raises(UsageError) as error:
        parse_spec(FAULTY, "wire.yaml")
    lines = str(error.value).splitlines()
    assert [line.split(": ")[0] for line in lines] == [
        "wire.yaml:2",
        "wire.yaml:6",
        "wire.yaml:7",
        "wire.yaml:8",
        "wire.yaml:10",
        "wire.yaml:12",
        "wire.yaml:15",
        "wire.yaml:16",
    ]
    found = {line.split(": ")[0].removeprefix("wire.yaml:"): line for line in lines}
    assert "audio: pcmu has 8000 Hz, not 16000" in found["2"]
    assert "turn.end.0: {$.id} needs a message that is being answered" in found["6"]
    assert "turn.begin.0: there is no {mood} here; known: " in found["7"]
    assert "reply.ends: there is no such member" in found["8"]
    assert "a path begins with $" in found["10"]
    assert "has its text at a path" in found["12"]
    assert "events.2.is: input should be 'ready'" in found["15"]
    assert "events.3.when: field required" in found["16"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name: [", "wire.yaml:1: this is not YAML"),
        ("- a\n- b\n", "wire.yaml: a spec is a mapping"),
        ("name: a\nevents: []\nname: b\n", "wire.yaml:3: name: is there twice"),
        ("events: []\nreply: {end: silence}\n", "wire.yaml:1: name: field required"),
        ("name: a\nevents: []\n", "wire.yaml:1: the spec: no message means reply_done"),
        ("name: a\nreply: {end: silence, audio: json}\nevents: []\n", "no message means audio"),
        ("name: a\nreply: {end: silence}\naudio: {frame: {a: 1}}\nevents: []\n", "wire.yaml:3: audio: the frame has"),
        (
            "name: a\nreply: {end: silence}\naudio: {frame: {a: '{audio}', n: '{sequence}'}}\nevents: []\n",
            "{audio} is the last place of the frame",
        ),
    ],
)
def test_what_is_no_spec_is_refused_with_a_sentence(text: str, says: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_spec(text, "wire.yaml")
    assert says in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_an_example_is_a_spec(file: Path) -> None:
    assert parse_spec(file.read_text(), file.name).name == file.stem


def test_a_spec_that_is_missing_or_cannot_be_read_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--protocol-option spec=FILE"):
        make_caller("declared", CallerOptions())
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        make_caller("declared", CallerOptions(settings={"spec": str(tmp_path / "none.yaml")}))


STORE: dict[str, Any] = {
    "store": {
        "book": [{"title": "one", "price": 8}, {"title": "two", "price": 12}],
        "the owner": {"first-name": "Ada"},
        "10": True,
    }
}


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("$", [STORE]),
        ("$.store.book[0].title", ["one"]),
        ("$.store.book[-1].title", ["two"]),
        ("$.store.book[2].title", []),
        ("$.store.book[*].price", [8, 12]),
        ("$['store']['the owner'].first-name", ["Ada"]),
        ('$.store["10"]', [True]),
        ("$.store.*.first-name", ["Ada"]),
        ("$.nothing.book", []),
        ("$.store.book.title", []),
    ],
)
def test_paths_lead_to_values(path: str, values: list[Any]) -> None:
    assert list(parse_path(path).all(STORE)) == values
    assert parse_path(path).first(STORE) == (values[0] if values else None)


@pytest.mark.parametrize("text", ["", "store", "$.", "$..a", "$.a[?(@.b)]", "$.a[x]", "$.a b", "$a", "$['a"])
def test_a_path_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="path"):
        parse_path(text)


@given(st.text(max_size=12))
def test_no_text_makes_the_reader_of_paths_fail_otherwise(text: str) -> None:
    with contextlib.suppress(ValueError):
        parse_path("$" + text).all(STORE)


def test_places_are_filled_in_and_a_member_without_a_value_is_left_out() -> None:
    template = {
        "id": "{$.id}",
        "list": ["{model}", "{voice}"],
        "text": "turn {turn} of {model}",
        "voice": "{voice}",
        "n": 1,
    }
    message = filled(template, {"model": "m", "voice": None, "turn": 3}, {"id": 7})
    assert message == {"id": 7, "list": ["m"], "text": "turn 3 of m", "n": 1}

"""Files of prompts with every fault at once, and which answers are right."""

from pathlib import Path

import pytest

from loadtest.llm.prompts import Expectation, checkable, load_prompts
from telemetry.model.errors import ConfigError

PERSON = {"type": "object", "required": ["age"], "properties": {"age": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("expect", "right", "wrong"),
    [
        (Expectation(intent="lights_on", among=["lights_on", "lights_off"]), "Lights_On.", "lights_on or lights_off"),
        (Expectation(intent="on"), "on", "once"),
        (
            Expectation(slots={"room": "kitchen", "minutes": 5}),
            '```json\n{"room": "Kitchen", "minutes": "5"}\n```',
            "{}",
        ),
        (Expectation(slots={"open": True}), 'Sure: {"open": true}', '{"open": 1}'),
        (Expectation(number=22), "7 and 15 make 22.", "22 is 7 more than 15"),
        (Expectation(number=-1204.5), "It is −1,204.5", "1,204.5"),
        (Expectation(number=6.5, tolerance=0.1), "$6.55", "6.7"),
        (Expectation(schema=PERSON), '{"age": 36}', '{"age": "36"}'),
        (Expectation(schema=PERSON), 'It is {"age": 3} then', "no JSON {here"),
        (Expectation(contains=["paris", "Seine"]), "PARIS on the Seine", "Paris"),
    ],
)
def test_an_answer_is_right_by_its_kind(expect: Expectation, right: str, wrong: str) -> None:
    assert expect.is_met(right)
    assert not expect.is_met(wrong)
    assert not expect.is_met("")
    assert not expect.is_met("[" * 100_000)


def test_the_default_prompts_have_talk_and_every_kind_of_check() -> None:
    prompts = load_prompts(None)
    kinds = {prompt.expect.kind for prompt in checkable(prompts) if prompt.expect is not None}
    assert kinds == {"intent", "slots", "number", "schema", "contains"}
    assert len(prompts) - len(checkable(prompts)) >= 3


def test_toml_and_json_lines_say_the_same(tmp_path: Path) -> None:
    toml, lines = tmp_path / "prompts.toml", tmp_path / "prompts.jsonl"
    toml.write_text('[[prompt]]\nid = "a"\nuser = "How many?"\nexpect = {number = 3}\n')
    lines.write_text('{"id": "a", "user": "How many?", "expect": {"number": 3}}\n\n')
    assert load_prompts(toml) == load_prompts(lines)


def test_every_fault_of_a_file_is_reported_at_once(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    entries = (
        '{"id": "a", "user": ""}',
        '{"id": "b", "user": "x", "systems": "y"}',
        '{"id": "c", "user": "x", "expect": {"number": NaN}}',
        '{"id": "d", "user": "x", "expect": {"number": 1, "contains": ["y"]}}',
        '{"id": "e", "user": "x", "expect": {"schema": {"type": "thing"}}}',
        '{"id": "f", "user": "x", "expect": {"intent": "on", "amonk": ["off"]}}',
        '{"id": "g", "user": "x"}',
        '{"id": "g", "user": "y"}',
        "[1]",
    )
    file.write_text("\n".join(entries))
    with pytest.raises(ConfigError) as caught:
        load_prompts(file)
    faults = caught.value.faults
    assert len(faults) == 8
    for words in (
        "line 1 user is ''",
        "did you mean system",
        "line 3 expect.number is nan; a finite number is expected",
        "give one of",
        "line 5 expect.schema is no JSON schema",
        "line 6 expect.amonk",
        "line 8 has the id of an earlier one, 'g'",
        "line 9 is [1]; a table",
    ):
        assert sum(words in fault for fault in faults) == 1, (words, faults)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.toml", b"[[prompt]\n", "not valid TOML"),
        ("a.toml", b"x = 1\n", "x: is not a known key"),
        ("a.toml", b"prompt = 3\n", "prompt: is 3"),
        ("a.toml", b"", "prompt: is missing"),
        ("a.jsonl", b'{"id"\n', "line 1"),
        ("a.toml", b"\xff", "UTF-8"),
        ("a.toml", None, "cannot be read"),
    ],
)
def test_a_file_that_cannot_be_used_has_its_reason(
    tmp_path: Path, name: str, content: bytes | None, words: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=words):
        load_prompts(tmp_path / name)

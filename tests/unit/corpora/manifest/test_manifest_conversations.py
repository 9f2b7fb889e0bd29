"""Conversations of a corpus: what is written is read, and every fault is named at once."""

import json
from pathlib import Path
from typing import Any

import pytest

from corpora.manifest.conversations import (
    ConversationTurn,
    ScriptedConversation,
    find_conversation_faults,
    read_conversations,
    write_conversations,
)
from corpora.manifest.errors import ManifestError
from corpora.manifest.library import open_corpus
from tests.corpus_faults import find_faults

TWO = (
    ScriptedConversation(
        "monday",
        (
            ConversationTurn("hello", intent="greet"),
            ConversationTurn("bye", think_s=0.8),
            ConversationTurn("hello", barge_in_after_s=1.25),
        ),
    ),
    ScriptedConversation("tuesday", (ConversationTurn("bye"),)),
)


def put(folder: Path, *rows: Any) -> None:
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    (folder / "conversations.jsonl").write_text("\n".join(lines) + "\n")


def faults(folder: Path, *rows: Any) -> tuple[str, ...]:
    put(folder, *rows)
    with pytest.raises(ManifestError) as caught:
        read_conversations(folder, {"hello", "bye"})
    return caught.value.faults


def test_written_conversations_are_read_back(tmp_path: Path) -> None:
    write_conversations(tmp_path, TWO)
    assert read_conversations(tmp_path, {"hello", "bye"}) == TWO


def test_a_corpus_without_the_file_has_no_conversations(tmp_path: Path) -> None:
    assert read_conversations(tmp_path, {"hello"}) == ()


def test_unknown_values_may_be_left_out_or_null(tmp_path: Path) -> None:
    turn = {"utterance": "hello", "think_s": None, "intent": None, "barge_in_after_s": None}
    put(tmp_path, {"id": "a", "turns": [turn]}, "", {"id": "b", "turns": [{"utterance": "hello"}]})
    assert [c.turns for c in read_conversations(tmp_path, {"hello"})] == [(ConversationTurn("hello"),)] * 2


@pytest.mark.parametrize(
    ("turns", "says"),
    [
        ([{"utterance": "nobody"}], "turns[0]: the utterance 'nobody' is not in the manifest"),
        (
            [{"utterance": "bye", "think_s": -0.1}],
            "think_s is -0.1; it must be a number of seconds from 0 to 600, or null",
        ),
        ([{"utterance": "bye", "think_s": 601}], "think_s is 601"),
        (
            [{"utterance": "bye"}, {"utterance": "bye", "barge_in_after_s": 1e9}],
            "turns[1]: barge_in_after_s is 1000000000.0; it",
        ),
        ([{"utterance": "bye", "barge_in_after_s": 1}], "turns[0]: the first turn cannot interrupt because no reply"),
        ([{"utterance": "bye"}, {"utterance": "bye", "barge_in_after_s": 1, "think_s": 1}], "has both think_s and"),
        ([{"utterance": "bye", "intent": " "}], "intent is ' '; it must be one line of 1 to 200 characters"),
        ([{"utterance": "bye", "intent": "a\nb"}], "intent is 'a\\nb'; it must be one line"),
        ([{"utterance": "bye", "think": 1}], "turns[0]: the field 'think' is unknown; did you mean think_s?"),
        ([{"think_s": 1}], "turns[0]: the field utterance is missing; it must be the id of an utterance"),
        ([], "turns is []; it must be a list of 1 to 10000 turns"),
        ("bye", "turns is 'bye'; it must be a list"),
        (["bye"], "turns[0] is 'bye'; it must be an object with utterance, think_s, intent, barge_in_after_s"),
    ],
)
def test_each_fault_is_one_sentence_with_its_line(tmp_path: Path, turns: Any, says: str) -> None:
    (fault,) = faults(tmp_path, {"id": "a", "turns": turns})
    assert fault.startswith(f"{tmp_path}/conversations.jsonl:1: ")
    assert says in fault


def test_all_faults_are_named_at_once(tmp_path: Path) -> None:
    good = [{"utterance": "hello"}]
    lines = faults(tmp_path, "{", {"id": "../x", "turns": good}, {"id": "a", "turns": good}, {"id": "A", "turns": good})
    assert [fault.split(": ", 1)[0].rsplit(":", 1)[1] for fault in lines] == ["1", "2", "4"]
    assert "is already used in line 3" in lines[2]


def test_all_faults_of_a_line_are_named_at_once(tmp_path: Path) -> None:
    turns = [{"utterance": 5, "think_s": True, "barge_in_after_s": 1}, None, {"intent": [], "shout": 1}]
    lines = faults(tmp_path, {"id": "a b", "turns": turns, "title": "x"})
    assert [fault.partition("conversations.jsonl:1: a b: ")[2].partition(";")[0] for fault in lines] == [
        "id is 'a b'",
        "the field 'title' is unknown",
        "turns[0]: utterance is 5",
        "turns[0]: think_s is true",
        "turns[0]: has both think_s and barge_in_after_s",
        "turns[0]: the first turn cannot interrupt because no reply precedes it",
        "turns[1] is null",
        "turns[2]: the field utterance is missing",
        "turns[2]: intent is []",
        "turns[2]: the field 'shout' is unknown",
    ]


def test_every_value_of_a_repeated_key_must_be_valid(tmp_path: Path) -> None:
    turn = '{"utterance": "hello"}'
    put(tmp_path, f'{{"id": "a", "id": "b", "turns": [{turn}]}}')
    assert [conversation.id for conversation in read_conversations(tmp_path, {"hello"})] == ["b"]
    (fault,) = faults(tmp_path, f'{{"id": 5, "id": "b", "turns": [{turn}]}}')
    assert "conversations.jsonl:1: b: a key is repeated, and an earlier value is wrong" in fault


def test_conversation_not_from_file_is_checked_by_same_rules() -> None:
    turns = (ConversationTurn("\udcff"), ConversationTurn("hello", think_s=float("nan")), ConversationTurn("hello"))
    assert find_conversation_faults(ScriptedConversation("a", turns), {"hello"}) == [
        "turns[0]: the utterance '\\udcff' is not in the manifest; add it there or correct the id.",
        "turns[1]: think_s is nan; it must be a number of seconds from 0 to 600, or null.",
    ]
    assert find_conversation_faults(ScriptedConversation("a", turns[2:]), {"hello"}) == []


def test_opened_corpus_has_its_conversations_and_their_faults(workshop: Any) -> None:
    workshop.add("hello")
    folder = workshop.save()
    assert open_corpus(folder).conversations == ()
    put(folder, {"id": "a", "turns": [{"utterance": "hello", "think_s": 1}]})
    assert open_corpus(folder).conversations == (ScriptedConversation("a", (ConversationTurn("hello", think_s=1.0),)),)
    put(folder, {"id": "a", "turns": [{"utterance": "gone"}]})
    assert "'gone' is not in the manifest" in find_faults(folder)[0]

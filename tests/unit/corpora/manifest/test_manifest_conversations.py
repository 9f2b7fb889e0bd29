"""Conversations of a corpus: what is written is read, and every fault is named at once."""

import json
from pathlib import Path
from typing import Any

import pytest

from corpora.manifest.conversations import (
    ConversationTurn,
    ScriptedConversation,
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


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_conversations(tmp_path, TWO)
    assert read_conversations(tmp_path, {"hello", "bye"}) == TWO


def test_a_corpus_without_the_file_has_no_conversations(tmp_path: Path) -> None:
    assert read_conversations(tmp_path, {"hello"}) == ()


def test_what_is_not_known_may_be_left_out_or_null(tmp_path: Path) -> None:
    turn = {"utterance": "hello", "think_s": None, "intent": None, "barge_in_after_s": None}
    put(tmp_path, {"id": "a", "turns": [turn]}, "", {"id": "b", "turns": [{"utterance": "hello"}]})
    assert [c.turns for c in read_conversations(tmp_path, {"hello"})] == [(ConversationTurn("hello"),)] * 2


@pytest.mark.parametrize(
    ("turns", "says"),
    [
        ([{"utterance": "nobody"}], "turns[0]: the utterance 'nobody' is not in the manifest"),
        ([{"utterance": "bye", "think_s": -0.1}], "think_s is -0.1; it must be from 0 to 600 seconds"),
        ([{"utterance": "bye", "think_s": 601}], "think_s is 601"),
        ([{"utterance": "bye"}, {"utterance": "bye", "barge_in_after_s": 1e9}], "turns[1]: barge_in_after_s is 1e+09"),
        ([{"utterance": "bye", "barge_in_after_s": 1}], "the first turn cannot interrupt"),
        ([{"utterance": "bye"}, {"utterance": "bye", "barge_in_after_s": 1, "think_s": 1}], "has both think_s and"),
        ([{"utterance": "bye", "intent": " "}], "intent must be one line"),
        ([{"utterance": "bye", "intent": "a\nb"}], "intent must be one line"),
        ([{"utterance": "bye", "think": 1}], "unknown field"),
        ([{"think_s": 1}], "missing required field"),
        ([], "it has 0 turns"),
        ("bye", "is no conversation"),
    ],
)
def test_each_fault_is_one_sentence_with_its_line(tmp_path: Path, turns: Any, says: str) -> None:
    (fault,) = faults(tmp_path, {"id": "a", "turns": turns})
    assert fault.startswith(f"{tmp_path}/conversations.jsonl:1: ")
    assert says in fault


def test_all_faults_are_named_at_once(tmp_path: Path) -> None:
    good = [{"utterance": "hello"}]
    found = faults(tmp_path, "{", {"id": "../x", "turns": good}, {"id": "a", "turns": good}, {"id": "A", "turns": good})
    assert [fault.split(": ", 1)[0].rsplit(":", 1)[1] for fault in found] == ["1", "2", "4"]
    assert "is taken by line 3 already" in found[2]


def test_an_opened_corpus_carries_its_conversations_and_their_faults(workshop: Any) -> None:
    workshop.add("hello")
    folder = workshop.save()
    assert open_corpus(folder).conversations == ()
    put(folder, {"id": "a", "turns": [{"utterance": "hello", "think_s": 1}]})
    assert open_corpus(folder).conversations == (ScriptedConversation("a", (ConversationTurn("hello", think_s=1.0),)),)
    put(folder, {"id": "a", "turns": [{"utterance": "gone"}]})
    assert "'gone' is not in the manifest" in find_faults(folder)[0]

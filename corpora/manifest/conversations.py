"""Reads and writes dialogues: the order of utterances, the caller's pauses and the intent of each turn.

A corpus may have a `conversations.jsonl` (UTF-8) next to its manifest. Each line is one conversation, `{"id": NAME,
"turns": [{"utterance": ID, "think_s": SECONDS, "intent": NAME, "barge_in_after_s": SECONDS}, ...]}`; of a turn's
fields only `utterance` is required, and null is the same as an omitted field: not known, or set by the scenario.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import msgspec

from corpora.manifest.errors import ManifestError
from corpora.manifest.json_lines import decode_rows, read_bounded
from corpora.manifest.manifest import replace_file
from corpora.manifest.validation import (
    NAME_RULE,
    DuplicateFinder,
    Row,
    RowChecker,
    Rule,
    one_line_rule,
    row_label,
    shown,
)

CONVERSATIONS_NAME = "conversations.jsonl"
MAX_PAUSE_S = 600.0

_MAX_BYTES = 64 * 1024 * 1024
_MAX_TURNS = 10_000
_MAX_INTENT_CHARS = 200


class ConversationTurn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing the caller says in a conversation.

    `think_s` is the pause between the end of the previous reply and the first speech sample of this turn.
    `barge_in_after_s` makes the turn an interruption of the previous reply, this long after that reply's first
    audible sample. A turn has at most one of the two, and the first turn cannot interrupt.
    """

    utterance: str
    think_s: float | None = None
    intent: str | None = None
    barge_in_after_s: float | None = None


class ScriptedConversation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The caller's side of a dialogue, in order."""

    id: str
    turns: tuple[ConversationTurn, ...]


@dataclass(frozen=True, slots=True)
class _ConversationRow:
    id: str
    turns: list[object]  # each is checked on its own


_PAUSE: Final = Rule(f"a number of seconds from 0 to {MAX_PAUSE_S:g}, or null", {"ge": 0, "le": MAX_PAUSE_S})
_CONVERSATION_CHECKER: Final = RowChecker(
    _ConversationRow,
    {
        "id": NAME_RULE,
        "turns": Rule(f"a list of 1 to {_MAX_TURNS} turns", {"min_length": 1, "max_length": _MAX_TURNS}),
    },
)
_TURN_CHECKER: Final = RowChecker(
    ConversationTurn,
    {
        "utterance": Rule("the id of an utterance in the manifest"),
        "think_s": _PAUSE,
        "intent": one_line_rule(_MAX_INTENT_CHARS, ", or null"),
        "barge_in_after_s": _PAUSE,
    },
)


def read_conversations(folder: Path, utterances: Collection[str]) -> tuple[ScriptedConversation, ...]:
    """Read the conversations of a corpus folder with these utterances (ids); empty if it has no such file.

    Raises ManifestError with every fault in the file.
    """
    file = folder / CONVERSATIONS_NAME
    try:
        if not file.is_file():
            return ()
    except OSError as error:
        raise ManifestError(file, [f"{file}: cannot be read ({error.strerror}); check its permissions."]) from error
    conversations: list[ScriptedConversation] = []
    faults: list[str] = []
    duplicates = DuplicateFinder()
    known = frozenset(utterances)
    for number, line, row in decode_rows(file, read_bounded(file, _MAX_BYTES), faults):
        row_faults = _row_faults(row, known)
        if isinstance(name := row.get("id"), str):
            row_faults += duplicates.find("id", name, number)
        try:
            conversations.append(msgspec.json.decode(line, type=ScriptedConversation))
        except msgspec.ValidationError as error:
            # A row has the last value of a repeated key; the earlier ones must be of the right type, too.
            row_faults = row_faults or [f"a key is repeated, and an earlier value is wrong ({error}); remove one."]
        faults += [f"{file}:{number}: {row_label(row)}: {fault}" for fault in row_faults]
    if faults:
        raise ManifestError(file, faults)
    return tuple(conversations)


def write_conversations(folder: Path, conversations: Iterable[ScriptedConversation]) -> None:
    """Write a folder's conversations atomically, in the order given; the same conversations give the same bytes."""
    rows = [msgspec.json.encode(conversation) + b"\n" for conversation in conversations]
    replace_file(folder / CONVERSATIONS_NAME, b"".join(rows))


def find_conversation_faults(conversation: ScriptedConversation, utterances: Collection[str]) -> list[str]:
    """Return everything that is wrong with one conversation over these utterances (ids), one sentence each."""
    row = cast("Row", msgspec.to_builtins(conversation))
    return _row_faults({**row, "turns": list(cast("Iterable[object]", row["turns"]))}, utterances)


def _row_faults(row: Row, utterances: Collection[str]) -> list[str]:
    sentences = [fault.sentence for fault in _CONVERSATION_CHECKER.find_faults(row)]
    if isinstance(turns := row.get("turns"), list):
        for position, turn in enumerate(cast("list[object]", turns)):
            sentences += _turn_faults(turn, position, utterances)
    return sentences


def _turn_faults(value: object, position: int, utterances: Collection[str]) -> list[str]:
    faults = _TURN_CHECKER.find_faults(value)
    if not isinstance(value, dict):
        return [f"turns[{position}] {fault.sentence}" for fault in faults]
    turn = cast("Row", value)
    sentences = [fault.sentence for fault in faults]
    faulty = {fault.key for fault in faults}
    if "utterance" not in faulty and turn["utterance"] not in utterances:
        sentences.append(
            f"the utterance {shown(turn['utterance'])} is not in the manifest; add it there or correct the id."
        )
    interrupts = turn.get("barge_in_after_s") is not None
    if interrupts and turn.get("think_s") is not None:
        sentences.append(
            "has both think_s and barge_in_after_s; remove one: a caller waits for the reply or interrupts it."
        )
    if interrupts and position == 0:
        sentences.append("the first turn cannot interrupt because no reply precedes it; remove barge_in_after_s.")
    return [f"turns[{position}]: {sentence}" for sentence in sentences]

"""Dialogues: which utterances of a corpus follow one another, with the caller's pauses and what each turn is after.

A corpus may hold a `conversations.jsonl` (UTF-8) beside its manifest. Each line is one conversation, `{"id": NAME,
"turns": [{"utterance": ID, "think_s": SECONDS, "intent": NAME, "barge_in_after_s": SECONDS}, ...]}`; of a turn's
fields only `utterance` is required, and null says the same as leaving a field out: not known, or left to the scenario.
"""

import math
import re
from collections.abc import Collection, Iterable
from pathlib import Path

import msgspec

from corpora.manifest.errors import ManifestError
from corpora.manifest.manifest import replace_file

CONVERSATIONS_NAME = "conversations.jsonl"
MAX_PAUSE_S = 600.0

_MAX_BYTES = 64 * 1024 * 1024
_MAX_TURNS = 10_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_INTENT = re.compile(r"[^\x00-\x1f\x7f]{1,200}")


class ConversationTurn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing the caller says in a conversation.

    `think_s` is the pause between the end of what the agent said before and the first speech sample of this turn.
    `barge_in_after_s` makes the turn an interruption of the reply before it, begun so long after that reply's first
    audible sample. A turn has one of the two at most, and the first turn interrupts nothing.
    """

    utterance: str
    think_s: float | None = None
    intent: str | None = None
    barge_in_after_s: float | None = None


class ScriptedConversation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The caller's side of a dialogue, in order."""

    id: str
    turns: tuple[ConversationTurn, ...]


def read_conversations(folder: Path, utterances: Collection[str]) -> tuple[ScriptedConversation, ...]:
    """Read the conversations of a corpus folder whose manifest lists these utterances (ids); none if it has no file.

    Raises ManifestError with every fault in the file.
    """
    file = folder / CONVERSATIONS_NAME
    found: list[ScriptedConversation] = []
    faults: list[str] = []
    line_by_id: dict[str, int] = {}
    known = frozenset(utterances)
    for number, line in enumerate(_lines(file), start=1):
        if not line.strip():
            continue
        try:
            conversation = msgspec.json.decode(line, type=ScriptedConversation)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            faults.append(f'{file}:{number}: is no conversation ({error}); a line is {{"id": ..., "turns": [...]}}.')
            continue
        earlier = line_by_id.setdefault(conversation.id.casefold(), number)
        if earlier != number:
            faults.append(
                f"{file}:{number}: the id {conversation.id!r} is taken by line {earlier} already; change one."
            )
        faults += [f"{file}:{number}: {fault}" for fault in find_conversation_faults(conversation, known)]
        found.append(conversation)
    if faults:
        raise ManifestError(file, faults)
    return tuple(found)


def write_conversations(folder: Path, conversations: Iterable[ScriptedConversation]) -> None:
    """Write a folder's conversations in one step, in the order given; the same conversations give the same bytes."""
    rows = [msgspec.json.encode(conversation) + b"\n" for conversation in conversations]
    replace_file(folder / CONVERSATIONS_NAME, b"".join(rows))


def find_conversation_faults(conversation: ScriptedConversation, utterances: Collection[str]) -> list[str]:
    """Everything that is wrong with one conversation over these utterances, one sentence each."""
    faults: list[str] = []
    if not _NAME.fullmatch(conversation.id):
        faults.append(
            f"the id {conversation.id[:100]!r} must be 1 to 100 letters, digits, dots, dashes or underscores, "
            "beginning with one of the first."
        )
    if not 1 <= len(conversation.turns) <= _MAX_TURNS:
        faults.append(f"it has {len(conversation.turns)} turns; a conversation has 1 to {_MAX_TURNS}.")
    for position, turn in enumerate(conversation.turns):
        faults += [f"turns[{position}]: {fault}" for fault in _turn_faults(turn, position, utterances)]
    return faults


def _turn_faults(turn: ConversationTurn, position: int, utterances: Collection[str]) -> list[str]:
    faults: list[str] = []
    if turn.utterance not in utterances:
        faults.append(f"the utterance {turn.utterance[:100]!r} is not in the manifest; add it there or correct the id.")
    for field, value in (("think_s", turn.think_s), ("barge_in_after_s", turn.barge_in_after_s)):
        if value is not None and not (math.isfinite(value) and 0.0 <= value <= MAX_PAUSE_S):
            faults.append(f"{field} is {value:g}; it must be from 0 to {MAX_PAUSE_S:g} seconds, or null.")
    if turn.intent is not None and not (turn.intent.strip() and _INTENT.fullmatch(turn.intent)):
        faults.append("intent must be one line of 1 to 200 characters, or null.")
    if turn.barge_in_after_s is not None and turn.think_s is not None:
        faults.append("has both think_s and barge_in_after_s; a caller waits for the reply or interrupts it.")
    if turn.barge_in_after_s is not None and position == 0:
        faults.append("the first turn cannot interrupt, no reply comes before it; take barge_in_after_s away.")
    return faults


def _lines(file: Path) -> list[bytes]:
    try:
        if not file.is_file():
            return []
        if file.stat().st_size > _MAX_BYTES:
            fault = f"{file}: is larger than {_MAX_BYTES >> 20} MB; split the corpus into several folders."
            raise ManifestError(file, [fault])
        return file.read_bytes().split(b"\n")
    except OSError as error:
        raise ManifestError(file, [f"{file}: cannot be read ({error.strerror}); check its permissions."]) from error

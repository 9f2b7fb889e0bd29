"""Generates the page of the corpus folder: the fields of its manifest and of its conversations."""

from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, Final

import msgspec

from corpora.manifest import manifest
from corpora.manifest.conversations import ConversationTurn
from docs_build import comments
from docs_build.markdown import cell, code, page, table

INTRODUCTION: Final = """
A corpus is a folder with a `manifest.jsonl` (UTF-8, one JSON object per line) and the lossless mono clips that it
names. The first line is the header, `{"corpus": NAME, "kind": "recorded human", "format": 2, "edges": "exact"}`, with
`"kind": "generated"` for synthetic speech. With `"edges": "recorded"`, speech ends where it does in the recording; with
`"exact"`, also if the key is missing, where the clip is faded out. Every other line is one utterance.
`voiceprobe corpus check` reports every fault of a corpus.
"""
CONVERSATIONS: Final = """
A `conversations.jsonl` next to the manifest contains dialogues, one per line:
`{"id": NAME, "turns": [{"utterance": ID, ...}]}`. A turn may have `think_s` or `barge_in_after_s`, but not both.
"""
MEANINGS: Final = {
    "id": "name, unique in this corpus",
    "speaker": "the speaker; --mix can weight speakers",
    "domain": "the topic; --mix can weight domains",
    "source": "origin of the recording",
    "sample_rate_hz": f"sample rate, {manifest.RATES_HZ[0]} to {manifest.RATES_HZ[-1]} Hz",
    "samples": "length of the clip",
    "pii_kinds": "kinds of personal data in the text",
    "utterance": "id of an utterance of this corpus",
    "think_s": "pause from the end of the previous reply to the first speech sample of this turn, s",
    "intent": "the intent that the agent should recognize",
    "barge_in_after_s": "interrupt the previous reply this long after its first audible sample, s",
}


def corpus_page() -> str:
    """Return the page about the manifest and the conversations of a corpus."""
    meanings = _meanings()
    rows = [
        (code(each.name), "yes" if each.default is MISSING else "", cell(meanings.get(each.name, "")))
        for each in fields(manifest.Utterance)
    ]
    turns: list[Any] = list(msgspec.structs.fields(ConversationTurn))
    dialogue = [(code(each.name), "yes" if each.required else "", cell(MEANINGS.get(each.name, ""))) for each in turns]
    return page(
        "Corpus folder",
        INTRODUCTION,
        table(("Field", "Required", "Meaning"), rows),
        "## Conversations",
        CONVERSATIONS,
        table(("Field of a turn", "Required", "Meaning"), dialogue),
    )


def _meanings() -> dict[str, str]:
    """Return the meaning of each field: its trailing comment, its entry in MEANINGS, or the comment above it."""
    file = Path(manifest.__file__)
    above = {name: group.comment for group in comments.groups(file, "Utterance") for name in group.names}
    beside = comments.trailing(file, "Utterance")
    return {name: beside[name] or MEANINGS.get(name) or above[name] for name in beside}

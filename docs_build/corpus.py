"""The page of a corpus folder: the fields of its manifest and of its conversations."""

from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, Final

import msgspec

from corpora.manifest import manifest
from corpora.manifest.conversations import ConversationTurn
from docs_build import comments
from docs_build.markdown import cell, code, page, table

INTRODUCTION: Final = """
A corpus is a folder with a `manifest.jsonl` (UTF-8, one JSON object a line) and the clips that it names: lossless and
mono. The first line is the header, `{"corpus": NAME, "kind": "recorded human", "format": 2}`, or `"kind": "generated"`
for synthetic speech. Each further line is one utterance. `voiceprobe corpus check` reports every fault of a corpus.
"""
CONVERSATIONS: Final = """
A `conversations.jsonl` beside the manifest holds dialogues, one a line:
`{"id": NAME, "turns": [{"utterance": ID, ...}]}`. A turn has either `think_s` or `barge_in_after_s`, or neither.
"""
MEANINGS: Final = {
    "id": "unique name in this corpus",
    "speaker": "who speaks; a weight in --mix",
    "domain": "what it is about; a weight in --mix",
    "source": "where the recording comes from",
    "sample_rate_hz": f"sample rate, {manifest.RATES_HZ[0]} to {manifest.RATES_HZ[-1]} Hz",
    "samples": "length of the clip",
    "pii_kinds": "kinds of personal data in the text",
    "utterance": "id of an utterance of this corpus",
    "think_s": "pause between the end of the reply before and the first speech sample of this turn, s",
    "intent": "the intent that the agent should recognize",
    "barge_in_after_s": "interrupt the reply before, so long after its first audible sample, s",
}


def corpus_page() -> str:
    """The manifest and the conversations of a corpus."""
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
    """The meaning of each field: the comment beside it, the one above it, or ours."""
    file = Path(manifest.__file__)
    above = {name: group.comment for group in comments.groups(file, "Utterance") for name in group.names}
    beside = comments.trailing(file, "Utterance")
    return {name: beside[name] or MEANINGS.get(name) or above[name] for name in beside}

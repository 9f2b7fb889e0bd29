"""What people said is not stored unless asked for: the one table of attributes that carry text, and its use."""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from telemetry.turns import Turn

# Whole attribute names (the GenAI conventions, OpenInference, OpenLLMetry, Pipecat, LiveKit in its generations).
TEXT_ATTRIBUTES: Final[frozenset[str]] = frozenset(
    {
        "transcript",
        "text",
        "user_text",
        "agent_text",
        "prompt",
        "completion",
        "input",
        "output",
        "input.value",
        "output.value",
        "content",
        "system",
        "system_instruction",
        "tools",
        "gen_ai.prompt",
        "gen_ai.completion",
        "gen_ai.system_instructions",
        "gen_ai.tool.call.arguments",
        "gen_ai.tool.call.result",
        "gen_ai.tool.definitions",
        "gen_ai.evaluation.explanation",
        "lk.user_input",
        "lk.user_transcript",
        "lk.instructions",
        "lk.chat_ctx",
        "lk.input_text",
        "lk.response.text",
        "lk.response.function_calls",
        "lk.function_tool.arguments",
        "lk.function_tool.output",
        "exception.message",
        "exception.stacktrace",
    }
)
# Families of names: `*_pii`, anything that calls itself a transcript, indexed message lists.
TEXT_PATTERNS: Final[tuple[re.Pattern[str], ...]] = tuple(
    re.compile(pattern)
    for pattern in (
        r"_pii$",
        r"(^|\.)pii\.",
        r"(^|[._])transcripts?$",
        r"(^|[._])transcript[._]text$",
        r"^gen_ai\..*messages$",
        r"^gen_ai\.(prompt|completion)\.",
        r"^llm\.(input_messages|output_messages|prompts|completions)(\.|$)",
        r"(^|[._])(prompt|completion|utterance|reply|response|answer|message)[._](text|content)$",
    )
)


def carries_text(name: str) -> bool:
    """Whether an attribute of this name holds what somebody said, wrote or was answered."""
    return name in TEXT_ATTRIBUTES or any(pattern.search(name) for pattern in TEXT_PATTERNS)


def without_text(attributes: Mapping[str, object]) -> dict[str, object]:
    """The attributes that may be stored."""
    return {name: value for name, value in attributes.items() if not carries_text(name)}


def turn_without_text(turn: Turn) -> Turn:
    """The turn without the caller's words."""
    return turn if turn.transcript_pii is None else msgspec.structs.replace(turn, transcript_pii=None)

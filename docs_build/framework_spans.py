"""The spans of frameworks that become turns, from the sidecar's alias table."""

from typing import Final

from docs_build.markdown import cell, code, sections, table
from telemetry.sidecar.adapters.frameworks import Column, Framework, Layout, frameworks

LAYOUTS: Final[dict[Layout, str]] = {
    "nested": "All spans of a turn are below the turn's own span.",
    "paired": "The agent's turn and the caller's are siblings; a reply belongs to the caller's last turn before it.",
    "outermost": "The outermost of these spans is a turn, unless it is part of a turn of another framework.",
}
COLUMNS: Final[dict[Column, str]] = {
    "call_id": "the call; without it, the trace is the call",
    "turn_number": "place of the turn in its call, from 1",
    "voice_to_voice": "`first_audio` - `speech_end`",
    "endpointing": "`endpoint` - `speech_end`",
    "asr_final_latency": "`asr_final` - `speech_end`",
    "asr_final": "`asr_final`, counted from the beginning of the span",
    "llm_first_token": "`llm_first_token`, counted from the beginning of the span",
    "tts_first_chunk": "`tts_first_chunk`, counted from the beginning of the span",
    "interrupted": "`cut_short`, unless the call ended; without a reply, the outcome `interrupted`",
    "call_ended": "the call ended in this turn: the outcome `abandoned` if there was no reply",
    "transcript_events": "`asr_first_partial`, of the first interim transcript",
    "fallback_index": "`fallback` is `model` from 1 on",
    "cache_read_tokens": "`llm_cached_tokens`, of every request of the turn",
    "llm_input_tokens": "`llm_input_tokens`, of every request of the turn",
    "model": "`model`, of the request that was answered",
    "llm_tokens": "`llm_tokens`",
}


def framework_sections() -> str:
    """Return a section for every framework: its spans and attributes, and what they cannot show."""
    return sections(part for framework in frameworks() for part in _framework(framework))


def _framework(framework: Framework) -> list[str]:
    scopes = ", ".join(map(code, framework.scopes))
    recorded = ", ".join(map(code, framework.recorded))
    spans = [(code(name), cell(role.replace("_", " "))) for name, role in framework.spans.items()]
    reads = [
        (", ".join(map(code, read.attributes)), read.span.replace("_", " "), read.unit or "–", COLUMNS[read.column])
        for read in framework.reads
    ]
    moments = [(code(name), ", ".join(map(code, places))) for name, places in framework.moments.items()]
    withheld = [(code(name), cell(reason)) for name, reason in framework.withheld.items()]
    return [
        f"## {framework.title}",
        f"Versions: {framework.versions}; recorded: {recorded}. Scopes: {scopes}.",
        f"To switch it on: {framework.enable}.",
        LAYOUTS[framework.turns],
        table(("Span", "What it is"), spans),
        table(("Attribute, newest name first", "Of", "Unit", "Becomes"), reads),
        table(("Timestamp", "Moments"), moments) if moments else "",
        "These cannot be shown:" if withheld else "",
        table(("Metric", "Why"), withheld) if withheld else "",
        "\n".join(f"- {limit}" for limit in framework.limits),
    ]

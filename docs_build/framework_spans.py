"""Generates the page of framework spans from the sidecar's alias table."""

from typing import Final

from docs_build.markdown import cell, code, page, table
from telemetry.sidecar.adapters.frameworks import FILE, Column, Framework, Layout, frameworks

INTRODUCTION: Final = f"""
These spans become turns of the source `service`. The tables are made from `telemetry/data/{FILE}`, which the sidecar
reads. Each framework was recorded with its own code; the recordings are tests, one scripted conversation for all.

Every latency is one that the framework states. The duration of a span is never used as a latency. Where a framework
states a latency only, the beginning or end of a span places it on the clock, as the column *moments* says. The clock of
such a turn is the wall clock of that process; only differences within one turn are formed.
"""
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
ALL: Final = """
The attribute `feature_flag.result.variant` (or `feature_flag.variant`) of any span of a turn, of an event on it, of the
call's span or of the resource is the `cohort`. `voice.run_id` names the run; without it, the run is
`service:NAME:DAY`, with the `service.name` and the day in UTC. `error.type` or `exception.type` of a span in error is
the `failure_code`.

A service of your own needs no framework: see [Join your service's own spans](../how-to/service-spans.md).
"""


def framework_spans_page() -> str:
    """Return the page with every framework, its spans and attributes, and what they cannot show."""
    return page(
        "Spans of frameworks",
        INTRODUCTION,
        *(part for framework in frameworks() for part in _framework(framework)),
        "## All frameworks",
        ALL,
    )


def _framework(framework: Framework) -> list[str]:
    scopes = ", ".join(map(code, framework.scopes))
    recorded = ", ".join(map(code, framework.recorded))
    spans = [(code(name), cell(role.replace("_", " "))) for name, role in framework.spans.items()]
    reads = [
        (", ".join(map(code, each.attributes)), each.span.replace("_", " "), each.unit or "–", COLUMNS[each.column])
        for each in framework.reads
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
        "\n".join(f"- {each}" for each in framework.limits),
    ]

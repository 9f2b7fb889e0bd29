"""What people said is not stored unless asked for: of attributes that hold text, only those known to hold none of it.

A list of the names that carry words would be out of date with each release of a framework, and what it misses is stored
for good. So it is the other way round: numbers and flags are kept under any name, text only under a name that is known
to be a label (an id, a model, a state). Anything else, a service's own attributes among it, is left out.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, cast

import msgspec

from telemetry.model.spans import SpanRow
from telemetry.model.turns import Turn

# Names under which text is kept: those of OpenTelemetry, of the GenAI conventions, OpenInference, OpenLLMetry, Pipecat
# and LiveKit whose values are labels. Compared with the frameworks' own code in the tests.
LABELS: Final = frozenset(
    [
        "run_id",
        "process_id",
        "phase",
        "phase_kind",
        "which",
        "error.type",
        "rpc.method",
        "rpc.system",
        "rpc.service",
        "http.request.method",
        "http.route",
        "url.scheme",
        "server.address",
        "network.protocol.name",
        "network.protocol.version",
        "network.transport",
        "network.type",
        "db.system",
        "db.operation",
        "process.runtime.name",
        "process.runtime.version",
        "process.executable.name",
        "thread.name",
        "exception.type",
        "session.id",
        "gen_ai.agent.id",
        "gen_ai.agent.name",
        "gen_ai.agent.version",
        "gen_ai.conversation.id",
        "gen_ai.data_source.id",
        "gen_ai.evaluation.name",
        "gen_ai.evaluation.score.label",
        "gen_ai.openai.api_type",
        "gen_ai.openai.api_version",
        "gen_ai.openai.request.response_format",
        "gen_ai.openai.request.service_tier",
        "gen_ai.openai.response.service_tier",
        "gen_ai.openai.response.system_fingerprint",
        "gen_ai.openai.system_fingerprint",
        "gen_ai.operation.name",
        "gen_ai.output.type",
        "gen_ai.prompt.name",
        "gen_ai.provider.name",
        "gen_ai.request.encoding_formats",
        "gen_ai.request.model",
        "gen_ai.request.reasoning_effort",
        "gen_ai.request.voice",
        "gen_ai.response.finish_reason",
        "gen_ai.response.finish_reasons",
        "gen_ai.response.id",
        "gen_ai.response.model",
        "gen_ai.response.reasoning_effort",
        "gen_ai.response.stop_reason",
        "gen_ai.system",
        "gen_ai.task.id",
        "gen_ai.task.kind",
        "gen_ai.task.name",
        "gen_ai.task.parent.id",
        "gen_ai.task.status",
        "gen_ai.token.type",
        "gen_ai.tool.call.id",
        "gen_ai.tool.name",
        "gen_ai.tool.type",
        "gen_ai.usage.token_type",
        "gen_ai.workflow.name",
        "llm.finish_reason",
        "llm.model_name",
        "llm.provider",
        "llm.request.model_name",
        "llm.request.reasoning_effort",
        "llm.request.type",
        "llm.response.finish_reason",
        "llm.response.model_name",
        "llm.response.stop_reason",
        "llm.system",
        "llm.usage.token_type",
        "llm.prompt_template.version",
        "openinference.span.kind",
        "agent.name",
        "embedding.model_name",
        "graph.node.id",
        "graph.node.name",
        "graph.node.parent_id",
        "input.mime_type",
        "output.mime_type",
        "prompt.id",
        "prompt.vendor",
        "reranker.model_name",
        "tool.id",
        "tool.name",
        "tool_call.id",
        "tool_call.function.name",
        "traceloop.correlation.id",
        "traceloop.entity.name",
        "traceloop.entity.path",
        "traceloop.entity.version",
        "traceloop.prompt.key",
        "traceloop.prompt.version",
        "traceloop.prompt.version_hash",
        "traceloop.prompt.version_name",
        "traceloop.span.kind",
        "traceloop.workflow.name",
        "langgraph.command.goto_node",
        "langgraph.command.goto_nodes",
        "langgraph.command.source_node",
        "mcp.method.name",
        "mcp.request.id",
        "conversation.id",
        "conversation.type",
        "function_calls.all_names",
        "function_calls.first_name",
        "language",
        "modalities",
        "output_modality",
        "response.id",
        "response.status",
        "service.operation",
        "session.model",
        "session.voice",
        "session.turn_detection.type",
        "session.input_audio_format",
        "session.output_audio_format",
        "settings.model",
        "settings.voice",
        "settings.language",
        "settings.vad.start_sensitivity",
        "settings.vad.end_sensitivity",
        "tool.all_function_names",
        "tool.call_id",
        "tool.function_name",
        "tool.result_status",
        "tool_choice",
        "tools.names",
        "turn.type",
        "voice_id",
        "lk.agent_label",
        "lk.agent_name",
        "lk.amd.category",
        "lk.blocking.severity",
        "lk.callback.name",
        "lk.close_reason",
        "lk.cloud_agent_id",
        "lk.connection_state",
        "lk.deployment_id",
        "lk.disconnect_reason",
        "lk.dispatch_id",
        "lk.eou.language",
        "lk.eou.outcome",
        "lk.eou.source",
        "lk.fallback.label",
        "lk.function_tool.id",
        "lk.function_tool.name",
        "lk.function_tools",
        "lk.generation_id",
        "lk.input.base_span_id",
        "lk.interruption.source",
        "lk.job.agent_id",
        "lk.job.worker_id",
        "lk.job_id",
        "lk.llm_metrics",
        "lk.new_state",
        "lk.old_state",
        "lk.parent_generation_id",
        "lk.participant_id",
        "lk.participant_kind",
        "lk.previous_agent_label",
        "lk.provider_request_ids",
        "lk.provider_tools",
        "lk.realtime_model_metrics",
        "lk.room_sid",
        "lk.rpc.request_id",
        "lk.speech_id",
        "lk.stt.events",
        "lk.tool_sets",
        "lk.track_sid",
        "lk.track_source",
        "lk.tts.label",
        "lk.tts_metrics",
    ]
)
# Whole families: our own, and what describes a process and the place where it runs.
LABEL_PREFIXES: Final = (
    "voice.",
    "service.",
    "telemetry.",
    "host.",
    "os.",
    "k8s.",
    "container.",
    "cloud.",
    "deployment.",
)
# What carries words even there: `voice.turn.transcript_pii`, `voice.asr.transcript`.
_WORDS: Final = re.compile(
    r"_pii$|(^|\.)pii\.|(^|[._])(transcripts?|text|prompt|instructions|messages?|arguments)(\.|$)"
)


def is_label(name: str) -> bool:
    """Whether text under this name is known to be none of what somebody said, wrote or was answered."""
    return name in LABELS or (name.startswith(LABEL_PREFIXES) and _WORDS.search(name) is None)


def without_text(attributes: Mapping[str, object]) -> dict[str, object]:
    """The attributes that may be stored."""
    return {name: value for name, value in attributes.items() if not _holds_text(value) or is_label(name)}


def _holds_text(value: object) -> bool:
    if isinstance(value, list):
        return any(map(_holds_text, cast("list[object]", value)))
    if isinstance(value, dict):
        return bool(value)  # its keys are text
    return isinstance(value, (str, bytes))


def span_without_text(span: SpanRow) -> SpanRow:
    """The span without what may be words: its status message, and texts under names that are no labels."""
    return replace(
        span,
        status_message="",
        attributes=without_text(span.attributes),
        resource_attributes=without_text(span.resource_attributes),
        events=tuple(replace(event, attributes=without_text(event.attributes)) for event in span.events),
        links=tuple(replace(link, attributes=without_text(link.attributes)) for link in span.links),
    )


def turn_without_text(turn: Turn) -> Turn:
    """The turn without the caller's words."""
    return turn if turn.transcript_pii is None else msgspec.structs.replace(turn, transcript_pii=None)

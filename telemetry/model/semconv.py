"""The vocabulary of a voice turn: span names, attribute names, allowed values.

One file, versioned. Everything that writes or reads a name imports it from here. Where the OpenTelemetry GenAI
conventions have a name for the same fact it is emitted as well (`GEN_AI_*`).
"""

from typing import Final, Literal, get_args

SCHEMA_VERSION: Final = 3
SCOPE: Final = "voiceprobe"
# Not the endpoint's token: the two are different secrets with different owners.
SIDECAR_TOKEN_VARIABLE: Final = "VOICEPROBE_SIDECAR_TOKEN"  # noqa: S105 - the name of the variable
# Every setting of a sidecar is also a variable of this prefix.
SIDECAR_VARIABLE_PREFIX: Final = "VOICEPROBE_SIDECAR_"
# How those that send to a sidecar or read from it verify it, and what they show it of themselves.
SIDECAR_CA_VARIABLE: Final = "VOICEPROBE_SIDECAR_CA_FILE"
SIDECAR_CLIENT_CERT_VARIABLE: Final = "VOICEPROBE_SIDECAR_CLIENT_CERT"
SIDECAR_CLIENT_KEY_VARIABLE: Final = "VOICEPROBE_SIDECAR_CLIENT_KEY"
SIDECAR_CLIENT_VARIABLES: Final = frozenset(
    {SIDECAR_TOKEN_VARIABLE, SIDECAR_CA_VARIABLE, SIDECAR_CLIENT_CERT_VARIABLE, SIDECAR_CLIENT_KEY_VARIABLE}
)

# Spans: one call is the root, its turns are children, stages are children of the turn.
SPAN_RUN: Final = "voice.run"
SPAN_CALL: Final = "voice.call"
SPAN_TURN: Final = "voice.turn"
SPAN_ASR: Final = "voice.asr"
SPAN_LLM: Final = "voice.llm"
SPAN_TTS: Final = "voice.tts"
EVENT_ASR_PARTIAL: Final = "voice.asr.partial"
EVENT_LLM_FIRST_TOKEN: Final = "voice.llm.first_token"  # noqa: S105 - a token of text

# What is read from the pages of model servers: metric points of a scope of their own.
SCRAPE_SCOPE: Final = "voiceprobe.scrape"
SCRAPE_UP: Final = "voice.scrape.up"  # 1 for each page that was read, 0 for each that could not be
SCRAPE_ENGINE: Final = "engine"

# Every field `f` of `telemetry.model.turns.Turn` travels as the attribute `voice.turn.<f>` on its `voice.turn` span.
TURN_PREFIX: Final = "voice.turn."
CALL_PREFIX: Final = "voice.call."
RUN_PREFIX: Final = "voice.run."
ATTR_SCHEMA: Final = "voice.schema_version"

GEN_AI_CONVERSATION_ID: Final = "gen_ai.conversation.id"
GEN_AI_REQUEST_MODEL: Final = "gen_ai.request.model"
GEN_AI_TIME_TO_FIRST_CHUNK_S: Final = "gen_ai.response.time_to_first_chunk"
ERROR_TYPE: Final = "error.type"  # of a turn that did not end well: its code, else its kind
GEN_AI_OPERATION_NAME: Final = "gen_ai.operation.name"

# What a feature flag decided for a call, an event of its `voice.call` span
# (https://opentelemetry.io/docs/specs/semconv/feature-flags/feature-flags-events/).
EVENT_FEATURE_FLAG: Final = "feature_flag.evaluation"
FEATURE_FLAG_KEY: Final = "feature_flag.key"
FEATURE_FLAG_PROVIDER_NAME: Final = "feature_flag.provider.name"
FEATURE_FLAG_RESULT_VARIANT: Final = "feature_flag.result.variant"
FEATURE_FLAG_RESULT_REASON: Final = "feature_flag.result.reason"

# The gauges of the generator's health are rows of telemetry.model.generator_health.
# Starts of open arrivals in one phase so far: a point for each of START_COUNTS (attributes: run_id, process_id, phase,
# phase_kind, phase_begin_s and which), cumulative.
METRIC_GENERATOR_STARTS: Final = "voice.generator.starts"
START_COUNTS: Final[tuple[str, ...]] = ("planned", "started", "late", "dropped")
METRIC_TURNS_EMITTED: Final = "voice.generator.turns_emitted"  # cumulative; what the receiver must have seen

# Where per-turn facts travel on wires with response metadata (OpenAI Realtime `response.metadata`): string pairs.
META_CACHE_TIER: Final = "voice.cache_tier"
META_CACHE_HIT: Final = "voice.cache_hit"
META_ROUTE: Final = "voice.route"
META_FALLBACK: Final = "voice.fallback"
META_COHORT: Final = "voice.cohort"
META_USER: Final = "voice.user_id"  # whom the endpoint takes the caller for, where it assigns cohorts by user
META_MODEL: Final = "voice.model"
META_INTENT: Final = "voice.intent"

Source = Literal["client", "service"]
Outcome = Literal["ok", "no_reply", "timeout", "abandoned", "interrupted", "error", "cut", "invalid", "pending"]
TurnKind = Literal["question", "barge_in", "silence"]
# How a reply ended that the caller interrupted: the endpoint broke it off, it was over by itself, it was still heard
# when the caller had spoken, or nothing on this wire shows which.
BargeInEnd = Literal["stopped", "ended_by_itself", "never_stopped", "cannot_tell"]
# An outcome for people.
OUTCOME_LABELS: Final[dict[str, str]] = {
    "ok": "answered",
    "no_reply": "no reply",
    "timeout": "timed out",
    "abandoned": "abandoned",
    "interrupted": "interrupted",
    "error": "error",
    "cut": "cut by the generator",
    "invalid": "invalid",
    "pending": "not complete yet",
}
LengthClass = Literal["short", "medium", "long"]
PhaseKind = Literal["smoke", "ramp", "hold", "spike", "soak", "recovery"]
Route = Literal["local", "cache", "cloud", "rule"]
CacheTier = Literal["device", "edge", "central", "prefix"]
Fallback = Literal["rule", "cached", "partial", "model"]  # model: another model than the one that was asked
# Why a turn did not end well; together with `failure_code` (see `Turn`).
FailureKind = Literal[
    "dns",  # code: EAI_NONAME ...
    "tcp",  # errno name, or EOF: the stream ended without a closing handshake
    "tls",  # OpenSSL's name of the reason, not_tls, tls_required, or what ended the handshake: EOF, errno name
    "http_status",  # the upgrade, or the request before it, was refused with this status
    "close_code",  # the endpoint closed the WebSocket with this code, or left a call over WebRTC: peerLeft
    "protocol_violation",  # bad_utf8, not_http, a WebSocket close code that we had to give, malformed_message ...
    "endpoint_error",  # the endpoint's own error code
    # prior_request, connect, tls_handshake, session, not_read, reply_not_heard, reply_stalled, reply_endless
    "timeout",
    "no_reply",  # inaudible, only_text, only_tool_call, empty, early: what came instead; or why it was cut short
    "abandoned",
    "interrupted",
    "bad_audio",
    "generator",  # ours: the errno name of what this machine lacked, fault, bad_request, not_sent, cannot_listen
    "other",
]
# A cause of failure for people; its code is written behind it.
FAILURE_LABELS: Final[dict[str, str]] = {
    "dns": "host name",
    "tcp": "connection",
    "tls": "TLS",
    "http_status": "HTTP status",
    "close_code": "closed with",
    "protocol_violation": "protocol violation",
    "endpoint_error": "error of the endpoint",
    "timeout": "time-out",
    "no_reply": "no reply",
    "abandoned": "caller hung up",
    "interrupted": "reply broken off",
    "bad_audio": "bad audio",
    "generator": "generator",
    "other": "other",
}

# Why a value of a turn cannot be what it says (telemetry.model.contradictions).
Contradiction = Literal[
    "longer_than_span",
    "before_request",
    "before_turn",
    "after_span",
    "after_turn",
    "out_of_order",
    "negative",
    "not_a_number",
]
# The same for people, after "1 value": each is a half sentence.
CONTRADICTION_LABELS: Final[dict[str, str]] = {
    "longer_than_span": "longer than the span that states it",
    "before_request": "before its own request began",
    "before_turn": "before its turn began",
    "after_span": "after the end of its own span",
    "after_turn": "of a stage that began after the end of its turn",
    "out_of_order": "earlier than what must come before it",
    "negative": "a duration below zero",
    "not_a_number": "not a number, or more than a day",
}
CONTRADICTIONS: Final[tuple[str, ...]] = tuple(CONTRADICTION_LABELS)

OUTCOMES: Final[tuple[str, ...]] = get_args(Outcome)
LENGTH_CLASSES: Final[tuple[str, ...]] = ("short", "medium", "long")
# A turn that ended so is bad by every metric of an answer: hanging up must never improve a figure.
UNANSWERED: Final[tuple[str, ...]] = ("no_reply", "timeout", "abandoned", "error")
RAMP: Final = "ramp"  # the kind of phase over which figures are never pooled
ROUTES: Final[tuple[str, ...]] = ("local", "cache", "cloud", "rule")
CACHE_TIERS: Final[tuple[str, ...]] = ("device", "edge", "central", "prefix")
FALLBACKS: Final[tuple[str, ...]] = ("rule", "cached", "partial", "model")


def failure_label(kind: str | None, code: str | None) -> str:
    """The cause of a failure for people, with its code: `HTTP status 429`. A kind of a newer version keeps its name."""
    label = "not recorded" if kind is None else FAILURE_LABELS.get(kind, kind.replace("_", " "))
    return label if code is None else f"{label} {code}"

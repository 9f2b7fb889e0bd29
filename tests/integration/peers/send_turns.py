"""Reports turns to a sidecar with OpenTelemetry's own SDK and exporter: `send_turns.py TURNS TRANSPORT ADDRESS`.

TURNS is a file with a JSON object a line: what the service knows of a turn. TRANSPORT is `http` (OTLP as protobuf, with
gzip) or `grpc`; the two also say the same by other names and other spans, as two teams would. Nothing of ours is
imported, so that it runs in any environment that has the SDK.
"""

import json
import sys
from pathlib import Path
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import Status, StatusCode

MS = 1_000_000
SPEECH_NS = 1_000 * MS  # from the beginning of a turn to the end of the caller's speech
REPLY_NS = 400 * MS


def exporter(transport: str, address: str) -> SpanExporter:
    if transport == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter

        return GrpcExporter(endpoint=address, insecure=True)
    from opentelemetry.exporter.otlp.proto.http import Compression
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter

    return HttpExporter(f"{address}/v1/traces", compression=Compression.Gzip)


def moments(turn: dict[str, Any]) -> dict[str, int]:
    """When the stages of the turn had something, by the names of events."""
    speech_end_ns = turn["began_unix_ns"] + SPEECH_NS
    stamps = {"voice.speech.end": speech_end_ns}
    if turn["first_token_ns"] is not None:
        stamps["voice.llm.first_token"] = speech_end_ns + turn["first_token_ns"]
    if turn["heard_ns"] is not None:
        stamps["voice.audio.start"] = speech_end_ns + turn["heard_ns"]
    return stamps


def send_plainly(tracer: trace.Tracer, turn: dict[str, Any]) -> None:
    """One span, by the names of the table of spans."""
    at = moments(turn)
    span = tracer.start_span("voice.turn", start_time=turn["began_unix_ns"])
    for name, unix_ns in at.items():
        span.add_event(name, timestamp=unix_ns)
    named = {"gen_ai.conversation.id": turn["call"], "voice.turn.cohort": turn["cohort"]}
    named |= {"voice.turn.route": turn["route"], "voice.turn.cache_hit": turn["cache_hit"]}
    named |= {"voice.turn.fallback": turn["fallback"], "voice.turn.user_id": turn["user"]}
    named |= {"voice.turn.outcome": turn["outcome"], "gen_ai.usage.output_tokens": turn["tokens"]}
    span.set_attributes({name: value for name, value in named.items() if value is not None})
    span.end(max(at.values()) + REPLY_NS)


def send_by_stages(tracer: trace.Tracer, turn: dict[str, Any]) -> None:
    """A span for each stage, with OpenTelemetry's names of a feature flag and of a user; outcomes are not named: what
    was spoken has a synthesis, and what failed a status."""
    at = moments(turn)
    ended_ns = max(at.values()) + REPLY_NS
    span = tracer.start_span("voice.turn", start_time=turn["began_unix_ns"])
    span.set_attribute("gen_ai.conversation.id", turn["call"])
    span.add_event("voice.speech.end", timestamp=at.pop("voice.speech.end"))
    flag = {"feature_flag.key": "voice", "feature_flag.result.variant": turn["cohort"]}
    span.add_event("feature_flag.evaluation", flag, timestamp=turn["began_unix_ns"])
    named = {"user.id": turn["user"], "voice.turn.route": turn["route"], "voice.turn.fallback": turn["fallback"]}
    span.set_attributes({name: value for name, value in named.items() if value is not None})
    within = trace.set_span_in_context(span)
    stages = {"voice.llm": "voice.llm.first_token", "voice.tts": "voice.audio.start"}
    for name, moment in stages.items():
        if name == "voice.tts" and turn["outcome"] != "ok":
            continue
        stage = tracer.start_span(name, context=within, start_time=turn["began_unix_ns"] + SPEECH_NS)
        if name == "voice.llm":
            stage.set_attribute("gen_ai.usage.output_tokens", turn["tokens"])
            if turn["cache_hit"] is not None:
                stage.set_attribute("voice.turn.cache_hit", turn["cache_hit"])
        if moment in at:
            stage.add_event(moment, timestamp=at[moment])
        stage.end(ended_ns)
    if turn["outcome"] == "error":
        span.set_status(Status(StatusCode.ERROR))
        span.set_attribute("error.type", "ModelTimeout")
    elif turn["outcome"] == "abandoned":
        span.set_attribute("voice.turn.outcome", "abandoned")
    span.end(ended_ns)


def main(turns: str, transport: str, address: str) -> None:
    provider = TracerProvider(resource=Resource({"service.name": "front-desk"}), shutdown_on_exit=False)
    # A queue that is full drops spans without a word.
    processor = BatchSpanProcessor(exporter(transport, address), max_queue_size=1_000_000, schedule_delay_millis=200)
    provider.add_span_processor(processor)
    tracer = provider.get_tracer("front-desk")
    send = send_by_stages if transport == "grpc" else send_plainly
    for line in Path(turns).read_text().splitlines():
        send(tracer, json.loads(line))
    if not provider.force_flush(120_000):
        sys.exit("not every span was exported")
    provider.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Report one turn to the sidecar with the plain OpenTelemetry API.

pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http
OTEL_SERVICE_NAME=my-bot OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 python turn.py
"""

import time

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
tracer = trace.get_tracer("my-bot")

with tracer.start_as_current_span("voice.turn", attributes={"gen_ai.conversation.id": "call-1"}) as turn:
    turn.add_event("voice.speech.start")
    time.sleep(0.05)
    turn.add_event("voice.asr.partial")
    time.sleep(0.25)
    # The detector was sure only now: the speech ended 200 ms ago.
    turn.add_event("voice.speech.end", timestamp=time.time_ns() - 200_000_000)
    turn.add_event("voice.asr.final")
    with tracer.start_as_current_span("voice.llm", attributes={"gen_ai.request.model": "small"}) as llm:
        time.sleep(0.05)
        llm.add_event("voice.llm.first_token")
    time.sleep(0.05)
    turn.add_event("voice.tts.first_chunk")
    turn.set_attributes({"voice.turn.route": "cache", "voice.turn.cache_tier": "edge", "voice.turn.cache_hit": True})
    turn.set_attributes({"voice.turn.cohort": "canary", "voice.turn.fallback": "cached"})

provider.shutdown()

"""Writes spans as OTLP/JSON, for the recorders of tests/fixtures/frameworks. Runs in the environment of a peer.

The request is what the SDK's own encoder makes of the spans, in the order in which they ended, one on a line; ids are
hex, as OTLP/JSON has them. What names the machine is left out.
"""

import base64
import json
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

IDS = ("traceId", "spanId", "parentSpanId")
OF_A_MACHINE = ("thread.", "code.", "host.", "process.", "exception.stacktrace")


class Recorder:
    """Keeps the spans of this process until they are written."""

    def __init__(self, service: str, **resource: str) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(resource=Resource({"service.name": service, **resource}))
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def write(self, path: Path, about: dict[str, str]) -> None:
        """Write the spans that ended since the last time, with what was recorded; the recorder is empty then."""
        spans = self._exporter.get_finished_spans()
        self._exporter.clear()
        request = MessageToDict(encode_spans(spans))
        _mend(request)
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"recorded": about, "request": request}, ensure_ascii=False)
        path.write_text(text.replace('{"traceId"', '\n{"traceId"') + "\n")


def _mend(value: Any) -> None:
    if isinstance(value, list):
        for member in value:
            _mend(member)
        return
    if not isinstance(value, dict):
        return
    for name, held in value.items():
        if name in IDS:
            value[name] = base64.b64decode(held).hex()
        elif name == "attributes":
            value[name] = [entry for entry in held if not entry["key"].startswith(OF_A_MACHINE)]
            _mend(value[name])
        else:
            _mend(held)

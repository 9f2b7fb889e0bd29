"""The OTLP signals that a sidecar accepts, and the encodings of a request."""

from typing import Literal

Signal = Literal["traces", "metrics"]
Encoding = Literal["protobuf", "json"]

"""What OTLP carries and a sidecar takes, and the encodings of a request."""

from typing import Literal

Signal = Literal["traces", "metrics"]
Encoding = Literal["protobuf", "json"]

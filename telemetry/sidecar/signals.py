"""What OTLP carries and a sidecar takes."""

from typing import Literal

Signal = Literal["traces", "metrics"]

"""A technique whose worth is declared, on engines of declared timing: the table of techniques can be checked by it."""

from typing import Final

from loadtest.techniques.catalog import Technique
from telemetry.model.durations import Duration
from telemetry.model.formatting import declared_milliseconds

SCRIPTED: Final = (
    *("--asr-delay", "constant:20ms", "--llm-ttft", "constant:100ms", "--llm-gap", "constant:5ms"),
    *("--llm-answer", "Done.", "--tts-delay", "constant:20ms", "--tts-pace", "0", "--cache", "off"),
    *("--endpoint-delay", "constant:10ms"),
)


def declared_technique(saves_ms: float) -> Technique:
    """A technique that is declared to save so much of the model's time."""
    off, on = (Duration(round((100 + max(0.0, more_ms)) * 1e6)) for more_ms in (saves_ms, -saves_ms))
    return Technique(
        f"declared-{saves_ms:g}",
        f"A model that is declared to be faster by {declared_milliseconds(saves_ms * 1e6)}",
        ("--llm-ttft", f"constant:{off}"),
        ("--llm-ttft", f"constant:{on}"),
        "nothing",
        "all stages",
    )

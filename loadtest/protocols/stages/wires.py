"""The wires made of stage services: all three as a cascade, or one of them alone."""

from loadtest.protocols.base import CallerOptions
from loadtest.protocols.registry import register_built_in
from loadtest.protocols.stages.caller import StagesCaller
from loadtest.protocols.stages.parts import STAGES


@register_built_in("http-cascade")
def http_cascade(options: CallerOptions) -> StagesCaller:
    """Create a caller of recognition, language model and speech synthesis. Raises UsageError with all faults."""
    return StagesCaller(options, "http-cascade", frozenset(STAGES))


@register_built_in("asr")
def asr(options: CallerOptions) -> StagesCaller:
    """Create a caller of recognition alone. Raises UsageError with all faults."""
    return StagesCaller(options, "asr", frozenset({"asr"}))


@register_built_in("llm")
def llm(options: CallerOptions) -> StagesCaller:
    """Create a caller of a language model alone. Raises UsageError with all faults."""
    return StagesCaller(options, "llm", frozenset({"llm"}))


@register_built_in("tts")
def tts(options: CallerOptions) -> StagesCaller:
    """Create a caller of speech synthesis alone. Raises UsageError with all faults."""
    return StagesCaller(options, "tts", frozenset({"tts"}))

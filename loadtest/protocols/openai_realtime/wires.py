"""The wires of OpenAI Realtime that have names of their own."""

from loadtest.protocols.base import CallerOptions
from loadtest.protocols.openai_realtime.caller import OpenAIRealtimeCaller
from loadtest.protocols.openai_realtime.dialects import BETA, GA
from loadtest.protocols.registry import register_built_in


@register_built_in(GA.name)
def generally_available(options: CallerOptions) -> OpenAIRealtimeCaller:
    """Create a caller of the GA events, or of the dialect in its settings. Raises UsageError with all faults."""
    return OpenAIRealtimeCaller(options)


@register_built_in(BETA.name)
def beta(options: CallerOptions) -> OpenAIRealtimeCaller:
    """Create a caller of the beta events. Raises UsageError with all faults."""
    return OpenAIRealtimeCaller(options, BETA)

"""Options that a wire has no message for: none is accepted without the user knowing that it has no effect."""

from collections.abc import Sequence
from typing import Final

from loadtest.protocols.base import CallerOptions

# What the code of an agent decides, where the wire reaches nothing but a running agent.
OF_THE_AGENT: Final = ("model", "transcription_model", "voice", "instructions", "silence_duration_ms")


def faults_of_options(
    options: CallerOptions, wire: str, agent: str, decider: str, *, names: Sequence[str] = OF_THE_AGENT
) -> list[str]:
    """Return a sentence for each option that the `decider` decides, and one for manual turns: the `agent` ends them."""
    faults = [
        f"{wire}: the wire cannot set {name!r}, {decider} decides it; leave it out"
        for name in names
        if getattr(options, name) is not None
    ]
    if options.turn_control != "server":
        faults.append(
            f"{wire}: {agent} detects the end of speech; turn control {options.turn_control!r} is not possible"
        )
    return faults


def faults_of_formats(options: CallerOptions, wire: str) -> list[str]:
    """Return a sentence where a wire that always has pcm16 is to have another format."""
    if (options.input_format, options.output_format) == ("pcm16", "pcm16"):
        return []
    return [f"{wire}: the audio is always pcm16; leave the formats out"]

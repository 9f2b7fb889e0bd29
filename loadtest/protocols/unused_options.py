"""Options that a wire has no message for: none is accepted without the user knowing that it has no effect."""

from collections.abc import Mapping, Sequence
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


CALLER_ENDS_TURNS: Final = "the caller itself ends its turns there"


def faults_without_effect(options: CallerOptions, wire: str, reasons: Mapping[str, str]) -> list[str]:
    """Return a sentence for each option that is set and that nothing on the wire carries, with the reason."""
    return [
        f"{wire}: {name!r} has no effect on this wire: {reason}; leave it out"
        for name, reason in reasons.items()
        if getattr(options, name) is not None
    ]


def faults_of_two(wire: str, given: Mapping[str, str | None]) -> list[str]:
    """Return a sentence where two options or settings say different things of one: only one of them could have an
    effect."""
    values = {name: value for name, value in given.items() if value is not None}
    if len(set(values.values())) < 2:
        return []
    return [f"{wire}: {' and '.join(map(repr, values))} exclude each other; leave out all but one of them"]


def faults_of_formats(options: CallerOptions, wire: str) -> list[str]:
    """Return a sentence where a wire that always has pcm16 is to have another format."""
    if (options.input_format, options.output_format) == ("pcm16", "pcm16"):
        return []
    return [f"{wire}: the audio is always pcm16; leave the formats out"]

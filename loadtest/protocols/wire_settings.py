"""The settings of one wire (`[protocol]` in a scenario file, `--protocol-option`), and options without effect there.

All faults are named at once, and no option is accepted without the user knowing that it has no effect. Pure.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

import orjson
import pydantic

from loadtest.errors import UsageError
from loadtest.protocols.base import CallerOptions, VoiceEvent
from loadtest.protocols.error_objects import violation
from loadtest.protocols.json_fields import as_object

# The metrics that a wire cannot show without a stage of a turn.
OF_PARTIALS: Final = ("asr_partial_latency",)
OF_TRANSCRIPTS: Final = ("asr_final_latency", "llm_ttft", "wer")
OF_TEXT: Final = (
    "llm_first_token_latency",
    "llm_ttft",
    "itl",
    "tts_first_chunk_latency",
    "time_to_first_sentence",
    "tokens_per_s",
    "tokens_per_s_wall",
    "tokens_per_chunk",
)
OF_SPEECH: Final = (
    "voice_to_voice",
    "tts_first_chunk_latency",
    "leading_silence",
    "barge_in_stop",
    "talk_over",
    "underrun_worst",
    "underrun_total",
    "underrun_count",
    "audio_rtfx",
)


def withheld(*reasons: tuple[Sequence[str], str]) -> dict[str, str]:
    """Return metrics with the reason why each is not observable; of several reasons, the first one."""
    return {name: why for names, why in reversed(reasons) for name in names}


class WireSettings(pydantic.BaseModel):
    """The settings of one wire. Names that a wire does not know are faults, so that a typing error is found."""

    # A command line cannot say that 5 is a text.
    model_config = pydantic.ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, coerce_numbers_to_str=True
    )


S = TypeVar("S", bound=WireSettings)


def read_settings(kind: type[S], settings: Mapping[str, Any], wire: str, *, known_faults: Sequence[str] = ()) -> S:
    """Return the validated settings. Raises UsageError with one line for each fault; no line shows a value.

    `known_faults` are shown with those that are found here. Where there are none here, they are the caller's to refuse.
    """
    try:
        return kind.model_validate(dict(settings))
    except pydantic.ValidationError as error:
        lines = [_line(fault, kind, wire) for fault in error.errors(include_url=False, include_input=False)]
        raise UsageError("\n".join([*known_faults, *lines])) from None


def checked_settings(kind: type[S], options: CallerOptions, wire: str, faults: Sequence[str]) -> S:
    """Return the validated settings. Raises UsageError with the `faults` of the options and those of the settings."""
    settings = read_settings(kind, options.settings, wire, known_faults=faults)
    refuse(faults)
    return settings


def refuse(faults: Sequence[str]) -> None:
    """Raise UsageError with one line for each fault, if there is any."""
    if faults:
        raise UsageError("\n".join(faults))


def _line(fault: Any, kind: type[WireSettings], wire: str) -> str:
    name = ".".join(str(part) for part in fault["loc"]) or "the settings"
    if fault["type"] == "extra_forbidden":
        return f"{wire}: there is no setting {name!r}; known: {', '.join(sorted(kind.model_fields))}"
    return f"{wire}: the setting {name!r} is not valid: {reason_of(fault)}"


def reason_of(fault: Mapping[str, Any]) -> str:
    """Return the reason of a fault that pydantic found, as the end of a sentence."""
    reason = str(fault["msg"]).removeprefix("Value error, ")
    return f"{reason[:1].lower()}{reason[1:]}"


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Return `base` with the members of `over` in it; objects are merged, anything else replaces what was there."""
    result = dict(base)
    for key, value in over.items():
        inner, before = as_object(value), as_object(result.get(key))
        result[key] = merged(dict(before), dict(inner)) if inner is not None and before is not None else value
    return result


def member_at(settings: Mapping[str, Any], path: Sequence[str]) -> object:
    """Return the member of nested settings that a path leads to, None if it leads to none."""
    inner: object = settings
    for key in path:
        inner = (as_object(inner) or {}).get(key)
    return inner


# What the code of an agent decides, where the wire reaches nothing but a running agent.
OF_THE_AGENT: Final = ("model", "transcription_model", "silence_duration_ms")
CALLER_ENDS_TURNS: Final = "the caller itself ends its turns there"


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


# The canned results of tools, by the setting `tools`: a tool's own, else that of any tool.
ANY_TOOL: Final = "*"


def result_of(results: Mapping[str, Any], name: str) -> Any:
    """Return the result of a tool, None if there is none."""
    return results.get(name, results.get(ANY_TOOL))


def result_text(result: Any) -> str:
    """Return a result for a wire that takes text: text as it is, anything else as JSON."""
    return result if isinstance(result, str) else orjson.dumps(result).decode()


def unknown_tool(raw_type: str, name: str) -> VoiceEvent:
    """Return the event of a call for which the settings have no result."""
    sentence = f"the endpoint called the tool {name!r:.200}, for which the settings have no result: add it to tools"
    return violation(raw_type, sentence, "unknown_tool")

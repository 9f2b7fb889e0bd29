"""The settings of OpenAI Realtime: the dialect, a template of the session, further headers, the results of tools."""

from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field

from loadtest.protocols.base import CallerOptions
from loadtest.protocols.headers import header_fault
from loadtest.protocols.openai_realtime.dialects import DIALECTS, GA, Dialect
from loadtest.protocols.wire_settings import WireSettings, read_settings, refuse

# What the caller itself decides in a session: its audio would not be what the session says.
_OURS: Final = (
    ("type",),
    ("input_audio_format",),
    ("output_audio_format",),
    ("audio", "input", "format"),
    ("audio", "output", "format"),
    ("audio", "input", "transport"),
    ("audio", "output", "transport"),
)


def _dialect(name: str) -> str:
    if name not in DIALECTS:
        raise ValueError(f"known dialects: {', '.join(DIALECTS)}")
    return name


def _headers(headers: dict[str, str]) -> dict[str, str]:
    faults = [fault for name, value in headers.items() if (fault := header_fault(name, value)) is not None]
    secret = [name for name in headers if name.lower() in ("authorization", "api-key", "traceparent")]
    faults += [f"{name} does not belong into a file: use VOICEPROBE_TOKEN or --header" for name in secret]
    if faults:
        raise ValueError("; ".join(faults))
    return headers


def _session(session: dict[str, Any]) -> dict[str, Any]:
    for path in _OURS:
        inner: Any = session
        for key in path:
            inner = inner.get(key) if isinstance(inner, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
        if inner is not None:
            raise ValueError(f"{'.'.join(path)} is what the callers choose: leave it out")
    return session


class OpenAIRealtimeSettings(WireSettings):
    """The settings of the wire openai-realtime."""

    dialect: Annotated[str, AfterValidator(_dialect)] | None = None
    session: Annotated[dict[str, Any], AfterValidator(_session)] = Field(default_factory=dict)  # over the caller's own
    headers: Annotated[dict[str, str], AfterValidator(_headers)] = Field(default_factory=dict)  # no secrets
    tools: dict[str, Any] = Field(default_factory=dict)  # the result of each tool by its name; "*" is any other
    binary_audio: bool = False  # audio as binary messages, both ways


def openai_settings(options: CallerOptions, dialect: Dialect) -> tuple[OpenAIRealtimeSettings, Dialect]:
    """Return the settings and the dialect. Raises UsageError with one line for each fault."""
    settings = read_settings(OpenAIRealtimeSettings, options.settings, dialect.name)
    wire, faults = dialect.name, list[str]()
    if settings.dialect is not None:
        chosen = DIALECTS[settings.dialect]
        if dialect not in (GA, chosen):
            faults.append(f"{wire}: this is a dialect of its own: leave out dialect {settings.dialect!r}")
        dialect = chosen
    if settings.binary_audio and not dialect.binary_audio:
        able = ", ".join(name for name, each in DIALECTS.items() if each.binary_audio)
        faults.append(f"{wire}: binary_audio: the dialect {dialect.name!r} has audio in JSON only; binary: {able}")
    if options.turn_control not in dialect.turn_controls:
        faults.append(f"{wire}: the dialect {dialect.name!r} cannot leave the end of turns to the caller")
    if not dialect.states_formats and {options.input_format, options.output_format} != {"pcm16"}:
        faults.append(f"{wire}: the dialect {dialect.name!r} has PCM only")
    refuse(faults)
    return settings, dialect

"""The settings of Deepgram's Voice Agent, and the `Settings` message made from them. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field

from loadtest.audio import g711
from loadtest.protocols.audio_format import AudioFormat, Encoding
from loadtest.protocols.base import CallerOptions, TurnControl
from loadtest.protocols.json_fields import as_object
from loadtest.protocols.wire_settings import WireSettings, read_settings, refuse

WIRE: Final = "deepgram-agent"
INPUT_RATE_HZ: Final = 16_000
OUTPUT_RATE_HZ: Final = 24_000
TRACE_TAG: Final = "traceparent"
# What the agent does where neither the agent's settings nor an option says anything else.
LISTENING_MODEL: Final = "flux-general-en"
THINKING_MODEL: Final = "gpt-4o-mini"
SPEAKING_MODEL: Final = "aura-2-thalia-en"
# Models of the second version of Deepgram's recognition, the one whose turns a caller can end.
_FLUX: Final = "flux"
# Above what the recognizer can reach: it then leaves the end of turns to the caller.
_NEVER_ENDS: Final = 1.0
EncodingName = Literal["linear16", "mulaw", "alaw"]
_ENCODINGS: Final[Mapping[EncodingName, Encoding]] = {"linear16": "pcm16", "mulaw": "pcmu", "alaw": "pcma"}
_NAMES: Final = {encoding: name for name, encoding in _ENCODINGS.items()}
# The neutral options, and the part of the agent that each is in.
_PARTS: Final = {"transcription_model": "listen", "model": "think", "instructions": "think", "voice": "speak"}


def _agent(agent: str | dict[str, Any]) -> str | dict[str, Any]:
    if not agent:
        raise ValueError("give the agent's id, or its settings")
    if isinstance(agent, dict):
        faults = [
            f"{part} must be {'an object' if part == 'listen' else 'an object, or a list of objects'}"
            for part in ("listen", "think", "speak")
            if part in agent and not _is_part(agent[part], may_be_list=part != "listen")
        ]
        if faults:
            raise ValueError("; ".join(faults))
    return agent


def _is_part(value: object, *, may_be_list: bool) -> bool:
    if may_be_list and isinstance(value, list):
        return bool(value) and all(isinstance(each, dict) for each in value)  # pyright: ignore[reportUnknownVariableType]
    return isinstance(value, dict)


class DeepgramSettings(WireSettings):
    """The `[protocol]` table of a scenario."""

    # The id of an agent that is configured at Deepgram, or what the message `Settings` has as `agent`.
    agent: Annotated[str | dict[str, Any], AfterValidator(_agent)] | None = None
    input_encoding: EncodingName | None = None  # None: what the neutral options say, which is linear16 unless set
    output_encoding: EncodingName | None = None
    input_rate_hz: Literal[8000, 16000, 24000, 48000] | None = None  # None: 16 kHz, or G.711's
    output_rate_hz: Literal[8000, 16000, 24000, 32000, 48000] | None = None  # None: 24 kHz, or G.711's
    tools: dict[str, Any] = Field(default_factory=dict)  # the result of each function by its name; "*" is any other
    tags: tuple[str, ...] = ()  # of the request, in Deepgram's usage reports
    history: bool | None = None  # whether the service also repeats the conversation in messages of its own
    experimental: bool | None = None
    mip_opt_out: bool | None = None  # out of Deepgram's Model Improvement Program
    auth: Literal["token", "bearer"] = "token"  # an API key, or a temporary token


@dataclass(frozen=True, slots=True)
class DeepgramSession:
    """The requests of one caller."""

    settings: DeepgramSettings
    input_format: AudioFormat
    output_format: AudioFormat
    agent: str | dict[str, Any]
    turn_controls: frozenset[TurnControl]

    def message(self, traceparent: str | None, metadata: tuple[tuple[str, str], ...]) -> dict[str, Any]:
        """Return the message `Settings`. The trace and the metadata are tags: the wire has no other place for them."""
        settings = self.settings
        trace = () if traceparent is None else ((TRACE_TAG, traceparent),)
        tags = [*settings.tags, *(f"{name}={value}" for name, value in (*trace, *metadata))]
        optional = {
            "tags": tags or None,
            "experimental": settings.experimental,
            "flags": None if settings.history is None else {"history": settings.history},
            "mip_opt_out": settings.mip_opt_out,
        }
        raw = {**_declared(self.output_format), "container": "none"}
        audio = {"input": _declared(self.input_format), "output": raw}
        chosen = {name: value for name, value in optional.items() if value is not None}
        return {"type": "Settings", **chosen, "audio": audio, "agent": self.agent}


def _declared(chosen: AudioFormat) -> dict[str, Any]:
    return {"encoding": _NAMES[chosen.encoding], "sample_rate": chosen.rate_hz}


def checked_session(options: CallerOptions) -> DeepgramSession:
    """Return what a caller asks for. Raises UsageError with one line for each fault."""
    faults: list[str] = []
    if options.silence_duration_ms is not None:
        faults.append(
            f"{WIRE}: the silence that ends a turn cannot be set; set eot_threshold or eot_timeout_ms of the agent's "
            "listen.provider"
        )
    settings = read_settings(DeepgramSettings, options.settings, WIRE, known_faults=faults)
    input_format = _format(settings.input_encoding, options.input_format, settings.input_rate_hz or INPUT_RATE_HZ)
    output_format = _format(settings.output_encoding, options.output_format, settings.output_rate_hz or OUTPUT_RATE_HZ)
    faults += _rate_fault("input_rate_hz", settings.input_rate_hz, input_format)
    faults += _rate_fault("output_rate_hz", settings.output_rate_hz, output_format)
    faults += _agent_faults(options, settings.agent)
    agent = settings.agent if isinstance(settings.agent, str) else _whole_agent(options, settings.agent or {})
    turn_controls: frozenset[TurnControl] = frozenset({"server", "manual"} if _can_force(agent) else {"server"})
    if options.turn_control not in turn_controls:
        faults.append(
            f"{WIRE}: only Flux, version v2 of the agent's listen.provider, leaves the end of turns to the caller"
        )
    refuse(faults)
    return DeepgramSession(
        settings=settings,
        input_format=input_format,
        output_format=output_format,
        agent=agent,
        turn_controls=turn_controls,
    )


def _format(name: EncodingName | None, otherwise: Encoding, rate_hz: int) -> AudioFormat:
    encoding = otherwise if name is None else _ENCODINGS[name]
    return AudioFormat(encoding, rate_hz if encoding == "pcm16" else g711.RATE_HZ)


def _rate_fault(name: str, rate_hz: int | None, chosen: AudioFormat) -> list[str]:
    if rate_hz in (None, chosen.rate_hz):
        return []
    encoding = _NAMES[chosen.encoding]
    return [f"{WIRE}: the setting {name!r} is {rate_hz}, but {encoding} always has {chosen.rate_hz} Hz; leave it out"]


def _agent_faults(options: CallerOptions, agent: str | dict[str, Any] | None) -> list[str]:
    """Return the neutral options that the agent's settings have decided already."""
    given = [name for name in _PARTS if getattr(options, name) is not None]
    if isinstance(agent, str):
        return [
            f"{WIRE}: the wire cannot set {name!r} of an agent that is configured at Deepgram; leave it out"
            for name in given
        ]
    return [
        f"{WIRE}: {name!r} and the agent's {_PARTS[name]!r} exclude each other; leave one of them out"
        for name in given
        if _PARTS[name] in (agent or {})
    ]


def _whole_agent(options: CallerOptions, agent: dict[str, Any]) -> dict[str, Any]:
    """Return the agent with what it does not say itself."""
    listening = options.transcription_model or LISTENING_MODEL
    version = "v2" if listening.startswith(_FLUX) else "v1"
    prompt = {} if options.instructions is None else {"prompt": options.instructions}
    usual = {
        "listen": {"provider": {"type": "deepgram", "version": version, "model": listening}},
        "think": {"provider": {"type": "open_ai", "model": options.model or THINKING_MODEL}, **prompt},
        "speak": {"provider": {"type": "deepgram", "model": options.voice or SPEAKING_MODEL}},
    }
    whole = {**usual, **agent}
    if options.turn_control == "manual" and _can_force(whole):
        whole["listen"] = {**whole["listen"], "provider": {"eot_threshold": _NEVER_ENDS, **_provider(whole)}}
    return whole


def _can_force(agent: str | Mapping[str, Any]) -> bool:
    """Return whether the caller can end its turns. Of an agent that is configured at Deepgram only the service
    knows."""
    if isinstance(agent, str):
        return True
    return _provider(agent).get("version") == "v2"


def _provider(agent: Mapping[str, Any]) -> Mapping[str, object]:
    """Return what recognizes the caller's speech."""
    return as_object(agent["listen"].get("provider")) or {}

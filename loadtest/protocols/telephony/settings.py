"""The settings of a telephone call: its numbers, parameters, encoding and what ends a reply. Pure."""

import re
from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from loadtest.audio import g711
from loadtest.errors import UsageError
from loadtest.protocols.address import parse_address
from loadtest.protocols.audio_format import AudioFormat
from loadtest.protocols.base import CallerOptions
from loadtest.protocols.telephony.webhook import WEBHOOKS
from loadtest.protocols.telephony.wire import TelephonyWire
from loadtest.protocols.wire_settings import WireSettings, read_settings, refuse

_E164: Final = re.compile(r"\+[1-9][0-9]{1,14}")
_DIGITS: Final = re.compile(r"[0-9*#A-D]+")
# What a telephone call cannot choose, by the names of the neutral options.
_NO_PLACE: Final = ("model", "transcription_model", "voice", "instructions", "silence_duration_ms")
TRACE_PARAMETER: Final = "traceparent"
TRACE_BYTES: Final = 55


def _number(text: str) -> str:
    if _E164.fullmatch(text) is None:
        raise ValueError("give a telephone number such as +15005550006")
    return text


def _digits(text: str) -> str:
    if _DIGITS.fullmatch(text) is None:
        raise ValueError("give the keys of a telephone: 0 to 9, *, # and A to D")
    return text


def _webhook(url: str) -> str:
    try:
        parse_address(url, "http")
    except UsageError:
        raise ValueError("give the address of a voice webhook such as http://127.0.0.1:7860/") from None
    return url


Number = Annotated[str, AfterValidator(_number)]


class TelephonySettings(WireSettings):
    """What can be set for the wires twilio, telnyx, plivo, exotel and vonage."""

    from_number: Number = "+15005550006"
    to_number: Number = "+15005550001"
    account_id: str = "AC00000000000000000000000000000000"
    parameters: dict[str, str] = Field(default_factory=dict)
    encoding: str | None = None  # as the provider calls it; None: its usual one
    rate_hz: int | None = None  # of PCM; None: the provider's usual one
    dtmf: Annotated[str, AfterValidator(_digits)] | None = None  # keys pressed before the caller's first turn
    # Asked before the stream is opened, as the provider does: its answer says which stream. None: the target is it.
    webhook: Annotated[str, AfterValidator(_webhook)] | None = None
    # A mark whose name fits this pattern (`*` is anything) ends the reply. None: silence ends it.
    reply_end_mark: str | None = Field(default=None, min_length=1)

    def encoding_of(self, wire: TelephonyWire) -> str:
        """Return the provider's name for the encoding."""
        return next(iter(wire.encodings)) if self.encoding is None else self.encoding

    def format_of(self, wire: TelephonyWire) -> AudioFormat:
        """Return the format of the caller's audio."""
        kind = wire.encodings[self.encoding_of(wire)]
        if kind != "pcm16":
            return AudioFormat(kind, g711.RATE_HZ)
        return AudioFormat(kind, wire.rates_hz[0] if self.rate_hz is None else self.rate_hz)


def telephony_settings(options: CallerOptions, wire: TelephonyWire) -> TelephonySettings:
    """Return the settings of a wire. Raises UsageError with one line for each fault."""
    faults = [
        f"{wire.name}: a telephone call cannot choose {name.replace('_', ' ')}: leave it out"
        for name in _NO_PLACE
        if getattr(options, name) is not None
    ]
    if options.turn_control == "manual":
        faults.append(f"{wire.name}: on a telephone call the agent detects the end of turns: leave out manual turns")
    settings = read_settings(TelephonySettings, options.settings, wire.name, known_faults=faults)
    faults += _faults(settings, wire)
    faults += _parameter_faults(parameters_of(options, settings), wire)
    refuse(faults)
    return settings


def parameters_of(options: CallerOptions, settings: TelephonySettings) -> dict[str, str]:
    """Return the custom parameters without the trace: the neutral metadata, and the wire's own, which win."""
    return {**dict(options.metadata), **settings.parameters}


def _faults(settings: TelephonySettings, wire: TelephonyWire) -> list[str]:
    found: list[str] = []
    if settings.webhook is not None and wire.name not in WEBHOOKS:
        known = ", ".join(WEBHOOKS)
        found.append(
            f"{wire.name}: this provider's webhook is not supported; those of {known} are: leave out 'webhook'"
        )
    kind = wire.encodings.get(settings.encoding_of(wire))
    if kind is None:
        known = ", ".join(wire.encodings)
        found.append(f"{wire.name}: the encoding {settings.encoding!r} is unknown; known: {known}")
    elif settings.rate_hz is not None:
        known_hz = wire.rates_hz if kind == "pcm16" else (g711.RATE_HZ,)
        if settings.rate_hz not in known_hz:
            rates = ", ".join(str(rate) for rate in known_hz)
            found.append(f"{wire.name}: rate_hz {settings.rate_hz} is not a rate of this encoding; known: {rates}")
    return found


def _parameter_faults(parameters: Mapping[str, str], wire: TelephonyWire) -> list[str]:
    found: list[str] = []
    if TRACE_PARAMETER in parameters:
        found.append(f"{wire.name}: the callers set the parameter {TRACE_PARAMETER} themselves: leave it out")
    for name, value in parameters.items():
        if any(each in name + value for each in wire.reserved):
            shown = " ".join(wire.reserved)
            found.append(f"{wire.name}: the parameter {name!r} contains a character that separates parameters: {shown}")
        if not name:
            found.append(f"{wire.name}: a parameter has no name")
    size = sum(len(f"{name}{value}".encode()) for name, value in parameters.items())
    size += len(TRACE_PARAMETER) + TRACE_BYTES
    if wire.most_parameter_bytes is not None and size > wire.most_parameter_bytes:
        most = f"{wire.provider} carries at most {wire.most_parameter_bytes} bytes of parameters"
        found.append(f"{wire.name}: {most}; with the trace these have {size}: shorten them")
    return found

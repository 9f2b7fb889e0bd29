"""The settings of a swarm: one immutable value. A single value is checked when it is given, the whole by `faults`."""

import os
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from pydantic import ConfigDict, Field, field_serializer

from corpora.manifest.errors import CorpusError
from loadtest.engine.tls import PASSPHRASE_VARIABLE, TlsClient, tls_client
from loadtest.errors import UsageError
from loadtest.protocols import registry
from loadtest.protocols.address import other_scheme, parse_address
from loadtest.protocols.base import CallerOptions, TransportKind
from loadtest.protocols.headers import TOKEN_VARIABLE
from loadtest.scenario.access import (
    Headers,
    filled_settings,
    filled_target,
    headers_from_environment,
    literal_secret_faults,
    parse_protocol_options,
    placeholder_faults,
    secrets_of_settings,
    secrets_of_target,
    secrets_of_url,
)
from loadtest.scenario.arrivals import unending
from loadtest.scenario.behavior import INTO_REPLY, BargeIn, CallerBehavior, CallersSection
from loadtest.scenario.file import PARTS, Scenario, without_overruled
from loadtest.scenario.phases import Arrival, Phase
from loadtest.scenario.redactor import SecretRedactor
from loadtest.scenario.sections import (
    CLOSED,
    CitationSection,
    InterruptionSection,
    KeepSection,
    LineSection,
    LoadSection,
    OutputSection,
    RunSection,
    SpeechSection,
    TargetSection,
)
from telemetry.model.formatting import declared_percent

if TYPE_CHECKING:
    from corpora.rendering.profiles.profile import Profile

# A header value up to this long ("1", "v1") is no secret; hiding it would black out parts of other words.
MAX_PLAIN_CHARS: Final = 3
MOST_NAMED: Final = 8  # protocols in a sentence
# The scheme that an address may have been meant to have, by its own and by the kind of transport that is needed.
_SAME_SERVER: Final[dict[tuple[str, TransportKind], str]] = {
    ("http", "websocket"): "ws",
    ("https", "websocket"): "wss",
    ("ws", "http"): "http",
    ("wss", "http"): "https",
}


# The fields come in the order of these bases from the last to the first.
class SwarmSettings(
    RunSection,
    CitationSection,
    OutputSection,
    KeepSection,
    InterruptionSection,
    CallersSection,
    LineSection,
    SpeechSection,
    LoadSection,
    TargetSection,
):
    """Every setting by its name, with its default, and the scenario file that is not a flag."""

    model_config: ClassVar[ConfigDict] = ConfigDict(validate_by_name=True, validate_by_alias=False)

    scenario: Scenario = Field(default_factory=Scenario)

    @field_serializer("scenario")
    def _scenario_as_its_file(self, scenario: Scenario) -> dict[str, Any]:
        return scenario.document()

    @property
    def behavior(self) -> CallerBehavior:
        """The behavior of callers, as the planner draws it."""
        given: dict[str, Any] = {name: getattr(self, name) for name in CallersSection.model_fields}
        if self.barge_in is not None:
            given["barge_in"] = [BargeIn(share=self.barge_in, after=self.barge_in_after or INTO_REPLY)]
        return self.scenario.callers.model_copy(update=given)

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The scenario's phases, or the one of open arrivals; none where Locust's flags alone say the load."""
        if self.scenario.phases or self.arrivals == CLOSED or self.rate is None:
            return self.scenario.phases
        return (unending(cast("Arrival", self.arrivals), self.rate),)

    @property
    def has_open_arrivals(self) -> bool:
        """Whether calls begin by a schedule, whatever the earlier calls do."""
        return any(phase.unit == "rate" for phase in self.phases)

    @property
    def arrivals_label(self) -> str:
        """The arrival process: "closed", "constant" or "poisson"."""
        ways = {phase.arrival or CLOSED for phase in self.phases} or {CLOSED}
        return " and ".join(sorted(ways))

    @property
    def profiles(self) -> "tuple[tuple[Profile, float], ...]":
        """Changes to the speech, in one or several ways, each with its share of the calls. Raises CorpusError."""
        from corpora.rendering.profiles.parsing import profile_from_table, profiles_from_text

        given = {key: value for key in PARTS if (value := getattr(self, key)) is not None}
        if self.speech_profiles is None:
            return ((profile_from_table(given), 1.0),)
        if given:
            flags = ", ".join(f"--{key}" for key in given)
            raise CorpusError(f"--profile says all of a profile: leave out {flags}, or write it there")
        return profiles_from_text(self.speech_profiles)

    @property
    def profile_label(self) -> str:
        """The profiles by name, with their shares where there are several."""
        profiles = self.profiles
        if len(profiles) == 1:
            return profiles[0][0].label
        return ", ".join(f"{declared_percent(share)} {profile.label}" for profile, share in profiles)

    @property
    def target_url(self) -> str:
        """The whole address to call, with what its query takes from the environment. Raises UsageError."""
        return filled_target(self.host)

    @property
    def token(self) -> str | None:
        """The bearer token for the endpoint: from the environment only, so that no process list shows it."""
        return (os.environ.get(TOKEN_VARIABLE) or "").strip() or None

    @property
    def headers(self) -> Headers:
        """The headers of `header`, their values from this process's environment. Raises UsageError."""
        return headers_from_environment(self.header, self.token)

    @property
    def tls(self) -> TlsClient:
        """The TLS settings of connections. Raises UsageError with a line for each file that cannot be used."""
        return tls_client(
            self.ca_file,
            client_cert=self.client_cert,
            client_key=self.client_key,
            server_name=self.sni,
            passphrase=self._passphrase,
        )

    @property
    def _passphrase(self) -> str | None:
        """The passphrase of the client's key. It may end with a space, but no line break is part of it."""
        passphrase = os.environ.get(PASSPHRASE_VARIABLE)
        return None if passphrase is None else passphrase.rstrip("\r\n")

    @property
    def protocol_settings(self) -> dict[str, Any]:
        """Settings that only the protocol knows: the scenario's, unless they are for another, and over them the flags'.

        As they were given: a secret is in the environment, and the settings hold the variable's name.

        Raises UsageError.
        """
        scenario = self.scenario
        file_settings = scenario.protocol_settings if scenario.protocol in (None, self.protocol) else {}
        return {**file_settings, **parse_protocol_options(self.protocol_option)}

    @property
    def caller_options(self) -> CallerOptions:
        """The requests of every caller to the endpoint. Raises UsageError."""
        return replace(self._options_without_headers, headers=self.headers)

    @property
    def _options_without_headers(self) -> CallerOptions:
        endpointing = self.endpointing
        return CallerOptions(
            turn_control="manual" if self.manual_turns else "server",
            model=self.model,
            transcription_model=self.transcription_model,
            silence_duration_ms=None if endpointing is None else round(endpointing.seconds * 1000),
            token=self.token,
            settings=filled_settings(self.protocol_settings),
        )

    @property
    def redactor(self) -> SecretRedactor:
        """The redactor of every secret of these settings."""
        named = [*(value for _, value in self.headers), *secrets_of_target(self.host)]
        given = [value for value in named if len(value) > MAX_PLAIN_CHARS]
        keys = secrets_of_settings(self.protocol_settings)
        secrets = [self.token, self._passphrase, *given, *keys, *secrets_of_url(self.host)]
        return SecretRedactor(secret for secret in secrets if secret)

    def replaced(self, **changes: Any) -> "SwarmSettings":
        """The same with other values, checked as all are. Raises pydantic's ValidationError."""
        return self.model_validate({**dict(self), **changes})

    def with_scenario(self, scenario: Scenario, given: Collection[str]) -> "SwarmSettings":
        """The same with what a scenario file says, except for what was `given` as a flag: it wins."""
        values = without_overruled(scenario.settings(), given)
        return self.replaced(scenario=scenario, **values)

    def faults(self, *, calls: bool = True) -> list[str]:
        """Everything that contradicts something else or cannot be reached, one sentence each. A process that `calls`
        nobody itself (the master of a swarm) needs neither the files nor the variables that let callers in."""
        faults = self._option_faults()
        faults += self._access_faults() if calls else self._address_faults()
        faults += self._speech_faults()
        faults += self._load_faults()
        faults += self._behavior_faults()
        return faults

    def _behavior_faults(self) -> list[str]:
        faults: list[str] = []
        if self.call_pause is not None and self.has_open_arrivals:
            faults.append("--call-pause: not supported where calls begin by a schedule; use it with --users")
        if self.barge_in_after is not None and self.barge_in is None:
            faults.append("--barge-in-after: requires --barge-in, the share of turns that interrupt")
        if self.barge_in and self.turns == 1 and not self.conversations:
            faults.append("--barge-in: a call of one turn has no reply to interrupt; use --turns 2 or more")
        if self.talk_over and self.manual_turns:
            faults.append("--talk-over: not supported with --manual-turns, which sends nothing before it is committed")
        if self.endpointing is not None and self.manual_turns:
            faults.append("--endpointing: not supported with --manual-turns: the caller ends its turns itself")
        if self.conversations:
            useless = [flag for flag, value in (("--length", self.length), ("--mix", self.mix)) if value is not None]
            scripted = "not supported with --conversations, whose scripts give every utterance"
            faults += [f"{flag}: {scripted}" for flag in useless]
        return faults

    def _speech_faults(self) -> list[str]:
        from corpora.rendering.mix import mix_from_text

        faults: list[str] = []
        for read in (lambda: self.profiles, lambda: mix_from_text(self.mix or "")):
            try:
                read()
            except CorpusError as error:
                faults += str(error).splitlines()
        return faults

    def _load_faults(self) -> list[str]:
        if self.scenario.phase_tables and (self.arrivals != CLOSED or self.rate is not None):
            return ["--arrivals and --rate: the scenario has phases that say it; leave them out"]
        if self.arrivals != CLOSED and self.rate is None:
            return [f"--arrivals {self.arrivals} requires --rate, the calls to begin a second"]
        if self.arrivals == CLOSED and self.rate is not None:
            return ["--rate requires --arrivals constant or poisson"]
        return []

    def _address_faults(self) -> list[str]:
        faults = placeholder_faults(self.host)
        try:
            secured = parse_address(self.host, self._transport).tls
        except UsageError as error:
            faults += [f"{line}{self._other_protocols}" for line in str(error).splitlines()]
        else:
            given = {"--ca-file": self.ca_file, "--client-cert": self.client_cert, "--sni": self.sni}
            if not secured and (useless := [flag for flag, value in given.items() if value is not None]):
                scheme = self.host.partition("://")[0].lower()
                mend = f"use {other}://" if (other := other_scheme(scheme)) else "leave it out"
                faults.append(f"{', '.join(useless)}: not supported with {scheme}://, which is not encrypted; {mend}")
        return faults

    @property
    def _other_protocols(self) -> str:
        """A clause that names the protocols of an address's scheme, where the chosen one has another."""
        scheme, separator, _ = self.host.partition("://")
        able = registry.names_with_scheme(scheme.lower()) if separator else ()
        if not able or self.protocol in able:
            return ""
        is_guess = registry.guess(self.host) == self.protocol
        why = "was guessed, since the address fits no other" if is_guess else f"has no {scheme}:// addresses"
        shown = ", ".join((*able[:MOST_NAMED], "…") if len(able) > MOST_NAMED else able)
        other = _SAME_SERVER.get((scheme.lower(), self._transport))
        same = "" if other is None else f", or write {other}:// if it is that protocol's"
        return f"; the protocol {self.protocol} {why}: for {scheme}:// give --protocol {shown}{same}"

    @property
    def _transport(self) -> TransportKind:
        """The kind that the protocol's addresses have. Raises UsageError for a package that cannot be loaded."""
        return registry.describe(self.protocol).transport

    def _option_faults(self) -> list[str]:
        try:
            return literal_secret_faults(self.protocol_settings)
        except UsageError as error:
            return str(error).splitlines()

    def _access_faults(self) -> list[str]:
        faults = self._address_faults()
        # Without a flag of TLS nothing of it can be at fault, and to load the system's certificates takes 26 ms.
        tls = ("tls",) if any((self.ca_file, self.client_cert, self.client_key, self.sni)) else ()
        for name in (*tls, "headers", *(("target_url",) if not placeholder_faults(self.host) else ())):
            try:
                getattr(self, name)
            except UsageError as error:
                faults += str(error).splitlines()
        try:
            registry.make_caller(self.protocol, self._options_without_headers)
        except UsageError as error:
            faults += [line for line in str(error).splitlines() if line not in (*faults, *self._option_faults())]
        return faults

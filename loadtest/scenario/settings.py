"""The settings of a swarm: one immutable value, checked as a whole."""

import json
import math
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast, get_args
from urllib.parse import quote

from corpora.manifest.errors import CorpusError
from corpora.rendering.mix import mix_from_text
from corpora.rendering.profiles.parsing import profile_from_table, profiles_from_text
from corpora.rendering.profiles.profile import Profile
from loadtest.conversation.plan import SECOND_NS
from loadtest.engine.tls import PASSPHRASE_VARIABLE, TlsClient, tls_client
from loadtest.errors import UsageError
from loadtest.protocols import registry
from loadtest.protocols.address import other_scheme, parse_address
from loadtest.protocols.base import CallerOptions, TransportKind
from loadtest.protocols.headers import TOKEN_VARIABLE
from loadtest.protocols.transports.masked_frames import MASKS
from loadtest.scenario.access import (
    Headers,
    headers_from_environment,
    secrets_of_url,
)
from loadtest.scenario.arrivals import unending
from loadtest.scenario.behavior import (
    INTO_REPLY,
    SILENCE,
    BargeIn,
    CallerBehavior,
    parse_call_pause,
    parse_faults,
    parse_patience,
    parse_point,
    parse_think,
    share_faults,
)
from loadtest.scenario.file import Scenario
from loadtest.scenario.file.phases import MAX_RATE_PER_S, Arrival, Phase
from loadtest.scenario.file.speech import without_overruled
from loadtest.scenario.redactor import SecretRedactor
from loadtest.scenario.setting_secrets import filled_settings, literal_secret_faults, secrets_of_settings
from telemetry.model.durations import Duration
from telemetry.model.foreign_text import has_control_characters, one_line
from telemetry.model.formatting import declared_percent

_FLAG: Final = "--protocol-option"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


def parse_protocol_options(given: Sequence[str]) -> dict[str, Any]:
    """Return the settings by name. What these mean is checked by the protocol.

    Raises UsageError with one line for each entry that cannot be read. No line shows a value: it may be a secret that
    was put there by mistake.
    """
    found: dict[str, Any] = {}
    faults: list[str] = []
    for entry in given:
        name, sign, text = entry.partition("=")
        if not sign or not _NAME.fullmatch(name):
            shown = f"{_FLAG} {one_line(name)}" if sign else _FLAG
            faults.append(f"{shown}: give NAME=VALUE, the name of a setting of the protocol and its value")
        elif name in found:
            faults.append(f"{_FLAG} {name}: the setting is given twice; leave one out")
        else:
            found[name] = _value(text)
    if faults:
        raise UsageError("\n".join(faults))
    return found


def _value(text: str) -> Any:
    """Return what a text stands for: JSON where it is exactly that, else the text itself.

    A number that JSON would write differently ("007", "1e3") stays a text, so that no digit of an id is lost.
    """
    try:
        value = json.loads(text)
    except ValueError:
        return text
    is_plain_number = isinstance(value, int | float) and not isinstance(value, bool)
    return text if is_plain_number and json.dumps(value) != text else value


_PLACE = re.compile(r"\$\{([^}]*)\}?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def filled_target(url: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the address with each `${NAME}` in its query replaced by that variable's value, percent-encoded.

    Raises UsageError with one line for each that cannot be replaced. No line shows a value.
    """
    if faults := placeholder_faults(url):
        raise UsageError("\n".join(faults))
    missing = [name for name in names_in(url) if not environment.get(name, "").strip()]
    if missing:
        lines = (f"the environment variable {name}, which the address names, is not set; set it" for name in missing)
        raise UsageError("\n".join(lines))
    return _PLACE.sub(lambda place: quote(environment[place[1]].strip(), safe=""), url)


def placeholder_faults(url: str) -> list[str]:
    """Return what is wrong with the places themselves, whatever the environment holds: one sentence each."""
    before, _, query = url.partition("?")
    faults: list[str] = []
    if "${" in before:
        faults.append("the address has ${…} before its query, where nothing is replaced; move it behind the ?")
    if any(not place[0].endswith("}") or not _VARIABLE.fullmatch(place[1]) for place in _PLACE.finditer(query)):
        faults.append("the address has ${…} without the name of an environment variable; write ${NAME}")
    return faults


def names_in(url: str) -> tuple[str, ...]:
    """Return the names of the environment variables that an address names, each once."""
    return tuple(dict.fromkeys(place[1] for place in _PLACE.finditer(url)))


def secrets_of_target(url: str, environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the values of the variables that an address names."""
    return [value for name in names_in(url) if (value := environment.get(name, "").strip())]


ONSET_PRESETS: Final = ("rms-10ms", "sustained-50ms")
MAX_TURNS_PER_CALL: Final = 1000
MAX_VARIANTS: Final = 1000
LONGEST_WAIT: Final = Duration(3600 * SECOND_NS)
LONGEST_KEPT: Final = Duration(3650 * 86_400 * SECOND_NS)
CLOSED: Final = "closed"  # so many callers, each of whom calls again when a call has ended
ARRIVALS: Final = (CLOSED, *get_args(Arrival))
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


@dataclass(frozen=True, slots=True)
class SwarmSettings:
    """Every flag of ours, with its default."""

    host: str = field(default="", repr=False)  # may hold credentials
    protocol: str = "openai-realtime"
    protocol_option: tuple[str, ...] = ()  # NAME=VALUE each, as given
    corpus: str | None = None
    length: str | None = None
    noise: str | None = None
    snr: float | None = None
    room: str | None = None
    channel: str | None = None
    speech_profiles: str | None = None  # whole profiles in words, in place of noise, SNR, room and channel
    mix: str | None = None
    clips: int = 200
    variants: int | None = None  # drawings of noise, losses and room for each clip; None: as many as make half an hour
    turns: int = 4
    calls: int | None = None  # of the whole run; None where time alone bounds it
    arrivals: str = CLOSED
    rate: float | None = None  # calls begun a second, over all processes
    max_calls: int = 1000  # under way at the same time, over all processes
    think: float | str = "1s"
    call_pause: float | str | None = None
    patience: float | str | None = None
    barge_in: float | None = None  # None: as the scenario says
    barge_in_after: str | None = None
    talk_over: float = 0.0
    silence: float = 0.0
    conversations: bool = False
    reply_timeout: Duration = Duration(10 * SECOND_NS)  # noqa: RUF009 - immutable
    reply_silence: Duration = Duration(SECOND_NS)  # noqa: RUF009 - immutable
    longest_reply: Duration = Duration(120 * SECOND_NS)  # noqa: RUF009 - immutable
    manual_turns: bool = False
    endpointing: Duration | None = None
    model: str | None = None
    transcription_model: str | None = None
    cohort: str | None = None
    scenario: Scenario = Scenario()  # noqa: RUF009 - immutable
    scenario_name: str | None = None
    region: str | None = None
    seed: int = 1
    mask: str = "fixed"  # one of the preparer's; see there why a fixed one is right for a load generator
    onset: str = "rms-10ms"
    ca_file: str | None = None
    client_cert: str | None = None
    client_key: str | None = None
    sni: str | None = None
    header: tuple[str, ...] = ()  # NAME=VARIABLE each, as given
    sidecar: str | None = None
    spool: str | None = None
    run_id: str | None = None
    keep_transcripts: bool = False
    keep_audio: bool = False
    keep_text: bool = False
    keep_for: Duration = Duration(7 * 86_400 * SECOND_NS)  # noqa: RUF009 - immutable
    recordings: str | None = None  # the folder for calls that are kept
    calibration: str | None = None  # what is known of the generator's own error: a sentence, and its bound
    calibrated_to_ms: str | None = None
    calibration_state: str | None = None
    calibrated_callers: int | None = None
    calibrated_processes: int | None = None
    calibration_date: str | None = None

    @property
    def behavior(self) -> CallerBehavior:
        """What callers do, drawn by the planner. Raises UsageError."""
        callers = self.scenario.callers
        barge_ins = callers.barge_ins
        if self.barge_in is not None:
            after = INTO_REPLY if self.barge_in_after is None else parse_point(self.barge_in_after)
            barge_ins = (BargeIn(self.barge_in, after),)
        return CallerBehavior(
            turns=self.turns,
            think=parse_think(self.think),
            patience=None if self.patience is None else parse_patience(self.patience),
            barge_ins=barge_ins,
            talk_over=self.talk_over,
            silence=self.silence,
            silence_for=callers.silence_for or SILENCE,
            conversations=self.conversations,
            call_pause=None if self.call_pause is None else parse_call_pause(self.call_pause),
        )

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
        """How calls come to be, in one word for each way: "closed", "constant" or "poisson"."""
        ways = {phase.arrival or CLOSED for phase in self.phases} or {CLOSED}
        return " and ".join(sorted(ways))

    @property
    def profiles(self) -> tuple[tuple[Profile, float], ...]:
        """What is done to the speech, in one or several ways, each with its share of the calls. Raises CorpusError."""
        parts = {"noise": self.noise, "snr": self.snr, "room": self.room, "channel": self.channel}
        given = {key: value for key, value in parts.items() if value is not None}
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
        """How connections are secured. Raises UsageError with a line for each file that cannot be used."""
        return tls_client(
            self.ca_file,
            client_cert=self.client_cert,
            client_key=self.client_key,
            server_name=self.sni,
            passphrase=self._passphrase,
        )

    @property
    def _passphrase(self) -> str | None:
        """Of the client's key. A passphrase may end with a space, but the end of a file's line is no part of it."""
        passphrase = os.environ.get(PASSPHRASE_VARIABLE)
        return None if passphrase is None else passphrase.rstrip("\r\n")

    @property
    def protocol_settings(self) -> dict[str, Any]:
        """What only the protocol knows: the scenario's, unless they are for another protocol, and over them the flags'.

        As they were given: a secret is in the environment, and the settings hold the variable's name.

        Raises UsageError.
        """
        scenario = self.scenario
        of_file = scenario.protocol_settings if scenario.protocol in (None, self.protocol) else {}
        return {**of_file, **parse_protocol_options(self.protocol_option)}

    @property
    def caller_options(self) -> CallerOptions:
        """What every caller of these settings asks of the endpoint. Raises UsageError."""
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
        """What takes every secret of these settings out of a text."""
        named = [*(value for _, value in self.headers), *secrets_of_target(self.host)]
        given = [value for value in named if len(value) > MAX_PLAIN_CHARS]
        keys = secrets_of_settings(self.protocol_settings)
        secrets = [self.token, self._passphrase, *given, *keys, *secrets_of_url(self.host)]
        return SecretRedactor(secret for secret in secrets if secret)

    def with_scenario(self, scenario: Scenario, given: Collection[str]) -> "SwarmSettings":
        """The same with what a scenario file says, except for what was `given` as a flag: it wins."""
        found = without_overruled(scenario.settings(), given)
        return replace(self, scenario=scenario, **found)

    def faults(self, *, calls: bool = True) -> list[str]:
        """Everything that cannot be used, one sentence each. A process that `calls` nobody itself (the master of a
        swarm) needs neither the files nor the variables that let callers in."""
        found = self._text_faults()
        found += self._option_faults()
        found += self._access_faults() if calls else self._address_faults()
        if self.protocol not in registry.names():
            found.append(f"--protocol {self.protocol!r} is unknown: use one of {', '.join(registry.names())}")
        if self.mask not in MASKS:
            found.append(f"--mask {self.mask!r} is unknown: use one of {', '.join(MASKS)}")
        found += self._speech_faults()
        if self.onset not in ONSET_PRESETS:
            found.append(f"--onset {self.onset!r} is unknown: use one of {', '.join(ONSET_PRESETS)}")
        if not 1 <= self.turns <= MAX_TURNS_PER_CALL:
            found.append(f"--turns {self.turns} is out of range: a call has 1 to {MAX_TURNS_PER_CALL} turns")
        if self.calls is not None and self.calls < 1:
            found.append(f"--calls {self.calls} is out of range: a run has at least one call")
        found += self._load_faults()
        if self.clips < 1:
            found.append(f"--clips {self.clips} is out of range: at least one clip is needed")
        if self.variants is not None and not 1 <= self.variants <= MAX_VARIANTS:
            found.append(f"--variants {self.variants} is out of range: give 1 to {MAX_VARIANTS}")
        found += self._behavior_faults()
        found += _wait_faults("--reply-timeout", self.reply_timeout)
        found += _wait_faults("--reply-silence", self.reply_silence)
        found += _wait_faults("--longest-reply", self.longest_reply)
        if not Duration() < self.keep_for <= LONGEST_KEPT:
            found.append(f"--keep-for {self.keep_for} is out of range: give more than 0 and at most {LONGEST_KEPT}")
        return found

    def _behavior_faults(self) -> list[str]:
        after, patience, barge_in = self.barge_in_after, self.patience, self.barge_in
        found = parse_faults("--think", lambda: parse_think(self.think))
        pause = self.call_pause
        found += [] if pause is None else parse_faults("--call-pause", lambda: parse_call_pause(pause))
        if pause is not None and self.has_open_arrivals:
            found.append("--call-pause: not supported where calls begin by a schedule; use it with --users")
        found += [] if patience is None else parse_faults("--patience", lambda: parse_patience(patience))
        found += [] if after is None else parse_faults("--barge-in-after", lambda: parse_point(after))
        for flag, share in (("--barge-in", barge_in), ("--talk-over", self.talk_over), ("--silence", self.silence)):
            found += [] if share is None else share_faults(flag, share)
        if after is not None and barge_in is None:
            found.append("--barge-in-after: requires --barge-in, the share of turns that interrupt")
        if barge_in and self.turns == 1 and not self.conversations:
            found.append("--barge-in: a call of one turn has no reply to interrupt; use --turns 2 or more")
        if self.talk_over and self.manual_turns:
            found.append("--talk-over: not supported with --manual-turns, which sends nothing before it is committed")
        if self.endpointing is not None and self.manual_turns:
            found.append("--endpointing: not supported with --manual-turns: the caller ends its turns itself")
        if self.conversations and self.length is not None:
            found.append("--length: not supported with --conversations, whose scripts give every utterance")
        if self.conversations and self.mix is not None:
            found.append("--mix: not supported with --conversations, whose scripts give every utterance")
        return found

    def _speech_faults(self) -> list[str]:
        found: list[str] = []
        try:
            _ = self.profiles
        except CorpusError as error:
            found += str(error).splitlines()
        try:
            _ = mix_from_text(self.mix or "")
        except CorpusError as error:
            found += str(error).splitlines()
        return found

    def _load_faults(self) -> list[str]:
        found: list[str] = []
        if self.arrivals not in ARRIVALS:
            found.append(f"--arrivals {self.arrivals!r} is unknown: use one of {', '.join(ARRIVALS)}")
        elif self.scenario.phases and (self.arrivals != CLOSED or self.rate is not None):
            found.append("--arrivals and --rate: the scenario has phases that say it; leave them out")
        elif self.arrivals != CLOSED and self.rate is None:
            found.append(f"--arrivals {self.arrivals} requires --rate, the calls to begin a second")
        elif self.arrivals == CLOSED and self.rate is not None:
            found.append("--rate requires --arrivals constant or poisson")
        if self.rate is not None and not (math.isfinite(self.rate) and 0 < self.rate <= MAX_RATE_PER_S):
            found.append(f"--rate {self.rate:g} is out of range: more than 0 and at most {MAX_RATE_PER_S:g} a second")
        if self.max_calls < 1:
            found.append(f"--max-calls {self.max_calls} is out of range: at least one")
        return found

    def _text_faults(self) -> list[str]:
        """What travels in lines of text (addresses, headers, events, logs) holds no control characters."""
        named = ("sni", "model", "transcription_model", "cohort", "scenario_name", "region", "sidecar", "run_id")
        given = {f"--{name.replace('_', '-')}": getattr(self, name) or "" for name in named}
        return [
            f"{flag} holds a line break or another control character; leave it out"
            for flag, text in given.items()
            if has_control_characters(text)
        ]

    def _address_faults(self) -> list[str]:
        found = placeholder_faults(self.host)
        try:
            secured = parse_address(self.host, self._transport).tls
        except UsageError as error:
            found += [f"{line}{self._other_protocols}" for line in str(error).splitlines()]
        else:
            given = {"--ca-file": self.ca_file, "--client-cert": self.client_cert, "--sni": self.sni}
            if not secured and (useless := [flag for flag, value in given.items() if value is not None]):
                scheme = self.host.partition("://")[0].lower()
                mend = f"use {other}://" if (other := other_scheme(scheme)) else "leave it out"
                found.append(f"{', '.join(useless)}: not supported with {scheme}://, which is not encrypted; {mend}")
        return found

    @property
    def _other_protocols(self) -> str:
        """A clause that names the protocols of an address's scheme, where the chosen one has another."""
        scheme, separator, _ = self.host.partition("://")
        able = registry.names_with_scheme(scheme.lower()) if separator else ()
        if not able or self.protocol in able or self.protocol not in registry.names():
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
        return registry.describe(self.protocol).transport if self.protocol in registry.names() else "websocket"

    def _option_faults(self) -> list[str]:
        try:
            return literal_secret_faults(self.protocol_settings)
        except UsageError as error:
            return str(error).splitlines()

    def _access_faults(self) -> list[str]:
        found = self._address_faults()
        for name in ("tls", "headers", *(("target_url",) if not placeholder_faults(self.host) else ())):
            try:
                getattr(self, name)
            except UsageError as error:
                found += str(error).splitlines()
        if self.protocol in registry.names():
            try:
                registry.make_caller(self.protocol, self._options_without_headers)
            except UsageError as error:
                found += [line for line in str(error).splitlines() if line not in (*found, *self._option_faults())]
        return found


def _wait_faults(flag: str, wait: Duration) -> list[str]:
    if Duration() < wait <= LONGEST_WAIT:
        return []
    return [f"{flag} {wait} is out of range: give more than 0 and at most {LONGEST_WAIT}"]

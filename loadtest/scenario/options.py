"""Every setting of a swarm that is a flag: one list, for Locust's command line and for ours."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, get_args

from corpora.rendering.noise import KNOWN_NOISES
from corpora.rendering.profiles.profile import CHANNEL_WORDS, CODECS
from loadtest.errors import UsageError
from loadtest.protocols import registry
from loadtest.protocols.transports.masked_frames import MASKS
from loadtest.scenario.behavior import POINT_HELP
from loadtest.scenario.document import decode_scenario
from loadtest.scenario.file import Scenario
from loadtest.scenario.settings import ONSET_PRESETS, SwarmSettings
from telemetry.model.durations import Duration, DurationError

# Which commands take the flag: those that send callers over prepared speech, those that also shape the callers, those
# that make one run, or plain Locust alone.
Scope = Literal["speech", "callers", "run", "locust"]
# What the flag is about. Help lists the groups in this order.
Group = Literal["target", "load", "speech", "behavior", "objectives", "output", "machine"]
GROUPS: Final[tuple[Group, ...]] = get_args(Group)

DEFAULTS: Final = SwarmSettings()
_FORMS: Final = "a distribution such as lognormal:3s:0.5"


@dataclass(frozen=True, slots=True)
class Option:
    """One flag. `name` is the field of SwarmSettings that it fills; its default is that field's."""

    name: str
    help: str
    kind: type[str] | type[int] | type[float] | type[bool] | type[Duration] = str
    scope: Scope = "callers"
    repeatable: bool = False
    metavar: str | None = None
    ours: str | None = None  # how our own commands call it, where Locust has another use for that name
    guessed: bool = False  # where it is not given, it follows from the address
    of_machine: bool = False  # about the machine of one process: what a worker was given itself wins over the master's
    group: Group = "behavior"

    @property
    def flag(self) -> str:
        """As Locust takes it."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def default(self) -> Any:
        """What holds where the flag is not given; None where the setting then says nothing."""
        if self.guessed:
            return None
        value = getattr(DEFAULTS, self.name)
        if self.repeatable:
            return list(value)
        return str(value) if self.kind in (str, Duration) and value is not None else value


_TARGET: Final = (
    Option(
        "protocol",
        f"how to speak to the endpoint: {', '.join(registry.names())} (default: guessed from the address)",
        guessed=True,
    ),
    Option(
        "protocol_option",
        "a setting of the protocol, such as language=en; JSON where it is no text; repeatable",
        repeatable=True,
        metavar="NAME=VALUE",
    ),
    Option("model", "model to ask the endpoint for"),
    Option("transcription_model", "transcription model to ask the endpoint for"),
    Option("endpointing", "silence after which the endpoint should close a turn, e.g. 500ms", Duration),
    Option("ca_file", "PEM file of a private certificate authority for wss; no other is trusted", of_machine=True),
    Option("client_cert", "PEM file of a client certificate, for endpoints that ask for one", of_machine=True),
    Option(
        "client_key", "PEM file of its key, whose passphrase is in VOICEPROBE_CLIENT_KEY_PASSPHRASE", of_machine=True
    ),
    Option("sni", "name to ask a wss endpoint for and to verify, instead of the host's"),
    Option(
        "header",
        "a header, its value from that environment variable; repeatable",
        repeatable=True,
        metavar="NAME=VARIABLE",
    ),
)
_LOAD: Final = (
    Option("calls", "calls of the whole run, over all processes; then it ends", int, "run"),
    Option("arrivals", "closed: --users callers; constant or poisson: --rate calls a second", scope="run"),
    Option("rate", "calls to begin a second, whatever the earlier ones do", float, "run"),
    Option("max_calls", "calls under way at most with a --rate; beyond, starts are missed", int, "run"),
)
_SPEECH: Final = (
    Option("corpus", "folder or name of a corpus (default: recorded human speech if installed)", scope="speech"),
    Option("length", "only utterances of this length: short, medium or long", scope="speech"),
    Option("mix", "shares of what is said: 'short=60 medium=30 long=10', domain.NAME=, speaker.NAME=", scope="speech"),
    Option("noise", f"noise under the speech: {', '.join(KNOWN_NOISES)}, or file:PATH", scope="speech"),
    Option("snr", "signal-to-noise ratio over the active speech, dB", float, "speech"),
    Option("room", "reverberation: a time such as 0.4s, far-field, or file:IMPULSE_RESPONSE", scope="speech"),
    Option("channel", f"codecs joined with +: {', '.join((*CHANNEL_WORDS, *CODECS))} (opus:KBIT)", scope="speech"),
    Option(
        "speech_profiles",
        "all in one: 'noise=babble snr=10 channel=telephone loss=5%/3'; several parted by ; with share=",
        scope="speech",
        ours="--profile",
    ),
    Option("clips", "how many utterances to use at most", int, "speech"),
    Option(
        "variants",
        "drawings of noise, loss and room for each clip (default: as many as make half an hour)",
        int,
        "speech",
    ),
    Option("seed", "the same seed says the same", int, "speech"),
)
_BEHAVIOR: Final = (
    Option("turns", "turns of a call", int),
    Option("think", f"pause before a turn: its mean, e.g. 2s, or {_FORMS}"),
    Option("call_pause", f"pause of a caller between two calls: its mean, e.g. 2s, or {_FORMS} (default: none)"),
    Option("patience", f"silence after which a caller hangs up: its median, e.g. 5s, or {_FORMS}"),
    Option("barge_in", "share of turns that interrupt the reply before them, 0 to 1", float),
    Option("barge_in_after", f"where they do: {POINT_HELP}"),
    Option("talk_over", "share of replies into which a short sign of attention is said", float),
    Option("silence", "share of turns in which the caller says nothing", float),
    Option("conversations", "replay the dialogues of the corpus, in their order", bool),
    Option("reply_timeout", "how long to wait for a reply to begin, and between two parts of it, e.g. 8s", Duration),
    Option(
        "reply_silence",
        "silence after which a reply has ended, where the wire does not say when it does",
        Duration,
    ),
    Option("longest_reply", "how long a reply may go on before the caller hangs up, e.g. 1m", Duration),
    Option("manual_turns", "the caller says when it has finished (no detector of the endpoint)", bool),
)
_OBJECTIVES: Final = (
    Option("onset", f"what counts as the first audible sample of a reply: {', '.join(ONSET_PRESETS)}"),
)
_OUTPUT: Final = (
    Option("sidecar", "OTLP/HTTP address of a running sidecar, e.g. http://127.0.0.1:4318", of_machine=True),
    Option("spool", "folder for telemetry that the sidecar did not take", scope="locust", of_machine=True),
    Option("run_id", "name of the run (default: made from the time)", scope="locust"),
    Option("cohort", "name of the cohort that these callers belong to"),
    Option("scenario_name", "name of the scenario, as a dimension (default: the file's)", scope="run"),
    Option("region", "name of the region, as a dimension", of_machine=True),
    Option("keep_transcripts", "keep the words of the callers in the store, for as long as it keeps turns", bool),
    Option("keep_audio", "keep both channels of each call beside the store, for --keep-for", bool, "run"),
    Option("keep_text", "keep what was said, recognized and answered beside the store, for --keep-for", bool, "run"),
    Option("keep_for", "how long audio and texts of calls are kept, e.g. 12h or 7d", Duration, "run"),
    Option("recordings", "folder for the audio and texts of calls", scope="locust", of_machine=True),
)
_MACHINE: Final = (Option("mask", f"WebSocket masks of audio frames: {', '.join(MASKS)}"),)
_GROUPED: Final[dict[Group, tuple[Option, ...]]] = {
    "target": _TARGET,
    "load": _LOAD,
    "speech": _SPEECH,
    "behavior": _BEHAVIOR,
    "objectives": _OBJECTIVES,
    "output": _OUTPUT,
    "machine": _MACHINE,
}
OPTIONS: Final = tuple(replace(option, group=group) for group, options in _GROUPED.items() for option in options)


def settings_from(values: Mapping[str, Any], unreadable: list[str] | None = None) -> SwarmSettings:
    """The settings that flags make, by name; one without a value, or with an empty text, keeps its default.

    The protocol is then the one that the address is most likely for. Raises UsageError with a line for each text that
    is not a duration; where `unreadable` is given, the lines are added to it instead, and the defaults stand.
    """
    given: dict[str, Any] = {}
    faults: list[str] = []
    for option in OPTIONS:
        value = values.get(option.name)
        # Locust's parser and its web UI have no "not given" for text: it comes as an empty string.
        if value is None or value == "":
            continue
        if option.repeatable:
            given[option.name] = tuple(value)
        elif option.kind is Duration:
            try:
                given[option.name] = Duration.parse(value)
            except DurationError as error:
                faults.append(f"{option.flag} {error}")
        else:
            given[option.name] = value
    if faults and unreadable is None:
        raise UsageError("\n".join(faults))
    if unreadable is not None:
        unreadable += faults
    # The file was read where the flag was given.
    scenario = values.get("voice_scenario")
    given["scenario"] = decode_scenario(scenario) if scenario else Scenario()
    host = values.get("host") or ""
    if host and "protocol" not in given:
        given["protocol"] = registry.guess(host)
    return SwarmSettings(host=host, **given)

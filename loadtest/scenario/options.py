"""Every setting of a swarm that is a flag: one list, for Locust's command line, for ours, and for passing them on."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from corpora.rendering.noise import KNOWN_NOISES
from corpora.rendering.profiles.profile import CHANNEL_WORDS, CODECS
from loadtest.protocols import registry
from loadtest.protocols.websocket import MASKS
from loadtest.scenario.behavior import POINT_HELP
from loadtest.scenario.settings import ONSET_PRESETS, SwarmSettings

# What the flag is about. A command knows what is for its user to say: the speech alone, all of the callers, or one run
# of them besides; the Locust process knows all.
About = Literal["speech", "callers", "run", "locust"]

DEFAULTS: Final = SwarmSettings()
_FORMS: Final = "a distribution such as lognormal:3s:0.5"


@dataclass(frozen=True, slots=True)
class Option:
    """One flag. `name` is the field of SwarmSettings that it fills; its default is that field's."""

    name: str
    help: str
    kind: type[str] | type[int] | type[float] | type[bool] = str
    about: About = "callers"
    repeatable: bool = False
    metavar: str | None = None
    ours: str | None = None  # how our own commands call it, where Locust has another use for that name
    of_machine: bool = False  # about the machine of one process: what a worker was given itself wins over the master's

    @property
    def flag(self) -> str:
        """As Locust takes it."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def default(self) -> Any:
        """What holds where the flag is not given; None where the setting then says nothing."""
        value = getattr(DEFAULTS, self.name)
        if self.repeatable:
            return list(value)
        return str(value) if self.kind is str and value is not None else value


_SPEECH: Final = (
    Option("corpus", "folder or name of a corpus (default: recorded human speech if installed)", about="speech"),
    Option("length", "only utterances of this length: short, medium or long", about="speech"),
    Option("mix", "shares of what is said: 'short=60 medium=30 long=10', domain.NAME=, speaker.NAME=", about="speech"),
    Option("noise", f"noise under the speech: {', '.join(KNOWN_NOISES)}, or file:PATH", about="speech"),
    Option("snr", "signal-to-noise ratio over the active speech, dB", float, "speech"),
    Option("room", "reverberation: a time such as 0.4s, far-field, or file:IMPULSE_RESPONSE", about="speech"),
    Option("channel", f"codecs joined with +: {', '.join((*CHANNEL_WORDS, *CODECS))} (opus:KBIT)", about="speech"),
    Option(
        "speech_profiles",
        "all in one: 'noise=babble snr=10 channel=telephone loss=5%/3'; several parted by ; with share=",
        about="speech",
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
_LOAD: Final = (
    Option("calls", "calls of the whole run, over all processes; then it ends", int, "run"),
    Option("arrivals", "closed: --users callers; constant or poisson: --rate calls a second", about="run"),
    Option("rate", "calls to begin a second, whatever the earlier ones do", float, "run"),
    Option("max_calls", "calls under way at most with a --rate; beyond, starts are missed", int, "run"),
)
_BEHAVIOR: Final = (
    Option("turns", "turns of a call", int),
    Option("think", f"pause before a turn: its mean in seconds, or {_FORMS}"),
    Option("call_pause", f"pause of a caller between two calls: its mean in seconds, or {_FORMS} (default: none)"),
    Option("patience", f"silence after which a caller hangs up: its median in seconds, or {_FORMS}"),
    Option("barge_in", "share of turns that interrupt the reply before them, 0 to 1", float),
    Option("barge_in_after", f"where they do: {POINT_HELP}"),
    Option("talk_over", "share of replies into which a short sign of attention is said", float),
    Option("silence", "share of turns in which the caller says nothing", float),
    Option("conversations", "replay the dialogues of the corpus, in their order", bool),
    Option("reply_timeout", "how long to wait for a reply, seconds", float),
    Option("longest_reply", "how long a reply may go on before the caller hangs up, seconds", float),
    Option("manual_turns", "the caller says when it has finished (no detector of the endpoint)", bool),
    Option("endpointing_ms", "silence after which the endpoint should close a turn, ms", int),
    Option("model", "model to ask the endpoint for"),
    Option("transcription_model", "transcription model to ask the endpoint for"),
)
_LABELS: Final = (
    Option("cohort", "name of the cohort that these callers belong to"),
    Option("scenario_name", "name of the scenario, as a dimension (default: the file's)", about="run"),
    Option("region", "name of the region, as a dimension", of_machine=True),
)
_ACCESS: Final = (
    Option("ca_file", "PEM file of an own certificate authority for wss; it alone is then trusted", of_machine=True),
    Option("client_cert", "PEM file of a client certificate, for endpoints that ask for one", of_machine=True),
    Option("client_key", "PEM file of its key (its passphrase: VOICEPROBE_CLIENT_KEY_PASSPHRASE)", of_machine=True),
    Option("sni", "name to ask a wss endpoint for and to verify, instead of the host's"),
    Option(
        "header",
        "a header, its value from that environment variable; repeatable",
        repeatable=True,
        metavar="NAME=VARIABLE",
    ),
)
_RECORD: Final = (
    Option("mask", f"WebSocket masks of audio frames: {', '.join(MASKS)}"),
    Option("onset", f"audible onset preset: {', '.join(ONSET_PRESETS)}"),
    Option("keep_transcripts", "keep the words of the callers in the store", bool),
    Option("sidecar", "OTLP/HTTP address of a running sidecar, e.g. http://127.0.0.1:4318", of_machine=True),
    Option("spool", "folder for telemetry that the sidecar did not take", about="locust", of_machine=True),
    Option("run_id", "name of the run (default: made from the time)", about="locust"),
    Option("calibration", "what is known of the generator's own error, for the run's record", about="locust"),
    Option("calibrated_to_ms", "the bound of that error, ms", about="locust"),
    Option("calibration_state", "whether that bound holds for this run, in one word", about="locust"),
    Option("calibrated_callers", "the callers at which it was measured", int, about="locust"),
    Option("calibration_date", "the day on which it was measured", about="locust"),
)
OPTIONS: Final = (
    Option("protocol", f"how to speak to the endpoint: {', '.join(registry.names())}"),
    *(*_SPEECH, *_LOAD, *_BEHAVIOR, *_LABELS, *_ACCESS, *_RECORD),
)


def as_arguments(settings: SwarmSettings) -> list[str]:
    """The flags that give a Locust process these settings. The address and the scenario's file are its own flags."""
    return [part for option in OPTIONS for part in _arguments(option, getattr(settings, option.name))]


def _arguments(option: Option, value: Any) -> Iterator[str]:
    if option.kind is bool:
        yield from [option.flag] if value else []
    elif option.repeatable:
        for one in value:
            yield from (option.flag, str(one))
    elif value is not None:
        # Joined, so that a value that begins with a dash is no flag.
        yield f"{option.flag}={value}"

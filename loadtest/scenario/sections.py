"""Every setting of a load test, stated once: its type, limits, default, flag, help and key in a scenario file.

A section is a pydantic model; that of the callers is in `behavior`. `settings.SwarmSettings` joins them all;
`file.Scenario` takes those that a file may hold, with what only a file can say; `options` makes the flags, for Locust's
command line and for ours.
"""

from typing import Annotated, Final, get_args

from pydantic import Field

from corpora.manifest.manifest import LengthClass
from corpora.rendering.profiles.values import CHANNEL_WORDS, CODECS, KNOWN_NOISES
from loadtest.conversation.plan import SECOND_NS
from loadtest.protocols import registry
from loadtest.protocols.transports.masked_frames import MASKS
from loadtest.reports.calibration_citing import CALLERS_A_PROCESS
from loadtest.scenario import fields
from loadtest.scenario.behavior import POINT_HELP, Point
from loadtest.scenario.fields import (
    ANY_DURATION,
    AS_TEXT,
    LARGEST_WEIGHT,
    LINE,
    LONGEST_WAIT,
    SOME_DURATION,
    TEXT,
    Option,
    TomlTable,
    duration_up_to,
    one_of,
    read_by,
)
from loadtest.scenario.phases import MAX_RATE_PER_S, MAX_USERS, Arrival
from telemetry.model.durations import Duration
from telemetry.model.file_faults import shown
from telemetry.model.validation import refused

ONSET_PRESETS: Final = ("rms-10ms", "sustained-50ms")
LENGTHS: Final = get_args(LengthClass)
LARGEST: Final = 2**63 - 1
USERS: Final = 5  # callers, where nobody says how many
AUTO: Final = "auto"
MAX_PROCESSES: Final = 256
CLOSED: Final = "closed"  # so many callers, each of whom calls again when a call has ended
ARRIVALS: Final = (CLOSED, *get_args(Arrival))
LONGEST_KEPT: Final = Duration(3650 * 86_400 * SECOND_NS)

OptionalText = Annotated[str | None, TEXT]
OptionalLine = Annotated[str | None, LINE]


class RunSection(TomlTable):
    """The run as a whole: the first keys of a scenario file."""

    scenario_name: Annotated[
        OptionalLine,
        Option("name of the scenario, as a dimension (default: the file's)", "output", "run", declared="scenario"),
    ] = fields.text(alias="name")
    seed: Annotated[
        int, Option("seed of random choices; the same seed gives the same speech", "speech", "speech", declared="seed")
    ] = fields.whole(1, 0, LARGEST)
    max_calls: Annotated[
        int, Option("most concurrent calls with --rate; calls due beyond it are dropped and counted", "load", "run")
    ] = fields.whole(1000, 1, MAX_USERS)  # over all processes


class TargetSection(TomlTable):
    """The endpoint, and what it is asked for."""

    host: str = Field(default="", repr=False)  # may hold credentials
    protocol: Annotated[
        str,
        TEXT,
        one_of(registry.names),
        Option(
            f"how to speak to the endpoint: {', '.join(registry.names())} (default: guessed from the address)",
            "target",
            guessed=True,
            declared="protocol",
        ),
    ] = fields.text("openai-realtime")
    protocol_option: Annotated[
        tuple[str, ...],
        Option(
            "a protocol option, such as language=en; JSON if it is not text; repeatable",
            "target",
            metavar="NAME=VALUE",
        ),
    ] = Field(default=(), strict=False)
    model: Annotated[OptionalLine, Option("model to ask the endpoint for", "target")] = fields.text()
    transcription_model: Annotated[OptionalLine, Option("transcription model to ask the endpoint for", "target")] = (
        fields.text()
    )
    endpointing: Annotated[
        Duration | None,
        ANY_DURATION,
        AS_TEXT,
        Option("silence after which the endpoint should close a turn, e.g. 500ms", "target"),
    ] = fields.duration()
    ca_file: Annotated[
        OptionalText,
        Option(
            "PEM file of a private certificate authority for wss; no other is trusted", "target", is_per_machine=True
        ),
    ] = fields.text()
    client_cert: Annotated[
        OptionalText,
        Option("PEM file of a client certificate, for endpoints that ask for one", "target", is_per_machine=True),
    ] = fields.text()
    client_key: Annotated[
        OptionalText,
        Option(
            "PEM file of its key, whose passphrase is in VOICEPROBE_CLIENT_KEY_PASSPHRASE",
            "target",
            is_per_machine=True,
        ),
    ] = fields.text()
    sni: Annotated[
        OptionalLine, Option("name to ask a wss endpoint for and to verify, instead of the host's", "target")
    ] = fields.text()
    header: Annotated[
        tuple[str, ...],
        Option("a header, its value from that environment variable; repeatable", "target", metavar="NAME=VARIABLE"),
    ] = Field(default=(), strict=False)


class LoadSection(TomlTable):
    """The load of a run without phases."""

    calls: Annotated[
        int | None,
        Option(
            "number of calls of the whole run, over all processes; the run then ends", "load", "run", declared="calls"
        ),
    ] = fields.whole(None, 1)
    arrivals: Annotated[
        str,
        TEXT,
        one_of(ARRIVALS),
        Option("closed: --users callers; constant or poisson: --rate calls per second", "load", "run"),
    ] = fields.choice(CLOSED, ARRIVALS)
    rate: Annotated[
        float | None,
        Option("calls to begin per second, independent of earlier ones", "load", "run", declared="rate_per_s"),
    ] = fields.more_than_0(None, MAX_RATE_PER_S)  # over all processes


def _process_count(value: object) -> int | str:
    if value == AUTO:
        return AUTO
    try:
        count = int(value) if isinstance(value, int | str) else 0
    except ValueError:
        count = 0
    if not 1 <= count <= MAX_PROCESSES:
        raise refused(f"{shown(value)} is not a number of processes: give 1 to {MAX_PROCESSES}, or {AUTO}")
    return count


class RunLoad(TomlTable):
    """The load of one run over all its processes. Locust has flags of these names, so they are no settings of its."""

    users: Annotated[
        int | None,
        Option(
            f"callers at the same time (default: {USERS}; 1 for an agent that connects)", "load", "swarm", short="-u"
        ),
    ] = fields.whole(None, 1, MAX_USERS)
    spawn_rate: Annotated[
        float | None, Option("callers to start per second (default: all within 5 s, at least 10)", "load", "swarm")
    ] = fields.more_than_0(None, LARGEST_WEIGHT)
    processes: Annotated[
        int | str,
        read_by(_process_count),
        Option(
            "processes that share the callers, a core for each; auto: as many as the calibration of this machine found "
            f"that they want, without one a process for {CALLERS_A_PROCESS} callers",
            "machine",
            "swarm",
            metavar=f"<int|{AUTO}>",
        ),
    ] = Field(default=1, description="a whole number is expected")
    run_time: Annotated[
        Duration | None,
        SOME_DURATION,
        AS_TEXT,
        Option(
            "how long, e.g. 2m (default: until every objective has enough turns, at most 15m; at a --rate 1m)",
            "load",
            "swarm",
        ),
    ] = fields.duration()
    stop_timeout: Annotated[
        Duration,
        duration_up_to(LONGEST_WAIT, zero=True),
        AS_TEXT,
        Option("time that unfinished turns then have to end; the rest is cut, and shown", "load", "swarm"),
    ] = fields.duration("30s")


class SpeechSection(TomlTable):
    """The speech of the callers."""

    corpus: Annotated[
        OptionalText,
        Option("folder or name of a corpus (default: recorded human speech if installed)", "speech", "speech"),
    ] = fields.text()
    length: Annotated[
        OptionalText,
        one_of(LENGTHS),
        Option("only utterances of this length: short, medium or long", "speech", "speech", declared="length"),
    ] = fields.choice(None, LENGTHS)
    clips: Annotated[int, Option("most utterances to use", "speech", "speech")] = fields.whole(200, 1, 1_000_000)
    variants: Annotated[
        int | None,
        Option(
            "random variants of noise, loss and room for each clip (default: enough for half an hour of audio)",
            "speech",
            "speech",
        ),
    ] = fields.whole(None, 1, 1000)


class LineSection(TomlTable):
    """Changes to the speech, in words; a scenario file has tables for profiles and mix."""

    mix: Annotated[
        OptionalText,
        Option("weights of utterances: 'short=60 medium=30 long=10', domain.NAME=, speaker.NAME=", "speech", "speech"),
    ] = fields.text()
    noise: Annotated[
        OptionalText, Option(f"noise under the speech: {', '.join(KNOWN_NOISES)}, or file:PATH", "speech", "speech")
    ] = fields.text()
    snr: Annotated[float | None, Option("signal-to-noise ratio over the active speech, dB", "speech", "speech")] = (
        Field(default=None, description="a number is expected")
    )
    room: Annotated[
        OptionalText,
        Option("reverberation: a time such as 0.4s, far-field, or file:IMPULSE_RESPONSE", "speech", "speech"),
    ] = fields.text()
    channel: Annotated[
        OptionalText,
        Option(f"codecs joined with +: {', '.join((*CHANNEL_WORDS, *CODECS))} (opus:KBIT)", "speech", "speech"),
    ] = fields.text()
    speech_profiles: Annotated[
        OptionalText,
        Option(
            "complete profile: 'noise=babble snr=10 channel=telephone loss=5%/3'; several with share=, separated by ;",
            "speech",
            "speech",
            ours="--profile",
        ),
    ] = fields.text()


class InterruptionSection(TomlTable):
    """Interruptions of one kind, in place of all those of a scenario file."""

    barge_in: Annotated[float | None, Option("share of turns that interrupt the reply before them, 0 to 1")] = (
        fields.number(None, 0, 1)
    )
    barge_in_after: Annotated[Point | None, Option(f"where they do: {POINT_HELP}")] = fields.text()


class KeepSection(TomlTable):
    """Data of calls that is kept in addition to the store."""

    keep_audio: Annotated[
        bool,
        Option(
            "keep both channels of each call next to the store, for --keep-for", "output", "run", declared="keep_audio"
        ),
    ] = fields.flag(False, alias="audio")
    keep_text: Annotated[
        bool,
        Option(
            "keep texts said, recognized and answered next to the store, for --keep-for",
            "output",
            "run",
            declared="keep_text",
        ),
    ] = fields.flag(False, alias="text")
    keep_for: Annotated[
        Duration,
        duration_up_to(LONGEST_KEPT),
        AS_TEXT,
        Option("how long audio and texts of calls are kept, e.g. 12h or 7d", "output", "run"),
    ] = fields.duration("7d", alias="time")


class OutputSection(TomlTable):
    """Measurement, name and delivery of the run."""

    onset: Annotated[
        str,
        TEXT,
        one_of(ONSET_PRESETS),
        Option(
            f"what counts as the first audible sample of a reply: {', '.join(ONSET_PRESETS)}",
            "objectives",
            declared="onset_preset",
        ),
    ] = fields.choice(ONSET_PRESETS[0], ONSET_PRESETS)
    sidecar: Annotated[
        OptionalLine,
        Option("OTLP/HTTP address of a running sidecar, e.g. http://127.0.0.1:4318", "output", is_per_machine=True),
    ] = fields.text()
    spool: Annotated[
        OptionalText,
        Option("folder for telemetry that the sidecar did not take", "output", "locust", is_per_machine=True),
    ] = fields.text()
    run_id: Annotated[OptionalLine, Option("name of the run (default: made from the time)", "output", "locust")] = (
        fields.text()
    )
    cohort: Annotated[
        OptionalLine, Option("name of the cohort that these callers belong to", "output", declared="cohort")
    ] = fields.text()
    region: Annotated[OptionalLine, Option("name of the region, as a dimension", "output", is_per_machine=True)] = (
        fields.text()
    )
    keep_transcripts: Annotated[
        bool, Option("keep the words of the callers in the store, for as long as it keeps turns", "output")
    ] = fields.flag(False)
    recordings: Annotated[
        OptionalText, Option("folder for the audio and texts of calls", "output", "locust", is_per_machine=True)
    ] = fields.text()
    # One of the preparer's; see there why a fixed one is right for a load generator.
    mask: Annotated[
        str, TEXT, one_of(MASKS), Option(f"WebSocket masks of audio frames: {', '.join(MASKS)}", "machine")
    ] = fields.choice("fixed", MASKS)


class CitationSection(TomlTable):
    """The generator's own error, as known from its calibration: a sentence, its bound and its conditions."""

    calibration: str | None = None
    calibrated_to_ms: str | None = None
    calibration_state: str | None = None
    calibrated_callers: int | None = None
    calibrated_processes: int | None = None
    calibration_date: str | None = None

"""Our flags on Locust's command line and in its web UI. One list: `voiceprobe run` passes the same names on."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from locust import events

from corpora.noise import KNOWN_NOISES
from corpora.profiles.profile import CHANNEL_WORDS, CODECS
from loadtest.errors import UsageError
from loadtest.exit_codes import ExitCode
from loadtest.protocols import registry
from loadtest.protocols.websocket import MASKS
from loadtest.swarm.behaviour import POINT_HELP
from loadtest.swarm.scenario import load_scenario
from loadtest.swarm.scenario.speech import PARTS, without_overruled
from loadtest.swarm.settings import ONSET_PRESETS, SwarmSettings

DEFAULTS = SwarmSettings()
FORMS = "a distribution such as lognormal:3s:0.5"


@events.init_command_line_parser.add_listener
def add_flags(parser: Any) -> None:
    """Add our flags to Locust's parser."""
    group = parser.add_argument_group("voice callers")
    add = group.add_argument
    add("--protocol", default=DEFAULTS.protocol, help=f"how to speak to the endpoint: {', '.join(registry.names())}")
    _add_speech_flags(add)
    add("--turns", type=int, default=DEFAULTS.turns, help="turns of a call")
    add("--calls", type=int, default=None, help="calls of the whole run, over all processes; then it ends")
    add(
        "--arrivals",
        default=DEFAULTS.arrivals,
        help="closed: --users callers; constant or poisson: --rate calls a second",
    )
    add("--rate", type=float, default=None, help="calls to begin a second, whatever the earlier ones do")
    add("--max-calls", type=int, default=DEFAULTS.max_calls, help="calls under way at most; beyond, starts are missed")
    add("--think", default=str(DEFAULTS.think), help=f"pause before a turn: its mean in seconds, or {FORMS}")
    add("--patience", default="", help=f"silence after which a caller hangs up: its median in seconds, or {FORMS}")
    add("--barge-in", type=float, default=None, help="share of turns that interrupt the reply before them, 0 to 1")
    add("--barge-in-after", default="", help=f"where they do: {POINT_HELP.replace('%', '%%')}")
    add("--talk-over", type=float, default=0.0, help="share of replies into which a short sign of attention is said")
    add("--silence", type=float, default=0.0, help="share of turns in which the caller says nothing")
    add("--conversations", action="store_true", help="replay the dialogues of the corpus, in their order")
    add("--reply-timeout", type=float, default=DEFAULTS.reply_timeout, help="how long to wait for a reply, seconds")
    add("--manual-turns", action="store_true", help="the caller says when it has finished (no server detector)")
    add("--endpointing-ms", type=int, default=None, help="silence after which the endpoint should close a turn, ms")
    add("--model", default="", help="model to ask the endpoint for")
    add("--transcription-model", default="", help="transcription model to ask the endpoint for")
    add("--cohort", default="", help="name of the cohort that these callers belong to")
    add(
        "--scenario",
        default="",
        help="scenario file (TOML): callers, speech, phases (in place of --users, --run-time); other flags win over it",
    )
    add("--scenario-name", default="", help="name of the scenario, as a dimension (default: the file's)")
    add("--region", default="", help="name of the region, as a dimension")
    add("--seed", type=int, default=DEFAULTS.seed, help="the same seed says the same")
    add("--mask", default=DEFAULTS.mask, help=f"WebSocket masks of audio frames: {', '.join(MASKS)}")
    add("--onset", default=DEFAULTS.onset, help=f"audible onset preset: {', '.join(ONSET_PRESETS)}")
    add("--ca-file", default="", help="PEM file of an own certificate authority for wss; it alone is then trusted")
    add("--client-cert", default="", help="PEM file of a client certificate, for endpoints that ask for one")
    add("--client-key", default="", help="PEM file of its key, if it is not in the same file")
    add("--sni", default="", help="name to ask a wss endpoint for and to verify, instead of the host's")
    add(
        "--header",
        action="append",
        default=[],
        help="NAME=VARIABLE: a header, its value from that environment variable; repeatable",
    )
    add("--sidecar", default="", help="OTLP/HTTP address of the sidecar, e.g. http://127.0.0.1:4318")
    add("--spool", default="", help="folder for telemetry that the sidecar did not take")
    add("--run-id", default="", help="name of the run (default: made from the time)")
    add("--calibration", default="", help="what is known of the generator's own error, for the run's record")
    add("--calibrated-to-ms", default="", help="the bound of that error, ms")
    add("--keep-transcripts", action="store_true", help="keep the words of the callers in the store")
    _set_scenario_defaults(parser, sys.argv[1:])


def _add_speech_flags(add: Callable[..., Any]) -> None:
    """What callers speak, and over what line."""
    add("--corpus", default="", help="folder or name of a corpus (default: recorded human speech if installed)")
    add("--length", default="", help="only utterances of this length: short, medium or long")
    add("--mix", default="", help="shares of what is said: short=60 medium=30 long=10, domain.NAME=, speaker.NAME=")
    add("--noise", default="", help=f"noise under the speech: {', '.join(KNOWN_NOISES)}, or file:PATH")
    add("--snr", type=float, default=None, help="signal-to-noise ratio over the active speech, dB")
    add("--room", default="", help="reverberation: a time such as 0.4s, far-field, or file:IMPULSE_RESPONSE")
    add("--channel", default="", help=f"codecs joined with +: {', '.join((*CHANNEL_WORDS, *CODECS))} (opus:KBIT)")
    add(
        "--speech-profiles",  # Locust has a --profile of its own
        default="",
        help="whole profiles: 'noise=babble snr=10 channel=telephone loss=5%%/3'; several parted by ; with share=",
    )
    add("--clips", type=int, default=DEFAULTS.clips, help="how many utterances to use at most")


def _set_scenario_defaults(parser: Any, arguments: Sequence[str]) -> None:
    """Make what a scenario file says the defaults of the other flags, so that those that are given win over it."""
    peek = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    peek.add_argument("--scenario", default="")
    for part in PARTS:
        peek.add_argument(f"--{part}")
    peek.add_argument("--speech-profiles")
    seen = vars(peek.parse_known_args(arguments)[0])
    file: str = seen.pop("scenario")
    if not file:
        parser.set_defaults(scenario_text="")
        return
    try:
        scenario = load_scenario(Path(file))
    except UsageError as error:
        for line in str(error).splitlines():
            sys.stderr.write(f"voiceprobe: {line}\n")
        raise SystemExit(int(ExitCode.USAGE)) from None
    # The text too is an option: the master's options travel to workers that do not have the file.
    given = [name for name, value in seen.items() if value]
    parser.set_defaults(scenario_text=scenario.text, **without_overruled(scenario.settings(), given))

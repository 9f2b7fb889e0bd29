"""Our flags on Locust's command line and in its web UI. One list: `voiceprobe run` passes the same names on."""

from typing import Any

from locust import events

from loadtest.protocols import registry
from loadtest.swarm.settings import ONSET_PRESETS, SwarmSettings

DEFAULTS = SwarmSettings()


@events.init_command_line_parser.add_listener
def add_flags(parser: Any) -> None:
    """Add our flags to Locust's parser."""
    group = parser.add_argument_group("voice callers")
    add = group.add_argument
    add("--protocol", default=DEFAULTS.protocol, help=f"how to speak to the endpoint: {', '.join(registry.names())}")
    add("--corpus", default="", help="folder or name of a corpus (default: recorded human speech if installed)")
    add("--length", default="", help="only utterances of this length: short, medium or long")
    add("--noise", default="", help="noise under the speech: white, pink or babble")
    add("--snr", type=float, default=None, help="signal-to-noise ratio over the active speech, dB")
    add("--clips", type=int, default=DEFAULTS.clips, help="how many utterances to use at most")
    add("--turns", type=int, default=DEFAULTS.turns, help="turns of a call")
    add("--think", type=float, default=DEFAULTS.think, help="mean think time before a turn, seconds")
    add("--patience", type=float, default=None, help="median silence after which a caller hangs up, seconds")
    add("--reply-timeout", type=float, default=DEFAULTS.reply_timeout, help="how long to wait for a reply, seconds")
    add("--manual-turns", action="store_true", help="the caller says when it has finished (no server detector)")
    add("--endpointing-ms", type=int, default=None, help="silence after which the endpoint should close a turn, ms")
    add("--model", default="", help="model to ask the endpoint for")
    add("--transcription-model", default="", help="transcription model to ask the endpoint for")
    add("--cohort", default="", help="name of the cohort that these callers belong to")
    add("--scenario", default="", help="name of the scenario, as a dimension")
    add("--region", default="", help="name of the region, as a dimension")
    add("--seed", type=int, default=DEFAULTS.seed, help="the same seed says the same")
    add("--onset", default=DEFAULTS.onset, help=f"audible onset preset: {', '.join(ONSET_PRESETS)}")
    add("--ca-file", default="", help="PEM file of an own certificate authority for wss")
    add("--sidecar", default="", help="OTLP/HTTP address of the sidecar, e.g. http://127.0.0.1:4318")
    add("--spool", default="", help="folder for telemetry that the sidecar did not take")
    add("--run-id", default="", help="name of the run (default: made from the time)")
    add("--keep-transcripts", action="store_true", help="keep the words of the callers in the store")

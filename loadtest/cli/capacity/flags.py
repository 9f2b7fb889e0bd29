"""The flags of `voiceprobe capacity`."""

from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from loadtest.cli import speech_flags
from loadtest.cli.request import RunRequest, default_out
from loadtest.protocols import registry
from loadtest.swarm.durations import parse_duration_s
from loadtest.swarm.settings import SwarmSettings

EXAMPLE: Final = "Example: voiceprobe capacity ws://127.0.0.1:8765/v1/realtime --from 4 --max 64 --out cap"
DEFAULTS: Final = SwarmSettings()
THINK: Final = f"{DEFAULTS.think}"


def capacity(
    target: Annotated[str, typer.Argument(help="address of the endpoint, ws:// or wss://")],
    protocol: Annotated[
        str, typer.Option(help=f"how to speak to it: {', '.join(registry.names())}")
    ] = "openai-realtime",
    first: Annotated[int, typer.Option("--from", help="callers of the first rung")] = 4,
    most: Annotated[int, typer.Option("--max", help="callers of the last rung at most")] = 256,
    resolution: Annotated[float, typer.Option(help="how close to bisect, as a share of the callers")] = 0.1,
    turns_per_step: Annotated[int, typer.Option(help="turns wanted at each rung, at least 20")] = 100,
    step_time: Annotated[str, typer.Option(help="how long one measurement of a rung may last")] = "60s",
    rest: Annotated[float, typer.Option(help="pause between two rungs, seconds")] = 3.0,
    noise: speech_flags.Noise = None,
    snr: speech_flags.Snr = None,
    length: speech_flags.Length = None,
    corpus: speech_flags.CorpusName = None,
    clips: speech_flags.Clips = DEFAULTS.clips,
    turns: Annotated[int, typer.Option(help="turns of a call")] = DEFAULTS.turns,
    think: Annotated[str, typer.Option(help="pause before a turn: mean seconds, or a distribution")] = THINK,
    reply_timeout: Annotated[
        float, typer.Option(help="how long to wait for a reply, seconds")
    ] = DEFAULTS.reply_timeout,
    endpointing_ms: Annotated[
        int | None, typer.Option(help="silence that closes a turn, asked of the endpoint")
    ] = None,
    model: Annotated[str | None, typer.Option(help="model to ask for")] = None,
    seed: Annotated[int, typer.Option(help="the same seed says the same")] = DEFAULTS.seed,
    ca_file: Annotated[str | None, typer.Option(help="PEM file of an own certificate authority for wss")] = None,
    slo: Annotated[Path | None, typer.Option(help="objectives, an OpenSLO file (default: the built-in set)")] = None,
    out: Annotated[Path | None, typer.Option(help="folder for store, logs and pictures (default: runs/<time>)")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="write every rung as one JSON object")] = None,
) -> None:
    """Find how many concurrent callers an endpoint serves within its objectives.

    Doubles the callers until an objective is missed, then bisects. Each rung lasts until it has the turns that its p95
    needs, and is measured longer where it is close. Ends early when the generator is the limit.
    """
    from loadtest.cli.capacity.command import CapacityRequest
    from loadtest.cli.capacity.command import capacity as carry_out

    settings = SwarmSettings(
        host=target,
        protocol=protocol,
        corpus=corpus,
        length=length,
        noise=noise,
        snr=snr,
        clips=clips,
        turns=turns,
        think=think,
        reply_timeout=reply_timeout,
        endpointing_ms=endpointing_ms,
        model=model,
        seed=seed,
        ca_file=ca_file,
    )
    folder = out if out is not None else default_out()
    request = CapacityRequest(
        RunRequest(settings, first, None, None, slo, folder, json_file),
        first,
        most,
        resolution,
        turns_per_step,
        parse_duration_s(step_time),
        rest,
    )
    raise typer.Exit(int(carry_out(request, Console())))

"""The command line of the ground-truth endpoint."""

import json
import secrets
import sys
from pathlib import Path
from typing import Annotated

import typer

from loadtest.errors import UsageError
from loadtest.exit_codes import ExitCode
from loadtest.targets.ground_truth.plan import BEHAVIORS, EARLIEST_NS, MS, check_behavior
from loadtest.targets.ground_truth.server import GroundTruthServer, GroundTruthSettings
from telemetry.model.durations import Duration, DurationError

SHORTEST = Duration(EARLIEST_NS + 6 * MS)
LONGEST = Duration.parse("1m")


def parse_delays(text: str) -> tuple[int, ...]:
    """Parse a list of delays, such as "50ms,2s", into ns. Raises UsageError."""
    try:
        delays = [Duration.parse(word) for word in text.split(",")]
    except DurationError as error:
        raise UsageError(f"--delays {text!r}: {error}; separate several by commas") from None
    if any(not SHORTEST <= delay <= LONGEST or delay.ns % MS for delay in delays):
        raise UsageError(
            f"--delays {text!r}: give durations from {SHORTEST} to {LONGEST} in whole milliseconds, separated by commas"
        )
    return tuple(delay.ns for delay in delays)


def ground_truth_command(
    truth: Annotated[
        Path, typer.Option(help="file to append the ground truth of each turn to, one JSON object per line")
    ],
    port: Annotated[int, typer.Option(help="loopback port; 0 for any free one")] = 0,
    delays: Annotated[
        str, typer.Option(help="voice-to-voice delays to draw from, separated by commas")
    ] = "50ms,200ms,800ms,2s",
    behavior: Annotated[
        str, typer.Option(help=f"one for all connections, or several separated by commas: {', '.join(BEHAVIORS)}")
    ] = "plain",
    seed: Annotated[int, typer.Option(help="the same seed draws the same delays")] = 1,
) -> None:
    """Run an endpoint that records exactly when each answer was sent and when the speech before it arrived.

    Prints one JSON line with its URL when it is ready, and serves until SIGTERM. Its callers must use the calibration
    corpus of `voiceprobe calibrate`.

    Example: python -m loadtest.targets.ground_truth --truth truth.jsonl --delays 200ms,800ms
    """
    try:
        _check_folder(truth)
        server = GroundTruthServer(
            GroundTruthSettings(
                port=port,
                truth=truth,
                delays_ns=parse_delays(delays),
                behaviors=tuple(check_behavior(name.strip()) for name in behavior.split(",")),
                seed=seed,
                name=secrets.token_hex(4),
            )
        )
    except UsageError as error:
        sys.stderr.write(f"{error}\n")
        raise typer.Exit(ExitCode.USAGE) from None
    sys.stdout.write(json.dumps({"ready": True, "url": server.url}) + "\n")
    sys.stdout.flush()
    server.serve()


def _check_folder(truth: Path) -> None:
    if not truth.parent.is_dir():
        raise UsageError(f"--truth {truth}: {truth.parent} is not a folder; give a file in an existing folder")


def main() -> None:
    """The entry point."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(ground_truth_command)
    app()

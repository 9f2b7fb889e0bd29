"""The `voiceprobe` command: the only place where the rooms are put together, each as a process of its own."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from corpora.errors import CorpusError
from loadtest.cli.processes import ROOT, ProcessFailedError, environment
from loadtest.cli.request import RunRequest, check, parse_duration_s
from loadtest.errors import EndpointUnreachable, UsageError
from loadtest.exit_codes import ExitCode
from loadtest.protocols import registry
from loadtest.swarm.settings import TOKEN_VARIABLE, SwarmSettings
from telemetry.errors import ConfigError, StoreError, TelemetryError

# Commands with a process and a help of their own: everything behind the name goes to them as it is.
FORWARDED: Final = {
    "assistant": ("loadtest.assistant", "Run the reference voice assistant, the target of the demo."),
    "sidecar": ("telemetry.sidecar", "Run the sidecar: OTLP in, store, Prometheus out."),
    "dashboard": ("dashboard", "Show a store in the browser."),
    "corpus": ("corpora", "List, install, build and check the speech that callers say."),
}
EXIT_CODES: Final = (
    "Exit codes: 0 all objectives met; 1 unexpected fault; 2 usage or configuration; 3 an objective missed or not "
    "shown; 4 generator-limited; 5 target unreachable or refused; 130 interrupted."
)

app = typer.Typer(
    name="voiceprobe",
    help=f"Load tests and an observability sidecar for voice assistants.\n\n{EXIT_CODES}",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
DEFAULTS: Final = SwarmSettings()


@app.command(
    epilog="Example: voiceprobe run ws://127.0.0.1:8765/v1/realtime --users 20 --run-time 2m --noise babble --snr 10"
)
def run(
    target: Annotated[str, typer.Argument(help="address of the endpoint, ws:// or wss://")],
    protocol: Annotated[
        str, typer.Option(help=f"how to speak to it: {', '.join(registry.names())}")
    ] = "openai-realtime",
    users: Annotated[int, typer.Option("--users", "-u", help="callers at the same time")] = 1,
    spawn_rate: Annotated[
        float | None, typer.Option(help="callers to start a second (default: all within 5 s)")
    ] = None,
    run_time: Annotated[str, typer.Option(help="how long, e.g. 90s or 2m")] = "1m",
    noise: Annotated[str | None, typer.Option(help="noise under the speech: white, pink or babble")] = None,
    snr: Annotated[float | None, typer.Option(help="signal-to-noise ratio over the active speech, dB")] = None,
    length: Annotated[str | None, typer.Option(help="only utterances of this length: short, medium, long")] = None,
    corpus: Annotated[str | None, typer.Option(help="folder or name of a corpus")] = None,
    clips: Annotated[int, typer.Option(help="how many utterances to use at most")] = DEFAULTS.clips,
    turns: Annotated[int, typer.Option(help="turns of a call")] = DEFAULTS.turns,
    think: Annotated[float, typer.Option(help="mean think time before a turn, seconds")] = DEFAULTS.think,
    patience: Annotated[
        float | None, typer.Option(help="median silence after which a caller hangs up, seconds")
    ] = None,
    reply_timeout: Annotated[
        float, typer.Option(help="how long to wait for a reply, seconds")
    ] = DEFAULTS.reply_timeout,
    manual_turns: Annotated[bool, typer.Option("--manual-turns", help="the caller says when it has finished")] = False,
    endpointing_ms: Annotated[
        int | None, typer.Option(help="silence that closes a turn, asked of the endpoint")
    ] = None,
    model: Annotated[str | None, typer.Option(help="model to ask for")] = None,
    transcription_model: Annotated[str | None, typer.Option(help="transcription model to ask for")] = None,
    cohort: Annotated[str | None, typer.Option(help="cohort that these callers belong to")] = None,
    scenario: Annotated[str | None, typer.Option(help="name of the scenario, as a dimension")] = None,
    region: Annotated[str | None, typer.Option(help="name of the region, as a dimension")] = None,
    seed: Annotated[int, typer.Option(help="the same seed says the same")] = DEFAULTS.seed,
    onset: Annotated[str, typer.Option(help="audible onset preset: rms-10ms or sustained-50ms")] = DEFAULTS.onset,
    ca_file: Annotated[str | None, typer.Option(help="PEM file of an own certificate authority for wss")] = None,
    slo: Annotated[Path | None, typer.Option(help="objectives, an OpenSLO file (default: the built-in set)")] = None,
    sidecar: Annotated[
        str | None, typer.Option(help="a running sidecar on this machine (default: one of its own)")
    ] = None,
    keep_transcripts: Annotated[
        bool, typer.Option("--keep-transcripts", help="keep callers' words in the store")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="folder for everything of this run (default: runs/<time>)")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the summary as one JSON object")] = None,
) -> None:
    """Send callers to an endpoint and judge what they heard.

    A bearer token for the endpoint is read from the environment variable VOICEPROBE_TOKEN.
    """
    from loadtest.cli.run import preflight, report
    from loadtest.cli.run import run as carry_out

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
        patience=patience,
        reply_timeout=reply_timeout,
        manual_turns=manual_turns,
        endpointing_ms=endpointing_ms,
        model=model,
        transcription_model=transcription_model,
        cohort=cohort,
        scenario=scenario,
        region=region,
        seed=seed,
        onset=onset,
        ca_file=ca_file,
        sidecar=sidecar,
        keep_transcripts=keep_transcripts,
    )
    folder = out if out is not None else default_out()
    request = RunRequest(settings, users, spawn_rate, parse_duration_s(run_time), slo, folder, json_file)
    console = Console()
    checked = check(request)
    console.print(checked.sentence, soft_wrap=True)
    preflight(checked)
    raise typer.Exit(int(report(carry_out(checked, console), console, json_file)))


@app.command(epilog="Example: voiceprobe demo --users 8 --run-time 60s --exit --json summary.json")
def demo(
    users: Annotated[int, typer.Option("--users", "-u", help="callers at the same time")] = 8,
    run_time: Annotated[str, typer.Option(help="how long the swarm runs, e.g. 60s")] = "60s",
    exit_after: Annotated[bool, typer.Option("--exit", help="end by itself instead of staying until Ctrl-C")] = False,
    engines: Annotated[str, typer.Option(help="the assistant's engines: scripted or real")] = "scripted",
    corpus: Annotated[
        str | None, typer.Option(help="corpus (default: recorded human speech where it can be had)")
    ] = None,
    noise: Annotated[str | None, typer.Option(help="noise under the speech: white, pink or babble")] = None,
    snr: Annotated[float | None, typer.Option(help="signal-to-noise ratio over the active speech, dB")] = None,
    slo: Annotated[Path | None, typer.Option(help="objectives, an OpenSLO file (default: the built-in set)")] = None,
    out: Annotated[Path | None, typer.Option(help="folder for everything of this run (default: runs/<time>)")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the summary as one JSON object")] = None,
) -> None:
    """Start the reference assistant, the sidecar and the dashboard, and send callers: the whole way, once."""
    from loadtest.cli.demo import DemoRequest
    from loadtest.cli.demo import demo as carry_out

    folder = out if out is not None else default_out()
    request = DemoRequest(
        users, parse_duration_s(run_time), exit_after, engines, corpus, noise, snr, slo, folder, json_file
    )
    raise typer.Exit(int(carry_out(request, Console())))


def default_out() -> Path:
    """A folder for a run that named none."""
    from loadtest.swarm.worker import new_run_id

    return Path("runs") / new_run_id()


def _forwarder(name: str, module: str, summary: str) -> None:
    def forward(context: typer.Context) -> None:
        os.execve(sys.executable, [sys.executable, "-m", module, *context.args], environment())  # noqa: S606

    forward.__doc__ = summary
    app.command(
        name,
        help=summary,
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False},
    )(forward)


for _name, (_module, _summary) in FORWARDED.items():
    _forwarder(_name, _module, _summary)


def guarded(command: Callable[[], None]) -> int:
    """Run a command; the exit code. What we raise on purpose is one sentence on standard error."""
    try:
        command()
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else int(ExitCode.OK if done.code is None else ExitCode.FAULT)
    except KeyboardInterrupt:
        return int(ExitCode.INTERRUPTED)
    except (UsageError, CorpusError, ConfigError, StoreError) as error:
        return _say(error, ExitCode.USAGE)
    except EndpointUnreachable as error:
        return _say(error, ExitCode.UNREACHABLE)
    except (ProcessFailedError, TelemetryError) as error:
        return _say(error, ExitCode.FAULT)
    return int(ExitCode.OK)


def _say(error: Exception, code: ExitCode) -> int:
    for line in str(error).splitlines():
        sys.stderr.write(f"voiceprobe: {line}\n")
    return int(code)


def main() -> None:
    """The console script."""
    sys.exit(guarded(app))


__all__ = ["ROOT", "TOKEN_VARIABLE", "app", "main"]

if __name__ == "__main__":
    main()

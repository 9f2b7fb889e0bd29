"""The sidecar: receives OTLP from both sides of a call, owns the store and serves Prometheus metrics.

python -m telemetry.sidecar --store ./voiceprobe-data
"""

import asyncio
import inspect
import os
import signal
import sys
from typing import Annotated, Any, Final

import orjson
import typer

from telemetry.model.errors import ConfigError, TelemetryError
from telemetry.sidecar.configuration import TABLES, options_of, read_configuration, settings_shown
from telemetry.sidecar.logs import start_logging
from telemetry.sidecar.server import serve
from telemetry.sidecar.settings import BY_KEY, CONFIG, SETTINGS, SidecarOptions, SidecarSetting
from telemetry.sidecar.stopping import StopRequests

EXIT_USAGE: Final = 2
_PORT: Final = BY_KEY["http_port"]
HELP: Final = f"""Receive OTLP traces and metrics, store them, and serve Prometheus metrics.

Each setting is a flag, an environment variable and a key of the file that --config names: {_PORT.flag},
{_PORT.variable} and {_PORT.key}. A flag takes precedence over a variable, and a variable over the file.
"""
EXAMPLE: Final = """Example: voiceprobe sidecar --store ./voiceprobe-data --http-port 0 --grpc-port 0

voiceprobe sidecar --config sidecar.toml --print-config"""


def run(options: SidecarOptions) -> int:
    """Run a sidecar in this process until SIGTERM or SIGINT; return the exit code.

    Prints a JSON line with its addresses on stdout when it is ready. A second signal ends the wait for requests in
    progress; what was acknowledged is stored in any case.
    """

    os.umask(0o077)  # the database creates its own files next to those of the store

    async def main() -> None:
        stop = StopRequests()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.ask)
        await serve(options, _print_ready, stop)

    try:
        asyncio.run(main())
    except TelemetryError as error:
        _print_fault(error)
        return EXIT_USAGE
    return 0


def _print_ready(addresses: dict[str, object]) -> None:
    print(orjson.dumps(addresses).decode(), flush=True)  # noqa: T201 - the parent process waits for this line


def _print_fault(error: TelemetryError) -> None:
    lines = error.faults if isinstance(error, ConfigError) else []
    for line in [f"{error.where}:", *lines] if isinstance(error, ConfigError) and len(lines) > 1 else [str(error)]:
        print(line, file=sys.stderr)  # noqa: T201 - the command line's answer


def _sidecar(**flags: Any) -> None:
    prints = flags.pop("print_config")
    configuration = read_configuration(flags, os.environ, TABLES)
    try:
        options = options_of(configuration)
    except ConfigError as error:
        _print_fault(error)
        raise typer.Exit(EXIT_USAGE) from error
    if prints:
        print(settings_shown(configuration), end="")  # noqa: T201 - the command line's answer
        raise typer.Exit
    start_logging(*(str(configuration.value(key)) for key in ("log_format", "log_level")))
    raise typer.Exit(run(options))


def _parameter(setting: SidecarSetting) -> inspect.Parameter:
    help_ = setting.help if setting.default in (None, False) else f"{setting.help} (default: {setting.default})"
    is_boolean = setting.kind == "boolean"
    names = [f"{setting.flag}/--no-{setting.flag[2:]}"] if is_boolean else [setting.flag]
    declared = typer.Option(
        *names,
        help=help_,
        metavar=None if is_boolean else "|".join(setting.choices).upper() or setting.kind.upper(),
        rich_help_panel=setting.group.capitalize(),
        hidden=setting.is_secret,
    )
    # Texts are checked together with those of the environment, so that all faults are reported at once.
    kind = list[str] if setting.is_repeated else bool if is_boolean else str
    annotation = Annotated[kind | None, declared]
    return inspect.Parameter(setting.key, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _with_flags() -> Any:
    """The command with a parameter for each setting."""
    print_config = Annotated[
        bool,
        typer.Option(
            "--print-config",
            help="print every setting with where it comes from, secrets hidden, and exit: 0, or 2 with every fault",
            rich_help_panel=CONFIG.group.capitalize(),
        ),
    ]
    parameters = [
        _parameter(CONFIG),
        inspect.Parameter("print_config", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=print_config),
        *map(_parameter, SETTINGS),
    ]
    _sidecar.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    _sidecar.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return _sidecar


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.command(name="sidecar", help=HELP, epilog=EXAMPLE)(_with_flags())

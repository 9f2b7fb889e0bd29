"""The assistant's process: its command line with a flag for every setting of `config`, engines, server, signals."""

from __future__ import annotations

import asyncio
import gc
import inspect
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from loadtest.errors import UsageError
from loadtest.exit_codes import ExitCode
from loadtest.targets.assistant.clock import Clock
from loadtest.targets.assistant.config import Assignment, AssistantConfig, build_config, read_file
from loadtest.targets.assistant.engines import Engines, build_engines
from loadtest.targets.assistant.real import environment
from loadtest.targets.assistant.server import AssistantServer
from telemetry.model.addresses import host_and_port
from telemetry.model.durations import METAVAR, Duration
from telemetry.model.errors import ConfigError

if TYPE_CHECKING:
    from telemetry.export.sdk import Telemetry

TOKEN_ENV: Final = "VOICEPROBE_TOKEN"  # noqa: S105 - the name of a variable, not a token
_SWITCH_INTERVAL_S: Final = 0.0005

HELP: Final = """Run the reference voice assistant: an OpenAI Realtime endpoint with known timing.

Prints one JSON line with its URL when it is ready, and serves until SIGTERM.

Example: voiceprobe assistant --port 8080 --llm-ttft lognormal:220ms:0.3 --cohort treatment=0.5

With --fault it misbehaves in one of these ways: never-answer, garbage, drop-mid-turn, oversized-message,
unknown-messages, answer-before-question, wrong-rate, half-open, refuse, slow-accept.
"""


def assistant_command(**flags: str | Path | None) -> None:
    """Run the assistant; exits with the documented exit codes."""
    config_file = flags.pop("config", None)
    try:
        config = load(Path(config_file) if config_file is not None else None, flags)
    except UsageError as error:
        sys.stderr.write(f"{error}\n")
        raise typer.Exit(ExitCode.USAGE) from None
    raise typer.Exit(run(config))


def _signature() -> inspect.Signature:
    """Create the signature that typer reads the flags from, so that every setting has a flag."""
    options: dict[str, Any] = {
        "config": Annotated[Path | None, typer.Option(help="TOML file with the same settings; flags take precedence")]
    }
    for name, field in AssistantConfig.model_fields.items():
        default = getattr(_DEFAULTS, name)
        text = field.title or ""
        if default is not None and name != "run_id":
            text += f" (default: {str(default).lower() if isinstance(default, bool) else default})"
        metavar = METAVAR if isinstance(default, Duration) else None
        flag = f"--{name.replace('_', '-')}"
        options[name] = Annotated[str | None, typer.Option(flag, help=text, metavar=metavar)]
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Signature(
        [inspect.Parameter(name, keyword, default=None, annotation=option) for name, option in options.items()]
    )


_DEFAULTS: Final = build_config({})
assistant_command.__signature__ = _signature()  # pyright: ignore[reportFunctionMemberAccess] - read by inspect
assistant_command.__annotations__ = {name: p.annotation for name, p in _signature().parameters.items()}


def load(config_file: Path | None, flags: Mapping[str, object]) -> AssistantConfig:
    """Load the configuration from a file, the environment and flags; later ones take precedence. Raises UsageError."""
    file = read_file(config_file) if config_file is not None else None
    given = {name: value for name, value in flags.items() if value is not None}
    if TOKEN_ENV in os.environ and (file is None or "token" not in file.table):
        given.setdefault("token", os.environ[TOKEN_ENV])
    return build_config(given, file)


def run(config: AssistantConfig) -> ExitCode:
    """Serve until SIGTERM or SIGINT."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    # One session's recognition must not hold the interpreter lock while another one's audio is due.
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    try:
        if config.needs_models:
            environment.prepare(lambda text: sys.stderr.write(f"{text}\n"))
        _run_on_fast_loop(_serve(config))
    except (UsageError, ConfigError) as error:
        sys.stderr.write(f"{error}\n")
        return ExitCode.USAGE
    return ExitCode.OK


async def _serve(config: AssistantConfig) -> None:
    clock = Clock()
    engines = build_engines(config, clock)
    assign, stop_assigning = _assigner(config, engines)
    telemetry = _telemetry(config)
    server = AssistantServer(config, engines, clock, telemetry, assign)
    ending = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, ending.set)
    try:
        await engines.start()
        try:
            await server.start()
        except OSError as error:
            address = host_and_port(config.host, config.port)
            # The event loop says it in a sentence of its own, with the address once more.
            number = None if isinstance(error, socket.gaierror) else error.errno
            reason = error.strerror or error if number is None else os.strerror(number)
            raise UsageError(f"The assistant cannot listen on {address} ({reason}); choose another --port.") from error
        # Existing objects live as long as the process, so the garbage collector need not scan them during a turn.
        gc.collect()
        gc.freeze()
        sys.stdout.write(json.dumps({"ready": True, "url": server.url}) + "\n")
        sys.stdout.flush()
        await ending.wait()
    finally:
        await server.stop()
        await engines.stop()
        stop_assigning()
        if telemetry is not None:
            await asyncio.to_thread(telemetry.shutdown, 2.0)


def _assigner(config: AssistantConfig, engines: Engines) -> tuple[Callable[[str], Assignment], Callable[[], None]]:
    """Return what decides on the cohorts of calls, and what stops it. Raises UsageError for a file of flags that cannot
    be used."""
    if config.flags is None:
        return config.split.assign if config.split else lambda _: Assignment(), lambda: None
    # Imported only if used: the provider brings gRPC with it.
    from loadtest.targets.assistant.flags import FlagAssigner

    assigner = FlagAssigner(config.flags, config.flag, config.cohort_control, engines.variants)
    assigner.start()
    return assigner.assign, assigner.stop


def _telemetry(config: AssistantConfig) -> Telemetry | None:
    if config.otlp is None:
        return None
    from telemetry.export import sdk

    return sdk.start(sdk.SdkOptions(config.otlp, "voiceprobe-assistant"))


def _run_on_fast_loop(work: Coroutine[Any, Any, None]) -> None:
    try:
        import uvloop
    except ImportError:  # not available on this platform; the standard loop works, with coarser timers
        asyncio.run(work)
        return
    uvloop.run(work)


def main() -> None:
    """The entry point."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command(help=HELP)(assistant_command)
    app(prog_name="voiceprobe assistant")

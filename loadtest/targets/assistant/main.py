"""The assistant's process: configuration, engines, server, signals. Ends with the documented exit codes."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from loadtest.errors import UsageError
from loadtest.exit_codes import ExitCode
from loadtest.targets.assistant.clock import SystemClock
from loadtest.targets.assistant.cohorts import Assigner, NoCohorts
from loadtest.targets.assistant.config import AssistantConfig, build_config, read_file
from loadtest.targets.assistant.engines import build_engines
from loadtest.targets.assistant.real import environment
from loadtest.targets.assistant.server import AssistantServer
from telemetry.model.addresses import host_and_port
from telemetry.model.errors import ConfigError

if TYPE_CHECKING:
    from telemetry.export.sdk import Telemetry

TOKEN_ENV: Final = "VOICEPROBE_TOKEN"  # noqa: S105 - the name of a variable, not a token
_SWITCH_INTERVAL_S: Final = 0.0005


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
    clock = SystemClock()
    engines = build_engines(config, clock)
    assigner = _assigner(config, engines.of_variant)
    telemetry = _telemetry(config)
    server = AssistantServer(config, engines, clock, telemetry, assigner)
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
        assigner.stop()
        if telemetry is not None:
            await asyncio.to_thread(telemetry.shutdown, 2.0)


def _assigner(config: AssistantConfig, variants: Mapping[str, object]) -> Assigner:
    """Return who decides on the cohorts of calls. Raises UsageError for a file of flags that cannot be used."""
    if config.flags is None:
        return config.split or NoCohorts()
    # Imported only if used: the provider brings gRPC with it.
    from loadtest.targets.assistant.flags import FlagAssigner, FlagSource

    source = FlagSource(config.flags, config.flag, config.cohort_control, frozenset(variants))
    assigner = FlagAssigner(source)
    assigner.start()
    return assigner


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

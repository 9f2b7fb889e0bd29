"""The exit code and the sentence of every error that is raised on purpose."""

import sys
from collections.abc import Callable
from typing import Any

from corpora.manifest.errors import CorpusError
from loadtest.errors import EndpointUnreachable, InstrumentError, UsageError, VoiceprobeError
from loadtest.exit_codes import ExitCode
from telemetry.model.errors import ConfigError, StoreError, TelemetryError


def guarded(command: Callable[[], None]) -> int:
    """Run a command; its exit code. An error that is raised on purpose becomes sentences on standard error."""
    try:
        return _code_of(command)
    finally:
        _end_lookup_threads()


def _code_of(command: Callable[[], None]) -> int:
    try:
        command()
    except SystemExit as done:
        if _was_interrupted(done):
            return _report("interrupted", ExitCode.INTERRUPTED)
        return done.code if isinstance(done.code, int) else int(ExitCode.OK if done.code is None else ExitCode.FAULT)
    except KeyboardInterrupt:
        return _report("interrupted", ExitCode.INTERRUPTED)
    except (UsageError, CorpusError, ConfigError, StoreError) as error:
        return _report(error, ExitCode.USAGE)
    except EndpointUnreachable as error:
        return _report(error, ExitCode.UNREACHABLE)
    except InstrumentError as error:
        return _report(error, ExitCode.GENERATOR_LIMITED)
    except (VoiceprobeError, TelemetryError) as error:
        return _report(error, ExitCode.FAULT)
    return int(ExitCode.OK)


def _end_lookup_threads() -> None:
    """End gevent's threads, which look up host names. One that still runs when the interpreter ends keeps modules
    loaded, and DuckDB's bindings then write a page of leaked objects to the terminal."""
    if (gevent := sys.modules.get("gevent")) is not None:
        hub: Any = gevent.get_hub()
        hub.threadpool.kill()


def _was_interrupted(error: BaseException) -> bool:
    """Return whether Ctrl-C ended a command that does not end by it in an orderly way: typer then exits without a
    word."""
    reason = error.__cause__ or error.__context__
    return isinstance(error, KeyboardInterrupt) or (reason is not None and _was_interrupted(reason))


def _report(error: Exception | str, code: ExitCode) -> int:
    for line in str(error).splitlines():
        sys.stderr.write(f"voiceprobe: {line}\n")
    return int(code)

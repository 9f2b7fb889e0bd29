"""The exit code and the sentence of every error that is raised on purpose."""

import sys
from collections.abc import Callable

from corpora.manifest.errors import CorpusError
from loadtest.errors import EndpointUnreachable, OutputError, UsageError
from loadtest.exit_codes import ExitCode
from loadtest.run.processes import ProcessFailedError
from telemetry.model.errors import ConfigError, StoreError, TelemetryError


def guarded(command: Callable[[], None]) -> int:
    """Run a command; its exit code. An error that is raised on purpose becomes sentences on standard error."""
    try:
        command()
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else int(ExitCode.OK if done.code is None else ExitCode.FAULT)
    except KeyboardInterrupt:
        return int(ExitCode.INTERRUPTED)
    except (UsageError, CorpusError, ConfigError, StoreError) as error:
        return _report(error, ExitCode.USAGE)
    except EndpointUnreachable as error:
        return _report(error, ExitCode.UNREACHABLE)
    except (OutputError, ProcessFailedError, TelemetryError) as error:
        return _report(error, ExitCode.FAULT)
    return int(ExitCode.OK)


def _report(error: Exception, code: ExitCode) -> int:
    for line in str(error).splitlines():
        sys.stderr.write(f"voiceprobe: {line}\n")
    return int(code)

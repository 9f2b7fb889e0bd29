"""How a command ended, for scripts. The README's table is tested against this file."""

from enum import IntEnum


class ExitCode(IntEnum):
    """Documented process exit codes."""

    OK = 0  # all objectives met
    FAULT = 1  # an unexpected fault of ours
    USAGE = 2  # a flag, file or configuration cannot be used
    OBJECTIVE_MISSED = 3
    GENERATOR_LIMITED = 4  # the instrument, not the endpoint, was the limit
    UNREACHABLE = 5  # the target cannot be reached or refused us
    INTERRUPTED = 130  # results so far are kept

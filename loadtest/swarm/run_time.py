"""How long a run lasts: `--run-time` counts from the moment when every process has prepared its speech.

Locust counts from the order to start. On a busy machine preparation takes seconds, and a short run would end before
its first call.
"""

from collections.abc import Callable
from typing import Any, Final

import gevent
from locust.env import Environment
from locust.runners import WorkerRunner
from locust.util.timespan import parse_timespan

# A process that never gets ready does not keep the run alive for ever.
LONGEST_PREPARATION_S: Final = 600.0


def take_over(options: Any) -> None:
    """Take the limit of a run that nobody steers from a page out of Locust's hands."""
    options.voice_limit_s = options.run_time
    options.run_time = None


def limit_s(environment: Environment) -> float | None:
    """Return how long the run lasts; None where nothing bounds it, or phases do."""
    options: Any = environment.parsed_options
    if isinstance(environment.runner, WorkerRunner):
        limit = getattr(options, "voice_run_time", None)  # as the master had it
    else:
        limit = getattr(options, "voice_limit_s", None) or options.run_time
    if isinstance(limit, str):  # as Locust's web page hands it on
        limit = parse_timespan(limit) if limit else None
    return limit or None


def end_at_the_limit(environment: Environment, end: Callable[[], None], preparation_s: float = 0.0) -> None:
    """Call `end` when the run that starts now, or after so long a preparation, has lasted long enough. Where Locust
    counts by itself, nothing happens."""
    taken_s = getattr(environment.parsed_options, "voice_limit_s", None)
    if taken_s and not isinstance(environment.runner, WorkerRunner):
        gevent.spawn_later(preparation_s + taken_s, end)

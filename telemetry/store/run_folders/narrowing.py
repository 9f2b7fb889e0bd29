"""Which runs of a list are asked for, by what is already known of each. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from telemetry.store.run_folders.entries import RunEntry


@dataclass(frozen=True, slots=True)
class RunFilter:
    """None means any. A run of which something is not known does not match where that is asked for."""

    since_unix_ns: int | None = None  # inclusive, of the moment when a run began
    cohort: str | None = None  # that occurs in the run, beside others or not
    target: str | None = None
    state: str | None = None
    profile: str | None = None
    scenario: str | None = None
    protocol: str | None = None
    users: int | None = None

    def matches(self, run: RunEntry) -> bool:
        """Whether a run is one of those that are asked for."""
        if self.since_unix_ns is not None and (run.began_unix_ns is None or run.began_unix_ns < self.since_unix_ns):
            return False
        if self.cohort is not None and self.cohort not in (run.cohorts or ()):
            return False
        wanted = (
            (self.target, run.target),
            (self.state, run.state),
            (self.profile, run.profile),
            (self.scenario, run.scenario),
            (self.protocol, run.protocol),
            (self.users, run.users),
        )
        return all(asked is None or asked == found for asked, found in wanted)


def narrowed(runs: Iterable[RunEntry], f: RunFilter) -> list[RunEntry]:
    """The runs that match, in the order in which they came."""
    return [each for each in runs if f.matches(each)]

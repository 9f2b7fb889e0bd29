"""Information on a run that only the command line has, not the store: how it was asked for and how it came to its
end."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from loadtest.reports.calibration_citing import Citation
from telemetry.model import formatting
from telemetry.model.services import ServiceDay
from telemetry.store.questions.caches import ModelServer
from telemetry.store.questions.runs import LostProcess


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCorpus:
    """The callers' speech. `kind` is "recorded" (human speech) or "generated" (known text, synthetic voices)."""

    name: str
    kind: str
    utterances: int
    licenses: tuple[str, ...] = ()
    edges: str | None = None  # "exact" or "recorded"; None if the run does not state them
    fade_ms: float | None = None  # the fade that begins at an exact end
    recorded_ends: int | None = None  # clips that have exact edges but no certain end, and were sent as recorded

    @property
    def edges_phrase(self) -> str | None:
        """A phrase on how speech ends; None if not known."""
        if self.edges != "exact" or self.fade_ms is None:
            return None if self.edges is None else f"{self.edges} edges"
        but = f", {self.recorded_ends} as recorded" if self.recorded_ends else ""
        return f"exact edges ({formatting.declared_milliseconds(self.fade_ms * 1e6)} fade{but})"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProfile:
    """The alterations of the utterances; None means that nothing was asked."""

    noise: str | None = None
    snr_db: float | None = None
    length: str | None = None
    channel: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessShare:
    """The share of one process of the generator in the run, by its own report."""

    worker: str = ""  # as in LostProcess
    turns: int = 0
    cpu_ratio: float | None = None  # three in four of its seconds took no more than this share of a core


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolInfo:
    """The telemetry that the senders kept on disk because no sidecar took it during the run: turns, and the spans that
    they and their calls consist of. Delivered after the run, or waiting still, as no sidecar took it then either."""

    turns: int = 0
    spans: int = 0
    waiting_turns: int = 0
    waiting_spans: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """One run as its command line sees it. `calls_connected` counts the calls whose session became ready.

    `service` is set for what a service reported on a day, with no caller of ours: it has no processes.
    """

    run_id: str
    target: str
    protocol: str
    corpus: RunCorpus
    users: int | None  # None where no process of the run reported it
    seed: int | None
    started_unix_ns: int
    run_time_s: float | None = None  # as asked for; None where nothing bounds the run
    elapsed_s: float | None = None
    arrivals: str = "closed"  # or how calls begin, whatever the earlier ones do
    rate_per_s: float | None = None  # of calls begun; None where phases say it, or callers
    max_calls: int | None = None  # under way at the same time in open arrivals
    scenario: str | None = None
    profile: RunProfile = field(default_factory=RunProfile)
    cohort: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    calls_started: int | None = None
    calls_connected: int | None = None
    calls_prevented: int = 0  # of those started: that the generator itself could not connect
    connect_failure: str | None = None  # the reason that the endpoint or the network gave
    interrupted: bool = False
    is_under_way: bool = False  # asked about while it goes on
    processes: int = 1  # that were to share the callers
    shares: tuple[ProcessShare, ...] = ()  # of the processes that are known
    cores: int | None = None  # that such a process and its like may use on its machine
    lost: tuple[LostProcess, ...] = ()
    killed_by: str | None = None  # the signal or fault that ended Locust's first process, which led the others
    workers_missing: bool = False  # Locust's first process had lost contact with one or all when the run ended
    spooled: SpoolInfo | None = None  # None where the spool of the senders is not at hand
    store: str | None = None
    dashboard_url: str | None = None
    service: ServiceDay | None = None
    calibration: Citation | None = None  # None where none was looked up
    model_servers: tuple[ModelServer, ...] = ()  # that the sidecar read meanwhile

    @property
    def busiest_cpu_ratio(self) -> float | None:
        """The share of a core that the busiest process used; None where none reported it."""
        return max((share.cpu_ratio for share in self.shares if share.cpu_ratio is not None), default=None)

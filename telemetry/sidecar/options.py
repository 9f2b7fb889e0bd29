"""The options of a sidecar."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from telemetry.sidecar.connection_limits import ConnectionLimits
from telemetry.sidecar.forwarding.destinations import Destination
from telemetry.sidecar.rollouts.settings import EVERY_S, RolloutSetting
from telemetry.sidecar.scraping.targets import ScrapeTarget
from telemetry.sidecar.tls import ServerTls
from telemetry.store.connection import EXACT_TURNS
from telemetry.store.retention import KEEP_ALL, Keep

# Of DuckDB alone; the receivers and the rest of the process come on top of it.
STORE_MEMORY_MIB: Final = 1024


@dataclass(frozen=True, slots=True)
class SidecarOptions:
    """The options of a sidecar. Port 0 means any free port; `slo` determines the boundaries of histogram buckets.

    What `keep` does not keep is removed from the store. The database takes at most `store_memory_mib` of memory, and
    the percentiles of a page of more than `exact_turns` are estimates. The
    pages of the model servers in `scrape` are read. For `drain_s` seconds after a stop signal, the receivers accept
    requests and say that they are not ready. `redact_names` is a file of names that no text keeps. Each of `rollouts`
    is evaluated every `rollout_every_s` seconds.
    """

    store: Path
    host: str = "127.0.0.1"
    http_port: int = 4318
    grpc_port: int = 4317
    token: str | None = field(default=None, repr=False)
    tls: ServerTls | None = None
    keep_transcripts: bool = False
    slo: Path | None = None
    keep: Keep = KEEP_ALL
    store_memory_mib: int = STORE_MEMORY_MIB
    exact_turns: int = EXACT_TURNS
    limits: ConnectionLimits = field(default_factory=ConnectionLimits)
    scrape: tuple[ScrapeTarget, ...] = ()
    drain_s: float = 0.0
    redact_names: Path | None = None
    destinations: tuple[Destination, ...] = ()
    rollouts: tuple[RolloutSetting, ...] = ()
    rollout_every_s: float = EVERY_S

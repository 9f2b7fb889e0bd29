"""What the command line knows of a run and the store does not: how it was asked for and how it came to its end."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

# Query parameters that say what is being tested. Any other value may be a secret.
_TELLING: Final = frozenset({"api-version", "deployment", "intent", "language", "model", "voice"})
HIDDEN: Final = "hidden"


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusFacts:
    """What the callers said. `kind` is "recorded" (human speech) or "generated" (known text, synthetic voices)."""

    name: str
    kind: str
    utterances: int
    licences: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileFacts:
    """How the utterances were altered; None means that nothing was asked."""

    noise: str | None = None
    snr_db: float | None = None
    length: str | None = None
    channel: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """One run as its command line knows it. `calls_connected` counts the calls whose session became ready."""

    run_id: str
    target: str
    protocol: str
    corpus: CorpusFacts
    users: int
    seed: int
    started_unix_ns: int
    run_time_s: float | None = None  # as asked for; None where nothing bounds the run
    elapsed_s: float | None = None
    profile: ProfileFacts = field(default_factory=ProfileFacts)
    cohort: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    calls_started: int | None = None
    calls_connected: int | None = None
    connect_failure: str | None = None  # what the endpoint or the network said when it refused
    interrupted: bool = False
    turns_spooled: int | None = None  # kept on disk by the senders because no sidecar took them
    store: str | None = None
    dashboard_url: str | None = None


def without_credentials(url: str) -> str:
    """The address without user, password, fragment and the values of query parameters that may be secrets."""
    parts = urlsplit(url)
    query = [(name, value if name in _TELLING else HIDDEN) for name, value in parse_qsl(parts.query, True)]
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, urlencode(query), ""))

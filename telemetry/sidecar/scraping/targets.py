"""Model servers whose Prometheus page is read: what a `[[scrape]]` table of the configuration says, checked."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from telemetry.model.addresses import without_credentials
from telemetry.model.durations import Duration, DurationError
from telemetry.model.errors import ConfigError
from telemetry.model.foreign_text import one_line

INTERVAL_LEAST_S: Final = 1.0
INTERVAL_MOST_S: Final = 3600.0
_INTERVAL: Final = Duration.parse("10s")
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEYS: Final = ("name", "url", "interval", "token_env")


@dataclass(frozen=True, slots=True)
class ScrapeTarget:
    """A page that is read every `interval_s`. `token_env` is the environment variable that holds a bearer token."""

    name: str
    url: str
    interval_s: float = _INTERVAL.seconds
    token_env: str | None = None


def targets_from(tables: Sequence[Mapping[str, Any]], where: str) -> list[ScrapeTarget]:
    """Read the `[[scrape]]` tables of a configuration. Raises ConfigError with every fault of all of them."""
    faults: list[str] = []
    found: list[ScrapeTarget] = []
    for number, table in enumerate(tables, 1):
        label = f"[[scrape]] {number}"
        target, own = _target(table)
        if any(target.name == other.name for other in found):
            own.append(f"name: {target.name!r} is another target's name: each needs its own")
        faults += [f"{label}: {fault}" for fault in own]
        found.append(target)
    if faults:
        raise ConfigError(where, faults)
    return found


def _target(table: Mapping[str, Any]) -> tuple[ScrapeTarget, list[str]]:
    faults = [
        f"{one_line(str(key))!r} is not a known key; known are {', '.join(_KEYS)}" for key in table if key not in _KEYS
    ]
    name, url, token_env = (table.get(key) for key in ("name", "url", "token_env"))
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        faults.append("name: a short name in small letters is expected, such as vllm-1")
    fault = _url_fault(url) if isinstance(url, str) else f"an address is expected, such as {_EXAMPLE}"
    if fault is not None:
        faults.append(f"url: {fault}")
    if token_env is not None and not (isinstance(token_env, str) and _VARIABLE.fullmatch(token_env)):
        faults.append("token_env: the name of an environment variable is expected, such as VLLM_API_KEY")
    interval_s, interval_faults = _interval_s(table)
    faults += interval_faults
    return ScrapeTarget(str(name), str(url), interval_s, None if token_env is None else str(token_env)), faults


_EXAMPLE: Final = "http://127.0.0.1:8000/metrics"


def _url_fault(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        named, port = parts.hostname, parts.port
    except ValueError:
        return f"{one_line(without_credentials(url))!r} is not an address; write, for example, {_EXAMPLE}"
    del port  # asked for only because a bad one raises
    if parts.scheme not in ("http", "https") or not named:
        return f"{one_line(without_credentials(url))!r} is not an address of HTTP; write, for example, {_EXAMPLE}"
    if parts.username is not None or parts.password is not None:
        return "an address must not hold credentials; put a bearer token into a variable and name it in token_env"
    return None


def _interval_s(table: Mapping[str, Any]) -> tuple[float, list[str]]:
    stated = table.get("interval")
    if stated is None:
        return _INTERVAL.seconds, []
    try:
        interval_s = Duration.parse(str(stated)).seconds
    except DurationError as error:
        return _INTERVAL.seconds, [f"interval: {error}"]
    if not INTERVAL_LEAST_S <= interval_s <= INTERVAL_MOST_S:
        return _INTERVAL.seconds, [f"interval: {one_line(str(stated))} is out of range: 1s to 1h"]
    return interval_s, []

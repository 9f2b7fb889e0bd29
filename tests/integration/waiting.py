"""Waiting for what other processes do."""

import fcntl
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import httpx

from telemetry.store.manifest import LOCK_NAME, MANIFEST_NAME, load
from tests import asking

T = TypeVar("T")


def wait_until(condition: Callable[[], T], within_s: float = 240.0, *, what: str = "what was waited for") -> T:
    """Ask until a condition holds; what it returned. The bound only ends a hopeless wait, and `what` then says for
    what."""
    deadline = time.monotonic() + within_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"there never was {what}"
        time.sleep(0.1)
    return value


def wait_for_lines(log: Path, key: str, count: int) -> list[dict[str, Any]]:
    """Wait until a process has written so many lines of JSON that have a key; all that it has written of them."""

    def written() -> list[dict[str, Any]]:
        # The last line may still be on its way.
        whole = log.read_text().rpartition("\n")[0].splitlines()
        found = [json.loads(line) for line in whole if line.startswith("{")]
        return [line for line in found if key in line]

    wait_until(lambda: len(written()) >= count)
    return written()


def stored_turns(store: Path) -> int:
    """The turns of both sides that are committed. That is on the manifest: a reader would open DuckDB to count them."""
    if not (store / MANIFEST_NAME).exists():
        return 0
    return sum(segment.rows for segment in load(store).segments if segment.table == "turns")


def answers(page: httpx.Client) -> bool:
    """Whether a server gives its first page."""
    try:
        return page.get("/").status_code == 200
    except httpx.TransportError:
        return False


def wait_until_visible(sidecar_url: str, token: str | None = None) -> None:
    """Wait until readers see everything that a sidecar has acknowledged."""
    headers = {"authorization": f"Bearer {token}"} if token is not None else {}

    def is_visible() -> bool:
        state = asking.get(f"{sidecar_url}/v1/state", headers=headers)
        return state.status_code == 200 and state.json()["waiting_rows"] == 0

    wait_until(is_visible)


def wait_until_released(store: Path) -> None:
    """Wait until no process owns a store: one whose front was killed has committed what was acknowledged, and ended."""

    def is_free() -> bool:
        with (store / LOCK_NAME).open("rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

    wait_until(is_free)

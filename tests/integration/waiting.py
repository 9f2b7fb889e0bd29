"""Waiting for what other processes do."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import httpx

from telemetry.store.database import DATABASE_NAME
from telemetry.store.reader import StoreReader

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
        lines = [json.loads(line) for line in whole if line.startswith("{")]
        return [line for line in lines if key in line]

    wait_until(lambda: len(written()) >= count)
    return written()


def stored_turns(store: Path) -> int:
    """The turns of both sides that are committed."""
    return len(StoreReader(store).turns(limit=10_000)) if (store / DATABASE_NAME).exists() else 0


def answers(page: httpx.Client) -> bool:
    """Whether a server gives its first page."""
    try:
        return page.get("/").status_code == 200
    except httpx.TransportError:
        return False

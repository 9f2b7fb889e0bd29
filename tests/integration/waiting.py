"""Waiting for what other processes do."""

import time
from collections.abc import Callable
from typing import TypeVar

import httpx

T = TypeVar("T")


def wait_until(condition: Callable[[], T], within_s: float = 60.0) -> T:
    """Ask until a condition holds; what it returned. The bound only ends a hopeless wait."""
    deadline = time.monotonic() + within_s
    while not (value := condition()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.1)
    return value


def answers(page: httpx.Client) -> bool:
    """Whether a server gives its first page."""
    try:
        return page.get("/").status_code == 200
    except httpx.TransportError:
        return False

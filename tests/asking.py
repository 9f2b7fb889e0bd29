"""Single HTTP requests of tests: none loads the certificates of the system, which costs more than the request, and the
bound only ends a hopeless wait."""

from typing import Any

import httpx

BOUND_S = 120.0


def get(url: str, **named: Any) -> httpx.Response:
    """A GET on a connection of its own."""
    return httpx.get(url, timeout=BOUND_S, verify=False, **named)  # noqa: S501 - plain HTTP


def post(url: str, **named: Any) -> httpx.Response:
    """A POST on a connection of its own."""
    return httpx.post(url, timeout=BOUND_S, verify=False, **named)  # noqa: S501 - plain HTTP

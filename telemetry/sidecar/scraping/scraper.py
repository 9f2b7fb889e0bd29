"""Reads the pages of model servers, each at its interval, and hands what they say to the ingest of the sidecar.

A target that is slow, dead or endless costs its own scrape: each has a task, a deadline and a limit of bytes, and no
redirect is followed, as it would carry the token elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

from telemetry.model.addresses import TOKEN_RULE, is_token
from telemetry.model.errors import StoreError
from telemetry.model.foreign_text import one_line
from telemetry.sidecar.otlp.attributes import OtlpDecodeError
from telemetry.sidecar.scraping.series import NotAPage, failed, scraped
from telemetry.sidecar.scraping.targets import ScrapeTarget

if TYPE_CHECKING:
    import httpx

PAGE_BYTES_MAX: Final = 8 << 20
WITHIN_S: Final = 5.0

_log = logging.getLogger(__name__)


class ScrapeError(Exception):
    """A page could not be read; the text says why."""


class Scraper:
    """Scrapes targets until it is stopped. `take` stores an export request; it raises StoreError or
    OtlpDecodeError if it cannot."""

    def __init__(
        self,
        targets: Sequence[ScrapeTarget],
        take: Callable[[bytes], Awaitable[object]],
        *,
        wall_clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._targets = targets
        self._take = take
        self._wall_clock_ns = wall_clock_ns
        self._faults: dict[str, str] = {}
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def faults(self) -> dict[str, str]:
        """Why targets cannot be read at the moment, by their names."""
        return dict(self._faults)

    def start(self) -> None:
        """Begin; to be called in the event loop."""
        self._tasks = [asyncio.create_task(self._repeat(target)) for target in self._targets]

    async def stop(self) -> None:
        """End all scrapes at once."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def _repeat(self, target: ScrapeTarget) -> None:
        import httpx  # where a page is read: most sidecars read none, and start without it

        async with httpx.AsyncClient(follow_redirects=False, trust_env=False, timeout=WITHIN_S) as client:
            due_s = time.monotonic()
            while True:
                await self.scrape(target, client)
                # What took longer than the interval is not caught up with.
                due_s = max(due_s + target.interval_s, time.monotonic())
                await asyncio.sleep(due_s - time.monotonic())

    async def scrape(self, target: ScrapeTarget, client: httpx.AsyncClient) -> None:
        """Read one page and store what it says, or that it could not be read."""
        import httpx

        body, fault = b"", None
        try:
            async with asyncio.timeout(WITHIN_S):
                text = await _page(target, client)
            # In a thread: the receivers do not wait for the parsing of a long page.
            body = await asyncio.to_thread(scraped, text, target.name, self._wall_clock_ns())
        except (ScrapeError, NotAPage) as error:
            fault = str(error)
        except TimeoutError:
            fault = f"the page did not arrive within {WITHIN_S:.0f} s"
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            fault = one_line(str(error)) or type(error).__name__
        if fault is not None:
            body = failed(target.name, self._wall_clock_ns())
        self._note(target, fault)
        try:
            await self._take(body)
        except (StoreError, OtlpDecodeError) as error:
            _log.warning("what %s said could not be stored: %s", target.name, error)

    def _note(self, target: ScrapeTarget, fault: str | None) -> None:
        before = self._faults.get(target.name)
        if fault is not None:
            self._faults[target.name] = fault
            if before is None:
                _log.warning("the model server %s (%s) cannot be read: %s", target.name, target.url, fault)
        elif before is not None:
            del self._faults[target.name]
            _log.info("the model server %s can be read again", target.name)


async def _page(target: ScrapeTarget, client: httpx.AsyncClient) -> str:
    headers = {"accept": "text/plain; version=0.0.4", "accept-encoding": "identity"}
    if target.token_env is not None:
        token = os.environ.get(target.token_env, "").strip()
        if not token:
            raise ScrapeError(f"the environment variable {target.token_env} is not set; put the bearer token into it")
        if not is_token(token):
            raise ScrapeError(f"the environment variable {target.token_env} holds no token: {TOKEN_RULE}")
        headers["authorization"] = f"Bearer {token}"
    content = bytearray()
    async with client.stream("GET", target.url, headers=headers) as response:
        if response.status_code != 200:
            raise ScrapeError(f"it answered {response.status_code}, and 200 is expected")
        async for chunk in response.aiter_raw():
            content += chunk
            if len(content) > PAGE_BYTES_MAX:
                raise ScrapeError(f"the page is larger than {PAGE_BYTES_MAX >> 20} MiB")
    return content.decode("utf-8", "replace")

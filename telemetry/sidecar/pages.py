"""The pages of a sidecar: health, readiness, state and Prometheus metrics."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from telemetry.sidecar.faults import StoreFault
from telemetry.sidecar.ingest import Ingest
from telemetry.sidecar.otlp.access import Access
from telemetry.sidecar.storing import Counts

_Answer = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class ShownState:
    """The contents of the pages; `more_state` adds to the state."""

    counts: Counts
    ingest: Ingest
    access: Access
    is_stopping: Callable[[], bool]
    more_state: Callable[[], Mapping[str, object]] = field(default=dict[str, object])


def routes(shown: ShownState) -> list[Route]:
    """Create the routes of the pages.

    Health and readiness require no token, and wait for nothing. Without a token they name the faults; the sentences,
    which contain paths of this machine, require it.
    """
    board, access = shown.counts.faults, shown.access

    async def healthz(request: Request) -> Response:
        return _json({"alive": True, "faults": {fault.name: sentence(request, fault) for fault in board.all()}})

    async def readyz(request: Request) -> Response:
        reasons = [sentence(request, fault) for fault in board.all() if fault.stops_storing]
        reasons += ["the sidecar is stopping"] if shown.is_stopping() else []
        content = {"ready": not reasons, "reasons": reasons}
        return _json(content, 503 if reasons else 200)

    def sentence(request: Request, fault: StoreFault) -> str:
        return fault.sentence if access.denial(request) is None else fault.name

    async def state(_request: Request) -> Response:
        await asyncio.to_thread(_settle, shown)
        return _json({**shown.counts.state.as_dict(), **shown.more_state()})

    async def metrics(request: Request) -> Response:
        # In a thread: the receivers do not wait for the text.
        body, content_type = await asyncio.to_thread(_metrics, shown, request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type})

    return [
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/v1/state", _guarded(state, access)),
        Route("/metrics", _guarded(metrics, access)),
    ]


def _settle(shown: ShownState) -> None:
    """Wait until everything that was acknowledged is counted, too."""
    state = shown.counts.state
    with shown.ingest.counting, state.lock:
        state.bad_requests = shown.ingest.bad_requests
        state.refused_requests = shown.ingest.refused_requests


def _metrics(shown: ShownState, accept: str) -> tuple[bytes, str]:
    _settle(shown)
    return shown.counts.exposition.render(accept)


def _guarded(answer: _Answer, access: Access) -> _Answer:
    async def endpoint(request: Request) -> Response:
        if (denial := access.denial(request)) is None:
            return await answer(request)
        return Response(f"{denial.sentence}\n", denial.status, denial.headers, "text/plain")

    return endpoint


def _json(content: object, status: int = 200) -> Response:
    return Response(orjson.dumps(content), status, media_type="application/json")

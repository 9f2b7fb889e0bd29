"""The pages that a sidecar shows: health, readiness, state and Prometheus metrics."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from telemetry.sidecar.counts.state import IngestState
from telemetry.sidecar.faults import StoreFault
from telemetry.sidecar.ingest import Ingest
from telemetry.sidecar.otlp.access import Access
from telemetry.sidecar.storing import Counts

_Answer = Callable[[Request], Awaitable[Response]]
_Page = Callable[[bytes], bytes]
_NO_PAGES: Final[tuple[_Page, ...]] = ()


@dataclass(frozen=True, slots=True)
class ShownState:
    """The contents of the pages. `with_more` add to the metrics what others count, and `more_state` to the state."""

    counts: Counts
    ingest: Ingest
    access: Access
    is_stopping: Callable[[], bool]
    with_more: Sequence[_Page] = _NO_PAGES
    more_state: Callable[[], Mapping[str, object]] = field(default=dict[str, object])


def routes(shown: ShownState) -> list[Route]:
    """Create the routes of the pages.

    Health and readiness ask for no token, and wait for nothing. Without one they name the faults; their sentences,
    which hold paths of this machine, are for those who have it.
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
        counted = await asyncio.to_thread(_snapshot, shown)
        return _json({**counted.as_dict(), **shown.more_state()})

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


def _snapshot(shown: ShownState) -> IngestState:
    state = shown.counts.state
    with shown.ingest.counting, state.lock:
        state.bad_requests = shown.ingest.bad_requests
        state.refused_requests = shown.ingest.refused_requests
    return state.snapshot()


def _metrics(shown: ShownState, accept: str) -> tuple[bytes, str]:
    unmapped = _snapshot(shown).unmapped_spans
    body, content_type = shown.counts.turns.render(accept)
    for with_more in shown.with_more:
        body = with_more(body)
    return shown.counts.service_turns.add_to(body, unmapped), content_type


def _guarded(answer: _Answer, access: Access) -> _Answer:
    async def endpoint(request: Request) -> Response:
        if (denial := access.denial(request)) is None:
            return await answer(request)
        return Response(f"{denial.sentence}\n", denial.status, denial.headers, "text/plain")

    return endpoint


def _json(content: object, status: int = 200) -> Response:
    return Response(orjson.dumps(content), status, media_type="application/json")

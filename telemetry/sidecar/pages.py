"""The pages that a sidecar shows: health, readiness, state and Prometheus metrics."""

from collections.abc import Awaitable, Callable
from typing import Literal

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from telemetry.model.errors import StoreError
from telemetry.sidecar.messages import FrontCounts, StoreFault
from telemetry.sidecar.otlp.access import Access
from telemetry.sidecar.otlp.backlog import RETRY_AFTER_S
from telemetry.sidecar.otlp.ingest import Ingest
from telemetry.sidecar.store_link import StoreLink

_Answer = Callable[[Request], Awaitable[Response]]


def routes(
    link: StoreLink,
    ingest: Ingest,
    access: Access,
    is_stopping: Callable[[], bool],
    with_more: Callable[[bytes], bytes] = bytes,
) -> list[Route]:
    """Create the routes of the pages; `with_more` adds what the front knows to the metrics.

    Health and readiness ask for no token, and never wait for the store process. Without one they name the faults; their
    sentences, which hold paths of this machine, are for those who have it.
    """

    async def healthz(request: Request) -> Response:
        return _json({"alive": True, "faults": {fault.name: shown(request, fault) for fault in link.faults}})

    async def readyz(request: Request) -> Response:
        reasons = [shown(request, fault) for fault in link.faults if fault.stops_storing]
        reasons += ["the sidecar is stopping"] if is_stopping() else []
        content = {"ready": not reasons, "reasons": reasons}
        return _json(content, 503 if reasons else 200)

    def shown(request: Request, fault: StoreFault) -> str:
        return fault.sentence if access.denial(request) is None else fault.name

    async def state(_request: Request) -> Response:
        return await _page(link, "state", "", _counts(link, ingest))

    async def metrics(request: Request) -> Response:
        return await _page(link, "metrics", request.headers.get("accept", ""), _counts(link, ingest), with_more)

    return [
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/v1/state", _guarded(state, access)),
        Route("/metrics", _guarded(metrics, access)),
    ]


def _counts(link: StoreLink, ingest: Ingest) -> FrontCounts:
    return FrontCounts(ingest.bad_requests, ingest.refused_requests, link.restarts)


async def _page(
    link: StoreLink,
    page: Literal["state", "metrics"],
    accept: str,
    counts: FrontCounts,
    with_more: Callable[[bytes], bytes] = bytes,
) -> Response:
    try:
        answer = await link.ask(page, accept, counts)
    except StoreError as error:
        return Response(f"{error}\n", 503, {"retry-after": str(RETRY_AFTER_S)}, "text/plain")
    return Response(with_more(answer.body), headers={"content-type": answer.content_type})


def _guarded(answer: _Answer, access: Access) -> _Answer:
    async def endpoint(request: Request) -> Response:
        if (denial := access.denial(request)) is None:
            return await answer(request)
        return Response(f"{denial.sentence}\n", denial.status, denial.headers, "text/plain")

    return endpoint


def _json(content: object, status: int = 200) -> Response:
    return Response(orjson.dumps(content), status, media_type="application/json")

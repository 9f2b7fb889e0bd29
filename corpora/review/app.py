"""The server of the review page: the page, the list of clips, their audio, and saving bounds.

It serves only this machine. The Host header of a request must be the loopback address, which prevents DNS rebinding,
and requests that change something must carry the token of the page.
"""

import hmac
import html
from pathlib import Path
from typing import cast

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from corpora.manifest.errors import CorpusError
from corpora.review.bounds_file import Review

HOSTS = ("127.0.0.1", "localhost")

_PAGE = Path(__file__).with_name("page.html")
_AUTH_HEADER = "x-review-token"
_MAX_BODY_BYTES = 10_000
_POLICY = (
    "default-src 'none'; script-src 'nonce-{0}'; style-src 'nonce-{0}'; "
    "connect-src 'self'; img-src data:; frame-ancestors 'none'"
)


class SubmittedBounds(msgspec.Struct, forbid_unknown_fields=True):
    """The request to save bounds: the first and the last sample of the speech."""

    start: int
    end: int


def build_app(review: Review, token: str) -> Starlette:
    """Build the application that serves one review."""

    title = html.escape(review.folder.resolve().name)

    async def page(request: Request) -> Response:
        filled_page = _PAGE.read_text("utf-8").replace("{{token}}", token).replace("{{corpus}}", title)
        headers = {
            "Content-Security-Policy": _POLICY.format(token),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
        }
        return HTMLResponse(filled_page, headers=headers)

    async def clips(request: Request) -> Response:
        rows = await run_in_threadpool(review.listed)
        return Response(msgspec.json.encode(rows), media_type="application/json")

    async def clip(request: Request) -> Response:
        content = await run_in_threadpool(review.pcm, cast("str", request.path_params["name"]))
        return Response(content, media_type="application/octet-stream", headers={"Cache-Control": "no-store"})

    async def save(request: Request) -> Response:
        if not hmac.compare_digest(request.headers.get(_AUTH_HEADER, "").encode(), token.encode()):
            return JSONResponse({"error": "This page belongs to another review; reload it."}, status_code=403)
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > _MAX_BODY_BYTES:
                return JSONResponse({"error": "The request is too large; send only the two bounds."}, status_code=413)
        try:
            bounds = msgspec.json.decode(bytes(body), type=SubmittedBounds)
        except msgspec.DecodeError as error:
            return JSONResponse({"error": f"The bounds must be two integers ({error})."}, status_code=400)
        row = await run_in_threadpool(review.save, cast("str", request.path_params["name"]), bounds.start, bounds.end)
        return Response(msgspec.json.encode(row), media_type="application/json")

    return Starlette(
        routes=[
            Route("/", page),
            Route("/clips", clips),
            Route("/clips/{name}", clip),
            Route("/clips/{name}", save, methods=["POST"]),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(HOSTS))],
        exception_handlers={CorpusError: _corpus_error},
    )


async def _corpus_error(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, status_code=422)

"""OTLP over HTTP, compatible with the OpenTelemetry Collector: reads requests and passes their bodies on."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from google.protobuf.json_format import MessageToJson
from google.protobuf.message import Message
from google.rpc.code_pb2 import Code
from google.rpc.status_pb2 import Status
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from telemetry.model.errors import StoreError
from telemetry.sidecar.ingest import RETRY_AFTER_S, Ingest
from telemetry.sidecar.limits import BodyLease, BudgetExhausted
from telemetry.sidecar.otlp.access import Access
from telemetry.sidecar.otlp.attributes import OtlpDecodeError
from telemetry.sidecar.otlp.body import BODY_BYTES_MAX, COMPRESSIONS, Bodies, BodyDamaged, BodyTooLarge, BodyTooSlow
from telemetry.sidecar.otlp.responses import TOO_LARGE, TOO_MANY_BODIES, retryable, success
from telemetry.sidecar.signals import Encoding, Signal

_ENCODINGS: Final[dict[str, Encoding]] = {"application/x-protobuf": "protobuf", "application/json": "json"}
_CONTENT_TYPES: Final[dict[Encoding, str]] = {"protobuf": "application/x-protobuf", "json": "application/json"}
# More than one is unusual; each takes memory and time for a whole body.
_COMPRESSIONS_MAX: Final = 3
_CLIENT_IS_GONE: Final = Response(status_code=400)


class _Refusal(Exception):  # noqa: N818 - a response, not an internal error
    """A response other than 200 to a request that was not passed on."""

    def __init__(self, status: int, code: Code.ValueType, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers
        self.body = Status(code=code, message=message)


@dataclass(frozen=True, slots=True)
class _Endpoint:
    signal: Signal
    ingest: Ingest
    bodies: Bodies
    access: Access

    async def answer(self, request: Request) -> Response:
        media_type = _media_type(request)
        encoding = _ENCODINGS.get(media_type)
        try:
            with self.bodies.budget.lease() as lease:
                body = await self._body(request, media_type, lease)
                taken = await self.ingest.take(self.signal, encoding or "json", body)
            return _response(200, success(self.signal, taken), encoding)
        except OtlpDecodeError as error:
            return _response(400, Status(code=Code.INVALID_ARGUMENT, message=str(error)), encoding)
        except BudgetExhausted:
            self.ingest.refused_request()
            return _unavailable(TOO_MANY_BODIES, encoding)
        except StoreError as error:
            return _unavailable(str(error), encoding)
        except _Refusal as refusal:
            self.ingest.bad_request()
            return _response(refusal.status, refusal.body, encoding, refusal.headers)
        except ClientDisconnect:
            self.ingest.bad_request()
            return _CLIENT_IS_GONE

    async def _body(self, request: Request, media_type: str, lease: BodyLease) -> bytes:
        """Return a request's decompressed body. Raises _Refusal for an unauthorized or unsupported request."""
        compressions = self._check_header(request, media_type)
        try:
            body = await self.bodies.read(request.stream(), lease)
            return await self.bodies.decompress(body, compressions, lease)
        except BodyTooLarge:
            raise _Refusal(413, Code.RESOURCE_EXHAUSTED, TOO_LARGE) from None
        except BodyTooSlow:
            slow = "the body did not arrive in time; send smaller batches"
            raise _Refusal(408, Code.DEADLINE_EXCEEDED, slow, {"connection": "close"}) from None
        except BodyDamaged as error:
            packing = ", ".join(compressions)
            raise _Refusal(400, Code.INVALID_ARGUMENT, f"the body is not valid {packing} data ({error})") from error

    def _check_header(self, request: Request, media_type: str) -> list[str]:
        """Return the compressions of the body, in the order in which they were applied. Raises _Refusal."""
        headers = request.headers
        if (denial := self.access.denial(request)) is not None:
            raise _Refusal(denial.status, Code.UNAUTHENTICATED, denial.sentence, denial.headers)
        if media_type not in _ENCODINGS:
            known = " or ".join(_ENCODINGS)
            raise _Refusal(415, Code.INVALID_ARGUMENT, f"content type {media_type!r}: send {known}")
        stated = ",".join(headers.getlist("content-encoding")).lower()
        compressions = [name for entry in stated.split(",") if (name := entry.strip()) not in ("", "identity")]
        if len(compressions) > _COMPRESSIONS_MAX or not COMPRESSIONS.issuperset(compressions):
            known = ", ".join(sorted(COMPRESSIONS))
            raise _Refusal(415, Code.INVALID_ARGUMENT, f"content encoding {stated!r}: send {known} or none")
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length) > BODY_BYTES_MAX:
            raise _Refusal(413, Code.RESOURCE_EXHAUSTED, TOO_LARGE)
        return compressions


def routes(ingest: Ingest, bodies: Bodies, access: Access) -> list[Route]:
    """Create the routes `/v1/traces` and `/v1/metrics`; methods other than POST are answered with 405. Unsupported
    signals are answered with 404 and a sentence, with or without credentials."""
    signals: tuple[Signal, ...] = ("traces", "metrics")
    endpoints: list[Route] = []
    for signal in signals:
        answer: Callable[[Request], Awaitable[Response]] = _Endpoint(signal, ingest, bodies, access).answer
        endpoints += [Route(path, answer, methods=["POST"]) for path in _paths(f"v1/{signal}")]
    for path in ("v1/logs", "v1development/profiles"):
        endpoints += [Route(variant, _not_taken, methods=["GET", "POST"]) for variant in _paths(path)]
    return endpoints


def _paths(path: str) -> list[str]:
    # Senders put the path behind an address that the user gave, which may end in a slash.
    return [f"{start}{path}{end}" for start in ("/", "//") for end in ("", "/")]


async def _not_taken(request: Request) -> Response:
    signal = request.url.path.strip("/").rpartition("/")[2]
    sentence = f"this sidecar takes traces and metrics, no {signal}; send them elsewhere"
    return _response(404, Status(code=Code.NOT_FOUND, message=sentence), _ENCODINGS.get(_media_type(request)))


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _unavailable(sentence: str, encoding: Encoding | None) -> Response:
    return _response(503, retryable(sentence), encoding, {"retry-after": str(RETRY_AFTER_S)})


def _response(
    status: int, message: Message, encoding: Encoding | None, headers: dict[str, str] | None = None
) -> Response:
    # A request in an unknown encoding is answered in JSON.
    encoding = encoding or "json"
    content = message.SerializeToString() if encoding == "protobuf" else MessageToJson(message, indent=None)
    return Response(content, status_code=status, media_type=_CONTENT_TYPES[encoding], headers=headers)

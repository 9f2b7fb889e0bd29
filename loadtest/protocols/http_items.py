"""The items of a protocol over HTTP: requests, and the parts of their responses as they arrive. Pure."""

import msgspec

from loadtest.protocols.failure import Failure


class HttpRequest(msgspec.Struct, frozen=True, gc=False):
    """One request. `request_id` is the protocol's own name for it, unique in its call."""

    request_id: str
    method: str
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


class HttpCancel(msgspec.Struct, frozen=True, gc=False):
    """Break a request off: nothing more of its response is passed on."""

    request_id: str


class HttpHead(msgspec.Struct, frozen=True, gc=False):
    """The head of a response. Names of headers are in lower case."""

    request_id: str
    status: int
    headers: tuple[tuple[str, str], ...] = ()


class HttpData(msgspec.Struct, frozen=True, gc=False):
    """A part of a response's body, as it arrived."""

    request_id: str
    data: bytes


class HttpEnd(msgspec.Struct, frozen=True, gc=False):
    """The response is complete."""

    request_id: str


class HttpFailed(msgspec.Struct, frozen=True, gc=False):
    """The response will not be completed. `reason` is a sentence, `failure` the cause."""

    request_id: str
    reason: str
    failure: Failure


class HttpAnswer(msgspec.Struct, frozen=True, gc=False):
    """A whole response, as an exchange of one request ends with. Names of headers are in lower case."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""

    def header(self, name: str) -> str:
        """Return the first header of this name (in lower case), "" if there is none."""
        return next((value for key, value in self.headers if key == name), "")


HttpItem = HttpHead | HttpData | HttpEnd | HttpFailed

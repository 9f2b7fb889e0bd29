"""The requests of one call: their names, addresses, headers, and the conversation so far. Pure."""

from collections.abc import Mapping, Sequence

from loadtest.protocols.base import CallerOptions
from loadtest.protocols.headers import bearer_headers
from loadtest.protocols.http_items import HttpRequest
from loadtest.protocols.stages.parts import StageName
from loadtest.protocols.stages.settings import StageSettings

_TRACE_ID_AT = slice(3, 35)


class StageRequests:
    """Makes the requests of one call. Each has a name, which the service gets as `X-Client-Request-Id`."""

    def __init__(self, options: CallerOptions, settings: StageSettings) -> None:
        self._options = options
        self._settings = settings
        self._target_url = ""
        self._traceparent: str | None = None
        self._history: list[dict[str, str]] = []

    def connect(self, target_url: str, traceparent: str | None) -> None:
        """Take over the address at which stages without one of their own are, and the trace of the call."""
        self._target_url, self._traceparent = target_url, traceparent

    def name(self, turn: int, stage: str) -> str:
        """Return the name of a request: the call's trace, the turn and the stage."""
        trace = (self._traceparent or "")[_TRACE_ID_AT] or "call"
        return f"{trace}-{turn}-{stage}"

    def headers(self, stage: StageName | None) -> tuple[tuple[str, str], ...]:
        """Return the headers of a request to one stage, or to the services as a whole."""
        token = self._options.token if stage is None else self._settings.key(stage, self._options.token)
        return (*bearer_headers(token, self._traceparent), *self._options.headers)

    def post(self, name: str, stage: StageName, path: str, content: tuple[bytes, str]) -> HttpRequest:
        """Return the request to one stage with this body of this Content-Type."""
        body, content_type = content
        url = f"{self._settings.base_url(stage, self._target_url)}/{path}"
        headers = (("Content-Type", content_type), ("X-Client-Request-Id", name), *self.headers(stage))
        return HttpRequest(name, "POST", url, headers, body)

    def ready_requests(self, stages: Sequence[StageName]) -> tuple[HttpRequest, ...]:
        """Return a request to each of the services; stages at one address share one."""
        by_url: dict[str, HttpRequest] = {}
        for stage in stages:
            url = f"{self._settings.base_url(stage, self._target_url)}/{self._settings.ready_path}"
            by_url.setdefault(url, HttpRequest(self.name(0, f"ready-{stage}"), "GET", url, self.headers(stage)))
        return tuple(by_url.values())

    def messages(self, text: str) -> list[Mapping[str, str]]:
        """Return the messages of a request to the language model: instructions, earlier turns, the caller's words."""
        messages: list[Mapping[str, str]] = []
        if self._options.instructions is not None:
            messages.append({"role": "system", "content": self._options.instructions})
        return [*messages, *self._history, {"role": "user", "content": text}]

    def remember(self, question: str, answer: str) -> None:
        """Keep a finished turn for the requests that follow."""
        if self._settings.history and answer:
            self._history += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]

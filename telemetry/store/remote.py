"""A store on another machine: the same questions, asked of its sidecar over HTTP with its token."""

import http.client
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

import msgspec

from telemetry.model import semconv
from telemetry.model.errors import StoreError
from telemetry.model.spans import SpanRow
from telemetry.model.turns import Turn
from telemetry.objectives.slo import Objective
from telemetry.store.answers import (
    CallCounts,
    Filter,
    GeneratorPoint,
    ProcessInfo,
    RunRecord,
    StageStats,
    Summary,
    TimelinePoint,
)
from telemetry.store.objectives import ObjectiveCounts
from telemetry.store.pages import PageAnswer, PageQuestion
from telemetry.store.questions import QUESTIONS
from telemetry.store.reader import StoreReader

QUERY_PATH: Final = "/v1/query/"
TIMEOUT_S: Final = 40.0
ANY: Final = Filter()
_ANSWER_BYTES_MAX: Final = 256 << 20
_MEDIA_TYPE: Final = "application/vnd.msgpack"


def is_address(store: str) -> bool:
    """Whether `--store` names a sidecar instead of a folder."""
    return store.startswith(("http://", "https://"))


def open_store(store: str | Path, token: str | None) -> "StoreReader | RemoteStore":
    """The reader of a folder, or of the sidecar at an address with its token. Raises StoreError for a bad address."""
    return RemoteStore(str(store), token) if is_address(str(store)) else StoreReader(store)


class _Refused(msgspec.Struct):
    error: str = ""


class RemoteStore:
    """Asks the sidecar at `address` (`http://host:4318`) what a StoreReader answers of a folder; thread-safe.

    Raises StoreError from any question when the sidecar cannot be reached, refuses, or answers what this version does
    not understand. The token goes to that address only: no redirect is followed and no proxy is asked.
    """

    def __init__(self, address: str, token: str | None, *, timeout_s: float = TIMEOUT_S) -> None:
        self.directory = address.rstrip("/")
        self._token = token
        self._timeout_s = timeout_s
        try:
            parts = urlsplit(self.directory)
            self._host, self._port = parts.hostname or "", parts.port
        except ValueError as error:
            raise StoreError(f"{address}: is not the address of a sidecar ({error}); give http://HOST:4318") from error
        if parts.scheme not in ("http", "https") or not self._host or parts.username or parts.query or parts.fragment:
            raise StoreError(f"{address}: is not the address of a sidecar; give http://HOST:4318, without credentials")
        self._is_secure, self._path = parts.scheme == "https", parts.path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is held between two questions."""

    def state(self) -> int:
        """A number that changes with the content of the store."""
        return self._ask("state")

    def runs(self) -> list[RunRecord]:
        """As StoreReader.runs."""
        return self._ask("runs")

    def summary(self, f: Filter = ANY) -> Summary:
        """As StoreReader.summary."""
        return self._ask("summary", f=f)

    def page(self, asked: PageQuestion) -> PageAnswer:
        """As StoreReader.page."""
        return self._ask("page", asked=asked)

    def timeline(self, f: Filter = ANY, metric: str = "voice_to_voice", buckets: int = 60) -> list[TimelinePoint]:
        """As StoreReader.timeline."""
        return self._ask("timeline", f=f, metric=metric, buckets=buckets)

    def generator_points(self, f: Filter = ANY) -> list[GeneratorPoint]:
        """As StoreReader.generator_points."""
        return self._ask("generator_points", f=f)

    def slowest(self, f: Filter = ANY, metric: str = "voice_to_voice", limit: int = 10) -> list[Turn]:
        """As StoreReader.slowest."""
        return self._ask("slowest", f=f, metric=metric, limit=limit)

    def turn(self, trace_id: str, turn_index: int) -> tuple[Turn | None, Turn | None]:
        """As StoreReader.turn."""
        return self._ask("turn", trace_id=trace_id, turn_index=turn_index)

    def turns(
        self,
        f: Filter = ANY,
        limit: int = 1000,
        offset: int = 0,
        *,
        source: semconv.Source | None = None,
        outcome: semconv.Outcome | None = None,
    ) -> list[Turn]:
        """As StoreReader.turns."""
        return self._ask("turns", f=f, limit=limit, offset=offset, source=source, outcome=outcome)

    def dimension_values(self, f: Filter = ANY) -> dict[str, tuple[str, ...]]:
        """As StoreReader.dimension_values."""
        return self._ask("dimension_values", f=f)

    def spans(self, trace_id: str) -> list[SpanRow]:
        """As StoreReader.spans."""
        return self._ask("spans", trace_id=trace_id)

    def calls(self, f: Filter = ANY) -> CallCounts:
        """As StoreReader.calls."""
        return self._ask("calls", f=f)

    def processes(self, run_id: str) -> list[ProcessInfo]:
        """As StoreReader.processes."""
        return self._ask("processes", run_id=run_id)

    def objective_counts(self, f: Filter, objectives: Sequence[Objective]) -> ObjectiveCounts:
        """As StoreReader.objective_counts."""
        return self._ask("objective_counts", f=f, objectives=tuple(objectives))

    def stage_budget(self, f: Filter = ANY) -> dict[str, StageStats]:
        """As StoreReader.stage_budget."""
        return self._ask("stage_budget", f=f)

    def _ask(self, name: str, **parameters: object) -> Any:
        status, content = self._request(name, msgspec.json.encode(parameters))
        if status != 200:
            raise StoreError(f"{self.directory}: {self._why(status, content)}")
        try:
            return msgspec.msgpack.decode(content, type=QUESTIONS[name].answer)
        except msgspec.DecodeError as error:
            raise StoreError(
                f"{self.directory}: its answer is not one of this version ({error}); "
                "use the same version of voiceprobe on both machines"
            ) from error

    def _request(self, name: str, body: bytes) -> tuple[int, bytes]:
        connection = self._connect()
        headers = {"Content-Type": "application/json", "Accept": _MEDIA_TYPE}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            connection.request("POST", self._path + QUERY_PATH + name, body, headers)
            response = connection.getresponse()
            content = response.read(_ANSWER_BYTES_MAX + 1)
        except TimeoutError as error:
            raise StoreError(
                f"{self.directory}: no answer within {self._timeout_s:.0f} s; ask about fewer turns, or ask again"
            ) from error
        except ssl.SSLError as error:
            raise StoreError(f"{self.directory}: no secure connection ({error.reason or error})") from error
        except (OSError, http.client.HTTPException) as error:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise StoreError(
                f"{self.directory}: no sidecar answers there ({why}); check the address and that it runs"
            ) from error
        finally:
            connection.close()
        if len(content) > _ANSWER_BYTES_MAX:
            raise StoreError(f"{self.directory}: its answer is larger than {_ANSWER_BYTES_MAX >> 20} MiB")
        return response.status, content

    def _connect(self) -> http.client.HTTPConnection:
        if self._is_secure:
            return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout_s)
        return http.client.HTTPConnection(self._host, self._port or 4318, timeout=self._timeout_s)

    def _why(self, status: int, content: bytes) -> str:
        try:
            text = msgspec.json.decode(content, type=_Refused).error
        except msgspec.DecodeError:
            text = ""
        if status == 401:
            given = "the token is not its own" if self._token else "it asks for a token"
            return f"{given}; set {semconv.SIDECAR_TOKEN_VARIABLE} to the one it was started with"
        if text:
            return text[:500]
        if status in (404, 405):
            return "no sidecar that answers questions: it is of an older version, or something else listens there"
        return f"answers with HTTP status {status}"

"""A store on another machine: the same questions, asked of its sidecar over HTTP with its token."""

import functools
import http.client
import inspect
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar
from urllib.parse import urlsplit

import msgspec

from telemetry.client_tls import sidecar_context
from telemetry.model import semconv
from telemetry.model.errors import ConfigError, StoreError
from telemetry.store.questions import QUESTIONS
from telemetry.store.reader import StoreReader

_Parameters = ParamSpec("_Parameters")
_Answer = TypeVar("_Answer")

QUERY_PATH: Final = "/v1/query/"
TIMEOUT_S: Final = 40.0
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


def _asked(
    question: Callable[Concatenate[StoreReader, _Parameters], _Answer],
) -> Callable[Concatenate["RemoteStore", _Parameters], _Answer]:
    """The method with the same parameters and answer that asks the question of a sidecar."""
    signature = inspect.signature(question)

    @functools.wraps(question)
    def asked(store: "RemoteStore", /, *values: _Parameters.args, **named: _Parameters.kwargs) -> _Answer:
        given = signature.bind(store, *values, **named)
        given.apply_defaults()
        _, *parameters = given.arguments.items()
        return store.ask(question.__name__, dict(parameters))

    return asked


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
        self._path = parts.path
        try:
            self._tls = sidecar_context() if parts.scheme == "https" else None
        except ConfigError as error:
            raise StoreError(str(error)) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is held between two questions."""

    state = _asked(StoreReader.state)
    runs = _asked(StoreReader.runs)
    summary = _asked(StoreReader.summary)
    page = _asked(StoreReader.page)
    cache_page = _asked(StoreReader.cache_page)
    instrument_page = _asked(StoreReader.instrument_page)
    timeline = _asked(StoreReader.timeline)
    generator_points = _asked(StoreReader.generator_points)
    slowest = _asked(StoreReader.slowest)
    turn = _asked(StoreReader.turn)
    turns = _asked(StoreReader.turns)
    dimension_values = _asked(StoreReader.dimension_values)
    spans = _asked(StoreReader.spans)
    calls = _asked(StoreReader.calls)
    processes = _asked(StoreReader.processes)
    model_servers = _asked(StoreReader.model_servers)
    objective_counts = _asked(StoreReader.objective_counts)
    explanation = _asked(StoreReader.explanation)
    run_verdict = _asked(StoreReader.run_verdict)
    stage_budget = _asked(StoreReader.stage_budget)
    rollout_turns = _asked(StoreReader.rollout_turns)
    turns_page = _asked(StoreReader.turns_page)
    turn_view = _asked(StoreReader.turn_view)
    burn_rates = _asked(StoreReader.burn_rates)
    cohorts_page = _asked(StoreReader.cohorts_page)
    rollout_page = _asked(StoreReader.rollout_page)
    rollouts = _asked(StoreReader.rollouts)
    run_turns = _asked(StoreReader.run_turns)
    run_details = _asked(StoreReader.run_details)

    def ask(self, name: str, parameters: Mapping[str, object]) -> Any:
        """Ask a question by its name. Raises StoreError."""
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
        if self._tls is not None:
            return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout_s, context=self._tls)
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

"""Requests to a sidecar over HTTP: its address, its token, its certificate, and why it does not answer."""

import http.client
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import urlsplit

import msgspec

from telemetry.client_tls import sidecar_context
from telemetry.model import semconv
from telemetry.model.addresses import without_credentials
from telemetry.model.errors import ConfigError, StoreError
from telemetry.model.foreign_text import one_line

TIMEOUT_S: Final = 40.0
OK: Final = 200
ANSWER_BYTES_MAX: Final = 256 << 20
_LONGEST_WORDS: Final = 500
_NO_ACCESS: Final = 401
_NO_SUCH_PATH: Final = (404, 405)
_DEFAULT_PORT: Final = 4318


class _Words(msgspec.Struct):
    error: str = ""
    sentence: str = ""


@dataclass(frozen=True, slots=True)
class SidecarAnswer:
    """A status and a body."""

    status: int
    content: bytes

    @property
    def words(self) -> str:
        """The sidecar's message on one line, empty if it has none."""
        try:
            words = msgspec.json.decode(self.content, type=_Words)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return ""
        return one_line(words.error or words.sentence, _LONGEST_WORDS)


class SidecarClient:
    """Sends requests to the sidecar at `address` (`http://host:4318`); thread-safe.

    Raises StoreError for an invalid address, and if its certificate cannot be verified. The token is sent to that
    address only: redirects and proxies are not used. No connection is held between two requests.
    """

    def __init__(self, address: str, token: str | None, *, timeout_s: float = TIMEOUT_S) -> None:
        self.address = address.rstrip("/")
        shown = without_credentials(address)
        self._token = token
        self._timeout_s = timeout_s
        try:
            parts = urlsplit(self.address)
            self._host, self._port = parts.hostname or "", parts.port
        except ValueError as error:
            raise StoreError(f"{shown}: is not the address of a sidecar ({error}); give http://HOST:4318") from error
        if parts.scheme not in ("http", "https") or not self._host or parts.username or parts.query or parts.fragment:
            raise StoreError(f"{shown}: is not the address of a sidecar; give http://HOST:4318, without credentials")
        self._path = parts.path
        try:
            self._tls = sidecar_context() if parts.scheme == "https" else None
        except ConfigError as error:
            raise StoreError(str(error)) from error

    def ask(
        self,
        method: Literal["GET", "POST"],
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> SidecarAnswer:
        """Send one request. Raises StoreError if there is no answer, it is too long, or the token is not accepted."""
        sent = {**({} if body is None else {"Content-Type": "application/json"}), **(headers or {})}
        if self._token is not None:
            sent["Authorization"] = f"Bearer {self._token}"
        connection = self._connect()
        try:
            connection.request(method, self._path + path, body, sent)
            response = connection.getresponse()
            content = response.read(ANSWER_BYTES_MAX + 1)
        except TimeoutError as error:
            raise StoreError(
                f"{self.address}: no answer within {self._timeout_s:.0f} s; it may be overloaded: ask again"
            ) from error
        except ssl.SSLError as error:
            raise StoreError(f"{self.address}: no secure connection ({error.reason or error})") from error
        except (OSError, http.client.HTTPException) as error:
            why = getattr(error, "strerror", None) or one_line(str(error)) or type(error).__name__
            raise StoreError(
                f"{self.address}: no sidecar answers there ({why}); check the address and that it runs"
            ) from error
        finally:
            connection.close()
        if len(content) > ANSWER_BYTES_MAX:
            raise StoreError(f"{self.address}: its answer is larger than {ANSWER_BYTES_MAX >> 20} MiB")
        if response.status == _NO_ACCESS:
            given = "the token is not its own" if self._token else "it asks for a token"
            raise StoreError(
                f"{self.address}: {given}; set {semconv.SIDECAR_TOKEN_VARIABLE} to the one it was started with"
            )
        return SidecarAnswer(response.status, content)

    def refused(self, answer: SidecarAnswer) -> StoreError:
        """The error for an answer without the requested figures."""
        why = answer.words or f"answers with HTTP status {answer.status}"
        if not answer.words and answer.status in _NO_SUCH_PATH:
            why = (
                "no sidecar that answers questions: it is of an older version, or something else listens there; "
                "upgrade voiceprobe there, or check the address"
            )
        return StoreError(f"{self.address}: {why}")

    def older_version_error(self, question: str) -> StoreError:
        """The error for a question, or a parameter of one, that the sidecar's version does not know."""
        return StoreError(
            f"{self.address}: the sidecar there is of an older version, and does not know the question "
            f"{question!r:.60} as this voiceprobe asks it; upgrade voiceprobe there"
        )

    def another_version_error(self, what: str, error: Exception) -> StoreError:
        """The error for an answer that cannot be read."""
        return StoreError(
            f"{self.address}: {what} is not one of this version ({error}); "
            "use the same version of voiceprobe on both machines"
        )

    def _connect(self) -> http.client.HTTPConnection:
        if self._tls is not None:
            return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout_s, context=self._tls)
        return http.client.HTTPConnection(self._host, self._port or _DEFAULT_PORT, timeout=self._timeout_s)

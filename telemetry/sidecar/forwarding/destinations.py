"""Destinations of forwarding: the checked content of the `[[forward]]` tables of the configuration.

A destination holds no secret, only the location of each, so that it can be shown and passed to other processes. No
sentence of this module contains a secret either.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args
from urllib.parse import urlsplit

import msgspec

from telemetry.model.addresses import is_loopback, local_host
from telemetry.model.durations import Duration, DurationError
from telemetry.model.errors import ConfigError
from telemetry.sidecar.secret_files import SecretFileError, secret_content
from telemetry.sidecar.signals import Signal

Text = Literal["redact", "keep"]
Compression = Literal["gzip", "none"]

_MAX_AGE: Final = Duration.parse("24h")
_QUEUE_MIB: Final = 64
_QUEUE_ITEMS: Final = 200_000
_TIMEOUT: Final = Duration.parse("10s")
_TIMEOUT_MAX: Final = Duration.parse("2m")
_SECRET_FILE_BYTES_MAX: Final = 64 << 10
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
_VISIBLE: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# A literal value would appear in the configuration and in a process's arguments.
_SECRET_HEADER: Final = re.compile(
    r"authorization|cookie|token|secret|password|api-?key|access-?key|app-?key", re.IGNORECASE
)
# What a request is made of by the sender.
_OWN_HEADERS: Final = frozenset(
    ["host", "content-type", "content-length", "content-encoding", "transfer-encoding", "connection", "te", "upgrade"]
)
_Texts = dict[str, Annotated[str, msgspec.Meta(min_length=1)]]
_Signals = Annotated[tuple[Signal, ...], msgspec.Meta(min_length=1)]
_QueueMib = Annotated[int, msgspec.Meta(ge=1, le=1 << 16)]
_QueueItems = Annotated[int, msgspec.Meta(ge=1)]
# fmt: off
TABLE_KEYS: Final = frozenset([
    "name", "url", "protocol", "text", "signals", "headers", "headers_env", "headers_file", "queue_mib", "queue_items",
    "max_age", "compression", "timeout", "ca_file", "client_cert_file", "client_key_file", "insecure",
])
# fmt: on
_IN_MEMORY: Final = "requests wait in memory only, within queue_mib and queue_items"
_DURABLE: Final = "for a queue that survives a restart, put an OpenTelemetry Collector in front of the destination"
# Settings of the queue on disk of earlier versions. Each would now mean something else than it says, or nothing.
OLD_KEYS: Final[dict[str, str]] = {
    **dict.fromkeys(("key_file", "key_env"), f"there is no encrypted queue on disk any more; remove it: {_IN_MEMORY}"),
    "in_memory": f"every queue is in memory now; remove it: {_IN_MEMORY}",
    "max_mib": f"limited the queue on disk; give queue_mib in its place ({_QUEUE_MIB} by default): {_IN_MEMORY}",
}


class SecretError(ValueError):
    """Raised for an unusable secret; the sentence says where it was expected and how to fix it."""


@dataclass(frozen=True, slots=True)
class Header:
    """A header of every request: its value, or the environment variable or file that holds it."""

    name: str
    value: str | None = None
    env: str | None = None
    file: str | None = None

    def read(self) -> str:
        """The current value, without surrounding spaces. Raises SecretError."""
        if self.file is not None:
            where = self.file
            try:
                content = secret_content(Path(self.file), _SECRET_FILE_BYTES_MAX)
            except SecretFileError as error:
                raise SecretError(str(error)) from error
        elif self.env is not None:
            where = f"the environment variable {self.env}"
            content = os.environ.get(self.env, "").encode("utf-8", "surrogateescape")
            if not content:
                raise SecretError(f"{where} is missing or empty")
        else:
            where, content = f"the value of {self.name}", (self.value or "").encode("utf-8", "surrogateescape")
        text = content.decode("latin-1").strip()
        if not _VISIBLE.fullmatch(text):
            raise SecretError(f"{where} holds no value for a header: it must be one line of visible ASCII characters")
        return text


@dataclass(frozen=True, slots=True)
class Destination:
    """An OTLP endpoint to which all received data is forwarded.

    `url` is the base that `/v1/traces` and `/v1/metrics` are appended to. Requests that exceed `queue_bytes` or
    `queue_items` (spans and metric points), or that wait longer than `max_age_s`, are dropped, the oldest first.
    """

    name: str
    url: str
    text: Text
    signals: tuple[Signal, ...] = ("traces", "metrics")
    headers: tuple[Header, ...] = ()
    queue_bytes: int = _QUEUE_MIB << 20
    queue_items: int = _QUEUE_ITEMS
    max_age_s: float = _MAX_AGE.seconds
    compression: Compression = "gzip"
    timeout_s: float = _TIMEOUT.seconds
    ca_file: str | None = None
    client_cert_file: str | None = None
    client_key_file: str | None = None


def destinations_from(tables: Sequence[Mapping[str, Any]], where: str) -> list[Destination]:
    """Read the `[[forward]]` tables of a configuration. Raises ConfigError with every fault of all of them."""
    faults: list[str] = []
    read: list[Destination] = []
    for number, table in enumerate(tables, 1):
        reading = _TableReading(table, faults, f"[[forward]] {number}")
        destination = reading.destination()
        if any(destination.name == other.name for other in read):
            reading.fault("name", f"{destination.name!r} is another destination's name: each needs its own")
        read.append(destination)
    if faults:
        raise ConfigError(where, faults)
    return read


def refuse_own_address(destinations: Sequence[Destination], http_port: int) -> None:
    """Raise ConfigError for a destination that is the sidecar itself, which would be an endless loop."""
    faults: list[str] = []
    for destination in destinations:
        parts = urlsplit(destination.url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        if port == http_port and is_loopback(local_host(parts.hostname or "")):
            faults.append(f"{destination.name}: url: {destination.url} is this sidecar's own address")
    if faults:
        raise ConfigError("[[forward]]", faults)


class _TableReading:
    """The reading of one table: faults are added to `faults`, and a placeholder goes into the destination."""

    def __init__(self, table: Mapping[str, Any], faults: list[str], label: str) -> None:
        self._table = table
        self._faults = faults
        name = table.get("name")
        self._label = f"{label} ({name})" if isinstance(name, str) and _NAME.fullmatch(name) else label

    def fault(self, key: str, sentence: str) -> None:
        self._faults.append(f"{self._label}: {key}: {sentence}")

    def destination(self) -> Destination:
        for key in sorted(self._table.keys() - TABLE_KEYS):
            old = OLD_KEYS.get(key)
            self.fault(key, f"{old}; {_DURABLE}" if old is not None else "is not a setting of a destination")
        name = self._text("name") or ""
        if name and not _NAME.fullmatch(name):
            self.fault("name", "must be at most 32 of a-z, 0-9, - and _, and begin with a letter or digit")
        self._value("protocol", Literal["http/protobuf"], "http/protobuf", "http/protobuf")
        text = self._stated_text()
        headers = self._headers()
        certificate, certificate_key = self._file("client_cert_file"), self._file("client_key_file")
        if (certificate is None) != (certificate_key is None):
            self.fault("client_cert_file", "client_cert_file and client_key_file need each other")
        timeout = self._duration("timeout", _TIMEOUT)
        if timeout > _TIMEOUT_MAX:
            self.fault("timeout", f"must be at most {_TIMEOUT_MAX}, got {timeout}")
        signals = self._value("signals", _Signals, get_args(Signal), "a list of traces and metrics")
        return Destination(
            name=name,
            url=self._url(text, headers),
            text=text or "redact",
            signals=tuple(signal for signal in get_args(Signal) if signal in signals),
            headers=headers,
            queue_bytes=self._value("queue_mib", _QueueMib, _QUEUE_MIB, "a whole number from 1 to 65,536") << 20,
            queue_items=self._value("queue_items", _QueueItems, _QUEUE_ITEMS, "a whole number of at least 1"),
            max_age_s=self._duration("max_age", _MAX_AGE).seconds,
            compression=self._value("compression", Compression, "gzip", "gzip or none"),
            timeout_s=timeout.seconds,
            ca_file=self._file("ca_file"),
            client_cert_file=certificate,
            client_key_file=certificate_key,
        )

    def _stated_text(self) -> Text | None:
        if "text" in self._table:
            return self._value("text", Text, None, "redact or keep")
        self.fault(
            "text",
            'is missing: "redact" forwards no transcripts, prompts and other texts, "keep" forwards them as they '
            "came; there is no default",
        )
        return None

    def _url(self, text: Text | None, headers: tuple[Header, ...]) -> str:
        url = self._text("url")
        if url is None:
            return ""
        try:
            parts = urlsplit(url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            parts, usable = urlsplit(""), False
        if not usable or not url.isascii() or not url.isprintable() or " " in url:
            self.fault("url", "is not a URL like https://otlp.example.com")
            return ""
        if parts.username is not None or parts.password is not None:
            self.fault("url", "holds a user or password: give the header authorization in headers_env or headers_file")
            return ""
        if parts.query or parts.fragment:
            self.fault("url", "must end with its path: /v1/traces and /v1/metrics are appended to it")
        if re.search(r"/v1/(traces|metrics)/?$", parts.path):
            self.fault("url", "names one signal: give the base, /v1/traces and /v1/metrics are appended to it")
        is_secret = text == "keep" or any(header.value is None for header in headers)
        insecure = self._value("insecure", bool, False, "true or false")
        if parts.scheme == "http" and is_secret and not insecure and not is_loopback(parts.hostname or ""):
            self.fault(
                "url", "texts and secrets would cross the network unencrypted: use https, or set insecure = true"
            )
        return url.rstrip("/")

    def _headers(self) -> tuple[Header, ...]:
        read: list[Header] = []
        for key, source in (("headers", "value"), ("headers_env", "env"), ("headers_file", "file")):
            for name, value in self._value(key, _Texts, {}, "a table of header names and texts").items():
                if not _HEADER_NAME.fullmatch(name) or name.lower() in _OWN_HEADERS:
                    self.fault(key, f"{name!r} cannot be set")
                elif any(name.lower() == header.name.lower() for header in read):
                    self.fault(key, f"{name} is given twice")
                elif key == "headers" and _SECRET_HEADER.search(name):
                    self.fault(key, f"the value of {name} is a secret: give it in headers_env or headers_file")
                else:
                    read.append(Header(name, **{source: value}))
                    try:
                        read[-1].read()
                    except SecretError as error:
                        self.fault(key, str(error))
        return tuple(read)

    def _file(self, key: str) -> str | None:
        path = self._text(key) if key in self._table else None
        if path is not None and not Path(path).is_file():
            self.fault(key, f"{path} is not a file")
        return path

    def _duration(self, key: str, default: Duration) -> Duration:
        try:
            value = Duration.of_value(self._table.get(key, str(default)))
        except DurationError as error:
            self.fault(key, str(error))
        except ValueError as error:
            self.fault(key, f"is not a duration: {error}")
        else:
            if value.ns:
                return value
            self.fault(key, "must be longer than 0 s")
        return default

    def _text(self, key: str) -> str | None:
        value = self._table.get(key)
        if isinstance(value, str) and value:
            return value
        self.fault(key, "is missing" if value is None else "must be a text that is not empty")
        return None

    def _value(self, key: str, kind: Any, default: Any, expected: str) -> Any:
        """The value of a key, if it has the right type."""
        if key not in self._table:
            return default
        try:
            return msgspec.convert(self._table[key], kind)
        except msgspec.ValidationError:
            self.fault(key, f"must be {expected}")
            return default

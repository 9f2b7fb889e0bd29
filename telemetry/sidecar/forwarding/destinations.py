"""Where received telemetry is forwarded to: what a `[[forward]]` table of the configuration says, checked.

A destination holds no secret, only where each is found, so that it can be shown and passed to other processes.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast, get_args
from urllib.parse import urlsplit

from telemetry.model.durations import Duration, DurationError
from telemetry.model.errors import ConfigError
from telemetry.model.host_names import is_loopback, local_host
from telemetry.sidecar.forwarding import secret_values
from telemetry.sidecar.forwarding.secret_values import SecretError
from telemetry.sidecar.signals import Signal

Text = Literal["redact", "keep"]
Compression = Literal["gzip", "none"]

MIN_QUEUE_MIB: Final = 16
_MAX_AGE: Final = Duration.parse("24h")
_DISK_MIB: Final = 1024
_MEMORY_MIB: Final = 64
_TIMEOUT: Final = Duration.parse("10s")
_TIMEOUT_MAX: Final = Duration.parse("2m")
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# A literal value would stand in the configuration and in a process's arguments.
_SECRET_HEADER: Final = re.compile(
    r"authorization|cookie|token|secret|password|api-?key|access-?key|app-?key", re.IGNORECASE
)
# What a request is made of by the sender.
_OWN_HEADERS: Final = frozenset(
    ["host", "content-type", "content-length", "content-encoding", "transfer-encoding", "connection", "te", "upgrade"]
)
TABLE_KEYS: Final = frozenset(
    [
        "name",
        "url",
        "protocol",
        "text",
        "signals",
        "headers",
        "headers_env",
        "headers_file",
        "key_file",
        "key_env",
        "in_memory",
        "max_age",
        "max_mib",
        "compression",
        "timeout",
        "ca_file",
        "client_cert_file",
        "client_key_file",
        "insecure",
    ]
)


@dataclass(frozen=True, slots=True)
class Header:
    """A header of every request: its value, or the environment variable or file that holds it."""

    name: str
    value: str | None = None
    env: str | None = None
    file: str | None = None

    def read(self) -> str:
        """The value at this moment. Raises SecretError."""
        if self.file is not None:
            return secret_values.header_value(secret_values.from_file(Path(self.file)), self.file)
        if self.env is not None:
            where = f"the environment variable {self.env}"
            return secret_values.header_value(
                secret_values.from_environment(self.env).encode("utf-8", "surrogateescape"), where
            )
        return self.value or ""


@dataclass(frozen=True, slots=True)
class Destination:
    """An OTLP endpoint that everything received is forwarded to.

    `url` is the base that `/v1/traces` and `/v1/metrics` are appended to. With `text` = "keep", one of `key_file`,
    `key_env` and `in_memory` is set. What waits longer than `max_age_ns`, or beyond `max_bytes`, is dropped, the oldest
    first.
    """

    name: str
    url: str
    text: Text
    signals: tuple[Signal, ...] = ("traces", "metrics")
    headers: tuple[Header, ...] = ()
    key_file: str | None = None
    key_env: str | None = None
    in_memory: bool = False
    max_age_ns: int = _MAX_AGE.ns
    max_bytes: int = _DISK_MIB << 20
    compression: Compression = "gzip"
    timeout_s: float = _TIMEOUT.seconds
    ca_file: str | None = None
    client_cert_file: str | None = None
    client_key_file: str | None = None

    def read_key(self) -> bytes:
        """The key of the encrypted queue, 32 bytes. Raises SecretError."""
        if self.key_file is not None:
            return secret_values.encryption_key(secret_values.from_file(Path(self.key_file)), self.key_file)
        variable = self.key_env or ""
        content = secret_values.from_environment(variable).encode("utf-8", "surrogateescape")
        return secret_values.encryption_key(content, f"the environment variable {variable}")


def destinations_from(tables: Sequence[Mapping[str, Any]], where: str) -> list[Destination]:
    """Read the `[[forward]]` tables of a configuration. Raises ConfigError with every fault of all of them."""
    faults: list[str] = []
    found: list[Destination] = []
    for number, table in enumerate(tables, 1):
        reading = _TableReading(table, faults, f"[[forward]] {number}")
        destination = reading.destination()
        if any(destination.name == other.name for other in found):
            reading.fault("name", f"{destination.name!r} is another destination's name: each needs its own")
        found.append(destination)
    if faults:
        raise ConfigError(where, faults)
    return found


def refuse_own_address(destinations: Sequence[Destination], http_port: int) -> None:
    """Raise ConfigError for a destination that is the sidecar itself: everything would come back without end."""
    faults: list[str] = []
    for destination in destinations:
        parts = urlsplit(destination.url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        if port == http_port and is_loopback(local_host(parts.hostname or "")):
            faults.append(f"{destination.name}: url: {destination.url} is this sidecar's own address")
    if faults:
        raise ConfigError("[[forward]]", faults)


class _TableReading:
    """Reads one table; what is wrong is added to `faults`, and a stand-in goes into the destination."""

    def __init__(self, table: Mapping[str, Any], faults: list[str], label: str) -> None:
        self._table = table
        self._faults = faults
        name = table.get("name")
        self._label = f"{label} ({name})" if isinstance(name, str) and _NAME.fullmatch(name) else label

    def fault(self, key: str, sentence: str) -> None:
        self._faults.append(f"{self._label}: {key}: {sentence}")

    def destination(self) -> Destination:
        for key in sorted(self._table.keys() - TABLE_KEYS):
            self.fault(key, "is not a setting of a destination")
        name = self._text("name", required=True) or ""
        if name and not _NAME.fullmatch(name):
            self.fault("name", "must be at most 32 of a-z, 0-9, - and _, and begin with a letter or digit")
        self._one_of("protocol", ("http/protobuf",), "http/protobuf")
        text = self._stated_text()
        headers = self._headers()
        key_file, key_env, in_memory = self._queue(text)
        certificate, certificate_key = self._file("client_cert_file"), self._file("client_key_file")
        if (certificate is None) != (certificate_key is None):
            self.fault("client_cert_file", "client_cert_file and client_key_file need each other")
        destination = Destination(
            name=name,
            url=self._url(text, headers),
            text=text or "redact",
            signals=self._signals(),
            headers=headers,
            key_file=key_file,
            key_env=key_env,
            in_memory=in_memory,
            max_age_ns=self._duration("max_age", _MAX_AGE).ns,
            max_bytes=self._mebibytes("max_mib", _MEMORY_MIB if in_memory else _DISK_MIB) << 20,
            compression=cast(Compression, self._one_of("compression", get_args(Compression), "gzip")),
            timeout_s=self._timeout().seconds,
            ca_file=self._file("ca_file"),
            client_cert_file=certificate,
            client_key_file=certificate_key,
        )
        self._check_secrets(destination)
        return destination

    def _stated_text(self) -> Text | None:
        if "text" not in self._table:
            self.fault(
                "text",
                'is missing: "redact" forwards no transcripts, prompts and other texts, "keep" forwards them as they '
                "came; there is no default",
            )
            return None
        return cast("Text | None", self._one_of("text", get_args(Text), None))

    def _queue(self, text: Text | None) -> tuple[str | None, str | None, bool]:
        key_file, key_env = self._text("key_file"), self._text("key_env")
        in_memory = self._flag("in_memory")
        given = [
            key for key, value in (("key_file", key_file), ("key_env", key_env), ("in_memory", in_memory)) if value
        ]
        if text == "keep" and len(given) != 1:
            self.fault(
                "text",
                '"keep" requires exactly one of key_file, key_env (its queue is encrypted) and in_memory = true'
                + (f", got {', '.join(given)}" if given else ""),
            )
        elif text == "redact" and given:
            self.fault(given[0], 'belongs to text = "keep": with "redact" no text is queued')
        return key_file, key_env, in_memory

    def _url(self, text: Text | None, headers: tuple[Header, ...]) -> str:
        url = self._text("url", required=True)
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
        insecure = self._flag("insecure")
        if parts.scheme == "http" and is_secret and not insecure and not is_loopback(parts.hostname or ""):
            self.fault(
                "url", "texts and secrets would cross the network unencrypted: use https, or set insecure = true"
            )
        return url.rstrip("/")

    def _headers(self) -> tuple[Header, ...]:
        found: list[Header] = []
        for key in ("headers", "headers_env", "headers_file"):
            for name, value in self._texts(key).items():
                if not _HEADER_NAME.fullmatch(name) or name.lower() in _OWN_HEADERS:
                    self.fault(key, f"{name!r} cannot be set")
                elif any(name.lower() == header.name.lower() for header in found):
                    self.fault(key, f"{name} is given twice")
                elif key == "headers" and _SECRET_HEADER.search(name):
                    self.fault(key, f"the value of {name} is a secret: give it in headers_env or headers_file")
                elif key == "headers":
                    found.append(Header(name, self._literal(name, value)))
                else:
                    found.append(Header(name, env=value) if key == "headers_env" else Header(name, file=value))
        return tuple(found)

    def _literal(self, name: str, value: str) -> str:
        try:
            return secret_values.header_value(value.encode("utf-8", "surrogateescape"), f"the value of {name}")
        except SecretError as error:
            self.fault("headers", str(error))
            return ""

    def _check_secrets(self, destination: Destination) -> None:
        for header in destination.headers:
            try:
                header.read()
            except SecretError as error:
                self.fault("headers_env" if header.env is not None else "headers_file", str(error))
        if destination.key_file is not None or destination.key_env is not None:
            try:
                destination.read_key()
            except SecretError as error:
                self.fault("key_file" if destination.key_file is not None else "key_env", str(error))

    def _signals(self) -> tuple[Signal, ...]:
        known = get_args(Signal)
        value = self._table.get("signals", list(known))
        items = cast("list[object]", value) if isinstance(value, list) else []
        if not items or not all(item in known for item in items):
            self.fault("signals", f"must be a list of {' and '.join(known)}")
            return known
        return tuple(signal for signal in known if signal in items)

    def _file(self, key: str) -> str | None:
        path = self._text(key)
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

    def _timeout(self) -> Duration:
        value = self._duration("timeout", _TIMEOUT)
        if value > _TIMEOUT_MAX:
            self.fault("timeout", f"must be at most {_TIMEOUT_MAX}, got {value}")
        return value

    def _mebibytes(self, key: str, default: int) -> int:
        value = self._table.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not MIN_QUEUE_MIB <= value <= 1 << 30:
            self.fault(key, f"must be a whole number of MiB, at least {MIN_QUEUE_MIB}")
            return default
        return value

    def _flag(self, key: str) -> bool:
        value = self._table.get(key, False)
        if not isinstance(value, bool):
            self.fault(key, "must be true or false")
        return value is True

    def _one_of(self, key: str, known: Sequence[str], default: str | None) -> str | None:
        value = self._table.get(key, default)
        if value not in known:
            self.fault(key, f"must be {' or '.join(known)}")
            return default
        return value

    def _text(self, key: str, *, required: bool = False) -> str | None:
        value = self._table.get(key)
        if value is None and not required:
            return None
        if not isinstance(value, str) or not value:
            self.fault(key, "is missing" if value is None else "must be a text that is not empty")
            return None
        return value

    def _texts(self, key: str) -> dict[str, str]:
        value = self._table.get(key, {})
        if not isinstance(value, dict) or not all(
            isinstance(each, str) and each for each in cast("dict[str, object]", value).values()
        ):
            self.fault(key, "must be a table of header names and texts")
            return {}
        return cast("dict[str, str]", value)

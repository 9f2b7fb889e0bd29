"""Every setting of a sidecar: one model, from which file, variables, flags, options and reference derive."""

from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Final, Literal, cast, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from telemetry.model.semconv import SIDECAR_VARIABLE_PREFIX
from telemetry.sidecar.forwarding.destinations import Destination
from telemetry.sidecar.limits import BODIES_BYTES_MAX, BODY_S, CONNECTIONS_MAX, HEADER_S, IDLE_S, ConnectionLimits
from telemetry.sidecar.rollouts.settings import EVERY_S, RolloutSetting
from telemetry.sidecar.scraping import ScrapeTarget
from telemetry.sidecar.tls import ServerTls
from telemetry.store.connection import EXACT_TURNS
from telemetry.store.retention import Keep

Kind = Literal["text", "path", "integer", "number", "boolean"]
Value = str | int | float | bool
Group = Literal["addresses", "access", "store", "rollouts", "limits", "operation"]
GROUPS: Final[tuple[Group, ...]] = get_args(Group)

_KINDS: Final[dict[Any, Kind]] = {str: "text", Path: "path", int: "integer", float: "number", bool: "boolean"}
_PORT_MAX: Final = 65_535
_DAY_NS: Final = 86_400 * 10**9
_GIB: Final = 1 << 30
# For DuckDB alone, without the receivers and the rest of the process.
_STORE_MEMORY_MIB: Final = 1024


def _setting(group: Group, help_: str, default: Value | None = None, **options: Any) -> Any:
    """A setting, by default not set. `ge` and `le` are bounds of a number; with `in_file=False` it is not accepted in
    the file, a `secret` is not accepted as a flag, and a `repeated` one has several values."""
    marks = {name: options.pop(name) for name in ("in_file", "secret", "repeated") if name in options}
    return Field(default, description=help_, json_schema_extra={"group": group, **marks}, **options)


class SidecarSettings(BaseModel):
    """The settings, by their keys in the file."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    host: str = _setting(
        "addresses", "address to listen on; beyond loopback it requires a token or TLS with a client CA", "127.0.0.1"
    )
    http_port: int = _setting(
        "addresses",
        "port for OTLP/HTTP, pages and questions to the store; 0 for any free port",
        4318,
        ge=0,
        le=_PORT_MAX,
    )
    grpc_port: int = _setting("addresses", "port for OTLP/gRPC; 0 for any free port", 4317, ge=0, le=_PORT_MAX)
    token: str | None = _setting(
        "access", "bearer token that senders and readers must present", in_file=False, secret=True, repr=False
    )
    token_file: Path | None = _setting(
        "access", "file that holds the bearer token; other users must not be able to read it"
    )
    tls_cert: Path | None = _setting(
        "access", "PEM file of the certificate chain; with it, both ports speak TLS 1.2 or newer only"
    )
    tls_key: Path | None = _setting("access", "PEM file of its private key; other users must not be able to read it")
    tls_client_ca: Path | None = _setting(
        "access", "PEM file of the CAs whose client certificates are accepted; one is then required"
    )
    store: Path = _setting("store", "directory of the store, which is required; created when missing")
    keep_transcripts: bool = _setting("store", "store transcripts and other texts, which are dropped otherwise", False)
    redact_names: Path | None = _setting(
        "store", "file of names, one a line, that no text keeps, in addition to those of a short list"
    )
    slo: Path | None = _setting("store", "objectives (OpenSLO) whose thresholds become histogram buckets")
    keep_days: float | None = _setting(
        "store", "days for which the store keeps what it received (default: all)", ge=0.01
    )
    keep_gib: float | None = _setting(
        "store", "GiB to which the store is kept, the newest data (default: all)", ge=0.001
    )
    store_memory: int = _setting(
        "store",
        "most memory for the database, in MiB; questions that need more are refused with a sentence",
        _STORE_MEMORY_MIB,
        ge=64,
    )
    exact_turns: int = _setting(
        "store",
        "turns in view up to which a page has exact percentiles; beyond, they are estimated from one value in 16",
        EXACT_TURNS,
        ge=0,
    )
    rollout: Path | None = _setting(
        "rollouts",
        "plan of a staged rollout that is evaluated; may be repeated (in the variable with : between the paths)",
        in_file=False,
        repeated=True,
    )
    rollout_every: float = _setting("rollouts", "seconds between two evaluations of a rollout", EVERY_S, ge=1, le=3600)
    max_connections: int = _setting(
        "limits", "most connections, for HTTP and for gRPC each; fewer if descriptors are scarce", CONNECTIONS_MAX, ge=1
    )
    body_memory: int = _setting(
        "limits",
        "most memory for bodies of requests in progress, in MiB; beyond it, 503",
        BODIES_BYTES_MAX >> 20,
        ge=64,
    )
    header_timeout: float = _setting(
        "limits",
        "seconds for a TLS handshake, the header of a request, or opening a gRPC connection",
        HEADER_S,
        ge=0.1,
    )
    body_timeout: float = _setting(
        "limits", "seconds for the body of a request; one that stalls has a third of them", BODY_S, ge=0.1
    )
    idle_timeout: float = _setting(
        "limits", "seconds after which a connection without a request is closed", IDLE_S, ge=0.1
    )
    drain_time: float = _setting(
        "operation",
        "seconds between a stop signal and the end of new requests; not ready meanwhile",
        0,
        ge=0,
        le=600,
    )
    log_format: Literal["auto", "json", "text"] = _setting(
        "operation", "messages on standard error as text or as JSON, one line each; auto: text on a terminal", "auto"
    )
    log_level: Literal["debug", "info", "warning", "error"] = _setting(
        "operation", "the least severe messages that are written", "info"
    )


class SidecarOptions(SidecarSettings):
    """The options of a sidecar: its settings, and the content of the files that they name."""

    tls: ServerTls | None = None
    scrape: tuple[ScrapeTarget, ...] = ()
    destinations: tuple[Destination, ...] = ()
    rollouts: tuple[RolloutSetting, ...] = ()

    @property
    def keep(self) -> Keep:
        """The retention of the store."""
        return Keep(
            None if self.keep_days is None else round(self.keep_days * _DAY_NS),
            None if self.keep_gib is None else round(self.keep_gib * _GIB),
        )

    @property
    def limits(self) -> ConnectionLimits:
        """The limits of the receivers."""
        return ConnectionLimits(
            connections=self.max_connections,
            bodies_bytes=self.body_memory << 20,
            header_s=self.header_timeout,
            body_s=self.body_timeout,
            idle_s=self.idle_timeout,
        )


@dataclass(frozen=True, slots=True)
class SidecarSetting:
    """One setting. `key` is its name in the file; the names of its variable and its flag are derived from it.

    A `default` of None means that it is not set. `low` and `high` are inclusive bounds of a number. A repeated one has
    several values, separated by `:` in a variable; in the file it is a table of its own.
    """

    key: str
    help: str
    group: Group
    kind: Kind = "text"
    default: Value | None = None
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    in_file: bool = True
    is_secret: bool = False
    is_repeated: bool = False

    @property
    def variable(self) -> str:
        """The name of its environment variable."""
        return SIDECAR_VARIABLE_PREFIX + self.key.upper()

    @property
    def flag(self) -> str:
        """The flag on the command line; a secret is not accepted there."""
        return "--" + self.key.replace("_", "-")

    def checked(self, value: object, *, is_text: bool) -> Value | None:
        """A value of its type and within its bounds, None for any other; with `is_text` it is parsed from text."""
        kinds: dict[Kind, Any] = {"integer": int, "number": float, "boolean": bool}
        kind: Any = Literal[self.choices] if self.choices else kinds.get(self.kind, Annotated[str, Field(min_length=1)])
        if self.kind in ("integer", "number"):
            kind = Annotated[kind, Field(ge=self.low, le=self.high, allow_inf_nan=False)]
        try:
            checked = TypeAdapter(kind).validate_python(value, strict=not is_text)
        except ValidationError:
            return None
        return None if isinstance(checked, str) and "\0" in checked else checked

    @property
    def expected(self) -> str:
        """The required form of a value, as the end of a sentence."""
        if self.choices:
            return f"give {' or '.join(self.choices)}"
        if self.kind == "boolean":
            return "give true or false"
        if self.kind in ("integer", "number"):
            named = "a whole number" if self.kind == "integer" else "a number"
            if self.low is not None and self.high is not None:
                return f"give {named} from {self.low:g} to {self.high:g}"
            return f"give {named}" if self.low is None else f"give {named} of at least {self.low:g}"
        return "give a path" if self.kind == "path" else "give a text"


def _setting_from(key: str, field: FieldInfo) -> SidecarSetting:
    marks = cast("dict[str, Any]", field.json_schema_extra)
    parts: list[Any] = [
        argument for argument in get_args(field.annotation) or (field.annotation,) if argument is not NoneType
    ]
    is_choice = get_origin(field.annotation) is Literal
    return SidecarSetting(
        key,
        field.description or "",
        marks["group"],
        "text" if is_choice else _KINDS[parts[0]],
        field.default,
        next((limit.ge for limit in field.metadata if hasattr(limit, "ge")), None),
        next((limit.le for limit in field.metadata if hasattr(limit, "le")), None),
        tuple(parts) if is_choice else (),
        marks.get("in_file", True),
        marks.get("secret", False),
        marks.get("repeated", False),
    )


SETTINGS: Final = tuple(_setting_from(key, field) for key, field in SidecarSettings.model_fields.items())
BY_KEY: Final = {setting.key: setting for setting in SETTINGS}
# The path of the file itself, which is not a key of the file.
CONFIG: Final = SidecarSetting(
    "config",
    "file with settings (TOML); variables and flags take precedence over it",
    "operation",
    "path",
    in_file=False,
)

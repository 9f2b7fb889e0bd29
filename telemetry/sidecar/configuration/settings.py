"""Every setting of a sidecar: one list, from which its file, its variables, its flags and the reference are made."""

from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import Field, TypeAdapter, ValidationError

from telemetry.model.semconv import SIDECAR_VARIABLE_PREFIX
from telemetry.sidecar.body_budget import BODIES_BYTES_MAX
from telemetry.sidecar.connection_limits import BODY_S, CONNECTIONS_MAX, HEADER_S, IDLE_S
from telemetry.sidecar.options import STORE_MEMORY_MIB
from telemetry.sidecar.rollouts.settings import EVERY_S
from telemetry.store.connection import EXACT_TURNS

Kind = Literal["text", "path", "integer", "number", "boolean"]
Value = str | int | float | bool
Group = Literal["addresses", "access", "store", "rollouts", "limits", "operation"]
GROUPS: Final[tuple[Group, ...]] = get_args(Group)

_PORT_MAX: Final = 65_535


@dataclass(frozen=True, slots=True)
class SidecarSetting:
    """One setting. `key` is its name in the file; the names of its variable and its flag are made from it.

    `default` None means that it is not set. `low` and `high` are bounds of a number, both allowed. One that is
    repeated has several values, in a variable with `:` between them; in the file it is a table of its own.
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
        """Its flag on the command line; a secret has none that is accepted."""
        return "--" + self.key.replace("_", "-")

    def checked(self, value: object, *, is_text: bool) -> Value | None:
        """A value of its type and within its bounds, None for any other; `is_text` reads it from a text."""
        kinds: dict[Kind, Any] = {"integer": int, "number": float, "boolean": bool}
        kind: Any = Literal[self.choices] if self.choices else kinds.get(self.kind, Annotated[str, Field(min_length=1)])
        if self.kind in ("integer", "number"):
            kind = Annotated[kind, Field(ge=self.low, le=self.high, allow_inf_nan=False)]
        try:
            found = TypeAdapter(kind).validate_python(value, strict=not is_text)
        except ValidationError:
            return None
        return None if isinstance(found, str) and "\0" in found else found

    @property
    def expected(self) -> str:
        """What a value must be, as the end of a sentence."""
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


SETTINGS: Final = (
    SidecarSetting(
        "host",
        "address to listen on; beyond loopback it requires a token or TLS with a client CA",
        "addresses",
        default="127.0.0.1",
    ),
    SidecarSetting(
        "http_port",
        "port for OTLP/HTTP, pages and questions to the store; 0 for any free port",
        "addresses",
        "integer",
        4318,
        0,
        _PORT_MAX,
    ),
    SidecarSetting("grpc_port", "port for OTLP/gRPC; 0 for any free port", "addresses", "integer", 4317, 0, _PORT_MAX),
    SidecarSetting(
        "token", "bearer token that senders and readers must present", "access", in_file=False, is_secret=True
    ),
    SidecarSetting(
        "token_file", "file that holds the bearer token; other users must not be able to read it", "access", "path"
    ),
    SidecarSetting(
        "tls_cert",
        "PEM file of the certificate chain; with it, both ports speak TLS 1.2 or newer only",
        "access",
        "path",
    ),
    SidecarSetting("tls_key", "PEM file of its private key; other users must not be able to read it", "access", "path"),
    SidecarSetting(
        "tls_client_ca",
        "PEM file of the CAs whose client certificates are accepted; one is then required",
        "access",
        "path",
    ),
    SidecarSetting("store", "directory of the store, which is required; created when missing", "store", "path"),
    SidecarSetting(
        "keep_transcripts", "store transcripts and other texts, which are dropped otherwise", "store", "boolean", False
    ),
    SidecarSetting(
        "redact_names",
        "file of names, one a line, that no text keeps, beside those of a short list",
        "store",
        "path",
    ),
    SidecarSetting("slo", "objectives (OpenSLO) whose thresholds become histogram buckets", "store", "path"),
    SidecarSetting(
        "keep_days", "days for which the store keeps what it received (default: all)", "store", "number", low=0.01
    ),
    SidecarSetting(
        "keep_gib", "GiB to which the store is kept, the newest data (default: all)", "store", "number", low=0.001
    ),
    SidecarSetting(
        "store_memory",
        "most memory for the database, in MiB; questions that need more are refused with a sentence",
        "store",
        "integer",
        STORE_MEMORY_MIB,
        64,
    ),
    SidecarSetting(
        "exact_turns",
        "turns in view up to which a page has exact percentiles; beyond, they are estimated from one call in 16",
        "store",
        "integer",
        EXACT_TURNS,
        0,
    ),
    SidecarSetting(
        "rollout",
        "plan of a staged rollout that is evaluated; may be repeated (in the variable with : between the paths)",
        "rollouts",
        "path",
        in_file=False,
        is_repeated=True,
    ),
    SidecarSetting(
        "rollout_every", "seconds between two evaluations of a rollout", "rollouts", "number", EVERY_S, 1, 3600
    ),
    SidecarSetting(
        "max_connections",
        "most connections, for HTTP and for gRPC each; fewer if descriptors are scarce",
        "limits",
        "integer",
        CONNECTIONS_MAX,
        1,
    ),
    SidecarSetting(
        "body_memory",
        "most memory for bodies of requests in progress, in MiB; beyond it, 503",
        "limits",
        "integer",
        BODIES_BYTES_MAX >> 20,
        64,
    ),
    SidecarSetting(
        "header_timeout",
        "seconds for a TLS handshake, the header of a request, or opening a gRPC connection",
        "limits",
        "number",
        HEADER_S,
        0.1,
    ),
    SidecarSetting(
        "body_timeout",
        "seconds for the body of a request; one that stalls has a third of them",
        "limits",
        "number",
        BODY_S,
        0.1,
    ),
    SidecarSetting(
        "idle_timeout", "seconds after which a connection without a request is closed", "limits", "number", IDLE_S, 0.1
    ),
    SidecarSetting(
        "drain_time",
        "seconds between a stop signal and the end of new requests; not ready meanwhile",
        "operation",
        "number",
        0,
        0,
        600,
    ),
    SidecarSetting(
        "log_format",
        "messages on standard error as text or as JSON, one line each; auto: text on a terminal",
        "operation",
        default="auto",
        choices=("auto", "json", "text"),
    ),
    SidecarSetting(
        "log_level",
        "the least severe messages that are written",
        "operation",
        default="info",
        choices=("debug", "info", "warning", "error"),
    ),
)
BY_KEY: Final = {setting.key: setting for setting in SETTINGS}
# The file itself, which no file can name.
CONFIG: Final = SidecarSetting(
    "config",
    "file with settings (TOML); variables and flags take precedence over it",
    "operation",
    "path",
    in_file=False,
)

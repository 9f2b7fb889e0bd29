"""Makes the options of a sidecar from its settings, and finds what contradicts itself."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from telemetry.model.addresses import checked_token, is_loopback, without_brackets
from telemetry.model.errors import ConfigError
from telemetry.sidecar.configuration.reading import SEPARATOR, Configuration
from telemetry.sidecar.configuration.settings import BY_KEY
from telemetry.sidecar.connection_limits import ConnectionLimits
from telemetry.sidecar.forwarding.destinations import destinations_from
from telemetry.sidecar.options import SidecarOptions
from telemetry.sidecar.rollouts.settings import ROLLOUTS, RolloutSetting, rollouts_from
from telemetry.sidecar.scraping.targets import targets_from
from telemetry.sidecar.secret_files import read_token_file
from telemetry.sidecar.tls import ServerTls, server_tls
from telemetry.store.retention import Keep

# Tables of the file, each with a reader of its own.
TABLES: Final = ("forward", "rollout", "scrape")
_DAY_NS: Final = 86_400 * 10**9
_GIB: Final = 1 << 30
_Made = TypeVar("_Made")


def options_of(configuration: Configuration) -> SidecarOptions:
    """Make the options; reads the files of the token and of TLS. Raises ConfigError with every fault."""
    faults = list(configuration.faults)
    token = _attempt(lambda: _token(configuration), faults)
    tls = _attempt(lambda: _tls(configuration), faults)
    scrape = _attempt(lambda: targets_from(_tables(configuration, "scrape"), str(configuration.file)), faults)
    forward = _attempt(lambda: destinations_from(_tables(configuration, "forward"), str(configuration.file)), faults)
    rollouts = _attempt(lambda: _rollouts(configuration), faults)
    value, path = configuration.value, configuration.path
    host = without_brackets(value("host"))
    if not configuration.is_given("store"):
        setting = BY_KEY["store"]
        faults.append(f"no store is named; give {setting.flag} FOLDER, {setting.variable}, or store in the file")
    may_be_safe = any(map(configuration.is_given, ("token", "token_file", "tls_client_ca")))
    if not may_be_safe and not is_loopback(host):
        faults.append(
            f"{configuration.origin('host')}: {host} is reachable from other machines; add a token with --token-file "
            f"or {BY_KEY['token'].variable}, or require client certificates with --tls-client-ca, or use 127.0.0.1"
        )
    if faults:
        raise ConfigError("the configuration cannot be used", faults)
    days, gib = value("keep_days"), value("keep_gib")
    return SidecarOptions(
        store=Path(value("store")),
        host=host,
        http_port=value("http_port"),
        grpc_port=value("grpc_port"),
        token=token,
        tls=tls,
        keep_transcripts=value("keep_transcripts"),
        slo=path("slo"),
        keep=Keep(None if days is None else round(days * _DAY_NS), None if gib is None else round(gib * _GIB)),
        store_memory_mib=value("store_memory"),
        exact_turns=value("exact_turns"),
        limits=ConnectionLimits(
            connections=value("max_connections"),
            bodies_bytes=value("body_memory") << 20,
            header_s=value("header_timeout"),
            body_s=value("body_timeout"),
            idle_s=value("idle_timeout"),
        ),
        scrape=tuple(scrape or ()),
        destinations=tuple(forward or ()),
        rollouts=rollouts or (),
        rollout_every_s=value("rollout_every"),
        drain_s=value("drain_time"),
        redact_names=path("redact_names"),
    )


def _attempt(make: Callable[[], _Made], faults: list[str]) -> _Made | None:
    try:
        return make()
    except ConfigError as error:
        faults.extend(
            fault if error.where in ("TLS", ROLLOUTS) else f"{error.where}: {fault}" for fault in error.faults
        )
        return None


def _tables(configuration: Configuration, name: str) -> list[dict[str, Any]]:
    """The tables `[[name]]` of the file. Raises ConfigError for anything else under that name."""
    found = configuration.tables.get(name, [])
    if isinstance(found, list):
        entries = cast("list[Any]", found)
        if all(isinstance(entry, dict) for entry in entries):
            return [_from_folder(entry, (configuration.file or Path()).parent) for entry in entries]
    raise ConfigError(str(configuration.file), [f"{name}: tables are expected; write [[{name}]] before each"])


def _from_folder(table: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The table with its paths, in keys that end in `_file`, starting from the folder of the file that it is in."""

    def placed(value: object) -> object:
        return str(folder / value) if isinstance(value, str) and value else value

    def of_key(key: str, value: Any) -> Any:
        if not key.endswith("_file"):
            return value
        if isinstance(value, dict):
            return {name: placed(path) for name, path in cast("dict[str, object]", value).items()}
        return placed(value)

    return {key: of_key(key, value) for key, value in table.items()}


def _token(configuration: Configuration) -> str | None:
    file, token = configuration.path("token_file"), configuration.value("token")
    if file is not None:
        return read_token_file(file, configuration.origin("token_file"))
    return None if token is None else checked_token(token, configuration.origin("token"))


def _tls(configuration: Configuration) -> ServerTls | None:
    keys = ("tls_cert", "tls_key", "tls_client_ca")
    cert, key, client_ca = map(configuration.path, keys)
    if cert is not None and key is not None:
        return server_tls(cert, key, client_ca)
    if (given := next((name for name in keys if name in configuration.given), None)) is not None:
        raise ConfigError(configuration.origin(given), ["TLS requires both tls_cert and tls_key; give the two"])
    return None


def _rollouts(configuration: Configuration) -> tuple[RolloutSetting, ...]:
    files = (configuration.value("rollout") or "").split(SEPARATOR)
    return rollouts_from(
        _tables(configuration, "rollout"),
        [file for file in files if file],
        str(configuration.file),
        configuration.path("slo"),
    )

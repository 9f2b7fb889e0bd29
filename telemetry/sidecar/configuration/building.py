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
from telemetry.sidecar.tls import ServerTls, TlsFiles, server_tls
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
    store, host = _text(configuration, "store"), without_brackets(_text(configuration, "host") or "")
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
    return SidecarOptions(
        store=Path(store or ""),
        host=host,
        http_port=int(_number(configuration, "http_port")),
        grpc_port=int(_number(configuration, "grpc_port")),
        token=token,
        tls=tls,
        keep_transcripts=configuration.value("keep_transcripts") is True,
        slo=_path(configuration, "slo"),
        keep=_keep(configuration),
        store_memory_mib=int(_number(configuration, "store_memory")),
        exact_turns=int(_number(configuration, "exact_turns")),
        limits=_limits(configuration),
        scrape=tuple(scrape or ()),
        destinations=tuple(forward or ()),
        rollouts=rollouts or (),
        rollout_every_s=_number(configuration, "rollout_every"),
        drain_s=_number(configuration, "drain_time"),
        redact_names=_path(configuration, "redact_names"),
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
    file, token = _text(configuration, "token_file"), _text(configuration, "token")
    if file is not None:
        return read_token_file(Path(file), configuration.origin("token_file"))
    return None if token is None else checked_token(token, configuration.origin("token"))


def _tls(configuration: Configuration) -> ServerTls | None:
    cert, key = _text(configuration, "tls_cert"), _text(configuration, "tls_key")
    client_ca = _text(configuration, "tls_client_ca")
    if cert is None and key is None and client_ca is None:
        return None
    if cert is None or key is None:
        given = next(name for name in ("tls_cert", "tls_key", "tls_client_ca") if name in configuration.given)
        raise ConfigError(configuration.origin(given), ["TLS requires both tls_cert and tls_key; give the two"])
    return server_tls(TlsFiles(Path(cert), Path(key), None if client_ca is None else Path(client_ca)))


def _rollouts(configuration: Configuration) -> tuple[RolloutSetting, ...]:
    files = (_text(configuration, "rollout") or "").split(SEPARATOR)
    return rollouts_from(
        _tables(configuration, "rollout"),
        [file for file in files if file],
        str(configuration.file),
        _path(configuration, "slo"),
    )


def _keep(configuration: Configuration) -> Keep:
    days, gib = configuration.value("keep_days"), configuration.value("keep_gib")
    return Keep(
        None if days is None else round(float(days) * _DAY_NS), None if gib is None else round(float(gib) * _GIB)
    )


def _limits(configuration: Configuration) -> ConnectionLimits:
    return ConnectionLimits(
        connections=int(_number(configuration, "max_connections")),
        bodies_bytes=int(_number(configuration, "body_memory")) << 20,
        header_s=_number(configuration, "header_timeout"),
        body_s=_number(configuration, "body_timeout"),
        idle_s=_number(configuration, "idle_timeout"),
    )


def _text(configuration: Configuration, key: str) -> str | None:
    value = configuration.value(key)
    return None if value is None else str(value)


def _path(configuration: Configuration, key: str) -> Path | None:
    text = _text(configuration, key)
    return None if text is None else Path(text)


def _number(configuration: Configuration, key: str) -> float:
    value = configuration.value(key)
    return 0.0 if value is None else float(value)

"""Reads the settings of a sidecar from its file, the environment and the command line, in rising precedence, and builds
its options from them.

All faults are reported at once, contradictions included, each with its place and how to fix it. The effective settings
can be shown as a configuration file, each with its source.
"""

import json
import os
import re
import stat
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from telemetry.model.addresses import checked_token, is_loopback, without_brackets
from telemetry.model.errors import ConfigError
from telemetry.model.file_faults import nearest, shown
from telemetry.model.semconv import SIDECAR_CLIENT_VARIABLES, SIDECAR_VARIABLE_PREFIX
from telemetry.sidecar.forwarding.destinations import destinations_from
from telemetry.sidecar.rollouts.settings import ROLLOUTS, RolloutSetting, rollouts_from
from telemetry.sidecar.scraping import targets_from
from telemetry.sidecar.secret_files import read_token_file
from telemetry.sidecar.settings import (
    BY_KEY,
    CONFIG,
    SETTINGS,
    SidecarOptions,
    SidecarSetting,
    Value,
)
from telemetry.sidecar.tls import ServerTls, server_tls

FILE_BYTES_MAX: Final = 1 << 20
DEFAULT_ORIGIN: Final = "default"
# Between the values of a setting that is repeated.
SEPARATOR: Final = os.pathsep
HIDDEN: Final = "[hidden]"
# Kubernetes sets such variables for a service named voiceprobe-sidecar; they are not our settings.
_SERVICE_LINK: Final = re.compile(r"SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP)(_(ADDR|PORT|PROTO))?)?")
_FLAG, _VARIABLE, _FILE = 2, 1, 0


@dataclass(frozen=True, slots=True)
class Given:
    """A value and its source: `place` as text, `strength` higher for what takes precedence."""

    value: Value
    place: str
    strength: int


@dataclass(frozen=True, slots=True)
class Configuration:
    """The given values, by key. `tables` are the tables of the file with their own readers, `file` its name.

    `faults` are sentences about unusable values, `faulty` the settings that they are about.
    """

    given: dict[str, Given] = field(default_factory=dict[str, Given])
    tables: dict[str, Any] = field(default_factory=dict[str, Any])
    file: Path | None = None
    faults: list[str] = field(default_factory=list[str])
    faulty: set[str] = field(default_factory=set[str])

    def value(self, key: str) -> Any:
        """The value of a setting: the given one, or its default."""
        return self.given[key].value if key in self.given else BY_KEY[key].default

    def path(self, key: str) -> Path | None:
        """The value of a setting that is a path."""
        return None if (value := self.value(key)) is None else Path(value)

    def origin(self, key: str) -> str:
        """Return the source of the value of a setting."""
        return self.given[key].place if key in self.given else DEFAULT_ORIGIN

    def is_given(self, key: str) -> bool:
        """Return whether a setting was given, even with an unusable value."""
        return key in self.given or key in self.faulty


def read_configuration(
    flags: Mapping[str, object], environment: Mapping[str, str], known_tables: Collection[str] = ()
) -> Configuration:
    """Read the settings; `flags` by key, as texts or Booleans, None for those that were not given.

    The result has every fault of the file, the variables and the flags.
    """
    named = flags.get(CONFIG.key) or environment.get(CONFIG.variable) or None
    configuration = Configuration(file=None if named is None else Path(str(named)))
    if configuration.file is not None:
        document = _document(configuration.file, configuration.faults)
        configuration.tables.update({name: document.pop(name) for name in known_tables if name in document})
        for key, value in document.items():
            _take_from_file(configuration, configuration.file, key, value, known_tables)
    for name, text in environment.items():
        if name.startswith(SIDECAR_VARIABLE_PREFIX) and text and name != CONFIG.variable:
            _take_variable(configuration, name, text)
    for setting in SETTINGS:
        _take_flag(configuration, setting, flags.get(setting.key))
    _drop_weaker_token(configuration)
    return configuration


def _document(file: Path, faults: list[str]) -> dict[str, Any]:
    try:
        is_file = stat.S_ISREG(file.stat().st_mode)
        content = file.read_bytes() if is_file and file.stat().st_size <= FILE_BYTES_MAX else None
    except OSError as error:
        faults.append(f"{file}: cannot be read ({error.strerror}); give a TOML file with {CONFIG.flag}")
        return {}
    if content is None:
        faults.append(
            f"{file}: is not a file of at most {FILE_BYTES_MAX >> 20} MiB; give a TOML file with {CONFIG.flag}"
        )
        return {}
    try:
        return tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        faults.append(f"{file}: is not TOML ({error}); mend that line")
        return {}


def _take_from_file(
    configuration: Configuration, file: Path, key: str, value: object, known_tables: Collection[str]
) -> None:
    setting, place = BY_KEY.get(key), f"{file}: {key}"
    if setting is None:
        known = [setting.key for setting in SETTINGS if setting.in_file]
        configuration.faults.append(f"{file}: {shown(key)} is not a known key{nearest(key, [*known, *known_tables])}")
    elif not setting.in_file:
        configuration.faulty.add(key)
        configuration.faults.append(f"{place}: a secret does not belong in this file; give token_file instead")
    elif (converted := setting.checked(value, is_text=False)) is None:
        configuration.faulty.add(key)
        configuration.faults.append(f"{place} is {shown(value)}; {setting.expected}")
    else:
        # A path in a file starts from the folder of the file, wherever the sidecar is started.
        converted = str(file.parent / str(converted)) if setting.kind == "path" else converted
        configuration.given[key] = Given(converted, place, _FILE)


def _take_variable(configuration: Configuration, name: str, text: str) -> None:
    setting = BY_KEY.get(name.removeprefix(SIDECAR_VARIABLE_PREFIX).lower())
    if setting is not None and setting.variable == name:
        _take_text(configuration, setting, text, name, _VARIABLE)
    elif name not in SIDECAR_CLIENT_VARIABLES and not _SERVICE_LINK.fullmatch(
        name.removeprefix(SIDECAR_VARIABLE_PREFIX)
    ):
        known = [setting.variable for setting in (*SETTINGS, CONFIG)]
        configuration.faults.append(f"{name} in the environment is not a known variable{nearest(name, known)}")


def _take_flag(configuration: Configuration, setting: SidecarSetting, value: object) -> None:
    if value is None:
        return
    if isinstance(value, list):
        value = SEPARATOR.join(map(str, cast("list[object]", value)))
    if isinstance(value, bool):
        configuration.given[setting.key] = Given(value, setting.flag, _FLAG)
    elif setting.is_secret:
        configuration.faulty.add(setting.key)
        configuration.faults.append(
            f"{setting.flag}: every list of processes would show it; put it into a file and give --token-file, "
            f"or set {setting.variable}"
        )
    else:
        _take_text(configuration, setting, str(value), setting.flag, _FLAG)


def _take_text(configuration: Configuration, setting: SidecarSetting, text: str, place: str, strength: int) -> None:
    value = setting.checked(text, is_text=True)
    if value is None:
        configuration.faulty.add(setting.key)
        what = "not printable" if setting.is_secret else shown(text)
        configuration.faults.append(f"{place} is {what}; {setting.expected}")
    else:
        configuration.given[setting.key] = Given(value, place, strength)


def _drop_weaker_token(configuration: Configuration) -> None:
    """Keep the stronger one of a token and a token file."""
    token, file = configuration.given.get("token"), configuration.given.get("token_file")
    if token is None or file is None:
        return
    if token.strength == file.strength:
        configuration.faults.append(f"{token.place} and {file.place} both give a token; remove one of them")
    del configuration.given["token" if token.strength < file.strength else "token_file"]


def settings_shown(configuration: Configuration) -> str:
    """Return the settings as TOML. Secrets are hidden, and so is the content of tables, which may hold secrets."""
    lines = [_shown_line(setting, configuration) for setting in SETTINGS]
    return "\n".join([*lines, *_shown_tables(configuration)]) + "\n"


def _shown_line(setting: SidecarSetting, configuration: Configuration) -> str:
    value, origin = configuration.value(setting.key), configuration.origin(setting.key)
    if value is None:
        return f"# {setting.key} is not set"
    if setting.is_secret:
        return f"# {setting.key} = {HIDDEN}  # {origin}"
    if setting.is_repeated:
        return f"# {setting.key} = {json.dumps(str(value).split(SEPARATOR))}  # {origin}"
    # A string of JSON is one of TOML, too.
    return f"{setting.key} = {json.dumps(value)}  # {origin}"


def _shown_tables(configuration: Configuration) -> Iterator[str]:
    for name, table in configuration.tables.items():
        count = f"{len(table)} tables" if isinstance(table, list) else "a table"
        yield f"# {name}: {count}  # {configuration.file}; values are not shown"


# Tables of the file, each with a reader of its own.
TABLES: Final = ("forward", "rollout", "scrape")
_Made = TypeVar("_Made")


def options_of(configuration: Configuration) -> SidecarOptions:
    """Build the options; reads the token and TLS files. Raises ConfigError with every fault."""
    faults = list(configuration.faults)
    token = _attempt(lambda: _token(configuration), faults)
    tls = _attempt(lambda: _tls(configuration), faults)
    scrape = _attempt(lambda: targets_from(_tables(configuration, "scrape"), str(configuration.file)), faults)
    forward = _attempt(lambda: destinations_from(_tables(configuration, "forward"), str(configuration.file)), faults)
    rollouts = _attempt(lambda: _rollouts(configuration), faults)
    value = configuration.value
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
    values: dict[str, Any] = {setting.key: given for setting in SETTINGS if (given := value(setting.key)) is not None}
    values |= {"host": host, "token": token}
    return SidecarOptions(
        **values,
        tls=tls,
        scrape=tuple(scrape or ()),
        destinations=tuple(forward or ()),
        rollouts=rollouts or (),
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
    """The tables `[[name]]` of the file. Raises ConfigError if that name is anything else."""
    tables = configuration.tables.get(name, [])
    if isinstance(tables, list):
        entries = cast("list[Any]", tables)
        if all(isinstance(entry, dict) for entry in entries):
            return [_from_folder(entry, (configuration.file or Path()).parent) for entry in entries]
    raise ConfigError(str(configuration.file), [f"{name}: tables are expected; write [[{name}]] before each"])


def _from_folder(table: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The table with the paths in keys that end in `_file` resolved against the folder of the configuration file."""

    def placed(value: object) -> object:
        return str(folder / value) if isinstance(value, str) and value else value

    def resolved(key: str, value: Any) -> Any:
        if not key.endswith("_file"):
            return value
        if isinstance(value, dict):
            return {name: placed(path) for name, path in cast("dict[str, object]", value).items()}
        return placed(value)

    return {key: resolved(key, value) for key, value in table.items()}


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

"""Shows the settings that hold, each with where it comes from, as a file that could be given again."""

import json
from collections.abc import Iterator

from telemetry.sidecar.configuration.reading import SEPARATOR, Configuration
from telemetry.sidecar.configuration.settings import SETTINGS, SidecarSetting

HIDDEN = "[hidden]"


def settings_shown(configuration: Configuration) -> str:
    """Return the settings as TOML. Secrets are hidden, and so is the content of tables, which may hold some."""
    lines = [_line(setting, configuration) for setting in SETTINGS]
    return "\n".join([*lines, *_tables(configuration)]) + "\n"


def _line(setting: SidecarSetting, configuration: Configuration) -> str:
    value, origin = configuration.value(setting.key), configuration.origin(setting.key)
    if value is None:
        return f"# {setting.key} is not set"
    if setting.is_secret:
        return f"# {setting.key} = {HIDDEN}  # {origin}"
    if setting.is_repeated:
        return f"# {setting.key} = {json.dumps(str(value).split(SEPARATOR))}  # {origin}"
    # A string of JSON is one of TOML, too.
    return f"{setting.key} = {json.dumps(value)}  # {origin}"


def _tables(configuration: Configuration) -> Iterator[str]:
    for name, table in configuration.tables.items():
        count = f"{len(table)} tables" if isinstance(table, list) else "a table"
        yield f"# {name}: {count}  # {configuration.file}; values are not shown"

"""TOML files of the load test: a text that is not TOML is the user's to mend."""

from loadtest.errors import UsageError
from telemetry.model import file_faults
from telemetry.model.errors import ConfigError
from telemetry.model.file_faults import TomlText

__all__ = ["TomlText", "parse_toml"]


def parse_toml(text: str, name: str) -> TomlText:
    """Read a text, called `name` in sentences about it. Raises UsageError."""
    try:
        return file_faults.parse_toml(text, name)
    except ConfigError as error:
        raise UsageError(str(error)) from None

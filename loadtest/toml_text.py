"""TOML files of the load test: a text that is not TOML is the user's to mend."""

from loadtest.errors import UsageError
from telemetry.model import toml_text
from telemetry.model.errors import ConfigError
from telemetry.model.toml_text import TomlText

__all__ = ["TomlText", "parse_toml"]


def parse_toml(text: str, name: str) -> TomlText:
    """Read a text, called `name` in sentences about it. Raises UsageError."""
    try:
        return toml_text.parse_toml(text, name)
    except ConfigError as error:
        raise UsageError(str(error)) from None

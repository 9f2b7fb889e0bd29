"""What each cohort of the assistant is: the configuration of those variants that have settings of their own."""

from collections.abc import Mapping
from pathlib import Path
from typing import cast

from loadtest.errors import UsageError
from loadtest.targets.assistant.config import AssistantConfig
from loadtest.toml_text import parse_toml
from telemetry.model.errors import ConfigError


def variant_configs(config: AssistantConfig) -> dict[str, AssistantConfig]:
    """Configurations by the name of their variant; the control has the assistant's own. A `cohort` without settings of
    its own has the other `llm_stream`. Raises UsageError with a line for every fault."""
    found = {} if config.variants is None else _of_file(config, config.variants)
    if config.cohort is not None:
        other = config.model_copy(update={"llm_stream": not config.llm_stream})
        found.setdefault(config.cohort.treatment, other)
    found.setdefault(config.cohort_control, config)
    return found


def _of_file(config: AssistantConfig, file: Path) -> dict[str, AssistantConfig]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The variants {file} cannot be read: {error}.") from error
    found: dict[str, AssistantConfig] = {}
    faults: list[str] = []
    for name, table in parse_toml(text, str(file)).table.items():
        if not isinstance(table, dict):
            faults.append(f"{file}: {name} is not a table; write the settings of a variant under [{name}].")
            continue
        try:
            found[name] = config.with_variant(cast("Mapping[str, object]", table), f"{file}: {name}")
        except ConfigError as error:
            faults += [f"{error.where}.{fault}." for fault in error.faults]
    if faults:
        raise UsageError("\n".join(faults))
    return found

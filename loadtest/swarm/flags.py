"""Our flags on Locust's command line and in its web UI."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from locust import events

from loadtest.errors import UsageError
from loadtest.exit_codes import ExitCode
from loadtest.scenario.document import encode_scenario
from loadtest.scenario.fields import GROUPS, Option
from loadtest.scenario.file import PARTS, load_scenario, without_overruled
from loadtest.scenario.options import OPTIONS
from loadtest.swarm.resolution import handed_over
from telemetry.model.durations import Duration

SCENARIO_HELP = (
    "scenario file (TOML): callers, speech, phases (in place of --users, --run-time); other flags win over it"
)


@events.init_command_line_parser.add_listener
def add_flags(parser: Any) -> None:
    """Add our flags to Locust's parser."""
    groups = {group: parser.add_argument_group(f"voice callers: {group}") for group in GROUPS}
    groups["load"].add_argument("--scenario", default="", help=SCENARIO_HELP)
    for option in OPTIONS:
        groups[option.group].add_argument(option.flag, help=option.help.replace("%", "%%"), **_parsed(option))
    try:
        # Both are options: the master's options travel to workers that have neither file.
        # Locust's own default for its page is every address of the machine.
        parser.set_defaults(web_host="127.0.0.1", voice_settings=handed_over(), **_scenario_defaults(sys.argv[1:]))
    except UsageError as error:
        for line in str(error).splitlines():
            sys.stderr.write(f"voiceprobe: {line}\n")
        raise SystemExit(int(ExitCode.USAGE)) from None


def _parsed(option: Option) -> dict[str, Any]:
    if option.kind is bool:
        return {"action": "store_true"}
    if option.repeatable:
        return {"action": "append", "default": option.default, "metavar": option.metavar}
    # Locust's web UI has no "not given" for text: an empty string means it.
    is_text = option.kind in (str, Duration)
    default = "" if is_text and option.default is None else option.default
    return {"type": str if is_text else option.kind, "default": default}


def _scenario_defaults(arguments: Sequence[str]) -> dict[str, Any]:
    """The defaults that a scenario file gives the other flags, so that those on the command line win over it, and the
    scenario itself. Raises UsageError."""
    peek = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    peek.add_argument("--scenario", default="")
    for part in PARTS:
        peek.add_argument(f"--{part}")
    peek.add_argument("--speech-profiles")
    seen = vars(peek.parse_known_args(arguments)[0])
    file: str = seen.pop("scenario")
    if not file:
        return {"voice_scenario": ""}
    scenario = load_scenario(Path(file))
    given = [name for name, value in seen.items() if value]
    defaults = _as_options(without_overruled(scenario.settings(), given))
    return {"voice_scenario": encode_scenario(scenario), **defaults}


def _as_options(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings as options hold them: plain values, which travel to workers."""
    return {name: value if isinstance(value, str | int | float) else str(value) for name, value in settings.items()}

"""The help texts of the real commands, each run once, as a user would."""

import os
import re
import subprocess
import sys
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any, Final
from unittest import mock

ROOT = Path(__file__).parents[2]
VOICEPROBE = (sys.executable, "-m", "loadtest.cli.main")

# Locust shows its help before it reads a locustfile: its parser is asked with ours loaded.
LOCUST = (
    sys.executable,
    "-c",
    "import sys, loadtest.locustfile; from locust.argument_parser import get_parser;"
    " get_parser().parse_args(sys.argv[1:])",
)
# Room enough that nothing is cut off.
WIDE: Final = {"COLUMNS": "250", "TERMINAL_WIDTH": "250", "NO_COLOR": "1", "TERM": "dumb"}


@cache
def run(*command: str) -> subprocess.CompletedProcess[str]:
    """The command, run in the checkout."""
    return subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | WIDE,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def help_of(*command: str) -> str:
    """The help of a command, which must have one."""
    result = run(*command, "--help")
    assert result.returncode == 0, f"{' '.join(command)} --help:\n{result.stdout}{result.stderr}"
    return result.stdout


def parsed_help(name: str, parser: Any) -> str:
    """The same help, printed by the command's parser in this process: a fiftieth of the time."""
    printed = StringIO()
    with redirect_stdout(printed), mock.patch.dict(os.environ, WIDE):
        parser.main(["--help"], prog_name=name, standalone_mode=False)
    return printed.getvalue()


def has_flag(text: str, flag: str) -> bool:
    """Whether a help text knows the flag, as a word of its own."""
    return re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", text) is not None


def flags(arguments: list[str]) -> list[str]:
    """The flags among the arguments, without their values; nothing after a bare `--`."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return [argument.partition("=")[0] for argument in own if re.match(r"--?[A-Za-z]", argument)]

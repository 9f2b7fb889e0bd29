"""What the real commands say of themselves: asked once each, as a user would ask."""

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
VOICEPROBE = (sys.executable, "-m", "loadtest.cli.main")

# Locust shows its help before it reads a locustfile: its parser is asked with ours loaded.
LOCUST = (
    sys.executable,
    "-c",
    "import sys, loadtest.locustfile; from locust.argument_parser import get_parser;"
    " get_parser().parse_args(sys.argv[1:])",
)


@cache
def run(*command: str) -> subprocess.CompletedProcess[str]:
    """The command, run in the checkout, with room enough that nothing of its help is cut off."""
    environment = os.environ | {"COLUMNS": "250", "TERMINAL_WIDTH": "250", "NO_COLOR": "1", "TERM": "dumb"}
    return subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
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


def has_flag(text: str, flag: str) -> bool:
    """Whether a help text knows the flag, as a word of its own."""
    return re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", text) is not None


def flags(arguments: list[str]) -> list[str]:
    """The flags among the arguments, without their values; nothing after a bare `--`."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return [argument.partition("=")[0] for argument in own if re.match(r"--?[A-Za-z]", argument)]

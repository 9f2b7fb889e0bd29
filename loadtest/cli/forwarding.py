"""Commands that are processes of their own: everything behind the name goes to them as it is."""

import os
import sys
from collections.abc import Sequence
from typing import Any, Final

from loadtest.run.processes import environment

# Their help is their own, and so is every flag.
CONTEXT: Final[dict[str, Any]] = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "allow_interspersed_args": False,
}


def become(*python_arguments: str, arguments: Sequence[str]) -> None:
    """Replace this process by `python …` with these arguments."""
    os.execve(sys.executable, [sys.executable, *python_arguments, *arguments], environment())  # noqa: S606

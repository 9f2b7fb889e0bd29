"""Applies the worked examples of the pages on extending to a copy of the source, and runs their tests there.

A comment above a block of code says where the block belongs. The searched text must be there exactly once:

    <!-- new: PATH -->              the block is a new file
    <!-- append: PATH -->           it goes to the end of a file
    <!-- after: PATH: LINE -->      it goes behind the line that holds this text
    <!-- before: PATH: LINE -->     it goes before it
    <!-- replace: PATH: LINE -->    it takes its place
"""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.contracts.command_help import ROOT

COPIED = ("corpora", "telemetry", "loadtest", "dashboard", "tests", "pyproject.toml")
_CHANGE = re.compile(
    r"^<!-- (?P<how>new|append|after|before|replace): (?P<path>[^:\s]+)(?:: (?P<anchor>.+?))? -->\n"
    r"```python[^\n]*\n(?P<block>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Change:
    """One block of a page, and where it belongs."""

    how: str
    path: str
    anchor: str | None
    block: str


def changes(text: str) -> list[Change]:
    """The changes that a page shows, in its order."""
    return [Change(*match.group("how", "path", "anchor", "block")) for match in _CHANGE.finditer(text)]


def copy_of_the_source(folder: Path) -> Path:
    """The packages and the tests' own modules, without what only this checkout needs.

    What is compiled already comes along: it is valid by the times and sizes of the sources, which the copies have, too.
    """
    left_out = shutil.ignore_patterns("test_*.py", "test_*.pyc", "fixtures")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=left_out)
        else:
            shutil.copy(source, folder / name)
    return folder


def apply(change: Change, folder: Path) -> None:
    """Change the copy. Raises LookupError where the page's line is not in the file exactly once."""
    file = folder / change.path
    if change.how == "new":
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(change.block, encoding="utf-8")
        return
    text = file.read_text(encoding="utf-8")
    if change.how == "append":
        file.write_text(text + change.block, encoding="utf-8")
        return
    lines = text.splitlines(keepends=True)
    numbers = [number for number, line in enumerate(lines) if change.anchor and change.anchor in line]
    if len(numbers) != 1:
        raise LookupError(f"{change.path} has {len(numbers)} lines with {change.anchor!r}; the page needs one")
    first = numbers[0] + (change.how == "after")
    lines[first : first + (change.how == "replace")] = [change.block]
    file.write_text("".join(lines), encoding="utf-8")


def run_tests(paths: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run tests in the copy, as its author would, but send without compiled code: for each place of the source each of
    its processes would compile that again."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *paths]
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )

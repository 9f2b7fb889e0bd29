"""Every capability that users had when `capabilities.txt` was frozen is there, or its removal has a reason.

A capability is a name in the generated reference (a command, a flag, a key, a metric, a variable, a field), or a page
of the dashboard. To list those that are not in the file yet:

    python -m tests.contracts.test_capabilities >> tests/contracts/capabilities.txt
"""

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from docs_build.pages import PAGES
from tests.contracts.command_help import ROOT

LIST = Path(__file__).with_name("capabilities.txt")
REMOVED = "removed: "
# A name in the first cell of a row of a table; the heading tells names apart that several commands have.
NAME = re.compile(r"\| `([^`]+)`")
ADDRESS = re.compile(r'url_path="(\w+)"')


def of_page(place: str, text: str) -> Iterator[str]:
    """The names on a page of the reference, each with the page and the heading above it."""
    heading = ""
    for line in text.splitlines():
        if line.startswith("## "):
            heading = line.removeprefix("## ")
            yield f"{place} / {heading}"
        elif name := NAME.match(line):
            yield f"{place} / {heading} / {name[1]}"


def capabilities() -> set[str]:
    """Everything that users have now."""
    navigation = (ROOT / "dashboard" / "app.py").read_text(encoding="utf-8")
    return {
        *(f"dashboard / {name}" for name in ADDRESS.findall(navigation)),
        *chain.from_iterable(of_page(place, make()) for place, make in PAGES.items() if place.startswith("reference/")),
    }


def listed() -> tuple[set[str], dict[str, str]]:
    """The capabilities of the list, and those that it says were removed, with the reason."""
    kept: set[str] = set()
    removed: dict[str, str] = {}
    for line in LIST.read_text(encoding="utf-8").splitlines():
        if line.startswith(REMOVED):
            name, _, reason = line.removeprefix(REMOVED).partition(" :: ")
            removed[name] = reason.strip()
        elif line:
            kept.add(line)
    return kept, removed


def test_every_capability_of_the_list_is_there_or_has_a_reason_for_its_removal() -> None:
    kept, _ = listed()
    assert sorted(kept - capabilities()) == []


def test_what_was_removed_has_a_reason_and_is_gone() -> None:
    kept, removed = listed()
    assert [name for name, reason in removed.items() if not reason or name in kept or name in capabilities()] == []


def test_a_name_in_a_table_is_a_capability_of_its_page_and_heading() -> None:
    page = "# Commands\n\n| Name | Meaning |\n| --- | --- |\n| `a` | b |\n\n## run\n\n| `--x` | c |\nno `name`\n"
    assert list(of_page("p", page)) == ["p /  / a", "p / run", "p / run / --x"]


if __name__ == "__main__":
    print("\n".join(sorted(capabilities() - listed()[0])))

"""What the page of known limits says of the protocols, against the table of them."""

import re
from pathlib import Path

from loadtest.protocols.built_in import BUILT_IN, METRIC_OF

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "limits.md"
ITEM = re.compile(r"^- (.*?)(?=^- |\Z)", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`]+)`")


def items() -> list[str]:
    return ITEM.findall(PAGE.read_text())


def test_the_page_counts_the_protocols_and_names_those_that_show_every_stage() -> None:
    (item,) = (item for item in items() if "protocols](" in item)
    assert item.startswith(f"[{len(BUILT_IN)} protocols](../reference/protocols.md) are built in")
    every = {name for name, row in BUILT_IN.items() if set(row.shows) == set(METRIC_OF)}
    assert set(CODE.findall(item)) == every
    assert len(every) < len(BUILT_IN) / 2, "most show only some of the stages"


def test_the_page_names_the_protocols_that_only_servers_of_this_project_checked() -> None:
    (item,) = (item for item in items() if "servers of this project only" in item)
    assert set(CODE.findall(item)) == {name for name, row in BUILT_IN.items() if not row.proved_against}

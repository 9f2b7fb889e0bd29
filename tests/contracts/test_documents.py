"""The documentation is true: its commands, links, README, tutorial, limits, forwarding examples and state diagrams."""

import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs_build.pages import PAGES
from docs_build.tables import diagram
from loadtest.conversation.state import PLAN_TRANSITIONS, TRANSITIONS, Input, PlanInput, PlanState, State
from loadtest.exit_codes import ExitCode
from loadtest.protocols.built_in import BUILT_IN, METRIC_OF
from loadtest.run.forecast import Load, forecast, needs
from loadtest.scenario.settings import SwarmSettings
from telemetry.model.durations import Duration
from telemetry.objectives.slo import default_objectives
from telemetry.sidecar.forwarding.bounded_queue import FAMILIES
from telemetry.sidecar.forwarding.destinations import OLD_KEYS, TABLE_KEYS, destinations_from
from tests.contracts.command_help import ROOT
from tests.contracts.documents import DOCS, code_lines, faults, headings, links, pages, words

COMMANDS = [pytest.param(line, id=f"{place}: {line}") for place, text in pages().items() for line in code_lines(text)]


@pytest.mark.slow
@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_is_accepted_by_its_parser(line: str) -> None:
    assert faults(line) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "output"),
    [
        ("./voiceprobe demo --users 8", ""),
        ("VOICEPROBE_TOKEN=x voiceprobe run ws://h/ --users 3 | tee log  # why", ""),
        ("./voiceprobe demo --usres 8", "--usres"),
        ("./voiceprobe demo --users eight", "not a whole number"),
        ("./voiceprobe audit --users eight", "valid integer"),
        ("./voiceprobe run --users 8", "target"),
        ("./voiceprobe dmeo", "dmeo is no command"),
        ("./voicprobe demo", "no command that is known"),
        ("./voiceprobe test -q", ""),
        ("voiceprobe corpus check ./my-corpus", ""),
        ("voiceprobe corpus chekc ./my-corpus", "corpus is no command"),
        ("voiceprobe sidecar --store ./store --http-port 99999", "65535"),
        ("python -m tests.benchmarks.bench --short", ""),
        ("locust -f loadtest/locustfile.py --host ws://h/v1 --noise babble", ""),
        ("locust -f loadtest/locustfile.py --noize babble", "--noize is not a flag"),
        ("locust -f loadtest/nowhere.py --noise babble", "not there"),
        ("python -m telemetry.sidecar --stroe x", "--stroe"),
        ("python -m docs_build ./pages", ""),
        ("docker compose up --what", ""),
    ],
)
def test_wrong_command_is_detected(line: str, output: str) -> None:
    lines = faults(line)
    assert bool(lines) == bool(output)
    assert output in " ".join(lines)


@pytest.mark.parametrize("place", pages())
def test_links_and_pictures_lead_to_what_is_there(place: str) -> None:
    folder = (ROOT / place).parent
    for path, anchor in links(pages()[place]):
        target = (folder / path).resolve().relative_to(ROOT).as_posix() if path else place
        # The one picture of the documentation is the screenshot of the dashboard; the build puts it there.
        is_made = target.removeprefix("docs/") in {*PAGES, "images/dashboard.png"}
        there = target in pages() or (ROOT / target).exists() or is_made
        assert there, f"{place} links to {path}, which is not there"
        if anchor and target in pages():
            assert anchor in headings(pages()[target]), f"{place} links to #{anchor}, a heading that {target} lacks"


@pytest.mark.slow
def test_site_builds_strictly_and_loads_nothing_from_network(tmp_path: Path) -> None:
    site = tmp_path / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(site)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    built = sorted(site.rglob("*.html"))
    assert {f"docs/{page.relative_to(site).with_suffix('.md').as_posix()}" for page in built} >= {
        place for place in pages() if place.startswith("docs/") and place.endswith(".md")
    }
    loaded = re.compile(r"""<(?:script|img|iframe|source)[^>]+src=["']?(https?:)?//|<link[^>]+href=["']?(https?:)?//""")
    for page in built:
        text = page.read_text(encoding="utf-8")
        assert not loaded.search(text), f"{page.name} loads something from elsewhere"
        assert "fonts.g" not in text
        assert "--8<--" not in text, f"{page.name} shows an inclusion instead of the file"


def test_every_page_is_in_the_navigation() -> None:
    listed = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    places = [place.removeprefix("docs/") for place in pages() if place.startswith("docs/") and place.endswith(".md")]
    missing = [place for place in places if place not in listed]
    assert missing == []


def test_words_are_taken_apart_as_a_shell_does() -> None:
    assert words("A=1 voiceprobe run 'a b' > out") == ["voiceprobe", "run", "a b"]
    assert code_lines("```bash title=x\n$ one\n\n# two\nthree \\\n four\n```\n```python\nfive\n```\n") == [
        "one",
        "three   four",
    ]


README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
MOST_LINES = 120


def test_the_readme_shows_the_two_commands() -> None:
    lines = [words(line)[:2] for line in code_lines(README)]
    assert ["./voiceprobe", "demo"] in lines
    assert ["./voiceprobe", "test"] in lines


def test_the_readme_is_short() -> None:
    assert README.count("\n") <= MOST_LINES


def test_the_readme_leads_on_to_each_part_of_the_documentation() -> None:
    targets = {path for path, _ in links(README)}
    parts = ("tutorial.md", "how-to/index.md", "reference/index.md", "explanation/index.md", "extending/index.md")
    assert {f"docs/{part}" for part in parts} <= targets


SHORTEST_SPEECH_S = 1.0  # with it a call has the most turns


def test_first_run_of_tutorial_warns_that_it_has_no_verdict() -> None:
    text = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    command = re.search(r"^\./voiceprobe run (.+--users 1 .+)$", text, re.MULTILINE)
    assert command is not None
    arguments = shlex.split(command[1])
    asked = dict(zip(arguments[1::2], arguments[2::2], strict=True))
    load = Load(int(asked["--users"]), Duration.parse(asked["--run-time"]).seconds, SHORTEST_SPEECH_S)
    expected = forecast(SwarmSettings(), load).turns
    needed = needs(default_objectives(), "turns").most
    assert expected is not None
    assert expected < 20 < needed == 100, "the run that the tutorial warns of is too short for every objective"
    after = text[command.end() : text.index("Now add load")]
    for word in ("too few", "undecided", f"exit code {int(ExitCode.UNDECIDED)}", "20 turns", "100", "charges"):
        assert word in after, word


LIMITS_PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "limits.md"
ITEM = re.compile(r"^- (.*?)(?=^- |\Z)", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`]+)`")


def items() -> list[str]:
    return ITEM.findall(LIMITS_PAGE.read_text())


def test_page_counts_protocols_and_names_those_with_every_stage() -> None:
    (item,) = (item for item in items() if "protocols](" in item)
    assert item.startswith(f"[{len(BUILT_IN)} protocols](../reference/protocols.md) are built in")
    every = {name for name, row in BUILT_IN.items() if set(row.shows) == set(METRIC_OF)}
    assert set(CODE.findall(item)) == every
    assert len(every) < len(BUILT_IN) / 2, "most show only some of the stages"


def test_page_names_protocols_checked_only_by_own_servers() -> None:
    (item,) = (item for item in items() if "servers of this project only" in item)
    assert set(CODE.findall(item)) == {name for name, row in BUILT_IN.items() if not row.proved_against}


FORWARDING_PAGE = Path(__file__).parents[2] / "docs/how-to/forwarding.md"
COLLECTOR = re.findall(r"```yaml title=\"collector.yaml\"\n(.*?)```", FORWARDING_PAGE.read_text(), re.DOTALL)[0]
FORWARDING_EXAMPLES = re.findall(r"```toml\n(.*?)```", FORWARDING_PAGE.read_text(), re.DOTALL)


@pytest.mark.parametrize("example", FORWARDING_EXAMPLES, ids=range(len(FORWARDING_EXAMPLES)))
def test_every_example_is_accepted(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGFUSE_AUTHORIZATION", "Basic dGVzdA==")
    (tmp_path / "vendor.key").write_text("ab" * 32)
    (tmp_path / "vendor.key").chmod(0o600)
    tables = tomllib.loads(example.replace("/etc/voiceprobe", str(tmp_path)))["forward"]
    assert len(destinations_from(tables, "the page")) == 1


def test_every_setting_is_explained() -> None:
    rows = [line.split("|")[1] for line in FORWARDING_PAGE.read_text().splitlines() if line.startswith("| `")]
    assert {name for row in rows for name in re.findall(r"`([a-z_]+)`", row)} == TABLE_KEYS


def test_every_metric_is_named() -> None:
    named = set(re.findall(r"`(voice_forward_\w+)`", FORWARDING_PAGE.read_text()))
    assert named == {family.shown_name for family in FAMILIES}


def test_every_retired_setting_is_named() -> None:
    retired = FORWARDING_PAGE.read_text().partition("## From a version with a queue on disk")[2]
    assert set(re.findall(r"`([a-z_]+)`", retired.partition("belonged")[0])) == OLD_KEYS.keys()


def test_collector_file_is_consistent_and_keeps_queues_on_disk() -> None:
    file = yaml.safe_load(COLLECTOR)
    for pipeline in file["service"]["pipelines"].values():
        assert set(pipeline["exporters"]) == file["exporters"].keys()
        assert set(pipeline["receivers"]) == file["receivers"].keys()
    assert file["service"]["pipelines"].keys() == {"traces", "metrics"}
    assert set(file["service"]["extensions"]) == file["extensions"].keys()
    for exporter in file["exporters"].values():
        assert exporter["sending_queue"]["storage"] in file["extensions"]
        assert exporter["retry_on_failure"]["max_elapsed_time"] == 0


CONVERSATION_PAGE = PAGES["explanation/conversation.md"]()
Table = Mapping[Any, Mapping[Any, Any]]
Transition = tuple[str, str, str]


def diagrams(page: str) -> list[str]:
    return re.findall(r"^```mermaid\nstateDiagram-v2\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)


def drawn(source: str) -> list[Transition]:
    """Every transition of a diagram: from, input, to. A line that is no arrow fails."""
    arrows = [re.fullmatch(r" +(\w+) --> (\w+): (\w+(?:<br/>\w+)*)", line) for line in source.splitlines()]
    assert all(arrows), source
    pairs = [(arrow[1], arrow[2]) for arrow in arrows if arrow]
    assert len(set(pairs)) == len(pairs), "one arrow leads from a state to another"
    return [(arrow[1], happened, arrow[2]) for arrow in arrows if arrow for happened in arrow[3].split("<br/>")]


def transitions(table: Table) -> list[Transition]:
    return [
        (state.name, happened.name, following.name)
        for state, row in table.items()
        for happened, following in row.items()
    ]


@pytest.mark.parametrize(("number", "table"), [(0, TRANSITIONS), (1, PLAN_TRANSITIONS)], ids=["caller", "plan"])
def test_page_shows_exactly_the_transitions_of_the_code(number: int, table: Table) -> None:
    assert sorted(drawn(diagrams(CONVERSATION_PAGE)[number])) == sorted(transitions(table))


def test_a_table_that_changes_changes_the_diagram() -> None:
    changed = {state: dict(row) for state, row in TRANSITIONS.items()}
    del changed[State.HEARING][Input.BARGE_IN_POINT]
    changed[State.HEARING][Input.SPEECH_END] = State.WAITING
    (source,) = diagrams(diagram(changed))
    assert set(transitions(TRANSITIONS)) ^ set(drawn(source)) == {
        ("HEARING", "BARGE_IN_POINT", "SPEAKING"),
        ("HEARING", "SPEECH_END", "WAITING"),
    }


def test_the_page_lists_what_the_diagrams_show() -> None:
    listed = re.findall(r"^\| `([A-Z_]+)` \| `([A-Z_]+)` \| `([A-Z_]+)` \|$", CONVERSATION_PAGE, re.MULTILINE)
    assert sorted(listed) == sorted([*transitions(TRANSITIONS), *transitions(PLAN_TRANSITIONS)])


def test_every_state_and_input_has_a_sentence() -> None:
    listed = re.findall(r"^\| `([A-Z_]+)` \| ([^`|]+) \|$", CONVERSATION_PAGE, re.MULTILINE)
    members: list[Enum] = [*State, *Input, *PlanState, *PlanInput]
    assert listed == [(member.name, f"{member.value[0].upper()}{member.value[1:]}.") for member in members]

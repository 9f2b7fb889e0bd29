"""The generated reference is whole, and every capability of capabilities.txt is there or has a reason to be gone."""

import json
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from itertools import chain, pairwise
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from docs_build import scenario
from docs_build.commands import commands
from docs_build.comments import Group, groups, trailing
from docs_build.markdown import cell, code, table
from docs_build.pages import PAGES
from loadtest.errors import UsageError
from loadtest.exit_codes import MEANINGS, ExitCode
from loadtest.protocols import registry
from loadtest.protocols.built_in import METRIC_OF
from loadtest.reports.summary import schema
from loadtest.scenario.file import parse_scenario
from loadtest.scenario.options import OPTIONS
from telemetry.model import semconv
from telemetry.model.metrics import METRIC_NAMES, TIMESTAMPS
from telemetry.model.turn_spans import CARRIED
from telemetry.sidecar.adapters.frameworks import frameworks
from telemetry.sidecar.counts.exposition import Exposition
from telemetry.sidecar.otlp.body import COMPRESSIONS
from telemetry.sidecar.rollouts.states import FAMILIES as ROLLOUT_FAMILIES
from telemetry.sidecar.settings import CONFIG, SETTINGS
from tests.contracts.command_help import ROOT, VOICEPROBE, help_of, parsed_help

FRAMEWORK_NAMES = tuple(
    name
    for framework in frameworks()
    for name in (
        *framework.spans,
        *framework.scopes,
        *(attribute for read in framework.reads for attribute in read.attributes),
    )
)
VARIABLE = re.compile(r"VOICEPROBE_[A-Z]+(?:_[A-Z]+)*(?![A-Z_])")


def rows(page: str) -> Iterator[list[str]]:
    """The rows of every table of a page, without their heads."""
    lines = PAGES[page]().splitlines()
    for before, line in pairwise(lines):
        if line.startswith("| ") and not line.startswith("| ---") and before.startswith("|"):
            yield [column.strip() for column in re.split(r"(?<!\\)\|", line)[1:-1]]


@pytest.mark.parametrize("page", [page for page in PAGES if page != "reference/metrics.md"])
def test_nothing_is_listed_without_a_meaning(page: str) -> None:
    assert [row for row in rows(page) if not row[-1]] == []


@pytest.mark.slow
def test_the_page_lists_the_flags_that_each_command_prints() -> None:
    page = PAGES["reference/commands.md"]()
    for name, parser in commands():
        section = page.split(f"\n## {name}\n")[1].split("\n## ")[0]
        shown = parsed_help(name, parser)
        printed = set(re.findall(r"^\W*(?:-\w, )?(--[a-z][a-z-]*[a-z])", shown, re.MULTILINE)) - {"--help"}
        assert "Usage: " in shown, name
        listed = set(re.findall(r"^\| `(?:-\w, )?(--[a-z][a-z-]*[a-z])", section, re.MULTILINE))
        assert printed == listed, name


# One of each way in which a command is started: in the process of `voiceprobe` itself, and by a process of its own.
IN_ITS_PROCESS, OF_THEIR_OWN = ("run", "rollout check"), ("assistant", "sidecar", "dashboard", "corpus check")


@pytest.mark.slow
@pytest.mark.parametrize("name", [*IN_ITS_PROCESS, *OF_THEIR_OWN])
def test_a_command_prints_what_its_parser_has(name: str) -> None:
    command = f"voiceprobe {name}"
    first, *rest = parsed_help(command, dict(commands())[command]).strip().splitlines()
    started, *printed = help_of(*VOICEPROBE, *name.split()).strip().splitlines()
    assert printed == rest
    assert first.split("[OPTIONS]")[1].strip() == started.split("[OPTIONS]")[1].strip()
    assert "[[" not in started, "an argument is in brackets once"
    if name in OF_THEIR_OWN:
        assert started.strip().startswith(f"Usage: {command} "), "the name that was typed"


@pytest.mark.slow
def test_every_command_is_on_the_page() -> None:
    listed = help_of(*VOICEPROBE).split("Commands", 1)[1]
    names = set(re.findall(r"^\W*([a-z]+)\s", listed, re.MULTILINE))
    assert names == {name.split()[1] for name, _ in commands()}


def test_locust_takes_every_option_that_the_page_lists() -> None:
    listed = PAGES["reference/commands.md"]().split("\n## locust\n")[1]
    assert all(f"`{option.flag}`" in listed for option in OPTIONS)


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("reference/metrics.md", (*METRIC_NAMES, *TIMESTAMPS, *semconv.OUTCOMES)),
        ("reference/spans.md", tuple(semconv.TURN_PREFIX + name for name in CARRIED)),
        ("reference/framework-spans.md", FRAMEWORK_NAMES),
        ("reference/otlp-receivers.md", (*COMPRESSIONS, "--max-connections", "--body-memory", "--idle-timeout")),
        ("reference/exit-codes.md", tuple(str(int(exit_code)) for exit_code in ExitCode)),
        ("reference/protocols.md", (*registry.names(), *METRIC_OF.values())),
        ("reference/scenario-file.md", tuple(scenario.keys())),
        ("reference/sidecar-settings.md", tuple(setting.variable for setting in (*SETTINGS, CONFIG))),
    ],
)
def test_a_page_lists_what_the_code_has(page: str, names: tuple[str, ...]) -> None:
    text = PAGES[page]()
    assert [name for name in names if f"`{name}`" not in text] == []


def test_every_series_that_a_sidecar_exposes_is_listed() -> None:
    text = PAGES["reference/prometheus.md"]()
    typed = re.findall(r"^# TYPE (\S+) ", Exposition().render("")[0].decode(), re.MULTILINE)
    assert len(typed) > 20
    # Those of rollouts are exposed only while a sidecar evaluates some.
    typed += [family.shown_name for family in ROLLOUT_FAMILIES]
    assert [name for name in typed if f"`{name}`" not in text] == []


def test_every_key_of_the_schema_is_listed() -> None:
    text = PAGES["reference/json-summary.md"]()
    keys = {
        key for key in re.findall(r'"([a-z_0-9]+)": \{', json.dumps(schema())) if key not in {"properties", "items"}
    }
    definitions = set(schema()["$defs"])
    assert [key for key in keys - definitions if not re.search(rf"[`.]{key}`|## {key}\n", text)] == []


def test_every_exit_code_has_a_meaning() -> None:
    assert set(MEANINGS) == set(ExitCode)


def test_every_variable_that_the_code_reads_is_listed() -> None:
    sources = [ROOT / "voiceprobe", ROOT / "docker-compose.yml"]
    for package in ("corpora", "telemetry", "loadtest", "dashboard"):
        sources += (ROOT / package).rglob("*.py")
    read = {name for source in sources for name in VARIABLE.findall(source.read_text(encoding="utf-8"))}
    # Between a command and a process that it starts; not for users.
    internal = {
        "VOICEPROBE_BEGUN",
        "VOICEPROBE_DASHBOARD_STORE",
        "VOICEPROBE_DASHBOARD_SLO",
        "VOICEPROBE_DASHBOARD_RUNS",
        "VOICEPROBE_DASHBOARD_LOCUST",
        "VOICEPROBE_MISSING_PEERS",
        "VOICEPROBE_MISSING_PROGRAMS",
        "VOICEPROBE_SETTINGS",
    }
    assert read == {row[0].strip("`") for row in rows("reference/environment.md")} | internal


def test_every_key_of_a_scenario_has_a_meaning() -> None:
    assert [key for key, (_, meaning) in scenario.keys().items() if not meaning] == []


def test_scenario_schema_accepts_examples_and_refuses_as_command() -> None:
    checked = Draft202012Validator(json.loads(PAGES["reference/scenario-file.schema.json"]()))
    examples = list((ROOT / "examples" / "scenarios").glob("*.toml"))
    assert len(examples) > 5
    for file in examples:
        assert list(checked.iter_errors(tomllib.loads(file.read_text(encoding="utf-8")))) == [], file
    for text in ("seed = -1", "nmae = 'x'", "callers.turns = 0", "callers.talk_over = 2", "keep.audio = 'yes'"):
        (error,) = checked.iter_errors(tomllib.loads(text))
        with pytest.raises(UsageError):
            parse_scenario(text)
        assert error.message


def test_the_recorder_sees_what_the_examples_use() -> None:
    asked = scenario.keys()
    for name in ("callers.barge_in[].share", "speech.profiles[].loss", "phases[].arrival", "speech.mix.domain", "seed"):
        assert name in asked
    kind, meaning = asked["phases[].kind"]
    assert kind.startswith("one of smoke, ramp")
    assert meaning.startswith("required")


def test_comments_are_read_next_to_their_fields(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text(
        "class A:\n    # About the first two.\n    one: int = 1  # the first\n    two: int = (\n        2  # the second"
        "\n    )\n\n    three: int\n    # About the last.\n    four: int  # noqa: A003\nOTHER: int = 3  # a constant\n"
    )
    assert trailing(file, "A") == {"one": "the first", "two": "the second", "three": "", "four": ""}
    assert trailing(file) == {"OTHER": "a constant"}
    assert groups(file, "A") == [
        Group("About the first two.", ("one", "two")),
        Group("", ("three",)),
        Group("About the last.", ("four",)),
    ]


def test_every_mark_of_a_page_is_filled() -> None:
    assert [place for place, make in PAGES.items() if "{{" in make() or "<function" in make()] == []


def test_a_cell_cannot_break_its_table() -> None:
    assert cell("a | b\n<script>") == "a \\| b &lt;script>"
    assert code("a|b") == "`a&#124;b`"
    with pytest.raises(ValueError, match="row has 1"):
        table(("one", "two"), [("a",)])


LIST = Path(__file__).with_name("capabilities.txt")
REMOVED = "removed: "
# A name in the first cell of a row of a table; the heading distinguishes equal names of several commands.
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


@cache
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


def test_every_listed_capability_exists_or_has_removal_reason() -> None:
    kept, _ = listed()
    assert sorted(kept - capabilities()) == []


@pytest.mark.slow
def test_removed_capability_has_reason_and_is_gone() -> None:
    kept, removed = listed()
    assert [name for name, reason in removed.items() if not reason or name in kept or name in capabilities()] == []


def test_name_in_table_is_capability_of_its_page_and_heading() -> None:
    page = "# Commands\n\n| Name | Meaning |\n| --- | --- |\n| `a` | b |\n\n## run\n\n| `--x` | c |\nno `name`\n"
    assert list(of_page("p", page)) == ["p /  / a", "p / run", "p / run / --x"]


if __name__ == "__main__":
    print("\n".join(sorted(capabilities() - listed()[0])))

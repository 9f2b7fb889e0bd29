"""Facts about the tree: its sizes, names, clocks and number formats, and nothing of the machine it was written on."""

import ast
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import pytest_make_parametrize_id

ROOT = Path(__file__).parents[2]
PACKAGES = ("corpora", "loadtest", "telemetry", "dashboard")
MOST_LINES = 600
MOST_LINES_OF_A_FUNCTION = 60
MOST_POSITIONAL_PARAMETERS = 5

# What is longer, and why it is right so.
LONG_FILES: dict[str, str] = {}
LONG_FUNCTIONS: dict[str, str] = {
    "tests/fixtures_turns.py:exchange": "one whole exchange as a literal: every field of two turns",
    "tests/unit/dashboard/scenes.py:client_turn": "one whole turn as a literal, every field with its value",
}

# The wall clock stamps and joins, it never measures: who may ask for it as a float.
WALL_CLOCK: dict[str, str] = {}

# Written in two parts, so that this file does not hold what it looks for.
FOREIGN = {
    "a path of some machine": re.compile(
        r"(?<![\w.-])/(?:" + "|".join(["ro" + "ot", "ho" + "me", "Us" + "ers", "wo" + "rk", "op" + "t"]) + r")/\w"
    ),
    "the host of a package registry": re.compile(
        "|".join(["pypi" + r"\.org", "pythonhosted" + r"\.org", "npmjs" + r"\.(?:org|com)"])
    ),
}


@cache
def files() -> tuple[Path, ...]:
    """Every file that belongs to the project, committed or about to be."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    return tuple(path for name in listed.split("\0") if name and (path := ROOT / name).is_file())


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def python_files() -> Iterator[tuple[str, str]]:
    for path in files():
        if path.suffix == ".py":
            yield name(path), path.read_text(encoding="utf-8")


@dataclass
class Outline:
    """The definitions and imports of a file that these contracts check."""

    functions: list[tuple[str, int]] = field(default_factory=list)  # with their lines
    signatures: list[tuple[str, int]] = field(default_factory=list)  # with their positional parameters
    classes: list[str] = field(default_factory=list)
    wall_clock_calls: list[int] = field(default_factory=list)  # their lines


@cache
def outline(source: str) -> Outline:
    """The outline of a file: parsing all of them takes seconds, and several contracts ask."""
    collected = Outline()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                collected.functions.append((node.name, (node.end_lineno or node.lineno) - node.lineno + 1))
                collected.signatures.append((node.name, positional_parameters(node.args)))
            case ast.Lambda():
                collected.signatures.append(("lambda", positional_parameters(node.args)))
            case ast.ClassDef():
                collected.classes.append(node.name)
            case ast.Attribute(value=ast.Name(id="time"), attr="time"):
                collected.wall_clock_calls.append(node.lineno)
            case ast.ImportFrom(module="time", names=names) if any(alias.name == "time" for alias in names):
                collected.wall_clock_calls.append(node.lineno)
    return collected


def positional_parameters(arguments: ast.arguments) -> int:
    names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def long_functions(source: str) -> list[tuple[str, int]]:
    return [function for function in outline(source).functions if function[1] > MOST_LINES_OF_A_FUNCTION]


def long_signatures(source: str) -> list[tuple[str, int]]:
    return [signature for signature in outline(source).signatures if signature[1] > MOST_POSITIONAL_PARAMETERS]


def test_files_are_short_or_say_why() -> None:
    long = {path: text.count("\n") for path, text in python_files() if text.count("\n") > MOST_LINES}
    assert long.keys() == LONG_FILES.keys(), long


@pytest.mark.slow
def test_functions_are_short_or_say_why() -> None:
    long = {f"{path}:{function}": length for path, text in python_files() for function, length in long_functions(text)}
    assert long.keys() == LONG_FUNCTIONS.keys(), long


@pytest.mark.slow
def test_functions_have_few_positional_parameters() -> None:
    product = (*PACKAGES, "docs_build")
    assert [
        f"{path}: {function} has {count}"
        for path, text in python_files()
        if path.startswith(product)
        for function, count in long_signatures(text)
    ] == []


def test_every_name_says_what_is_inside() -> None:
    vague = {"utils", "util", "common", "helpers", "misc"}
    assert [
        name(path) for path in files() if vague & {part.partition(".")[0] for part in path.relative_to(ROOT).parts}
    ] == []


def test_there_is_one_kind_of_lock() -> None:
    assert [name(path) for path in files() if path.name in {"uv.lock", "poetry.lock", "Pipfile.lock"}] == []


@pytest.mark.slow
def test_the_wall_clock_is_read_in_nanoseconds_and_only_to_stamp() -> None:
    callers = {path for path, text in python_files() if path.startswith(PACKAGES) and outline(text).wall_clock_calls}
    assert callers == WALL_CLOCK.keys()


@pytest.mark.slow
def test_nothing_names_the_machine_it_was_written_on() -> None:
    clocked: list[str] = []
    for path in files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # audio and pictures
        clocked += [
            f"{name(path)}:{text.count(chr(10), 0, match.start()) + 1} holds {what}: {match[0]}"
            for what, pattern in FOREIGN.items()
            for match in pattern.finditer(text)
        ]
    assert clocked == []


def test_test_files_have_names_of_their_own() -> None:
    # pytest shows a test by its path's last part, and people look for a failing test by it.
    names = [path.name for path in files() if path.name.startswith("test_") and path.suffix == ".py"]
    assert sorted(names) == sorted(set(names))


def test_every_package_of_the_wheel_is_there_and_holds_its_data() -> None:
    for package in PACKAGES:
        assert (ROOT / package / "__init__.py").is_file()


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("import time\ntime.time()", [2]),
        ("from time import time", [1]),
        ("import time\ntime.time_ns()\ntime.monotonic()", []),
    ],
)
def test_the_wall_clock_is_found_where_it_is_read(source: str, lines: list[int]) -> None:
    assert outline(source).wall_clock_calls == lines


def test_long_function_is_detected() -> None:
    body = "\n".join("    x = 1" for _ in range(MOST_LINES_OF_A_FUNCTION))
    assert long_functions(f"def long():\n{body}\n") == [("long", MOST_LINES_OF_A_FUNCTION + 1)]
    assert long_functions("def short():\n    x = 1\n") == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def many(a, b, c, d, e, f): ...", [("many", 6)]),
        ("def many(a, b, c, /, d, e, f=1): ...", [("many", 6)]),
        ("async def many(a, b, c, d, e, f, *, g): ...", [("many", 6)]),
        ("def outer():\n    return lambda a, b, c, d, e, f: a", [("lambda", 6)]),
        ("class Box:\n    def __init__(self, a, b, c, d, e, f): ...", [("__init__", 6)]),
        ("class Box:\n    def __init__(self, a, b, c, d, e, *, f, g): ...", []),
        ("class Box:\n    @classmethod\n    def of(cls, a, b, c, d, e): ...", []),
        ("class Box:\n    @staticmethod\n    def of(a, b, c, d, e, f): ...", [("of", 6)]),
        ("def few(a, b, c, d, e, *rest, f, **others): ...", []),
    ],
)
def test_long_signature_is_detected(source: str, expected: list[tuple[str, int]]) -> None:
    assert long_signatures(source) == expected


@pytest.mark.parametrize(
    ("line", "is_foreign"),
    [
        ("cd /" + "work/main", True),
        ('open("/' + 'home/someone/x")', True),
        ("index-url = https://" + "pypi" + ".org/simple", True),
        ("~/.cache and loadtest/root/x and https://example.org/home", False),
    ],
)
def test_foreign_lines_are_distinguished_from_others(line: str, is_foreign: bool) -> None:
    assert any(pattern.search(line) for pattern in FOREIGN.values()) is is_foreign


@pytest.mark.slow
def test_no_two_classes_share_a_name() -> None:
    places: dict[str, list[str]] = {}
    for path, text in python_files():
        if path.startswith(PACKAGES):
            for class_name in outline(text).classes:
                places.setdefault(class_name, []).append(path)
    assert len(places) > 300
    assert {class_name: where for class_name, where in places.items() if len(where) > 1} == {}


@pytest.mark.parametrize("content", [b"\x1f\x8b\x08\x00\x84w\x01k"])
def test_bytes_which_may_hold_a_time_of_day_name_no_test(request: pytest.FixtureRequest, content: bytes) -> None:
    assert request.node.name.endswith("[content]")
    assert content


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"limit": 2, "names": ["a", None]}, "{'limit': 2, 'names': ['a', None]}"),
        ((), "()"),
        ([1_790_000_000], None),
        ([b"x"], None),
        ([{"a"}], None),
        (["a" * 60], None),
        ("a", None),
    ],
)
def test_short_plain_containers_name_a_case(value: object, shown: str | None) -> None:
    assert pytest_make_parametrize_id(value, "value") == shown


# Where numbers are formatted: for people, and for CSS.
HOMES = {"telemetry/model/formatting.py", "dashboard/components/markup.py"}
# The corpora import nothing of telemetry: what their pages show are clips, not figures of a run.
SEARCHED = ("loadtest", "telemetry", "dashboard", "docs_build")
_UNIT = re.compile(r"\s?(?:ms|%)(?!\w)")
_CSS = re.compile(r"(?:left|right|width|height|size):\s*$")


def second_formatters(source: str) -> Iterator[int]:
    """The lines on which an f-string formats a number itself and writes ms or % behind it, or formats with `%`."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.JoinedStr):
            continue
        for index, part in enumerate(node.values):
            if not isinstance(part, ast.FormattedValue):
                continue
            in_css = _CSS.search(_text(node, index - 1)) is not None
            has_unit = _UNIT.match(_text(node, index + 1)) is not None
            if _is_percent(part) or (has_unit and not in_css and _computes(part)):
                yield part.lineno


def _text(node: ast.JoinedStr, index: int) -> str:
    part = node.values[index] if 0 <= index < len(node.values) else None
    return str(part.value) if isinstance(part, ast.Constant) else ""


def _spec(part: ast.FormattedValue) -> list[ast.expr]:
    return part.format_spec.values if isinstance(part.format_spec, ast.JoinedStr) else []


def _is_percent(part: ast.FormattedValue) -> bool:
    return any(isinstance(spec, ast.Constant) and str(spec.value).endswith("%") for spec in _spec(part))


def _computes(part: ast.FormattedValue) -> bool:
    """Whether the value is rounded or scaled here; a whole number of a wire or of a setting is printed as it is."""
    scaled = any(isinstance(node, ast.BinOp) for node in ast.walk(part.value))
    rounded = any(isinstance(node, ast.Call) and ast.unparse(node.func) == "round" for node in ast.walk(part.value))
    return bool(_spec(part)) or scaled or rounded


@pytest.mark.slow
def test_milliseconds_and_percentages_are_written_in_one_module() -> None:
    lines = [
        f"{path}:{line}"
        for path, text in python_files()
        if path.startswith(SEARCHED) and path not in HOMES
        for line in second_formatters(text)
    ]
    assert lines == []


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("f'{ns / 1e6:.1f} ms'", 1),
        ("f'{ns / 1e6} ms late'", 1),
        ("f'{round(x)} ms'", 1),
        ("f'{ratio * 100:g}%'", 1),
        ("f'{ratio:.0%}'", 1),
        ("f'{ratio:.1f} %'", 1),
        ("f'width:{share:.1f}%'", 0),
        ("f'{frame_ms} ms'", 0),
        ("f'{milliseconds(ns)} late'", 0),
        ("f'{count:.1f} msgs'", 0),
    ],
)
def test_second_formatter_is_detected(source: str, count: int) -> None:
    assert len(list(second_formatters(source))) == count

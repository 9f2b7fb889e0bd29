"""Words: retired ones stay out, and spelling is American by codespell, in code and in what people read."""

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.contracts.test_contracts_tree import files, name

# Words of identifiers (the parts of snake_case and CamelCase names) and what to write in their place.
RETIRED_NAMES = {
    "voice caller": "VoiceUser",
    "turnstile": "GreenletThrottle",
    "rehearsal": "warmup",
    "seat": "a stream of frames",
    "hush": "mute",
    "aside": "backchannel",
    "talk over sign": "backchannel",
    "judging": "outcome",
    "facts": "RunInfo, or what the values are",
    "wording": "formatting",
    "told": "what was reported, to whom",
    "said": "what the value is: texts, output, parsed",
    "standing": "ObjectiveStatus",
    "rung": "LoadStep",
    "doubts": "boundary_review",
    "findings": "Diagnostic",
    "revival": "recovery",
    "journal": "a write-ahead log (wal)",
    "delivering processor": "SpoolingSpanProcessor",
    "otlp sender": "OtlpHttpExporter",
    "known answer": "ground_truth",
    "shelf": "CacheEntry",
    "missed starts": "dropped_calls",
    "switchboard": "named callbacks",
    "outlet": "a sink",
    "voiced": "speech",
    "knee": "capacity",
    "audio rtf": "audio_rtfx",
}
# What no native engineer would say, in docstrings, comments, sentences and documents.
RETIRED_PHRASES = {
    r"of no use": "requires, not supported with",
    r"(?<!there )is none\b": "not supported, is not a …, there is no …",
    r"\bis no (number|file|duration|address|name|folder|option|flag|key)\b": "is not a …",
    r"\ban own\b": "its own, your own",
    r"\blets? .{1,30} go\b(?! on)": "closes, releases",
    r"\btold\b": "sent to, reported to, distinguished from",
    r"\banew\b": "again, newly",
    r"\bwhoever\b": "the process that, any reader",
    r"\bbeside (the|an?|its|it|each|every|others?|them|those|these|what|this)\b": "next to, compared with",
    r"nothing is claimed": "there is no verdict",
    r"\d of at least \d": "needs 100 turns, has 49",
    r"\bstands? (in|on|for|there|beside|by itself|alone)\b": "is in, is replaced by, means",
}
# Names of variables, parameters and functions that say nothing of the value.
VAGUE_NAMES = {"each", "found"}
# First words of docstrings, which begin with an imperative verb, or with a noun that the thing is.
RETIRED_FIRST_WORDS = {"What", "Of", "As", "How", "Which", "Who", "From"}
# Subject, condition and result fit into this, with `test_`; more is a sentence that belongs into a docstring.
MOST_CHARACTERS_OF_A_TEST_NAME = 60


def words_of(identifier: str) -> str:
    """An identifier's parts in lower case, separated by spaces, with a space at either end."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", identifier)
    return f" {' '.join(part.lower() for part in parts)} "


@cache
def used_instead(identifier: str) -> list[str]:
    """Return what to write instead of the retired words that an identifier holds."""
    words = words_of(identifier)
    return [use for word, use in RETIRED_NAMES.items() if f" {word} " in words]


def retired_names(source: str) -> Iterator[tuple[int, str, str]]:
    """Line, identifier and what to write instead, for each identifier of Python source that holds a retired word."""
    # Taking a file apart takes a hundred times as long as looking for words in it.
    if not any(used_instead(word) for word in set(re.findall(r"\w+", source))):
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME:
            yield from ((token.start[0], token.string, use) for use in used_instead(token.string))


def retired_phrases(text: str) -> Iterator[tuple[int, str, str]]:
    """Line, phrase and what to write instead, for each retired phrase of a text."""
    for phrase, use in RETIRED_PHRASES.items():
        for match in re.finditer(phrase, text):
            yield text.count("\n", 0, match.start()) + 1, match[0], use


def vague_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of each variable, parameter or function of Python source that has a vague name."""
    for node in ast.walk(tree):
        match node:
            case (
                ast.Name(id=identifier, ctx=ast.Store())
                | ast.arg(arg=identifier)
                | ast.FunctionDef(name=identifier)
                | ast.AsyncFunctionDef(name=identifier)
                | ast.ExceptHandler(name=identifier)
                | ast.MatchAs(name=identifier)
                | ast.MatchStar(name=identifier)
            ) if identifier in VAGUE_NAMES:
                yield node.lineno, identifier
            case _:
                pass


def retired_first_words(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and first word of each docstring of Python source that begins with a retired word."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            word = (ast.get_docstring(node) or "-").split()[0]
            if word in RETIRED_FIRST_WORDS:
                yield getattr(node, "lineno", 1), word


def long_test_names(source: str) -> Iterator[str]:
    """Names of test functions, in Python source or on a page, that have too many characters."""
    names = re.findall(r"\bdef (test_\w+)", source)
    return (name for name in names if len(name) > MOST_CHARACTERS_OF_A_TEST_NAME)


def written(*suffixes: str) -> list[Path]:
    """The project's own files of some kinds, without this one, which has to name what it looks for."""
    return [path for path in files() if path.suffix in suffixes and path != Path(__file__).resolve()]


@pytest.mark.slow
def test_no_identifier_holds_a_retired_word() -> None:
    lines = [
        f"{name(path)}:{line}: {identifier}: use {use}"
        for path in written(".py")
        for line, identifier, use in retired_names(path.read_text())
    ]
    assert not lines, "\n".join(lines)


def test_no_file_is_named_by_a_retired_word() -> None:
    retired_files = [
        name(path) for path in written(".py", ".md") for word in RETIRED_NAMES if f" {word} " in words_of(path.stem)
    ]
    assert not retired_files


@pytest.mark.slow
def test_no_text_holds_a_retired_phrase() -> None:
    lines = [
        f"{name(path)}:{line}: {phrase!r}: write {use}"
        for path in written(".py", ".md", ".toml", ".yaml", ".yml", ".html", ".json")
        if not name(path).startswith("corpora/data/")
        for line, phrase, use in retired_phrases(path.read_text())
    ]
    assert not lines, "\n".join(lines)


@pytest.mark.slow
def test_names_say_what_they_hold_and_docstrings_what_is_done() -> None:
    lines: list[str] = []
    for path in written(".py"):
        tree = ast.parse(path.read_text())
        lines += [f"{name(path)}:{line}: {identifier}" for line, identifier in vague_names(tree)]
        lines += [f"{name(path)}:{line}: begins with {word!r}" for line, word in retired_first_words(tree)]
    assert not lines, "\n".join(lines)


def test_test_names_are_short() -> None:
    lines = [f"{name(path)}: {long}" for path in written(".py", ".md") for long in long_test_names(path.read_text())]
    assert not lines, "\n".join(lines)


@pytest.mark.parametrize(("characters", "count"), [(60, 0), (61, 1)])
def test_a_long_test_name_is_counted(characters: int, count: int) -> None:
    long = "test_".ljust(characters, "x")
    for source in (f"def {long}() -> None: ...", f"class TestIt:\n    async def {long}(self): ...", f"{long} = 1"):
        assert len(list(long_test_names(source))) == count * ("def" in source)


@pytest.mark.parametrize("source", ["told = 1", "class VoiceCaller: ...", "x.missed_starts", "def run_facts(): ..."])
def test_retired_word_is_detected(source: str) -> None:
    assert list(retired_names(source))


@pytest.mark.parametrize("source", ["untold = 1", "'told'", "journaling = 1", "# said"])
def test_a_word_that_only_looks_like_it_is_not(source: str) -> None:
    assert not list(retired_names(source))


def test_vague_name_is_detected() -> None:
    source = "found = [each.x for each in turns]\ndef f(each): ...\nrow.found = 'each'"
    assert sorted(vague_names(ast.parse(source))) == [(1, "each"), (1, "found"), (2, "each")]


@pytest.mark.parametrize(
    "source",
    [
        "if found := 1: ...",
        "for at, (found, _) in (): ...",
        "lambda *, found: 1",
        "def found(): ...",
        "async def found(): ...",
        "class C:\n    found: int",
        "with f() as found: ...",
        "try: ...\nexcept E as found: ...",
        "match x:\n    case [*found]: ...",
        "match x:\n    case {'a': found}: ...",
    ],
)
def test_vague_name_is_detected_in_every_binding(source: str) -> None:
    assert [identifier for _, identifier in vague_names(ast.parse(source))] == ["found"]


def test_retired_phrase_is_detected() -> None:
    assert [phrase for _, phrase, _ in retired_phrases("a key is of no use\nthere is one\nit is none")] == [
        "of no use",
        "is none",
    ]


def test_retired_first_word_of_docstring_is_detected() -> None:
    source = '"""What it is."""\ndef f():\n    """Return what it is."""\nclass C:\n    """Of a call."""'
    assert list(retired_first_words(ast.parse(source))) == [(1, "What"), (4, "Of")]


ROOT = Path(__file__).parents[2]
READ = {".md", ".toml", ".yml", ".yaml", ".py", ".css", ".html", ".js", ""}
# Pages and everything else that is written for people, where no British word is left.
AMERICAN = ("docs/", "docs_build/", "examples/", ".github/", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")


def misspelled(paths: list[str], *flags: str) -> list[str]:
    """Return codespell's objections, a line each. Its dictionaries and the words that are right are in
    pyproject.toml."""
    command = [sys.executable, "-m", "codespell_lib", *flags, *paths]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in (0, 65), done.stdout + done.stderr
    return done.stdout.splitlines()


def spelled() -> list[str]:
    """Every file that somebody has written."""
    return [name(path) for path in files() if path.suffix in READ and not name(path).startswith("corpora/data/")]


def test_the_documentation_is_spelled_as_americans_do() -> None:
    pages = [path for path in spelled() if path.startswith(AMERICAN)]
    assert len(pages) > 30
    assert misspelled(pages) == []


@pytest.mark.slow
def test_the_code_is_spelled_as_americans_do() -> None:
    assert misspelled(spelled()) == []


@pytest.mark.parametrize(("text", "is_wrong"), [("the col" + "our of a line", True), ("the color of a line", False)])
def test_misspelled_word_is_detected(text: str, is_wrong: bool, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    assert bool(misspelled([str(page)])) is is_wrong

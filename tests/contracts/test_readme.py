"""The README's own promises: it is short, it shows the two commands, and it leads on to the documentation."""

from pathlib import Path

from tests.contracts.documents import code_lines, links, words

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
MOST_LINES = 120


def test_the_two_commands_are_shown() -> None:
    lines = [words(line)[:2] for line in code_lines(README)]
    assert ["./voiceprobe", "demo"] in lines
    assert ["./voiceprobe", "test"] in lines


def test_it_is_short() -> None:
    assert README.count("\n") <= MOST_LINES


def test_it_leads_on_to_each_part_of_the_documentation() -> None:
    targets = {path for path, _ in links(README)}
    parts = ("tutorial.md", "how-to/index.md", "reference/index.md", "explanation/index.md", "extending/index.md")
    assert {f"docs/{part}" for part in parts} <= targets

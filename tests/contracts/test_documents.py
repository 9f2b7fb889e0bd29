"""The documentation is true: its commands exist and their own parsers accept them, its links lead somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs_build.pages import PAGES
from tests.contracts.command_help import ROOT
from tests.contracts.documents import code_lines, faults, headings, links, pages, words

COMMANDS = [pytest.param(line, id=f"{place}: {line}") for place, text in pages().items() for line in code_lines(text)]


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_is_accepted_by_its_parser(line: str) -> None:
    assert faults(line) == []


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
def test_a_command_that_is_wrong_is_noticed(line: str, output: str) -> None:
    found = faults(line)
    assert bool(found) == bool(output)
    assert output in " ".join(found)


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
def test_the_site_is_built_strictly_and_loads_nothing_over_the_network(tmp_path: Path) -> None:
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

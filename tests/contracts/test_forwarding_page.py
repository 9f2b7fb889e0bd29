"""The page on forwarding: its examples are accepted, and its table names every setting with its default."""

import re
import tomllib
from pathlib import Path

import pytest

from telemetry.sidecar.forwarding.destinations import TABLE_KEYS, destinations_from
from telemetry.sidecar.forwarding.exposition import forwarding_families

PAGE = Path(__file__).parents[2] / "docs/how-to/forwarding.md"
EXAMPLES = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_every_example_is_accepted(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGFUSE_AUTHORIZATION", "Basic dGVzdA==")
    for name in ("forward.key", "vendor.key"):
        (tmp_path / name).write_text("ab" * 32)
        (tmp_path / name).chmod(0o600)
    tables = tomllib.loads(example.replace("/etc/voiceprobe", str(tmp_path)))["forward"]
    assert len(destinations_from(tables, "the page")) == 1


def test_every_setting_is_explained() -> None:
    rows = [line.split("|")[1] for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert {name for row in rows for name in re.findall(r"`([a-z_]+)`", row)} == TABLE_KEYS


def test_every_metric_is_named() -> None:
    named = set(re.findall(r"`(voice_forward_\w+)`", PAGE.read_text()))
    assert named == {family.shown_name for family in forwarding_families()}

"""The page on forwarding: its examples are accepted, its table names every setting, and the Collector's file holds
together."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from telemetry.sidecar.forwarding.bounded_queue import FAMILIES
from telemetry.sidecar.forwarding.destinations import OLD_KEYS, TABLE_KEYS, destinations_from

PAGE = Path(__file__).parents[2] / "docs/how-to/forwarding.md"
COLLECTOR = re.findall(r"```yaml title=\"collector.yaml\"\n(.*?)```", PAGE.read_text(), re.DOTALL)[0]
EXAMPLES = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_every_example_is_accepted(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGFUSE_AUTHORIZATION", "Basic dGVzdA==")
    (tmp_path / "vendor.key").write_text("ab" * 32)
    (tmp_path / "vendor.key").chmod(0o600)
    tables = tomllib.loads(example.replace("/etc/voiceprobe", str(tmp_path)))["forward"]
    assert len(destinations_from(tables, "the page")) == 1


def test_every_setting_is_explained() -> None:
    rows = [line.split("|")[1] for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert {name for row in rows for name in re.findall(r"`([a-z_]+)`", row)} == TABLE_KEYS


def test_every_metric_is_named() -> None:
    named = set(re.findall(r"`(voice_forward_\w+)`", PAGE.read_text()))
    assert named == {family.shown_name for family in FAMILIES}


def test_every_retired_setting_is_named() -> None:
    retired = PAGE.read_text().partition("## From a version with a queue on disk")[2]
    assert set(re.findall(r"`([a-z_]+)`", retired.partition("belonged")[0])) == OLD_KEYS.keys()


def test_the_collector_s_file_names_only_what_it_defines_and_keeps_every_queue_on_disk() -> None:
    file = yaml.safe_load(COLLECTOR)
    for pipeline in file["service"]["pipelines"].values():
        assert set(pipeline["exporters"]) == file["exporters"].keys()
        assert set(pipeline["receivers"]) == file["receivers"].keys()
    assert file["service"]["pipelines"].keys() == {"traces", "metrics"}
    assert set(file["service"]["extensions"]) == file["extensions"].keys()
    for exporter in file["exporters"].values():
        assert exporter["sending_queue"]["storage"] in file["extensions"]
        assert exporter["retry_on_failure"]["max_elapsed_time"] == 0

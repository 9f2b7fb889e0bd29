"""Values of a `[[scrape]]` table: every fault at once, and no secret in an address."""

import pytest

from telemetry.model.errors import ConfigError
from telemetry.sidecar.scraping import ScrapeTarget, targets_from

URL = "http://127.0.0.1:8000/metrics"


def test_targets_with_and_without_what_is_optional() -> None:
    tables = [{"name": "vllm-1", "url": URL}, {"name": "b", "url": URL, "interval": "2s", "token_env": "VLLM_API_KEY"}]
    assert targets_from(tables, "sidecar.toml") == [
        ScrapeTarget("vllm-1", URL, 10.0, None),
        ScrapeTarget("b", URL, 2.0, "VLLM_API_KEY"),
    ]


def test_every_fault_is_reported_at_once() -> None:
    tables = [
        {"name": "A b", "url": "ftp://x", "interval": "soon", "token_env": "a-b", "color": 1},
        {"url": "http://user:secret@x/metrics", "name": "v", "interval": "1ms"},
        {"url": 5, "name": "v"},
        {"url": "http://[x/metrics", "name": "w"},
        {"url": "http://x:99999/", "name": "x"},
    ]
    with pytest.raises(ConfigError) as caught:
        targets_from(tables, "sidecar.toml")
    output = str(caught.value)
    for part in (
        "sidecar.toml: ",
        "[[scrape]] 1: 'color' is not a known key; known are name, url, interval, token_env",
        "[[scrape]] 1: name: a short name in small letters",
        "[[scrape]] 1: url: 'ftp://x' is not an address of HTTP",
        "[[scrape]] 1: token_env: the name of an environment variable",
        "[[scrape]] 1: interval: ",
        "[[scrape]] 2: url: an address must not hold credentials",
        "[[scrape]] 2: interval: 1ms is out of range: 1s to 1h",
        "[[scrape]] 3: url: an address is expected",
        "[[scrape]] 3: name: 'v' is another target's name",
        "[[scrape]] 4: url: 'http://[x/metrics' is not an address",
        "[[scrape]] 5: url: 'http://x:99999/' is not an address",
    ):
        assert part in output, part
    assert "secret" not in output

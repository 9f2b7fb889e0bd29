"""A real Prometheus that scrapes sidecars, for tests."""

import json
import subprocess
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from loadtest.run import processes
from tests.programs import needed

# Only ends a hopeless wait.
WAIT_S = 180.0


@dataclass
class PrometheusProcess:
    """A running Prometheus and a client of its HTTP API."""

    process: subprocess.Popen[bytes]
    client: httpx.Client

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The result of an instant query; empty while Prometheus is not ready."""
        return self.data("/api/v1/query", {"query": expression}).get("result", [])

    def data(self, path: str, parameters: Mapping[str, str]) -> Any:
        """The data of an answer; {} while there is none."""
        assert self.process.poll() is None, "Prometheus ended by itself"
        try:
            answer = self.client.get(path, params=parameters)
            content = answer.json()
        except (httpx.TransportError, json.JSONDecodeError):
            return {}
        assert answer.status_code in (200, 503), content
        return content.get("data", {})

    def alerts(self) -> list[dict[str, str]]:
        """The labels of the alerts that fire."""
        alerts = self.data("/api/v1/alerts", {}).get("alerts", [])
        return [alert["labels"] for alert in alerts if alert["state"] == "firing"]

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        """Ask until something is true, and give that."""
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until:
            if value := condition():
                return value
            time.sleep(0.1)
        raise AssertionError(f"Prometheus never had {what}")


@contextmanager
def running_prometheus(
    folder: Path,
    addresses: Sequence[str],
    rules: str | None = None,
    interval: str = "1s",
    *,
    job: Mapping[str, Any] | None = None,
) -> Generator[PrometheusProcess]:
    """A Prometheus that scrapes sidecars and evaluates rules, ended at the end. `job` adds to how it scrapes."""
    config: dict[str, Any] = {
        "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
        "scrape_configs": [
            {
                **(job or {}),
                "job_name": "voiceprobe",
                "static_configs": [{"targets": [address.rpartition("//")[2] for address in addresses]}],
            }
        ],
    }
    if rules is not None:
        (folder / "rules.yml").write_text(rules)
        config["rule_files"] = ["rules.yml"]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    with prometheus_of(folder) as prometheus:
        yield prometheus


@contextmanager
def prometheus_of(folder: Path) -> Generator[PrometheusProcess]:
    """A Prometheus with the `prometheus.yml` of a folder, ended at the end."""
    port = processes.free_port()
    process = subprocess.Popen(
        [
            needed("prometheus"),
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--enable-feature=exemplar-storage",
            "--log.level=error",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            yield PrometheusProcess(process, client)
    finally:
        process.terminate()
        process.wait(timeout=60)

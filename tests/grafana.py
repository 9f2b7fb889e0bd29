"""The files for Prometheus and Grafana that the distribution holds."""

import json
from pathlib import Path
from typing import Any, Final

DATA: Final = Path(__file__).parents[1] / "telemetry" / "data"


def grafana_dashboard() -> dict[str, Any]:
    """The dashboard over what a sidecar exposes to Prometheus."""
    return json.loads((DATA / "grafana" / "voiceprobe.json").read_text(encoding="utf-8"))


def store_dashboard() -> dict[str, Any]:
    """The dashboard over the store of a sidecar."""
    return json.loads((DATA / "grafana" / "voiceprobe-store.json").read_text(encoding="utf-8"))

"""The curve of a capacity search as a picture: voice-to-voice over callers, the objective, and the capacity."""

from pathlib import Path
from textwrap import wrap
from typing import Final

from loadtest.capacity.report import Capacity
from telemetry.model.formatting import in_milliseconds
from telemetry.objectives.objective import Objective

TITLE_WIDTH: Final = 100
_RUN: Final = "search for capacity"


def draw(found: Capacity, objectives: list[Objective], folder: Path) -> list[Path]:
    """Write capacity.svg and capacity.png into a folder; the files. Nothing where no step has a figure."""
    steps = sorted((step for step in found.steps if step.voice_to_voice_ns), key=lambda step: step.callers)
    if not steps:
        return []
    from telemetry.charts.compared import load, with_intervals
    from telemetry.charts.drawing import LIGHT, Picture
    from telemetry.charts.static import image

    thresholds = [each.threshold for each in objectives if each.metric == "voice_to_voice" and each.threshold]
    objective_ms = in_milliseconds(thresholds[0]) if thresholds else None
    rows = [
        {
            "run": _RUN,
            "calls": step.callers,
            **{
                name: None if (value := getattr(step, f"{name}_ns")) is None else in_milliseconds(value)
                for name in ("p50", "p95", "p99")
            },
            **dict(zip(("lower", "upper"), map(in_milliseconds, step.p95_interval_ns or ()), strict=False)),
        }
        for step in steps
    ]
    shares = [
        {"name": "ok turns", "line": "ok", "place": str(step.callers), "value": 100 * step.ok_share}
        for step in steps
        if step.ok_share is not None
    ]
    spec = load([_RUN], LIGHT, objective_ms, found.met, found.missed)
    good = with_intervals(["ok turns"], [str(step.callers) for step in steps], "%", LIGHT, is_log=False)
    pictures = [
        Picture(rows, spec, "voice to voice by concurrent callers: p50, p95 and p99 from below, p95 with its interval"),
        Picture(shares, {**good, "height": 90}, "ok turns by concurrent callers"),
    ]
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / "capacity.svg", folder / "capacity.png"]
    for file in files:
        file.write_bytes(image(pictures, file.suffix[1:], wrap(found.sentence, TITLE_WIDTH)))
    return files

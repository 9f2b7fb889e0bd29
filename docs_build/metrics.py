"""Generates the page of metrics: each metric with its unit and definition, and the timestamps used to compute them."""

from dataclasses import fields
from typing import Any, Final

from docs_build.markdown import cell, code, page, table
from loadtest.conversation.evidence import ValidityLimits
from telemetry.model.bounds import BOUNDED
from telemetry.model.formatting import declared_figure, declared_milliseconds
from telemetry.model.metrics import DEFINITIONS, MIN_COUNT_FOR, TIMESTAMPS, MetricDefinition
from telemetry.model.semconv import FAILURE_LABELS, OUTCOME_LABELS
from telemetry.store.connection import EXACT_TURNS
from telemetry.store.schema import SIDES

UNITS: Final = {"ns": "s", "ratio": "", "count": "", "per_s": "1/s"}

INTRODUCTION: Final = """
All timestamps of a turn are integer nanoseconds of the caller's own monotonic clock. A metric has no value for a turn
if a timestamp that it needs is unknown; unknown is `null`, never 0. JSON and Prometheus give durations in seconds.
[What is measured](../explanation/what-is-measured.md) gives the reasons for the definitions.
"""
COLUMNS: Final = """
*Label* is the name that the terminal and the dashboard show. *Objective* says on which side of its threshold a turn is
good. *Column* is the name in the store, where durations are integer nanoseconds. *Bounds* are the columns with the
lowest and the highest value that the metric may truly have on a turn: `null` where that is not known, and the second
also where there is no highest value. A metric without them is counted, not timed, and exact.
"""
LIMITS: Final = """
Beyond the limit of frame lateness or drift a turn was not said as recorded and is `invalid`: it is counted and shown,
but left out of the service's figures. Beyond the others (a full socket did not take a frame for so long, or so many
frames were unsent), the endpoint did not read, and the turn stays valid: see [Validity](../explanation/validity.md).
"""


def metrics_page() -> str:
    """Return the page with metrics, timestamps, outcomes, and how many values a percentile needs."""
    rows = [_row(metric) for metric in DEFINITIONS.values()]
    needed = [(name, str(count)) for name, count in MIN_COUNT_FOR.items()]
    return page(
        "Metrics",
        INTRODUCTION,
        "## Metrics",
        COLUMNS,
        table(("Metric", "Label", "Unit", "Definition", "Objective", "Column", "Bounds"), rows),
        "## Timestamps of a turn",
        table(("Timestamp", "Meaning"), [(code(name), cell(text)) for name, text in TIMESTAMPS.items()]),
        "## Outcomes of a turn",
        "A turn ends with exactly one of these:",
        table(("Outcome", "Label"), [(code(name), label) for name, label in OUTCOME_LABELS.items()]),
        "A turn that ended otherwise than with `ok` has a cause, and where there is one a code:",
        table(("Cause", "Label"), [(code(name), label) for name, label in FAILURE_LABELS.items()]),
        "## Percentiles",
        "Percentiles are exact: they are computed from the value of every turn. On a page of more than "
        f"{EXACT_TURNS:,} turns they are estimates, marked with `≈`, with an interval that holds the exact one with "
        "95 % confidence; those of fewer than 100,000 values stay exact. With fewer values than this, a percentile is "
        "shown as “too few” and is `null` in JSON.",
        table(("Percentile", "Values needed"), needed),
        "## Limits of validity",
        LIMITS,
        table(("Evidence", "Limit"), [_limit(each.name, each.default) for each in fields(ValidityLimits)]),
    )


def _limit(name: str, value: Any) -> tuple[str, str]:
    """Return name and value of a limit; durations are in milliseconds."""
    shown = declared_milliseconds(value) if name.endswith("_ns") else declared_figure(value, "count")
    return cell(name.removesuffix("_ns").replace("_", " ")), shown


def _row(metric: MetricDefinition) -> tuple[str, ...]:
    bound = "at least" if metric.higher_is_better else "at most"
    unit = UNITS[metric.unit]
    return code(metric.name), metric.label, unit, cell(metric.definition), bound, code(metric.column), _bounds(metric)


def _bounds(metric: MetricDefinition) -> str:
    is_bounded = any(each.name == metric.name for each in BOUNDED)
    return ", ".join(code(metric.bound_column(side)) for side in SIDES) if is_bounded else ""

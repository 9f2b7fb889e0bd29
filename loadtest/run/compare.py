"""`voiceprobe compare`: two runs or more, each compared with the first, with intervals and a verdict by a margin."""

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from corpora.output_paths import unwritable
from loadtest.errors import UsageError
from loadtest.exit_codes import ExitCode
from loadtest.reports import comparison as reports
from loadtest.run.json_file import write_json, write_result
from loadtest.run.runs import list_default, named_runs
from telemetry.client_tls import sidecar_token
from telemetry.comparison import sentences
from telemetry.comparison.figures import STATISTICS
from telemetry.comparison.verdict import RegressionMargin, RunComparison
from telemetry.model.durations import Duration, DurationError
from telemetry.model.file_faults import nearest
from telemetry.model.metrics import DEFINITIONS, METRICS
from telemetry.objectives.slo import load_objectives
from telemetry.store.reader import open_store
from telemetry.store.run_folders.compared_entries import compare_entries, compared_by


@dataclass(frozen=True, slots=True)
class CompareRequest:
    """The request for a comparison: the runs, the baseline first, the margin, and where the result goes. Without `slo`,
    good turns are counted by the objectives of the baseline."""

    runs: tuple[str, ...]
    places: tuple[str, ...] = ()
    margin: str = "100ms"
    metric: str = "voice_to_voice"
    statistic: str = "p95"
    slo: Path | None = None
    json_file: Path | None = None
    html_file: Path | None = None
    markdown_file: Path | None = None


def compare(request: CompareRequest, console: Console) -> ExitCode:
    """Compare, print, write what is asked for. Raises UsageError, ConfigError, StoreError, OutputError."""
    margin = _checked(request)
    given = None if request.slo is None else load_objectives(request.slo)
    entries = named_runs(request.runs, lambda: list_default(request.places), may_repeat=False)
    comparisons = compare_entries(
        entries, margin, compared_by(entries, given), lambda store: open_store(store, sidecar_token())
    )
    for comparison in comparisons:
        _print(comparison, console)
    if len(comparisons) > 1:
        by_chance = "one verdict in forty may be wrong, and one pair in twenty that does not differ may have a mark"
        console.print(f"each comparison holds by itself; by chance, {by_chance}", style="dim", soft_wrap=True)
    if request.json_file is not None:
        write_json(request.json_file, reports.comparison_object(comparisons))
    if request.html_file is not None:
        from loadtest.reports.comparison_html import comparison_html  # imports what draws, which takes 0.3 s

        write_result(request.html_file, comparison_html(comparisons).encode())
    if request.markdown_file is not None:
        write_result(request.markdown_file, reports.comparison_markdown(comparisons).encode())
    return reports.exit_code(comparisons)


def _checked(request: CompareRequest) -> RegressionMargin:
    """The margin. Raises UsageError with a line for each fault."""
    faults: list[str] = []
    if len(request.runs) < 2:
        faults.append(f"{len(request.runs)} run: give two or more, the first is the baseline")
    if request.metric not in METRICS or DEFINITIONS[request.metric].unit != "ns":
        known = [name for name in METRICS if DEFINITIONS[name].unit == "ns"]
        hint = nearest(request.metric, tuple(known))
        faults.append(f"--metric {request.metric!r} is not a duration that is measured{hint}")
    if request.statistic not in STATISTICS:
        faults.append(f"--statistic {request.statistic!r} is not one of {', '.join(STATISTICS)}")
    value_ns = 0
    try:
        value_ns = Duration.parse(request.margin).ns
    except DurationError as error:
        faults.append(f"--margin {error}")
    else:
        if value_ns <= 0:
            faults.append(f"--margin {request.margin} is out of range: more than 0")
    outputs = (request.json_file, request.html_file, request.markdown_file)
    faults += [fault for file in outputs if file is not None and (fault := unwritable(file))]
    if faults:
        raise UsageError("\n".join(faults))
    return RegressionMargin(value_ns, request.metric, request.statistic)


def _print(comparison: RunComparison, console: Console) -> None:
    for line in sentences.context_lines(comparison):
        console.print(line, soft_wrap=True, markup=False, highlight=False)
    style = {"worse": "bold red", "within": "bold green", "undecided": "bold yellow"}[comparison.state]
    console.print(comparison.sentence, style=style, soft_wrap=True, markup=False, highlight=False)
    for title, differences in sentences.grouped(comparison):
        table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim", expand=True)
        for place, name in enumerate((title, *reports.NARROW_HEADINGS[1:])):
            is_figure = 0 < place < 4
            ratio = None if place else 1
            table.add_column(name, justify="right" if is_figure else "left", overflow="fold", ratio=ratio)
        for difference in differences:
            style = {True: "red", False: "green", None: None}[difference.is_worse]
            table.add_row(*reports.narrow_row(difference), style=style)
        console.print(table, markup=False)
    for line in sentences.footnotes(comparison):
        console.print(line, style="dim", soft_wrap=True, markup=False, highlight=False)
    console.print()

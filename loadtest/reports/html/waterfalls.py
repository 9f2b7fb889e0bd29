"""The slowest turns of a run as waterfalls: each on one clock, as heard and as the service reported it. Pure."""

from typing import Final

from loadtest.reports.run_report import SlowTurn
from telemetry.charts.drawing import Picture, Row
from telemetry.charts.run import waterfall
from telemetry.charts.static import PAGE, both_sizes
from telemetry.model import formatting
from telemetry.model.bounds import BOUNDED, turn_figures, turn_measured_within
from telemetry.model.formatting import NS_PER_MS, in_milliseconds
from telemetry.model.metrics import HEADLINE, METRICS, shown_in
from telemetry.model.waterfall import BAR_LABELS, BAR_NAMES, SIDE_LABELS, Bar, Waterfall

# Speech and reply last seconds, the stages between them a tenth of that: the picture is about the wait.
_LONG: Final = ("speech", "playing")
_BEFORE: Final = 0.16
_AFTER: Final = 0.24
_SHORTEST_NS: Final = 200.0 * NS_PER_MS


def view_ns(shown: Waterfall) -> tuple[float, float]:
    """From and to where the picture reaches: the whole wait, with some of the speech before and of the reply after."""
    ends = [bar.end_ns for bar in shown.bars if bar.name not in _LONG]
    begins = [bar.start_ns for bar in shown.bars if bar.name == "playing"]
    wait = max(float(max([*ends, *begins], default=0)), _SHORTEST_NS)
    return min(0.0, *begins, 0.0) - wait * _BEFORE, wait * (1 + _AFTER)


def heading(slow: SlowTurn) -> str:
    """Return how long the caller waited in this turn, and which stage took most of it."""
    heard, reported = slow.waterfall.client_voice_to_voice_ns, slow.waterfall.service_voice_to_voice_ns
    waited = formatting.milliseconds(reported if heard is None else heard)
    if heard is not None and (within := turn_measured_within(slow.turn, METRICS[HEADLINE])) is not None:
        waited += f" ({within})"
    longest = longest_stage(slow.waterfall)
    if longest is None:
        return waited
    return f"{waited}: {BAR_LABELS[longest.name]} took {formatting.milliseconds(longest.length_ns)}"


def longest_stage(shown: Waterfall) -> Bar | None:
    """The longest part of the wait, as the service reports it where it does; None where no stage is known."""
    stages = [bar for bar in shown.bars if bar.name not in _LONG and bar.length_ns > 0]
    reported = [bar for bar in stages if bar.source == "service" or bar.name in ("unexplained", "leading_silence")]
    has_service = any(bar.source == "service" for bar in stages)
    return max(reported if has_service else stages, key=lambda bar: bar.length_ns, default=None)


def about(slow: SlowTurn) -> list[tuple[str, str]]:
    """Return what a turn was: a name and a value for each thing that is known of it."""
    turn = slow.turn
    known = [
        ("utterance", turn.utterance_id),
        ("cohort", turn.cohort),
        ("route", turn.route),
        ("model", turn.model),
        ("cache", None if turn.cache_hit is None else "hit" if turn.cache_hit else "miss"),
        ("fallback", turn.fallback),
        ("noise", turn.noise_profile),
        ("call", f"{turn.call_id}, turn {turn.turn_index}"),
        ("trace", turn.trace_id or None),
    ]
    figures = turn_figures(turn, (METRICS[name] for name in shown_in("page") if METRICS[name] in BOUNDED))
    return [*((name, value) for name, value in known if value), *figures]


def rows(shown: Waterfall) -> list[tuple[str, str, str, str, str]]:
    """The bars as cells of a table: stage, side, begin, end, length."""
    return [
        (
            BAR_LABELS[bar.name],
            SIDE_LABELS[bar.source],
            formatting.signed_milliseconds(bar.start_ns),
            formatting.signed_milliseconds(bar.end_ns),
            formatting.milliseconds(bar.length_ns),
        )
        for bar in shown.bars
    ]


def draw(shown: Waterfall) -> str:
    """The picture: a line per stage, the caller's bar above the service's; zero is the end of the caller's speech."""
    low, high = view_ns(shown)
    seen = [bar for bar in shown.bars if bar.length_ns > 0 and bar.end_ns >= low and bar.start_ns <= high]
    names = [(name, BAR_LABELS[name]) for name in BAR_NAMES if any(bar.name == name for bar in seen)]
    rows: list[Row] = []
    for name, label in names:
        bars = [bar for bar in seen if bar.name == name]
        rows.append({"name": label, "figures": " / ".join(formatting.milliseconds(bar.length_ns) for bar in bars)})
        rows += [
            {
                "name": label,
                "place": int(bar.source == "service"),
                "low": in_milliseconds(bar.start_ns),
                "high": in_milliseconds(bar.end_ns),
                "text": f"{label}, {SIDE_LABELS[bar.source]}: {formatting.milliseconds(bar.length_ns)}",
            }
            for bar in bars
        ]
    origin = "the end of the speech" if shown.origin == "speech_end" else "the begin of the turn"
    spec = waterfall(names, (in_milliseconds(low), in_milliseconds(high)), origin, PAGE)
    return both_sizes(Picture(rows, spec, "One turn on one clock; the table has its figures"))

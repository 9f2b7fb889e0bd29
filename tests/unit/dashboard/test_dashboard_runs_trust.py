"""The chip of a list of runs, and what stands behind it."""

import re
from datetime import UTC
from html import unescape
from typing import Any

import pytest

from dashboard.descriptions import describe_loss
from dashboard.runs_trust import details, overview, runs_head, runs_trust
from telemetry.store.answers import TelemetryLoss
from telemetry.store.run_folders.entries import EntryState, RunEntry, missing_turns

WHOLE: dict[str, Any] = {"turns": 100, "missing_turns": 0, "calibrated_to_ms": 3.8}


def run(name: str, state: EntryState = "met", **changes: Any) -> RunEntry:
    return RunEntry(run_id=name, store="store", state=state, **{**WHOLE, **changes})


def words(html: str) -> str:
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", html))).strip()


GOING_ON = run("now", "under way", invalid=50, missing_turns=None, calibrated_to_ms=None)
CASES: list[tuple[list[RunEntry], str, str]] = [
    ([run("a"), run("b", calibrated_to_ms=4.25)], "met", "✓ valid · telemetry complete · calibrated ± 4.25 ms"),
    # What goes on counts for nothing.
    ([run("a"), GOING_ON], "met", "✓ valid · telemetry complete · calibrated ± 3.8 ms"),
    ([GOING_ON], "unknown", "○ no run has ended"),
    # Each part by itself.
    (
        [run("a"), run("b", invalid=3), run("c", invalid=1)],
        "unknown",
        "○ 4 of 300 turns invalid · telemetry complete · calibrated ± 3.8 ms",
    ),
    (
        [run("a"), run("b", "not judged", invalid=60, is_generator_limited=True)],
        "missed",
        "✕ 1 of 2 runs generator-limited · telemetry complete · calibrated ± 3.8 ms",
    ),
    # Not judged as it had no objective: nothing is wrong with its figures.
    ([run("a", "not judged")], "met", "✓ valid · telemetry complete · calibrated ± 3.8 ms"),
    (
        [run("a"), run("b", "damaged", turns=0, missing_turns=None, fault="torn"), run("c", fault="a segment")],
        "missed",
        "✕ 2 of 3 runs damaged · telemetry complete · calibrated ± 3.8 ms",
    ),
    (
        [run("a", is_generator_limited=True), run("b", "damaged", turns=0), run("c")],
        "missed",
        "✕ 1 of 3 runs generator-limited, 1 damaged · telemetry complete · calibrated ± 3.8 ms",
    ),
    (
        [run("a"), run("b", missing_turns=2), run("c", missing_turns=None)],
        "missed",
        "✕ valid · telemetry lost in 1 of 3 runs, not known for 1 · calibrated ± 3.8 ms",
    ),
    (
        [run("a"), run("b", missing_turns=None)],
        "unknown",
        "○ valid · telemetry loss not known for 1 of 2 runs · calibrated ± 3.8 ms",
    ),
    (
        [run("a", missing_turns=None), run("b", missing_turns=None)],
        "unknown",
        "○ valid · telemetry loss not known · calibrated ± 3.8 ms",
    ),
    (
        [run("a"), run("b"), run("c", calibrated_to_ms=None)],
        "unknown",
        "○ valid · telemetry complete · 2 of 3 runs calibrated",
    ),
    ([run("a", calibrated_to_ms=None)], "unknown", "○ valid · telemetry complete · not calibrated"),
    # Of one run what its own page says.
    (
        [run("a", is_generator_limited=True, missing_turns=7)],
        "missed",
        "✕ generator-limited · 7 turns lost · calibrated ± 3.8 ms",
    ),
    # A run that never reached its target has nothing to lose or to measure; one whose turns are all lost does.
    (
        [run("a"), run("b", "unreachable", turns=0, missing_turns=None, calibrated_to_ms=None)],
        "met",
        "✓ valid · telemetry complete · calibrated ± 3.8 ms",
    ),
    ([run("a", "unreachable", turns=0)], "unknown", "○ no turns"),
    (
        [run("a"), run("b", turns=0, missing_turns=9)],
        "missed",
        "✕ valid · telemetry lost in 1 of 2 runs · calibrated ± 3.8 ms",
    ),
    # What a service reports is not the instrument's to measure.
    (
        [run("a"), run("b", source="service", calibrated_to_ms=None)],
        "unknown",
        "○ 1 of 2 runs reported, not heard · telemetry complete · calibrated ± 3.8 ms",
    ),
    (
        [run("a", source="service", missing_turns=None, calibrated_to_ms=None)],
        "unknown",
        "○ reported, not heard · telemetry loss not known",
    ),
]


@pytest.mark.parametrize(("listed", "state", "label"), CASES)
def test_the_chip_says_what_weakens_the_list(listed: list[RunEntry], state: str, label: str) -> None:
    found = runs_trust(listed)
    assert (found.state, found.label) == (state, label)


def test_the_details_name_the_runs_that_weaken_it() -> None:
    listed = [
        run("a"),
        run("b", "not judged", invalid=60, is_generator_limited=True),
        run("c", "missed", missing_turns=2, calibrated_to_ms=4.5),
        *(run(f"d{place}", missing_turns=None, calibrated_to_ms=None) for place in range(5)),
        run("e", "damaged", turns=0, missing_turns=None, calibrated_to_ms=None, fault="torn"),
        run("f", source="service", calibrated_to_ms=None),
        GOING_ON,
    ]
    assert words(details(listed)) == (
        "runs 1 damaged, 7 met, 1 missed, 1 not judged, 1 under way "
        "turns ○ 60 of 900 turns invalid, in 1 run (b) "
        "generator ✕ the limit in 1 run (b): nothing is claimed about the service "
        "damaged ✕ 1 run (e) "
        "source ○ 1 run (f): reported by the service, heard by no caller of ours "
        "telemetry ✕ 2 turns lost on the way in 1 run (c); nothing lost in 3 runs; "
        "not known for 5 runs (d0, d1, d2, 2 more): no process said how many turns it sent "
        "calibration ○ 3 runs calibrated, to ± 4.5 ms at the widest (c); no calibration for 5 runs (d0, d1, d2, 2 more)"
    )


def test_where_nothing_is_wrong_the_details_say_so() -> None:
    assert words(details([run("a"), run("b")])) == (
        "runs 2 met turns ✓ none of 200 turns invalid generator ✓ the limit in no run "
        "telemetry ✓ nothing lost in 2 runs calibration ✓ 2 runs calibrated, to ± 3.8 ms at the widest (a)"
    )
    assert words(details([GOING_ON])) == "runs 1 under way"
    assert words(details([run("a", "unreachable", turns=0)])) == (
        "runs 1 unreachable turns ○ none generator ✓ the limit in no run"
    )


def test_the_overview_counts_the_turns_of_runs_that_have_ended() -> None:
    began = 1_764_210_600 * 1_000_000_000  # 2025-11-27 02:30 UTC
    listed = [run("a", began_unix_ns=began), run("b", began_unix_ns=began - 1), GOING_ON]
    assert words(overview(listed, 3, UTC)) == (
        "3 runs newest began 2025-11-27 02:30 200 turns 1 run under way, not counted"
    )
    assert words(overview(listed[:1], 3, UTC)) == "1 of 3 runs newest began 2025-11-27 02:30 100 turns"
    assert words(overview([run("a")], 1, UTC)) == "1 run newest began – 100 turns"


def test_the_head_stays_while_turns_of_a_run_come_in() -> None:
    later = run("now", "under way", turns=500)
    assert runs_head([run("a"), GOING_ON], 2, UTC) == runs_head([run("a"), later], 2, UTC)


def test_names_from_outside_are_text() -> None:
    hostile = "<img src=x>"
    listed = [run(hostile, invalid=1, calibrated_to_ms=None, missing_turns=1, is_generator_limited=True)]
    assert "<img" not in details(listed) + overview(listed, 1, UTC)


@pytest.mark.parametrize(("emitted", "missing"), [(None, 0), (None, 3), (180, 0), (180, 2)])
def test_loss_has_the_rule_of_the_page_of_a_run(emitted: int | None, missing: int) -> None:
    _, good = describe_loss(TelemetryLoss(processes=1, emitted=emitted, received=180, missing=missing))
    found = missing_turns(emitted, missing)
    assert (None if found is None else found == 0) == good

"""Trust in the figures of a list of runs, and of the page of objectives; and the filters of that page."""

import re
import shutil
import time
from collections.abc import Sequence
from datetime import UTC
from pathlib import Path
from typing import Any, Final

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.components.trust import runs_overview, runs_trust, turns_trust
from dashboard.descriptions import describe_loss
from telemetry.objectives.objective import Objective
from telemetry.store.answers import TelemetryLoss
from telemetry.store.questions.burn_rates import ObjectivesPage
from telemetry.store.reader import StoreReader
from telemetry.store.run_folders.entries import EntryState, RunEntry, missing_turns
from telemetry.store.schema import Batch
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import client_turn
from tests.unit.dashboard.measured_runs import HOUR, NOW, written
from tests.unit.dashboard.opened_pages import opened, plain, says, text_of

WHOLE: dict[str, Any] = {"turns": 100, "missing_turns": 0, "calibrated_to_ms": 3.8}


def run(name: str, state: EntryState = "met", **changes: Any) -> RunEntry:
    return RunEntry(run_id=name, store="store", state=state, **{**WHOLE, **changes})


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
    chip = runs_trust(listed)
    assert (chip.state, chip.label) == (state, label)


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
    assert plain(runs_trust(listed).details) == (
        "runs 1 damaged, 7 met, 1 missed, 1 not judged, 1 under way "
        "turns ○ 60 of 900 turns invalid, in 1 run (b) "
        "generator ✕ the limit in 1 run (b): no verdict on the service "
        "damaged ✕ 1 run (e) "
        "source ○ 1 run (f): reported by the service, heard by no caller of ours "
        "telemetry ✕ 2 turns lost on the way in 1 run (c); nothing lost in 3 runs; "
        "not known for 5 runs (d0, d1, d2, 2 more): no process said how many turns it sent "
        "calibration ○ 3 runs calibrated, to ± 4.5 ms at the widest (c); no calibration for 5 runs (d0, d1, d2, 2 more)"
    )


def test_trust_details_state_that_nothing_is_wrong() -> None:
    assert plain(runs_trust([run("a"), run("b")]).details) == (
        "runs 2 met turns ✓ none of 200 turns invalid generator ✓ the limit in no run "
        "telemetry ✓ nothing lost in 2 runs calibration ✓ 2 runs calibrated, to ± 3.8 ms at the widest (a)"
    )
    assert plain(runs_trust([GOING_ON]).details) == "runs 1 under way"
    assert plain(runs_trust([run("a", "unreachable", turns=0)]).details) == (
        "runs 1 unreachable turns ○ none generator ✓ the limit in no run"
    )


def test_the_overview_counts_the_turns_of_runs_that_have_ended() -> None:
    began = 1_764_210_600 * 1_000_000_000  # 2025-11-27 02:30 UTC
    listed = [run("a", began_unix_ns=began), run("b", began_unix_ns=began - 1), GOING_ON]
    assert plain(runs_overview(listed, 3, UTC)) == (
        "3 runs newest began 2025-11-27 02:30 200 turns 1 run under way, not counted"
    )
    assert plain(runs_overview(listed[:1], 3, UTC)) == "1 of 3 runs newest began 2025-11-27 02:30 100 turns"
    assert plain(runs_overview([run("a")], 1, UTC)) == "1 run newest began – 100 turns"


def test_runs_head_is_stable_during_run_and_escapes_names() -> None:
    before, after = [run("a"), GOING_ON], [run("a"), run("now", "under way", turns=500)]
    assert runs_overview(before, 2, UTC) == runs_overview(after, 2, UTC)
    assert runs_trust(before) == runs_trust(after)
    listed = [run("<img src=x>", invalid=1, calibrated_to_ms=None, missing_turns=1, is_generator_limited=True)]
    assert "<img" not in runs_trust(listed).details + runs_overview(listed, 1, UTC)


@pytest.mark.parametrize(("emitted", "missing"), [(None, 0), (None, 3), (180, 0), (180, 2)])
def test_loss_has_the_rule_of_the_page_of_a_run(emitted: int | None, missing: int) -> None:
    _, good = describe_loss(TelemetryLoss(processes=1, emitted=emitted, received=180, missing=missing))
    count = missing_turns(emitted, missing)
    assert (None if count is None else count == 0) == good


FAST = Objective("fast", "metric", 0.9, "voice_to_voice", 800e6)


def answered(folder: Path) -> ObjectivesPage:
    with StoreReader(folder, wall_clock_ns=lambda: NOW) as reader:
        return reader.objectives_page([FAST])


A: Final[dict[str, Any]] = {"run_id": "a", "turns": 40, "calibrated": "0.4"}
B: Final[dict[str, Any]] = {"run_id": "b", "turns": 10}
LIMITED: Final[dict[str, Any]] = {"run_id": "b", "turns": 30, "invalid": 10, "is_lost": True}
OF_SERVICE: Final[dict[str, Any]] = {"run_id": "service:x:2026-11-18", "turns": 30, "source": "service", "ends": False}


@pytest.mark.parametrize(
    ("runs", "label"),
    [
        ([A], "✓ valid · telemetry complete · calibrated ± 0.4 ms"),
        ([A, B | {"calibrated": "1.2"}], "✓ valid · telemetry complete · calibrated ± 1.2 ms"),
        (
            [A | {"turns": 400, "invalid": 2}, B],
            "○ 2 of 410 turns invalid · telemetry complete · 1 of 2 runs calibrated",
        ),
        ([A | {"lost": 3}, B | {"lost": 1}], "✕ valid · 4 turns lost · 1 of 2 runs calibrated"),
        ([B, A | {"ends": False, "calibrated": ""}], "○ valid · telemetry loss not known · not calibrated"),
        (
            [A, LIMITED],
            "○ 20 of 60 turns of generator-limited runs · telemetry complete · 1 of 2 runs calibrated",
        ),
        ([LIMITED], "✕ generator-limited · telemetry complete · not calibrated"),
        ([OF_SERVICE], "○ reported, not heard · telemetry loss not known"),
    ],
    ids=[
        "valid",
        "the widest bound",
        "invalid",
        "lost",
        "not reported",
        "limited among them",
        "limited",
        "of a service",
    ],
)
def test_the_chip_says_what_weakens_the_figures(tmp_path: Path, runs: Sequence[dict[str, Any]], label: str) -> None:
    for run in runs:
        written(tmp_path, **run)
    chip = turns_trust(answered(tmp_path).measured)
    assert chip.label == label
    assert chip.state == {"✓": "met", "○": "unknown", "✕": "missed"}[label[0]]


def test_the_details_say_each_part_in_full(tmp_path: Path) -> None:
    written(tmp_path, "a", 40, invalid=1, lost=2, calibrated="0.4")
    written(tmp_path, "b", 30, invalid=10, is_lost=True)
    says(
        turns_trust(answered(tmp_path).measured).details,
        *("runs 2 runs with 70 turns in 28 days", "11 invalid (15.7 %), which no figure counts"),
        *("20 of 59 valid turns are of 1 generator-limited run", "2 turns lost on the way (70 received)"),
        "calibration 1 of 2 runs calibrated, to ± 0.4 ms or better",
    )


def test_the_details_of_what_a_service_reports_claim_no_caller(tmp_path: Path) -> None:
    written(tmp_path, **OF_SERVICE)
    details = turns_trust(answered(tmp_path).measured).details
    says(details, "reported by the service, not heard by a caller", no=("calibration",))


@pytest.fixture(scope="module")
def stored_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Store 50 turns of cohort A, of which 10 under babble, as run-a, and 30 turns of cohort B as run-b."""
    store, now = tmp_path_factory.mktemp("two") / "store", time.time_ns()
    written(store, "run-a", 40, at=now - HOUR, cohort="A", length_class="short", route="cloud", noise_profile="clean")
    with StoreWriter(store) as writer:
        babble = [
            client_turn(
                index,
                run_id="run-a",
                process_id="worker-run-a",
                call_id=f"babble-{index}",
                span_id=f"babb1e00{index:08x}",
                started_unix_ns=now - HOUR,
                cohort="A",
                noise_profile="babble",
            )
            for index in range(40, 50)
        ]
        writer.append(Batch(babble))
    written(store, "run-b", 30, at=now - 2 * HOUR, cohort="B", noise_profile="clean")
    return store


@pytest.fixture
def two_runs(store: Path, stored_runs: Path) -> Path:
    """The dashboard's store is a copy of those runs."""
    shutil.copytree(stored_runs, store)
    return store


def selectors(app: AppTest) -> dict[str, Any]:
    return {selectbox.label: selectbox for selectbox in app.selectbox}


def counted(app: AppTest) -> int:
    """The turns of 28 days of the first objective that counts turns."""
    return int(re.findall(r"\d+ / (\d+) </td>|\d+ / (\d+) ", text_of(app))[-1][1])


@pytest.mark.slow
def test_run_and_cohort_are_visible_and_others_behind_filters(two_runs: Path) -> None:
    app = opened("objectives")
    options = selectors(app)
    assert list(options)[:5] == ["Run", "Cohort", "Length of the utterance", "Noise", "Route"]
    assert options["Run"].options[0] == "every run of this store"
    assert [option.split(" ")[0] for option in options["Run"].options[1:]] == ["run-b", "run-a"], (
        "the one that was stored last is first"
    )
    assert options["Cohort"].options == ["every cohort", "A", "B"]
    assert options["Noise"].options == ["any noise", "babble", "clean"]
    assert "every run of this store (2)" in text_of(app)
    assert "windows end at the current time" in text_of(app)
    assert counted(app) == 80


@pytest.mark.slow
@pytest.mark.parametrize(
    ("link", "turns", "sentence"),
    [
        ({"run": "run-a"}, 50, "run run-a"),
        ({"cohort": "B"}, 30, "every run of this store (1) cohort B"),
        ({"noise": "babble"}, 10, "every run of this store (1) noise babble"),
        ({"noise": "clean", "length": "short", "route": "cloud"}, 40, "length short noise clean route cloud"),
    ],
)
def test_a_link_narrows_the_page_which_says_so(two_runs: Path, link: dict[str, str], turns: int, sentence: str) -> None:
    app = opened("objectives", **link)
    assert sentence in text_of(app)
    assert counted(app) == turns
    assert [box.value for box in app.selectbox if box.label == "Run"] == [link.get("run", "")]


@pytest.mark.slow
def test_choice_is_in_link_and_keeps_time_of_other_pages(two_runs: Path) -> None:
    app = opened("objectives", window="5m", phase="hold")
    assert counted(app) == 80
    assert "whatever time and phase the link names for other pages" in text_of(app)
    selectors(app)["Run"].select("run-a").run()
    assert not app.exception
    assert app.query_params == {"run": "run-a", "window": "5m", "phase": "hold"}
    assert counted(app) == 50
    selectors(app)["Noise"].select("babble").run()
    selectors(app)["Run"].select("").run()
    assert app.query_params == {"noise": "babble", "window": "5m", "phase": "hold"}
    assert counted(app) == 10


@pytest.mark.slow
def test_a_choice_without_a_turn_says_so_below_the_selectors(two_runs: Path) -> None:
    for link, sentence in (
        ({"run": "gone"}, "That run is not in this store"),
        ({"run": "run-b", "noise": "babble"}, "No turn within 28 days matches the filter"),
    ):
        app = opened("objectives", **link)
        assert sentence in text_of(app)
        assert "run-a" in " ".join(selectors(app)["Run"].options)
    written(two_runs, "run-c", 5, invalid=5, at=time.time_ns() - HOUR)
    assert "5 turns match what is chosen above, all of them invalid" in text_of(opened("objectives", run="run-c"))
    assert "the link asks for length 'huge'" in text_of(opened("objectives", length="huge"))

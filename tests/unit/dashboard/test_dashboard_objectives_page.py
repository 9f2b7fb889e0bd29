"""The page of objectives: what its selectors narrow, what it says it is narrowed to, and its trust chip."""

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.turns_trust import turns_details, turns_trust
from telemetry.objectives.objective import Objective
from telemetry.store.questions.burn_rates import ObjectivesPage
from telemetry.store.reader import StoreReader
from telemetry.store.schema import Batch
from telemetry.store.writer import StoreWriter
from tests.fixtures_turns import client_turn
from tests.unit.dashboard.measured_runs import HOUR, NOW, written
from tests.unit.dashboard.opened_pages import opened, text_of

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
    found = turns_trust(answered(tmp_path).measured)
    assert found.label == label
    assert found.state == {"✓": "met", "○": "unknown", "✕": "missed"}[label[0]]


def test_the_details_say_each_part_in_full(tmp_path: Path) -> None:
    written(tmp_path, "a", 40, invalid=1, lost=2, calibrated="0.4")
    written(tmp_path, "b", 30, invalid=10, is_lost=True)
    text = re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", turns_details(answered(tmp_path).measured)))
    for part in (
        "runs 2 runs with 70 turns in 28 days",
        "11 invalid (15.7 %), which no figure counts",
        "20 of 59 valid turns are of 1 generator-limited run",
        "2 turns lost on the way (70 received)",
        "calibration 1 of 2 runs calibrated, to ± 0.4 ms or better",
    ):
        assert part in text, part


def test_the_details_of_what_a_service_reports_claim_no_caller(tmp_path: Path) -> None:
    written(tmp_path, **OF_SERVICE)
    details = turns_details(answered(tmp_path).measured)
    assert "reported by the service, not heard by a caller" in details
    assert "calibration" not in details


@pytest.fixture
def two_runs(store: Path) -> Path:
    """Of run-a 40 turns of cohort A, of which 10 under babble, and of run-b 30 turns of cohort B."""
    now = time.time_ns()
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


def selectors(app: AppTest) -> dict[str, Any]:
    return {each.label: each for each in app.selectbox}


def counted(app: AppTest) -> int:
    """The turns of 28 days of the first objective that counts turns."""
    return int(re.findall(r"\d+ / (\d+) </td>|\d+ / (\d+) ", text_of(app))[-1][1])


def test_run_and_cohort_are_in_sight_with_labels_and_the_rest_behind_filters(two_runs: Path) -> None:
    app = opened("objectives")
    found = selectors(app)
    assert list(found)[:5] == ["Run", "Cohort", "Length of the utterance", "Noise", "Route"]
    assert found["Run"].options[0] == "every run of this store"
    assert [option.split(" ")[0] for option in found["Run"].options[1:]] == ["run-b", "run-a"], (
        "the one that was stored last is first"
    )
    assert found["Cohort"].options == ["every cohort", "A", "B"]
    assert found["Noise"].options == ["any noise", "babble", "clean"]
    assert "every run of this store (2)" in text_of(app)
    assert "every window ends now" in text_of(app)
    assert counted(app) == 80


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


def test_what_is_chosen_is_in_the_link_and_the_time_of_other_pages_stays_there(two_runs: Path) -> None:
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

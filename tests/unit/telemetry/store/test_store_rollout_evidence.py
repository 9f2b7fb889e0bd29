"""Evidence of a rollout: units that met one cohort, turns of the service that the plan is about, and no turn of
before the rollout began."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from rich.console import Console

from loadtest.errors import UsageError
from loadtest.exit_codes import ExitCode
from loadtest.rollout.job import RolloutWatchRequest, watch
from loadtest.run.rollout_check import RolloutCheckRequest, check
from telemetry.model.errors import ConfigError
from telemetry.model.services import service_run_id
from telemetry.model.turns import Turn
from telemetry.objectives.slo import default_objectives
from telemetry.rollout.completeness import UnitCounts
from telemetry.rollout.plan import conflicts
from telemetry.rollout.plan_document import parse_plan
from telemetry.sidecar.rollouts.evaluation import RolloutEvaluator
from telemetry.sidecar.rollouts.settings import RolloutSetting
from telemetry.store.questions.cohorts import CohortsQuestion
from telemetry.store.reader import StoreReader
from telemetry.store.schema import Batch
from telemetry.store.writer import StoreWriter
from tests.fixtures_rollouts import read_rollouts
from tests.fixtures_turns import SECOND, START_UNIX_NS, Run, client_turn, fill_store
from tests.rollout_cohorts import latencies_ms

BEGINS = "begins = 2026-09-21T14:13:20Z\n"  # START_UNIX_NS
PLAN = """
name = "{name}"
unit = "{unit}"
source = "{source}"
{begins}{more}
[cohorts]
control = "stable"
candidate = "canary"
[primary]
margin = "400ms"
[[stages]]
name = "half"
share = 0.5
shortest = "0s"
[[guardrails]]
check = "tail"
margin = 0.1
{limits}
"""
NOW = START_UNIX_NS + 10_000 * SECOND


def plan_text(**changes: str) -> str:
    of = {"name": "canary", "unit": "call", "source": "client", "begins": BEGINS, "more": "", "limits": ""}
    return PLAN.format(**of | changes)


def turns_of(
    cohort: str,
    *,
    count: int = 900,
    slower_ms: float = 0.0,
    start_unix_ns: int = START_UNIX_NS,
    of: Callable[[int], dict[str, Any]] = lambda _call: {},
    name: str = "",
) -> list[Turn]:
    """Turns of a cohort by calls of several turns; `of` gives further fields by the call's number."""
    values, calls = latencies_ms(np.random.default_rng(len(cohort) + len(name)), count)
    first = abs(sum(map(ord, cohort + name))) * 100_000
    return [
        msgspec.structs.replace(
            client_turn(first + index, voice_to_voice_ms=float(value) + slower_ms),
            cohort=cohort,
            process_id=f"{cohort}-{name}",
            sequence=index,
            started_unix_ns=start_unix_ns + index * SECOND,
            **{"call_id": f"{cohort}-{name}-{call}"} | of(int(call)),
        )
        for index, (value, call) in enumerate(zip(values, calls, strict=True))
    ]


def of_service(service: str) -> Callable[[int], dict[str, Any]]:
    return lambda _call: {"source": "service", "run_id": service_run_id(service, START_UNIX_NS)}


def checked(
    folder: Path, text: str, turns: Sequence[Turn], now_unix_ns: int = NOW, **asked: Any
) -> tuple[ExitCode, str]:
    """A look by the command at a store of these turns."""
    store = folder / "store"
    if turns:
        fill_store(store, Run(turns=list(turns)))
    plan = folder / "rollout.toml"
    plan.write_text(text)
    output = StringIO()
    request = RolloutCheckRequest(plan, str(store), **asked)
    code = check(request, Console(file=output, width=400), now_unix_ns=now_unix_ns)
    return code, output.getvalue()


# --- units that met both cohorts


def user(call: int) -> dict[str, Any]:
    return {"user_id": f"pseudonym-{call:032x}"}


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["user", "call"])
def test_units_that_met_both_cohorts_hold(tmp_path: Path, unit: str) -> None:
    """Every user calls twice and meets both; or calls whose turns name one cohort, then the other."""
    same = {"user": user, "call": lambda call: {"call_id": f"call-{call}"}}[unit]
    turns = [*turns_of("canary", of=same), *turns_of("stable", of=same)]
    units = {turn.user_id if unit == "user" else turn.call_id for turn in turns}
    code, printed = checked(tmp_path, plan_text(unit=unit), turns, json_file=tmp_path / "v.json")
    assert code is ExitCode.UNDECIDED
    met = [{turn.cohort for turn in turns if name in (turn.user_id, turn.call_id)} for name in units]
    both = sum(len(cohorts) == 2 for cohorts in met)
    assert f"{both} of {len(units)} {unit}s met both cohorts" in printed
    assert f"and the plan allows 1 %: let a {unit} keep its cohort" in printed
    decoded = msgspec.json.decode((tmp_path / "v.json").read_bytes())
    assert (decoded["units"]["unit"], decoded["units"]["seen"], decoded["units"]["contaminated"]) == (
        unit,
        len(units),
        both,
    )
    for role, name in (("candidate", "canary"), ("control", "stable")):
        assert decoded["units"][role] == {"known": sum(cohorts == {name} for cohorts in met), "unnamed_calls": 0}


def test_worse_candidate_with_contaminated_units_is_held(tmp_path: Path) -> None:
    turns = [*turns_of("canary", of=user, slower_ms=900), *turns_of("stable", of=user)]
    code, printed = checked(tmp_path, plan_text(unit="user"), turns)
    assert code is ExitCode.UNDECIDED
    assert "met both cohorts" in printed


@pytest.mark.parametrize("unit", ["user", "call"])
@pytest.mark.parametrize(("allowed", "code"), [("0.02", ExitCode.OK), ("0.005", ExitCode.UNDECIDED)])
def test_the_plan_says_how_many_may_have(tmp_path: Path, allowed: str, code: ExitCode, unit: str) -> None:
    """Two users of some two hundred, or the one call of each, met both: about 1 %. They are no part of the split."""
    mine, theirs = turns_of("canary", of=user), turns_of("stable", of=lambda call: user(call + 1000))
    swapped = [msgspec.structs.replace(turn, cohort="stable") for turn in mine if turn.call_id in _calls(mine, 2)]
    turns = [*mine, *theirs, *(msgspec.structs.replace(t, span_id=t.span_id[::-1], sequence=None) for t in swapped)]
    limits = f"[completeness]\ncontaminated_units = {allowed}"
    returned, verdict = verdict_of(tmp_path, plan_text(unit=unit, limits=limits), turns)
    units = len({turn.user_id for turn in turns})
    assert returned is code
    met = f"2 of {units} {unit}s met both cohorts"
    if code is ExitCode.OK:
        assert verdict["notes"][-1] == f"{met}, of which the plan allows 2 %"
    else:
        assert verdict["reasons"] == [f"{met} (0.9 %), and the plan allows 0.5 %: let a {unit} keep its cohort"]
    known = [len({turn.call_id for turn in side}) for side in (mine, theirs)]
    assert [verdict["units"][role]["known"] for role in ("candidate", "control")] == [known[0] - 2, known[1]]
    assert verdict["sample_ratio"]["share"] == (known[0] - 2) / (sum(known) - 2)


def _calls(turns: Sequence[Turn], count: int) -> set[str]:
    return set(sorted({turn.call_id for turn in turns})[:count])


@pytest.mark.slow
def test_units_are_counted_as_the_page_counts_them(tmp_path: Path) -> None:
    same = [*turns_of("canary", of=user), *turns_of("stable", of=user)]
    store = fill_store(tmp_path / "store", Run(turns=same))
    file = tmp_path / "rollout.toml"
    file.write_text(plan_text(unit="user"))
    with StoreReader(store, wall_clock_ns=lambda: NOW) as reader:
        evaluator = RolloutEvaluator(store, [RolloutSetting("canary", str(file))], (), reader, lambda: NOW, 60.0)
        assert evaluator.look("canary").decision == "hold"
        evaluator.close()
        page = reader.cohorts_page(CohortsQuestion())
        narrowed = reader.cohorts_page(CohortsQuestion(turns="chosen"))
    users = len({turn.user_id for turn in same})
    assert page.comparison is not None
    assert narrowed.comparison is not None
    assert page.comparison.units == narrowed.comparison.units == UnitCounts(users, users)
    assert narrowed.sentence is not None
    assert narrowed.sentence.is_incomplete
    assert f"{users} of {users} users met both cohorts" in narrowed.sentence.sentence


def verdict_of(folder: Path, text: str, turns: Sequence[Turn]) -> tuple[ExitCode, dict[str, Any]]:
    code, printed = checked(folder, text, turns, json_file=folder / "v.json")
    decoded = msgspec.json.decode((folder / "v.json").read_bytes())
    for note in decoded["notes"]:
        assert f"note: {note}" in printed
    return code, decoded


def naming(first: int, unnamed: Callable[[int], bool]) -> Callable[[int], dict[str, Any]]:
    """Twelve calls of each user, and further ones of users who called once; of some calls nothing says whose."""
    return lambda call: {} if unnamed(call) else user(first + (call // 12 if call < 60 else call))


@pytest.mark.parametrize(
    ("of_canary", "of_stable", "note"),
    [
        (lambda _call: False, lambda _call: False, "in the split of "),
        (lambda call: call % 10 == 0, lambda call: call % 9 == 0, "unnamed calls are of, a loss of "),
        (lambda _call: True, lambda _call: False, "the split is not known: 0 % of "),
        (lambda _call: False, lambda _call: True, "the split is not known: 100 % of "),
        (lambda _call: True, lambda _call: True, "the split was not tested: users are assigned, and none is known"),
    ],
    ids=["all named", "some unnamed", "of the candidate none", "of the control none", "none"],
)
def test_the_split_is_tested_over_the_users_that_are_known(
    tmp_path: Path, of_canary: Callable[[int], bool], of_stable: Callable[[int], bool], note: str
) -> None:
    """Equally many users on each side, of whom some call often, are no mismatch, however users and calls mix."""
    turns = [
        *turns_of("canary", of=naming(0, of_canary)),
        *turns_of("stable", of=naming(10_000, of_stable)),
    ]
    code, verdict = verdict_of(tmp_path, plan_text(unit="user"), turns)
    assert code is ExitCode.OK, verdict["reasons"]
    assert any(note in line for line in verdict["notes"]), verdict["notes"]
    unnamed = sum(turn.user_id is None for turn in turns)
    assert any(f"{unnamed:,} turns of {len(turns):,} name no user" in line for line in verdict["notes"]) is bool(
        unnamed
    )
    for role, name in (("candidate", "canary"), ("control", "stable")):
        mine = [turn for turn in turns if turn.cohort == name]
        assert verdict["units"][role] == {
            "known": len({turn.user_id for turn in mine if turn.user_id is not None}),
            "unnamed_calls": len({turn.call_id for turn in mine if turn.user_id is None}),
        }
    ratio = verdict["sample_ratio"]
    if ratio is not None:
        known = [verdict["units"][role]["known"] for role in ("candidate", "control")]
        assert ratio["share"] == known[0] / sum(known)
        assert ratio["detection_probability"] == 0.8


def test_lost_users_are_detected_among_unknown_ones(tmp_path: Path) -> None:
    turns = [
        *turns_of("canary", count=300, of=naming(0, lambda call: call == 1)),
        *turns_of("stable", of=naming(10_000, lambda call: call % 30 == 1)),
    ]
    code, verdict = verdict_of(tmp_path, plan_text(unit="user"), turns)
    assert code is ExitCode.UNDECIDED
    assert verdict["reasons"][0].startswith("sample-ratio mismatch: ")
    assert " users that are known are on canary, 50 % planned (p = " in verdict["reasons"][0]


@pytest.mark.slow
def test_user_named_in_one_turn_is_user_of_whole_call(tmp_path: Path) -> None:
    """And so one of both cohorts, where that call went from one to the other."""

    def named(turns: list[Turn]) -> list[Turn]:
        calls = list(dict.fromkeys(turn.call_id for turn in turns))
        first = {turn.call_id: turn.span_id for turn in reversed(turns)}
        return [
            msgspec.structs.replace(turn, **user(calls.index(turn.call_id) + 10_000 * (turn.cohort == "stable")))
            if first[turn.call_id] == turn.span_id
            else turn
            for turn in turns
        ]

    mine, theirs = named(turns_of("canary")), named(turns_of("stable"))
    calls = [len({turn.call_id for turn in side}) for side in (mine, theirs)]
    code, verdict = verdict_of(tmp_path / "apart", plan_text(unit="user"), [*mine, *theirs])
    assert code is ExitCode.OK
    assert [verdict["units"][role]["known"] for role in ("candidate", "control")] == calls
    assert (verdict["units"]["unnamed_calls"], verdict["units"]["contaminated"]) == (0, 0)
    moved = [msgspec.structs.replace(t, cohort="stable", sequence=None) if t.user_id is None else t for t in mine]
    code, verdict = verdict_of(tmp_path / "moved", plan_text(unit="user"), [*moved, *theirs])
    several = sum(len([turn for turn in mine if turn.call_id == call]) > 1 for call in {t.call_id for t in mine})
    assert verdict["units"]["contaminated"] == several
    assert code is ExitCode.UNDECIDED


@pytest.mark.slow
def test_unnamed_calls_that_met_both_cohorts_are_named_calls(tmp_path: Path) -> None:
    same = [
        *turns_of("canary", of=lambda call: {"call_id": f"call-{call}"}),
        *turns_of("stable", of=lambda call: {"call_id": f"call-{call}"}),
    ]
    code, verdict = verdict_of(tmp_path, plan_text(unit="user"), same)
    assert code is ExitCode.UNDECIDED
    assert " users and calls that name none met both cohorts" in verdict["reasons"][0]
    assert verdict["sample_ratio"] is None


# --- turns that name no cohort


@pytest.mark.parametrize(("lost", "code"), [(40, ExitCode.UNDECIDED), (4, ExitCode.OK)])
def test_turns_of_a_call_that_name_no_cohort_are_missing_ones(tmp_path: Path, lost: int, code: ExitCode) -> None:
    """Where the flag is on the span of a stage, a turn whose stage never came names none. It would leave the comparison
    to the others of its call, and these are the quicker ones."""
    turns = [*turns_of("canary", of=of_service("desk")), *turns_of("stable", of=of_service("desk"))]
    for place in range(7, 7 + 3 * lost, 3):
        turns[place] = msgspec.structs.replace(turns[place], cohort=None, first_audio_perf_ns=None)
    # Of a call of which no turn names a cohort, nothing is known.
    turns.append(client_turn(9, cohort=None, source="service", run_id=turns[0].run_id, process_id="other"))
    returned, printed = checked(tmp_path, plan_text(source="service"), turns, json_file=tmp_path / "v.json")
    assert returned is code, printed
    verdict = msgspec.json.decode((tmp_path / "v.json").read_bytes())
    counted = f"{lost} of 900 turns of calls of canary name no cohort"
    if code is ExitCode.OK:
        assert f"{counted}, and count nowhere" in verdict["notes"]
    else:
        assert verdict["reasons"] == [f"{counted} (4.4 %), and the plan allows 1 %: let the span of every turn name it"]


# --- services


def two_services() -> list[Turn]:
    """One whose canary is fine, and one whose canary is slower; both name their variants alike."""
    return [
        *turns_of("canary", of=of_service("desk"), name="desk"),
        *turns_of("stable", of=of_service("desk"), name="desk"),
        *turns_of("canary", of=of_service("sales"), name="sales", slower_ms=2000),
        *turns_of("stable", of=of_service("sales"), name="sales"),
    ]


@pytest.fixture(scope="module")
def of_services(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store of their turns."""
    folder = tmp_path_factory.mktemp("services")
    fill_store(folder / "store", Run(turns=two_services()))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("services", "code", "sentence"),
    [
        (
            "",
            ExitCode.UNDECIDED,
            "turns of 2 services name these cohorts (desk, sales), and the plan names none: write those that it is "
            'about into it, as services = ["desk"]',
        ),
        ('services = ["desk"]', ExitCode.OK, "promote canary"),
        ('services = ["sales"]', ExitCode.OBJECTIVE_MISSED, "roll back canary"),
        (
            'services = ["dask"]',
            ExitCode.UNDECIDED,
            "the plan is about dask, and turns of desk, sales name its cohorts",
        ),
    ],
)
def test_a_plan_is_judged_by_the_service_that_it_names(
    of_services: Path, services: str, code: ExitCode, sentence: str
) -> None:
    returned, printed = checked(of_services, plan_text(source="service", more=services), [])
    assert returned is code
    assert sentence in printed


@pytest.mark.slow
def test_a_plan_without_a_service_stays_valid_where_there_is_one(tmp_path: Path) -> None:
    assert checked(tmp_path, plan_text(source="service"), two_services()[:1800])[0] is ExitCode.OK


def target(address: str) -> Callable[[int], dict[str, Any]]:
    return lambda call: {"target": f"{address}/v1/realtime?user_id={call}"}


@pytest.mark.slow
def test_each_cohort_of_callers_has_one_endpoint(tmp_path: Path) -> None:
    """Cohorts are often two addresses of one service; two load tests in one store are not."""
    canary = turns_of("canary", of=target("ws://canary:80"))
    apart = [*canary, *turns_of("stable", of=target("ws://stable:80"))]
    assert checked(tmp_path / "apart", plan_text(), made(tmp_path / "apart", apart))[0] is ExitCode.OK
    mixed = [
        *apart,
        *turns_of("stable", of=target("wss://Other:80"), name="x"),
        *turns_of("canary", of=target("wss://Other:80"), name="x", slower_ms=2000),
    ]
    code, printed = checked(tmp_path / "mixed", plan_text(), made(tmp_path / "mixed", mixed))
    assert code is ExitCode.UNDECIDED
    assert "turns of 3 endpoints name these cohorts (canary:80, other:80, stable:80), and the plan" in printed
    named = plan_text(more='services = ["ws://canary:80/v1/realtime", "stable:80"]')
    assert checked(tmp_path / "mixed", named, [])[0] is ExitCode.OK


@pytest.mark.slow
def test_a_page_shows_no_burn_rates_of_other_services(tmp_path: Path) -> None:
    store = fill_store(tmp_path / "store", Run(turns=two_services()))
    file = tmp_path / "rollout.toml"
    for name, more in (("canary", 'services = ["desk"]'), ("any", "")):
        file.write_text(plan_text(name=name, source="service", more=more))
        with StoreReader(store, wall_clock_ns=lambda: NOW) as reader:
            evaluator = RolloutEvaluator(store, [RolloutSetting(name, str(file))], (), reader, lambda: NOW, 60.0)
            assert evaluator.look(name).decision == ("promote" if more else "hold")
            evaluator.close()
            page = reader.rollout_page(name, default_objectives())
        assert page.progress is not None
        assert (page.budgets == (), page.measured is None) == (bool(more), bool(more))


def made(folder: Path, turns: list[Turn]) -> list[Turn]:
    folder.mkdir()
    return turns


def test_plans_of_different_services_may_share_cohort_names() -> None:
    desk, sales, other = (
        parse_plan(plan_text(name=name, more=more), name)
        for name, more in (("a", 'services = ["desk"]'), ("b", 'services = ["sales"]'), ("c", ""))
    )
    assert conflicts([desk, sales]) == []
    assert len(conflicts([desk, other])) == 2  # without a service it may be about the same turns


def test_a_service_is_named_by_a_text() -> None:
    with pytest.raises(ConfigError, match="services"):
        parse_plan(plan_text(more='services = ["", 3]'), "x")


# --- when the evidence begins


class Rollouts:
    """A sidecar's evaluator over a real store, with its clock."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store, self.now = folder, folder / "store", NOW
        self.writer = StoreWriter(self.store)

    def add(self, *turns: Turn) -> None:
        self.writer.append(Batch(turns=list(turns)))

    def look(self, name: str) -> str:
        """A look by a process of its own: nothing is remembered but what is on disk."""
        file = self.folder / f"{name}.toml"
        file.write_text(plan_text(name=name, begins=""))
        with StoreReader(self.store, wall_clock_ns=lambda: self.now) as reader:
            setting = RolloutSetting(name, str(file))
            evaluator = RolloutEvaluator(self.store, [setting], (), reader, lambda: self.now, 60.0)
            state = evaluator.look(name)
            evaluator.close()
        return f"{state.decision}: {state.sentence}"


@pytest.fixture
def rollouts(tmp_path: Path) -> Iterator[Rollouts]:
    written = Rollouts(tmp_path)
    yield written
    written.writer.close()


@pytest.mark.slow
def test_second_rollout_is_not_rolled_back_by_turns_of_first(rollouts: Rollouts) -> None:
    rollouts.now = START_UNIX_NS - SECOND
    assert rollouts.look("first").startswith("hold")
    rollouts.add(*turns_of("canary", slower_ms=2000), *turns_of("stable"))
    rollouts.now = NOW
    assert rollouts.look("first").startswith("roll_back")
    assert "begin another rollout, under another name" in rollouts.look("first")
    second = rollouts.look("second")
    assert second.startswith("hold")
    assert "no turn of the candidate canary has arrived since 2026-09-21 17:00:00 UTC" in second
    # The first look is when it began, also for a process that comes later; turns of then are judged.
    rollouts.now += 10_000 * SECOND
    after = {"start_unix_ns": NOW + SECOND, "name": "2"}
    rollouts.add(*turns_of("canary", **after), *turns_of("stable", **after))
    assert rollouts.look("second").startswith("promote")
    (_, record) = read_rollouts(rollouts.store)
    assert {entry.since_unix_ns for entry in record.entries} == {NOW}
    assert rollouts.look("first").startswith("roll_back")


@pytest.mark.slow
def test_a_check_without_a_beginning_says_what_to_give(tmp_path: Path) -> None:
    turns = [*turns_of("canary"), *turns_of("stable")]
    text, history = plan_text(begins=""), tmp_path / "history.json"
    at_rest = "is at rest, so that no turn can come after this look; give --since 2026-11-02T08:00:00Z, or write begins"
    for asked in ({}, {"history_file": history}):
        with pytest.raises(UsageError, match=at_rest):
            checked(tmp_path, text, turns if not asked else [], **asked)
    assert not history.exists()
    since = {"since": "2026-09-21T14:13:20Z"}
    assert checked(tmp_path, text, [], **since)[0] is ExitCode.OK
    # A history keeps what --since said.
    assert checked(tmp_path, text, [], history_file=history, **since)[0] is ExitCode.OK
    assert checked(tmp_path, text, [], NOW + SECOND, history_file=history)[0] is ExitCode.OK


@pytest.mark.slow
def test_a_watch_of_a_store_at_rest_is_refused_too(tmp_path: Path) -> None:
    checked(tmp_path, plan_text(), [*turns_of("canary"), *turns_of("stable")])
    (tmp_path / "rollout.toml").write_text(plan_text(begins=""))
    asked = RolloutWatchRequest(tmp_path / "rollout.toml", str(tmp_path / "store"), until_verdict=True)
    with pytest.raises(UsageError, match="nothing says when the rollout canary began"):
        watch(asked, Console(file=StringIO()))
    since = replace(asked, since="2026-09-21T14:13:20Z")
    assert watch(since, Console(file=StringIO())) is ExitCode.OK


@pytest.mark.slow
def test_check_of_live_store_begins_at_its_first_look(rollouts: Rollouts) -> None:
    text, history = plan_text(begins=""), rollouts.folder / "history.json"
    rollouts.add(*turns_of("canary", slower_ms=2000), *turns_of("stable"))
    with pytest.raises(UsageError, match="each look would be the first one without --history"):
        checked(rollouts.folder, text, [])
    code, printed = checked(rollouts.folder, text, [], history_file=history)
    assert code is ExitCode.UNDECIDED
    assert "no turn of the candidate canary has arrived since 2026-09-21 17:00:00 UTC" in printed
    after = {"start_unix_ns": NOW + SECOND, "name": "2"}
    rollouts.add(*turns_of("canary", **after), *turns_of("stable", **after))
    assert checked(rollouts.folder, text, [], NOW + 10_000 * SECOND, history_file=history)[0] is ExitCode.OK


@pytest.mark.slow
def test_a_check_goes_by_the_log_of_the_store_where_there_is_one(rollouts: Rollouts) -> None:
    rollouts.now = START_UNIX_NS - SECOND
    rollouts.look("first")
    rollouts.add(*turns_of("canary", slower_ms=2000), *turns_of("stable"))
    code, printed = checked(rollouts.folder, plan_text(name="first", begins=""), [])
    assert code is ExitCode.OBJECTIVE_MISSED
    assert "since 2026-09-21 14:13:19 UTC" in printed


def test_settings_absent_from_plan_do_not_change_fingerprint() -> None:
    plain = parse_plan(plan_text(), "x")
    limits = ("contaminated_units", "unassigned_turns")
    for name in limits:
        stated = parse_plan(plan_text(limits=f"[completeness]\n{name} = 0.01"), "x")
        assert plain.fingerprint == stated.fingerprint
    others = {"more": 'services = ["desk"]'}, *({"limits": f"[completeness]\n{name} = 0.02"} for name in limits)
    prints = {parse_plan(plan_text(**other), "x").fingerprint for other in others}
    assert len({plain.fingerprint, *prints}) == 4
    assert replace(plain, services=()).fingerprint == plain.fingerprint


# --- caches, which a plan watches by default


@pytest.mark.parametrize(
    ("more", "code", "reason"),
    [
        (
            "",
            ExitCode.OBJECTIVE_MISSED,
            "roll back canary at stage half: share of turns that no cache answered is worse",
        ),
        ("cache_misses = false\n", ExitCode.OK, "promote canary at stage half"),
    ],
)
def test_candidate_with_fewer_cache_hits_is_rolled_back(tmp_path: Path, more: str, code: ExitCode, reason: str) -> None:
    def hits(share: float) -> Callable[[int], dict[str, Any]]:
        answered = np.random.default_rng(8).random(1000) < share
        return lambda call: {"cache_hit": bool(answered[call])}

    turns = [*turns_of("canary", of=hits(0.1)), *turns_of("stable", of=hits(0.9))]
    returned, printed = checked(tmp_path, plan_text(more=more), turns)
    assert (returned, printed.startswith(reason)) == (code, True), printed

"""One run, one verdict: the command's JSON, the list of runs and the Now page say the same of each kind of run."""

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from dashboard.components.trust import trust
from dashboard.pages import now
from dashboard.source import ObjectivesInForce, Source
from loadtest.exit_codes import ExitCode
from loadtest.reports.summary import summary_object
from loadtest.run.artifacts import SUMMARY
from loadtest.run.judged_run import judged_run
from telemetry.model.turns import Turn
from telemetry.objectives.slo import default_objectives
from telemetry.store.reader import StoreReader
from telemetry.store.run_folders.catalog import RunCatalog
from tests.fixtures_turns import Run
from tests.run_folders import latency_run, run_folder

OBJECTIVES = default_objectives()


def met() -> Run:
    return latency_run("r-1", 150)


def missed() -> Run:
    return latency_run("r-1", 150, llm_ms=500)


def undecided() -> Run:
    return latency_run("r-1", 5)


def invalid_turns(run: Run | None = None) -> Run:
    """Make a run whose objective is met by the valid turns, and would not be if the others were bad."""
    run = met() if run is None else run
    run.turns = [
        msgspec.structs.replace(turn, outcome="invalid", outcome_observed="ok", invalid_reasons=("frame lateness",))
        if turn.source == "client" and number % 20 == 0
        else turn
        for number, turn in enumerate(run.turns)
    ]
    return run


def missed_anyway() -> Run:
    return invalid_turns(missed())


def off_by(name: str, run: Run) -> Run:
    """A run whose every tenth turn took 790 to 810 ms, with one of its stamps off by 20 ms."""
    exact = {
        field: 0 for field in Turn.__struct_fields__ if field.endswith(("_earlier_ns", "_later_ns", "_uncertainty_ns"))
    }
    exact |= dict.fromkeys(("stamp_error_ns", "held_up_ns", "held_up_speaking_ns"), 0)
    for number, turn in enumerate(run.turns):
        if turn.source == "client" and turn.speech_end_perf_ns is not None:
            own: dict[str, object] = dict(exact)
            if number % 20 == 0:
                own |= {name: 20_000_000, "first_audio_perf_ns": turn.speech_end_perf_ns + 805_000_000}
            run.turns[number] = msgspec.structs.replace(turn, **own)
    return run


def held_up() -> Run:
    return off_by("held_up_ns", met())


def annotated() -> Run:
    return off_by("speech_end_uncertainty_ns", met())


def missed_and_held_up() -> Run:
    return off_by("held_up_ns", missed())


def lost_process() -> Run:
    """The objectives are met; the second process never announced its end."""
    run = met()
    run.spans = [
        span
        for span in run.spans
        if (span.attributes["voice.run.process_id"], span.attributes["voice.run.phase"]) != ("r-1-worker-1", "end")
    ]
    return run


def unreached() -> Run:
    """Each call was refused."""
    run = missed()
    refused = {
        name: None
        for name in Turn.__struct_fields__
        if name.endswith("_perf_ns") and name not in ("started_perf_ns", "ended_perf_ns")
    }
    run.turns = [
        msgspec.structs.replace(
            turn,
            outcome="error",
            outcome_reason="cannot connect to 127.0.0.1:41883: Connection refused",
            call_id=f"call-{number}",
            turn_index=0,
            connect_ns=None,
            **refused,
        )
        for number, turn in enumerate(run.turns)
        if turn.source == "client"
    ]
    return run


KINDS: dict[Callable[[], Run], tuple[str, str, ExitCode]] = {
    met: ("met", "met", ExitCode.OK),
    missed: ("missed", "missed", ExitCode.OBJECTIVE_MISSED),
    undecided: ("undecided", "undecided", ExitCode.UNDECIDED),
    invalid_turns: ("undecided", "undecided", ExitCode.GENERATOR_LIMITED),
    missed_anyway: ("missed", "missed", ExitCode.OBJECTIVE_MISSED),
    held_up: ("undecided", "undecided", ExitCode.GENERATOR_LIMITED),
    annotated: ("undecided", "undecided", ExitCode.UNDECIDED),
    missed_and_held_up: ("missed", "missed", ExitCode.OBJECTIVE_MISSED),
    lost_process: ("not_judged", "not judged", ExitCode.GENERATOR_LIMITED),
    unreached: ("not_judged", "unreachable", ExitCode.UNREACHABLE),
}


@pytest.mark.parametrize("kind", list(KINDS), ids=lambda kind: kind.__name__)
def test_the_command_the_list_of_runs_and_the_now_page_agree(kind: Callable[[], Run], tmp_path: Path) -> None:
    state, in_list, code = KINDS[kind]
    folder = run_folder(tmp_path, "one", kind())
    with StoreReader(folder / "store") as reader:
        result = judged_run(reader, "r-1", OBJECTIVES)
        page = now.ask(Source("", reader, ObjectivesInForce(tuple(OBJECTIVES))), {})
    object_of_command = summary_object(result)
    sentence = object_of_command["verdict"]["sentence"]
    assert (object_of_command["verdict"]["state"], object_of_command["exit_code"]) == (state, code)

    assert page.run is not None
    assert page.summary is not None
    assert page.verdict is not None
    assert (page.verdict.state, page.verdict.sentence) == (state, sentence)
    of_command = {objective["name"]: objective["met"] for objective in object_of_command["objectives"]}
    assert {status.verdict.name: status.verdict.met for status in page.statuses} == of_command
    if state == "not_judged":
        assert set(of_command.values()) == {None}
        assert {cohort_status and cohort_status.verdict.met for cohort_status in page.cohort_statuses.values()} <= {
            None
        }
        is_limited = code is ExitCode.GENERATOR_LIMITED
        assert trust(page.run, page.summary).label.startswith("✕ generator-limited") is is_limited

    (from_store,) = RunCatalog([str(tmp_path)], OBJECTIVES).entries()
    (folder / SUMMARY).write_text(json.dumps(object_of_command))
    (from_summary,) = RunCatalog([str(tmp_path)], OBJECTIVES).entries()
    # That the command ended as unreachable, its summary alone says in a word; both say it in the sentence.
    assert from_store.state == ("not judged" if in_list == "unreachable" else in_list)
    assert from_summary.state == in_list
    assert from_summary.sentence == sentence
    # Of a miss the list names the objective, and the cause where the command that judged the run left it.
    assert from_store.sentence == sentence or (state == "missed" and _objective(from_store.sentence) in sentence)


def _objective(sentence: str) -> str:
    """The objective that a sentence names."""
    return sentence[sentence.index("“") : sentence.index("”") + 1]


def test_sentence_on_lost_process_states_how_many_there_were(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, "one", lost_process())
    with StoreReader(folder / "store") as reader:
        page = now.ask(Source("", reader, ObjectivesInForce(tuple(OBJECTIVES))), {})
    assert page.verdict is not None
    assert page.verdict.sentence.startswith("Not judged: 1 of 2 generator processes was lost after 454 s; ")

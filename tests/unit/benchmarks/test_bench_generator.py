"""Figures of the load generator's benchmark from records whose answer is known, what callers say, and its flags."""

import dataclasses
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadtest.calibration import job as calibration
from loadtest.cli.guard import guarded
from loadtest.exit_codes import ExitCode
from loadtest.targets.ground_truth.command import parse_delays
from loadtest.targets.ground_truth.conversation import samples_in
from loadtest.targets.ground_truth.frames import FrameCutter
from loadtest.targets.ground_truth.plan import MS, ReplyPlanner
from loadtest.targets.ground_truth.speech import FRAME_SAMPLES
from tests.benchmarks.bench import generator, modes
from tests.benchmarks.bench.__main__ import bench as app
from tests.benchmarks.bench.figures import NOT_STATED, TruthColumn, TurnColumn, TurnState, figures, share_of_core
from tests.benchmarks.bench.generator import CONTROL, NAIVE, OURS, Case, Options, remarks, table_rows
from tests.benchmarks.bench.modes import MODES, NAME, answer_events, prepared_speech, write_answers, write_speech
from tests.benchmarks.bench.paired import Figures, Trial, ratio, rounds, shown, spread
from tests.benchmarks.bench.processes import C_SOURCES, PartFailedError
from tests.programs import needed

SECOND = 1_000_000_000
BEGAN, ENDED = 10 * SECOND, 20 * SECOND


def turn(
    number: int,
    *,
    at_s: float = 15.0,
    heard_ms: float = 200,
    state: int = TurnState.ANSWERED,
    off_ms: tuple[float, float] | None = None,
) -> list[int]:
    """A turn that ended at a time, and heard something so long after its speech's end, which may truly be shorter and
    longer by `off_ms`."""
    ended = round(at_s * SECOND)
    speech_end = ended - SECOND
    off_ns = (NOT_STATED, NOT_STATED) if off_ms is None else (round(off_ms[0] * MS), round(off_ms[1] * MS))
    return [0, number, speech_end, speech_end + round(heard_ms * MS), ended, state, *off_ns]


def truth_of(row: list[int], **changes: int) -> list[int]:
    """An answer at the same moments, 200 ms after the same end of speech, and its first chunk 30 ms before."""
    caller, number, speech_end, _, ended, *_ = row
    heard = speech_end + 200 * MS
    values = (caller, number, speech_end, 1, heard - 30 * MS, heard, 1, ended - MS, ended - 2 * MS, 0, 0)
    columns = dict(zip(TruthColumn, values, strict=True))
    return [*{**columns, **{TruthColumn[name]: value for name, value in changes.items()}}.values()]


def made(turns: list[list[int]], truths: list[list[int]], **answer: Any) -> Figures:
    """Figures of ten callers in ten seconds, each frame of which was 1 ms late."""
    printed = {
        "cpu_ns": 4 * SECOND,
        "began_perf_ns": BEGAN,
        "ended_perf_ns": ENDED,
        "sent": 5000,
        "hears": "first_audio",
    }
    records = (
        np.array(turns, np.int64).reshape(-1, len(TurnColumn)),
        np.array(truths, np.int64).reshape(-1, len(TruthColumn)),
    )
    endpoint = {"cpu": [[9 * SECOND, 0], [21 * SECOND, 6 * SECOND]]}
    return figures(10, {**printed, **answer}, np.array([MS] * 100, np.int64), records, endpoint)


def test_cost_pacing_and_missing_frames_of_a_sender() -> None:
    table_row = made([], [])
    assert table_row["cpu_us"] == pytest.approx(800)  # 4 s of CPU for 5,000 frames
    assert (table_row["core"], table_row["unsent"], table_row["late_p99"]) == (pytest.approx(0.4), 0, 1)
    assert (table_row["turns"], table_row["error_p50"], table_row["error_max"], table_row["endpoint_was_limit"]) == (
        0,
        None,
        None,
        0,
    )
    assert made([], [], sent=4000)["unsent"] == pytest.approx(0.2)


@pytest.mark.parametrize(("sent", "has_figures"), [(0, False), (49, False), (50, True)])
def test_a_sender_that_sent_next_to_nothing_has_no_figures(sent: int, has_figures: bool) -> None:
    table_row = made([], [], sent=sent)
    assert (table_row["cpu_us"] is not None, table_row["late_max"] is not None) == (has_figures, has_figures)


def test_the_error_is_that_of_voice_to_voice_and_has_no_sign() -> None:
    turns = [turn(number, heard_ms=200 + 0.01 * (-1) ** number) for number in range(99)] + [turn(99, heard_ms=207)]
    truths = [truth_of(row) for row in turns]
    table_row = made(turns, truths)
    assert (table_row["turns"], table_row["compared"]) == (100, 100)
    assert table_row["error_p50"] == pytest.approx(0.01)
    assert table_row["error_max"] == pytest.approx(7)
    assert made(turns[:99], truths)["error_p99"] is None, "too few to say"
    chunk = [turn(0, heard_ms=170)]
    assert made(chunk, [truth_of(chunk[0])], hears="first_chunk")["error_max"] == pytest.approx(0)
    assert made(chunk, [truth_of(chunk[0])])["error_max"] == pytest.approx(30)


def test_turns_outside_of_the_window_are_not_counted() -> None:
    turns = [turn(0, at_s=9.9), turn(1, at_s=10.0), turn(2, at_s=19.9), turn(3, at_s=20.0)]
    assert made(turns, [truth_of(row) for row in turns])["turns"] == 2


def test_invalid_and_unanswered_turns_are_counted_without_error() -> None:
    turns = [turn(0), turn(1, heard_ms=900, state=TurnState.INVALID), turn(2, heard_ms=900, state=TurnState.UNANSWERED)]
    table_row = made(turns, [truth_of(row) for row in turns], invalid_by_reason={"drift": 1})
    assert [table_row[name] for name in ("turns", "invalid", "unanswered", "compared", "error_max")] == [3, 1, 1, 1, 0]
    assert table_row["invalid by drift"] == 1


def test_stated_intervals_have_width_and_hold_truth_or_not() -> None:
    turns = [
        turn(0, heard_ms=200.5, off_ms=(0.6, 0)),  # truly 200: within
        turn(1, heard_ms=200.5, off_ms=(0.4, 0)),  # not within: 0.1 ms too narrow
        turn(2, heard_ms=230, off_ms=(30, 1)),  # wide, and right
        turn(3, heard_ms=199, off_ms=(5, 0.5)),  # not within: the truth is longer
        turn(4, heard_ms=200),  # states none
        turn(5, heard_ms=900, off_ms=(1, 1), state=TurnState.INVALID),
        turn(6, heard_ms=900, off_ms=(1, 1)),
    ]
    truths = [truth_of(row) for row in turns]
    truths[6] = truth_of(turns[6], AUDIO_CERTAIN=0)
    table_row = made(turns, truths)
    assert (table_row["intervals"], table_row["outside"], table_row["compared"]) == (4, 2, 5)
    truths[1] = truth_of(turns[1], AUDIO_WITHIN=MS // 10)  # the endpoint may have sent it 0.1 ms later
    assert made(turns, truths)["outside"] == 1


def test_unrecorded_answer_is_missing_unless_still_in_progress() -> None:
    kept, lost, late = turn(0), turn(1), turn(2, at_s=19.5)
    truths = [truth_of(row) for row in (kept, lost, late)]
    assert made([kept], truths)["missing"] == 1
    assert made([kept, lost], truths)["missing"] == 0


@pytest.mark.parametrize(
    ("turns", "changes", "was_limit"),
    [
        (20, {2: {"AUDIO_CERTAIN": 0}, 3: {"SPEECH_END_CERTAIN": 0}}, 0),
        (20, {2: {"AUDIO_CERTAIN": 0}, 3: {"SPEECH_END_CERTAIN": 0}, 4: {"AUDIO_CERTAIN": 0}}, 1),
        (100, {number: {"WORST_LAG": 6 * MS} for number in range(100)}, 1),
        (100, {number: {"WORST_LAG": 4 * MS} for number in range(100)}, 0),
    ],
)
def test_an_endpoint_that_was_late_or_not_certain_was_the_limit(
    turns: int, changes: Mapping[int, dict[str, int]], was_limit: int
) -> None:
    every = [turn(number) for number in range(turns)]
    table_row = made(every, [truth_of(row, **changes.get(number, {})) for number, row in enumerate(every)])
    assert table_row["endpoint_was_limit"] == was_limit


def test_share_of_core_needs_samples_on_both_sides_of_window() -> None:
    looks = [[0, 0], [5, 1], [9, 5], [13, 6]]
    assert share_of_core(looks, 5, 9) == pytest.approx(1.0)
    assert share_of_core(looks, 6, 12) == pytest.approx(5 / 8)
    assert share_of_core(looks, 6, 14) is None


def test_senders_take_turns_and_one_that_fails_leaves_a_sentence() -> None:
    def measure(case: str, sender: str) -> Figures:
        if sender == "b":
            raise PartFailedError("it did not start")
        return {"cpu_us": 1.0}

    trials = rounds({"x": ("a", "b"), "y": ("a",)}, 2, measure)
    assert [(trial.case, trial.sender, trial.round) for trial in trials] == [
        *(("x", "a", 0), ("x", "b", 0), ("x", "a", 1), ("x", "b", 1), ("y", "a", 0), ("y", "a", 1))
    ]
    assert {trial.failed for trial in trials if trial.sender == "b"} == {"it did not start"}


def test_ratios_are_of_the_same_round() -> None:
    costs = {OURS: (10, 30, None, 8), CONTROL: (5, 10, 4, 0)}
    trials = [
        Trial("x", who, at, {"cpu_us": cost}) for who, costs_us in costs.items() for at, cost in enumerate(costs_us)
    ]
    result = ratio(trials, "x", (OURS, CONTROL), "cpu_us")
    assert result is not None
    assert (result.least, result.middle, result.most) == (2, 2.5, 3)
    assert (shown(result, "{:.1f}", with_range=True), shown(result, "{:.1f}")) == ("2.5 (2.0–3.0)", "2.5")
    assert (shown(spread([None]), "{}"), shown(spread([2.0]), "{:.0f}", with_range=True)) == ("–", "2")


def test_rows_compare_senders_and_remarks_state_faults() -> None:
    trials = [Trial("x", who, 0, {"cpu_us": cost, "turns": 100.0}) for who, cost in ((CONTROL, 10.0), (NAIVE, 40.0))]
    trials.append(Trial("x", OURS, 0, {"cpu_us": 12.0, "turns": 94.0, "outside": 2.0, "invalid by drift": 3.0}))
    trials.append(Trial("x", OURS, 1, {}, "it ended with code 1"))
    table = table_rows(trials, [("x", CONTROL), ("x", OURS), ("x", NAIVE)])
    assert [row[:4] for row in table] == [
        ["x: C", "–", "–", "10.0"],
        ["x: voiceprobe", "1.20", "0.30", "12.0"],
        ["x: usual locustfile", "–", "–", "40.0"],
    ]
    sentences = remarks(trials, "x", OURS)
    assert sentences[:3] == [
        "no figure from one round, it ended with code 1",
        "2 turns whose true voice-to-voice is not within the stated interval",
        "3 turns invalid by drift",
    ]
    assert sentences[3].startswith("only 94% of the turns of callers in C")
    assert remarks(trials, "x", CONTROL) == []


# What callers say and the endpoint answers.


def test_callers_wait_as_those_of_a_calibration_do() -> None:
    mode = MODES["conversations"]
    assert (mode.think_ns / 1e9, mode.reply_ns) == (calibration.THINK_S, calibration.REPLY_TIMEOUT.ns)
    assert parse_delays(calibration.DELAYS) == modes.DELAYS_NS


def test_speech_is_written_by_frame_with_places_of_its_bounds(tmp_path: Path) -> None:
    clips, background = prepared_speech()
    write_speech(clips[:1], background[:3], tmp_path / "speech")
    data = (tmp_path / "speech").read_bytes()
    at = 8 + sum(8 + len(frame) for frame in background[:3])
    written, start, start_offset, end, end_offset, frames = struct.unpack_from("=6q", data, at)
    (clip,) = clips[:1]
    assert (written, frames, start, end) == (1, len(clip.frames), clip.speech_start_frame, clip.speech_end_frame)
    assert start * FRAME_SAMPLES + start_offset == clip.rendered.speech_start_sample
    assert end * FRAME_SAMPLES + end_offset == clip.rendered.speech_end_sample
    assert data[at + 48 :] == b"".join(struct.pack("=q", len(frame)) + frame for frame in clip.frames)
    assert [frame.data for frame in FrameCutter().cut(b"".join(clip.frames))] == list(clip.frames)
    with pytest.raises(ValueError, match="occurs twice"):
        write_speech((clips[0], clips[0]), background, tmp_path / "speech")
    with pytest.raises(ValueError, match="480 samples at 24000 Hz"):
        write_speech((dataclasses.replace(clips[0], frame_samples=160),), background, tmp_path / "speech")


def test_answer_has_events_in_order_and_names_of_one_length(tmp_path: Path) -> None:
    plan = ReplyPlanner((50 * MS, 2000 * MS), "drip", 1, 0).turn()
    events = list(answer_events(plan))
    groups = [[event.due_ns for event in events if event.after_speech is after] for after in (False, True)]
    assert groups == [sorted(group) for group in groups]
    assert [event.after_speech for event in events] == [False] * len(groups[0]) + [True] * len(groups[1])
    assert [event.is_last for event in events] == [False] * (len(events) - 1) + [True]
    assert all(NAME.encode() in event.frame for event in events)
    assert sum(event.samples for event in events) == samples_in(sum(chunk.audio_ns for chunk in plan.chunks))
    for name, answers in {"one-way": 0, "duplex": 1, "conversations": modes.ANSWERS}.items():
        write_answers(MODES[name], tmp_path / name)
        assert struct.unpack_from("=q", (tmp_path / name).read_bytes()) == (answers,)


@pytest.mark.parametrize("source", sorted(C_SOURCES.glob("*.c")), ids=lambda source: source.name)
def test_the_programs_in_c_compile_without_a_warning(source: Path) -> None:
    flags = ["-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-O2"]
    done = subprocess.run([needed("cc"), *flags, str(source)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# The flags.


def test_flags_become_cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Options] = []
    monkeypatch.setattr(generator, "bench_generator", lambda options, report: asked.append(options))
    flags = ["--callers", "600,50", "--modes", "stalls,one-way", "--wires", "wss,ws", "--rounds", "2"]
    flags += ["--window", "1500ms", "--replies", "drip", "--json", str(tmp_path / "a.json"), "--markdown"]
    assert guarded(lambda: app(flags)) == ExitCode.OK
    (options,) = asked
    assert (options.rounds, options.window_ms, options.replies) == (2, 1500, "drip")
    sending = [Case(50, "one-way"), Case(600, "one-way"), Case(50, "one-way", "wss")]
    assert [case for case in options.cases if not case.stall] == sending
    assert [case.senders for case in sending] == [(CONTROL, OURS, NAIVE)] * 2 + [(OURS, NAIVE)]
    assert {case.stall for case in options.cases} == {"", *generator.STALLS}


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--modes", "x"], "--modes x: give one or more of"),
        (["--callers", "1,x"], "--callers 1,x: give numbers from 1 to 20000"),
        (["--window", "1ms"], "--window 1ms: give a duration from 500ms"),
        (["store", "--turns", "1G"], "--turns 1G: give numbers from 300 to 100M"),
        (["store", "--folder", "/nowhere"], "--folder /nowhere: there is no such folder"),
        (["--json", "/dev/null/a.json"], "--json /dev/null/a.json"),
        (["--short", "--json", "a.json", "store"], "--short, --json: write flags behind `store`"),
    ],
)
def test_a_fault_is_one_sentence(flags: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(lambda: app(flags)) == ExitCode.USAGE
    assert f"voiceprobe: {sentence}" in capsys.readouterr().err

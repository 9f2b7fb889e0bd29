"""An endpoint that does not read is the endpoint's fault: its turns are valid, long, and count."""

import json
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gevent
import psutil
import pytest

from loadtest.engine.engine import Engine
from loadtest.exit_codes import ExitCode
from loadtest.run import processes
from loadtest.speech.preparation import PreparedCorpus
from telemetry.model.turns import Turn
from telemetry.store.answers import Filter
from telemetry.store.reader import StoreReader
from tests.integration.calling import CORPUS
from tests.integration.commands import begun, ended
from tests.integration.quick_endpoint import quick_endpoint
from tests.integration.runs import provoking
from tests.integration.runs.expected_exit import code_by_objectives
from tests.integration.runs.provoking import MS, TOLERANT, ShortSpeech
from tests.integration.waiting import stored_turns, wait_until
from tests.invalid_turns import assert_reasons_are_shown

CALLERS = 8
STALL_S = 6.0
RUN_TIME = "35s"
RUN = ["--corpus", CORPUS, "--length", "short", "--clips", "6", "--think", "0.2", "--endpointing", "300ms"]
# A frame that the socket did not take was offered in time: nothing near the stall is our own lateness, but for what the
# loop itself shows of a machine that paused.
OURS_NS = 1_000 * MS


def _late_of_itself_ns(turn: Turn) -> int:
    """Return how late a frame of a turn was offered beyond what pauses of the machine explain."""
    return (turn.frame_lateness_worst_ns or 0) - 2 * (turn.loop_lag_worst_ns or 0)


@dataclass
class Assistant:
    """A reference assistant and its processes."""

    url: str
    processes: list[psutil.Process]

    def stop(self) -> int:
        """Let it do nothing more, its sockets staying open; the moment."""
        for process in self.processes:
            process.suspend()
        return time.perf_counter_ns()

    def go_on(self) -> int:
        """Let it go on; the moment just before."""
        moment = time.perf_counter_ns()
        for process in self.processes:
            process.resume()
        return moment


@pytest.fixture
def stoppable(tmp_path: Path) -> Iterator[Assistant]:
    arguments = ["-m", "loadtest.targets.assistant", "--port", "0", "--corpus", CORPUS, "--tts-pace", "0"]
    child = processes.start(
        "assistant", [*arguments, "--llm-ttft", "constant:80ms"], tmp_path / "logs", says_ready=True, bystander=False
    )
    with processes.ending(child):
        url = str(processes.wait_until_ready(child, 60.0)["url"])
        first = psutil.Process(child.process.pid)
        assistant = Assistant(url, [first, *first.children(recursive=True)])
        try:
            yield assistant
        finally:
            assistant.go_on()


@dataclass
class Run:
    """A run under way, and where it writes what it found."""

    process: subprocess.Popen[str]
    folder: Path

    @classmethod
    def begun(cls, assistant: Assistant, folder: Path, *load: str) -> "Run":
        file, out = folder / "summary.json", folder / "out"
        return cls(begun("run", assistant.url, *load, *RUN, "--out", str(out), "--json", str(file)), folder)

    def wait_for_a_turn(self) -> None:
        """Until its first turn is known, which on a busy machine is late."""
        wait_until(lambda: stored_turns(self.folder / "out" / "store") >= 1)

    def ended(self) -> tuple[int, dict[str, Any], list[Turn], str]:
        """Its exit code, summary, turns and what was printed, once it has ended."""
        code, output, err = ended(self.process)
        assert "Traceback" not in err
        with StoreReader(self.folder / "out" / "store") as reader:
            turns = list(reader.turns(Filter(), 10_000, source="client"))
        return code, json.loads((self.folder / "summary.json").read_text()), turns, output


def _assert_the_generator_is_not_blamed(summary: dict[str, Any], turns: list[Turn]) -> None:
    # Drift is our own lateness: a pause of this machine may cause it, and the next assertions bound it.
    assert not {"full socket", "unsent audio"} & set(summary["turns"]["invalid_by_reason"]), summary["turns"]
    assert all(_late_of_itself_ns(turn) < OURS_NS for turn in turns)
    for turn in turns:  # an invalid one is so for a pause of this machine
        assert_reasons_are_shown(turn)


def _voice_to_voice_s(turn: Turn) -> float:
    assert turn.first_audio_perf_ns is not None
    assert turn.speech_end_perf_ns is not None
    return (turn.first_audio_perf_ns - turn.speech_end_perf_ns) / 1e9


def _code(summary: dict[str, Any]) -> ExitCode:
    """A machine that itself paused again and again may be the limit besides; calls that the service kept are a miss."""
    if not summary["generator"]["limited"] and summary["exit_reason"].endswith("kept by the service"):
        return ExitCode.OBJECTIVE_MISSED
    return code_by_objectives(summary)


@pytest.mark.nightly
def test_turns_of_stalling_service_are_valid_long_and_counted(stoppable: Assistant, tmp_path: Path) -> None:
    moments: list[int] = []

    def stall() -> None:
        moments.append(stoppable.stop())
        time.sleep(STALL_S)  # this is the provocation itself
        moments.append(stoppable.go_on())

    # Callers wait for an answer much longer than the stall: only then it is long instead of missing, on any machine.
    load = ("--users", str(CALLERS), "--run-time", RUN_TIME, "--reply-timeout", "25")
    run = Run.begun(stoppable, tmp_path, *load)
    run.wait_for_a_turn()
    stall()
    code, summary, turns, output = run.ended()
    stopped, resumed = moments
    _assert_the_generator_is_not_blamed(summary, turns)
    assert code == _code(summary), output
    asked = [turn for turn in turns if stopped < (turn.speech_end_perf_ns or 0) < resumed]
    assert len(asked) >= CALLERS // 2, "callers spoke while nothing listened"
    for turn in asked:
        assert turn.first_audio_perf_ns is None or turn.first_audio_perf_ns > resumed
    unread = [turn for turn in asked if turn.endpoint_did_not_read]
    assert unread, "some spoke more than sockets take"
    assert max(turn.send_blocked_worst_ns or 0 for turn in unread) > 1_000 * MS
    assert summary["turns"]["endpoint_did_not_read"] == sum(
        bool(turn.endpoint_did_not_read) for turn in turns if turn.outcome != "invalid" and turn.phase_kind != "ramp"
    )
    answered = [turn for turn in asked if turn.outcome_observed == "ok"]
    assert answered, [(turn.outcome_observed, turn.invalid_reasons, turn.outcome_reason) for turn in asked]
    assert max(_voice_to_voice_s(turn) for turn in answered) > STALL_S / 2
    # On a machine that itself paused under every one of them, none is left to be a figure.
    if valid := [turn for turn in answered if turn.outcome == "ok"]:
        assert summary["metrics"]["voice_to_voice"]["max_s"] >= max(_voice_to_voice_s(turn) for turn in valid) - 1e-6
        objective = next(candidate for candidate in summary["objectives"] if candidate["name"] == "voice-to-voice")
        counted = [turn for turn in valid if turn.phase_kind != "ramp"]
        late = sum(_voice_to_voice_s(turn) > STALL_S / 2 for turn in counted)
        assert objective["eligible"] - objective["good"] >= late
        # Where pauses of this machine leave few of them, the others may be enough to meet the objective all the same.
        if late > (1 - objective["target"]) * objective["eligible"]:
            assert objective["met"] is not True
    stated = "the endpoint did not read in" in " ".join(output.split())
    assert stated == bool(summary["turns"]["endpoint_did_not_read"])


@pytest.mark.nightly
def test_frozen_service_ends_with_3_or_too_few_turns(stoppable: Assistant, tmp_path: Path) -> None:
    closed = ("--users", str(CALLERS), "--run-time", RUN_TIME)
    arriving = ("--arrivals", "constant", "--rate", "1.5", "--max-calls", str(CALLERS), "--run-time", RUN_TIME)
    runs: list[Run] = []
    # Both at the same time: a frozen service is mostly waited for.
    for name, load in (("closed", closed), ("open", arriving)):
        (tmp_path / name).mkdir()
        runs.append(Run.begun(stoppable, tmp_path / name, *load))
    for run in runs:
        run.wait_for_a_turn()
    stoppable.stop()
    ends = [run.ended() for run in runs]
    for run, (code, summary, turns, output) in zip(runs, ends, strict=True):
        _assert_the_generator_is_not_blamed(summary, turns)
        assert code == _code(summary) != ExitCode.OK, output
        unanswered = [turn for turn in turns if turn.outcome_observed in ("no_reply", "timeout", "error")]
        assert len(unanswered) >= CALLERS // 2, run.folder.name


@pytest.mark.nightly
def test_a_server_that_accepts_and_never_reads_ends_with_5(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        port = listener.getsockname()[1]
        url = f"ws://127.0.0.1:{port}/v1/realtime"
        code, _, err = ended(begun("run", url, "--users", "2", *RUN, "--out", str(tmp_path / "out")))
    assert code == ExitCode.UNREACHABLE
    assert "did not open a session" in err
    assert "Traceback" not in err


@dataclass
class LongSpeech(ShortSpeech):
    """Callers who say the longest clip there is."""

    def prepared(self) -> PreparedCorpus:
        """One clip."""
        whole = super(ShortSpeech, self).prepared()
        longest = max(whole.clips, key=lambda clip: len(clip.frames))
        return replace(whole, lines=(replace(whole.lines[0], clips=(longest,)),))


@pytest.mark.nightly
def test_a_slow_reader_makes_turns_long_and_not_invalid() -> None:
    # Some 30 kB a second of the 64 kB that a caller sends.
    with quick_endpoint(round_s=0.15, receive_buffer=4096) as endpoint:
        callers = LongSpeech(
            endpoint.url, 3, turns_per_call=2, clips=12, manual_turns=True, think_s=0.05, limits=TOLERANT
        )
        calls = callers.call()
    turns = [turn for call in calls for turn in call]
    for turn in turns:
        if turn.outcome != "ok":  # then for a pause of this machine, which is recorded
            assert turn.outcome_observed == "ok"
            assert not {"full socket", "unsent audio"} & set(turn.invalid_reasons)
            own_ns = (turn.frame_lateness_worst_ns, turn.receive_lag_worst_ns, turn.loop_lag_worst_ns)
            assert max(value_ns or 0 for value_ns in own_ns) > 10 * MS, turn
    speech_ns = min(turn.speech_ns or 0 for turn in turns)
    for turn in turns:
        assert turn.endpoint_did_not_read
        assert turn.speech_start_perf_ns is not None
        assert turn.speech_end_perf_ns is not None
        late_ns = 100 * MS + (turn.frame_lateness_worst_ns or 0)
        assert abs(turn.speech_end_perf_ns - turn.speech_start_perf_ns - (turn.speech_ns or 0)) < late_ns, "as spoken"
        assert (turn.first_audio_perf_ns or 0) - turn.speech_end_perf_ns > speech_ns // 4


@pytest.mark.nightly
def test_endpoint_that_stops_reading_ends_calls_in_finite_time() -> None:
    with quick_endpoint(receive_buffer=4096) as endpoint:

        def meanwhile(engine: Engine) -> None:
            provoking.in_mid_speech(engine, "call-0", 1)
            for number in (1, 2, 3):
                endpoint.order(f"stop {number}")
            gevent.sleep(0)

        callers = provoking.callers(endpoint.url, 3, 3, meanwhile)
        began = time.monotonic()
        calls = callers.call()
        took_s = time.monotonic() - began
    last = [call[-1] for call in calls]
    assert {turn.outcome_observed for turn in last} <= {"no_reply", "timeout"}
    assert [turn.endpoint_did_not_read for turn in last] == [True] * 3
    assert all(_late_of_itself_ns(turn) < OURS_NS for turn in last)
    assert took_s < 300, "each call ended by its own limits, and closing did not hang"


@pytest.mark.nightly
def test_generator_pause_counts_even_if_endpoint_does_not_read() -> None:
    with quick_endpoint(receive_buffer=4096) as endpoint:

        def meanwhile(engine: Engine) -> None:
            call = provoking.in_mid_speech(engine, "call-0", 1)
            endpoint.order("stop 1")
            while call.waiting_since_perf_ns is None:
                gevent.sleep(0.003)
            provoking.stall_the_loop()
            endpoint.order("go 1")

        # Where the pacer thread sends, a loop that stalls makes no frame late.
        callers = replace(provoking.callers(endpoint.url, 1, 3, meanwhile), has_pacer=False)
        ((_, turn, *_),) = callers.call()
    assert turn.outcome == "invalid"
    assert "frame lateness" in turn.invalid_reasons
    assert turn.endpoint_did_not_read

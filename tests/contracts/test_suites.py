"""The two suites, what each of them runs, and the second try of the integration tests."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from loadtest.cli.main import app
from tests import conftest

ROOT = Path(__file__).parents[2]
PAGES_IN_A_BROWSER = 25
HERE = "tests/integration"
# What the suite of every day keeps of each kind of test that is mostly left to the night: the start of a test's name.
KEPT = {
    "real peer of OpenAI Realtime": f"{HERE}/engine/test_engine_peer.py::test_callers_complete_calls_of_several_turns",
    "real client of OpenAI Realtime": f"{HERE}/assistant/test_assistant_openai_sdk.py::test_official_client_completes",
    "real peer of Pipecat": f"{HERE}/wires/test_wire_pipecat.py::test_conversations_have_every_stage",
    "real peer of SmallWebRTC": f"{HERE}/wires/test_wire_pipecat.py::test_conversations_have_every_stage[smallwebrtc",
    "real peer of LiveKit": f"{HERE}/wires/test_wire_livekit.py::test_conversation_with_barge_in",
    "real peer of telephony": f"{HERE}/wires/test_wire_pipecat.py::test_telephone_calls[twilio",
    "real client of Deepgram": f"{HERE}/wires/test_wire_deepgram.py::test_official_client",
    "real client of ElevenLabs": f"{HERE}/wires/test_wire_elevenlabs.py::test_vendor_client",
    "real client of Gemini": f"{HERE}/wires/test_gemini_wire.py::test_vendor_client",
    "real peer of services over HTTP": f"{HERE}/wires/test_wires_stages.py::test_litellm_relays_a_whole_cascade",
    "real peer of Wyoming": f"{HERE}/wires/test_wires_stages.py::test_a_wyoming_server_recognizes",
    "real model server": f"{HERE}/llm/test_llm_llama.py::test_figures_agree",
    "known delays over the wires in real time": f"{HERE}/wires/test_scripted_wires.py::test_a_known_delay",
    "ten kills": f"{HERE}/sidecar/test_sidecar_survives.py::test_acknowledged_rows_survive_repeated_kills",
    "Prometheus": f"{HERE}/prometheus/test_dashboard_queries.py::test_every_query_of_the_dashboard",
    "Redis": f"{HERE}/assistant/test_assistant_calls.py::test_cache_in_a_real_redis",
    "whole audit": f"{HERE}/cli/test_audit.py::test_the_whole_audit",
    "Chromium": "tests/browser/test_browser_dashboard.py::test_verdict_and_its_evidence_fit_one_screen",
    "voiceprobe assistant": f"{HERE}/assistant/test_assistant_calls.py::test_server_vad_turn_in_order",
    "voiceprobe dashboard": f"{HERE}/prometheus/test_dashboard_hosts.py::test_dashboard_answers_only",
    "voiceprobe deliver": f"{HERE}/cli/test_cli_deliver.py::test_undeliverable_spool_is_one_sentence",
    "voiceprobe sidecar": f"{HERE}/sidecar/test_sidecar_http.py::test_turns_are_stored_before_they_are_acknowledged",
    "voiceprobe demo": f"{HERE}/cli/test_cli_demo.py::test_the_demo_measures",
    "voiceprobe llm": f"{HERE}/llm/test_llm_command.py::test_a_bench_is_measured",
    "voiceprobe run": f"{HERE}/runs/test_cli_run.py::test_a_run_that_is_interrupted",
    # Where another command writes a result, the first of its flags that name a file is tried by a process of its own.
    **{
        f"voiceprobe {command.split()[0]}": f"{HERE}/cli/test_cli_outputs.py::test_unwritable_output"
        f"_is_one_sentence_before_first_call[{command.replace(' ', '-')}-{flag}]"
        for command, flag in {
            "audit": "--json",
            "calibrate": "--json",
            "capacity": "--json",
            "compare": "--json",
            "corpus show": "--out",
            "pair": "--json",
            "protocol partials": "--out",
            "report": "--json",
            "rollout check": "--history",
            "rules": "--out",
            "runs": "--json",
            "store check": "--json",
            "techniques": "--html",
        }.items()
    },
}
TREE = """
import pytest

def test_quick():
    pass

@pytest.mark.slow
def test_slow():
    pass

@pytest.mark.nightly
def test_of_the_night():
    pass
"""


def _pytest(*arguments: str) -> str:
    """Run pytest with the settings of this project and return what it printed."""
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "-p", "no:cacheprovider", "-n", "0"]
    done = subprocess.run([*command, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@cache
def _every_day() -> list[str]:
    """The names of the tests that run every day in the files of what is kept, and of those with a browser."""
    files = sorted({name.partition("::")[0] for name in KEPT.values() if name.startswith(HERE)})
    out = _pytest("--collect-only", "-q", *files, "tests/browser")
    return [line for line in out.splitlines() if "::" in line]


@pytest.mark.slow
@pytest.mark.parametrize("subject", KEPT)
def test_a_subject_of_the_night_is_kept_once_every_day(subject: str) -> None:
    assert any(name.startswith(KEPT[subject]) for name in _every_day()), f"{KEPT[subject]} does not run every day"


def test_every_command_is_started_every_day() -> None:
    groups = {group.name for group in app.registered_groups}
    commands = {
        command.name or command.callback.__name__ for command in app.registered_commands if command.callback is not None
    }
    named = {subject.removeprefix("voiceprobe ") for subject in KEPT if subject.startswith("voiceprobe ")}
    assert named == commands | groups


@pytest.mark.slow
def test_the_tests_of_every_day_with_a_browser_are_few() -> None:
    assert 0 < sum(name.startswith("tests/browser/") for name in _every_day()) <= PAGES_IN_A_BROWSER


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "passed"),
    [
        ([], 3),
        (["--all"], 4),
        (["-m", "not slow"], 1),
        (["--all", "-m", "not slow"], 1),
        (["--all", "-m", "nightly"], 1),
    ],
    ids=["every day", "all", "quick", "quick of all", "nightly"],
)
def test_a_suite_runs_its_own_tests(tmp_path: Path, flags: list[str], passed: int) -> None:
    (tmp_path / "test_tree.py").write_text(TREE)
    (tmp_path / "integration").mkdir()
    (tmp_path / "integration" / "test_process.py").write_text("def test_process():\n    pass\n")
    out = _pytest("--rootdir", str(tmp_path), "-p", "tests.conftest", *flags, str(tmp_path))
    assert f"{passed} passed" in out
    left_out = 4 - passed
    assert not left_out or f"{left_out} deselected" in out


def test_every_night_all_tests_run() -> None:
    workflow = (ROOT / ".github" / "workflows" / "nightly.yml").read_text(encoding="utf-8")
    assert "./voiceprobe test --all" in workflow
    assert "schedule:" in workflow


@pytest.mark.parametrize(
    ("folder", "expression", "is_ignored"),
    [
        ("integration", "not slow", True),
        ("browser", "not slow", True),
        ("unit", "not slow", None),
        ("integration", "", None),
        ("integration", "not slow or nightly", None),
    ],
)
def test_the_quick_run_imports_no_test_of_processes(folder: str, expression: str, is_ignored: bool | None) -> None:
    config: Any = SimpleNamespace(option=SimpleNamespace(markexpr=expression))
    assert conftest.pytest_ignore_collect(conftest.TESTS / folder, config) is is_ignored


@pytest.mark.parametrize(("expression", "runners"), [("", 4), ("not slow", os.cpu_count())])
def test_the_quick_tests_get_a_runner_for_each_core(expression: str, runners: int) -> None:
    config: Any = SimpleNamespace(option=SimpleNamespace(markexpr=expression))
    assert conftest.pytest_xdist_auto_num_workers(config) == runners


HOOKS = """
from tests.integration.reruns import pytest_itemcollected, pytest_runtest_makereport, pytest_runtest_teardown
"""
# The server of the module and that of the session are broken by the first test that asks, and stay so until they are
# made again. Each test that has begun leaves a line.
TESTS = """
import pathlib
import pytest

PLACE = pathlib.Path(__file__).with_suffix(".log")

def note(line):
    with PLACE.open("a") as log:
        print(line, file=log)
    return PLACE.read_text().splitlines().count(line)

@pytest.fixture(scope="session")
def wide():
    yield note("wide made")
    note("wide ended")

@pytest.fixture(scope="module")
def server(wide):
    yield note("server made")
    note("server ended")

def test_before(server):
    note("before")

def test_chance(server, wide):
    note("chance")
    assert (server, wide) == (2, 2), f"server {server} is broken"

def test_after(server):
    assert (note("after"), server) == (1, 2)
"""
FAULT = """
def test_fault():
    assert 1 + 1 == 3, "a fault of the product"
"""
SETUP = """
import pytest

MADE = []

@pytest.fixture(scope="module")
def server():
    MADE.append(1)
    assert len(MADE) > 1, "the port was taken"

def test_started(server):
    pass
"""


def run(folder: Path, *arguments: str) -> tuple[int, str]:
    """The exit code and the output of pytest with the settings of this project."""
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(folder)]
    command += ["-p", "no:cacheprovider", *arguments, str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def integration(tmp_path: Path) -> Path:
    folder = tmp_path / "integration"
    folder.mkdir()
    (folder / "conftest.py").write_text(HOOKS)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("runners", [("-n", "0"), ("-n", "2", "--dist", "loadfile")], ids=["alone", "two"])
def test_chance_gets_a_second_try_with_new_servers_and_is_shown(integration: Path, runners: tuple[str, ...]) -> None:
    (integration / "test_chance.py").write_text(TESTS)
    code, out = run(integration.parent, *runners)
    assert (code, "3 passed, 1 rerun" in out) == (0, True), out
    assert "RERUN integration/test_chance.py::test_chance" in out, out
    assert "AssertionError: server 1 is broken" in out, "the first failure is no secret"
    assert (integration / "test_chance.log").read_text().splitlines() == [
        *("wide made", "server made", "before", "chance", "server ended", "wide ended"),
        *("wide made", "server made", "chance", "after", "server ended", "wide ended"),
    ]


@pytest.mark.slow
def test_failed_start_is_tried_again_and_fault_stays_a_fault(integration: Path) -> None:
    (integration / "test_setup.py").write_text(SETUP)
    (integration / "test_fault.py").write_text(FAULT)
    (integration.parent / "test_unit.py").write_text(FAULT)
    code, out = run(integration.parent, "-n", "0")
    assert (code, "2 failed, 1 passed, 2 rerun" in out, "the port was taken" in out) == (1, True, True), out
    reruns = sorted(line.split()[1] for line in out.splitlines() if line.startswith("RERUN "))
    assert reruns == [f"integration/test_{name}" for name in ("fault.py::test_fault", "setup.py::test_started")]
    assert out.count("a fault of the product") > 2


@pytest.mark.slow
def test_many_failures_get_no_more_than_eight_retries(integration: Path) -> None:
    many = "import pytest\n\n@pytest.mark.parametrize('each', range(20))\ndef test_fault(each):\n    assert each < 0\n"
    (integration / "test_many.py").write_text(many)
    code, out = run(integration.parent, "-n", "0")
    assert (code, "20 failed, 8 rerun" in out) == (1, True), out

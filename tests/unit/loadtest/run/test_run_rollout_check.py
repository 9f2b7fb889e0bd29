"""One look at a rollout over a real store: verdict, exit code, history and files."""

import fcntl
import json
import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console

from loadtest.errors import UsageError
from loadtest.exit_codes import ExitCode
from loadtest.run.rollout_check import RolloutCheckRequest, check, one_at_a_time
from telemetry.model.errors import ConfigError, StoreError
from telemetry.objectives.slo import default_objectives
from telemetry.rollout.plan import decode_history
from tests.fixtures_rollouts import PLAN_FILE, fill_rollout_store
from tests.fixtures_rollouts import PLAN_FILE as PLAN
from tests.fixtures_turns import SECOND, START_UNIX_NS

NOW = START_UNIX_NS + 5000 * SECOND


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("stores")
    for kind in ("equal", "worse", "few"):
        fill_rollout_store(folder / kind, kind)
    return lambda name: folder / name


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    file = tmp_path / "rollout.toml"
    file.write_text(PLAN)
    return file


def looked(request: RolloutCheckRequest, now: int = NOW) -> tuple[ExitCode, str]:
    output = StringIO()
    code = check(request, Console(file=output, width=200), now_unix_ns=now)
    return code, output.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("store", "code", "verdict"),
    [
        ("equal", ExitCode.OK, "promote"),
        ("worse", ExitCode.OBJECTIVE_MISSED, "roll_back"),
        ("few", ExitCode.UNDECIDED, "hold"),
    ],
)
def test_the_exit_code_and_every_file_say_the_verdict(
    stores: Callable[[str], Path], plan: Path, tmp_path: Path, store: str, code: ExitCode, verdict: str
) -> None:
    files = {name: tmp_path / "out" / name for name in ("json", "junit", "markdown", "history")}
    request = RolloutCheckRequest(
        plan,
        str(stores(store)),
        json_file=files["json"],
        junit_file=files["junit"],
        markdown_file=files["markdown"],
        history_file=files["history"],
    )
    returned, printed = looked(request)
    assert returned == code
    result = json.loads(files["json"].read_text())
    assert result["verdict"] == verdict
    assert printed.startswith(result["sentence"])
    primary, *others = result["checks"]
    assert (primary["unit"], primary["margin"]) == ("s", 0.4)
    assert [other["name"] for other in others] == ["no_reply", "tail voice_to_voice"]
    assert (result["turns_needed"] == 0) == (verdict != "hold")
    suite = ET.fromstring(files["junit"].read_text())  # noqa: S314 - our own file
    assert suite.get("tests") == "4"
    states = {case.get("name"): [child.tag for child in case] for case in suite}
    assert states["verdict"] == {"promote": [], "roll_back": ["failure"], "hold": ["skipped"]}[verdict]
    assert states["voice_to_voice p95"] == {"promote": [], "roll_back": ["failure"], "hold": ["skipped"]}[verdict]
    text = files["markdown"].read_text()
    assert text.startswith(f"## Rollout streaming: {verdict.replace('_', ' ')}\n")
    assert "| voice\\_to\\_voice p95 |" in text
    history = decode_history(files["history"].read_bytes(), "h")
    assert [look.verdict for look in history.looks] == [verdict]


def test_looks_are_kept_and_a_stage_begins_after_a_promotion(
    stores: Callable[[str], Path], plan: Path, tmp_path: Path
) -> None:
    request = RolloutCheckRequest(plan, str(stores("equal")), history_file=tmp_path / "history.json")
    with pytest.raises(ConfigError, match="there is no stage"):
        looked(replace(request, stage="all"))
    assert looked(request)[0] == ExitCode.OK
    code, printed = looked(replace(request, stage="half"), NOW + SECOND)
    assert code == ExitCode.UNDECIDED
    assert "no turn of the candidate streaming has arrived since" in printed
    history = decode_history((tmp_path / "history.json").read_bytes(), "h")
    assert (history.stage, history.stage_since_unix_ns, len(history.looks)) == ("half", NOW + SECOND, 2)
    with pytest.raises(UsageError, match="--stage canary: the rollout is at stage half, and its last verdict was hold"):
        looked(replace(request, stage="canary"), NOW + 2 * SECOND)


def test_an_edited_plan_holds_and_leaves_the_history_as_it_is(
    stores: Callable[[str], Path], plan: Path, tmp_path: Path
) -> None:
    request = RolloutCheckRequest(plan, str(stores("few")), history_file=tmp_path / "history.json")
    looked(request)
    before = (tmp_path / "history.json").read_bytes()
    plan.write_text(PLAN.replace("400ms", "4s"))
    code, printed = looked(replace(request, store=str(stores("equal"))), NOW + SECOND)
    assert code == ExitCode.UNDECIDED
    assert "the plan was edited after 1 look" in printed
    assert (tmp_path / "history.json").read_bytes() == before


def test_since_and_stage_say_what_is_judged_without_a_history(stores: Callable[[str], Path], plan: Path) -> None:
    request = RolloutCheckRequest(plan, str(stores("equal")), stage="half", since="2026-09-21T14:20:00+00:00")
    _, printed = looked(request)
    assert "stage half (50 % of callers, the last one)" in printed
    assert "sample-ratio mismatch" in printed
    for since in ("yesterday", "2026-09-21T14:20:00"):
        with pytest.raises(UsageError, match="is not a moment with its time zone"):
            looked(replace(request, since=since))


def test_two_plans_over_one_cohort_hold(stores: Callable[[str], Path], plan: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text(PLAN.replace('name = "streaming"', 'name = "other"', 1).replace('"stable"', '"b"'))
    code, printed = looked(RolloutCheckRequest(plan, str(stores("equal")), also=(other,)))
    assert code == ExitCode.UNDECIDED
    assert "the plans streaming and other are both about the cohort streaming" in printed


def test_an_objective_can_be_a_guardrail(stores: Callable[[str], Path], plan: Path, tmp_path: Path) -> None:
    watched = '[[guardrails]]\ncheck = "objective"\nobjective = "{}"\nmargin = 0.1\n'
    plan.write_text(PLAN + watched.format(default_objectives()[0].name))
    code, printed = looked(RolloutCheckRequest(plan, str(stores("worse"))))
    assert code == ExitCode.OBJECTIVE_MISSED
    assert f"share of turns that miss the objective {default_objectives()[0].name} is worse: " in printed
    plan.write_text(PLAN + watched.format("nothing"))
    with pytest.raises(UsageError, match="rollout streaming: there is no objective 'nothing'"):
        looked(RolloutCheckRequest(plan, str(stores("worse"))))


def test_all_faults_of_a_request_are_reported_at_once(stores: Callable[[str], Path], tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("name = 3\n")
    (tmp_path / "latin.toml").write_bytes(b"\xff")
    with pytest.raises(UsageError) as caught:
        looked(
            RolloutCheckRequest(
                tmp_path / "bad.toml",
                str(stores("equal")),
                also=(tmp_path / "latin.toml", tmp_path / "none.toml"),
                json_file=tmp_path,
            )
        )
    lines = str(caught.value).splitlines()
    assert len(lines) == 7
    assert lines[0].endswith(
        "bad.toml: line 1, name: is 3; a name has up to 63 letters, digits, '.', '_' and '-', "
        "with a letter or digit at each end"
    )
    assert lines[-3].endswith("latin.toml: is not UTF-8 text; save it as UTF-8")
    assert lines[-2].endswith("none.toml: does not exist; name the plan")
    assert lines[-1].endswith("is a folder; give the name of a file")


def test_a_history_that_is_not_one_is_refused(stores: Callable[[str], Path], plan: Path, tmp_path: Path) -> None:
    (tmp_path / "history.json").write_text("{}")
    with pytest.raises(ConfigError, match="does not hold the history of a rollout"):
        looked(RolloutCheckRequest(plan, str(stores("few")), history_file=tmp_path / "history.json"))
    with pytest.raises(UsageError, match="is not a folder"):
        looked(RolloutCheckRequest(plan, str(tmp_path / "nowhere")))
    with pytest.raises(StoreError):
        looked(RolloutCheckRequest(plan, "http://127.0.0.1:1"))


LOOKS = 3


def command(folder: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "loadtest.cli.main", "rollout", "check", str(folder / "rollout.toml")),
        *("--store", str(folder / "store"), "--history", str(folder / "history.json")),
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("rollout")
    fill_rollout_store(made / "store", "equal")
    (made / "rollout.toml").write_text(PLAN_FILE)
    return made


def looks(folder: Path) -> int:
    return len(json.loads((folder / "history.json").read_text())["looks"])


@pytest.mark.slow
def test_looks_that_are_taken_at_once_are_all_kept(folder: Path) -> None:
    running = [subprocess.Popen(command(folder), stdout=subprocess.DEVNULL) for _ in range(LOOKS)]
    assert {process.wait(300) for process in running} == {0}
    assert looks(folder) == LOOKS


@pytest.mark.slow
def test_full_disk_keeps_old_looks_and_promotes_nothing(folder: Path) -> None:
    if not (folder / "history.json").exists():
        subprocess.run(command(folder), stdout=subprocess.DEVNULL, timeout=300, check=True)
    before = (folder / "history.json").read_bytes()

    def no_room() -> None:
        # A file may not grow beyond this: the kernel refuses as it does on a full volume.
        resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))

    full = subprocess.run(command(folder), capture_output=True, text=True, timeout=300, check=False, preexec_fn=no_room)
    assert full.returncode not in (0, 3)
    assert "promote" not in full.stdout
    assert "history.json" in full.stderr
    assert "Traceback" not in full.stderr
    assert (folder / "history.json").read_bytes() == before
    assert sorted(path.name for path in folder.iterdir()) == [
        *(".history.json.lock", "history.json", "rollout.toml", "store")
    ]


def test_a_look_that_does_not_end_is_named(tmp_path: Path) -> None:
    history = tmp_path / "history.json"
    refused = pytest.raises(UsageError, match="in use by another look that has not ended within 0 s")
    # Another opening of the file is another holder, also within one process.
    with one_at_a_time(history), refused, one_at_a_time(history, 0):
        pass
    with one_at_a_time(history, 0), (tmp_path / ".history.json.lock").open() as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_without_a_history_nothing_is_locked(tmp_path: Path) -> None:
    with one_at_a_time(None):
        assert list(tmp_path.iterdir()) == []

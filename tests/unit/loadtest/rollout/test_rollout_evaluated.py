"""A rollout by a sidecar's answers, and changes of shares in a file, by a command and over HTTP."""

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from loadtest.errors import UsageError
from loadtest.exit_codes import ExitCode
from loadtest.rollout.job import RolloutRunRequest, run_rollout
from loadtest.rollout.runner import SidecarVerdicts, StageAnswer
from loadtest.rollout.share_changes import ChangeShare, ShareUnchangedError, share_changer
from telemetry.model.errors import StoreError
from telemetry.rollout.plan import RolloutPlan
from telemetry.rollout.plan_document import parse_plan
from telemetry.sidecar_client import SidecarClient
from telemetry.store.reader import StoreReader
from tests.fixtures_rollouts import PLAN_FILE, fill_rollout_store

VERDICT = {
    "verdict": "promote",
    "sentence": "Promote canary",
    "reasons": ["every\nmargin is kept"],
    "stage": "20",
    "share": 0.2,
    "plan": {"name": "canary", "fingerprint": "f1"},
    "cohorts": {"candidate": {"name": "b", "turns": 120}, "control": {"name": "a", "turns": 480}},
    "turns_needed": None,
    "rollout": "canary",
    "at_unix_ns": 1,
    "sequence": 7,
}
OLDER = "no sidecar that answers questions: it is of an older version, or something else listens there"
Answer = tuple[int, bytes, dict[str, str]]


class _Endpoint(HTTPServer):
    answer: Answer = (200, b"{}", {})

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.seen: list[tuple[str, str, str | None]] = []


class _Handler(BaseHTTPRequestHandler):
    def _answer(self) -> None:
        server = self.server
        assert isinstance(server, _Endpoint)
        self.rfile.read(int(self.headers.get("content-length") or 0))
        server.seen.append((self.command, self.path, self.headers.get("authorization")))
        status, body, headers = server.answer
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = _answer  # noqa: N815, as http.server names them

    def log_message(self, *_args: object) -> None:
        """Nothing: a test looks at what was answered."""


@pytest.fixture
def endpoint() -> Iterator[_Endpoint]:
    with _Endpoint() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def ask(endpoint: _Endpoint) -> Callable[[int, object], SidecarVerdicts]:
    def answered(status: int, body: object, **headers: str) -> SidecarVerdicts:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        endpoint.answer = (status, content, headers)
        return SidecarVerdicts(SidecarClient(f"http://127.0.0.1:{endpoint.server_port}/", "s3cret"), "canary")

    return answered


def test_a_verdict_is_read_whole(ask: Callable[..., SidecarVerdicts], endpoint: _Endpoint) -> None:
    verdict = ask(200, VERDICT).verdict()
    assert (verdict.verdict, verdict.sentence, verdict.reasons) == (
        "promote",
        "Promote canary",
        ("every margin is kept",),
    )
    assert verdict.cohorts is not None
    assert (verdict.stage, verdict.plan.fingerprint, verdict.cohorts.candidate.turns, verdict.sequence) == (
        "20",
        "f1",
        120,
        7,
    )
    assert endpoint.seen == [("GET", "/v1/rollouts/canary/verdict", "Bearer s3cret")]


def test_one_that_is_not_kept_is_marked(ask: Callable[..., SidecarVerdicts]) -> None:
    verdict = ask(200, {**VERDICT, "sequence": None, "cohorts": None, "reasons": []}).verdict()
    assert (verdict.sequence, verdict.cohorts, verdict.reasons) == (None, None, ())


@pytest.mark.parametrize("left_out", ["verdict", "plan", "stage", "sentence"])
def test_a_verdict_of_another_version_is_refused(ask: Callable[..., SidecarVerdicts], left_out: str) -> None:
    body = {name: value for name, value in VERDICT.items() if name != left_out}
    with pytest.raises(StoreError, match="its verdict is not one of this version"):
        ask(200, body).verdict()


@pytest.mark.parametrize("body", [b"", b"<html>", b"\xff\xfe", b"[1]", b'{"verdict": "perhaps"}', b"1" * 5000])
def test_invalid_verdict_is_refused(ask: Callable[..., SidecarVerdicts], body: bytes) -> None:
    with pytest.raises(StoreError, match="its verdict is not one of this version"):
        ask(200, body).verdict()


@pytest.mark.parametrize(
    ("status", "body", "sentence"),
    [
        (503, {"error": "no look\nyet"}, "no look yet"),
        (503, b"", "answers with HTTP status 503"),
        (500, {"error": 7}, "answers with HTTP status 500"),
        (401, {"error": "a valid bearer token is required"}, "the token is not its own; set VOICEPROBE_SIDECAR_TOKEN"),
        (403, {"error": "a client certificate is required"}, "a client certificate is required"),
        (404, {"error": "the rollout canary is not evaluated here"}, "the rollout canary is not evaluated here"),
        (404, b"<h1>Not Found</h1>", OLDER),
        (405, b"", OLDER),
    ],
)
def test_another_answer_is_one_sentence(
    ask: Callable[..., SidecarVerdicts], status: int, body: object, sentence: str
) -> None:
    with pytest.raises(StoreError) as error:
        ask(status, body).verdict()
    assert f": {sentence}" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_long_sentence_is_cut_short(ask: Callable[..., SidecarVerdicts]) -> None:
    with pytest.raises(StoreError) as error:
        ask(500, {"error": "x" * 100_000}).verdict()
    assert len(str(error.value)) < 600


def test_a_redirect_is_not_followed_with_the_token(ask: Callable[..., SidecarVerdicts], endpoint: _Endpoint) -> None:
    with pytest.raises(StoreError, match="answers with HTTP status 307"):
        ask(307, b"", location=f"http://127.0.0.1:{endpoint.server_port}/elsewhere").verdict()
    assert len(endpoint.seen) == 1


def test_a_rollout_is_unknown_only_to_a_sidecar(ask: Callable[..., SidecarVerdicts]) -> None:
    assert ask(200, VERDICT).is_evaluated()
    assert ask(503, {"error": "no look has ended yet"}).is_evaluated()
    assert not ask(404, {"error": "the rollout canary is not evaluated here"}).is_evaluated()
    with pytest.raises(StoreError, match="something else listens there"):
        ask(404, b"Not Found").is_evaluated()


def test_a_stage_begins_only_where_the_sidecar_says_so(
    ask: Callable[..., SidecarVerdicts], endpoint: _Endpoint
) -> None:
    assert ask(200, {"sentence": "it begins"}).begin("20") == StageAnswer(True, "it begins")
    assert ask(409, {"error": "the last verdict is hold"}).begin("20") == StageAnswer(False, "the last verdict is hold")
    for status, body in [(200, b"OK"), (409, b""), (502, b"bad gateway")]:
        with pytest.raises(StoreError):
            ask(status, body).begin("20")
    assert {(method, path) for method, path, _ in endpoint.seen} == {("POST", "/v1/rollouts/canary/stage")}


PLAN = """
name = "streaming"
unit = "call"
[cohorts]
control = "stable"
candidate = "streaming"
[[stages]]
name = "canary"
share = 0.05
control_share = 0.85
[[stages]]
name = "quarter"
share = 0.25
control_share = 0.65
[apply]
"""
FLAGS = {
    "flags": {
        "voice": {
            "state": "ENABLED",
            "variants": {"stable": 1, "streaming": 2, "local": 3},
            "defaultVariant": "stable",
            "targeting": {"fractional": [["stable", 90], ["local", 10]]},
        }
    },
    "$evaluators": {"kept": {"==": [1, 1]}},
}


def plan(apply: str) -> RolloutPlan:
    return parse_plan(PLAN + apply, "rollout.toml")


def stage(of: RolloutPlan, name: str, *, is_back: bool = False) -> ChangeShare:
    return ChangeShare(of.stage(name), is_back)


@pytest.fixture
def flags(tmp_path: Path) -> Path:
    (tmp_path / "flags.json").write_text(json.dumps(FLAGS))
    return tmp_path / "flags.json"


def weights(flags: Path) -> Any:
    return json.loads(flags.read_text())["flags"]["voice"]["targeting"]["fractional"]


def test_the_file_gets_the_shares_of_a_stage_and_of_its_end(flags: Path, tmp_path: Path) -> None:
    of = plan('flags = "flags.json"')
    change = share_changer(of, tmp_path / "rollout.toml")
    assert change(stage(of, "canary")) == f"{flags} gives streaming 0.05 of the callers"
    assert weights(flags) == [["stable", 85], ["streaming", 5], ["local", 10]]
    change(stage(of, "quarter"))
    assert weights(flags) == [["stable", 65], ["streaming", 25], ["local", 10]]
    change(stage(of, "quarter", is_back=True))
    assert weights(flags) == [["stable", 90], ["streaming", 0], ["local", 10]]
    assert json.loads(flags.read_text())["$evaluators"] == FLAGS["$evaluators"]


def test_flag_file_that_cannot_take_all_stages_is_refused_first(flags: Path, tmp_path: Path) -> None:
    of = plan('flags = "flags.json"\nflag = "speech"')
    with pytest.raises(UsageError, match="has no flag 'speech'"):
        share_changer(of, tmp_path / "rollout.toml")
    with pytest.raises(UsageError, match=r"missing\.json: cannot be read"):
        share_changer(plan('flags = "missing.json"'), tmp_path / "rollout.toml")
    assert json.loads(flags.read_text()) == FLAGS


def test_a_file_that_breaks_later_is_left_as_it_is(flags: Path, tmp_path: Path) -> None:
    of = plan('flags = "flags.json"')
    change = share_changer(of, tmp_path / "rollout.toml")
    flags.write_text("{")
    with pytest.raises(ShareUnchangedError, match="is not JSON"):
        change(stage(of, "canary"))
    assert flags.read_text() == "{"


def test_a_change_is_newer_than_the_file_that_it_replaces(flags: Path, tmp_path: Path) -> None:
    of = plan('flags = "flags.json"')
    future_ns = 4_000_000_000 * 10**9
    os.utime(flags, ns=(future_ns, future_ns))
    share_changer(of, tmp_path / "rollout.toml")(stage(of, "canary"))
    assert flags.stat().st_mtime_ns > future_ns


def script(tmp_path: Path, text: str) -> str:
    file = tmp_path / "set_share.py"
    file.write_text(f"import json, os, sys\n{text}\n")
    return f"command = [{json.dumps(sys.executable)}, {json.dumps(str(file))}, '{{share}}', '{{stage}}']"


def test_command_gets_share_in_arguments_and_environment(tmp_path: Path) -> None:
    seen = tmp_path / "seen.json"
    text = (
        "names = {k: v for k, v in os.environ.items() if k.startswith('VOICEPROBE_ROLLOUT_')}\n"
        f"open({str(seen)!r}, 'w').write(json.dumps([sys.argv[1:], names]))"
    )
    of = plan(script(tmp_path, text))
    share_changer(of, tmp_path / "rollout.toml")(stage(of, "canary"))
    arguments, names = json.loads(seen.read_text())
    assert arguments == ["0.05", "canary"]
    assert names == {
        "VOICEPROBE_ROLLOUT_ROLLOUT": "streaming",
        "VOICEPROBE_ROLLOUT_STAGE": "canary",
        "VOICEPROBE_ROLLOUT_CANDIDATE": "streaming",
        "VOICEPROBE_ROLLOUT_CONTROL": "stable",
        "VOICEPROBE_ROLLOUT_SHARE": "0.05",
        "VOICEPROBE_ROLLOUT_CONTROL_SHARE": "0.85",
    }
    share_changer(of, tmp_path / "rollout.toml")(stage(of, "canary", is_back=True))
    assert json.loads(seen.read_text())[0] == ["0", ""]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("sys.exit('quota\\x1b[2J exceeded')", "ended with code 1: quota\\x1b[2J exceeded"),
        ("import time\ntime.sleep(600)", "did not end within 1s"),
    ],
)
def test_a_command_that_does_not_succeed_says_why(tmp_path: Path, text: str, sentence: str) -> None:
    of = plan(script(tmp_path, text) + '\ntimeout = "1s"')
    with pytest.raises(ShareUnchangedError) as caught:
        share_changer(of, tmp_path / "rollout.toml")(stage(of, "canary"))
    assert sentence in str(caught.value)


def test_a_command_that_is_not_there_is_named(tmp_path: Path) -> None:
    of = plan('command = ["/nowhere/set-share"]')
    with pytest.raises(ShareUnchangedError, match="/nowhere/set-share cannot be run: No such file"):
        share_changer(of, tmp_path / "rollout.toml")(stage(of, "canary"))


def test_a_plan_that_does_not_say_how_can_only_be_watched(tmp_path: Path) -> None:
    of = parse_plan(PLAN.replace("[apply]", ""), "rollout.toml")
    with pytest.raises(UsageError, match="apply is missing; say how the shares are changed"):
        share_changer(of, tmp_path / "rollout.toml")


APPLY = '[apply]\nflags = "flags.json"\nsettle = "10ms"\n'
VOICE = {"state": "ENABLED", "variants": {"stable": 1, "streaming": 2}, "defaultVariant": "stable"}


@pytest.fixture
def asked(tmp_path: Path) -> RolloutRunRequest:
    (tmp_path / "flags.json").write_text(json.dumps({"flags": {"voice": VOICE}}))
    (tmp_path / "rollout.toml").write_text(PLAN_FILE + APPLY)
    fill_rollout_store(tmp_path / "store", "few")
    log = tmp_path / "log"
    return RolloutRunRequest(tmp_path / "rollout.toml", str(tmp_path / "store"), log=log, every_s=0.05, at_most_s=0.2)


@pytest.mark.slow
def test_verdict_folder_serves_same_rollout_again_and_others(asked: RolloutRunRequest) -> None:
    assert asked.log is not None
    for name in ("streaming", "streaming", "second"):
        asked.plan.write_text(PLAN_FILE.replace('name = "streaming"', f'name = "{name}"') + APPLY)
        assert run_rollout(asked, Console(file=StringIO())) == ExitCode.UNDECIDED
    with StoreReader(asked.log) as reader:
        assert {record.name for record in reader.rollouts()} == {"streaming", "second"}


def test_a_file_in_place_of_the_folder_of_verdicts_is_refused(asked: RolloutRunRequest) -> None:
    assert asked.log is not None
    asked.log.write_text("")
    with pytest.raises(UsageError, match=r"^--log: .* is not a folder$"):
        run_rollout(asked, Console(file=StringIO()))

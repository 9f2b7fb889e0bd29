"""Changes of shares: in a file, by a command, over HTTP; and what each of them says when it does not succeed."""

import json
import os
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from loadtest.errors import UsageError
from loadtest.rollout.share_changes import TOKEN_VARIABLE, ShareUnchangedError, share_changer
from loadtest.rollout.steps import ChangeShare
from telemetry.rollout.plan import RolloutPlan
from telemetry.rollout.plan_document import parse_plan

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


def test_a_file_that_cannot_take_every_stage_is_refused_before_anything_begins(flags: Path, tmp_path: Path) -> None:
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


def test_a_command_gets_the_share_in_its_arguments_and_environment(tmp_path: Path) -> None:
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


class _Asked(BaseHTTPRequestHandler):
    status = 200
    asked: list[tuple[str, str | None, Any]]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.asked.append((self.path, self.headers["authorization"], body))
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(b"no such flag\n" if self.status != 200 else b"")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass


@pytest.fixture
def service() -> Iterator[tuple[str, type[_Asked]]]:
    class Handler(_Asked):
        asked: list[tuple[str, str | None, Any]] = []  # noqa: RUF012 - of this test alone

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/share", Handler
    server.shutdown()
    server.server_close()
    thread.join()


def test_an_address_is_asked_with_the_share(
    service: tuple[str, type[_Asked]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, handler = service
    monkeypatch.setenv(TOKEN_VARIABLE, "a-token")
    of = plan(f'url = "{url}?key=hidden"')
    done = share_changer(of, tmp_path / "rollout.toml")(stage(of, "quarter"))
    assert "hidden" not in done
    (asked,) = handler.asked
    assert asked[:2] == ("/share?key=hidden", "Bearer a-token")
    assert asked[2] == {
        "rollout": "streaming",
        "stage": "quarter",
        "candidate": "streaming",
        "control": "stable",
        "share": 0.25,
        "control_share": 0.65,
    }


def test_an_address_that_refuses_or_does_not_answer_says_so(service: tuple[str, type[_Asked]], tmp_path: Path) -> None:
    url, handler = service
    handler.status = 409
    of = plan(f'url = "{url}?key=hidden"')
    with pytest.raises(ShareUnchangedError, match="answered 409: no such flag") as caught:
        share_changer(of, tmp_path / "rollout.toml")(stage(of, "canary"))
    assert "hidden" not in str(caught.value)
    nobody = plan('url = "http://127.0.0.1:9/share"')
    with pytest.raises(ShareUnchangedError, match="/share cannot be asked"):
        share_changer(nobody, tmp_path / "rollout.toml")(stage(nobody, "canary"))


def test_a_plan_that_does_not_say_how_can_only_be_watched(tmp_path: Path) -> None:
    of = parse_plan(PLAN.replace("[apply]", ""), "rollout.toml")
    with pytest.raises(UsageError, match="apply is missing; say how the shares are changed"):
        share_changer(of, tmp_path / "rollout.toml")

"""Every place that a command would write its result to is tried before anything is done."""

import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, get_args, get_origin, get_type_hints

import pytest
import typer
from typer.models import OptionInfo

from corpora.cli import app as corpora_app
from corpora.cli import main as corpora_main
from loadtest.cli.main import app
from loadtest.errors import OutputError
from loadtest.run.json_file import write_json
from tests.fixtures_turns import fill_store, synthetic_run
from tests.integration.calling import CORPUS
from tests.integration.commands import carried_out, completed

CALLERS = ["--corpus", CORPUS, "--clips", "1"]
ROLLOUT = Path(__file__).parents[3] / "examples" / "rollouts" / "streaming.toml"
# Command and flag; the flags that make the rest of the request a good one.
OUTPUTS = {
    ("run", "--json"): ["URL", *CALLERS],
    ("run", "--out"): ["URL", *CALLERS],
    ("capacity", "--json"): ["URL", *CALLERS],
    ("capacity", "--out"): ["URL", *CALLERS],
    **{("report", flag): ["--store", "store"] for flag in ("--json", "--html", "--junit", "--markdown")},
    ("audit", "--json"): [],
    ("audit", "--out"): [],
    ("demo", "--json"): [],
    ("demo", "--out"): [],
    ("calibrate", "--json"): [],
    ("calibrate", "--out"): [],
    ("calibrate", "--picture"): [],
    ("corpus show", "--out"): [CORPUS],
    ("corpus import", "--into"): ["AUDIO", "--license", "CC0-1.0", "--consent", "none"],
    ("corpus import", "--json"): ["AUDIO", "--license", "CC0-1.0", "--consent", "none", "--into", "INTO"],
    ("corpus say", "--into"): ["TEXTS", "--license", "CC0-1.0"],
    **{("llm", flag): ["http://127.0.0.1:1/v1"] for flag in ("--json", "--html", "--out")},
    ("pair", "--json"): ["URL", "URL"],
    ("pair", "--out"): ["URL", "URL"],
    ("techniques", "--html"): [],
    ("techniques", "--json"): [],
    ("techniques", "--out"): [],
    ("protocol partials", "--out"): ["--store", "store"],
    ("rules", "--out"): [],
    ("rollout check", "--history"): ["plan.toml", "--store", "store"],
    ("rollout check", "--json"): ["plan.toml", "--store", "store"],
    ("rollout check", "--junit"): ["plan.toml", "--store", "store"],
    ("rollout check", "--markdown"): ["plan.toml", "--store", "store"],
    ("rollout report", "--html"): ["plan.toml", "--store", "store"],
    ("rollout run", "--log"): ["plan.toml", "--store", "store"],
    **{("compare", flag): ["store", "store"] for flag in ("--json", "--html", "--markdown")},
    ("runs", "--json"): ["--runs", "store"],
    ("runs list", "--json"): ["--runs", "store"],
    ("store check", "--json"): ["store"],
    ("store export", "--to"): ["store"],
}
# The first flag of each command, or of the first command of a group, is tried by a process, the others in the process
# of the test, where no second goes by until a command begins. Other tests start a process of these commands.
STARTED_ELSEWHERE = {"demo", "llm", "run"}
IN_A_PROCESS = {
    (command, flag)
    for command, flag in OUTPUTS
    if command not in STARTED_ELSEWHERE
    and (command, flag) == next(output for output in OUTPUTS if output[0].split()[0] == command.split()[0])
}
# Paths that are read; and the folder of a corpus whose maker is us.
INPUTS = {"slo", "scenario", "folder", "files", "texts", "source", "spec", "store", "prices", "prompts"}
OURS = {("corpus build", "--out")}


def _flags(prefix: str, commands: typer.Typer) -> Iterator[tuple[str, str]]:
    """Every flag of every command that takes one path, those of groups and of the commands in them too."""
    for command in commands.registered_commands:
        assert command.callback is not None
        yield from _flags_of(_joined(prefix, command.name or command.callback.__name__), command.callback)
    for group in commands.registered_groups:
        inner, name = group.typer_instance, _joined(prefix, str(group.name))
        assert inner is not None
        if inner.registered_callback is not None and inner.registered_callback.callback is not None:
            yield from _flags_of(name, inner.registered_callback.callback)
        yield from _flags(name, inner)


def _joined(prefix: str, name: str) -> str:
    return name if prefix == name else f"{prefix} {name}".strip()


def _flags_of(name: str, callback: Callable[..., object]) -> Iterator[tuple[str, str]]:
    for parameter, hint in get_type_hints(callback, include_extras=True).items():
        base, *extras = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        for extra in extras:
            if isinstance(extra, OptionInfo) and base in (Path, Path | None) and parameter not in INPUTS:
                # In `Annotated` the first name takes the default's position.
                names = [word for word in (extra.default, *(extra.param_decls or ())) if isinstance(word, str)]
                yield name, names[0] if names else f"--{parameter}"


def test_every_output_of_every_command_is_tried_here() -> None:
    flags = {*_flags("", app), *_flags("corpus", corpora_app)}
    assert flags - OURS == set(OUTPUTS)


@pytest.fixture
def caught() -> Iterator[tuple[str, list[object]]]:
    """An address, and who connected there."""
    visitors: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    visitors.append(server.accept())
                except OSError:
                    return

        threading.Thread(target=accept, daemon=True).start()
        yield f"ws://127.0.0.1:{server.getsockname()[1]}/v1/realtime", visitors
        server.shutdown(socket.SHUT_RDWR)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of one run, to be copied."""
    return fill_store(tmp_path_factory.mktemp("stored") / "store", synthetic_run(turns=3))


@pytest.mark.parametrize(("command", "flag"), OUTPUTS, ids=lambda text: text.replace(" ", "-"))
def test_unwritable_output_is_one_sentence_before_first_call(
    tmp_path: Path,
    caught: tuple[str, list[object]],
    stored: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    flag: str,
) -> None:
    url, visitors = caught
    (tmp_path / "file").touch()
    (tmp_path / "texts.csv").write_text("text\nhello\n")
    (tmp_path / "audio").mkdir()
    (tmp_path / "plan.toml").write_text(ROLLOUT.read_text() + '\n[apply]\ncommand = ["true"]\n')
    shutil.copytree(stored, tmp_path / "store")
    names = {"URL": url, "AUDIO": "audio", "TEXTS": "texts.csv", "INTO": "into"}
    name = "picture.svg" if flag == "--picture" else "result"
    given = [names.get(output, output) for output in OUTPUTS[command, flag]]
    before = {str(path) for path in tmp_path.rglob("*")}
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    arguments = [*command.split(), *given, flag, f"file/deep/{name}"]
    if (command, flag) in IN_A_PROCESS:
        done = completed(*arguments, cwd=tmp_path)
    elif command.startswith("corpus "):
        # The command becomes this program.
        done = carried_out(*arguments[1:], cwd=tmp_path, program=corpora_main, name="voiceprobe corpus")
    else:
        done = carried_out(*arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "cannot be written" in done.stderr
    assert "file is not a folder" in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert visitors == []
    assert {str(path) for path in tmp_path.rglob("*")} == before


def test_a_result_goes_to_a_pipe_as_it_is(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", list[str]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write_json(pipe, {"a": 1})
    reader.join(60)
    assert read == ['{\n  "a": 1\n}\n']
    assert pipe.is_fifo()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_disk_that_is_full_in_the_end_is_one_sentence() -> None:
    with pytest.raises(OutputError, match="/dev/full could not be written: No space left on device; make room"):
        write_json(Path("/dev/full"), {"a": 1})

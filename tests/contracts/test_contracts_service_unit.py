"""The systemd unit of the sidecar: what it starts is there, systemd accepts it, and what it may do is little."""

import json
import re
import shlex
import socket
import subprocess
from pathlib import Path

import pytest

from telemetry.sidecar import stopping
from telemetry.sidecar.configuration import TABLES, read_configuration
from telemetry.sidecar.forwarding.destinations import destinations_from
from telemetry.sidecar.scraping import targets_from
from telemetry.sidecar.settings import BY_KEY
from tests.contracts.documents import faults
from tests.fixtures_sidecar import running_sidecar
from tests.programs import needed

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "telemetry" / "data" / "voiceprobe-sidecar.service"
# Of 10, by systemd's own measure: "OK" ends below 2.
EXPOSURE_MAX = 2.0


def _values(section: str, key: str) -> list[str]:
    found = re.findall(
        rf"^{key}=(.*)$", UNIT.read_text().partition(f"[{section}]")[2].partition("\n[")[0], re.MULTILINE
    )
    assert found, f"{key} is not in [{section}]"
    return found


def test_it_starts_a_command_that_exists_with_settings_that_exist() -> None:
    (command,) = _values("Service", "ExecStart")
    program, *arguments = shlex.split(command)
    assert Path(program).name == "voiceprobe"
    assert faults(shlex.join(["voiceprobe", *arguments])) == []
    variables = dict(value.split("=", 1) for value in _values("Service", "Environment"))
    read = read_configuration({}, variables)
    assert read.faults == []
    assert set(read.given) == {"store", "token_file"}
    (credential,) = _values("Service", "LoadCredential")
    assert read.value("token_file") == f"%d/{credential.partition(':')[0]}"
    assert str(read.value("store")).startswith(f"%S/{_values('Service', 'StateDirectory')[0]}/")


def test_the_limit_of_descriptors_is_enough_for_the_connections() -> None:
    assert int(_values("Service", "LimitNOFILE")[0]) >= 2 * int(BY_KEY["max_connections"].default or 0) + 256


def test_systemd_accepts_it(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    # The program must be there for systemd to accept it; everything else stays.
    unit.write_text(re.sub(r"^ExecStart=\S+", f"ExecStart={needed('sh')}", UNIT.read_text(), flags=re.MULTILINE))
    done = _analyze("verify", str(unit))
    assert (done.returncode, done.stderr) == (0, "")
    unit.write_text(unit.read_text().replace("Restart=on-failure", "Restart=on-fire"))
    assert "on-fire" in _analyze("verify", str(unit)).stderr, "it finds what is wrong"


def test_it_may_do_little_by_systemds_own_measure() -> None:
    threshold = f"--threshold={EXPOSURE_MAX * 10:.0f}"
    done = _analyze("security", "--offline=true", "--json=short", threshold, str(UNIT))
    assert done.returncode == 0, done.stdout
    weaknesses = {each["name"] for each in json.loads(done.stdout) if each.get("exposure")}
    assert not weaknesses & {
        "NoNewPrivileges",
        "ProtectSystem",
        "CapabilityBoundingSet_CAP_SYS_ADMIN",
        "User_Or_DynamicUser",
    }


def _analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [needed("systemd-analyze"), "--no-pager", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)


def test_only_the_front_is_signaled_and_a_bad_configuration_is_not_tried_again() -> None:
    assert _values("Service", "KillMode") == ["mixed"]
    assert _values("Service", "RestartPreventExitStatus") == ["2"]
    assert int(_values("Service", "TimeoutStopSec")[0]) > 10 + 20


@pytest.mark.slow
def test_the_sidecar_says_when_it_is_ready_and_when_it_stops(tmp_path: Path) -> None:
    assert _values("Service", "Type") == ["notify"]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(120)
        variables = {stopping.SOCKET_VARIABLE: str(tmp_path / "notify")}
        with running_sidecar(tmp_path / "store", variables=variables) as sidecar:
            assert receiver.recv(100) == b"READY=1"
            assert sidecar.terminate() == 0
            assert receiver.recv(100) == b"STOPPING=1"


def _block(page: str, title: str) -> str:
    """The code block of a page with a title."""
    text = (ROOT / page).read_text(encoding="utf-8")
    assert f'title="{title}"\n' in text
    return text.partition(f'title="{title}"\n')[2].partition("```")[0]


def test_the_file_in_the_documentation_is_accepted(tmp_path: Path) -> None:
    file = tmp_path / "sidecar.toml"
    file.write_text(_block("docs/how-to/production.md", "sidecar.toml"))
    read = read_configuration({"config": str(file)}, {}, TABLES)
    assert read.faults == []
    assert set(read.tables) == set(TABLES)
    assert [each.name for each in destinations_from(read.tables["forward"], "file")] == ["tempo"]
    assert [each.name for each in targets_from(read.tables["scrape"], "file")] == ["vllm-1"]


def test_the_events_in_the_documentation_are_those_of_the_code() -> None:
    table = (ROOT / "docs/how-to/production.md").read_text(encoding="utf-8").partition("| Event | When |")[2]
    documented = {
        name
        for row in table.partition("\n\n")[0].splitlines()[2:]
        for name in re.findall(r"`(\w+)`", row.split("|")[1])
    }
    written = {
        name
        for source in (ROOT / "telemetry" / "sidecar").rglob("*.py")
        for name in re.findall(r'log_event\(_log, [\w.]+, "(\w+)"', source.read_text(encoding="utf-8"))
    }
    assert documented == written
    assert {"ready", "stopped"} <= written

"""docker-compose.yml and the sidecar's systemd unit against the real commands: no engine runs here."""

import json
import re
import shlex
import socket
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from telemetry.sidecar import stopping
from telemetry.sidecar.configuration import TABLES, read_configuration
from telemetry.sidecar.forwarding.destinations import destinations_from
from telemetry.sidecar.scraping import targets_from
from telemetry.sidecar.settings import BY_KEY
from tests.contracts.command_help import LOCUST, has_flag, run
from tests.contracts.documents import faults
from tests.fixtures_sidecar import running_sidecar
from tests.programs import needed

ROOT = Path(__file__).parents[2]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if "build" in service}
PORT_FLAGS = ("--port", "--http-port", "--grpc-port")
# What listens on a port of its own choosing, as its documentation says.
KNOWN_PORTS = {"prometheus": {9090}, "grafana": {3000}, "locust-master": {8089, 5557}}
SCRAPE = ROOT / "telemetry" / "data" / "prometheus.yml"


def published(service: dict[str, Any]) -> list[tuple[str, int, int]]:
    """(address on the host, port on the host, port in the container) of every published port."""
    rows: list[tuple[str, int, int]] = []
    for entry in service.get("ports", []):
        address, host, container = entry.rsplit(":", 2)
        rows.append((address, int(host), int(container)))
    return rows


def listening(name: str) -> set[int]:
    command = SERVICES[name].get("command", [])
    return {int(value) for flag, value in pairwise(command) if flag in PORT_FLAGS} | KNOWN_PORTS.get(name, set())


def test_every_part_is_there() -> None:
    watching = {"dashboard", "prometheus", "grafana"}
    assert set(SERVICES) == {"assistant", "sidecar", "locust-master", "locust-worker"} | watching


@pytest.mark.slow
@pytest.mark.parametrize("name", OURS)
def test_each_command_exists_with_every_flag_it_is_given(name: str) -> None:
    command = OURS[name]["command"]
    if command[:2] == ["python", "-m"]:
        assert faults(shlex.join(command)) == []
        return
    # Locust's parser starts nothing.
    assert command[:3] == ["locust", "-f", "loadtest/locustfile.py"]
    result = run(*LOCUST, *command[3:])
    assert result.returncode == 0, result.stdout + result.stderr


def test_missing_flag_is_detected() -> None:
    text = "│ --store  TEXT  the folder (default: ./store), as --no-such-store"
    assert has_flag(text, "--store")
    assert not has_flag(text, "--stor")
    assert not has_flag(text, "--no-such")


@pytest.mark.parametrize("name", SERVICES)
def test_ports_are_published_on_loopback_and_listened_on(name: str) -> None:
    for address, _, container in published(SERVICES[name]):
        assert address == "127.0.0.1"
        assert container in listening(name)


def test_no_two_parts_take_the_same_port_of_the_host() -> None:
    taken = [host for service in SERVICES.values() for _, host, _ in published(service)]
    assert sorted(taken) == sorted(set(taken))


@pytest.mark.parametrize("name", SERVICES)
def test_addresses_name_a_part_and_a_port_that_it_listens_on(name: str) -> None:
    command = SERVICES[name].get("command", [])
    for word in command:
        if "://" in word:
            address = urlsplit(word)
            # On loopback it is for a browser on the host, else for a part.
            if address.hostname == "127.0.0.1":
                assert address.port in {host for service in SERVICES.values() for _, host, _ in published(service)}
                continue
            assert address.hostname in SERVICES
            assert address.port in listening(address.hostname)
    for flag, value in pairwise(command):
        if flag == "--master-host":
            assert value in SERVICES


@pytest.mark.parametrize("name", SERVICES)
def test_images_are_pinned_to_a_version(name: str) -> None:
    image, _, tag = SERVICES[name]["image"].rpartition(":")
    assert image
    assert re.fullmatch(r"v?\d+\.\d+\.\d+[\w.-]*", tag)


@pytest.mark.parametrize("name", sorted(set(SERVICES) - {"locust-worker"}))
def test_every_listening_service_has_health_check_on_its_port(name: str) -> None:
    asked = " ".join(SERVICES[name]["healthcheck"]["test"])
    ports = {int(port) for port in re.findall(r"127\.0\.0\.1(?::|', )(\d+)", asked)}
    assert ports
    assert ports <= listening(name)


@pytest.mark.parametrize("name", SERVICES)
def test_awaited_service_has_a_health_check(name: str) -> None:
    for other, how in SERVICES[name].get("depends_on", {}).items():
        assert how == {"condition": "service_healthy"}
        assert "healthcheck" in SERVICES[other]


@pytest.mark.parametrize("name", OURS)
def test_service_beyond_loopback_requires_a_chosen_token(name: str) -> None:
    for variable in ("VOICEPROBE_TOKEN", "VOICEPROBE_SIDECAR_TOKEN"):
        assert OURS[name]["environment"][variable].startswith(f"${{{variable}:?")
    assert "--token" not in OURS[name]["command"], "a token in a command is shown by every list of processes"


def test_volumes_are_declared_or_are_files_of_the_checkout() -> None:
    for service in SERVICES.values():
        for volume in service.get("volumes", []):
            source, target, *_ = volume.split(":")
            if source.startswith("."):
                assert (ROOT / source).is_file()
            else:
                assert source in COMPOSE["volumes"]
            assert target.startswith("/")


def test_empty_dashboard_links_to_page_where_callers_start() -> None:
    command = SERVICES["dashboard"]["command"]
    page = urlsplit(command[command.index("--locust") + 1])
    assert (page.scheme, page.hostname, page.port) in [
        ("http", address, host) for address, host, inside in published(SERVICES["locust-master"]) if inside == 8089
    ]


def test_the_dashboard_reads_the_store_that_the_sidecar_writes() -> None:
    def store(name: str) -> tuple[str, str]:
        command = SERVICES[name]["command"]
        return command[command.index("--store") + 1], SERVICES[name]["volumes"][0].removesuffix(":ro")

    assert store("sidecar") == store("dashboard")
    assert SERVICES["dashboard"]["volumes"][0].endswith(":ro")


def test_prometheus_accepts_the_scrape_file() -> None:
    promtool = needed("promtool")
    result = subprocess.run(
        [promtool, "check", "config", "--syntax-only", str(SCRAPE)],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_prometheus_scrapes_existing_service_on_its_port() -> None:
    jobs = yaml.safe_load(SCRAPE.read_text())["scrape_configs"]
    targets = [target for job in jobs for group in job["static_configs"] for target in group["targets"]]
    assert targets
    for target in targets:
        name, _, port = target.partition(":")
        assert int(port) in listening(name)


def test_prometheus_and_grafana_can_read_their_configuration() -> None:
    mounted = {
        name: {
            target: ROOT / source for source, target, *_ in (volume.split(":") for volume in SERVICES[name]["volumes"])
        }
        for name in ("prometheus", "grafana")
    }
    for name in yaml.safe_load(SCRAPE.read_text())["rule_files"]:
        assert mounted["prometheus"][f"/etc/prometheus/{name}"].is_file()
    folder = "/etc/grafana/provisioning"
    sources = yaml.safe_load(mounted["grafana"][f"{folder}/datasources/voiceprobe.yml"].read_text())["datasources"]
    for source in sources:
        address = urlsplit(source["url"])
        assert address.hostname in SERVICES
        assert address.port in listening(address.hostname)
    grafana = SERVICES["grafana"]["environment"]
    # Installed before Grafana provisions the data source of its type, in a version that is named.
    plugin, _, version = grafana["GF_PLUGINS_PREINSTALL_SYNC"].partition("@")
    assert re.fullmatch(r"\d+\.\d+\.\d+", version)
    assert {entry["type"] for entry in sources} == {"prometheus", plugin}
    assert sources[1]["secureJsonData"]["bearerToken"].removeprefix("$") in grafana
    (provider,) = yaml.safe_load(mounted["grafana"][f"{folder}/dashboards/voiceprobe.yml"].read_text())["providers"]
    for name in ("voiceprobe.json", "voiceprobe-store.json"):
        assert mounted["grafana"][f"{provider['options']['path']}/{name}"].is_file()


def test_the_example_names_every_variable_that_has_to_be_chosen() -> None:
    asked = set(re.findall(r"\$\{(\w+):\?", (ROOT / "docker-compose.yml").read_text()))
    lines = (ROOT / ".env.example").read_text().splitlines()
    assert {line.removesuffix("=") for line in lines if line and not line.startswith("#")} == asked


def test_prometheus_carries_the_token_that_the_sidecar_asks_for() -> None:
    for job in yaml.safe_load(SCRAPE.read_text())["scrape_configs"]:
        path = Path(job["authorization"]["credentials_file"])
        assert path.parent == Path("/run/secrets")
        assert path.name in SERVICES["prometheus"]["secrets"]
        assert COMPOSE["secrets"][path.name] == {"environment": "VOICEPROBE_SIDECAR_TOKEN"}


def test_sidecar_writes_only_to_its_store_without_privileges() -> None:
    sidecar = SERVICES["sidecar"]
    assert (sidecar["read_only"], sidecar["cap_drop"]) == (True, ["ALL"])
    assert [Path(mount).name for mount in sidecar["tmpfs"]] == ["tmp"]
    assert sidecar["security_opt"] == ["no-new-privileges:true"]
    # Ten seconds for requests in progress, twenty for the store.
    assert int(sidecar["stop_grace_period"].removesuffix("s")) > 30


def instructions(dockerfile: str) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile in order, continued lines joined, comments left out."""
    lines = [line for line in dockerfile.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    split_lines = [line.split(maxsplit=1) for line in joined.splitlines()]
    return [(name, " ".join(rest.split())) for name, rest in split_lines]


def test_image_runs_as_unprivileged_user_and_has_the_command() -> None:
    dockerfile = instructions((ROOT / "Dockerfile").read_text())
    names = [name for name, _ in dockerfile]
    of = dict(dockerfile)
    assert names.count("FROM") == names.count("USER") == 1
    assert of["USER"] == "10001"
    assert "--uid 10001 voiceprobe" in next(rest for name, rest in dockerfile if name == "RUN")
    assert names.index("USER") > max(at for at, name in enumerate(names) if name in ("RUN", "COPY"))
    assert of["STOPSIGNAL"] == "SIGTERM"
    assert json.loads(of["CMD"])[0] == "voiceprobe"
    assert "> /usr/local/bin/voiceprobe" in next(rest for name, rest in dockerfile if name == "RUN")
    assert "ADD" not in names
    assert "VOLUME" not in names, "of each container of the image one would be left behind"
    run = " ".join(rest for name, rest in dockerfile if name == "RUN")
    for word in ("curl ", "wget ", "sudo", "http://", "https://", "--trusted-host"):
        assert word not in run, word
    assert run.count("--require-hashes") == 2
    # No secret is built into a layer.
    assert not [
        rest for name, rest in dockerfile if name in ("ENV", "ARG") and re.search("TOKEN|SECRET|PASSWORD", rest)
    ]


@pytest.mark.slow
def test_the_images_command_passes_its_arguments_on(tmp_path: Path) -> None:
    run_line = next(rest for name, rest in instructions((ROOT / "Dockerfile").read_text()) if name == "RUN")
    printed = re.search(r"(printf .*?) > /usr/local/bin/voiceprobe", run_line)
    assert printed is not None
    script = tmp_path / "voiceprobe"
    content = subprocess.run(["sh", "-c", printed[1]], capture_output=True, check=True, timeout=60).stdout
    script.write_bytes(content.replace(b"exec python", f"exec {sys.executable}".encode()))
    script.chmod(0o755)
    done = run(str(script), "sidecar", "--store", "a b", "--http-port", "1", "--print-config")
    assert done.returncode == 0, done.stderr
    assert 'store = "a b"  # --store' in done.stdout


def test_the_image_holds_what_the_commands_need() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    # The tag follows the corrections of Python and Debian.
    assert [line for line in lines if line.startswith("FROM")] == ["FROM python:3.11-slim-trixie"]
    copied = {word for line in lines if line.startswith("COPY") for word in line.split()[1:-1]}
    assert copied == {
        "requirements.lock",
        "requirements-bootstrap.lock",
        "corpora",
        "telemetry",
        "loadtest",
        "dashboard",
    }
    for source in copied:
        assert (ROOT / source).exists()


UNIT = ROOT / "telemetry" / "data" / "voiceprobe-sidecar.service"
# Of 10, by systemd's own measure: "OK" ends below 2.
EXPOSURE_MAX = 2.0


def _values(section: str, key: str) -> list[str]:
    values = re.findall(
        rf"^{key}=(.*)$", UNIT.read_text().partition(f"[{section}]")[2].partition("\n[")[0], re.MULTILINE
    )
    assert values, f"{key} is not in [{section}]"
    return values


def test_unit_starts_existing_command_with_existing_settings() -> None:
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


def test_the_unit_may_do_little_by_systemds_own_measure() -> None:
    threshold = f"--threshold={EXPOSURE_MAX * 10:.0f}"
    done = _analyze("security", "--offline=true", "--json=short", threshold, str(UNIT))
    assert done.returncode == 0, done.stdout
    weaknesses = {check["name"] for check in json.loads(done.stdout) if check.get("exposure")}
    assert not weaknesses & {
        "NoNewPrivileges",
        "ProtectSystem",
        "CapabilityBoundingSet_CAP_SYS_ADMIN",
        "User_Or_DynamicUser",
    }


def _analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [needed("systemd-analyze"), "--no-pager", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)


def test_only_main_process_is_signaled_and_bad_config_not_tried() -> None:
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
    assert [destination.name for destination in destinations_from(read.tables["forward"], "file")] == ["tempo"]
    assert [target.name for target in targets_from(read.tables["scrape"], "file")] == ["vllm-1"]


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

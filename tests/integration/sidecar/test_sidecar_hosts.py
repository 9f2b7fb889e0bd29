"""Where a sidecar listens: IPv6 in every address that it prints, and no port that another program has."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import grpc
import httpx
import pytest

from telemetry.sidecar_client import SidecarClient
from tests.nightly import nightly_after

BOUND_S = 120
TOKEN = "tok-0a1b2c3d4e5f"


def start(store: Path, *flags: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "telemetry.sidecar", "--store", str(store), *flags]
    # A token from a file ends with its line.
    environment = {**os.environ, "VOICEPROBE_SIDECAR_TOKEN": f"{TOKEN}\n"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def test_sidecar_addresses_on_ipv6_are_accepted_by_clients(tmp_path: Path) -> None:
    with start(tmp_path, "--host", "[::1]", "--http-port", "0", "--grpc-port", "0") as process:
        try:
            assert process.stdout is not None
            ready = json.loads(process.stdout.readline())
            assert ready["http"].startswith("http://[::1]:")
            assert ready["grpc"].startswith("[::1]:")
            assert httpx.get(f"{ready['http']}/healthz", timeout=BOUND_S).status_code == 200
            assert SidecarClient(ready["http"], TOKEN).ask("GET", "/v1/state").status == 200
            with grpc.insecure_channel(ready["grpc"]) as channel:
                grpc.channel_ready_future(channel).result(BOUND_S)
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=BOUND_S)


@pytest.mark.parametrize("flag", ["--http-port", "--grpc-port"])
@pytest.mark.parametrize("host", nightly_after(1, ["localhost", "127.0.0.1", "0.0.0.0"]))
def test_port_of_other_program_is_refused_under_every_name(tmp_path: Path, host: str, flag: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        other = "--grpc-port" if flag == "--http-port" else "--http-port"
        with start(tmp_path, "--host", host, flag, str(port), other, "0") as process:
            _, errors = process.communicate(timeout=BOUND_S)
    assert process.returncode == 2
    assert errors.startswith(f"{flag}: cannot listen on ")
    assert f":{port}" in errors
    assert "free the port, choose another one, or give 0 for any free port" in errors
    assert "Traceback" not in errors

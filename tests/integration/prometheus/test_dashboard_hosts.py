"""Host names to which a running dashboard answers: over IPv6, behind a reverse proxy, and to no others."""

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

BOUND_S = 90
PAGE = {"sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}


def stream_status(url: str, host: str, origin: str) -> int:
    """The status of the answer to a WebSocket handshake that a browser sends."""
    address = urlsplit(url)
    assert address.hostname is not None
    assert address.port is not None
    opened = socket.create_connection((address.hostname, address.port), BOUND_S)
    try:
        with connect(f"ws://{host}/_stcore/stream", sock=opened, origin=Origin(origin), open_timeout=BOUND_S):
            return 101
    except InvalidStatus as refused:
        return refused.response.status_code


@pytest.mark.parametrize("host", ["::1", "127.0.0.1"])
def test_dashboard_answers_only_to_its_address_and_public_name(tmp_path: Path, host: str) -> None:
    command = [sys.executable, "-m", "dashboard", str(tmp_path), "--host", host, "--port", "0", "--headless"]
    with subprocess.Popen([*command, "--public-host", "dash.example"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            url = json.loads(process.stdout.readline())["url"]
            here = urlsplit(url).netloc
            assert here.startswith("[::1]:" if ":" in host else "127.0.0.1:")
            assert stream_status(url, here, f"http://{here}") == 101
            assert stream_status(url, "dash.example", "https://dash.example") == 101
            # A proxy that passes on the address behind it as Host.
            assert stream_status(url, here, "https://dash.example") == 101
            assert stream_status(url, "attacker.example", "http://attacker.example") == 403
            assert stream_status(url, here, "http://attacker.example") == 403
            pages = [httpx.get(url, headers={"host": name, **PAGE}) for name in (here, "dash.example", "other.example")]
            assert [page.status_code for page in pages] == [200, 200, 403]
            assert "--public-host NAME" in pages[2].text
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(BOUND_S) == 0

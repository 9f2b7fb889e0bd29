"""Start of the dashboard's server: one process without children, connected only to the browsers of its viewers.

Streamlit runs inside this process, so ending the process ends everything. The ready line is printed when the server
answers, not when it was started.
"""

import json
import os
import re
import sys
import webbrowser
from dataclasses import dataclass
from importlib import import_module
from ipaddress import IPv6Address
from pathlib import Path
from pkgutil import iter_modules
from typing import Final
from urllib.parse import urlsplit

from dashboard import pages
from dashboard.source import ENV_LOCUST, ENV_RUNS, ENV_SLO, ENV_STORE, given_objectives
from telemetry.client_tls import sidecar_token
from telemetry.model.addresses import host_and_port, host_in_url, is_loopback, local_host, without_brackets
from telemetry.model.errors import ConfigError

APP: Final = Path(__file__).parent / "script" / "entry.py"
HEALTH_PATH: Final = "/_stcore/health"
POLITENESS: Final = 5
# The smallest message that the browser may be asked to remember. It lists for the server what it remembers and may
# forget some of that before the answer comes, and then the page is disconnected for good: seen on a busy machine.
_NOTHING_CACHED_BYTES: Final = 2.0**62
_HOST_NAME: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?")
# As Streamlit compares them: without the brackets of a URL.
_LOOPBACK_HOSTS: Final = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """The options of the command line. Port 0 means any free one."""

    store: str | None = None  # a folder, or the address of a sidecar; None: the newest run's of `places`
    places: tuple[str, ...] = ()  # where runs are, as the list of runs has it; the store, where there are none
    slo: Path | None = None
    host: str = "127.0.0.1"
    port: int = 8501
    headless: bool = False
    public_hosts: tuple[str, ...] = ()  # by which browsers reach the page, besides its address
    locust: str | None = None  # the address of Locust's page, for pages that have no run to show


def streamlit_options(options: LaunchOptions, port: int) -> dict[str, object]:
    """Streamlit's settings: silent, offline, without the page elements that a dashboard does not need."""
    settings: dict[str, object] = {
        "server.address": options.host,
        "server.port": port,
        "server.showEmailPrompt": False,
        "server.fileWatcherType": "none",
        "server.runOnSave": False,
        "browser.gatherUsageStats": False,
        "browser.serverAddress": local_host(options.host),
        "client.toolbarMode": "minimal",
        "client.showErrorDetails": "type",
        "client.showErrorLinks": False,
        "logger.hideWelcomeMessage": True,
        "logger.level": "warning",
        "runner.magicEnabled": False,
        # Python's own collector is enough: another look at every object after each refresh takes a tenth of it.
        "runner.postScriptGC": False,
        "global.developmentMode": False,
        "global.minCachedMessageSize": _NOTHING_CACHED_BYTES,
        "theme.baseFontSize": 14,
        "theme.light.primaryColor": "#4f46e5",
        "theme.dark.primaryColor": "#a5b4fc",
        "theme.light.backgroundColor": "#ffffff",
        "theme.light.secondaryBackgroundColor": "#f5f6f8",
        "theme.light.textColor": "#1b1f27",
        "theme.dark.backgroundColor": "#12151b",
        "theme.dark.secondaryBackgroundColor": "#1b2029",
        "theme.dark.textColor": "#e6e9ef",
    }
    if options.headless:
        settings["server.headless"] = True  # otherwise Streamlit sees for itself whether there is a screen
    if is_loopback(options.host) or options.public_hosts:
        # A page elsewhere that points its own name at this machine must not read the figures (DNS rebinding).
        settings["server.allowedHosts"] = list(
            dict.fromkeys([*_LOOPBACK_HOSTS, local_host(options.host), *options.public_hosts])
        )
    # A proxy that sends the address behind it as `Host` leaves the public name in `Origin` alone.
    settings["server.corsAllowedOrigins"] = [f"https://{host_in_url(host)}" for host in options.public_hosts]
    return settings


def public_host_name(given: str) -> str:
    """A name under which browsers reach the page, as they send it. Raises ConfigError for anything else."""
    host = without_brackets(given).rstrip(".").lower()
    try:
        name = str(IPv6Address(host)) if ":" in host else host.encode("idna").decode()
    except ValueError:
        name = ""
    if ":" not in name and not _HOST_NAME.fullmatch(name):
        fault = f"{given!r:.200} is not a host name; give the name alone, such as dashboard.example.com"
        raise ConfigError("--public-host", [fault])
    return name


def url_of(host: str, port: int) -> str:
    """Return the URL of the page for a browser on this machine."""
    return f"http://{host_and_port(local_host(host), port)}"


def _check_address(locust: str | None) -> None:
    """Raise ConfigError unless a browser can follow the address as a link."""
    if locust is None:
        return
    try:
        parts = urlsplit(locust)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        fault = f"{locust!r:.200} is not the address of a page; write it as http://HOST:PORT"
        raise ConfigError("--locust", [fault])


def announce(url: str) -> None:
    """Print the ready line, and open a browser if there is a display."""
    from dashboard.web_server import has_screen

    sys.stdout.write(json.dumps({"ready": True, "url": url}) + "\n")
    sys.stdout.flush()
    if has_screen():
        webbrowser.open(url)


def serve(options: LaunchOptions) -> None:
    """Run the dashboard until SIGTERM or SIGINT. Raises ConfigError when it cannot start as asked."""
    # Takes a second because it imports Streamlit.
    from dashboard.web_server import claimed_socket, configure, end_by_signals, serve_until_ended

    end_by_signals()
    _check_address(options.locust)
    sidecar_token()  # for the sidecars among the places: a fault in it is one of the start
    for name, value in (
        (ENV_STORE, options.store),
        (ENV_RUNS, json.dumps(options.places) if options.places else None),
        (ENV_SLO, None if options.slo is None else str(options.slo)),
        (ENV_LOCUST, options.locust),
    ):
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    given_objectives()
    claimed = claimed_socket(options.host, options.port)
    port: int = claimed.getsockname()[1]
    if not is_loopback(options.host):
        sys.stderr.write(
            f"dashboard: listening on {options.host}, so anyone who reaches port {port} can read every figure: "
            "it has no login of its own\n"
        )
    # The dashboard must not disturb measurements on the same machine: the load generator has priority.
    os.nice(POLITENESS)
    configure(streamlit_options(options, port))
    for page in iter_modules(pages.__path__):
        import_module(f"dashboard.pages.{page.name}")  # takes a second, which would delay the first viewer
    serve_until_ended(APP, claimed, lambda: announce(url_of(options.host, port)))

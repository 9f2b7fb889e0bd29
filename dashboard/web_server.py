"""The web server of the dashboard: Streamlit's app on a socket that was opened first, ended at once by a signal."""

import contextlib
import os
import signal
import socket
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import uvicorn
from starlette.middleware import Middleware
from streamlit import config
from streamlit.runtime.pages_manager import PagesManager
from streamlit.starlette import App
from streamlit.web import bootstrap

from dashboard.page_requests import PageRequests
from telemetry.model.errors import ConfigError
from telemetry.model.host_names import host_and_port

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
# As Streamlit's own command has them, and without a word of the server's own.
_SERVER: Final[dict[str, Any]] = {
    "ws": "websockets-sansio",
    "ws_ping_interval": 30,
    "ws_ping_timeout": 30,
    "ws_per_message_deflate": False,
    "access_log": False,
    "log_level": "error",
    "use_colors": False,
}


class _DashboardServer(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave them to what was set."""
        yield


def end_by_signals() -> None:
    """Let SIGTERM and SIGINT end the process at once, with exit code 0."""
    for number in _SIGNALS:
        signal.signal(number, _end)


def _end(_number: int, _frame: object) -> None:
    """End without finalizing the interpreter: threads of pages may be inside DuckDB, which prints of what they hold
    and can crash when the interpreter is taken from under them. Nothing here is to be written."""
    os._exit(0)


def claimed_socket(host: str, port: int) -> socket.socket:
    """A socket that listens at `port`, or at a free one for 0. Raises ConfigError when it cannot be had."""
    claimed: socket.socket | None = None
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        # A name of both kinds, such as localhost, is opened at 127.0.0.1, where everybody looks for it.
        family, kind, protocol, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
        claimed = socket.socket(family, kind, protocol)
        claimed.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        claimed.bind(address)
        claimed.listen()
    except (OSError, UnicodeError) as error:  # UnicodeError: not a host name
        if claimed is not None:
            claimed.close()
        reason = getattr(error, "strerror", None) or "not a host name"
        where = host_and_port(host, port)
        fault = f"cannot listen on {where} ({reason}): choose another --host or --port; --port 0 takes any free one"
        raise ConfigError("dashboard", [fault]) from error
    return claimed


def configure(settings: dict[str, object]) -> None:
    """Take over Streamlit's settings, by their names with dots."""
    bootstrap.load_config_options({name.replace(".", "_"): value for name, value in settings.items()})
    # Streamlit takes a folder `pages` beside the script for scripts of its own until the first viewer's navigation is
    # drawn: an address of a page would run that file by itself, and show nothing.
    PagesManager.uses_pages_directory = False


def has_screen() -> bool:
    """Whether a browser can be opened: it was not forbidden, and Streamlit sees a screen."""
    return not config.get_option("server.headless")


def serve_until_ended(script: Path, claimed: socket.socket) -> None:
    """Serve the script's pages until a signal ends the process. Raises RuntimeError when the server cannot start."""
    app = App(script, middleware=[Middleware(PageRequests)])
    _DashboardServer(uvicorn.Config(app, **_SERVER)).run(sockets=[claimed])
    raise RuntimeError("the dashboard's server did not start")

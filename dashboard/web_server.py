"""The web server of the dashboard: Streamlit's app on a socket that was opened before, ended at once by a signal."""

import contextlib
import os
import signal
import socket
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import uvicorn
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse, RedirectResponse
from streamlit import config
from streamlit.runtime.pages_manager import PagesManager
from streamlit.starlette import App
from streamlit.web import bootstrap
from streamlit.web.server.starlette.starlette_websocket import is_host_allowed

from dashboard.launch import HEALTH_PATH
from telemetry.model.addresses import host_and_port
from telemetry.model.errors import ConfigError
from telemetry.model.foreign_text import one_line

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

FIRST_PAGE: Final = "now"
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
# As in Streamlit's own command, and without log messages of the server.
_SERVER: Final[dict[str, Any]] = {
    "ws": "websockets-sansio",
    "ws_ping_interval": 30,
    "ws_ping_timeout": 30,
    "ws_per_message_deflate": False,
    "access_log": False,
    "log_level": "error",
    "use_colors": False,
}


class HostGuard:
    """Streamlit's app behind a check of the host names in requests."""

    def __init__(self, app: "ASGIApp") -> None:
        self._app = app

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Refuse a request for a host name that is not the dashboard's; forward all others."""
        if scope["type"] in ("http", "websocket") and (fault := _fault_of_names(scope)) is not None:
            await _refuse(fault, scope, receive, send)
        elif scope["type"] == "http" and scope["path"].strip("/") == FIRST_PAGE:
            # Streamlit serves the first page only at the root, and answers 404 under the page's own name.
            query = scope["query_string"].decode("latin-1")
            await RedirectResponse(f"/?{query}" if query else "/")(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def _fault_of_names(scope: "Scope") -> str | None:
    """Return why a request is refused, None if it is not: a foreign page whose own name resolves to this machine must
    not read the figures (DNS rebinding), and neither must one that opens a WebSocket by this machine's name."""
    headers = Headers(scope=scope)
    host, origin = headers.get("host"), headers.get("origin")
    if scope["path"] == HEALTH_PATH:
        return None  # a probe may use any name, and gets no data
    if not is_host_allowed(host):
        return _named("host name", host)
    # Without a list of names, the page that asks must be one of the same address.
    try:
        source = None if origin is None else urlsplit(origin).netloc
    except ValueError:
        source = ""
    if source is None or source == host or (config.get_option("server.allowedHosts") and is_host_allowed(source)):
        return None
    return _named("origin", origin)


def _named(kind: str, name: str | None) -> str:
    return (
        f"The dashboard does not answer to the {kind} {one_line(name or '')!r}. If it is yours, start "
        "`voiceprobe dashboard` with `--public-host NAME`, the host name in the browser's address.\n"
    )


async def _refuse(fault: str, scope: "Scope", receive: "Receive", send: "Send") -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": ""})  # before it is accepted: status 403
        return
    await PlainTextResponse(fault, 403, {"cache-control": "no-store"})(scope, receive, send)


class _DashboardServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Announce that the server answers."""
        await super().startup(sockets)
        if self.started:
            self._ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave signals to `end_by_signals`."""
        yield


def end_by_signals() -> None:
    """Exit at once with code 0 on SIGTERM and SIGINT."""
    for number in _SIGNALS:
        signal.signal(number, _end)


def _end(_number: int, _frame: object) -> None:
    """Exit without finalizing the interpreter: threads of pages may be inside DuckDB, which then prints what it holds
    and may crash during finalization. Nothing here needs to be written."""
    os._exit(0)


def claimed_socket(host: str, port: int) -> socket.socket:
    """A socket that listens on `port`, or on a free one for 0. Raises ConfigError if it cannot be opened."""
    claimed: socket.socket | None = None
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        # A name with both address families, such as localhost, is opened at 127.0.0.1, as users expect.
        family, kind, protocol, _, address = min(addresses, key=lambda entry: entry[0] != socket.AF_INET)
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
    # Streamlit takes a folder `pages` next to the script for scripts of its own until the first viewer's navigation is
    # drawn: an address of a page would run that file by itself, and show nothing.
    PagesManager.uses_pages_directory = False


def has_screen() -> bool:
    """Return whether a browser can be opened: it is not disabled, and Streamlit detects a display."""
    return not config.get_option("server.headless")


def serve_until_ended(script: Path, claimed: socket.socket, ready: Callable[[], None]) -> None:
    """Serve the script's pages until a signal ends the process; `ready` is called once they can be opened. Raises
    RuntimeError if the server cannot start."""
    app = App(script, middleware=[Middleware(HostGuard)])
    _DashboardServer(uvicorn.Config(app, **_SERVER), ready).run(sockets=[claimed])
    raise RuntimeError("the dashboard's server did not start")

"""The sidecar of a run: one of our own, or a named one that is there before; and what it did not take, brought home."""

import os
import ssl
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

from loadtest.errors import UsageError
from loadtest.reports.run_info import SpoolInfo
from loadtest.run import processes
from loadtest.run.request import CheckedRun
from telemetry.client_tls import sidecar_context, sidecar_token
from telemetry.export.encoded_spans import EncodedRequest
from telemetry.export.otlp_http import OtlpHttpExporter
from telemetry.export.span_log import ReplayResult, replay
from telemetry.model import formatting, semconv
from telemetry.model.foreign_text import one_line
from telemetry.store.answers import Filter
from telemetry.store.reader import StoreReader

SIDECAR_READY_S: Final = 120.0  # a machine may be busy; one that exits is detected at once
# After the run nothing is urgent, and the first request of a busy machine's sidecar takes its time.
DELIVER_TIMEOUT_S: Final = 30.0
# A sidecar commits to its store about half a second after it has acknowledged, on a machine that is held up later: what
# is not visible by then counts as lost.
VISIBLE_S: Final = 60.0
_UNAVAILABLE: Final = 503
SETTLE_S: Final = 10.0
_LOOK_S: Final = 0.1
# A service sends its spans every 5 s by default, and the sidecar waits up to 10 s more for the rest of a turn.
SERVICE_S: Final = 20.0
_SERVICE_LOOK_S: Final = 1.0
_REFUSED: Final = (401, 403)


@dataclass(frozen=True, slots=True)
class Sidecar:
    """The destination of telemetry, and the store that it ends up in."""

    url: str
    store: Path


def launch_sidecar(
    store: Path, log_dir: Path, *, slo: Path | None, http_port: int, grpc_port: int, keeps_text: bool = False
) -> processes.Child:
    """Start a sidecar of our own without waiting for it; port 0 is any free one."""
    arguments = ["-m", "telemetry.sidecar", "--store", str(store)]
    arguments += ["--http-port", str(http_port), "--grpc-port", str(grpc_port)]
    arguments += ["--log-format", "text"]  # people read it in the folder of the run
    arguments += ["--keep-transcripts"] if keeps_text else []
    if slo is not None:
        arguments += ["--slo", str(slo)]
    return processes.start("sidecar", arguments, log_dir, says_ready=True, variables=_without_settings())


def _without_settings() -> dict[str, str]:
    """Variables that take back those of the environment that are settings of another sidecar, which is run for good."""
    kept = semconv.SIDECAR_CLIENT_VARIABLES
    return {name: "" for name in os.environ if name.startswith(semconv.SIDECAR_VARIABLE_PREFIX) and name not in kept}


def wait_for_sidecar(child: processes.Child) -> Sidecar:
    """Return its address and store, once it is ready. Raises ProcessFailedError."""
    ready = processes.wait_until_ready(child, SIDECAR_READY_S)
    return Sidecar(str(ready["http"]), Path(str(ready["store"])))


def start_sidecar(
    store: Path, log_dir: Path, *, slo: Path | None, keeps_text: bool = False
) -> tuple[processes.Child, Sidecar]:
    """A sidecar of our own on free ports, ready. Raises ProcessFailedError."""
    child = launch_sidecar(store, log_dir, slo=slo, http_port=0, grpc_port=0, keeps_text=keeps_text)
    return child, wait_for_sidecar(child)


def named_sidecar(url: str) -> Sidecar | None:
    """The sidecar at an address; None when nothing answers there (the run goes on without it).

    Raises UsageError when its store cannot be read from here, because the summary is a question to that store, and when
    it does not let us in, because that does not mend itself during a run.
    """
    try:
        answer = _ask_state(url)
        if answer.status_code in _REFUSED:
            raise UsageError(
                f"the sidecar at {url} refuses: {one_line(answer.text.strip())}; set {semconv.SIDECAR_TOKEN_VARIABLE}, "
                f"or {semconv.SIDECAR_CLIENT_CERT_VARIABLE} and {semconv.SIDECAR_CLIENT_KEY_VARIABLE}"
            )
        state = answer.raise_for_status().json()
    except (httpx.HTTPError, ValueError) as error:
        if (insecure := _tls_fault(error)) is not None:
            raise UsageError(
                f"no secure connection to the sidecar at {url} ({insecure}); name the CA of its certificate in "
                f"{semconv.SIDECAR_CA_VARIABLE}, and use the name that the certificate is for"
            ) from error
        return None
    named = state.get("store") if isinstance(state, dict) else None
    if not isinstance(named, str) or not Path(named).is_absolute() or not Path(named).is_dir():
        raise UsageError(
            f"the sidecar at {url} keeps its store in {named or 'a place that it does not name'}, which cannot be read "
            "from here: run on its machine, or leave --sidecar out"
        )
    return Sidecar(url, Path(named))


def _tls_fault(error: BaseException | None) -> str | None:
    """Return why TLS failed, if that is what an error comes from."""
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return getattr(error, "verify_message", None) or (error.reason or "TLS failed").lower().replace("_", " ")
        error = error.__cause__ or error.__context__
    return None


def destination(checked: CheckedRun, slo: Path, sidecar: Sidecar | None, stack: ExitStack) -> tuple[Sidecar, list[str]]:
    """The sidecar whose store will answer, and what the user should know of it: one of our own, by the objectives of
    the run, where none answers."""
    request, notes = checked.request, list[str]()
    if sidecar is None and request.settings.sidecar is not None:
        sidecar = named_sidecar(request.settings.sidecar)
        if sidecar is None:
            notes.append(
                f"the sidecar at {request.settings.sidecar} does not answer: telemetry is kept in {request.out}"
            )
    if sidecar is None:
        keeps_text = request.settings.keep_transcripts
        child, sidecar = start_sidecar(request.out / "store", request.out / "logs", slo=slo, keeps_text=keeps_text)
        stack.enter_context(processes.ending(child))
    return sidecar, notes


def deliver_all(checked: CheckedRun, slo: Path, own: Sidecar, stack: ExitStack) -> SpoolInfo:
    """Bring what waits on disk into the store; what was delivered, and what waits there still."""
    spool = checked.request.out / "spool"
    first = deliver_spool(spool, own.url)
    if _is_there(own):
        if first.is_complete:
            return _spool_info(first)
        # It was busy or just starting, for example. What it does not take now either, with a full disk, waits on.
        receiver = own
    else:
        # The named sidecar died: its store is free now, and one of our own takes what is still on disk.
        keeps_text = checked.request.settings.keep_transcripts
        child, receiver = start_sidecar(own.store, checked.request.out / "logs", slo=slo, keeps_text=keeps_text)
        stack.enter_context(processes.ending(child))
    second = deliver_spool(spool, receiver.url)
    _is_there(receiver)
    return _spool_info(first, second)


def _is_there(sidecar: Sidecar) -> bool:
    """Wait until the sidecar answers; False if it is gone. One that is slow or busy is there, and holds its store.
    What it has acknowledged is committed."""
    deadline = time.monotonic() + VISIBLE_S
    while time.monotonic() < deadline:
        try:
            answer = _ask_state(sidecar.url)
        except httpx.TimeoutException:
            continue
        except httpx.HTTPError:
            return False
        if answer.status_code != _UNAVAILABLE:
            return True
        time.sleep(0.05)
    return True


def await_callers(reader: StoreReader, run_id: str) -> None:
    """Wait until the store holds what the callers say that they emitted, or has had time enough. Raises StoreError."""
    deadline = time.monotonic() + SETTLE_S
    while time.monotonic() < deadline:
        loss = reader.summary(Filter(run_id=run_id)).loss
        if loss.emitted is not None and loss.received >= loss.emitted:
            return
        time.sleep(_LOOK_S)


def await_service(reader: StoreReader, run_id: str, sidecar: Sidecar, note: Callable[[str], None]) -> None:
    """Wait until the store holds what the service reports of the callers' turns, or has had time enough.

    A service that has reported none of them, and of which nothing is under way, is not waited for. `note` is called
    once, before the first wait. Raises StoreError.
    """
    deadline, is_noted = time.monotonic() + SERVICE_S, False
    while time.monotonic() < deadline:
        delta = reader.summary(Filter(run_id=run_id)).client_service_delta
        if not delta.client_only or not (delta.joined or _assembles_turns(sidecar)):
            return
        if not is_noted:
            of = formatting.turns(delta.joined + delta.client_only)
            note(f"waiting for what the service reports: {formatting.number(delta.joined)} of {of} so far")
            is_noted = True
        time.sleep(_SERVICE_LOOK_S)


def _assembles_turns(sidecar: Sidecar) -> bool:
    """Return whether spans of a service wait there for the rest of their turn."""
    try:
        answer = _ask_state(sidecar.url)
    except httpx.HTTPError:
        return False
    return answer.is_success and bool(answer.json().get("framework_spans_open"))


def _ask_state(url: str) -> httpx.Response:
    token = sidecar_token()
    headers = {"authorization": f"Bearer {token}"} if token is not None else {}
    verify = sidecar_context() if url.startswith("https://") else False  # over plain HTTP there is nothing to verify
    return httpx.get(f"{url.rstrip('/')}/v1/state", headers=headers, timeout=5.0, verify=verify)


def _spool_info(*replays: ReplayResult) -> SpoolInfo:
    last = replays[-1]
    return SpoolInfo(
        turns=sum(result.turns for result in replays),
        spans=sum(result.spans for result in replays),
        waiting_turns=last.left_turns,
        waiting_spans=last.left_spans,
    )


def deliver_spool(spool: Path, sidecar_url: str) -> ReplayResult:
    """Hand what the sidecar did not take during the run to the store now, the last turns of killed processes included.

    What it will never take is given up, and counts as missing: the sequence numbers of the turns tell.
    """
    sender = OtlpHttpExporter(sidecar_url, sidecar_token(), timeout_s=DELIVER_TIMEOUT_S)

    def deliver(request: EncodedRequest) -> bool:
        return sender.send(request).outcome != "failed"

    return replay(spool, deliver)

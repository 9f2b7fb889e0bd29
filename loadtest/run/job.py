"""`voiceprobe run`: a swarm against an endpoint, seen live, summed up from the store.

The run's own sidecar is started where none is named. Locust is a process of its own. The summary is a question to the
store, as the dashboard's figures are.
"""

import os
import re
import signal
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from rich.console import Console
from rich.live import Live

from corpora.manifest.errors import CorpusError
from corpora.progress import progress_bar
from loadtest.conversation.exchange import Exchange
from loadtest.conversation.outcome import failure_of
from loadtest.conversation.plan import SECOND_NS, Limits
from loadtest.engine.engine import Engine
from loadtest.errors import EndpointUnreachable, OutputError, UsageError
from loadtest.exit_codes import ExitCode
from loadtest.protocols import registry
from loadtest.protocols.address import public_target
from loadtest.protocols.advice import Attempt, advice
from loadtest.protocols.base import CallerProtocol, OpenRequest
from loadtest.protocols.failure import Failure, SessionRefused
from loadtest.reports.calibration_citing import in_processes
from loadtest.reports.progress import LiveInfo, live_lines, live_view
from loadtest.reports.run_report import RunReport
from loadtest.reports.summary import summary_object
from loadtest.run import processes
from loadtest.run.artifacts import HTML, artifacts, keep_objectives, write_together
from loadtest.run.calibrations import citation, process_advice
from loadtest.run.interruption import Interruption
from loadtest.run.json_file import write_json
from loadtest.run.judged_run import RunEnding, UnreachableTarget, judged_run, leave_reports
from loadtest.run.request import CheckedRun, RunRequest
from loadtest.run.sidecars import Sidecar, await_callers, await_service, deliver_all, destination
from loadtest.scenario.access import TARGET_VARIABLE
from loadtest.scenario.behavior import CallerBehavior, parse_think
from loadtest.scenario.declaration import declaration
from loadtest.scenario.document import BEGUN_VARIABLE, SETTINGS_VARIABLE, write_settings
from loadtest.scenario.settings import SwarmSettings
from loadtest.speech.preparation import choose, prepare, render_ahead
from loadtest.swarm.planner import CallPlanner
from loadtest.swarm.worker import new_run_id
from telemetry.model import formatting
from telemetry.model.errors import StoreError
from telemetry.model.foreign_text import one_line
from telemetry.objectives.slo import Verdict, judge
from telemetry.store.answers import Filter
from telemetry.store.private_files import make_folder
from telemetry.store.questions.pages import PageQuestion
from telemetry.store.reader import StoreReader
from telemetry.store.recordings.kept_call import FOLDER as RECORDINGS

_OF_A_KEY: Final = re.compile(r"key|token|secret|signature|auth", re.IGNORECASE)
# Of what was never reached, no protocol and no key is to blame.
_NOT_REACHED: Final = frozenset({"dns", "tls", "generator"})
# Answers to a whole turn that every later turn would get as well: the path, the model, the key or the format is wrong.
_FINAL_STATUSES: Final = frozenset(
    {"301", "302", "303", "307", "308", "400", "401", "403", "404", "405", "415", "422", "501"}
)
_FINAL_CAUSES: Final = frozenset({("bad_audio", "format"), ("protocol_violation", "content_type")})


def refused(error: EndpointUnreachable, checked: CheckedRun, request: OpenRequest) -> EndpointUnreachable:
    """Return the error with the address, with what to do, and with the protocol that was spoken. Shows no secret."""
    failure = error.failure if isinstance(error, SessionRefused) else None
    sentence = explained(str(error), failure, checked, request.url)
    return EndpointUnreachable(checked.request.settings.redactor.text(sentence))


def explained(sentence: str, failure: Failure | None, checked: CheckedRun, url: str) -> str:
    """Return what an endpoint did with what to do about it."""
    if failure is not None and (failure.kind in _NOT_REACHED or _is_unreached(failure)):
        return sentence
    settings = checked.request.settings
    shown = public_target(url)
    where = "" if shown in sentence else f"{shown}: "
    what_to_do = advice(failure, sentence, Attempt(settings.protocol, shown, _has_key(settings), _model(settings)))
    return "; ".join(part for part in (f"{where}{sentence}", what_to_do, _spoken(checked)) if part)


def _is_unreached(failure: Failure) -> bool:
    return (failure.kind == "tcp" and failure.code != "EOF") or (failure.kind, failure.code) == ("timeout", "connect")


def _model(settings: SwarmSettings) -> str | None:
    """Return the model that was asked for, also where a setting of the protocol names it."""
    recognizes = settings.protocol in ("asr", "vllm-realtime")
    named = [settings.model, settings.transcription_model if recognizes else None]
    named += [value for name, value in settings.protocol_settings.items() if name.endswith("model")]
    return next((str(name) for name in named if name is not None), None)


def _has_key(settings: SwarmSettings) -> bool:
    """Return whether anything lets callers in: a token, a header, or something in the address."""
    query = urlsplit(settings.host).query
    in_query = any(_OF_A_KEY.search(name) for name, _ in parse_qsl(query, keep_blank_values=True))
    return settings.token is not None or bool(settings.headers) or in_query or "@" in settings.host


def _spoken(checked: CheckedRun) -> str:
    """Return which protocol was spoken, and how another one is chosen."""
    settings, request = checked.request.settings, checked.request
    is_guessed = "protocol" not in request.given and settings.scenario.protocol is None
    if is_guessed and registry.guess(settings.host) == settings.protocol:
        return f"the protocol {settings.protocol} was guessed from the address: --protocol names another"
    return f"the protocol was {settings.protocol}: --protocol names another"


def refused_turn(checked: CheckedRun, protocol: CallerProtocol, engine: Engine) -> str | None:
    """Speak one utterance as a caller of the run would; return why every turn would be refused as this one was, if so.

    Over HTTP a session shows only that a service is there. Its path, its model and its format are those of the requests
    of a turn. What may be otherwise at the next turn (no answer in time, no room, a fault inside) is left to the run.
    """
    settings = checked.request.settings
    # Whether it is refused shows before any of the answer is heard: the rest of it is not waited for.
    limits = Limits(reply_ns=min(settings.reply_timeout.ns, Limits().reply_ns), longest_reply_ns=SECOND_NS)
    prepared = prepare(_one_clip(settings), protocol)
    planner = CallPlanner(
        prepared.lines,
        behavior=CallerBehavior(turns=1, think=parse_think(0.0)),
        conversations=(),
        limits=limits,
        manual_turns=protocol.capabilities.caller_ends_turns,
        seed=1,
    )
    request = protocol.upgrade(settings.target_url, None)
    exchanges = [exchange for _, exchange in engine.call(planner.plan("first"), protocol, request)]
    return next((reason for exchange in exchanges if (reason := _refusal(exchange, checked, request.url))), None)


def _one_clip(settings: SwarmSettings) -> SwarmSettings:
    """Return the settings with one short utterance, or one of any length where there is no short one."""
    one = settings.replaced(clips=1, variants=1, mix=None, conversations=False)
    short = one.replaced(length=settings.length or "short")
    try:
        choose(short)
    except CorpusError:
        return one
    return short


def _refusal(exchange: Exchange, checked: CheckedRun, url: str) -> str | None:
    failure = failure_of(exchange)
    if failure is None or not _is_final(failure):
        return None
    sentence = exchange.reason or exchange.outcome or "refused"
    return checked.request.settings.redactor.text(explained(sentence, failure, checked, url))


def _is_final(failure: Failure) -> bool:
    if failure.kind == "http_status":
        return failure.code in _FINAL_STATUSES
    return (failure.kind, failure.code) in _FINAL_CAUSES


# After the stop time-out: to cut what is left and deliver it.
LAST_WORDS_S: Final = 20
LEAST_SPAWN_RATE: Final = 10.0  # so that a few callers all come at once, without a ramp
LOOK_EVERY_S: Final = 2.0
SAY_EVERY_S: Final = 10.0
END_SEEN_WITHIN_S: Final = 0.2
WORKERS_READY_S: Final = 180  # a busy machine is slow to import; without them nothing is measured


def preflight(checked: CheckedRun) -> None:
    """Open one session and close it: a target that cannot be reached is reported before a swarm is sent.

    An endpoint that connects to the caller is waited for by the call alone: it may have one session to give.

    Raises EndpointUnreachable, UsageError, and InstrumentError where this machine prevents it.
    """
    protocol = _caller(checked)
    if protocol.capabilities.transport == "tcp-listen":
        return
    request = protocol.upgrade(checked.request.settings.target_url, None)
    with _engine_of(checked, protocol) as engine:
        try:
            engine.probe(protocol, request, Limits())
        except EndpointUnreachable as error:
            raise refused(error, checked, request) from None


def first_turn(checked: CheckedRun) -> None:
    """Speak one turn over HTTP before the load starts: only its requests show whether path, model and format are right.

    Raises EndpointUnreachable if every turn would be refused. Errors that may pass are left to the run.
    """
    protocol = _caller(checked)
    if protocol.capabilities.transport != "http":
        return
    with _engine_of(checked, protocol) as engine:
        reason = refused_turn(checked, protocol, engine)
    if reason is not None:
        raise EndpointUnreachable(reason)


def _caller(checked: CheckedRun) -> CallerProtocol:
    settings = checked.request.settings
    return registry.make_caller(settings.protocol, settings.caller_options)


@contextmanager
def _engine_of(checked: CheckedRun, protocol: CallerProtocol) -> Generator[Engine]:
    """An engine for what is tried before a run."""
    settings = checked.request.settings
    engine = Engine(
        frame_ns=protocol.capabilities.frame_ms * 1_000_000,
        onset_preset=settings.onset,
        tls=settings.tls,
    )
    try:
        yield engine
    finally:
        engine.close()


def run(
    checked: CheckedRun,
    console: Console,
    *,
    sidecar: Sidecar | None = None,
    dashboard_url: str | None = None,
    watch: Callable[[], None] = lambda: None,
    reports: Path | None = None,
) -> RunReport:
    """Carry a checked request out, and leave its reports in the folder `reports` (default: that of the request).

    `watch` is called at least every other second and may raise to end the run. Raises ProcessFailedError where a
    process of ours fails. Reports that cannot be written raise nothing here: the result says why, and still has the
    verdict.
    """
    if not isinstance(checked.request.load.processes, int):
        # Decided once: a calibration that ends meanwhile may say another number.
        checked = replace(checked, request=checked.request.with_load(processes=checked.request.processes))
        shared = formatting.count(checked.request.users, "caller")
        console.print(f"{in_processes(checked.request.processes)} for {shared}", soft_wrap=True)
    request = checked.request
    if not request.settings.has_open_arrivals and (text := process_advice(request.users, request.processes)):
        console.print(text, style="yellow", soft_wrap=True)
    _render_ahead(request.settings)
    run_id = request.settings.run_id or new_run_id()
    kept = keep_objectives(request.out, checked.objectives_text)
    with ExitStack() as stack:
        own, notes = destination(checked, kept, sidecar, stack)
        settings = settings_of_run(checked, run_id, request.settings.sidecar if notes else own.url)
        settings = settings.replaced(recordings=_recordings(settings, own.store))
        swarm = start_swarm(request, settings)
        stack.enter_context(processes.ending(swarm))
        interrupted = _follow(_StartedRun(checked, run_id, own.store, swarm, tuple(notes)), console, watch)
        begun = _begun_file(request.out, run_id)
        has_begun = begun.exists()
        begun.unlink(missing_ok=True)
        if interrupted:
            # Who asks once more must not lose the results by it.
            stack.enter_context(Interruption())
        killed_by = check_ending(swarm, interrupted=interrupted, has_begun=has_begun)
        spooled = deliver_all(checked, kept, own, stack)
        with StoreReader(own.store) as reader:
            _settle(reader, run_id, None if interrupted else own, console)
            result = judged_run(
                reader,
                run_id,
                checked.objectives,
                asked=declaration(settings, checked.corpus, checked.utterances, request.asked),
                ending=RunEnding(
                    interrupted=interrupted,
                    killed_by=killed_by and settings.redactor.text(killed_by),
                    workers_missing=swarm.ended() == ExitCode.GENERATOR_LIMITED,
                    spooled=spooled,
                    dashboard_url=dashboard_url,
                ),
            )
            result = leave_reports(reader, result, reports or request.out)
    if not interrupted and not result.run.calls_started:
        _check_beginning(swarm, killed_by)
    return result


def _settle(reader: StoreReader, run_id: str, reported_to: Sidecar | None, console: Console) -> None:
    """Wait for what is under way to the store: the callers' turns, and those that a service reports to a sidecar."""
    await_callers(reader, run_id)
    if reported_to is not None:
        await_service(reader, run_id, reported_to, lambda text: console.print(text, soft_wrap=True))


def _check_beginning(swarm: processes.Child, killed_by: str | None) -> None:
    """Raise ProcessFailedError for a swarm that made no call because it failed or was killed."""
    code = swarm.ended()
    if killed_by or code == 1:
        how = "failed" if code is None or code > 0 else f"was ended by {killed_by}"
        why = f": {words}" if (words := swarm.last_words()) else ""
        raise processes.ProcessFailedError(f"Locust {how} before the first call{why} (log: {swarm.log})")


def check_ending(swarm: processes.Child, *, interrupted: bool, has_begun: bool) -> str | None:
    """Return what ended Locust other than the end of the run: a signal, or a fault of its own after the run had begun,
    such as a log that it could not write to a full disk. What was measured until then stays. Raises for what cannot be
    called a run."""
    code = swarm.ended()
    # Locust ends with the code of a refusal for a fault inside, too, such as a disk that is full before the run begins.
    if code == ExitCode.USAGE and not has_begun and swarm.says_refusal():
        raise UsageError(swarm.last_words())
    if interrupted or code in (0, 1, ExitCode.GENERATOR_LIMITED, None):
        return None
    if code < 0:
        return signal.Signals(-code).name
    why = f": {words}" if (words := swarm.last_words()) else ""
    if has_begun:
        # Reports name no place of this machine: paths begin at the folder of the run.
        folder = swarm.log.parents[1]
        for place in {folder.resolve(), folder.absolute()}:
            why = why.replace(f"{place}{os.sep}", "")
        return f"a fault of its own (exit code {code}{one_line(why)}; log: {swarm.log.relative_to(folder).as_posix()})"
    raise processes.ProcessFailedError(f"Locust ended with code {code}{why} (log: {swarm.log})")


def settings_of_run(checked: CheckedRun, run_id: str, sidecar_url: str | None) -> SwarmSettings:
    """The settings of the swarm: what was asked, and what belongs to this run alone."""
    request, cited = checked.request, citation(checked.request.users, checked.request.processes)
    return request.settings.replaced(
        corpus=str(checked.corpus.path),
        run_id=run_id,
        spool=str(request.out / "spool"),
        sidecar=sidecar_url,
        calibration=cited.sentence,
        calibrated_to_ms=None if cited.error_ms is None else f"{cited.error_ms:g}",
        calibration_state=cited.state,
        calibrated_callers=cited.callers,
        calibrated_processes=cited.processes,
        calibration_date=cited.date,
    )


def _recordings(settings: SwarmSettings, store: Path) -> str | None:
    """The folder of kept calls, made; None where none are kept. Raises UsageError where it cannot be made."""
    if not (settings.keep_audio or settings.keep_text):
        return None
    folder = store.resolve() / RECORDINGS
    try:
        make_folder(folder)
    except OSError as error:
        raise UsageError(f"{folder}: cannot be made ({error.strerror}); audio of calls has no other place") from None
    return str(folder)


def start_swarm(request: RunRequest, settings: SwarmSettings) -> processes.Child:
    """Start Locust with the callers of a run."""
    spawn_rate = request.load.spawn_rate or max(LEAST_SPAWN_RATE, request.users / 5)
    arguments = ["-m", "locust", "-f", str(processes.ROOT / "loadtest" / "locustfile.py"), "--headless"]
    # A list of processes shows arguments: credentials of the address go by the environment.
    arguments += [
        "--host",
        public_target(settings.host),
        "--users",
        str(request.users),
        "--spawn-rate",
        f"{spawn_rate:g}",
    ]
    arguments += ["--stop-timeout", f"{request.load.stop_timeout.seconds:g}"]
    arguments += ["--loglevel", "WARNING", "--exit-code-on-error", "0"]
    if request.run_time_s is not None and not settings.scenario.phases:
        arguments += ["--run-time", f"{max(1, round(request.run_time_s))}s"]
    if request.processes > 1:
        # Never Locust's own port: workers of a run that begins at the same moment would join this one's master.
        port = str(processes.free_port())
        arguments += ["--processes", str(request.processes), "--expect-workers-max-wait", str(WORKERS_READY_S)]
        arguments += ["--master-bind-host", "127.0.0.1", "--master-bind-port", port, "--master-port", port]
    document = request.out / f"settings-{settings.run_id}.json"
    write_settings(settings, document)
    begun = _begun_file(request.out, settings.run_id)
    begun.unlink(missing_ok=True)
    given = {
        TARGET_VARIABLE: settings.host,
        SETTINGS_VARIABLE: str(document.resolve()),
        BEGUN_VARIABLE: str(begun.resolve()),
    }
    return processes.start("locust", arguments, begun.parent, says_ready=False, bystander=False, variables=given)


def _begun_file(folder: Path, run_id: str | None) -> Path:
    """The file that Locust makes when every process of a run in this folder has prepared its speech."""
    return folder / "logs" / f"begun-{run_id}"


@dataclass(frozen=True, slots=True)
class _StartedRun:
    """A run whose swarm has been started. `notes` are shown with its figures."""

    checked: CheckedRun
    run_id: str
    store: Path
    swarm: processes.Child
    notes: tuple[str, ...]

    @property
    def has_begun(self) -> bool:
        """Whether every process has prepared its speech. The store is not asked: the sidecar may not answer."""
        return _begun_file(self.checked.request.out, self.run_id).exists()


def _follow(started: _StartedRun, console: Console, watch: Callable[[], None]) -> bool:
    """Show the run until it ends; whether somebody interrupted it."""
    swarm = started.swarm
    processes.stand_by()
    began, shown_s, preparation_s, has_begun = time.monotonic(), 0.0, 0.0, False
    with Interruption() as interruption, StoreReader(started.store) as reader, ExitStack() as stack:
        live = None
        if console.is_terminal:
            live = stack.enter_context(Live(console=console, refresh_per_second=4, transient=True))
        patience_s = started.checked.request.load.stop_timeout.seconds + LAST_WORDS_S
        while not swarm.all_ended(patience_s):
            watch()
            if _interrupted_before_next_look(swarm, interruption):
                _stop(swarm, interruption, console, patience_s)
                return True
            elapsed_s = time.monotonic() - began
            if not has_begun and not (has_begun := started.has_begun):
                preparation_s = elapsed_s
            # The figures take processor time that callers may need: they are asked for when they are shown.
            if elapsed_s - shown_s < (SAY_EVERY_S if live is None else LOOK_EVERY_S):
                continue
            shown_s = elapsed_s
            info = _live_info(started, reader, elapsed_s, preparation_s)
            if live is not None:
                live.update(live_view(info))
                continue
            for line in live_lines(info):
                console.print(line, soft_wrap=True, markup=False, highlight=False)
    return False


def _interrupted_before_next_look(swarm: processes.Child, interruption: Interruption) -> bool:
    """Wait until the next look is due, or until the swarm has ended; whether somebody interrupted the wait."""
    until_s = time.monotonic() + LOOK_EVERY_S
    while True:
        if interruption.wait(END_SEEN_WITHIN_S):
            return True
        if swarm.ended() is not None or time.monotonic() >= until_s:
            return False


def _live_info(started: _StartedRun, reader: StoreReader, elapsed_s: float, preparation_s: float) -> LiveInfo:
    """The run at this moment, of which `preparation_s` went into preparation: all of it until that ends."""
    request, notes, where = started.checked.request, started.notes, Filter(run_id=started.run_id)
    settings = request.settings
    summary = in_flight = None
    verdicts: list[Verdict] = []
    objectives = started.checked.objectives
    try:
        # One question, so that no two figures are of different moments.
        asked = PageQuestion(where, objectives=tuple(objectives), slowest=0)
        seen = reader.page(asked)
        summary = seen.summary
        measured_s = max(0.0, elapsed_s - preparation_s)
        verdicts = judge(objectives, seen.counts.count, measured_s=measured_s) if summary is not None else []
        in_flight = seen.calls_in_flight
        if preparation_s >= elapsed_s:
            notes = ("the callers are preparing their speech", *notes)
        elif summary is None or not summary.generator.processes:
            notes = ("nothing of this run has reached the store yet", *notes)
        elif summary.ramp_turns:
            notes = (f"{summary.ramp_turns} turns began during a ramp and are not among these", *notes)
    except StoreError:
        notes = (*notes, "the store cannot be read at the moment")
    return LiveInfo(
        target=public_target(request.settings.host),
        users=settings.max_calls if settings.has_open_arrivals else request.users,
        elapsed_s=elapsed_s,
        preparation_s=preparation_s,
        run_time_s=request.run_time_s if settings.calls is None else None,
        expected_turns=started.checked.expected.turns,
        calls_in_flight=in_flight,
        summary=summary,
        objectives=objectives if verdicts else (),
        verdicts=verdicts,
        note=notes[0] if notes else None,
    )


def _stop(swarm: processes.Child, interruption: Interruption, console: Console, patience_s: float) -> None:
    console.print("stopping: running turns end first (Ctrl-C again stops at once)")
    swarm.interrupt()
    deadline = time.monotonic() + patience_s
    while not swarm.all_ended(patience_s) and time.monotonic() < deadline:
        if interruption.wait(0.2):
            swarm.kill()
            return


def _render_ahead(settings: SwarmSettings) -> None:
    """Render what is not in the cache before there is a swarm that waits for it. Raises UsageError."""
    protocol = registry.make_caller(settings.protocol, settings.caller_options)
    with progress_bar("rendering speech") as progress:
        try:
            render_ahead(settings, protocol, progress)
        except CorpusError as error:
            raise UsageError(str(error)) from None


def reach(checked: CheckedRun, console: Console) -> None:
    """Try the target before a swarm is sent to it. Raises EndpointUnreachable where it cannot be reached; then the
    reports of the run are written."""
    try:
        preflight(checked)
        first_turn(checked)
    except EndpointUnreachable as error:
        report = leave_unreachable(checked, error)
        console.print(f"report: {report}", soft_wrap=True, markup=False, highlight=False)
        raise


def leave_unreachable(checked: CheckedRun, error: EndpointUnreachable) -> Path:
    """Write the reports of a run whose target cannot be reached, with an empty store; the file for people. Raises
    OutputError, which then says both."""
    request = checked.request
    run_id = request.settings.run_id or new_run_id()
    settings = settings_of_run(checked, run_id, None)
    asked = declaration(settings, checked.corpus, checked.utterances, request.asked)
    ending = RunEnding(unreachable=UnreachableTarget(str(error), time.time_ns()))
    store = request.out / "store"
    try:
        keep_objectives(request.out, checked.objectives_text)
        # The store that a run would have filled: what lists and shows runs finds nothing in it, and no fault.
        make_folder(store)
        with StoreReader(store) as reader:
            report = judged_run(reader, run_id, checked.objectives, asked=asked, ending=ending)
        write_together(request.out, artifacts(report))
        if request.json_file is not None:
            write_json(request.json_file, summary_object(report))
    except OSError as fault:
        raise OutputError(
            f"{error}\n{store}: cannot be made ({fault.strerror}); no report of this was written"
        ) from None
    except OutputError as fault:
        raise OutputError(f"{error}\n{fault}") from None
    return request.out / HTML

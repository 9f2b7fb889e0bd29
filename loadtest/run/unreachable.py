"""What `voiceprobe run` leaves of a target that could not be reached before the first call: the reports, which claim
nothing of the service and say why."""

import time
from pathlib import Path

from rich.console import Console

from loadtest.errors import EndpointUnreachable, OutputError
from loadtest.reports.run_report import RunPictures
from loadtest.run.artifacts import HTML, artifacts, keep_objectives, run_object, write_together
from loadtest.run.job import first_turn, preflight, settings_of_run
from loadtest.run.json_file import write_json
from loadtest.run.judged_run import BesideStore, UnreachableTarget, judged_run
from loadtest.run.request import CheckedRun
from loadtest.scenario.declaration import AskedLoad, declaration
from loadtest.swarm.worker import new_run_id
from telemetry.store.private_files import make_folder
from telemetry.store.reader import StoreReader


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
    load = AskedLoad(request.users, request.run_time_s, request.processes)
    asked = declaration(settings, checked.corpus, checked.utterances, load)
    beside = BesideStore(unreachable=UnreachableTarget(str(error), time.time_ns()))
    store = request.out / "store"
    try:
        keep_objectives(request.out, checked.objectives_text)
        # The store that a run would have filled: what lists and shows runs finds nothing in it, and no fault.
        make_folder(store)
        with StoreReader(store) as reader:
            report = judged_run(reader, run_id, checked.objectives, asked=asked, beside=beside).report(RunPictures())
        write_together(request.out, artifacts(report))
        if request.json_file is not None:
            write_json(request.json_file, run_object(report))
    except OSError as fault:
        raise OutputError(
            f"{error}\n{store}: cannot be made ({fault.strerror}); no report of this was written"
        ) from None
    except OutputError as fault:
        raise OutputError(f"{error}\n{fault}") from None
    return request.out / HTML

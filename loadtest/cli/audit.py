"""`voiceprobe audit`."""

from typing import Annotated, Final

import typer
from rich.console import Console

from loadtest.cli.flags import Json, Out, Users, flag
from telemetry.model.durations import METAVAR

EXAMPLE: Final = "Example: voiceprobe audit --run-time 60s --json audit.json"


def audit(
    *,
    users: Users = 8,
    run_time: Annotated[str, flag("load", help="how long callers speak, e.g. 60s", metavar=METAVAR)] = "60s",
    corpus: Annotated[
        str | None, flag("speech", help="corpus whose utterances with personal data are said (default: bundled)")
    ] = None,
    redis: Annotated[
        str | None,
        flag("target", help="URL of a Redis server for the assistant's cache, searched whole (default: our own)"),
    ] = None,
    out: Out = None,
    json_file: Json = None,
) -> None:
    """Speak personal data to the reference assistant, with a sidecar, and search everything that is written for it.

    Callers speak the utterances of a corpus that are marked as personal data; the sidecar also receives what frameworks
    would report of them. Then every file, table, log, metric, page, answer, cache entry and command line is searched,
    in whatever form. Exit code 0: nothing was found; 3: personal data was found, and where; 6: not all was tried, e.g.
    no answer came from the cache; 130: interrupted.
    """
    from loadtest.audit.job import AuditRequest
    from loadtest.audit.job import audit as carry_out
    from loadtest.run.request import out_folder
    from loadtest.scenario.options import load_from

    load = load_from({"users": users, "run_time": run_time})
    request = AuditRequest(corpus, load, out_folder(out), json_file, redis)
    raise typer.Exit(int(carry_out(request, Console())))

"""`voiceprobe rules`."""

from pathlib import Path
from typing import Annotated, Final, Literal

import typer

# As `loadtest.run.rules` knows them, which is imported where it is used: it takes a while.
RuleFormat = Literal["prometheus", "sloth", "pyrra"]

EXAMPLE: Final = "Example: voiceprobe rules examples/objectives.yaml --out rules.yml"


def rules(
    slo: Annotated[
        Path | None,
        typer.Argument(metavar="OBJECTIVES", help="objectives, an OpenSLO file (default: the built-in set)"),
    ] = None,
    *,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="file to write (default: standard output)")] = None,
    format_: Annotated[
        RuleFormat,
        typer.Option(
            "--format",
            help="prometheus: rules; sloth or pyrra: the objectives for these, which make rules of their own",
        ),
    ] = "prometheus",
    burn_rate: Annotated[
        list[str] | None,
        typer.Option(
            metavar="<burn rate>",
            help="FACTOR:LONG:SHORT:SEVERITY, alert if the error budget burns that much faster than permitted in both "
            "windows; may be repeated (default: 14.4:1h:5m:page, 6:6h:30m:page and 1:3d:6h:ticket; for a load test of "
            "minutes: 14.4:2m:30s:page)",
        ),
    ] = None,
    quiet_after: Annotated[
        str, typer.Option(metavar="<duration>", help="time without turns after which an alert fires")
    ] = "1h",
) -> None:
    """Write recording and alert rules for Prometheus, made from objectives, or the objectives for Sloth or Pyrra.

    The sidecar counts good and eligible turns in /metrics; give it the same file with --slo. Check them with `promtool
    check rules FILE`, and name the file under `rule_files` in Prometheus' configuration.
    """
    from loadtest.run.rules import rules as carry_out

    text = carry_out(slo, format_, out, burn_rate or (), quiet_after)
    if text is not None:
        typer.echo(text, nl=False)

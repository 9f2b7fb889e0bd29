"""The flags of `voiceprobe corpus import`, and what they ask for once they are checked."""

import inspect
import os
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from corpora.manifest.edges import EDGES_HELP
from corpora.output_paths import unwritable
from corpora.sources.importing.clipping import one_line
from corpora.sources.importing.formats import LAYOUTS
from corpora.sources.importing.items import DEFAULT_MAX_S, Settings
from corpora.sources.importing.options import Flags
from corpora.sources.importing.tree import printable


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportFlags:
    """One field for each flag of the command, as given."""

    source: Annotated[Path, typer.Argument(help="a folder, manifest, table, recording, or an archive of them")]
    into: Annotated[Path, typer.Option("--into", help="the corpus folder to create")]
    form: Annotated[str | None, typer.Option("--format", help=f"one of: {', '.join(LAYOUTS)} (default: detected)")] = (
        None
    )
    license: Annotated[str | None, typer.Option("--license", help="license of the recordings (SPDX name or text)")] = (
        None
    )
    consent: Annotated[str | None, typer.Option("--consent", help="how the speakers consented to this use")] = None
    loudness: Annotated[
        str, typer.Option("--loudness", help="loudness measure: asl (active speech level), bs1770 or none")
    ] = "asl"
    level: Annotated[
        float | None,
        typer.Option(
            "--level", help="target level, dBov for asl, LUFS for bs1770 (default: -26 for asl, -23 for bs1770)"
        ),
    ] = None
    rate: Annotated[int | None, typer.Option("--rate", help="resample to this rate in Hz (default: unchanged)")] = None
    channel: Annotated[
        str | None, typer.Option("--channel", help="the channel to use: left, right, a number from 0, or mix")
    ] = None
    raw_format: Annotated[
        str | None, typer.Option("--raw-format", help="format of files without a header, as in s16le:16000:1")
    ] = None
    caller_channel: Annotated[
        str | None,
        typer.Option("--caller-channel", help="the caller's channel in recorded calls: left, right or a number"),
    ] = None
    pause: Annotated[float, typer.Option("--pause", help="cut calls at pauses of this many seconds")] = 0.7
    min_seconds: Annotated[float, typer.Option("--min-seconds", help="leave out shorter sounds in calls")] = 0.2
    max_seconds: Annotated[float, typer.Option("--max-seconds", help="reject longer utterances")] = DEFAULT_MAX_S
    language: Annotated[str, typer.Option("--language", help="BCP 47 language if the source has none")] = "und"
    speaker: Annotated[str, typer.Option("--speaker", help="speaker if the source has none")] = "unknown"
    domain: Annotated[str, typer.Option("--domain", help="domain if the source has none")] = "imported"
    generated: Annotated[bool, typer.Option("--generated", help="the speech is synthesized")] = False
    edges: Annotated[str | None, typer.Option("--edges", help=f"{EDGES_HELP} (default: exact)")] = None
    append: Annotated[
        bool, typer.Option("--append", help="add to an existing corpus, or resume an interrupted import")
    ] = False
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="skip and list what cannot be imported")] = False
    jobs: Annotated[int | None, typer.Option("--jobs", help="number of decoding processes (default: one per CPU)")] = (
        None
    )
    json: Annotated[Path | None, typer.Option("--json", help="write a JSON report with every fault to this file")] = (
        None
    )

    @property
    def processes(self) -> int:
        """The number of decoding processes."""
        return self.jobs or os.cpu_count() or 1

    def settings(self) -> Settings:
        """Return the settings of the import. Raises CorpusError with every fault of the flags."""
        flags = Flags()
        settings = Settings(
            license="" if self.license is None else flags.text("--license", self.license),
            consent="" if self.consent is None else flags.text("--consent", self.consent),
            label=one_line(printable(Path(os.path.normpath(self.source.absolute())).name)) or "source",
            speaker=flags.text("--speaker", self.speaker),
            language=flags.text("--language", self.language),
            domain=flags.text("--domain", self.domain),
            kind="generated" if self.generated else "recorded human",
            edges=flags.edges(self.edges),
            rate_hz=flags.rate(self.rate),
            loudness=flags.loudness(self.loudness),
            level_db=flags.level(self.level, self.loudness),
            channel=flags.channel_or_mix(self.channel),
            raw=flags.raw(self.raw_format),
            max_s=flags.seconds("--max-seconds", self.max_seconds),
            caller_channel=flags.channel("--caller-channel", self.caller_channel),
            pause_s=flags.seconds("--pause", self.pause),
            min_s=flags.seconds("--min-seconds", self.min_seconds),
        )
        if self.jobs is not None and self.jobs < 1:
            flags.faults.append(f"--jobs is {self.jobs}; it must be at least 1.")
        if self.form is not None and self.form not in LAYOUTS:
            flags.faults.append(f"The format {self.form!r} is unknown; use one of {', '.join(LAYOUTS)}.")
        for flag, file in (("--json", self.json), ("--into", self.into / "x")):
            if file is not None and (fault := unwritable(file)):
                flags.faults.append(f"{flag}: {fault}.")
        flags.raise_faults()
        return settings


def takes_import_flags(command: Callable[[ImportFlags], None]) -> Callable[..., None]:
    """Make a command for typer, which reads flags from parameters: one for each field of ImportFlags."""

    @wraps(command)
    def with_flags(**given: Any) -> None:
        command(ImportFlags(**given))

    types = get_type_hints(ImportFlags, include_extras=True)
    with_flags.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(
                each.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if each.default is MISSING else each.default,
                annotation=types[each.name],
            )
            for each in fields(ImportFlags)
        ]
    )
    with_flags.__annotations__ = types
    return with_flags

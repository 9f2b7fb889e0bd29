"""`voiceprobe corpus import`: the command, prompts for missing values, and the summary."""

import inspect
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import msgspec
import typer

from corpora.annotation.boundary_review import review_advice, review_reasons
from corpora.annotation.lint import CAME_CLIPPED
from corpora.manifest.edges import EDGES_HELP
from corpora.manifest.errors import CorpusError, SourceError
from corpora.manifest.manifest import Utterance
from corpora.output_paths import is_device, unwritable, write_whole
from corpora.progress import progress_bar
from corpora.sources.importing.clipping import one_line
from corpora.sources.importing.formats import LAYOUTS, layout_of
from corpora.sources.importing.items import DEFAULT_MAX_S, Layout, Settings
from corpora.sources.importing.options import Flags
from corpora.sources.importing.pipeline import Outcome, import_corpus, opened_source
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


EPILOG = """Examples:

  voiceprobe corpus import ./recordings --into ./corpus --license CC-BY-4.0 --consent "signed forms, 2026"

  voiceprobe corpus import ./calls --into ./calls-corpus --caller-channel left
  --license LicenseRef-internal --consent "announced at the start of each call"
"""
_MAX_LISTED = 20


@takes_import_flags
def import_(flags: ImportFlags) -> None:
    """Make a corpus from existing recordings: decode, resample, normalize and annotate them."""
    settings, into = flags.settings(), flags.into.absolute()
    with opened_source(flags.source, into.parent) as tree:
        layout = layout_of(tree, flags.form, settings.caller_channel is not None)
        settings = _with_license(layout, settings)
        try:
            with progress_bar("importing") as progress:
                outcome = import_corpus(
                    tree,
                    layout,
                    into,
                    settings,
                    skip_bad=flags.skip_bad,
                    append=flags.append,
                    processes=flags.processes,
                    progress=progress,
                    waiting=lambda: _report_waiting(into),
                )
        except SourceError as error:
            _write_json(flags.json, {"source": settings.label, "format": layout.name, "faults": error.faults})
            raise
    _write_json(flags.json, _record(outcome, settings))
    _print_summary(outcome)


def _with_license(layout: Layout, settings: Settings) -> Settings:
    """Add license and consent to the settings: as given, as known of the publisher, or by prompting the user."""
    is_interactive = sys.stdin.isatty() and sys.stderr.isatty()
    values: dict[str, str] = {"license": settings.license, "consent": settings.consent}
    known = {"license": layout.license, "consent": layout.consent}
    questions = {"license": "License (SPDX name or text)", "consent": "How did the speakers consent to this use?"}
    for what, proposed in known.items():
        if values[what]:
            continue
        if is_interactive:
            values[what] = one_line(typer.prompt(questions[what], default=proposed, err=True))
        elif proposed is not None:
            values[what] = proposed
            sys.stderr.write(f"{what.capitalize()} of {layout.name}: {proposed}\n")
    missing = [f"--{what}" for what, value in values.items() if not value]
    if missing:
        raise CorpusError(
            f"The terms of use of these recordings are unknown; add {' and '.join(missing)} (the license as an SPDX "
            'name or text; how the speakers consented, or "not known").'
        )
    return replace(settings, **values)


def _print_summary(outcome: Outcome) -> None:
    made = outcome.imported
    lines = [
        f"{outcome.folder.name}: {len(made)} utterances imported ({outcome.format}) into {outcome.folder}, "
        f"{outcome.edges} edges"
    ]
    if outcome.already:
        lines.append(f"{outcome.already} were already imported.")
    if outcome.conversations:
        lines.append(f"{outcome.conversations} conversations.")
    resampled = Counter(
        (step.removeprefix("resampled from "), f"{utterance.sample_rate_hz} Hz")
        for utterance in made
        for step in (utterance.processing or "").split("; ")
        if step.startswith("resampled from ")
    )
    lines += [f"{count} resampled from {old} to {new}." for (old, new), count in sorted(resampled.items())]
    short = sum("short of it for its peak" in (utterance.processing or "") for utterance in made)
    if short:
        lines.append(
            f"{short} could not be raised to the target level without clipping; the manifest states the difference."
        )
    clipped = tuple(_clipped(made))
    if clipped:
        lines.append(f"{len(clipped)} came clipped, which a lower level does not repair: {_named(clipped)}")
    without_text = [utterance.id for utterance in made if utterance.text is None]
    if without_text:
        named = _named(without_text)
        lines.append(f"{len(without_text)} have no text, so their word error rate cannot be measured: {named}")
    lines += review_advice(made, outcome.edges, outcome.folder)
    sys.stdout.write(printable("\n".join(lines)) + "\n")
    _print_list("left out", outcome.faults)
    _print_list("not used", outcome.skipped)


def _clipped(made: Iterable[Utterance]) -> dict[str, str]:
    """By the id of each utterance that was clipped when it came: where."""
    steps = {utterance.id: (utterance.processing or "").split("; ") for utterance in made}
    return {name: step for name, those in steps.items() for step in those if step.startswith(CAME_CLIPPED)}


def _named(names: Sequence[str]) -> str:
    more = len(names) - _MAX_LISTED
    return ", ".join(names[:_MAX_LISTED]) + (f" and {more} more (--json FILE lists them all)" if more > 0 else "")


def _print_list(what: str, sentences: Sequence[str]) -> None:
    if sentences:
        shown = [f"  {sentence}" for sentence in sentences[:_MAX_LISTED]]
        hidden = len(sentences) - len(shown)
        more = [f"  ... and {hidden} more: --json FILE lists them all"] if hidden else []
        sys.stderr.write("\n".join([f"{len(sentences)} {what}:", *shown, *more]) + "\n")


def _report_waiting(into: Path) -> None:
    sys.stderr.write(printable(f"{into}: is being changed by another process; waiting for it to finish.\n"))


def _record(outcome: Outcome, settings: Settings) -> dict[str, object]:
    return {
        "source": settings.label,
        "format": outcome.format,
        "folder": printable(str(outcome.folder)),
        "license": settings.license,
        "consent": settings.consent,
        "imported": len(outcome.imported),
        "already": outcome.already,
        "conversations": outcome.conversations,
        "edges": outcome.edges,
        "speech_s": round(sum(utterance.speech_s for utterance in outcome.imported), 3),
        "without_text": [utterance.id for utterance in outcome.imported if utterance.text is None],
        "clipped": _clipped(outcome.imported),
        "doubtful": {
            utterance.id: found for utterance in outcome.imported if (found := review_reasons(utterance, outcome.edges))
        },
        "faults": outcome.faults,
        "skipped": outcome.skipped,
    }


def _write_json(file: Path | None, record: dict[str, object]) -> None:
    if file is None:
        return
    try:
        encoded = msgspec.json.encode(record)
        write_whole(file, (encoded if is_device(file) else msgspec.json.format(encoded)) + b"\n")
    except OSError as error:
        raise CorpusError(f"{file}: cannot be written ({error.strerror}); choose another file.") from error

"""`voiceprobe corpus import` and the same from Python: their arguments, prompts for missing values, and the summary."""

import math
import os
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Final, get_args

import msgspec
import typer

from corpora.annotation.boundary_review import review_advice, review_reasons
from corpora.annotation.lint import CAME_CLIPPED
from corpora.manifest.clips import MAX_CLIP_S
from corpora.manifest.edges import EDGES_HELP, parse_edges
from corpora.manifest.errors import CorpusError, SourceError
from corpora.manifest.manifest import RATES_HZ, Utterance
from corpora.manifest.validation import numbered
from corpora.output_paths import is_device, unwritable, write_whole
from corpora.progress import progress_bar
from corpora.sources.importing.clip_processes import one_line
from corpora.sources.importing.decoding import MAX_CHANNELS, parse_raw_format
from corpora.sources.importing.items import DEFAULT_MAX_S, LEVELS, Channel, Loudness, Settings
from corpora.sources.importing.layouts import LAYOUTS, Layout, layout_of
from corpora.sources.importing.pipeline import Outcome, import_corpus, opened_source
from corpora.sources.importing.tree import printable

EPILOG: Final = """Examples:

  voiceprobe corpus import ./recordings --into ./corpus --license CC-BY-4.0 --consent "signed forms, 2026"

  voiceprobe corpus import ./calls --into ./calls-corpus --caller-channel left
  --license LicenseRef-internal --consent "announced at the start of each call"
"""
_MAX_LISTED: Final = 20
_LEVELS_DB: Final = (-60.0, -1.0)
_SIDES: Final = {"left": 0, "right": 1}
_TEXTS: Final = ("license", "consent", "speaker", "language", "domain")


@dataclass(slots=True)
class _Checked:
    """The arguments of an import; what is wrong with them is collected, so that it is reported at once."""

    prefix: str  # of the names of arguments in sentences: dashes on the command line
    faults: list[str] = field(default_factory=list[str])

    def settings(self, source: Path, form: str | None, level_db: float | None, **given: Any) -> Settings:
        """Return the settings of an import. Raises CorpusError with every fault."""
        for name in _TEXTS:
            if given[name] is not None and not one_line(given[name]):
                self.faults.append(f"{self.prefix}{name} is empty; give it a value or omit it.")
            given[name] = one_line(given[name] or "")
        rate_hz, loudness, (low, high) = given["rate_hz"], given["loudness"], _LEVELS_DB
        if rate_hz is not None and rate_hz not in RATES_HZ:
            self.faults.append(f"--rate is {rate_hz}; it must be from {RATES_HZ[0]} to {RATES_HZ[-1]} Hz.")
        if loudness not in LEVELS:
            self.faults.append(f"--loudness is {loudness!r}; use one of {', '.join(get_args(Loudness))}.")
        if level_db is not None and loudness == "none":
            self.faults.append("--level requires --loudness asl or bs1770.")
        if level_db is not None and not low <= level_db <= high:
            self.faults.append(f"--level is {level_db:g}; it must be from {low:g} to {high:g} dB.")
        for name, flag in (("max_s", "max-seconds"), ("pause_s", "pause"), ("min_s", "min-seconds")):
            seconds = given.get(name, 1.0)
            if not (math.isfinite(seconds) and 0.0 < seconds <= MAX_CLIP_S):
                self.faults.append(f"--{flag} is {seconds:g}; it must be above 0 and at most {MAX_CLIP_S:g} seconds.")
        if form is not None and form not in LAYOUTS:
            self.faults.append(f"The format {form!r} is unknown; use one of {', '.join(LAYOUTS)}.")
        if self.faults:
            raise CorpusError("\n".join(self.faults))
        label = one_line(printable(Path(os.path.normpath(source.absolute())).name)) or "source"
        return Settings(label=label, level_db=LEVELS[loudness] if level_db is None else level_db, **given)

    def channel(self, flag: str, value: str | None) -> int | None:
        """Parse a channel: a number or a side."""
        if value is None:
            return None
        if value.lower() in _SIDES:
            return _SIDES[value.lower()]
        if value.isdecimal() and int(value) < MAX_CHANNELS:
            return int(value)
        more = ", or mix" if flag == "--channel" else ""
        self.faults.append(f"{flag} is {value!r}; use left, right, a number from 0 to {MAX_CHANNELS - 1}{more}.")
        return None

    def parsed(self, parse: Any, value: str | None) -> Any:
        """Parse a value if there is one."""
        try:
            return None if value is None else parse(value)
        except CorpusError as error:
            self.faults.append(str(error))
            return None


def import_recordings(
    source: str | Path,
    into: str | Path,
    *,
    license: str,
    consent: str,
    form: str | None = None,
    speaker: str = "unknown",
    language: str = "und",
    domain: str = "imported",
    rate_hz: int | None = None,
    loudness: str = "asl",
    level_db: float | None = None,
    channel: Channel = None,
    caller_channel: int | None = None,
    skip_bad: bool = False,
    append: bool = False,
    processes: int = 1,
) -> Outcome:
    """Make a corpus in the folder `into` from a folder, manifest, table, recording, or an archive of them.

    The arguments are those of `voiceprobe corpus import`: `form` is one of its formats (detected if omitted); speaker,
    language and domain are used if the source has none. Raises SourceError with every fault of the source, unless
    `skip_bad` is set; CorpusError for invalid arguments, and if there is nothing to import.
    """
    source, into = Path(source), Path(into).absolute()
    texts = {"license": license, "consent": consent, "speaker": speaker, "language": language, "domain": domain}
    others = {"rate_hz": rate_hz, "loudness": loudness, "channel": channel, "caller_channel": caller_channel}
    settings = _Checked("").settings(source, form, level_db, **texts, **others)
    with opened_source(source, into.parent) as tree:
        layout = layout_of(tree, form, caller_channel is not None)
        return import_corpus(tree, layout, into, settings, skip_bad=skip_bad, append=append, processes=processes)


def import_(
    *,
    source: Annotated[Path, typer.Argument(help="a folder, manifest, table, recording, or an archive of them")],
    into: Annotated[Path, typer.Option("--into", help="the corpus folder to create")],
    form: Annotated[
        str | None, typer.Option("--format", help=f"one of: {', '.join(LAYOUTS)} (default: detected)")
    ] = None,
    license: Annotated[str | None, typer.Option(help="license of the recordings (SPDX name or text)")] = None,
    consent: Annotated[str | None, typer.Option(help="how the speakers consented to this use")] = None,
    loudness: Annotated[str, typer.Option(help="loudness measure: asl (active speech level), bs1770 or none")] = "asl",
    level: Annotated[
        float | None,
        typer.Option(help="target level, dBov for asl, LUFS for bs1770 (default: -26 for asl, -23 for bs1770)"),
    ] = None,
    rate: Annotated[int | None, typer.Option(help="resample to this rate in Hz (default: unchanged)")] = None,
    channel: Annotated[
        str | None, typer.Option(help="the channel to use: left, right, a number from 0, or mix")
    ] = None,
    raw_format: Annotated[
        str | None, typer.Option(help="format of files without a header, as in s16le:16000:1")
    ] = None,
    caller_channel: Annotated[
        str | None, typer.Option(help="the caller's channel in recorded calls: left, right or a number")
    ] = None,
    pause: Annotated[float, typer.Option(help="cut calls at pauses of this many seconds")] = 0.7,
    min_seconds: Annotated[float, typer.Option(help="leave out shorter sounds in calls")] = 0.2,
    max_seconds: Annotated[float, typer.Option(help="reject longer utterances")] = DEFAULT_MAX_S,
    language: Annotated[str, typer.Option(help="BCP 47 language if the source has none")] = "und",
    speaker: Annotated[str, typer.Option(help="speaker if the source has none")] = "unknown",
    domain: Annotated[str, typer.Option(help="domain if the source has none")] = "imported",
    generated: Annotated[bool, typer.Option("--generated", help="the speech is synthesized")] = False,
    edges: Annotated[str | None, typer.Option(help=f"{EDGES_HELP} (default: exact)")] = None,
    append: Annotated[
        bool, typer.Option("--append", help="add to an existing corpus, or resume an interrupted import")
    ] = False,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="skip and list what cannot be imported")] = False,
    jobs: Annotated[int | None, typer.Option(help="number of decoding processes (default: one per CPU)")] = None,
    json: Annotated[Path | None, typer.Option(help="write a JSON report with every fault to this file")] = None,
) -> None:
    """Make a corpus from existing recordings: decode, resample, normalize and annotate them."""
    _import(locals())


def _import(given: dict[str, Any]) -> None:
    """Import with the arguments of the command, by name."""
    source, into, form, json = (given[name] for name in ("source", "into", "form", "json"))
    checked = _Checked("--")
    if given["jobs"] is not None and given["jobs"] < 1:
        checked.faults.append(f"--jobs is {given['jobs']}; it must be at least 1.")
    for flag, file in (("--json", json), ("--into", into / "x")):
        if file is not None and (fault := unwritable(file)):
            checked.faults.append(f"{flag}: {fault}.")
    settings = checked.settings(
        source,
        form,
        given["level"],
        **{name: given[name] for name in (*_TEXTS, "loudness")},
        kind="generated" if given["generated"] else "recorded human",
        edges=checked.parsed(parse_edges, given["edges"]),
        rate_hz=given["rate"],
        channel="mix" if given["channel"] == "mix" else checked.channel("--channel", given["channel"]),
        raw=checked.parsed(parse_raw_format, given["raw_format"]),
        max_s=given["max_seconds"],
        caller_channel=checked.channel("--caller-channel", given["caller_channel"]),
        pause_s=given["pause"],
        min_s=given["min_seconds"],
    )
    into = into.absolute()
    with opened_source(source, into.parent) as tree:
        layout = layout_of(tree, form, settings.caller_channel is not None)
        settings = _with_license(layout, settings)
        try:
            with progress_bar("importing") as progress:
                outcome = import_corpus(
                    tree,
                    layout,
                    into,
                    settings,
                    skip_bad=given["skip_bad"],
                    append=given["append"],
                    processes=given["jobs"] or os.cpu_count() or 1,
                    progress=progress,
                    waiting=lambda: _report_waiting(into),
                )
        except SourceError as error:
            _write_json(json, {"source": settings.label, "format": layout.name, "faults": error.faults})
            raise
    _write_json(json, _record(outcome, settings))
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
    steps = [step for utterance in made for step in _steps(utterance)]
    lines = [
        f"{outcome.folder.name}: {numbered(len(made), 'utterance')} imported ({outcome.format}) into {outcome.folder}, "
        f"{outcome.edges} edges"
    ]
    if outcome.already:
        lines.append(f"{outcome.already} were already imported.")
    if outcome.conversations:
        lines.append(f"{numbered(outcome.conversations, 'conversation')}.")
    resampled = Counter(
        (step, f"{utterance.sample_rate_hz} Hz")
        for utterance in made
        for step in _steps(utterance)
        if step.startswith("resampled from ")
    )
    lines += [f"{count} {step} to {new}." for (step, new), count in sorted(resampled.items())]
    short = sum("short of it for its peak" in step for step in steps)
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


def _steps(utterance: Utterance) -> list[str]:
    return (utterance.processing or "").split("; ")


def _clipped(made: Iterable[Utterance]) -> dict[str, str]:
    """Return where each clipped recording clips, by the id of its utterance."""
    return {utterance.id: step for utterance in made for step in _steps(utterance) if step.startswith(CAME_CLIPPED)}


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
    reasons = {utterance.id: review_reasons(utterance, outcome.edges) for utterance in outcome.imported}
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
        "doubtful": {name: sentences for name, sentences in reasons.items() if sentences},
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

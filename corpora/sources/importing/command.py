"""`voiceprobe corpus import`: the flags, prompts for missing values, and the summary."""

import os
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from corpora.annotation.boundary_review import review_reasons
from corpora.annotation.boundary_uncertainty import SURE_MS
from corpora.manifest.errors import CorpusError, SourceError
from corpora.output_paths import is_device, unwritable, write_whole
from corpora.progress import progress_bar
from corpora.sources.importing.clipping import one_line
from corpora.sources.importing.formats import LAYOUTS, layout_of
from corpora.sources.importing.items import DEFAULT_MAX_S, Layout, Settings
from corpora.sources.importing.options import Flags
from corpora.sources.importing.pipeline import Outcome, import_corpus, opened_source
from corpora.sources.importing.tree import printable

EPILOG = """Examples:

  voiceprobe corpus import ./recordings --into ./corpus --license CC-BY-4.0 --consent "signed forms, 2026"

  voiceprobe corpus import ./calls --into ./calls-corpus --caller-channel left
  --license LicenseRef-internal --consent "announced at the start of each call"
"""
_MAX_LISTED = 20


def import_(
    *,
    source: Annotated[Path, typer.Argument(help="A folder, manifest, table, recording, or an archive of them.")],
    into: Annotated[Path, typer.Option("--into", help="The corpus folder to create.")],
    form: Annotated[
        str | None, typer.Option("--format", help=f"One of: {', '.join(LAYOUTS)}; detected if omitted.")
    ] = None,
    license: Annotated[
        str | None, typer.Option("--license", help="License of the recordings (SPDX name or text).")
    ] = None,
    consent: Annotated[str | None, typer.Option("--consent", help="How the speakers consented to this use.")] = None,
    loudness: Annotated[
        str, typer.Option("--loudness", help="Loudness measure: asl (active speech level), bs1770 or none.")
    ] = "asl",
    level: Annotated[
        float | None, typer.Option("--level", help="Target level: dBov for asl (-26), LUFS for bs1770 (-23).")
    ] = None,
    rate: Annotated[
        int | None, typer.Option("--rate", help="Resample to this rate in Hz; unchanged if omitted.")
    ] = None,
    channel: Annotated[
        str | None, typer.Option("--channel", help="The channel to use: left, right, a number from 0, or mix.")
    ] = None,
    raw_format: Annotated[
        str | None, typer.Option("--raw-format", help="Format of files without a header, as in s16le:16000:1.")
    ] = None,
    caller_channel: Annotated[
        str | None,
        typer.Option("--caller-channel", help="The caller's channel in recorded calls: left, right or a number."),
    ] = None,
    pause: Annotated[float, typer.Option("--pause", help="Cut calls at pauses of this many seconds.")] = 0.7,
    min_seconds: Annotated[float, typer.Option("--min-seconds", help="Leave out shorter sounds in calls.")] = 0.2,
    max_seconds: Annotated[float, typer.Option("--max-seconds", help="Reject longer utterances.")] = DEFAULT_MAX_S,
    language: Annotated[str, typer.Option("--language", help="BCP 47 language if the source has none.")] = "und",
    speaker: Annotated[str, typer.Option("--speaker", help="Speaker if the source has none.")] = "unknown",
    domain: Annotated[str, typer.Option("--domain", help="Domain if the source has none.")] = "imported",
    generated: Annotated[bool, typer.Option("--generated", help="The speech is synthesized.")] = False,
    append: Annotated[
        bool, typer.Option("--append", help="Add to an existing corpus, or resume an interrupted import.")
    ] = False,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Skip and list what cannot be imported.")] = False,
    jobs: Annotated[
        int | None, typer.Option("--jobs", help="Number of decoding processes; one per CPU by default.")
    ] = None,
    json: Annotated[
        Path | None, typer.Option("--json", help="Write a JSON report with every fault to this file.")
    ] = None,
) -> None:
    """Make a corpus from existing recordings: decode, resample, normalize and annotate them."""
    flags = Flags()
    settings = Settings(
        license="" if license is None else flags.text("--license", license),
        consent="" if consent is None else flags.text("--consent", consent),
        label=one_line(printable(source.absolute().name)) or "source",
        speaker=flags.text("--speaker", speaker),
        language=flags.text("--language", language),
        domain=flags.text("--domain", domain),
        kind="generated" if generated else "recorded human",
        rate_hz=flags.rate(rate),
        loudness=flags.loudness(loudness),
        level_db=flags.level(level, loudness),
        channel=flags.channel_or_mix(channel),
        raw=flags.raw(raw_format),
        max_s=flags.seconds("--max-seconds", max_seconds),
        caller_channel=flags.channel("--caller-channel", caller_channel),
        pause_s=flags.seconds("--pause", pause),
        min_s=flags.seconds("--min-seconds", min_seconds),
    )
    if jobs is not None and jobs < 1:
        flags.faults.append(f"--jobs is {jobs}; it must be at least 1.")
    if form is not None and form not in LAYOUTS:
        flags.faults.append(f"The format {form!r} is unknown; use one of {', '.join(LAYOUTS)}.")
    for flag, file in (("--json", json), ("--into", into / "x")):
        if file is not None and (fault := unwritable(file)):
            flags.faults.append(f"{flag}: {fault}.")
    flags.raise_faults()
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
                    skip_bad=skip_bad,
                    append=append,
                    processes=jobs or os.cpu_count() or 1,
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
    lines = [f"{outcome.folder.name}: {len(made)} utterances imported ({outcome.format}) into {outcome.folder}"]
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
    without_text = [utterance.id for utterance in made if utterance.text is None]
    if without_text:
        named = ", ".join(without_text[:_MAX_LISTED])
        more = (
            f" and {len(without_text) - _MAX_LISTED} more (--json FILE lists them all)"
            if len(without_text) > _MAX_LISTED
            else ""
        )
        lines.append(f"{len(without_text)} have no text, so their word error rate cannot be measured: {named}{more}")
    doubtful = sum(bool(review_reasons(utterance)) for utterance in made)
    if doubtful:
        lines.append(
            f"{doubtful} have speech bounds that may be off by more than {SURE_MS:g} ms; "
            f"review them: voiceprobe corpus review {outcome.folder}"
        )
    sys.stdout.write(printable("\n".join(lines)) + "\n")
    _print_list("left out", outcome.faults)
    _print_list("not used", outcome.skipped)


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
        "speech_s": round(sum(utterance.speech_s for utterance in outcome.imported), 3),
        "without_text": [utterance.id for utterance in outcome.imported if utterance.text is None],
        "doubtful": {utterance.id: found for utterance in outcome.imported if (found := review_reasons(utterance))},
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

"""`voiceprobe corpus import`: the command, prompts for missing values, and the summary."""

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import typer

from corpora.annotation.boundary_review import review_advice, review_reasons
from corpora.annotation.lint import CAME_CLIPPED
from corpora.manifest.errors import CorpusError, SourceError
from corpora.manifest.manifest import Utterance
from corpora.output_paths import is_device, write_whole
from corpora.progress import progress_bar
from corpora.sources.importing.clipping import one_line
from corpora.sources.importing.flags import ImportFlags, takes_import_flags
from corpora.sources.importing.formats import layout_of
from corpora.sources.importing.items import Layout, Settings
from corpora.sources.importing.pipeline import Outcome, import_corpus, opened_source
from corpora.sources.importing.tree import printable

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

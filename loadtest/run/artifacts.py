"""The files that every run leaves in its folder: for people, for scripts and for CI, all from one report of the run."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from loadtest.errors import OutputError
from loadtest.reports.junit import as_junit
from loadtest.reports.markdown import as_markdown
from loadtest.reports.run_report import RunReport
from loadtest.reports.summary import summary_object
from loadtest.run.json_file import write_result
from telemetry.store.run_folders.places import OBJECTIVES_NAME

SUMMARY: Final = "summary.json"
HTML: Final = "report.html"
JUNIT: Final = "junit.xml"
MARKDOWN: Final = "summary.md"
NAMES: Final = (SUMMARY, HTML, JUNIT, MARKDOWN)


def artifacts(report: RunReport) -> dict[str, bytes]:
    """The content of each file, by its name."""
    from loadtest.reports.html.page import as_html  # imports what draws, which takes 0.3 s

    return {
        SUMMARY: (json.dumps(summary_object(report), indent=2) + "\n").encode(),
        HTML: as_html(report).encode(),
        JUNIT: as_junit(report),
        MARKDOWN: as_markdown(report).encode(),
    }


def keep_objectives(folder: Path, text: str) -> Path:
    """Keep the text of the objectives that a run is judged by next to its store, so that whatever judges it again does
    so by the same ones; return the file. Raises OutputError."""
    file = folder / OBJECTIVES_NAME
    write_result(file, text.encode())
    return file


def write_together(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write files into a folder, all of them or none: each is written under a temporary name, then all are renamed.
    Raises OutputError."""
    parts = {folder / name: folder / f".{name}.{os.getpid()}" for name in contents}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for (file, part), content in zip(parts.items(), contents.values(), strict=True):
            if file.is_dir():
                raise IsADirectoryError(0, "a folder is in its place", str(file))
            part.write_bytes(content)
        for file, part in parts.items():
            part.replace(file)
    except OSError as error:
        for part in parts.values():
            part.unlink(missing_ok=True)
        reason = error.strerror or str(error)
        raise OutputError(
            f"{folder}: {', '.join(contents)} could not be written: {reason}; make room, then run voiceprobe report"
        ) from None

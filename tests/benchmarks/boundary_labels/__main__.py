"""Choose the clips to label, draw the pictures for labeling, and compare the detector with the labels.

    apt-get download PACKAGE ...    # into DOWNLOADS: the packages that sources.py names
    python -m tests.benchmarks.boundary_labels choose DOWNLOADS FOLDER [--draw third]
    python -m tests.benchmarks.boundary_labels draw FOLDER [ID ...]
    python -m tests.benchmarks.boundary_labels report [FOLDER] [--split report]

FOLDER then contains clips.csv, batch-N.csv, audio/ID.wav, pictures/ID-end.png and pictures/ID-start.png. Without a
FOLDER, `report` measures only the clips of the bundled corpus. A detector is tuned against the split `choose` and
reported against the split `report` when it is finished. Once the results of both have been seen, both are for tuning,
and a further draw is for the report. It shares no prompt and no text with the previous ones: `--draw fresh`, then
`--draw third`. The labels of such a draw are in data/NAME, and `report FOLDER --split NAME` reads their audio from the
FOLDER that `choose` wrote.
"""

import argparse
import csv
import multiprocessing
import sys
from pathlib import Path
from typing import get_args

import numpy as np
import soundfile

from tests.benchmarks.boundary_labels.labels import labels_of, read_labels, with_audio
from tests.benchmarks.boundary_labels.pictures import Bound, draw, view
from tests.benchmarks.boundary_labels.report import measure, table


def main() -> None:
    """Run one of the commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    choosing = commands.add_parser("choose", help="choose the clips, decode them, and write the lists")
    choosing.add_argument("downloads", type=Path)
    choosing.add_argument("folder", type=Path)
    choosing.add_argument("--draw", default="first", help="first, fresh or third; excludes the previous ones")
    drawing = commands.add_parser("draw", help="draw the pictures")
    drawing.add_argument("folder", type=Path)
    drawing.add_argument("ids", nargs="*")
    reporting = commands.add_parser("report", help="print the differences between detector and labels")
    reporting.add_argument("folder", type=Path, nargs="?")
    reporting.add_argument("--split", choices=("choose", "report", "both", "fresh", "third"), default="choose")
    arguments = parser.parse_args()
    if arguments.command == "report":
        is_later_draw = arguments.split in ("fresh", "third")
        all_labeled = read_labels(labels_of(arguments.split if is_later_draw else "first"))
        labeled = [clip for clip in all_labeled if arguments.split in (clip.split, "both")]
        sys.stdout.writelines(f"{line}\n" for line in table(measure(with_audio(labeled, arguments.folder))))
        return
    if arguments.command == "choose":
        from tests.benchmarks.boundary_labels.choose import DRAWS, choose, read_excluded, write

        names = list(DRAWS)
        if arguments.draw not in names:
            parser.error(f"--draw: {arguments.draw} is unknown; use one of {', '.join(names)}")
        excluded = read_excluded(labels_of(name) / "clips.csv" for name in names[: names.index(arguments.draw)])
        write(arguments.folder, choose(arguments.downloads, DRAWS[arguments.draw], excluded), DRAWS[arguments.draw])
        return
    (arguments.folder / "pictures").mkdir(exist_ok=True)
    with (arguments.folder / "clips.csv").open(encoding="utf-8", newline="") as opened:
        rows = [(arguments.folder, row["id"], row["text"]) for row in csv.DictReader(opened)]
    with multiprocessing.Pool(2) as pool:
        pool.starmap(_draw_both, [row for row in rows if not arguments.ids or row[1] in arguments.ids], chunksize=4)


def _draw_both(folder: Path, name: str, text: str) -> None:
    read, rate_hz = soundfile.read(folder / "audio" / f"{name}.wav", dtype="int16")
    pcm = np.asarray(read, dtype=np.int16)
    # The labeler must know the words next to the boundary.
    for which in get_args(Bound):
        shown = view(pcm, rate_hz, which)
        near = text if len(text) <= 80 else (f"{text[:80]} ..." if which == "start" else f"... {text[-80:]}")
        title = f"{which.upper()}  {name}   “{near}”   {rate_hz} Hz, file ends at {len(pcm) * 1000 / rate_hz:.1f} ms"
        if shown.cut:
            title += "   (more soft sound outside)"
        draw(folder / "pictures" / f"{name}-{which}.png", pcm, rate_hz, title, shown)


if __name__ == "__main__":
    main()

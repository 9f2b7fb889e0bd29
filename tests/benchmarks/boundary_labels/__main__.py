"""Choose the clips to label, draw the pictures they are labeled from, and hold the detector against the labels.

    apt-get download PACKAGE ...    # into DOWNLOADS: those that sources.py names
    python -m tests.benchmarks.boundary_labels choose DOWNLOADS FOLDER [--draw third]
    python -m tests.benchmarks.boundary_labels draw FOLDER [ID ...]
    python -m tests.benchmarks.boundary_labels report [FOLDER] [--split report]

FOLDER then holds clips.csv, batch-N.csv, audio/ID.wav, and pictures/ID-end.png and ID-start.png.
Without a FOLDER, `report` measures the clips of the bundled corpus alone. A detector is chosen against the split
`choose`; `report` is looked at when it is done. Once both have been looked at, they are to choose by, and a further
draw is to report, which shares no prompt and no text with the ones before it: `--draw fresh`, then `--draw third`. The
labels of such a draw are in data/NAME, and `report FOLDER --split NAME` takes their audio from the FOLDER that `choose`
wrote.
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
from tests.benchmarks.boundary_labels.pictures import End, draw, view
from tests.benchmarks.boundary_labels.report import measure, table


def main() -> None:
    """Run one of the commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    choosing = commands.add_parser("choose", help="choose the clips, decode them, write lists")
    choosing.add_argument("downloads", type=Path)
    choosing.add_argument("folder", type=Path)
    choosing.add_argument("--draw", default="first", help="first, fresh or third, without what the ones before it hold")
    drawing = commands.add_parser("draw", help="draw the pictures")
    drawing.add_argument("folder", type=Path)
    drawing.add_argument("ids", nargs="*")
    reporting = commands.add_parser("report", help="how far the detector is from the labels")
    reporting.add_argument("folder", type=Path, nargs="?")
    reporting.add_argument("--split", choices=("choose", "report", "both", "fresh", "third"), default="choose")
    given = parser.parse_args()
    if given.command == "report":
        own_draw = given.split in ("fresh", "third")
        of_draw = read_labels(labels_of(given.split if own_draw else "first"))
        labeled = [clip for clip in of_draw if given.split in (clip.split, "both")]
        sys.stdout.writelines(f"{line}\n" for line in table(measure(with_audio(labeled, given.folder))))
        return
    if given.command == "choose":
        from tests.benchmarks.boundary_labels.choose import DRAWS, choose, read_barred, write

        names = list(DRAWS)
        if given.draw not in names:
            parser.error(f"--draw: {given.draw} is none of {', '.join(names)}")
        barred = read_barred(labels_of(name) / "clips.csv" for name in names[: names.index(given.draw)])
        write(given.folder, choose(given.downloads, DRAWS[given.draw], barred), DRAWS[given.draw])
        return
    (given.folder / "pictures").mkdir(exist_ok=True)
    with (given.folder / "clips.csv").open(encoding="utf-8", newline="") as opened:
        rows = [(given.folder, row["id"], row["text"]) for row in csv.DictReader(opened)]
    with multiprocessing.Pool(2) as pool:
        pool.starmap(_draw_both, [row for row in rows if not given.ids or row[1] in given.ids], chunksize=4)


def _draw_both(folder: Path, name: str, text: str) -> None:
    read, rate_hz = soundfile.read(folder / "audio" / f"{name}.wav", dtype="int16")
    pcm = np.asarray(read, dtype=np.int16)
    # The words next to the boundary are the ones to know.
    for which in get_args(End):
        shown = view(pcm, rate_hz, which)
        near = text if len(text) <= 80 else (f"{text[:80]} ..." if which == "start" else f"... {text[-80:]}")
        title = f"{which.upper()}  {name}   “{near}”   {rate_hz} Hz, file ends at {len(pcm) * 1000 / rate_hz:.1f} ms"
        if shown.cut:
            title += "   (more soft sound outside)"
        draw(folder / "pictures" / f"{name}-{which}.png", pcm, rate_hz, title, shown)


if __name__ == "__main__":
    main()

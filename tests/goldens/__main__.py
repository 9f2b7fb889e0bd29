"""Writes the golden answers, or compares with them: `python -m tests.goldens [--write]`."""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.goldens import comparing, one_day

_MOST_SHOWN = 200


def main() -> int:
    """Answer all questions, and give an exit code that says whether the answers are what they were."""
    parser = argparse.ArgumentParser(prog="python -m tests.goldens", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the file instead of comparing with it")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file, found = one_day.FILE, one_day.answered(Path(folder), one_day.fill(Path(folder)))
    if arguments.write:
        file.write_text(comparing.written(found), encoding="utf-8")
        return 0
    different = comparing.differences(comparing.read(file), found)
    sys.stdout.writelines(f"{each}\n" for each in different[:_MOST_SHOWN])
    sys.stdout.write(f"{len(different)} differences in {len(found)} answers\n")
    return bool(different)


if __name__ == "__main__":
    sys.exit(main())

"""Writes the golden answers, or compares with them: `python -m tests.goldens [--turns 1000000] [--write]`.

Without `--turns` they are about a day of a thousand turns, as in the tests. With it, a store of about so many turns is
filled first, which takes minutes and gigabytes; `--fill` does only that, in a folder that is kept, and `--store` asks
one that was filled so.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.goldens import comparing, many, one_day

_MOST_SHOWN = 200


def main() -> int:
    """Answer all questions, and give an exit code that says whether the answers are what they were."""
    parser = argparse.ArgumentParser(prog="python -m tests.goldens", description=__doc__)
    parser.add_argument("--turns", type=int, default=0, help="about so many turns instead of a day")
    parser.add_argument("--write", action="store_true", help="write the file instead of comparing with it")
    parser.add_argument("--fill", type=Path, help="only fill a store in this folder")
    parser.add_argument("--store", type=Path, help="a store that was filled with so many turns before")
    arguments = parser.parse_args()
    if arguments.fill is not None:
        many.fill(arguments.fill, arguments.turns)
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.store or Path(temporary)
        if not arguments.turns:
            file, found = one_day.FILE, one_day.answered(folder, one_day.fill(folder))
        else:
            if arguments.store is None:
                many.fill(folder, arguments.turns)
            file, found = many.file_of(arguments.turns), many.answered(folder, arguments.turns)
    if arguments.write:
        file.write_text(comparing.written(found), encoding="utf-8")
        return 0
    different = comparing.differences(comparing.read(file), found)
    sys.stdout.writelines(f"{each}\n" for each in different[:_MOST_SHOWN])
    sys.stdout.write(f"{len(different)} differences in {len(found)} answers\n")
    return bool(different)


if __name__ == "__main__":
    sys.exit(main())

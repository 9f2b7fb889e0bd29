"""Writes the golden answers, or compares with them: `python -m tests.goldens [--turns 1000000] [--write]`.

Without `--turns` they are about a day of a thousand turns, as in the tests. With it, a store of about so many turns is
filled first, which takes minutes and gigabytes; `--fill` does only that, in a folder that is kept, and `--store` asks
one that was filled so. `--sampled` has every percentile of many values estimated, however few turns there are: of the
intervals, each of which holds the exact percentile with 95 % confidence, 93 % must.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from telemetry.store.connection import EXACT_TURNS
from tests.goldens import comparing, many, one_day

_MOST_SHOWN = 200
_MUST_HOLD = 0.93


def main() -> int:
    """Answer all questions, and give an exit code that says whether the answers are what they were."""
    parser = argparse.ArgumentParser(prog="python -m tests.goldens", description=__doc__)
    parser.add_argument("--turns", type=int, default=0, help="about so many turns instead of a day")
    parser.add_argument("--write", action="store_true", help="write the file instead of comparing with it")
    parser.add_argument("--fill", type=Path, help="only fill a store in this folder")
    parser.add_argument("--store", type=Path, help="a store that was filled with so many turns before")
    parser.add_argument("--sampled", action="store_true", help="estimate percentiles, and look at their intervals")
    arguments = parser.parse_args()
    if arguments.fill is not None:
        many.fill(arguments.fill, arguments.turns)
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.store or Path(temporary)
        if not arguments.turns:
            file, answers = one_day.FILE, one_day.answered(folder, one_day.fill(folder))
        else:
            if arguments.store is None:
                many.fill(folder, arguments.turns)
            exact_turns = 0 if arguments.sampled else EXACT_TURNS
            file, answers = many.file_of(arguments.turns), many.answered(folder, arguments.turns, exact_turns)
    if arguments.write:
        file.write_text(comparing.written(answers), encoding="utf-8")
        return 0
    golden = comparing.read(file)
    different = comparing.differences(golden, answers)
    sys.stdout.writelines(f"{line}\n" for line in different[:_MOST_SHOWN])
    sys.stdout.write(f"{len(different)} differences in {len(answers)} answers\n")
    held = [*comparing.estimates(golden, answers).values()]
    if arguments.sampled:
        sys.stdout.write(f"{sum(held)} of {len(held)} intervals of estimates hold the exact percentile\n")
    return bool(different) or sum(held) < _MUST_HOLD * len(held) or (arguments.sampled and not held)


if __name__ == "__main__":
    sys.exit(main())

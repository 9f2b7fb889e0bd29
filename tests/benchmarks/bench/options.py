"""What a benchmark is asked for, checked as a whole: all faults at once."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from corpora.output_paths import unwritable
from loadtest.errors import UsageError
from loadtest.targets.ground_truth.plan import Behavior
from telemetry.model.durations import Duration
from tests.benchmarks.bench.cases import DEFAULT_MODES, DUPLEX, MODES, PARTS, REPLIES, WIRES, Case
from tests.benchmarks.bench.window_option import read_window

DEFAULT_CALLERS: Final = (100, 500, 1000, 2000)
# TLS costs every sender the same: it is compared at the smaller sizes only.
MOST_CALLERS_OVER_TLS: Final = 500
# A peer in Python cannot keep up with more than this, and there is no control to compare with anyway.
MOST_CALLERS_WITHOUT_COMPILER: Final = 100
MOST_CALLERS: Final = 20_000
DEFAULT_CONVERSATIONS: Final = (200, 400, 600, 800, 1000)
SHORTEST_WINDOW: Final = Duration.parse("200ms")
LONGEST_WINDOW: Final = Duration.parse("10m")


@dataclass(frozen=True, slots=True)
class Options:
    """A benchmark to run."""

    parts: tuple[str, ...]
    callers: tuple[int, ...]
    modes: tuple[str, ...]
    wires: tuple[str, ...]
    rounds: int
    warm_up_s: float
    window_s: float
    turns: int  # of the telemetry part
    stamps_modes: tuple[str, ...]
    stamps_callers: int
    conversations: tuple[int, ...]
    replies: Behavior
    conversations_warm_up_s: float
    conversations_window_s: float
    json_file: Path | None
    markdown: bool

    def cases(self) -> list[Case]:
        """What the senders are compared at, from the smallest on."""
        return [
            Case(callers, mode, wire)
            for wire in self.wires
            for callers in sorted(self.callers)
            for mode in self.modes
            if wire == "ws" or callers <= max(MOST_CALLERS_OVER_TLS, min(self.callers))
        ]


def _listed(text: str, known: tuple[str, ...], flag: str, faults: list[str]) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        what = f"{', '.join(unknown)} is unknown" if unknown else "it names nothing"
        faults.append(f"{flag} {text}: {what}; give one or more of {','.join(known)}")
    return tuple(name for name in known if name in names)


def _counts(text: str, faults: list[str]) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and 0 < int(part) <= MOST_CALLERS for part in parts):
        faults.append(f"--callers {text}: give numbers from 1 to {MOST_CALLERS}, such as 100,500")
        return ()
    return tuple(dict.fromkeys(int(part) for part in parts))


def _replies(name: str, faults: list[str]) -> Behavior:
    for known in REPLIES:
        if name == known:
            return known
    faults.append(f"--replies {name}: it is unknown; give one of {','.join(REPLIES)}")
    return REPLIES[0]


def checked(
    *,
    only: str,
    callers: str | None,
    modes: str,
    wires: str,
    rounds: int | None,
    window: str | None,
    replies: str,
    short: bool,
    json_file: Path | None,
    markdown: bool,
) -> Options:
    """The options as a whole. Raises UsageError with one sentence for each fault."""
    faults: list[str] = []
    sizes = _counts(callers, faults) if callers is not None else ((100,) if short else DEFAULT_CALLERS)
    rounds = rounds if rounds is not None else (1 if short else 3)
    if not 1 <= rounds <= 100:
        faults.append(f"--rounds {rounds}: give a number from 1 to 100")
    measured = read_window(
        window if window is not None else ("600ms" if short else "3s"), SHORTEST_WINDOW, LONGEST_WINDOW, faults
    )
    talking = read_window(
        window if window is not None else ("2s" if short else "6s"), SHORTEST_WINDOW, LONGEST_WINDOW, []
    )
    if json_file is not None and (fault := unwritable(json_file)):
        faults.append(f"--json {fault}")
    options = Options(
        parts=_listed(only, PARTS, "--only", faults),
        callers=sizes,
        modes=_listed(modes, MODES, "--modes", faults),
        wires=_listed(wires, WIRES, "--wires", faults) if not short or wires != ",".join(WIRES) else ("ws",),
        rounds=rounds,
        warm_up_s=0.3 if short else 1.5,
        window_s=measured.seconds,
        turns=250 if short else 5000,
        stamps_modes=(DUPLEX,) if short else DEFAULT_MODES,
        stamps_callers=min(sizes, default=100) if short else min(500, max(sizes, default=500)),
        conversations=sizes if callers is not None else ((50,) if short else DEFAULT_CONVERSATIONS),
        replies=_replies(replies, faults),
        # In this time every caller is in a turn, the last ones in their first.
        conversations_warm_up_s=2.0 if short else 4.0,
        conversations_window_s=talking.seconds,
        json_file=json_file,
        markdown=markdown,
    )
    if faults:
        raise UsageError("\n".join(faults))
    return options

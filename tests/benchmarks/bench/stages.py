"""Where the processor time of our engine goes: samples of what it is at, by stage. Linux's SIGPROF, no tracing.

A sample is taken each few milliseconds of processor time, which the kernel rounds up to its own tick. The time since
the last one counts for the stage that is found: that of the innermost frame whose file belongs to one. What other
threads used meanwhile, such as the one that delivers telemetry, counts apart.
"""

import signal
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final

EVERY_S: Final = 0.002
MOST_FUNCTIONS: Final = 12
EVENT_LOOP: Final = "event loop"
OTHER: Final = "other"
THREADS: Final = "other threads"
# Files and folders of a stage; the longest name that fits decides.
STAGE_OF: Final = {
    "loadtest/engine": "send",
    "loadtest/engine/connection.py": "read",
    "loadtest/engine/transports": "read",
    "loadtest/engine/watch.py": "read",
    "loadtest/engine/arrival_evidence.py": "read",
    "loadtest/engine/call.py": "timeline",
    "loadtest/protocols": "decode",
    "loadtest/protocols/transports": "read",
    "loadtest/audio": "onset",
    "loadtest/conversation": "timeline",
    "loadtest/conversation/evidence.py": "telemetry",
    "loadtest/conversation/record.py": "telemetry",
    "loadtest/conversation/transcripts.py": "telemetry",
    "loadtest/swarm": "telemetry",
    "telemetry": "telemetry",
    "gevent": EVENT_LOOP,
    "locust": "Locust",
    "loadtest/swarm/users.py": "Locust",
}
ROOT: Final = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True)
class CpuProfile:
    """Shares of the processor time of a window, by stage and by function (as many as weigh most)."""

    samples: int
    stages: Mapping[str, float]
    functions: Mapping[str, float]


def stage_of(file: str) -> str | None:
    """The stage of a source file; None for one that belongs to whoever called it."""
    path = Path(file)
    if path.is_relative_to(ROOT) and "site-packages" not in path.parts:
        parts = path.relative_to(ROOT).parts
    elif "site-packages" in path.parts:
        parts = path.parts[path.parts.index("site-packages") + 1 :]
    else:
        return None
    names = ("/".join(parts[:size]) for size in range(len(parts), 0, -1))
    return next((STAGE_OF[name] for name in names if name in STAGE_OF), None)


class StageSampler:
    """Samples this process's main thread, from `start` to `stop`."""

    def __init__(self) -> None:
        self._stages: Counter[str] = Counter()
        self._functions: Counter[str] = Counter()
        self._known: dict[str, str | None] = {}
        self._samples = 0
        self._main_ns = self._whole_ns = 0

    def start(self) -> None:
        """Begin; call it in the main thread."""
        self._main_ns, self._whole_ns = time.thread_time_ns(), time.process_time_ns()
        signal.signal(signal.SIGPROF, self.take)
        signal.setitimer(signal.ITIMER_PROF, EVERY_S, EVERY_S)

    def stop(self) -> CpuProfile:
        """End; what was found."""
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        whole = max(1, self._stages.total())
        return CpuProfile(
            self._samples,
            {stage: cost / whole for stage, cost in self._stages.most_common()},
            {name: cost / whole for name, cost in self._functions.most_common(MOST_FUNCTIONS)},
        )

    def take(self, number: int, frame: FrameType | None) -> None:
        """Count what was used since the last sample for what is being done now."""
        del number
        main_ns, whole_ns = time.thread_time_ns(), time.process_time_ns()
        self.count(frame, main_ns - self._main_ns, whole_ns - self._whole_ns - (main_ns - self._main_ns))
        self._main_ns, self._whole_ns = main_ns, whole_ns

    def count(self, frame: FrameType | None, main_ns: int, others_ns: int) -> None:
        """`main_ns` for the stage of a frame, `others_ns` for the other threads."""
        self._samples += 1
        self._stages[THREADS] += max(0, others_ns)
        while frame is not None:
            file = frame.f_code.co_filename
            if file not in self._known:
                self._known[file] = stage_of(file)
            stage = self._known[file]
            if stage is not None:
                self._stages[stage] += main_ns
                self._functions[f"{Path(file).name}: {frame.f_code.co_qualname}"] += main_ns
                return
            frame = frame.f_back
        self._stages[OTHER] += main_ns


def profile_from(printed: Mapping[str, Any]) -> CpuProfile:
    """As a process printed it."""
    return CpuProfile(printed["samples"], printed["stages"], printed["functions"])

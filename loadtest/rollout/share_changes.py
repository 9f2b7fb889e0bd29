"""Makes a change of shares as the plan says: in a file of flags, or by a command."""

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from corpora.output_paths import write_whole
from loadtest.errors import UsageError, VoiceprobeError
from loadtest.flag_file import Split, encode_flags, flag_of, read_flags, share_of, with_split
from telemetry.model.errors import ConfigError
from telemetry.model.foreign_text import one_line
from telemetry.rollout.plan import RolloutPlan, ShareChange, Stage

_LONGEST_WORDS: Final = 300
# Shares in a file are whole-number weights of a million parts at the finest.
_SHARE_ERROR: Final = 1e-6


@dataclass(frozen=True, slots=True)
class ChangeShare:
    """Split callers by the shares of a stage; or take the candidate back at this stage."""

    stage: Stage
    is_back: bool = False

    @property
    def share(self) -> float:
        """The candidate's share of all callers."""
        return 0.0 if self.is_back else self.stage.share

    @property
    def control_share(self) -> float:
        """The control's: what the candidate gives back, its control gets."""
        return self.stage.control_share + (self.stage.share if self.is_back else 0.0)


class ShareUnchangedError(VoiceprobeError):
    """The shares could not be changed; the text says why."""


class ChangeFailedError(UsageError):
    """The share of the first stage could not be given, so nothing has begun."""


def share_changer(plan: RolloutPlan, plan_file: Path) -> Callable[[ChangeShare], str]:
    """Return a function that changes the share and returns a sentence about it; it raises ShareUnchangedError.

    Raises UsageError if the plan does not state how, or its file of flags cannot hold the shares of every stage.
    """
    how = plan.apply
    if how is None:
        raise UsageError(
            f"{plan_file}: apply is missing; say how the shares are changed, by flags or a command, or watch a "
            "split that is changed elsewhere with `rollout watch`"
        )
    if how.flags is None:
        return lambda change: _run(plan, how, change)
    file = plan_file.parent / Path(how.flags).expanduser()
    try:
        document = _document(file)
        for stage in plan.stages:
            with_split(document, how.flag, _split(plan, ChangeShare(stage)), str(file))
    except ConfigError as error:
        raise UsageError("\n".join(f"{error.where}: {fault}" for fault in error.faults)) from None
    return lambda change: _edit(plan, how, file, change)


def _split(plan: RolloutPlan, change: ChangeShare) -> Split:
    return Split(plan.control, plan.candidate, change.control_share, change.share)


def _document(file: Path) -> dict[str, object]:
    try:
        return read_flags(file.read_bytes(), str(file))
    except OSError as error:
        raise ConfigError(str(file), [f"cannot be read: {error.strerror or error}"]) from None


def _edit(plan: RolloutPlan, how: ShareChange, file: Path, change: ChangeShare) -> str:
    split = _split(plan, change)
    try:
        before = file.stat()
        document = with_split(_document(file), how.flag, split, str(file))
        write_whole(file, encode_flags(document))
        after = file.stat()
        if after.st_mtime_ns <= before.st_mtime_ns:
            # Providers look at the time of the change; a clock that went back must not hide one.
            os.utime(file, ns=(after.st_atime_ns, before.st_mtime_ns + 1_000_000))
        written = share_of(flag_of(_document(file), how.flag, str(file)), plan.candidate)
    except ConfigError as error:
        raise ShareUnchangedError(str(error)) from None
    except OSError as error:
        raise ShareUnchangedError(f"{file} could not be written: {error.strerror or error}") from None
    if written is None or abs(written - split.candidate_share) > _SHARE_ERROR:
        raise ShareUnchangedError(f"{file} was changed by somebody else meanwhile: it gives {plan.candidate} {written}")
    return f"{file} gives {plan.candidate} {change.share:.4g} of the callers"


def _values(plan: RolloutPlan, change: ChangeShare) -> dict[str, str]:
    split = _split(plan, change)
    return {
        "rollout": plan.name,
        "stage": "" if change.is_back else change.stage.name,
        "candidate": plan.candidate,
        "control": plan.control,
        "share": f"{split.candidate_share:.10g}",
        "control_share": f"{split.control_share:.10g}",
    }


def _run(plan: RolloutPlan, how: ShareChange, change: ChangeShare) -> str:
    values = _values(plan, change)
    command = [_filled(argument, values) for argument in how.command]
    variables = {f"VOICEPROBE_ROLLOUT_{name.upper()}": value for name, value in values.items()}
    name = one_line(command[0])
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=how.timeout.seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ShareUnchangedError(f"the command {name} did not end within {how.timeout}") from None
    except OSError as error:
        raise ShareUnchangedError(f"the command {name} cannot be run: {error.strerror or error}") from None
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        why = f": {one_line(lines[0], _LONGEST_WORDS)}" if lines else ""
        raise ShareUnchangedError(f"the command {name} ended with code {done.returncode}{why}")
    return f"the command {name} gave {plan.candidate} {change.share:.4g} of the callers"


def _filled(argument: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        argument = argument.replace(f"{{{name}}}", value)
    return argument

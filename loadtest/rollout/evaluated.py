"""A rollout as it is evaluated, here or by the sidecar at an address: its verdict, and whether a stage may begin."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import msgspec

from telemetry.model.foreign_text import one_line
from telemetry.objectives.objective import Objective
from telemetry.sidecar.rollouts.evaluation import BEGUN, EvaluatedVerdict, RolloutEvaluator
from telemetry.sidecar.rollouts.settings import RolloutSetting
from telemetry.sidecar_client import OK, SidecarClient
from telemetry.store.reader import StoreReader

_LONGEST_WORDS: Final = 500
_UNKNOWN: Final = 404
_TEXTS: Final = ("reasons", "notes")
# Who judges, and who lets stages begin.
_DECIDED_BY: Final = ("rollout run", "rollout run")
_REFUSED: Final = 409


@dataclass(frozen=True, slots=True)
class StageAnswer:
    """Whether a stage may begin, and why."""

    may_begin: bool
    sentence: str


class EvaluatedRollout(Protocol):
    """A rollout whose verdicts are kept before they are answered."""

    def verdict(self) -> EvaluatedVerdict:
        """The verdict of now. Raises StoreError."""
        ...

    def begin(self, stage: str, *, is_settled: bool = False) -> StageAnswer:
        """Return whether a stage may begin; if it may, it has. `is_settled`: its share is in effect only now. Raises
        StoreError."""
        ...


class RolloutHere:
    """The first of some rollouts, evaluated by this process, which keeps its verdicts in the store `log`.

    Raises StoreError where another process evaluates it, and where nothing can be kept."""

    def __init__(
        self,
        files: Sequence[tuple[str, Path]],
        log: Path,
        reader: StoreReader,
        objectives: Sequence[Objective],
        *,
        unix_ns: Callable[[], int],
        every_s: float,
    ) -> None:
        settings = [RolloutSetting(name, str(file)) for name, file in files]
        self._name = files[0][0]
        self._evaluator = RolloutEvaluator(log, settings, objectives, reader, unix_ns, every_s, *_DECIDED_BY)
        self._evaluator.open(self._name)

    def close(self) -> None:
        """Let another process evaluate it."""
        self._evaluator.close()

    def verdict(self) -> EvaluatedVerdict:
        """See `EvaluatedRollout`."""
        return self._evaluator.look(self._name).verdict

    def begin(self, stage: str, *, is_settled: bool = False) -> StageAnswer:
        """See `EvaluatedRollout`."""
        answer = self._evaluator.begin(self._name, stage, is_settled=is_settled)
        return StageAnswer(answer.status == BEGUN, answer.sentence)


class SidecarVerdicts:
    """The rollout `name` of a sidecar. Raises StoreError from any question when the sidecar cannot be reached, has no
    verdict of now, or answers what this version does not understand."""

    def __init__(self, sidecar: SidecarClient, name: str) -> None:
        self._sidecar = sidecar
        self._path = f"/v1/rollouts/{name}"

    def is_evaluated(self) -> bool:
        """Return whether the sidecar evaluates this rollout; also before its first look."""
        answer = self._sidecar.ask("GET", f"{self._path}/verdict")
        if answer.status != _UNKNOWN:
            return True
        if not answer.words:
            raise self._sidecar.refused(answer)
        return False

    def verdict(self) -> EvaluatedVerdict:
        """See `EvaluatedRollout`."""
        answer = self._sidecar.ask("GET", f"{self._path}/verdict")
        if answer.status != OK:
            raise self._sidecar.refused(answer)
        try:
            found = msgspec.json.decode(answer.content, type=EvaluatedVerdict)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._sidecar.of_another_version("its verdict", error) from error
        texts = {name: tuple(one_line(each, _LONGEST_WORDS) for each in getattr(found, name)) for name in _TEXTS}
        return msgspec.structs.replace(found, sentence=one_line(found.sentence, _LONGEST_WORDS), **texts)

    def begin(self, stage: str, *, is_settled: bool = False) -> StageAnswer:
        """See `EvaluatedRollout`."""
        content = msgspec.json.encode({"stage": stage, "settled": is_settled})
        answer = self._sidecar.ask("POST", f"{self._path}/stage", content)
        if answer.status not in (OK, _UNKNOWN, _REFUSED) or not answer.words:
            raise self._sidecar.refused(answer)
        return StageAnswer(answer.status == OK, answer.words)

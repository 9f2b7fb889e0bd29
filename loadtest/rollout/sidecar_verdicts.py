"""The rollouts that a sidecar evaluates, asked over HTTP: what its verdict is, and whether a stage may begin."""

from dataclasses import dataclass
from typing import Final

import msgspec

from telemetry.model.foreign_text import one_line
from telemetry.rollout.plan import Decision
from telemetry.sidecar_client import OK, SidecarAnswer, SidecarClient

_LONGEST_WORDS: Final = 500
_UNKNOWN: Final = 404
_REFUSED: Final = 409


@dataclass(frozen=True, slots=True)
class SidecarVerdict:
    """A verdict as a sidecar answers it. `is_kept` says whether its log has it: others only hold."""

    decision: Decision
    sentence: str
    reason: str
    stage: str
    fingerprint: str
    turns: tuple[int, int]  # of the candidate and the control
    turns_needed: int | None
    is_kept: bool


@dataclass(frozen=True, slots=True)
class StageAnswer:
    """Whether a stage may begin, and why."""

    may_begin: bool
    sentence: str


class _AnsweredPlan(msgspec.Struct):
    fingerprint: str


class _AnsweredCohort(msgspec.Struct):
    turns: int


class _AnsweredCohorts(msgspec.Struct):
    candidate: _AnsweredCohort
    control: _AnsweredCohort


class _AnsweredVerdict(msgspec.Struct):
    """What is read of a verdict's object (`verdict_document`)."""

    verdict: Decision
    sentence: str
    reasons: list[str]
    stage: str
    plan: _AnsweredPlan
    cohorts: _AnsweredCohorts | None
    turns_needed: int | None
    sequence: int | None


class SidecarVerdicts:
    """The rollout `name` of a sidecar. Raises StoreError from any question when the sidecar cannot be reached, has no
    verdict of now, or answers what this version does not understand."""

    def __init__(self, sidecar: SidecarClient, name: str) -> None:
        self._sidecar = sidecar
        self._path = f"/v1/rollouts/{name}"

    def is_evaluated(self) -> bool:
        """Whether the sidecar evaluates this rollout; also before its first look."""
        answer = self._sidecar.ask("GET", f"{self._path}/verdict")
        if answer.status != _UNKNOWN:
            return True
        if not answer.words:
            raise self._sidecar.refused(answer)
        return False

    def verdict(self) -> SidecarVerdict:
        """The verdict of now."""
        answer = self._sidecar.ask("GET", f"{self._path}/verdict")
        if answer.status != OK:
            raise self._sidecar.refused(answer)
        return self._read(answer)

    def begin(self, stage: str, *, is_settled: bool = False) -> StageAnswer:
        """Ask whether a stage may begin; if it may, it has. `is_settled`: its share is in effect only now."""
        content = msgspec.json.encode({"stage": stage, "settled": is_settled})
        answer = self._sidecar.ask("POST", f"{self._path}/stage", content)
        if answer.status not in (OK, _UNKNOWN, _REFUSED) or not answer.words:
            raise self._sidecar.refused(answer)
        return StageAnswer(answer.status == OK, answer.words)

    def _read(self, answer: SidecarAnswer) -> SidecarVerdict:
        try:
            body = msgspec.json.decode(answer.content, type=_AnsweredVerdict)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._sidecar.of_another_version("its verdict", error) from error
        cohorts = body.cohorts
        return SidecarVerdict(
            decision=body.verdict,
            sentence=one_line(body.sentence, _LONGEST_WORDS),
            reason=one_line(body.reasons[0] if body.reasons else "", _LONGEST_WORDS),
            stage=body.stage,
            fingerprint=body.plan.fingerprint,
            turns=(0, 0) if cohorts is None else (cohorts.candidate.turns, cohorts.control.turns),
            turns_needed=body.turns_needed,
            is_kept=body.sequence is not None,
        )

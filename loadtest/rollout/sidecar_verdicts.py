"""The rollouts that a sidecar evaluates, asked over HTTP: what its verdict is, and whether a stage may begin."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

import httpx
import msgspec

from loadtest.errors import UsageError
from telemetry.client_tls import sidecar_context
from telemetry.model import semconv
from telemetry.model.errors import ConfigError, StoreError
from telemetry.model.foreign_text import one_line
from telemetry.rollout.history import Decision

# A look that has begun comes to its end before a stage is answered.
TIMEOUT_S: Final = 40.0
_LONGEST_WORDS: Final = 500
_UNKNOWN: Final = 404
_REFUSED: Final = 409
_OK: Final = 200
_NO_ACCESS: Final = (401, 403)


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
    """The rollout `name` of the sidecar at an address. Raises StoreError from any question when the sidecar cannot be
    reached, has no verdict of now, or answers what this version does not understand; UsageError where its certificate
    cannot be checked. The token goes to that address only: no redirect is followed and no proxy is asked."""

    def __init__(self, address: str, name: str, token: str | None, *, timeout_s: float = TIMEOUT_S) -> None:
        self._where = address.rstrip("/")
        self._path = f"{self._where}/v1/rollouts/{name}"
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        try:
            verify = sidecar_context() if self._where.startswith("https:") else True
        except ConfigError as error:
            raise UsageError(str(error)) from None
        self._client = httpx.Client(headers=headers, timeout=timeout_s, verify=verify, trust_env=False)
        self._token = token

    def close(self) -> None:
        """Let go of the connection."""
        self._client.close()

    def is_evaluated(self) -> bool:
        """Whether the sidecar evaluates this rollout; also before its first look."""
        return self._ask("GET", "verdict").status_code != _UNKNOWN

    def verdict(self) -> SidecarVerdict:
        """The verdict of now."""
        answer = self._ask("GET", "verdict")
        if answer.status_code != _OK:
            raise StoreError(f"{self._where}: {_why(answer)}")
        return self._read(answer)

    def begin(self, stage: str, *, is_settled: bool = False) -> StageAnswer:
        """Ask whether a stage may begin; if it may, it has. `is_settled`: its share is in effect only now."""
        content = {"stage": stage, "settled": is_settled}
        answer = self._ask("POST", "stage", content)
        if answer.status_code not in (_OK, _UNKNOWN, _REFUSED):
            raise StoreError(f"{self._where}: {_why(answer)}")
        return StageAnswer(answer.status_code == _OK, _why(answer))

    def _ask(
        self, method: Literal["GET", "POST"], path: str, content: Mapping[str, object] | None = None
    ) -> httpx.Response:
        try:
            answer = self._client.request(method, f"{self._path}/{path}", json=content)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            why = one_line(str(error)) or type(error).__name__
            raise StoreError(
                f"{self._where}: no sidecar answers there ({why}); check the address and that it runs"
            ) from error
        if answer.status_code in _NO_ACCESS:
            given = "the token is not its own" if self._token else "it asks for a token"
            raise StoreError(
                f"{self._where}: {given}; set {semconv.SIDECAR_TOKEN_VARIABLE} to the one it was started with"
            )
        return answer

    def _read(self, answer: httpx.Response) -> SidecarVerdict:
        try:
            body = msgspec.json.decode(answer.content, type=_AnsweredVerdict)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise StoreError(
                f"{self._where}: its verdict is not one of this version ({error}); "
                "use the same version of voiceprobe on both machines"
            ) from error
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


def _why(answer: httpx.Response) -> str:
    """What the sidecar says of it."""
    try:
        body = answer.json()
    except ValueError:
        body = None
    found = cast("dict[str, Any]", body) if isinstance(body, dict) else {}
    text = found.get("error") or found.get("sentence")
    return one_line(str(text), _LONGEST_WORDS) if text else f"answers with HTTP status {answer.status_code}"

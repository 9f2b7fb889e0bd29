"""Assigns callers to cohorts, once per call by a hash, so that neither turns nor restarts change the cohort."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

_RESOLUTION: Final = 1 << 64


@dataclass(frozen=True, slots=True)
class Assignment:
    """The cohort of a call; None without cohorts. `flag` is what is reported of the decision, by OpenTelemetry's names
    for the evaluation of a feature flag."""

    cohort: str | None = None
    flag: Mapping[str, str] = field(default_factory=dict[str, str])


class Assigner(Protocol):
    """Decides on the cohort of a call. Called on the event loop: it neither waits nor reads files."""

    def assign(self, key: str) -> Assignment:
        """Return the cohort of a caller: the same key always has the same one while the shares stay."""
        ...

    def stop(self) -> None:
        """Release what it holds."""
        ...


class NoCohorts:
    """Every call is the same."""

    def assign(self, key: str) -> Assignment:
        """See `Assigner`."""
        del key
        return Assignment()

    def stop(self) -> None:
        """Nothing to release."""


@dataclass(frozen=True, slots=True)
class CohortSplit:
    """The split of calls: a `share` of them (0 to 1) is in `treatment`, the others are in `control`."""

    treatment: str
    share: float
    control: str = "control"
    salt: int = 0

    def assign(self, key: str) -> Assignment:
        """Return the cohort of a call: the same id and salt always give the same cohort."""
        digest = hashlib.sha256(f"{self.salt}:{key}".encode()).digest()
        is_treated = int.from_bytes(digest[:8]) < self.share * _RESOLUTION
        return Assignment(self.treatment if is_treated else self.control)

    def stop(self) -> None:
        """Nothing to release."""

"""Assigns calls to cohorts, once per call by a hash, so that neither turns nor restarts change the cohort."""

import hashlib
from dataclasses import dataclass
from typing import Final

_RESOLUTION: Final = 1 << 64


@dataclass(frozen=True, slots=True)
class CohortSplit:
    """The split of calls: a `share` of them (0 to 1) is in `treatment`, the others are in `control`."""

    treatment: str
    share: float
    control: str = "control"
    salt: int = 0

    def assign(self, call_id: str) -> str:
        """Return the cohort of a call: the same id and salt always give the same cohort."""
        digest = hashlib.sha256(f"{self.salt}:{call_id}".encode()).digest()
        return self.treatment if int.from_bytes(digest[:8]) < self.share * _RESOLUTION else self.control

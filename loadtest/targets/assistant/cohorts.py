"""Which cohort a call belongs to: decided once per call by a hash, so neither turns nor restarts change it."""

import hashlib
from dataclasses import dataclass
from typing import Final

_RESOLUTION: Final = 1 << 64


@dataclass(frozen=True, slots=True)
class CohortSplit:
    """`share` of all calls (0 to 1) are in `treatment`, the others in `control`."""

    treatment: str
    share: float
    control: str = "control"
    salt: int = 0

    def assign(self, call_id: str) -> str:
        """The cohort of a call: the same id always gets the same answer under the same salt."""
        digest = hashlib.sha256(f"{self.salt}:{call_id}".encode()).digest()
        return self.treatment if int.from_bytes(digest[:8]) < self.share * _RESOLUTION else self.control

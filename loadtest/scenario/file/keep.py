"""The section `[keep]`: whether audio and texts of calls are kept, and for how long."""

from dataclasses import dataclass
from typing import Any

from telemetry.model.durations import Duration


@dataclass(frozen=True, slots=True)
class KeptParts:
    """What the file says of it; None where it says nothing and the flag's default holds."""

    audio: bool | None = None
    text: bool | None = None
    time: Duration | None = None

    def settings(self) -> dict[str, Any]:
        """What is also a flag, by the names that SwarmSettings gives it; None where the file says nothing."""
        return {"keep_audio": self.audio, "keep_text": self.text, "keep_for": self.time}

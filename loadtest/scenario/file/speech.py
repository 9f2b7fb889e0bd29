"""The section `[speech]`: what callers say, and over what line."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

PARTS: Final = frozenset({"noise", "snr", "room", "channel"})


@dataclass(frozen=True, slots=True)
class Speech:
    """What the file says of the speech; None where it says nothing and the flag's default holds."""

    corpus: str | None = None
    length: str | None = None
    noise: str | None = None
    snr_db: float | None = None
    room: str | None = None
    channel: str | None = None
    profiles: str | None = None  # in words, as the flag takes them
    mix: str | None = None  # likewise
    clips: int | None = None
    variants: int | None = None

    def settings(self) -> dict[str, Any]:
        """What is also a flag, by the names that SwarmSettings gives it; None where the file says nothing."""
        return {
            "corpus": self.corpus,
            "length": self.length,
            "noise": self.noise,
            "snr": self.snr_db,
            "room": self.room,
            "channel": self.channel,
            "speech_profiles": self.profiles,
            "mix": self.mix,
            "clips": self.clips,
            "variants": self.variants,
        }


def without_overruled(settings: dict[str, Any], given: Collection[str]) -> dict[str, Any]:
    """What a file says, without what flags overrule: whole profiles and parts of one are two ways to say the same."""
    overruled = {*given}
    if "speech_profiles" in given:
        overruled |= PARTS
    if PARTS & overruled:
        overruled.add("speech_profiles")
    return {name: value for name, value in settings.items() if name not in overruled}

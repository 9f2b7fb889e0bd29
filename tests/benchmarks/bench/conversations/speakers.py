"""What all processes of a benchmark of conversations agree upon: what is said, and how long callers wait."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from loadtest.scenario.settings import SwarmSettings

CORPUS: Final = "voiceprobe-en"
LENGTH: Final = "short"
CLIPS: Final = 8
MS: Final = 1_000_000


def speaking_settings(host: str, sidecar: str | None = None) -> SwarmSettings:
    """The settings of the callers, whose speech is the same in every process."""
    return SwarmSettings(host=host, corpus=CORPUS, length=LENGTH, clips=CLIPS, scenario_name="bench", sidecar=sidecar)


@dataclass(frozen=True, slots=True)
class Waits:
    """How long callers wait, in ns: before a turn, for a reply, and over what time their first turns are spread."""

    think_ns: int
    stagger_ns: int
    reply_ns: int

    @classmethod
    def parse(cls, words: Sequence[str]) -> "Waits":
        """From a command line, in ms."""
        return cls(*(int(word) * MS for word in words))

    @property
    def words(self) -> list[str]:
        """For a command line."""
        return [str(wait_ns // MS) for wait_ns in (self.think_ns, self.stagger_ns, self.reply_ns)]

    def before_first_turn_ns(self, number: int, callers: int) -> int:
        """How long a caller thinks before it speaks for the first time: not all speak in chorus."""
        return self.think_ns + self.stagger_ns * number // callers

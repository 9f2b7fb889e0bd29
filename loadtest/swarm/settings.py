"""What a swarm is told to do: one immutable value, checked as a whole."""

import math
import os
from dataclasses import dataclass, fields
from typing import Any, Final

from corpora.errors import CorpusError
from corpora.render import Profile
from loadtest.caller.engine import parse_address
from loadtest.errors import UsageError
from loadtest.protocols import registry

TOKEN_VARIABLE: Final = "VOICEPROBE_TOKEN"  # noqa: S105 - the name of the variable, not a secret
ONSET_PRESETS: Final = ("rms-10ms", "sustained-50ms")
MAX_TURNS_PER_CALL: Final = 1000


@dataclass(frozen=True, slots=True)
class SwarmSettings:
    """Every flag of ours, with its default. Times are in seconds because people type them."""

    host: str = ""
    protocol: str = "openai-realtime"
    corpus: str | None = None
    length: str | None = None
    noise: str | None = None
    snr: float | None = None
    clips: int = 200
    turns: int = 4
    think: float = 1.0
    patience: float | None = None
    reply_timeout: float = 10.0
    manual_turns: bool = False
    endpointing_ms: int | None = None
    model: str | None = None
    transcription_model: str | None = None
    cohort: str | None = None
    scenario: str | None = None
    region: str | None = None
    seed: int = 1
    onset: str = "rms-10ms"
    ca_file: str | None = None
    sidecar: str | None = None
    spool: str | None = None
    run_id: str | None = None
    keep_transcripts: bool = False

    @property
    def profile(self) -> Profile:
        """The noise profile. Raises CorpusError where noise and SNR do not fit."""
        return Profile(self.noise, self.snr)

    @property
    def token(self) -> str | None:
        """The bearer token for the endpoint: from the environment only, so that no process list shows it."""
        return os.environ.get(TOKEN_VARIABLE) or None

    def faults(self) -> list[str]:
        """Everything that cannot be used, one sentence each."""
        found: list[str] = []
        try:
            parse_address(self.host)
        except UsageError as error:
            found.append(str(error))
        if self.protocol not in registry.names():
            found.append(f"--protocol {self.protocol!r} is unknown: use one of {', '.join(registry.names())}")
        try:
            _ = self.profile
        except CorpusError as error:
            found.append(str(error))
        if self.onset not in ONSET_PRESETS:
            found.append(f"--onset {self.onset!r} is unknown: use one of {', '.join(ONSET_PRESETS)}")
        if not 1 <= self.turns <= MAX_TURNS_PER_CALL:
            found.append(f"--turns {self.turns} is out of range: a call has 1 to {MAX_TURNS_PER_CALL} turns")
        if self.clips < 1:
            found.append(f"--clips {self.clips} is out of range: at least one clip is needed")
        found += _bad_seconds("--think", self.think, zero=True)
        found += _bad_seconds("--patience", self.patience, zero=False)
        found += _bad_seconds("--reply-timeout", self.reply_timeout, zero=False)
        return found

    @classmethod
    def from_options(cls, options: Any) -> "SwarmSettings":
        """From Locust's parsed options; what they do not have keeps its default."""
        known = {field.name: getattr(options, field.name, None) for field in fields(cls)}
        # Locust's web UI and its parser know no "not given" for text: it comes as an empty string.
        return cls(**{name: value for name, value in known.items() if value is not None and value != ""})


def _bad_seconds(flag: str, value: float | None, *, zero: bool) -> list[str]:
    if value is None or (math.isfinite(value) and (value > 0 or (zero and value == 0)) and value <= 3600):
        return []
    return [f"{flag} {value:g} is out of range: give seconds, more than 0 and at most 3600"]

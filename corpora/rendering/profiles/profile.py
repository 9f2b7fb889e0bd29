"""A profile: the processing of clean speech before it is sent, as one immutable, validated value.

The order is fixed and follows the path of real speech: the speaker (speed, pitch), the room, the level at the
microphone, noise at an SNR over the active speech, the channel with its codecs, lost or late packets, and finally gain,
clipping and DC. Every part is optional.
"""

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from corpora.manifest.errors import CorpusError
from corpora.rendering.profiles import opus
from corpora.rendering.profiles.files import FILE_PREFIX, display_name, fingerprint, sound_files
from corpora.rendering.profiles.impairments import Jitter, PacketLoss
from corpora.rendering.profiles.values import (
    CHANNEL_WORDS,
    CODECS,
    KNOWN_NOISES,
    ValueFault,
    read_channel,
    read_jitter,
    read_loss,
    read_number,
    read_room,
    read_text,
)

SPEECH_LEVEL_DBOV: Final = -26.0
SNR_RANGE_DB: Final = (-5.0, 50.0)  # beyond this range, clipping or 16-bit quantization would add to the noise
LEVEL_RANGE_DBOV: Final = (-46.0, -16.0)
NOISE_FLOOR_DBOV: Final = -80.0  # 16-bit quantization itself makes noise of -101 dBov
SPEED_RANGE: Final = (0.8, 1.25)  # nobody speaks slower or faster than this
GAIN_RANGE_DB: Final = (-40.0, 40.0)
CLIP_RANGE_DBOV: Final = (-40.0, 0.0)
DC_RANGE: Final = (-0.5, 0.5)
RT60_RANGE_S: Final = (0.05, 3.0)
FAR_FIELD: Final = "far-field"
OPUS_KBIT: Final = (6, 128)


@dataclass(frozen=True, slots=True)
class Profile:
    """The processing of clean speech.

    Values may also be given as they are written in a profile's text: `Profile(channel="telephone", room=0.4,
    loss="5%/3")`; they are then parsed. Noise and SNR require each other. Raises CorpusError with one line per fault.
    """

    noise: str | None = None  # one of KNOWN_NOISES, or `file:` and a file or folder
    snr_db: float | None = None
    _: KW_ONLY
    speed: float = 1.0
    pitch: float = 1.0
    # Seconds of reverberation such as `0.4s`, `far-field`, or `file:` and an impulse response or a folder of them.
    room: str | None = None
    level_dbov: float = SPEECH_LEVEL_DBOV  # active speech level at the microphone
    channel: tuple[str, ...] = ()
    loss: PacketLoss | None = None
    jitter: Jitter | None = None
    gain_db: float = 0.0
    clip_dbov: float | None = None  # the level at which peaks are cut off
    dc: float = 0.0  # of full scale
    _files: tuple[tuple[str, str], ...] = field(init=False, repr=False, default=())

    if TYPE_CHECKING:
        # The arguments may have more types than the fields; at run time the dataclass's own method is used.
        def __init__(
            self,
            noise: str | None = None,
            snr_db: float | None = None,
            *,
            speed: float = 1.0,
            pitch: float = 1.0,
            room: str | float | None = None,
            level_dbov: float = SPEECH_LEVEL_DBOV,
            channel: str | Sequence[str] = (),
            loss: PacketLoss | float | str | None = None,
            jitter: Jitter | str | None = None,
            gain_db: float = 0.0,
            clip_dbov: float | None = None,
            dc: float = 0.0,
        ) -> None: ...

    def __post_init__(self) -> None:
        if unreadable := self._parse_fields():
            raise CorpusError("\n".join(unreadable))
        faults = [*self._speech_faults(), *self._noise_faults(), *self._channel_faults()]
        files = dict(self._files)
        for name in (self.noise, self.room):
            if name is not None and name.startswith(FILE_PREFIX):
                try:
                    files[name] = fingerprint(name)
                except CorpusError as error:
                    faults.append(str(error))
        if faults:
            raise CorpusError("\n".join(faults))
        object.__setattr__(self, "_files", tuple(sorted(files.items())))

    def _parse_fields(self) -> list[str]:
        """Parse the given values into the types of the fields; returns one sentence for each that cannot be read."""
        faults: list[str] = []
        for name, read in _READERS.items():
            value = getattr(self, name)
            try:
                if value is not None or name not in _MAY_BE_NONE:
                    object.__setattr__(self, name, read(value))
            except ValueFault as fault:
                faults.append(f"{name}: {fault}")
        return faults

    def _speech_faults(self) -> list[str]:
        faults = [
            f"A {name} of {value:g} cannot be rendered; use {SPEED_RANGE[0]:g} to {SPEED_RANGE[1]:g}."
            for name, value in (("speed", self.speed), ("pitch", self.pitch))
            if not SPEED_RANGE[0] <= value <= SPEED_RANGE[1]
        ]
        low, high = LEVEL_RANGE_DBOV
        if not low <= self.level_dbov <= high:
            faults.append(f"A level of {self.level_dbov:g} dBov cannot be rendered; use {low:g} to {high:g} dBov.")
        room = self.room
        if room is not None and room != FAR_FIELD and not room.startswith(FILE_PREFIX):
            seconds = rt60_s(room)
            if seconds is None or not RT60_RANGE_S[0] <= seconds <= RT60_RANGE_S[1]:
                faults.append(
                    f"The room {room!r} is unknown; use a reverberation time from {RT60_RANGE_S[0]:g}s to "
                    f"{RT60_RANGE_S[1]:g}s, {FAR_FIELD}, or {FILE_PREFIX} and an impulse response."
                )
        return faults

    def _noise_faults(self) -> list[str]:
        known = ", ".join(KNOWN_NOISES)
        if self.noise is None:
            return [] if self.snr_db is None else [f"An SNR requires a noise; use one of {known}."]
        if self.noise not in KNOWN_NOISES and not self.noise.startswith(FILE_PREFIX):
            return [
                f"The noise {self.noise!r} is unknown; use one of {known}, or {FILE_PREFIX} and a sound file or folder."
            ]
        low, high = SNR_RANGE_DB
        if self.snr_db is None:
            return [f"The noise {self.noise} requires an SNR in dB, from {low:g} to {high:g}."]
        if not (math.isfinite(self.snr_db) and low <= self.snr_db <= high):
            return [f"An SNR of {self.snr_db:g} dB cannot be rendered; use {low:g} to {high:g} dB."]
        if self.level_dbov - self.snr_db < NOISE_FLOOR_DBOV:
            return [
                f"Noise {self.snr_db:g} dB below speech at {self.level_dbov:g} dBov would be lost in the quantization "
                "noise of 16 bits; use a lower SNR or a higher level."
            ]
        return []

    def _channel_faults(self) -> list[str]:
        faults = [fault for word in self.channel if (fault := channel_fault(word))]
        faults += self.loss.faults() if self.loss is not None else []
        faults += self.jitter.faults() if self.jitter is not None else []
        low, high = GAIN_RANGE_DB
        if not low <= self.gain_db <= high:
            faults.append(f"A gain of {self.gain_db:g} dB cannot be rendered; use {low:g} to {high:g} dB.")
        low, high = CLIP_RANGE_DBOV
        if self.clip_dbov is not None and not low <= self.clip_dbov <= high:
            faults.append(f"Clipping at {self.clip_dbov:g} dBov cannot be rendered; use {low:g} to {high:g} dBov.")
        low, high = DC_RANGE
        if not low <= self.dc <= high:
            faults.append(f"A DC offset of {self.dc:g} of full scale cannot be rendered; use {low:g} to {high:g}.")
        return faults

    @property
    def label(self) -> str:
        """A short name for tables and file names: `clean`, `babble-10dB`, `babble-10dB+telephone+loss-5%`."""
        noise = () if self.noise is None else (f"{display_name(self.noise)}-{self.snr_db:g}dB",)
        return "+".join((*noise, *self._label_parts())) or "clean"

    @property
    def noise_label(self) -> str:
        """The name of the noise, as a dimension of results; `clean` without noise."""
        return "clean" if self.noise is None else display_name(self.noise)

    @property
    def channel_label(self) -> str:
        """Everything but the noise, as a dimension of results: `clean`, `telephone`, `room-0.4s+opus:16+loss-5%/3`."""
        return "+".join(self._label_parts()) or "clean"

    def _label_parts(self) -> tuple[str, ...]:
        words: list[str] = []
        words += [f"speed-{self.speed:g}"] if self.speed != 1.0 else []
        words += [f"pitch-{self.pitch:g}"] if self.pitch != 1.0 else []
        words += [self.room if self.room == FAR_FIELD else f"room-{display_name(self.room)}"] if self.room else []
        words += [f"level-{self.level_dbov:g}dBov"] if self.level_dbov != SPEECH_LEVEL_DBOV else []
        words += self.channel
        words += [f"loss-{self.loss.label}"] if self.loss else []
        words += [f"jitter-{self.jitter.label}"] if self.jitter else []
        words += [f"gain-{self.gain_db:g}dB"] if self.gain_db else []
        words += [f"clip-{self.clip_dbov:g}dBov"] if self.clip_dbov is not None else []
        words += [f"dc-{self.dc:g}"] if self.dc else []
        return tuple(words)

    @property
    def codecs(self) -> tuple[str, ...]:
        """The codecs and band filters of the channel."""
        return tuple(codec for word in self.channel for codec in CHANNEL_WORDS.get(word, (word,)))

    @property
    def varies(self) -> bool:
        """Whether a part of the profile is random, so that an utterance can be rendered in more than one way."""
        random_noise = self.noise is not None and not self.noise.startswith("hum")  # hum is the same for all
        return random_noise or self.loss is not None or self.jitter is not None or len(self.responses) > 1

    @property
    def responses(self) -> tuple[Path, ...]:
        """The user's impulse responses, one of which is drawn for each rendering; empty for a synthetic room."""
        return sound_files(self.room) if self.room is not None and self.room.startswith(FILE_PREFIX) else ()

    @property
    def digest(self) -> str:
        """A stable hash of everything that determines the samples.

        It covers the profile, its files, and the versions of the codec libraries whose output depends on them.
        """
        parts: list[object] = [
            (self.noise if self.noise in KNOWN_NOISES else None, self.snr_db, self.speed, self.pitch),
            (None if self.room and self.room.startswith(FILE_PREFIX) else self.room, self.level_dbov, self.channel),
            (self.loss, self.jitter, self.gain_db, self.clip_dbov, self.dc),
            [digest for name in (self.noise, self.room) for known, digest in self._files if known == name],
        ]
        if any(codec.startswith("opus") for codec in self.codecs):
            parts.append(opus.library_version())
        return hashlib.sha256(repr(parts).encode()).hexdigest()


def _read_plain_number(value: object) -> float:
    """Read a number of any size; the range checks follow."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return read_number(value)


_MAY_BE_NONE: Final = frozenset({"noise", "snr_db", "room", "loss", "jitter", "clip_dbov"})
_READERS: Final[dict[str, Callable[[object], object]]] = {
    **dict.fromkeys(("snr_db", "speed", "pitch", "level_dbov", "gain_db", "clip_dbov", "dc"), _read_plain_number),
    "noise": read_text,
    "room": read_room,
    "channel": read_channel,
    "loss": read_loss,
    "jitter": read_jitter,
}


def rt60_s(room: str) -> float | None:
    """The reverberation time of a room written as `0.4s`; None for anything else."""
    try:
        seconds = float(room.removesuffix("s"))
    except ValueError:
        return None
    return seconds if room.endswith("s") and math.isfinite(seconds) else None


def opus_kbit(codec: str) -> float:
    """The bitrate in kbit/s of `opus` or `opus:24`."""
    return float(codec.partition(":")[2] or 24)


def channel_fault(word: str) -> str | None:
    """Return a sentence saying what is wrong with one word of a channel, or None."""
    name, colon, kbit = word.partition(":")
    if word in CHANNEL_WORDS or (name in CODECS and not colon):
        return opus.missing() if name == "opus" else None
    if name == "opus":
        try:
            if OPUS_KBIT[0] <= float(kbit) <= OPUS_KBIT[1]:
                return opus.missing()
        except ValueError:
            pass
        return f"The Opus bitrate must be {OPUS_KBIT[0]} to {OPUS_KBIT[1]} kbit/s, as in opus:24, got {kbit!r}."
    return f"The channel {word!r} is unknown; use any of {', '.join((*CHANNEL_WORDS, *CODECS))}, joined with +."

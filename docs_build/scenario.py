"""The keys of a scenario file and of a profile, from the models that check them."""

import json
from typing import Any, Final, get_args, get_origin

from pydantic.fields import FieldInfo

from corpora.rendering.profiles import profile
from corpora.rendering.profiles.parsing import KEYS
from docs_build.markdown import cell, code, table
from loadtest.scenario.fields import Meaning, Option
from loadtest.scenario.file import Scenario
from telemetry.model.validation import CheckedTable


def _range(limits: tuple[float, float], unit: str) -> str:
    return f"from {limits[0]:g} to {limits[1]:g}{' ' if unit else ''}{unit}"


# The description of each profile key, with the limits that the profile itself checks.
PROFILE_KEYS: Final = {
    "noise": f"{', '.join(profile.KNOWN_NOISES)}, or file:PATH",
    "snr": f"signal-to-noise ratio over the active speech, {_range(profile.SNR_RANGE_DB, 'dB')}",
    "speed": f"speaking rate, {_range(profile.SPEED_RANGE, '')}",
    "pitch": f"pitch factor, {_range(profile.SPEED_RANGE, '')}",
    "level": f"active speech level at the microphone, {_range(profile.LEVEL_RANGE_DBOV, 'dBov')}",
    "room": f"reverberation time {_range(profile.RT60_RANGE_S, 's')}, {profile.FAR_FIELD}, or file:IMPULSE_RESPONSE",
    "channel": f"codecs, joined with +: {', '.join((*profile.CHANNEL_WORDS, *profile.CODECS))} (opus:KBIT)",
    "loss": "packet loss: share, mean burst length in packets, share lost within bursts, such as 5%/3/80%",
    "jitter": "mean delay and size of the receiver's buffer, such as 20ms/60ms; later packets are concealed",
    "gain": f"gain before clipping, {_range(profile.GAIN_RANGE_DB, 'dB')}",
    "clip": f"level at which peaks are clipped, {_range(profile.CLIP_RANGE_DBOV, 'dBov')}",
    "dc": f"DC offset as a share of full scale, {_range(profile.DC_RANGE, '')}",
}


def keys() -> dict[str, tuple[str, str]]:
    """Return every key that a scenario file may have, with its type and its meaning."""
    return _keys_of(Scenario, "")


def scenario_schema() -> str:
    """Return the JSON schema of a scenario file, with the meaning of every key."""
    return json.dumps(Scenario.model_json_schema(), indent=2) + "\n"


def _keys_of(model: type[CheckedTable], place: str) -> dict[str, tuple[str, str]]:
    meanings: dict[str, tuple[str, str]] = {}
    for key, field in model.known_keys().items():
        name = f"{place}{key}"
        below, is_array = _table_in(field.annotation)
        meanings[name] = (field.title or "", _meaning(key, field, below))
        if below is not None:
            meanings |= _keys_of(below, f"{name}[]." if is_array else f"{name}.")
    return meanings


def _meaning(key: str, field: FieldInfo, below: type[CheckedTable] | None) -> str:
    """Return the help of a key's flag, its own meaning, or that of the profile or table that it is part of."""
    for item in field.metadata:
        if isinstance(item, Option):
            return item.help
        if isinstance(item, Meaning):
            return item.text
    if key in PROFILE_KEYS:
        return PROFILE_KEYS[key]
    first = ((below and below.__doc__) or "").partition("\n")[0].removesuffix(".")
    return first[:1].lower() + first[1:]


def _table_in(annotation: Any) -> tuple[type[CheckedTable] | None, bool]:
    """Return the model of the table, or tables, in a key, and whether it is an array of them."""
    for part in (annotation, *get_args(annotation)):
        if isinstance(part, type) and issubclass(part, CheckedTable):
            return part, get_origin(annotation) is list
    return None, False


def scenario_keys() -> str:
    """Return the table of every key of a scenario file."""
    rows = [(code(key), cell(kind), cell(meaning)) for key, (kind, meaning) in keys().items()]
    return table(("Key", "Type", "Meaning"), rows)


def profile_keys() -> str:
    """Return the table of every key of a profile."""
    return table(("Key", "Meaning"), [(code(key), cell(PROFILE_KEYS[key])) for key in KEYS])

"""Generates the page of the scenario file from the models that check it."""

from typing import Any, Final, get_args, get_origin

from corpora.rendering.profiles import profile
from corpora.rendering.profiles.parsing import KEYS
from docs_build.markdown import cell, code, page, table
from loadtest.scenario.file.scenario_table import ScenarioTable
from loadtest.scenario.options import OPTIONS
from telemetry.model.validation import CheckedTable

INTRODUCTION: Final = """
A scenario file is TOML and is given with `--scenario`. All faults of a file are reported at once; unknown keys are
faults. A flag on the command line takes precedence over the file. [Shape the load](../how-to/load.md) shows complete
files.
"""


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
# Keys without a corresponding flag.
OWN_KEYS: Final = {
    "name": "name of the scenario (default: the name of the file)",
    "protocol": "`name`, the protocol to speak, and its settings by their names; --protocol-option wins over them",
    "callers": "how callers behave",
    "callers.silence_for": "how long a caller stays silent in a silent turn, as a distribution",
    "callers.barge_in": "kinds of interruption, each a table",
    "callers.barge_in[].share": "share of turns that interrupt in this way",
    "callers.barge_in[].after": "when they interrupt, like the flag --barge-in-after",
    "speech": "what callers say, and how it is degraded",
    "speech.profiles": "several profiles, each a table, instead of noise, snr, room and channel",
    "speech.profiles[].share": "weight of this profile; without weights, all are equal",
    "speech.mix": "weights of the utterances",
    "speech.mix.short": "weight of utterances with less than 2 s of speech",
    "speech.mix.medium": "weight of utterances with 2 s to 6 s of speech",
    "speech.mix.long": "weight of utterances with more than 6 s of speech",
    "speech.mix.domain": "weights of domains, by name",
    "speech.mix.speaker": "weights of speakers, by name",
    "keep": "what is kept of calls beside the store",
    "keep.audio": "both channels of each call, like the flag --keep-audio",
    "keep.text": "what was said, recognized and answered, like the flag --keep-text",
    "keep.time": "how long that is kept, like the flag --keep-for (default: 7d)",
    "phases": "the load over time: a table for each phase, in order",
    "phases[].name": "name of the phase; required and unique",
    "phases[].kind": "required; turns that begin in a ramp are left out of the run's figures",
    "phases[].duration": "required",
    "phases[].users": "callers at the same time: a number, or { from, to } for ramp and steps",
    "phases[].rate": "calls that begin per second: a number, or { from, to }; instead of users",
    "phases[].arrival": "arrival process for a rate (default: poisson)",
    "phases[].steps": "number of levels, for the kind steps",
}


def keys() -> dict[str, str]:
    """Return every key that a scenario file may have, with its type."""
    return _keys_of(ScenarioTable, "")


def _keys_of(model: type[CheckedTable], place: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, field in model.known_keys().items():
        name = f"{place}{key}"
        found[name] = field.title or ""
        below, is_array = _table_in(field.annotation)
        if below is not None:
            found |= _keys_of(below, f"{name}[]." if is_array else f"{name}.")
    return found


def _table_in(annotation: Any) -> tuple[type[CheckedTable] | None, bool]:
    """Return the model of the table, or tables, in a key, and whether it is an array of them."""
    for each in (annotation, *get_args(annotation)):
        if isinstance(each, type) and issubclass(each, CheckedTable):
            return each, get_origin(annotation) is list
    return None, False


def scenario_page() -> str:
    """Return the page with every key of a scenario file and of a profile."""
    rows = [(code(key), cell(kind), cell(meaning(key))) for key, kind in keys().items()]
    return page(
        "Scenario file",
        INTRODUCTION,
        table(("Key", "Type", "Meaning"), rows),
        "## Keys of a profile",
        "The same keys are used in `[[speech.profiles]]` and, as `key=value`, in the argument of `--profile`.",
        table(("Key", "Meaning"), [(code(key), cell(PROFILE_KEYS[key])) for key in KEYS]),
    )


def meaning(key: str) -> str:
    """Return the description of a key. Raises StopIteration for a key without one."""
    if key in OWN_KEYS:
        return OWN_KEYS[key]
    last = key.rpartition(".")[2]
    if last in PROFILE_KEYS:
        return PROFILE_KEYS[last]
    return next(option.help for option in OPTIONS if option.name == last)

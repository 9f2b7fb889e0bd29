"""Secrets in the settings of a protocol, at any depth: named there by `${NAME}`, and taken from the environment.

The settings themselves are handed to other processes and written to files. So a setting that lets callers in holds no
secret but the name of the environment variable that does.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, cast
from urllib.parse import parse_qsl, urlsplit

from loadtest.errors import UsageError
from loadtest.scenario.access import secrets_of_url
from telemetry.model.foreign_text import one_line

_PLACE: Final = re.compile(r"\$\{([A-Z_][A-Z0-9_]*)\}")
_VARIABLE: Final = re.compile(r"[A-Z_][A-Z0-9_]*")
# Names of what lets callers in, also as the end of a longer name: `llm_key`, `x-api-key`, `accessToken`.
_TELLING: Final = re.compile(
    r"(?:^|[^a-z])(?:(?:api|access|private|client)?key|token|secret|passw(?:or)?d|passphrase|authorization|"
    r"credentials?|cookie|bearer|signature)$"
)
_KINDS: Final = frozenset({"bearer", "basic", "token"})
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
Setting = tuple[tuple[str, ...], str]  # where it is, and its text


def filled_settings(settings: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return the settings with each `${NAME}` in a text replaced by that variable's value.

    Raises UsageError with one line for each variable that is not set.
    """
    names = dict.fromkeys(name for _, text in _texts(settings) for name in _PLACE.findall(text))
    if missing := [name for name in names if not environment.get(name, "").strip()]:
        lines = (f"the environment variable {name}, which the protocol's settings name, is not set" for name in missing)
        raise UsageError("\n".join(f"{line}; set it" for line in lines))
    return _changed(settings, lambda text: _PLACE.sub(lambda place: environment[place[1]].strip(), text))


def literal_secret_faults(settings: Mapping[str, Any]) -> list[str]:
    """Return one sentence for each secret that stands in the settings itself. None of them shows a value."""
    faults: list[str] = []
    for place, text in _texts(settings):
        if _is_literal_secret(place, text):
            shown = one_line(".".join(place))
            mend = "put it into an environment variable and write ${NAME}"
            faults.append(f"the protocol's setting {shown!r} holds a secret: {mend}")
    return faults


def secrets_of_settings(settings: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return what may never be shown: the values of the variables that settings name, and credentials of addresses.

    By custom a setting whose name ends with `_key` is the name of a variable, without `${}`.
    """
    found: list[str] = []
    for place, text in _texts(settings):
        named = [*_PLACE.findall(text), *([text] if place[-1].endswith("_key") else [])]
        found += [value for name in named if (value := environment.get(name, "").strip())]
        whole = _PLACE.sub(lambda match: environment.get(match[1], "").strip(), text)
        if "://" in whole:
            found += secrets_of_url(whole)
        if _is_literal_secret(place, text):
            found.append(text)
    return found


def _is_literal_secret(place: Sequence[str], text: str) -> bool:
    plain = _PLACE.sub("", text)
    if "://" in text:
        return _is_literal_in_url(text)
    is_telling = any(_is_telling(part) for part in place)
    if not is_telling or not plain.strip() or not text.strip():
        return False
    # "Bearer ${NAME}" says what kind of secret it is; a name in capitals is that of a variable.
    return _VARIABLE.fullmatch(text) is None and plain.strip().lower() not in _KINDS


def _is_literal_in_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        password = parts.password
    except ValueError:
        return "@" in text
    values = [value for name, value in parse_qsl(parts.query) if _is_telling(name)]
    return any(each and _PLACE.sub("", each) for each in (password, *values))


def _is_telling(name: str) -> bool:
    return _TELLING.search(_HUMP.sub("_", name).lower()) is not None


def _texts(value: object, place: tuple[str, ...] = ()) -> Iterator[Setting]:
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, Mapping):
        for name, each in cast("Mapping[str, Any]", value).items():
            yield from _texts(each, (*place, str(name)))
    elif isinstance(value, list | tuple):
        for each in cast("Sequence[Any]", value):
            yield from _texts(each, place)


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {name: _changed(each, change) for name, each in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_changed(each, change) for each in cast("Sequence[Any]", value)]
    return value

"""Access to the endpoint: the address, headers and settings of the protocol.

Some of it lets callers in and must never be shown: it is taken from the environment, by the names of variables. The
settings of a protocol are handed to other processes and written to files, so one that lets callers in holds no secret
but `${NAME}`, the environment variable that does, at any depth.
"""

import base64
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, cast
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from loadtest.errors import UsageError
from loadtest.protocols.headers import TOKEN_VARIABLE, header_fault
from telemetry.model.foreign_text import one_line

_SETTING_PLACE: Final = re.compile(r"\$\{([A-Z_][A-Z0-9_]*)\}")
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
    names = dict.fromkeys(name for _, text in _texts(settings) for name in _SETTING_PLACE.findall(text))
    if missing := [name for name in names if not environment.get(name, "").strip()]:
        lines = (f"the environment variable {name}, which the protocol's settings name, is not set" for name in missing)
        raise UsageError("\n".join(f"{line}; set it" for line in lines))
    return _changed(settings, lambda text: _SETTING_PLACE.sub(lambda place: environment[place[1]].strip(), text))


def literal_secret_faults(settings: Mapping[str, Any]) -> list[str]:
    """Return one sentence for each secret that is written in the settings themselves. None of them shows a value."""
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
    secrets: list[str] = []
    for place, text in _texts(settings):
        named = [*_SETTING_PLACE.findall(text), *([text] if place[-1].endswith("_key") else [])]
        secrets += [value for name in named if (value := environment.get(name, "").strip())]
        whole = _SETTING_PLACE.sub(lambda match: environment.get(match[1], "").strip(), text)
        if "://" in whole:
            secrets += secrets_of_url(whole)
        if _is_literal_secret(place, text):
            secrets.append(text)
    return secrets


def _is_literal_secret(place: Sequence[str], text: str) -> bool:
    plain = _SETTING_PLACE.sub("", text)
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
    return any(secret and _SETTING_PLACE.sub("", secret) for secret in (password, *values))


def _is_telling(name: str) -> bool:
    return _TELLING.search(_HUMP.sub("_", name).lower()) is not None


def _texts(value: object, place: tuple[str, ...] = ()) -> Iterator[Setting]:
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, Mapping):
        for name, member in cast("Mapping[str, Any]", value).items():
            yield from _texts(member, (*place, str(name)))
    elif isinstance(value, list | tuple):
        for member in cast("Sequence[Any]", value):
            yield from _texts(member, place)


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {name: _changed(member, change) for name, member in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_changed(member, change) for member in cast("Sequence[Any]", value)]
    return value


# The whole address where arguments show it without credentials and query: a list of processes shows arguments.
TARGET_VARIABLE: Final = "VOICEPROBE_TARGET"
# Query parameters that say what is being tested. Any other value may be a secret.
TELLING_PARAMETERS: Final = frozenset({"api-version", "deployment", "intent", "language", "model", "voice"})
Headers = tuple[tuple[str, str], ...]

_VARIABLE: Final = re.compile(r"[A-Z_][A-Z0-9_]*")
# What the callers themselves say of a call; overwritten, the endpoint's spans would join no call.
_OURS: Final = frozenset({"traceparent", "tracestate"})
# A shorter value of a query parameter ("1", "v2") is no secret.
_SHORTEST_SECRET_CHARS: Final = 4


def headers_from_environment(
    specs: Sequence[str], token: str | None, environment: Mapping[str, str] = os.environ
) -> Headers:
    """The headers of `NAME=VARIABLE` entries, each value from the environment variable that is named.

    Raises UsageError with one line for each entry that cannot be used. No sentence holds a value, nor what follows
    the sign unless it looks like a variable: it may be a value that was put there by mistake.
    """
    faults: list[str] = []
    headers: list[tuple[str, str]] = []
    taken = {"authorization"} if token is not None else set[str]()
    for spec in specs:
        name, sign, variable = spec.partition("=")
        value = environment.get(variable, "")
        flag = f"--header {one_line(name)}" if sign else "--header"
        if not sign or not name or not variable:
            faults.append(f"{flag}: give NAME=VARIABLE, the header and the environment variable that holds its value")
        elif (fault := header_fault(name, value.strip())) is not None:
            faults.append(f"{flag}: {fault}")
        elif name.lower() in _OURS:
            faults.append(f"{flag}: the callers set this header themselves, so that spans join; leave it out")
        elif name.lower() in taken:
            other = f" (one comes from {TOKEN_VARIABLE})" if name.lower() == "authorization" else ""
            faults.append(f"{flag}: the header is given twice{other}; leave one out")
        elif not value.strip():
            which = variable if _VARIABLE.fullmatch(variable) else "that it names"
            faults.append(f"{flag}: the environment variable {which} is not set; put the value of the header there")
        else:
            taken.add(name.lower())
            headers.append((name, value.strip()))
    if token is not None and header_fault("Authorization", token) is not None:
        faults.append(f"{TOKEN_VARIABLE} holds characters that a header cannot carry; is there a line break in it?")
    if faults:
        raise UsageError("\n".join(faults))
    return tuple(headers)


def secrets_of_url(url: str) -> list[str]:
    """User, password and the values of query parameters that may be secrets, as the URL has them and decoded."""
    try:
        parts = urlsplit(url)
        user, password = parts.username, parts.password
    except ValueError:
        return []
    secrets = [text for text in (user, password) if text]
    if user is not None and password is not None:
        pair = f"{unquote(user)}:{unquote(password)}"
        secrets += [pair, base64.b64encode(pair.encode()).decode()]
    written = [pair.partition("=")[::2] for pair in parts.query.split("&")]
    values = [value for name, value in (*parse_qsl(parts.query), *written) if name not in TELLING_PARAMETERS]
    return [
        *secrets,
        *(unquote(text) for text in secrets),
        *(value for value in values if len(value) >= _SHORTEST_SECRET_CHARS),
    ]


_FLAG: Final = "--protocol-option"
_SETTING: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


def parse_protocol_options(given: Sequence[str]) -> dict[str, Any]:
    """Return the settings by name. What these mean is checked by the protocol.

    Raises UsageError with one line for each entry that cannot be read. No line shows a value: it may be a secret that
    was put there by mistake.
    """
    options: dict[str, Any] = {}
    faults: list[str] = []
    for entry in given:
        name, sign, text = entry.partition("=")
        if not sign or not _SETTING.fullmatch(name):
            shown = f"{_FLAG} {one_line(name)}" if sign else _FLAG
            faults.append(f"{shown}: give NAME=VALUE, the name of a setting of the protocol and its value")
        elif name in options:
            faults.append(f"{_FLAG} {name}: the setting is given twice; leave one out")
        else:
            options[name] = _value(text)
    if faults:
        raise UsageError("\n".join(faults))
    return options


def _value(text: str) -> Any:
    """Return the value of a text: JSON if it is exactly that, else the text itself.

    A number that JSON would write differently ("007", "1e3") stays a text, so that no digit of an id is lost.
    """
    try:
        value = json.loads(text)
    except ValueError:
        return text
    is_plain_number = isinstance(value, int | float) and not isinstance(value, bool)
    return text if is_plain_number and json.dumps(value) != text else value


_PLACE: Final = re.compile(r"\$\{([^}]*)\}?")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def filled_target(url: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the address with each `${NAME}` in its query replaced by that variable's value, percent-encoded.

    Raises UsageError with one line for each that cannot be replaced. No line shows a value.
    """
    if faults := placeholder_faults(url):
        raise UsageError("\n".join(faults))
    missing = [name for name in names_in(url) if not environment.get(name, "").strip()]
    if missing:
        lines = (f"the environment variable {name}, which the address names, is not set; set it" for name in missing)
        raise UsageError("\n".join(lines))
    return _PLACE.sub(lambda place: quote(environment[place[1]].strip(), safe=""), url)


def placeholder_faults(url: str) -> list[str]:
    """Return what is wrong with the places themselves, whatever the environment holds: one sentence each."""
    before, _, query = url.partition("?")
    faults: list[str] = []
    if "${" in before:
        faults.append("the address has ${…} before its query, where nothing is replaced; move it behind the ?")
    if any(not place[0].endswith("}") or not _NAME.fullmatch(place[1]) for place in _PLACE.finditer(query)):
        faults.append("the address has ${…} without the name of an environment variable; write ${NAME}")
    return faults


def names_in(url: str) -> tuple[str, ...]:
    """Return the names of the environment variables that an address names, each once."""
    return tuple(dict.fromkeys(place[1] for place in _PLACE.finditer(url)))


def secrets_of_target(url: str, environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the values of the variables that an address names."""
    return [value for name in names_in(url) if (value := environment.get(name, "").strip())]

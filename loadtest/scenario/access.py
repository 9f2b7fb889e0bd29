"""What lets callers in and must never be shown: headers from the environment, the token, credentials of the URL."""

import base64
import os
import re
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from loadtest.errors import UsageError
from loadtest.protocols.headers import TOKEN_VARIABLE, header_fault
from telemetry.model.foreign_text import one_line

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

    Raises UsageError with one line for each entry that cannot be used. No sentence holds a value, nor what stands after
    the sign unless it looks like a variable: it may be a value that was put there by mistake.
    """
    faults: list[str] = []
    found: list[tuple[str, str]] = []
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
            found.append((name, value.strip()))
    if token is not None and header_fault("Authorization", token) is not None:
        faults.append(f"{TOKEN_VARIABLE} holds characters that a header cannot carry; is there a line break in it?")
    if faults:
        raise UsageError("\n".join(faults))
    return tuple(found)


def secrets_of_url(url: str) -> list[str]:
    """User, password and the values of query parameters that may be secrets, as the URL has them and decoded."""
    try:
        parts = urlsplit(url)
        user, password = parts.username, parts.password
    except ValueError:
        return []
    found = [text for text in (user, password) if text]
    if user is not None and password is not None:
        pair = f"{unquote(user)}:{unquote(password)}"
        found += [pair, base64.b64encode(pair.encode()).decode()]
    written = [pair.partition("=")[::2] for pair in parts.query.split("&")]
    values = [value for name, value in (*parse_qsl(parts.query), *written) if name not in TELLING_PARAMETERS]
    return [
        *found,
        *(unquote(text) for text in found),
        *(value for value in values if len(value) >= _SHORTEST_SECRET_CHARS),
    ]

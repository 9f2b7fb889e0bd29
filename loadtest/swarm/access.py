"""What lets callers in and must never be shown: headers from the environment, the token, credentials of the URL."""

import base64
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit

import msgspec

from loadtest.errors import UsageError
from loadtest.protocols.headers import header_fault
from telemetry.turns import Turn

TOKEN_VARIABLE: Final = "VOICEPROBE_TOKEN"  # noqa: S105 - the name of the variable, not a secret
HIDDEN: Final = "[hidden]"
# Query parameters that say what is being tested. Any other value may be a secret.
TELLING_PARAMETERS: Final = frozenset({"api-version", "deployment", "intent", "language", "model", "voice"})
Headers = tuple[tuple[str, str], ...]

_VARIABLE: Final = re.compile(r"[A-Z_][A-Z0-9_]*")
# What the callers themselves say of a call; overwritten, the endpoint's spans would join no call.
_OURS: Final = frozenset({"traceparent", "tracestate"})
# A secret is found by its beginning, as an endpoint that repeats it may cut it short.
_BEGINNING_CHARS: Final = 8
# Shorter ones are looked for as whole words only: one letter would black out half a sentence.
_SHORT_CHARS: Final = 4


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
        flag = f"--header {name}" if sign else "--header"
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
    return [*found, *(unquote(text) for text in found), *(value for value in values if len(value) >= _SHORT_CHARS)]


class Redactor:
    """Takes secrets out of what an endpoint said: one that refuses a token may well repeat it."""

    def __init__(self, secrets: Iterable[str]) -> None:
        whole = {secret for secret in secrets if secret}
        # Of "Bearer abc" and "a=1; key=abc" the endpoint may repeat a part.
        parts = {part for secret in whole for part in re.split(r"[\s;,=]+", secret) if len(part) >= _BEGINNING_CHARS}
        known = whole | parts
        known |= {quoted for secret in known for quoted in (quote(secret, safe=""), quote_plus(secret))}
        self._secrets = sorted(known, key=len, reverse=True)
        self._short = [
            re.compile(rf"(?<!\w){re.escape(secret)}(?!\w)") for secret in self._secrets if len(secret) < _SHORT_CHARS
        ]

    def text(self, text: str) -> str:
        """The text without them."""
        for secret in self._secrets:
            if len(secret) >= _SHORT_CHARS:
                text = _without(text, secret)
        for pattern in self._short:
            text = pattern.sub(HIDDEN, text)
        return text

    def turn(self, turn: Turn) -> Turn:
        """The turn with every text that an endpoint wrote freely without them."""
        if not self._secrets:
            return turn
        changes: dict[str, object] = {
            name: self.text(value)
            for name in ("outcome_reason", "transcript_pii", "cohort", "model", "response_id")
            if (value := getattr(turn, name)) is not None
        }
        return msgspec.structs.replace(turn, **changes, withheld=tuple(self.text(entry) for entry in turn.withheld))


def _without(text: str, secret: str) -> str:
    beginning, at = secret[:_BEGINNING_CHARS], 0
    while (at := text.find(beginning, at)) >= 0:
        end = at + len(beginning)
        while end < len(text) and end - at < len(secret) and text[end] == secret[end - at]:
            end += 1
        text = text[:at] + HIDDEN + text[end:]
        at += len(HIDDEN)
    return text

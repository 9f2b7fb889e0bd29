"""Takes secrets out of what an endpoint said: one that refuses a token may well repeat it, as it is or encoded. Pure.

A secret is looked for character by character, each of them in every form that an encoding gives it: as it is,
percent-encoded, as HTML, and escaped as in JSON, a header's quotes or `repr`, also one inside the other. So no shorter
form hides the rest of a longer one. Base64 and hex have no form for a single character: those are secrets of their own.
"""

import base64
import html
import json
import re
from collections.abc import Callable, Iterable
from functools import cached_property, lru_cache
from typing import Final
from urllib.parse import quote_plus

import msgspec

from telemetry.model.turns import Turn

HIDDEN: Final = "[hidden]"
# A secret is found by its beginning, as an endpoint that repeats it may cut it short.
BEGINNING_CHARS: Final = 8
# Shorter ones are looked for as whole words only: one letter would black out half a sentence.
SHORT_CHARS: Final = 4
# The texts of a turn that an endpoint wrote freely.
_WRITTEN: Final = (
    *("outcome_reason", "failure_code", "transcript_pii", "cohort"),
    *("user_id", "model", "intent", "response_id"),
)
_LISTS_WRITTEN: Final = (
    *("withheld_reasons", "service_reported", "unknown_event_names"),
    *("endpoint_header_values", "asr_partials_pii"),
)
Forms = tuple[str, ...]


class SecretRedactor:
    """Hides secrets in texts, and beginnings of eight characters of them."""

    def __init__(self, secrets: Iterable[str]) -> None:
        whole = {secret for secret in secrets if secret}
        parts = {part for secret in whole for part in _parts(secret) if len(part) >= BEGINNING_CHARS}
        encoded = {text for secret in whole | parts for text in _encoded(secret)} - whole - parts
        self._secrets = [_Secret(text, _forms) for text in sorted(whole | parts)]
        self._secrets += [_Secret(text, _forms_of_base64) for text in sorted(encoded)]
        # Most texts hold none of them: that is found out in one pass.
        anywhere = "|".join(secret.head for secret in self._secrets)
        self._anywhere = re.compile(anywhere) if anywhere else None

    def text(self, text: str) -> str:
        """The text without them."""
        if self._anywhere is None or self._anywhere.search(text) is None:
            return text
        spans = sorted(span for secret in self._secrets for span in secret.spans(text))
        clean: list[str] = []
        kept_to = 0
        for begin, end in spans:
            if begin >= kept_to:
                clean += (text[kept_to:begin], HIDDEN)
            kept_to = max(kept_to, end)
        return "".join((*clean, text[kept_to:]))

    def turn(self, turn: Turn) -> Turn:
        """The turn with every text that an endpoint wrote freely without them."""
        if self._anywhere is None:
            return turn
        changes: dict[str, object] = {
            name: self.text(value) for name in _WRITTEN if (value := getattr(turn, name)) is not None
        }
        for name in _LISTS_WRITTEN:
            changes[name] = tuple(map(self.text, getattr(turn, name)))
        return msgspec.structs.replace(turn, **changes)


class _Secret:
    """One text to be found: its beginning by a regular expression (`head`), all of it character by character."""

    def __init__(self, text: str, forms_of: Callable[[str], Forms]) -> None:
        forms = [forms_of(char) for char in text]
        head = "".join(_any_of(form) for form in forms[:BEGINNING_CHARS])
        self.head = rf"(?<!\w){head}(?!\w)" if len(text) < SHORT_CHARS else head
        self._forms = forms

    @cached_property
    def _beginning(self) -> re.Pattern[str]:
        return re.compile(self.head)

    def spans(self, text: str) -> Iterable[tuple[int, int]]:
        """Return its positions in a text, from its beginning as far as it is repeated."""
        at = 0
        while (match := self._beginning.search(text, at)) is not None:
            # A form may be the beginning of another one (`\\` and `\\\\`): every reading is followed.
            ends = {match.start()}
            at = match.end()
            for forms in self._forms:
                ends = {end + len(form) for end in ends for form in forms if text.startswith(form, end)}
                if not ends:
                    break
                at = max(at, *ends)
            yield match.start(), at


def _any_of(forms: Forms) -> str:
    # By the first character alone most places of a text are passed over.
    first = "".join(re.escape(char) for char in sorted({form[0] for form in forms}))
    return f"(?=[{first}])(?:{'|'.join(map(re.escape, forms))})"


def _parts(secret: str) -> Iterable[str]:
    """Parts of "Bearer abc=", "a=1; key=abc=" and "user:abc" that the endpoint may repeat."""
    yield from re.split(r"[\s;,=]+", secret)
    yield secret.partition(" ")[2].strip()
    for field in re.split(r"[\s;,]+", secret):
        yield field
        yield field.partition("=")[2]


@lru_cache(maxsize=4096)
def _forms_of_base64(char: str) -> Forms:
    """A character of what is encoded already."""
    return (char,) if char.isalnum() else _forms(char)


@lru_cache(maxsize=4096)
def _forms(char: str) -> Forms:
    """A character in every form that an encoding, or one of them inside another, gives it; the longest first."""
    if char.isascii() and char.isalnum():  # no encoding has to escape these, and few do
        code = ord(char)
        return (f"%{code:02X}", f"%{code:02x}", f"\\u{code:04x}", f"\\u{code:04X}", f"\\x{code:02x}", char)
    once = _escaped(char)
    twice = {"".join(parts) for form in once for parts in _each_escaped(form)}
    return tuple(sorted({char} | once | twice, key=lambda form: (-len(form), form)))


def _escaped(char: str) -> set[str]:
    raw = char.encode(errors="surrogatepass")
    percent, code = "".join(f"%{byte:02X}" for byte in raw), ord(char)
    in_hex = "".join(f"\\x{byte:02x}" for byte in raw)
    forms = {percent, percent.lower(), quote_plus(raw), f"\\{char}", f"\\x{code:02x}", in_hex}
    forms |= {html.escape(char), f"&#{code};", f"&#x{code:x};", f"&#x{code:X};", f"\\U{code:08x}"}
    forms |= {json.dumps(char)[1:-1], json.dumps(char, ensure_ascii=False)[1:-1], repr(char)[1:-1], ascii(char)[1:-1]}
    if code < 0x10000:
        forms |= {f"\\u{code:04x}", f"\\u{code:04X}"}
    return forms | {form.upper().replace("\\X", "\\x") for form in forms if form.startswith("\\x")}


def _each_escaped(form: str) -> Iterable[list[str]]:
    """A form that an encoding gave, put through a second one: JSON in JSON, a quoted URL in a log, HTML of a URL."""
    raws = [char.encode(errors="surrogatepass") for char in form]
    yield [json.dumps(char)[1:-1] for char in form]
    yield ["\\\\" if char == "\\" else char for char in form]
    yield [quote_plus(raw) for raw in raws]
    yield [quote_plus(raw).lower() if not raw.isalnum() else raw.decode() for raw in raws]
    yield [html.escape(char) for char in form]


def _encoded(secret: str) -> Iterable[str]:
    """Return what a secret is in base64 (alone or anywhere inside a longer text: three alignments) and in hex."""
    raw = secret.encode(errors="surrogatepass")
    if len(raw) < SHORT_CHARS:
        return
    yield base64.b64encode(raw).decode()
    yield base64.urlsafe_b64encode(raw).decode()
    for before in range(3):
        # Four characters of base64 are three bytes: those that hold none but bytes of the secret.
        skip, whole = -(-8 * before // 6), (before + len(raw)) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            inside = encode(b"\0" * before + raw).decode()[skip:whole]
            if len(inside) >= BEGINNING_CHARS:
                yield inside
    yield raw.hex()
    yield raw.hex().upper()

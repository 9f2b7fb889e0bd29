"""Pseudonyms: the same for the same value and key, so that what one person did can be joined and counted. Pure.

Without the key nobody can tell whose it is, nor try all telephone numbers until one fits.
"""

import hashlib
import hmac
import re
from typing import Final

KEY_BYTES: Final = 32
_PSEUDONYM: Final = re.compile(r"pseudonym-[0-9a-f]{32}")
# What stands before the same number or address in different senders' ids.
_SCHEME: Final = re.compile(r"(?:tel|sips?|mailto|callto):", re.IGNORECASE)
_PHONE: Final = re.compile(r"\+?[0-9 ()./-]+")
_SEPARATORS: Final = re.compile(r"[ ()./-]")


def is_pseudonym(value: str) -> bool:
    """Whether a value is a pseudonym already."""
    return _PSEUDONYM.fullmatch(value) is not None


def pseudonym(value: str, key: bytes) -> str:
    """The pseudonym of a value; of a pseudonym itself. Spellings of one telephone number or e-mail address share it."""
    if is_pseudonym(value):
        return value
    bare = _SCHEME.sub("", value.strip(), count=1)
    if _PHONE.fullmatch(bare) is not None:
        bare = _SEPARATORS.sub("", bare).removeprefix("+")
    elif "@" in bare:
        bare = bare.lower()
    return f"pseudonym-{hmac.new(key, bare.encode('utf-8', 'surrogatepass'), hashlib.sha256).hexdigest()[:32]}"

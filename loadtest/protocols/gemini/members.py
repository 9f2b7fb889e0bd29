"""Reads members of Gemini Live's messages, whose names come as `serverContent` or as `server_content`."""

from typing import Final

from loadtest.protocols.json_fields import (
    Json,
    MalformedError,
    as_list,
    as_object,
    excerpt,
    optional_count,
    optional_object,
)

# The counts of tokens by our names: of their totals, and of the lists that part them by modality.
_TOTALS: Final = (
    ("promptTokenCount", "input_tokens"),
    ("responseTokenCount", "output_tokens"),
    ("candidatesTokenCount", "output_tokens"),
    ("totalTokenCount", "total_tokens"),
    ("cachedContentTokenCount", "cached_tokens"),
    ("thoughtsTokenCount", "reasoning_tokens"),
    ("toolUsePromptTokenCount", "tool_tokens"),
)
_DETAILS: Final = (
    ("promptTokensDetails", "input"),
    ("responseTokensDetails", "output"),
    ("candidatesTokensDetails", "output"),
    ("cacheTokensDetails", "cached"),
)
_MODALITIES: Final = frozenset({"TEXT", "AUDIO", "IMAGE", "VIDEO", "DOCUMENT"})


def named(fields: Json) -> Json:
    """Return an object's members under their names with capitals; members that are null count as missing."""
    if not any("_" in name or value is None for name, value in fields.items()):
        return fields
    return {_capitalized(name): value for name, value in fields.items() if value is not None}


def _capitalized(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word[:1].upper() + word[1:] for word in rest)


def objects(fields: Json, key: str) -> list[Json]:
    """Return the objects in the array at `key`. Raises MalformedError for anything else; a missing array is empty."""
    value = fields.get(key)
    if value is None:
        return []
    entries = as_list(value)
    if entries is None:
        raise MalformedError(f"{key!r} is {excerpt(repr(value))}; it should be an array")
    found = [as_object(entry) for entry in entries]
    if None in found:
        raise MalformedError(f"{key!r} contains what is no object: {excerpt(repr(value))}")
    return [named(entry) for entry in found if entry is not None]


def member(fields: Json, key: str) -> Json:
    """Return the object at `key`, empty if it is missing. Raises MalformedError for another type."""
    return named(optional_object(fields, key) or {})


def flag(fields: Json, key: str) -> bool:
    """Return the boolean at `key`, False if it is missing. Raises MalformedError for another type."""
    value = fields.get(key, False)
    if isinstance(value, bool):
        return value
    raise MalformedError(f"{key!r} is {excerpt(repr(value))}; it should be true or false")


def usage(fields: Json) -> dict[str, int]:
    """Return the counts of tokens, also by modality: output_tokens, cached_tokens, input_audio_tokens, …

    Raises MalformedError for a count that is not a whole number. What is missing is left out, never 0.
    """
    counts: dict[str, int] = {}
    for theirs, ours in _TOTALS:
        count = optional_count(fields, theirs)
        if count is not None:
            counts[ours] = count
    for theirs, ours in _DETAILS:
        for entry in objects(fields, theirs):
            modality, count = entry.get("modality"), optional_count(entry, "tokenCount")
            if modality in _MODALITIES and count is not None:
                counts[f"{ours}_{str(modality).lower()}_tokens"] = count
    return counts

"""The keys of the JSON summary, from its JSON schema."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from docs_build.markdown import cell, code, sections, table
from loadtest.reports.summary import schema as summary_schema

Schema = Mapping[str, Any]


def summary_sections() -> str:
    """Return a section for each top-level key of the summary, with every key below it."""
    schema = summary_schema()
    parts: list[str] = []
    for key, raw in schema["properties"].items():
        part = _resolved(schema, raw)
        parts += [f"## {key}", cell(part.get("description", "")), f"Type: {_kind(part)}."]
        rows = [(code(name), cell(kind), cell(text)) for name, kind, text in _below(schema, part, "")]
        parts += [table(("Key", "Type", "Meaning"), rows)] if rows else []
    return sections(parts)


def _below(schema: Schema, part: Schema, before: str) -> Iterator[tuple[str, str, str]]:
    part = _resolved(schema, part)
    for name, raw in part.get("properties", {}).items():
        below = _resolved(schema, raw)
        yield f"{before}{name}", _kind(below), below.get("description", "")
        yield from _below(schema, below, f"{before}{name}.")
    if isinstance(part.get("additionalProperties"), Mapping):
        below = _resolved(schema, part["additionalProperties"])
        yield f"{before}NAME", _kind(below), below.get("description", "")
        yield from _below(schema, below, f"{before}NAME.")
    if "items" in part:
        yield from _below(schema, part["items"], f"{before.removesuffix('.')}[].")


def _resolved(schema: Schema, part: Schema) -> Schema:
    """Resolve references and nullable alternatives in a part of a schema."""
    while "$ref" in part:
        target = schema
        for step in part["$ref"].removeprefix("#/").split("/"):
            target = target[step]
        part = {**target, **{key: value for key, value in part.items() if key != "$ref"}}
    for word in ("anyOf", "oneOf"):
        kinds = [kind for kind in part.get(word, ()) if kind.get("type") != "null"]
        if len(kinds) == 1:
            rest = {key: value for key, value in part.items() if key != word}
            return {**_resolved(schema, kinds[0]), **rest, "nullable": True}
    return part


def _kind(part: Schema) -> str:
    if "const" in part:
        return f"always {json.dumps(part['const'])}"
    if "enum" in part:
        return "one of " + ", ".join(json.dumps(value) for value in part["enum"])
    kind = part.get("type", "any")
    words = " or ".join(kind) if isinstance(kind, list) else str(kind)
    return f"{words} or null" if part.get("nullable") else words

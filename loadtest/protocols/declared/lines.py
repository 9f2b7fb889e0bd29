"""Reads YAML and remembers on which line each value is, for sentences about what is wrong with it. Pure."""

from typing import Any, cast

import yaml

from loadtest.errors import UsageError

Location = tuple[str | int, ...]


class Lines:
    """The lines of a YAML text's values."""

    def __init__(self, root: yaml.Node | None) -> None:
        self._root = root

    def of(self, location: Location) -> tuple[int | None, Location]:
        """Return the line of the value at a location, or of the nearest one around it, and how much of the location
        exists in the text: a validator's own names (of the kinds it tried) do not."""
        node, line, known = self._root, 1, list[str | int]()
        for part in location:
            inner = _member(node, part)
            if inner is None:
                continue
            node, line = inner
            known.append(part)
        return line, tuple(known)


def _member(node: yaml.Node | None, part: str | int) -> tuple[yaml.Node, int] | None:
    if isinstance(node, yaml.MappingNode):
        pairs = cast(list[tuple[yaml.Node, yaml.Node]], node.value)
        for key, value in pairs:
            if isinstance(key, yaml.ScalarNode) and key.value == str(part):
                return value, key.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        value = cast(yaml.Node, node.value[part])
        return value, value.start_mark.line + 1
    return None


def read_yaml(text: str, name: str) -> tuple[Any, Lines]:
    """Return the content of a YAML text and the lines of its values. Raises UsageError with the line of a fault."""
    try:
        root = cast(yaml.Node | None, yaml.compose(text, Loader=yaml.SafeLoader))  # pyright: ignore[reportUnknownMemberType]
        content = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None else 1
        raise UsageError(f"{name}:{line}: this is not YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise UsageError(f"{name}: this is not YAML: {' '.join(str(error).split())}") from None
    repeated = "\n".join(f"{name}:{line}: {key}: is there twice" for key, line in _repeated(root))
    if repeated:
        raise UsageError(repeated)
    if not isinstance(content, dict):
        raise UsageError(f"{name}: a spec is a mapping with the members name and events; see examples/protocols")
    return cast(Any, content), Lines(root)


def _repeated(node: yaml.Node | None) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    if isinstance(node, yaml.MappingNode):
        seen = set[str]()
        for key, value in cast(list[tuple[yaml.Node, yaml.Node]], node.value):
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    found.append((str(key.value), key.start_mark.line + 1))
                seen.add(str(key.value))
            found += _repeated(value)
    elif isinstance(node, yaml.SequenceNode):
        for value in cast(list[yaml.Node], node.value):
            found += _repeated(value)
    return found

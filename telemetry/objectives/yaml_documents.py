"""The documents of a YAML text with the line of each key; a key that is there twice is a fault."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import yaml

from telemetry.model.errors import ConfigError
from telemetry.model.fault_sentences import Path, shown
from telemetry.model.foreign_text import one_line


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a text, `number` counted from 1."""

    number: int
    value: object
    _root: yaml.Node
    _entries: dict[int, dict[object, tuple[yaml.Node, yaml.Node]]] = field(default_factory=dict)

    def line(self, path: Path) -> int:
        """The line of what is at a path, counted from 1; where it is missing, of the nearest thing that holds it."""
        node, line = self._root, self._root.start_mark.line
        for part in path:
            if isinstance(node, yaml.MappingNode):
                found = self._of_mapping(node).get(part)
                if found is None:
                    break
                line, node = found[0].start_mark.line, found[1]
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
                node = node.value[part]
                line = node.start_mark.line
        return line + 1

    def _of_mapping(self, node: yaml.MappingNode) -> dict[object, tuple[yaml.Node, yaml.Node]]:
        if id(node) not in self._entries:
            self._entries[id(node)] = {key.value: (key, value) for key, value in node.value if _is_text(key)}
        return self._entries[id(node)]


def read_documents(text: str, where: str) -> list[Document]:
    """The documents of a text that are not empty. Raises ConfigError, which names the file `where`."""
    try:
        return _read(text)
    except yaml.YAMLError as error:
        raise ConfigError(where, [_fault(error)]) from error
    except (ValueError, RecursionError) as error:  # a date such as 2026-13-45; brackets a thousand deep
        raise ConfigError(where, [f"is not valid YAML: {one_line(str(error))}"]) from error


def _read(text: str) -> list[Document]:
    loader = _StrictLoader(text)
    documents: list[Document] = []
    number = 0
    try:
        while loader.check_node():
            number += 1
            node = loader.get_node()
            value = loader.construct_document(node) if node is not None else None
            if node is not None and value is not None:  # an empty document, as after a closing `---`, holds nothing
                documents.append(Document(number, value, node))
    finally:
        loader.dispose()
    return documents


class _StrictLoader(yaml.SafeLoader):
    """YAML lets a repeated key win silently; here it is a fault."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if _is_text(key) and key.value in seen:
                problem = f"the key {shown(key.value)} is there twice; give it once"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            if _is_text(key):
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def _is_text(key: yaml.Node) -> bool:
    return isinstance(key.value, str)


def _fault(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {one_line(error.problem or 'is not valid YAML')}"
    return f"is not valid YAML: {one_line(' '.join(str(error).split()))}"

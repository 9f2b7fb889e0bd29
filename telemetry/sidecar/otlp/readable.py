"""Makes serialized items readable that parsers refuse for a little of them: a value nested too deeply, a broken text.

Of a span, an event, a link or a resource the attribute that is nested too deeply is left out, and counted in its
attribute `otel.dropped_attributes_count`, as OpenTelemetry names it. Of a metric its point is left out: without one of
its attributes it would be a point of another series. In texts U+FFFD stands for what is not UTF-8. It takes a time
proportional to the length, whatever the bytes hold.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from telemetry.sidecar.otlp.attributes import DEPTH_MAX, MESSAGES_MAX, NestedTooDeeply
from telemetry.sidecar.otlp.wire_format import after, field_of_bytes, varint

DROPPED_ATTRIBUTES: Final = "otel.dropped_attributes_count"
_BYTES = 2
_Part = Literal["attribute", "point", "exemplar"]


@dataclass(slots=True)
class Shape:
    """Which fields of a message are texts, and which are messages to look into. `part` is what it is called when it
    is left out as a whole; `pairs` the field of its attributes, where one is added for those that were."""

    texts: tuple[int, ...] = ()
    messages: Mapping[int, "Shape"] = field(default_factory=dict[int, "Shape"])
    part: _Part | None = None
    pairs: int | None = None
    is_value: bool = False


_value: Final = Shape(texts=(1,), is_value=True)
_pair: Final = Shape(texts=(1,), messages={2: _value})
_value.messages = {5: Shape(messages={1: _value}), 6: Shape(messages={1: _pair})}
_attribute: Final = Shape(texts=(1,), messages={2: _value}, part="attribute")
_event: Final = Shape(texts=(2,), messages={3: _attribute}, pairs=3)
_link: Final = Shape(texts=(3,), messages={4: _attribute}, pairs=4)


def _points(pairs: int, exemplars: int | None) -> Shape:
    """Data of a metric whose points have their attributes and exemplars in these fields."""
    fields = {pairs: _pair}
    if exemplars is not None:
        fields[exemplars] = Shape(messages={7: _pair}, part="exemplar")
    return Shape(messages={1: Shape(messages=fields, part="point")})


SPAN: Final = Shape(texts=(3, 5), messages={9: _attribute, 11: _event, 13: _link, 15: Shape(texts=(2,))}, pairs=9)
RESOURCE: Final = Shape(messages={1: _attribute}, pairs=1)
SCOPE: Final = Shape(texts=(1, 2), messages={3: _attribute}, pairs=3)
METRIC: Final = Shape(
    texts=(1, 2, 3),
    messages={
        5: _points(7, 5),
        7: _points(7, 5),
        9: _points(9, 8),
        10: _points(1, 11),
        11: _points(7, None),
        12: _attribute,
    },
)


@dataclass(slots=True)
class Readable:
    """A message that can be read, how many of its parts were left out for it, and in how many texts bytes were
    replaced."""

    payload: bytes
    left_out: Counter[_Part] = field(default_factory=Counter[_Part])
    replaced: int = 0

    @property
    def is_changed(self) -> bool:
        """Whether anything of it is not what was sent."""
        return self.replaced > 0 or self.left_out.total() > 0

    def sentence(self) -> str:
        """What was changed, to follow the name of the item."""
        parts = [f"{count} of its {part}s left out: nested too deeply" for part, count in self.left_out.items()]
        parts += [f"{self.replaced} of its texts are not UTF-8: those bytes are replaced"] if self.replaced else []
        return "; ".join(parts)


def readable(payload: bytes, shape: Shape) -> Readable | None:
    """A message of this shape without what parsers refuse of it; None when it is no such message at all."""
    found = Readable(payload)
    try:
        found.payload = _message(payload, shape, found, 0, -1)
    except (IndexError, ValueError, NestedTooDeeply):
        return None
    return found


def _message(data: bytes, shape: Shape, found: Readable, messages: int, depth: int) -> bytes:
    """The message as it can be read: the same object where nothing is changed. Raises IndexError and ValueError when it
    is malformed, and NestedTooDeeply."""
    depth += shape.is_value
    if depth > DEPTH_MAX or messages > MESSAGES_MAX:
        raise NestedTooDeeply
    pieces: list[bytes] = []
    kept = dropped = 0
    for number, start, content, stop in _fields(data):
        if number in shape.texts:
            new = _text(content, found)
        elif (inner := shape.messages.get(number)) is not None:
            new = _part(content, inner, found, messages + 1, depth)
            dropped += new is None and inner.part == "attribute"
        else:
            continue
        if new is not content:
            pieces.append(data[kept:start])
            if new is not None:
                pieces.append(field_of_bytes(number, new))
            kept = stop
    if not pieces:
        return data
    pieces.append(data[kept:])
    if dropped and shape.pairs is not None:
        count = KeyValue(key=DROPPED_ATTRIBUTES, value=AnyValue(int_value=dropped))
        pieces.append(field_of_bytes(shape.pairs, count.SerializeToString()))
    return b"".join(pieces)


def _part(content: bytes, shape: Shape, found: Readable, messages: int, depth: int) -> bytes | None:
    """A message within another, as `_message` gives it; None when it is left out."""
    replaced = found.replaced
    try:
        return _message(content, shape, found, messages, depth)
    except NestedTooDeeply:
        if shape.part is None:
            raise
        found.replaced = replaced
        found.left_out[shape.part] += 1
        return None


def _fields(data: bytes) -> Iterator[tuple[int, int, bytes, int]]:
    """The fields of a message that hold bytes: the number, where it begins, what it holds and where it ends."""
    at, end = 0, len(data)
    while at < end:
        start, tag = at, data[at]
        at += 1
        if tag >= 0x80:
            tag, at = varint(data, start)
        if tag & 7 != _BYTES:
            at = after(data, at, tag)
            continue
        size = data[at]
        at += 1
        if size >= 0x80:
            size, at = varint(data, at - 1)
        stop = at + size
        if stop > end:
            raise ValueError("a field ends behind its message")
        yield tag >> 3, start, data[at:stop], stop
        at = stop


def _text(content: bytes, found: Readable) -> bytes:
    if content.isascii():
        return content
    try:
        content.decode()
    except UnicodeDecodeError:
        found.replaced += 1
        return content.decode(errors="replace").encode()
    return content

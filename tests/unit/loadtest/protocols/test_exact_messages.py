"""The reader of the usual messages: what it takes, what it leaves, and when it stops trying."""

from typing import Any
from unittest import mock

import msgspec
import pytest

from loadtest.protocols.base import EventKind
from loadtest.protocols.exact_messages import MOST_MISSES, RETRIED, Count, ExactMessage, ExactReader
from tests.unit.loadtest.protocols.contract.line import Line
from tests.unit.loadtest.protocols.contract.two_ways import READ, conversation


class Piece(ExactMessage):
    data: bytes
    at: Count | None = None


DECODER = msgspec.json.Decoder(Piece)
USUAL = '{"data":"AAE=","at":7}'


@pytest.mark.parametrize(
    "message", [USUAL, USUAL.encode(), ' { "at" :7,"data":"AAE="}\n', '{"data":"A\\u0041E=","at":7}']
)
def test_reads_a_message_of_the_shape(message: str | bytes) -> None:
    assert ExactReader(DECODER).read(message) == Piece(b"\x00\x01", 7)


@pytest.mark.parametrize(
    "message",
    [
        "",
        "[]",
        '{"at":7}',
        '{"data":null}',
        '{"data":"AAE=","more":1}',
        b'{"data":"AAE=","more":"\xff"}',
        '{"data":"AAE"}',
        '{"data":"AAE=","at":7.0}',
        '{"data":"AAE=","at":true}',
        f'{{"data":"AAE=","at":{2**53 + 1}}}',
        '{"data":"AAE=","at":-1}',
        '{"data":"AAE="}x',
        '{"data":"\ud800"}',
        b'{"data":"\xff"}',
        b'{"\xff":"AAE="}',
    ],
)
def test_leaves_any_other_message(message: str | bytes) -> None:
    assert ExactReader(DECODER).read(message) is None


def test_tries_seldom_where_messages_have_other_shapes() -> None:
    tried: list[object] = []

    class Counted:
        def decode(self, message: str | bytes) -> Any:
            tried.append(message)
            return DECODER.decode(message)

    reader = ExactReader(Counted())  # type: ignore[arg-type]  # has what is used of a decoder
    for _ in range(1000):
        reader.read("{}")
    assert len(tried) == MOST_MISSES + (1000 - MOST_MISSES) // RETRIED
    found = [reader.read(USUAL) for _ in range(2 * RETRIED)]
    assert found[-RETRIED:] == [Piece(b"\x00\x01", 7)] * RETRIED, "one of the shape is enough to try each again"


@pytest.mark.parametrize("name", READ)
def test_most_audio_of_a_wire_is_of_the_shape(name: str) -> None:
    caller, read = Line(name).caller, ExactReader.read
    audible: list[object] = []
    shapes: list[object] = []

    def noted(self: ExactReader[Any], message: str | bytes) -> object:
        shapes.append(read(self, message))
        return shapes[-1]

    with mock.patch.object(ExactReader, "read", noted):
        for step in conversation(name):
            if isinstance(step, tuple):
                getattr(caller, step[0])(*step[1])
            else:
                audible += [each for each in caller.receive(step) if each.kind is EventKind.AUDIO]
    # All but the first piece of each of the two replies, and what comes too late.
    assert len(audible) > 4
    assert sum(shape is not None for shape in shapes) >= len(audible) - 3

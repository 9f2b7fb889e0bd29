"""Server-sent events: the same as the official `openai` package decodes, however the bytes are split."""

import json
import re
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from openai._streaming import SSEDecoder

from loadtest.protocols.stages import reader
from loadtest.protocols.stages.reader import SseEvent, SseParser, SseTooLongError


def decoded(*pieces: bytes) -> list[SseEvent]:
    parser = SseParser()
    return [event for piece in pieces for event in parser.feed(piece)]


def by_openai(stream: bytes) -> list[tuple[str, str]]:
    """The events with data that the official package finds, line by line as it is fed by its HTTP client."""
    decoder = SSEDecoder()
    lines = re.split(rb"\r\n|\n|\r", stream)[:-1]
    events = [event for line in lines if (event := decoder.decode(line.decode())) is not None]
    return [(event.event or "message", event.data) for event in events if event.data]


LINES = st.sampled_from(
    [
        "data: a",
        "data:b",
        "data: ",
        "data",
        'data: {"x":"Grüße, 東京 😀"}',
        "event: message_delta",
        "event:",
        ": comment",
        "id: 3",
        "retry: 10",
        "",
        "",
        "",
        "unknown: field",
        "data:  two spaces",
        "data: a: b",
    ]
)
ENDS = st.sampled_from(["\n", "\r\n", "\r"])


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Lines of every kind, each with one of the three ends, the last one perhaps unfinished."""
    text = "".join(draw(LINES) + draw(ENDS) for _ in range(draw(st.integers(0, 25))))
    return (text + draw(st.sampled_from(["", "data: unfinished"]))).encode()


def pieces_of(stream: bytes, cuts: list[int]) -> Iterator[bytes]:
    places = sorted({cut % (len(stream) + 1) for cut in cuts})
    for begin, end in zip([0, *places], [*places, len(stream)], strict=True):
        yield stream[begin:end]


@given(streams(), st.lists(st.integers(0, 1000), max_size=8))
@example(b"data: a\r\n\r\ndata: b\r\n\r\n", [8, 9, 10])
def test_any_split_gives_the_events_that_the_official_package_finds(stream: bytes, cuts: list[int]) -> None:
    found = [(event.event, event.data) for event in decoded(*pieces_of(stream, cuts)) if event.data]
    # A CR and an LF that follow one another across an empty field are one end of a line, as in the standard.
    assert found == by_openai(stream)


@given(streams())
def test_every_single_byte_as_a_piece_of_its_own(stream: bytes) -> None:
    assert decoded(*(stream[i : i + 1] for i in range(len(stream)))) == decoded(stream)


def test_several_lines_of_data_are_joined_and_the_type_is_kept() -> None:
    stream = b'\xef\xbb\xbfevent: speech.audio.delta\ndata: {"audio":\ndata: "AAA="}\n\n'
    (event,) = decoded(stream)
    assert event.event == "speech.audio.delta"
    assert json.loads(event.data) == {"audio": "AAA="}


def test_what_the_last_empty_line_does_not_end_is_no_event() -> None:
    assert decoded(b"data: whole\n\ndata: cut short\n") == [SseEvent("message", "whole")]


def test_a_type_lasts_for_one_event_only() -> None:
    assert [event.event for event in decoded(b"event: error\ndata: 1\n\ndata: 2\n\n")] == ["error", "message"]


@pytest.mark.parametrize("piece", [b"x" * 100, b"data: " + b"x" * 50 + b"\n"], ids=["one line", "many lines"])
def test_an_event_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch, piece: bytes) -> None:
    monkeypatch.setattr(reader, "MAX_EVENT_BYTES", 1000)
    parser = SseParser()
    for _ in range(900 // len(piece)):
        assert parser.feed(piece) == []
    with pytest.raises(SseTooLongError):
        parser.feed(piece * 10)

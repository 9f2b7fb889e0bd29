"""The frames between the front and the store process."""

from hypothesis import given
from hypothesis import strategies as st

from telemetry.sidecar import messages
from telemetry.sidecar.messages import (
    Answer,
    Answered,
    Ask,
    Begun,
    Faults,
    FrontCounts,
    Page,
    Ready,
    Stop,
    StoreFault,
    Take,
)

TO_STORE = [
    Take(7, "traces", "json", alone=True, body=b"\0" * 300),
    Ask(8, "metrics", "text/plain", FrontCounts(1, 2, 3)),
    Stop(),
]
FROM_STORE = [
    Ready(),
    Begun((7, 8)),
    Answered((Answer(7, 1, ("no trace id",)), Answer(8, failure="the disk is full")), 0.25, 0.5),
    Page(8, "text/plain", b"voice_turns 1\n"),
    Faults((StoreFault("disk", "the disk is full", stops_storing=True),)),
]


def test_a_frame_begins_with_its_length() -> None:
    assert bytes(messages.frame(Stop())) == b"\x06\0\0\0" + b"\x91\xa4stop"


@given(st.lists(st.integers(1, 400), max_size=20))
def test_messages_survive_any_cut_of_the_stream(cuts: list[int]) -> None:
    for sent, decode in ((TO_STORE, messages.to_store), (FROM_STORE, messages.from_store)):
        stream = b"".join(bytes(messages.frame(each)) for each in sent)
        frames, found, start = messages.Frames(), [], 0
        for cut in [*cuts, len(stream)]:
            found += frames.feed(memoryview(stream)[start : start + cut])
            start += cut
        assert [decode(each) for each in found] == sent

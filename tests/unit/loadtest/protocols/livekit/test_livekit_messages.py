"""The messages that are declared here against LiveKit's own classes, an independent encoder and decoder."""

import contextlib
from typing import Any, Final

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from hypothesis import given
from hypothesis import strategies as st
from livekit.protocol.agent_pb import agent_session as official

from loadtest.protocols.json_fields import MalformedError
from loadtest.protocols.livekit import messages

Official: Final[Any] = official.AgentSessionMessage
# An enumeration is declared as a number: both are the same on the wire.
SAME: Final = {FieldDescriptor.TYPE_ENUM: FieldDescriptor.TYPE_INT32}


def declared() -> Descriptor:
    """What is declared of AgentSessionMessage."""
    _, fields = messages.decode(Official(audio_playback_flush={}).SerializeToString())
    return fields.DESCRIPTOR.file.message_types_by_name["AgentSessionMessage"]


def test_every_declared_field_is_one_of_livekits() -> None:
    compared: set[tuple[str, str]] = set()

    def compare(ours: Descriptor, theirs: Descriptor) -> None:
        if (ours.full_name, theirs.full_name) in compared:
            return
        compared.add((ours.full_name, theirs.full_name))
        for field in ours.fields:
            other = theirs.fields_by_name[field.name]
            assert field.number == other.number, f"{theirs.full_name}.{field.name}"
            assert field.type == SAME.get(other.type, other.type), f"{theirs.full_name}.{field.name}"
            assert field.is_repeated == other.is_repeated, f"{theirs.full_name}.{field.name}"
            chosen = field.containing_oneof is not None
            # What may be left out is in a choice of its own in LiveKit's declaration.
            assert not chosen or other.containing_oneof.fields[1:], f"{theirs.full_name}.{field.name}"
            if field.message_type is not None:
                compare(field.message_type, other.message_type)

    compare(declared(), Official.DESCRIPTOR)
    assert len(compared) > 25


def test_every_kind_of_message_and_event_of_livekit_is_known() -> None:
    for name in ("AgentSessionMessage", "AgentSessionEvent"):
        ours = declared().file.message_types_by_name[name]
        theirs: Descriptor = getattr(official, name).DESCRIPTOR
        wanted = {field.name for field in theirs.fields if field.containing_oneof is not None}
        assert wanted <= {field.name for field in ours.fields}


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (messages.INITIALIZING, official.AS_INITIALIZING),
        (messages.IDLE, official.AS_IDLE),
        (messages.LISTENING, official.AS_LISTENING),
        (messages.THINKING, official.AS_THINKING),
        (messages.SPEAKING, official.AS_SPEAKING),
        (messages.USER_SPEAKING, official.US_SPEAKING),
        (messages.USER_LISTENING, official.US_LISTENING),
        (messages.USER_AWAY, official.US_AWAY),
        (messages.USER, official.USER),
        (messages.ASSISTANT, official.ASSISTANT),
    ],
)
def test_the_values_of_enumerations(ours: int, theirs: int) -> None:
    assert ours == theirs


def test_a_frame_of_audio() -> None:
    sent = Official.FromString(messages.audio_input(b"\1\2\3\4", 48_000))
    frame = Official.ConsoleIO.AudioFrame(data=b"\1\2\3\4", sample_rate=48_000, num_channels=1, samples_per_channel=2)
    assert sent == Official(audio_input=frame)


@pytest.mark.parametrize("name", ["get_framework_info", "get_session_state"])
def test_a_request(name: str) -> None:
    sent = Official.FromString(messages.request(name))
    assert sent.WhichOneof("message") == "request"
    assert (sent.request.WhichOneof("request"), sent.request.request_id) == (name, name)


def test_that_what_was_flushed_is_played() -> None:
    assert Official.FromString(messages.playback_finished()).WhichOneof("message") == "audio_playback_finished"


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_malformed(data: bytes) -> None:
    with contextlib.suppress(MalformedError):
        kind, fields = messages.decode(data)
        assert (kind is None) == (fields is None)


def test_what_is_no_message() -> None:
    with pytest.raises(MalformedError, match=r"in protobuf: 3 bytes beginning ffffff$"):
        messages.decode(b"\xff\xff\xff")

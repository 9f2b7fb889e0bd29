"""Wyoming: the official package's own bytes however they are split, and what follows from what in a turn."""

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.errors import UsageError
from loadtest.protocols.base import (
    CallerOptions,
    EventKind,
    Message,
    ServiceLost,
    ServiceMessage,
    SpokenText,
    VoiceEvent,
)
from loadtest.protocols.failure import Failure
from loadtest.protocols.transports.byte_streams import EventLines
from loadtest.protocols.wyoming.caller import UNSPOKEN, WyomingCaller, parse_event
from tests.unit.loadtest.protocols.contract.line import kinds
from tests.unit.loadtest.protocols.contract.scripts.wyoming import wyoming_event

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
PACKAGE = {
    name: base64.b64decode(data)
    for name, data in json.loads(
        (Path(__file__).parents[4] / "fixtures" / "wyoming" / "package-1.10.2.json").read_text()
    ).items()
}


def sent(messages: Sequence[Message]) -> list[tuple[str, dict[str, Any], bytes]]:
    """The events that the caller sent, taken apart line by line as the official package reads them."""
    decoded: list[tuple[str, dict[str, Any], bytes]] = []
    stream = b"".join(message for message in messages if isinstance(message, bytes))
    while stream:
        line, _, stream = stream.partition(b"\n")
        header = json.loads(line)
        data_length, payload_length = header.get("data_length", 0), header.get("payload_length", 0)
        data = json.loads(stream[:data_length]) if data_length else {}
        decoded.append((header["type"], data, stream[data_length : data_length + payload_length]))
        stream = stream[data_length + payload_length :]
    return decoded


def ready(**settings: Any) -> WyomingCaller:
    caller = WyomingCaller(CallerOptions("manual", settings=settings))
    caller.upgrade("tcp://h:1", TRACE)
    assert sent(caller.opened()) == [("describe", {}, b"")] * len(settings.get("stages", ("asr", "handle", "tts")))
    info = {stage: [{"name": "p"}] for stage in ("asr", "handle", "tts")}
    (event,) = caller.receive(wyoming_event("info", info))
    assert event.kind is EventKind.READY
    return caller


def get(caller: WyomingCaller, *names: str) -> list[VoiceEvent]:
    return [event for name in names for event in caller.receive(PACKAGE[name])]


@given(st.lists(st.sampled_from(sorted(PACKAGE)), max_size=6), st.lists(st.integers(0, 5000), max_size=12))
def test_the_package_s_bytes_in_any_pieces_are_the_same_events(names: list[str], cuts: list[int]) -> None:
    stream = b"".join(PACKAGE[name] for name in names)
    places = sorted({cut % (len(stream) + 1) for cut in cuts})
    framing = EventLines()
    pieces = [stream[begin:end] for begin, end in zip([0, *places], [*places, len(stream)], strict=True)]
    assert [item for piece in pieces for item in framing.receive(piece)] == [PACKAGE[name] for name in names]


def test_an_event_s_data_may_be_in_its_line_or_after_it() -> None:
    whole = b'{"type":"transcript","data":{"text":"a","language":"en"},"data_length":12}\n{"text":"b"}'
    assert EventLines().receive(whole) == [whole]
    event = parse_event(whole)
    assert (event.type, event.data) == ("transcript", {"text": "b", "language": "en"})


@pytest.mark.parametrize(
    "stream",
    [
        b"no JSON\n",
        b"[]\n",
        b'{"type":"a","payload_length":-1}\n',
        b'{"type":"a","data_length":"1"}\n',
        b'{"type":"a","payload_length":999999999999}\n',
        b"x" * 1001,
    ],
)
def test_a_stream_that_cannot_be_read_on_ends(stream: bytes) -> None:
    framing = EventLines(max_message_bytes=1000)
    assert framing.is_open
    first, last = framing.receive(PACKAGE["chunk"] + stream)
    assert first == PACKAGE["chunk"]
    assert not isinstance(last, str | bytes)
    assert not framing.is_open
    assert not framing.receive(PACKAGE["chunk"])


def test_the_package_s_own_info_is_read() -> None:
    caller = WyomingCaller(CallerOptions("manual", settings={"stages": ["asr"]}))
    (event,) = get(caller, "info")
    assert (event.kind, event.metadata) == (EventKind.READY, {"asr.program": "scripted"})


def test_a_server_without_a_stage_refuses_the_session() -> None:
    caller = WyomingCaller(CallerOptions("manual"))
    (error,) = get(caller, "info")
    assert (error.kind, error.fatal) == (EventKind.ERROR, True)
    assert "offers no handle and no tts" in (error.message or "")


def test_a_turn_goes_through_all_services_and_carries_the_trace() -> None:
    caller = ready(language="en", voice="nova", speaker="2")
    context = {"traceparent": TRACE}
    begun = sent(caller.begin_turn(SpokenText("not used")))
    assert begun[0] == ("transcribe", {"language": "en", "context": context}, b"")
    assert begun[1] == ("audio-start", {"rate": 16_000, "width": 2, "channels": 1}, b"")
    assert sent(caller.end_turn()) == [("audio-stop", {}, b"")]
    events = get(caller, "chunk", "transcript")
    assert [(event.kind, event.text) for event in events] == [
        (EventKind.ASR_PARTIAL, "turn "),
        (EventKind.ASR_FINAL, "turn it on – bitte"),
    ]
    assert sent(caller.pending()) == [("transcript", {"text": "turn it on – bitte", "context": context}, b"")]
    events = get(caller, "handled-start", "handled-chunk", "handled", "handled-stop")
    assert kinds(events) == [EventKind.RESPONSE_STARTED, EventKind.LLM_TEXT]
    wanted = {"text": "It is on.", "voice": {"name": "nova", "speaker": "2"}, "context": context}
    assert sent(caller.pending()) == [("synthesize", wanted, b"")]
    events = get(caller, "audio-start", "audio-chunk", "audio-stop")
    audio = [event for event in events if event.kind is EventKind.AUDIO]
    assert [(event.audio, event.rate_hz) for event in audio] == [(bytes(range(100)), 22_050)]
    assert kinds(events)[-2:] == [EventKind.AUDIO_DONE, EventKind.RESPONSE_DONE]
    assert events[-1].carried == {"audio", "text"}


@pytest.mark.parametrize("name", ["handled", "not-handled"])
def test_an_answer_that_comes_whole(name: str) -> None:
    caller = ready(stages=["handle"])
    assert sent(caller.begin_turn(SpokenText("turn it on"))) == []
    assert [kind for kind, _, _ in sent(caller.end_turn())] == ["transcript"]
    events = get(caller, name)
    assert kinds(events) == [EventKind.RESPONSE_STARTED, EventKind.LLM_TEXT, EventKind.RESPONSE_DONE]
    assert "voice_to_voice" in caller.capabilities.not_observable


def test_asr_alone_ends_with_transcript_and_tts_begins_with_text() -> None:
    caller = ready(stages=["asr"])
    caller.begin_turn(SpokenText(""))
    caller.end_turn()
    assert kinds(get(caller, "transcript")) == [
        EventKind.ASR_FINAL,
        EventKind.RESPONSE_STARTED,
        EventKind.RESPONSE_DONE,
    ]
    assert not caller.pending()
    caller = ready(stages=["tts"])
    caller.begin_turn(SpokenText("It is on."))
    assert sent(caller.end_turn()) == [("synthesize", {"text": "It is on.", "context": {"traceparent": TRACE}}, b"")]


def test_a_frame_is_heard_by_the_recognizer_only_within_a_turn() -> None:
    caller = ready()
    pcm = np.arange(320, dtype=np.int16)

    def frame() -> tuple[str, dict[str, Any], bytes]:
        (one,) = sent([(caller.audio_head() or b"") + caller.audio_message(pcm)])
        return one

    assert frame()[0] == UNSPOKEN
    caller.begin_turn(SpokenText("x"))
    assert frame() == ("audio-chunk", {"rate": 16_000, "width": 2, "channels": 1}, pcm.astype("<i2").tobytes())
    caller.end_turn()
    assert frame()[0] == UNSPOKEN


def test_audio_of_interrupted_reply_is_dropped_and_next_played() -> None:
    caller = ready(stages=["tts"])
    caller.begin_turn(SpokenText("one"))
    caller.end_turn()
    get(caller, "audio-start", "audio-chunk")
    assert caller.interrupt(100) == ()
    late = get(caller, "audio-chunk", "audio-stop")
    assert kinds(late) == [EventKind.RESPONSE_DONE]
    assert late[0].status == "cancelled"
    caller.begin_turn(SpokenText("two"))
    caller.end_turn()
    assert kinds(get(caller, "audio-chunk", "audio-stop"))[-1] is EventKind.RESPONSE_DONE


def test_an_error_fails_the_stage_under_way_and_nothing_else() -> None:
    caller = ready()
    assert [(event.kind, event.fatal) for event in get(caller, "error")] == [(EventKind.ERROR, False)]
    caller.begin_turn(SpokenText(""))
    caller.end_turn()
    assert kinds(get(caller, "error"))[0] is EventKind.ASR_FAILED
    caller.begin_turn(SpokenText(""))
    caller.end_turn()
    get(caller, "transcript")
    failed = get(caller, "error")[-1]
    assert (failed.kind, failed.status, failed.message) == (
        EventKind.RESPONSE_DONE,
        "failed",
        "no such program (unknown-program)",
    )
    assert failed.failure is not None
    assert failed.failure.code == "unknown-program"


def test_a_ping_is_answered() -> None:
    caller = ready()
    caller.receive(wyoming_event("ping", {"text": "still there"}))
    assert sent(caller.pending()) == [("pong", {"text": "still there"}, b"")]


GONE = Failure("tcp", "EOF")


def lose(caller: WyomingCaller, service: str) -> list[VoiceEvent]:
    return list(caller.receive(ServiceLost(service, "the endpoint closed the connection", GONE)))


def test_each_stage_has_its_address_and_audio_goes_to_asr() -> None:
    caller = WyomingCaller(CallerOptions("manual", settings={"tts_url": "tcp://h:10200", "handle_url": "tls://h:1"}))
    request = caller.upgrade("tcp://h:10300", None)
    assert request.services == {"asr": "tcp://h:10300", "handle": "tls://h:1", "tts": "tcp://h:10200"}
    assert request.audio_service == "asr"
    spoken = WyomingCaller(CallerOptions("manual", settings={"stages": ["tts"]})).upgrade("tcp://h:10200", None)
    assert (spoken.services, spoken.audio_service) == ({"tts": "tcp://h:10200"}, None)


def test_a_message_names_the_service_that_it_is_for() -> None:
    caller = ready()
    messages = [*caller.opened(), *caller.begin_turn(SpokenText("")), *caller.end_turn()]
    get(caller, "transcript")
    messages += caller.pending()
    get(caller, "handled-start", "handled-chunk", "handled", "handled-stop")
    messages += caller.pending()
    named = [
        (message.service, parse_event(message).type) for message in messages if isinstance(message, ServiceMessage)
    ]
    assert named == [
        *((stage, "describe") for stage in ("asr", "handle", "tts")),
        ("asr", "transcribe"),
        ("asr", "audio-start"),
        ("asr", "audio-stop"),
        ("handle", "transcript"),
        ("tts", "synthesize"),
    ]


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"asr_url": "http://h:1"}, "asr_url.*is not a TCP address"),
        ({"tts_url": "tcp://h"}, "tts_url.*has no valid port"),
        ({"stages": ["asr"], "tts_url": "tcp://h:1"}, "'tts_url' is of tts, which is not among the stages"),
    ],
)
def test_an_address_of_a_stage_that_cannot_be_used_is_refused(settings: dict[str, Any], fault: str) -> None:
    with pytest.raises(UsageError, match=fault):
        WyomingCaller(CallerOptions("manual", settings=settings))


def test_a_session_is_ready_when_every_service_has_answered() -> None:
    settings = {"stages": ["asr", "tts"], "tts_url": "tcp://h:2"}
    caller = WyomingCaller(CallerOptions("manual", settings=settings))
    caller.upgrade("tcp://h:1", None)
    heard = caller.receive(ServiceMessage.of("asr", wyoming_event("info", {"asr": [{"name": "whisper"}]})))
    assert kinds(heard) == []
    (event,) = caller.receive(ServiceMessage.of("tts", wyoming_event("info", {"tts": [{"name": "piper"}]})))
    assert (event.kind, event.metadata) == (EventKind.READY, {"asr.program": "whisper", "tts.program": "piper"})


def test_a_server_that_closes_after_its_turn_is_no_fault() -> None:
    caller = ready()
    caller.begin_turn(SpokenText(""))
    caller.end_turn()
    get(caller, "transcript")
    assert kinds(lose(caller, "asr")) == []
    get(caller, "handled-start", "handled-chunk", "handled", "handled-stop")
    assert kinds(lose(caller, "handle")) == []
    spoken = get(caller, "audio-start", "audio-chunk", "audio-stop")
    assert spoken[-1].status == "completed"
    assert kinds(lose(caller, "tts")) == []
    caller.begin_turn(SpokenText(""))
    caller.end_turn()
    assert kinds(get(caller, "transcript")) == [EventKind.ASR_FINAL], "and the next turn goes on"


def test_service_lost_while_something_was_due_fails_the_turn() -> None:
    caller = ready()
    caller.begin_turn(SpokenText(""))
    caller.end_turn()
    failed, _, done = lose(caller, "asr")
    assert (failed.kind, done.kind, done.status) == (EventKind.ASR_FAILED, EventKind.RESPONSE_DONE, "failed")
    assert done.message == "the asr service: the endpoint closed the connection"
    assert done.failure == GONE
    caller.begin_turn(SpokenText(""))
    caller.end_turn()
    get(caller, "transcript")
    assert lose(caller, "handle")[-1].status == "failed"
    caller.begin_turn(SpokenText(""))
    caller.end_turn()
    get(caller, "transcript", "handled-start", "handled-chunk", "handled", "handled-stop", "audio-start")
    assert lose(caller, "tts")[-1].status == "failed"


def test_recognizer_lost_while_caller_speaks_ends_the_call() -> None:
    caller = ready()
    caller.begin_turn(SpokenText(""))
    (event,) = lose(caller, "asr")
    assert (event.kind, event.fatal) == (EventKind.ERROR, True)


@pytest.mark.parametrize("is_lost", [True, False])
def test_reply_is_synthesized_after_interrupted_one_is_over(is_lost: bool) -> None:
    caller = ready()
    caller.begin_turn(SpokenText(""))
    caller.end_turn()
    get(caller, "transcript", "handled-start", "handled-chunk", "handled", "handled-stop", "audio-start", "audio-chunk")
    caller.interrupt(100)
    caller.begin_turn(SpokenText(""))
    caller.end_turn()
    get(caller, "transcript", "handled-start", "handled-chunk", "handled", "handled-stop")
    assert "synthesize" not in [kind for kind, _, _ in sent(caller.pending())]
    # The server closes while or after it sends what nobody hears.
    assert kinds(lose(caller, "tts") if is_lost else get(caller, "audio-chunk", "audio-stop")) == []
    assert [kind for kind, _, _ in sent(caller.pending())] == ["synthesize"]
    assert get(caller, "audio-start", "audio-chunk", "audio-stop")[-1].status == "completed"

"""Every registered protocol, step by step: what its server sends becomes the events that all protocols share."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import pytest

from loadtest.audio.pcm import from_bytes
from loadtest.protocols import registry
from loadtest.protocols.base import EventKind, VoiceEvent
from tests.unit.loadtest.protocols.contract.line import SCRIPTS, TEXT, Line, having, kinds, only, tone
from tests.unit.loadtest.protocols.contract.wire_script import UTTERANCE, Refused

every_wire = pytest.mark.parametrize("name", sorted(SCRIPTS))
# What only a reply under way has.
OF_A_REPLY: Final = {EventKind.RESPONSE_STARTED, EventKind.LLM_TEXT, EventKind.AUDIO, EventKind.RESPONSE_DONE}

# By which services say that they take no more calls at present.
LIMITS: Final = {"429", "503", "1013", "rate_limit_exceeded", "session_limit_reached", "RESOURCE_EXHAUSTED"}


def opened(name: str) -> Line:
    line = Line(name)
    line.open()
    return line


def every_wire_with(step: str) -> pytest.MarkDecorator:
    """Parametrize over the wires with this step; the others must declare that they lack it
    (test_contract_capabilities)."""
    return pytest.mark.parametrize("name", having(step))


def test_every_protocol_has_a_script_and_every_script_a_protocol() -> None:
    assert sorted(SCRIPTS) == sorted(registry.names())


@every_wire
def test_the_session_opens_once(name: str) -> None:
    line = Line(name)
    assert EventKind.READY not in kinds(line.events)
    event_kinds = kinds(line.open())
    assert event_kinds.count(EventKind.READY) == 1
    assert EventKind.ERROR not in event_kinds
    assert not OF_A_REPLY & set(event_kinds)
    line.turn()
    assert kinds(line.events).count(EventKind.READY) == 1, "a session is opened once, whatever follows"


@every_wire
def test_a_frame_prepared_once_serves_every_caller(name: str) -> None:
    one, other = opened(name), opened(name)
    capabilities = one.caller.capabilities
    noise = np.random.default_rng(1)
    pcm = noise.integers(-3000, 3000, capabilities.input_rate_hz * capabilities.frame_ms // 1000, np.int16)
    prepared = one.caller.audio_message(pcm)
    assert other.caller.audio_message(pcm) == prepared
    one.say()
    assert one.caller.audio_message(pcm) == prepared, "what a frame carries of its call is in the head"
    if capabilities.audio_is_text:
        prepared.decode()


@every_wire_with("asr_failed")
def test_a_transcription_that_failed(name: str) -> None:
    line = opened(name)
    line.say()
    line.finish()
    event = only(line.deliver(line.script.asr_failed()), EventKind.ASR_FAILED)
    assert event.message


@every_wire
def test_a_turn_has_its_transcripts_and_one_reply(name: str) -> None:
    line = opened(name)
    events = line.turn()
    assert EventKind.ERROR not in kinds(events)
    assert EventKind.UNKNOWN not in kinds(events)
    for step, kind in (("partial", EventKind.ASR_PARTIAL), ("final", EventKind.ASR_FINAL)):
        texts = [event.text for event in events if event.kind is kind]
        assert texts == [UTTERANCE.text] * (name in having(step)), step
    of_reply = [event for event in events if event.kind in OF_A_REPLY]
    assert len({event.response_id for event in of_reply}) <= 1, "all of it is one reply"
    assert "".join(event.text or "" for event in events if event.kind is EventKind.LLM_TEXT) in ("", TEXT)
    assert_audio(line, events)
    done = [event for event in events if event.kind is EventKind.RESPONSE_DONE]
    if line.caller.capabilities.reply_end == "silence":
        assert not done
    else:
        assert [event.status for event in done] == ["completed"]
        assert of_reply[-1] is done[0]


def assert_audio(line: Line, events: Sequence[VoiceEvent]) -> None:
    pieces = [event for event in events if event.kind is EventKind.AUDIO and event.audio]
    if not pieces:
        assert "voice_to_voice" in line.caller.capabilities.not_observable
        return
    wanted = from_bytes(tone(line.script.reply_rate_hz))
    assert {event.rate_hz for event in pieces} == {line.script.reply_rate_hz}
    heard = from_bytes(b"".join(event.audio or b"" for event in pieces))
    assert len(heard) == len(wanted)
    if line.script.exact_audio:
        assert np.array_equal(heard, wanted)
    else:
        error = heard.astype(float) - wanted
        assert np.sqrt(np.mean(error**2)) < 0.05 * np.sqrt(np.mean(wanted.astype(float) ** 2))


@every_wire
def test_each_reply_has_a_name_of_its_own(name: str) -> None:
    line = opened(name)
    ids = [{event.response_id for event in line.turn() if event.kind in OF_A_REPLY} for _ in range(3)]
    for one, other in pairwise(ids):
        assert one == other == {None} or not one & other, "a wire that names replies names each newly"


@every_wire_with("broken_off")
def test_a_reply_that_the_endpoint_breaks_off(name: str) -> None:
    line = opened(name)
    line.turn(until="audio")
    line.send(line.caller.begin_turn(UTTERANCE))
    line.frame()
    event_kinds = kinds(line.deliver(line.script.broken_off()))
    assert EventKind.ERROR not in event_kinds
    assert {EventKind.SPEECH_STARTED, EventKind.CLEAR, EventKind.RESPONSE_DONE} & set(event_kinds)


@every_wire
def test_interruption_by_caller_causes_no_error(name: str) -> None:
    line = opened(name)
    line.turn(until="audio")
    before = len(line.events)
    line.send(line.caller.interrupt(120))
    assert EventKind.ERROR not in kinds(line.events[before:])


@every_wire_with("mark")
def test_clear_and_marks(name: str) -> None:
    line = opened(name)
    line.turn(until="audio")
    mark = line.script.mark("part-1")
    assert only(line.deliver(mark), EventKind.MARK).text == "part-1"
    before = len(line.sent)
    line.send(line.caller.played("part-1"))
    assert len(line.sent) > before, "a mark is answered"
    clear = line.script.clear()
    if clear is not None:
        assert EventKind.CLEAR in kinds(line.deliver(clear))


@every_wire_with("service_report")
def test_a_service_that_reports_on_itself(name: str) -> None:
    line = opened(name)
    line.turn(until="audio")
    events = line.deliver(line.script.service_report())
    assert any(event.service_ns or event.usage or event.metadata for event in events)
    assert EventKind.ERROR not in kinds(events)


@every_wire_with("error")
def test_an_error_after_which_the_conversation_goes_on(name: str) -> None:
    line = opened(name)
    line.turn()
    event = only(line.deliver(line.script.error()), EventKind.ERROR)
    assert event.message
    assert event.failure is not None
    assert not event.fatal
    assert EventKind.ERROR not in kinds(line.turn())


def assert_refused(events: Sequence[VoiceEvent], refused: Refused) -> None:
    errors = [event for event in events if event.kind is EventKind.ERROR and event.fatal]
    assert len(errors) == 1
    (error,) = errors
    assert error.message
    assert error.failure is not None
    wanted = (refused.kind, refused.code, refused.retry_after_ns)
    assert (error.failure.kind, error.failure.code, error.failure.retry_after_ns) == wanted
    assert EventKind.READY not in kinds(events)


@every_wire_with("fatal_error")
def test_an_error_that_ends_the_session(name: str) -> None:
    line = opened(name)
    line.say()
    fatal = line.script.fatal_error()
    assert_refused(line.deliver(fatal.messages), fatal)


@pytest.mark.parametrize(("name", "why"), [(name, why) for why in ("refusal", "capacity") for name in having(why)])
def test_a_session_that_is_refused(name: str, why: str) -> None:
    line = Line(name)
    line.send(line.caller.opened())
    refused: Refused = getattr(line.script, why)()
    assert_refused(line.deliver(refused.messages), refused)


@every_wire_with("capacity")
def test_a_capacity_limit_asks_for_a_later_call(name: str) -> None:
    line = Line(name)
    line.send(line.caller.opened())
    (error,) = [event for event in line.deliver(line.script.capacity().messages) if event.kind is EventKind.ERROR]
    assert error.failure is not None
    assert error.failure.retry_after_ns is not None or error.failure.code in LIMITS


@every_wire_with("unknown")
def test_an_unknown_message_is_counted_and_changes_nothing(name: str) -> None:
    line, plain = opened(name), opened(name)
    unknown = line.script.unknown()
    assert unknown is not None
    assert kinds(line.deliver(unknown)) == [EventKind.UNKNOWN] * len(unknown)
    assert kinds(line.turn()) == kinds(plain.turn())


@every_wire_with("malformed")
def test_protocol_violation_is_error_and_next_turn_works(name: str) -> None:
    line = opened(name)
    for message in line.script.malformed():
        event = only(line.deliver([message]), EventKind.ERROR)
        assert event.message
        assert event.failure is not None
        assert event.failure.kind == "protocol_violation"
    assert kinds(line.turn()) == kinds(opened(name).turn())


@every_wire_with("repeated")
def test_a_repeated_message_is_heard_once(name: str) -> None:
    line = opened(name)
    line.say()
    line.finish()
    line.step("reply_started")
    repeated = line.script.repeated()
    first = [event.kind for message in repeated[:-1] for event in line.deliver([message])]
    assert EventKind.DUPLICATE not in first
    assert kinds(line.deliver(repeated[-1:])) == [EventKind.DUPLICATE]


@every_wire
def test_the_session_closes(name: str) -> None:
    line = opened(name)
    line.turn()
    before = len(line.events)
    line.send(line.caller.goodbye())
    line.deliver(line.script.closing())
    assert all(not event.fatal or event.failure is not None for event in line.events[before:])

"""What Gemini Live sends of the caller's speech: transcripts in three ways, and the detection of speech."""

from collections.abc import Sequence

import pytest

from loadtest.protocols.base import EventKind, VoiceEvent
from tests.unit.loadtest.protocols.contract.line import Line, kinds, only
from tests.unit.loadtest.protocols.contract.scripts.gemini import GeminiWordsScript
from tests.unit.loadtest.protocols.gemini.session import Session

STARTED, DONE = EventKind.RESPONSE_STARTED, EventKind.RESPONSE_DONE


def finals(events: Sequence[VoiceEvent]) -> list[tuple[str | None, bool]]:
    return [(event.text, event.dated_by_partial) for event in events if event.kind is EventKind.ASR_FINAL]


def test_pieces_without_a_last_one_are_the_transcript_as_of_the_last_piece() -> None:
    session = Session()
    session.begin()
    for text in (" turn", " the li", "ght on"):
        assert kinds(session.content(inputTranscription={"text": text})) == [EventKind.ASR_PARTIAL]
    session.speech()
    assert finals(session.content(generationComplete=True)) == [("turn the light on", True)]
    assert finals(session.content(turnComplete=True)) == []


def test_a_piece_after_the_reply_belongs_to_the_question_before_it() -> None:
    session = Session()
    session.begin()
    session.content(inputTranscription={"text": "turn the"})
    session.speech(generationComplete=True)
    assert finals(session.content(inputTranscription={"text": " light on"})) == [("light on", False)]
    session.begin()
    assert kinds(session.content(inputTranscription={"text": "and"})) == [EventKind.ASR_PARTIAL]


def test_a_piece_that_is_marked_as_finished_ends_the_transcript() -> None:
    session = Session()
    session.content(inputTranscription={"text": "turn"})
    assert finals(session.content(inputTranscription={"text": " it on", "finished": True})) == [("turn it on", False)]
    session.speech()
    assert finals(session.content(generationComplete=True)) == []
    assert kinds(session.content(inputTranscription={"finished": True})) == []


def test_interim_transcripts_replace_each_other_and_the_one_after_them_is_final() -> None:
    session = Session()
    texts = ("turn the", "turn the night", "turn the light on")
    found = [session.content(interimInputTranscription={"text": text}) for text in texts]
    assert [only(events, EventKind.ASR_PARTIAL).text for events in found] == ["turn the", " night", "light on"]
    assert finals(session.content(inputTranscription={"text": "Turn the light on."})) == [("Turn the light on.", False)]


def test_a_question_cut_off_by_the_next_one_keeps_its_transcript() -> None:
    session = Session()
    session.begin()
    session.content(inputTranscription={"text": "turn the light on"})
    session.speech()
    session.begin()
    (final, clear, *_) = session.content(interrupted=True)
    assert (final.kind, final.text, clear.kind) == (EventKind.ASR_FINAL, "turn the light on", EventKind.CLEAR)
    (piece,) = session.content(inputTranscription={"text": "no"})
    assert piece.kind is EventKind.ASR_PARTIAL
    assert piece.item_id != final.item_id
    assert finals(session.content(turnComplete=True)) == [], "what ends the old reply says nothing of the new question"


def test_a_question_without_a_reply_leaves_nothing_to_the_next_one() -> None:
    session = Session()
    session.begin()
    session.content(inputTranscription={"text": "hello"})
    session.begin()
    assert finals(session.speech()) == []
    assert finals(session.content(generationComplete=True)) == []


def test_the_end_of_the_old_reply_does_not_end_the_new_question() -> None:
    session = Session()
    session.begin()
    session.speech()
    session.begin()
    session.content(inputTranscription={"text": "no, the"})
    assert finals(session.content(generationComplete=True)) == []
    session.content(inputTranscription={"text": " other one"})
    session.speech()
    assert finals(session.content(generationComplete=True)) == [("no, the other one", True)]


def test_a_question_that_the_service_answers_twice_is_one_transcript_each() -> None:
    """The service took a pause for the end: the caller's next words stop the reply."""
    session = Session()
    session.begin()
    session.content(inputTranscription={"text": "turn the"})
    session.speech()
    session.content(interrupted=True)
    session.content(turnComplete=True, inputTranscription={"text": " light on"})
    session.speech()
    assert finals(session.content(generationComplete=True)) == [("turn the light on", True)]


@pytest.mark.parametrize("member", ["type", "voiceActivityType", "voice_activity_type"])
def test_voice_activity_is_heard_where_it_was_asked_for(member: str) -> None:
    asked, other = Session(voice_activity=True), Session()
    for value, kind in (("ACTIVITY_START", EventKind.SPEECH_STARTED), ("ACTIVITY_END", EventKind.SPEECH_STOPPED)):
        assert kinds(asked.receive(voiceActivity={member: value, "audioOffset": "1.2s"})) == [kind]
        assert kinds(other.receive(voiceActivity={member: value})) == []
    assert kinds(asked.receive(voiceActivity={"type": "TYPE_UNSPECIFIED"})) == []


def test_a_turn_with_reported_voice_activity_and_unmarked_transcripts() -> None:
    line = Line("gemini-live", GeminiWordsScript())
    line.open()
    for _ in range(2):
        found = kinds(line.turn())
        assert found[:4] == [
            EventKind.SPEECH_STARTED,
            EventKind.ASR_PARTIAL,
            EventKind.ASR_PARTIAL,
            EventKind.SPEECH_STOPPED,
        ]
        assert found[4:] == [
            STARTED,
            EventKind.AUDIO,
            EventKind.AUDIO,
            EventKind.ASR_FINAL,
            DONE,
            EventKind.SERVICE_REPORT,
        ]

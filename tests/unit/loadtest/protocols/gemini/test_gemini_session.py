"""The messages and transcripts of Gemini Live, with what is easily taken wrong about each."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtest.protocols.base import CallerOptions, EventKind, VoiceEvent
from loadtest.protocols.gemini.caller import GeminiCaller
from tests.unit.loadtest.protocols.contract.line import Line, kinds, only
from tests.unit.loadtest.protocols.contract.scripts.gemini import GeminiTextScript, GeminiWordsScript
from tests.unit.loadtest.protocols.contract.test_contract_streams import ANY_JSON
from tests.unit.loadtest.protocols.gemini.session import PCM, Session, speech

STARTED, DONE = EventKind.RESPONSE_STARTED, EventKind.RESPONSE_DONE


def test_json_is_read_from_binary_and_text_in_either_case_style() -> None:
    members = {"serverContent": speech() | {"inputTranscription": {"text": "hello", "finished": True}}}
    theirs = json.dumps(members)
    snake = theirs
    for name in ("serverContent", "modelTurn", "inlineData", "mimeType", "inputTranscription"):
        snake = snake.replace(name, "".join(f"_{char.lower()}" if char.isupper() else char for char in name))
    assert "server_content" in snake
    assert "mime_type" in snake
    variants = [
        [(event.kind, event.audio, event.rate_hz, event.text) for event in Session().caller.receive(message)]
        for message in (theirs, theirs.encode(), snake, snake.encode())
    ]
    assert variants[0] == [
        (STARTED, None, None, None),
        (EventKind.AUDIO, PCM, 24_000, None),
        (EventKind.ASR_FINAL, None, None, "hello"),
    ]
    assert variants[1:] == variants[:1] * 3


def test_a_session_is_ready_once_and_has_a_name() -> None:
    caller = GeminiCaller(CallerOptions())
    (ready,) = caller.receive(b'{"setupComplete":{"sessionId":"session-7"}}')
    assert (ready.kind, ready.metadata) == (EventKind.READY, {"session.id": "session-7"})
    assert kinds(caller.receive(b'{"setupComplete":{}}')) == []


# Replies.


def test_reply_is_complete_at_generation_end_not_at_playback_end() -> None:
    session = Session()
    assert kinds(session.speech()) == [STARTED, EventKind.AUDIO]
    assert kinds(session.speech()) == [EventKind.AUDIO]
    (done,) = [event for event in session.content(generationComplete=True) if event.kind is DONE]
    assert (done.status, done.carried, done.owes_response) == ("completed", {"audio"}, False)
    assert kinds(session.content(turnComplete=True)) == []
    assert kinds(session.speech()) == [STARTED, EventKind.AUDIO], "the next reply"


def test_one_message_has_content_and_the_end_of_it() -> None:
    session = Session()
    events = session.receive(
        usageMetadata={"responseTokenCount": 3},
        serverContent=speech()
        | {"turnComplete": True, "generationComplete": True, "outputTranscription": {"text": "Yes"}},
    )
    assert kinds(events) == [EventKind.SERVICE_REPORT, STARTED, EventKind.AUDIO, DONE]


def test_a_turn_without_generation_complete_ends_with_the_turn() -> None:
    session = Session()
    session.speech()
    assert only(session.content(turnComplete=True), DONE).status == "completed"


def test_interrupted_reply_is_cleared_and_turn_end_is_no_reply() -> None:
    session = Session()
    session.speech()
    clear, done = session.content(interrupted=True)
    assert (clear.kind, done.kind, done.status) == (EventKind.CLEAR, DONE, "cancelled")
    assert kinds(session.content(turnComplete=True)) == []
    assert kinds(session.speech()) == [STARTED, EventKind.AUDIO]


def test_interruption_clears_playback_of_generated_reply() -> None:
    session = Session()
    session.speech(generationComplete=True)
    assert kinds(session.content(interrupted=True, turnComplete=True)) == [EventKind.CLEAR]


def test_an_interruption_of_nothing_ends_nothing() -> None:
    """Services were seen to send one although the caller had said nothing, and without a turnComplete after it."""
    session = Session()
    assert kinds(session.content(interrupted=True)) == [EventKind.CLEAR]
    assert kinds(session.speech()) == [STARTED, EventKind.AUDIO]
    assert kinds(session.content(turnComplete=True)) == [DONE]


def test_turn_without_content_is_an_empty_reply() -> None:
    started, done = Session().content(turnComplete=True)
    assert (started.kind, done.kind, done.status, done.carried) == (STARTED, DONE, "completed", frozenset())


@pytest.mark.parametrize(
    ("reason", "before", "status", "code"),
    [
        ("RESPONSE_REJECTED", False, "failed", "RESPONSE_REJECTED"),
        ("GENERATED_AUDIO_SAFETY", True, "incomplete", None),
        ("NEED_MORE_INPUT", False, "incomplete", None),
        ("TURN_COMPLETE_REASON_UNSPECIFIED", True, "completed", None),
    ],
)
def test_the_reason_why_a_turn_is_complete(reason: str, before: bool, status: str, code: str | None) -> None:
    session = Session()
    if before:
        session.speech()
    done = only(session.content(turnComplete=True, turnCompleteReason=reason), DONE)
    assert (done.status, done.failure and done.failure.code) == (status, code)
    assert done.message == (None if status == "completed" else reason)


def test_a_model_that_thinks_on_owes_the_rest_of_its_turn() -> None:
    session = Session()
    session.speech()
    assert only(session.content(turnComplete=True, interactionStatus="IN_PROGRESS"), DONE).owes_response
    session.speech()
    assert not only(session.content(turnComplete=True, interactionStatus="IDLE"), DONE).owes_response


def test_turn_generated_in_parts_is_owed_until_model_is_idle() -> None:
    session = Session()
    session.speech(generationComplete=True)
    part = session.content(turnComplete=True, interactionStatus="IN_PROGRESS")
    assert only(part, DONE).owes_response
    assert not only(session.content(turnComplete=True, interactionStatus="IDLE"), DONE).owes_response


@pytest.mark.parametrize(
    ("mime_type", "rate_hz"),
    [("audio/pcm;rate=24000", 24_000), ("audio/pcm", 24_000), ("audio/pcm; rate=16000", 16_000), ("AUDIO/L16", 24_000)],
)
def test_the_rate_is_in_the_type_of_the_audio(mime_type: str, rate_hz: int) -> None:
    (event,) = [event for event in Session().speech(mime_type) if event.kind is EventKind.AUDIO]
    assert (event.audio, event.rate_hz) == (PCM, rate_hz)


@pytest.mark.parametrize("mime_type", ["audio/opus", "audio/pcm;rate=1", "audio/pcm;rate=9999999", "audio/pcma"])
def test_audio_that_cannot_be_played_is_a_violation_and_no_reply(mime_type: str) -> None:
    session = Session()
    (event,) = session.speech(mime_type)
    assert event.failure is not None
    assert event.failure.kind == "protocol_violation"
    assert not kinds(session.content(generationComplete=True))


def test_an_image_is_no_audio() -> None:
    assert kinds(Session().speech("image/png")) == []


def test_thoughts_and_output_transcripts_are_not_answer_text() -> None:
    session = Session()
    parts = [{"text": "The user asks.", "thought": True}, {"text": "next to the audio"}]
    events = session.content(modelTurn={"parts": parts}, outputTranscription={"text": "It is on."})
    assert kinds(events) == [STARTED, EventKind.REASONING_TEXT]
    assert only(session.content(generationComplete=True), DONE).carried == {"text"}


def test_replies_in_text_have_tokens() -> None:
    line = Line("gemini-live", GeminiTextScript())
    line.open()
    events = line.turn()
    assert [event.text for event in events if event.kind is EventKind.LLM_TEXT] == ["It is on. "]
    assert EventKind.REASONING_TEXT in kinds(events)
    assert not {EventKind.ERROR, EventKind.UNKNOWN} & set(kinds(events))
    assert "llm_first_token_latency" not in line.caller.capabilities.not_observable


# Tools.


def call(*names: str) -> dict[str, Any]:
    return {"functionCalls": [{"id": f"call-{name}", "name": name, "args": {"on": True}} for name in names]}


def test_tool_call_is_answered_by_result_and_answer_is_owed() -> None:
    session = Session(tools={"light": {"state": "on"}, "*": "done"})
    assert kinds(session.receive(toolCall=call("light", "door"))) == [STARTED]
    (answer,) = session.caller.pending()
    assert json.loads(str(answer))["toolResponse"]["functionResponses"] == [
        {"id": "call-light", "name": "light", "response": {"state": "on"}},
        {"id": "call-door", "name": "door", "response": {"output": "done"}},
    ]
    assert session.caller.pending() == ()
    done = only(session.content(generationComplete=True), DONE)
    assert (done.carried, done.owes_response) == ({"tool_call"}, True)
    session.speech()
    assert not only(session.content(generationComplete=True), DONE).owes_response


def test_an_answer_after_the_result_is_the_same_reply() -> None:
    session = Session(tools={"*": 1})
    session.receive(toolCall=call("light"))
    assert kinds(session.speech()) == [EventKind.AUDIO]
    done = only(session.content(generationComplete=True), DONE)
    assert (done.carried, done.owes_response) == ({"tool_call", "audio"}, False)


def test_a_cancelled_tool_call_owes_nothing() -> None:
    session = Session(tools={"*": 1})
    session.receive(toolCall=call("light"))
    assert kinds(session.receive(toolCallCancellation={"ids": ["call-light"]})) == []
    assert not only(session.content(turnComplete=True), DONE).owes_response


def test_a_tool_without_a_result_is_named() -> None:
    session = Session(tools={"door": 1})
    event = only(session.receive(toolCall=call("light")), EventKind.ERROR)
    assert "the tool 'light', for which the settings have no result" in (event.message or "")
    assert not event.fatal
    assert session.caller.pending() == ()


# What the service says of itself.


def test_tokens_have_our_names_and_cached_ones_are_no_cache_hit() -> None:
    usage = {
        "promptTokenCount": 300,
        "cachedContentTokenCount": 200,
        "responseTokenCount": 40,
        "thoughtsTokenCount": 7,
        "totalTokenCount": 347,
        "promptTokensDetails": [{"modality": "AUDIO", "tokenCount": 260}, {"modality": "TEXT", "tokenCount": 40}],
        "responseTokensDetails": [{"modality": "AUDIO", "tokenCount": 40}, {"modality": "SMELL", "tokenCount": 1}],
        "cacheTokensDetails": [{"modality": "TEXT", "tokenCount": 200}],
    }
    (report,) = Session().receive(usageMetadata=usage)
    assert report.kind is EventKind.SERVICE_REPORT
    assert report.usage == {
        "input_tokens": 300,
        "cached_tokens": 200,
        "output_tokens": 40,
        "reasoning_tokens": 7,
        "total_tokens": 347,
        "input_audio_tokens": 260,
        "input_text_tokens": 40,
        "output_audio_tokens": 40,
        "cached_text_tokens": 200,
    }
    assert report.metadata == {}


def test_a_service_that_goes_away_says_so_before_it_closes() -> None:
    (event,) = Session().receive(goAway={"timeLeft": "50s"})
    assert (event.kind, event.fatal) == (EventKind.ERROR, False)
    assert event.message == "the service announces that it closes the connection in 50s"


def test_updates_of_resumption_change_nothing() -> None:
    assert kinds(Session().receive(sessionResumptionUpdate={"newHandle": "h", "resumable": True})) == []


@pytest.mark.parametrize(
    ("members", "code", "message"),
    [
        (
            {"error": {"code": 429, "message": "No room.", "status": "RESOURCE_EXHAUSTED"}},
            "RESOURCE_EXHAUSTED",
            "No room. ",
        ),
        ({"code": 400, "message": "No.", "status": "INVALID_ARGUMENT"}, "INVALID_ARGUMENT", "No."),
        ({"error": "gone"}, "error", "gone"),
        (
            {"error": {"code": 500}},
            "500",
            "an error that does not say what is wrong: '{\"code\":500}'; its own log may say it",
        ),
    ],
)
def test_an_error_in_json_ends_the_session(members: dict[str, Any], code: str, message: str) -> None:
    (event,) = Session().receive(**members)
    assert event.fatal
    assert event.failure is not None
    assert (event.failure.kind, event.failure.code) == ("endpoint_error", code)
    assert (event.message or "").startswith(message.strip())


# What no server should send.


def test_unknown_members_are_counted_in_addition_to_known_ones() -> None:
    session = Session()
    events = session.receive(mood="cheerful", serverContent=speech() | {"gesture": "nod"})
    assert kinds(events) == [STARTED, EventKind.AUDIO, EventKind.UNKNOWN, EventKind.UNKNOWN]
    assert [event.raw_type for event in events[2:]] == ["serverContent.gesture", "mood"]


def test_a_malformed_member_does_not_spoil_the_others() -> None:
    session = Session()
    events = session.content(**speech(), inputTranscription={"text": 7}, generationComplete=True)
    assert kinds(events) == [STARTED, EventKind.AUDIO, EventKind.ERROR, DONE]


def test_null_is_nothing_as_in_every_json_of_protobuf() -> None:
    session = Session()
    assert kinds(session.receive(serverContent=None, toolCall=None, setupComplete=None)) == []
    assert kinds(session.content(modelTurn=None, turnComplete=None, interrupted=False, turnCompleteReason=None)) == []


MEMBERS = st.sampled_from(
    ["setupComplete", "usageMetadata", "voiceActivity", "toolCall", "toolCallCancellation", "goAway", "error", "code"]
)
CONTENT = st.sampled_from(
    [
        "modelTurn",
        "inputTranscription",
        "interimInputTranscription",
        "interrupted",
        "generationComplete",
        "turnComplete",
    ]
)
NAMES = st.sampled_from(["parts", "inlineData", "text", "data", "functionCalls", "ids", "name", "finished", "mimeType"])
INNER = st.dictionaries(
    NAMES, ANY_JSON | st.lists(st.dictionaries(NAMES, ANY_JSON, max_size=3), max_size=2), max_size=3
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    messages=st.lists(
        st.dictionaries(MEMBERS, ANY_JSON | INNER, max_size=3)
        | st.dictionaries(CONTENT, ANY_JSON | INNER, max_size=3).map(lambda content: {"serverContent": content})
        | ANY_JSON,
        max_size=5,
    ),
    raw=st.binary(max_size=30),
)
def test_arbitrary_json_and_bytes_never_raise(messages: list[Any], raw: bytes) -> None:
    session = Session(voice_activity=True, tools={"*": None})
    for message in (*(json.dumps(value).encode() for value in messages), raw):
        for event in session.caller.receive(message):
            if event.kind is EventKind.ERROR:
                assert event.message
                assert event.failure is not None
        session.caller.pending()
    session.begin()


@settings(max_examples=40, deadline=None)
@given(order=st.permutations(["modelTurn", "inputTranscription", "generationComplete", "turnComplete"]))
def test_the_order_of_members_in_a_message_says_nothing(order: list[str]) -> None:
    members: dict[str, Any] = {
        **speech(),
        "inputTranscription": {"text": "hello"},
        "generationComplete": True,
        "turnComplete": True,
    }
    events = Session().content(**{name: members[name] for name in order})
    assert kinds(events) == [STARTED, EventKind.AUDIO, EventKind.ASR_PARTIAL, EventKind.ASR_FINAL, DONE]


def finals(events: Sequence[VoiceEvent]) -> list[tuple[str | None, bool]]:
    return [(event.text, event.dated_by_partial) for event in events if event.kind is EventKind.ASR_FINAL]


def test_unmarked_partials_become_final_as_of_last_partial() -> None:
    session = Session()
    session.begin()
    for text in (" turn", " the li", "ght on"):
        assert kinds(session.content(inputTranscription={"text": text})) == [EventKind.ASR_PARTIAL]
    session.speech()
    assert finals(session.content(generationComplete=True)) == [("turn the light on", True)]
    assert finals(session.content(turnComplete=True)) == []


def test_partial_after_reply_belongs_to_question_before_it() -> None:
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


def test_interim_transcripts_replace_and_the_next_one_is_final() -> None:
    session = Session()
    texts = ("turn the", "turn the night", "turn the light on")
    answers = [session.content(interimInputTranscription={"text": text}) for text in texts]
    assert [only(events, EventKind.ASR_PARTIAL).text for events in answers] == ["turn the", " night", "light on"]
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


def test_question_without_reply_leaves_nothing_to_the_next() -> None:
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


def test_question_answered_twice_has_one_transcript() -> None:
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


def test_turn_with_voice_activity_and_unmarked_transcripts() -> None:
    line = Line("gemini-live", GeminiWordsScript())
    line.open()
    for _ in range(2):
        event_kinds = kinds(line.turn())
        assert event_kinds[:4] == [
            EventKind.SPEECH_STARTED,
            EventKind.ASR_PARTIAL,
            EventKind.ASR_PARTIAL,
            EventKind.SPEECH_STOPPED,
        ]
        assert event_kinds[4:] == [
            STARTED,
            EventKind.AUDIO,
            EventKind.AUDIO,
            EventKind.ASR_FINAL,
            DONE,
            EventKind.SERVICE_REPORT,
        ]

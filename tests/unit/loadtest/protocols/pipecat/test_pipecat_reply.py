"""Where a reply begins and ends: a bot says only what its parts are doing."""

import json
from typing import Any

import pytest

from loadtest.protocols.base import EventKind, VoiceEvent
from loadtest.protocols.pipecat.rtvi import RtviSession

SOUND = b"\x10\x20" * 480
SILENCE = bytes(960)
STARTED, DONE = EventKind.RESPONSE_STARTED, EventKind.RESPONSE_DONE


class Bot:
    """A session that is fed the types of messages, or audio."""

    def __init__(self) -> None:
        self.session = RtviSession()
        self.events: list[VoiceEvent] = []

    def does(self, *what: str | bytes, **data: Any) -> list[VoiceEvent]:
        """The events, without those that no caller needs."""
        before = len(self.events)
        for one in what:
            if isinstance(one, bytes):
                self.events += self.session.audio("audio", one, 24_000, 1)
            else:
                self.events += self.session.receive(json.dumps({"label": "rtvi-ai", "type": one, "data": data}))
        return [event for event in self.events[before:] if event.kind is not EventKind.OTHER]

    def kinds(self, *what: str | bytes, **data: Any) -> list[EventKind]:
        return [event.kind for event in self.does(*what, **data)]

    def speaks(self) -> None:
        """Begin a whole reply."""
        self.does("bot-llm-started", "bot-tts-started", SOUND, "bot-started-speaking")


def test_a_pause_between_two_sentences_ends_no_reply() -> None:
    bot = Bot()
    bot.speaks()
    assert bot.kinds("bot-stopped-speaking") == []
    assert bot.kinds("bot-llm-stopped", SOUND, "bot-started-speaking") == [EventKind.AUDIO]
    assert bot.kinds("bot-tts-stopped") == []
    assert bot.kinds("bot-stopped-speaking") == [DONE]


def test_a_reply_ends_when_the_last_part_has_stopped_after_it_was_spoken() -> None:
    bot = Bot()
    bot.speaks()
    assert bot.kinds("bot-llm-stopped", "bot-stopped-speaking") == []
    assert bot.kinds("bot-tts-stopped") == [DONE]


def test_nothing_has_ended_before_the_bot_has_spoken() -> None:
    bot = Bot()
    assert bot.kinds("bot-llm-started", "bot-llm-stopped", "bot-tts-started", "bot-tts-stopped") == [STARTED]
    assert bot.kinds(SOUND, "bot-started-speaking") == [EventKind.AUDIO, EventKind.SPEECH_SYNTHESIS_STARTED]
    assert bot.kinds("bot-stopped-speaking") == [DONE]


def test_a_greeting_needs_no_language_model() -> None:
    bot = Bot()
    assert bot.kinds("bot-tts-started") == [STARTED]
    assert bot.kinds(SOUND, "bot-started-speaking", "bot-tts-stopped")[:1] == [EventKind.AUDIO]
    (done,) = bot.does("bot-stopped-speaking")
    assert (done.status, done.carried) == ("completed", frozenset({"audio"}))


def test_audible_audio_alone_begins_a_reply_and_idle_silence_does_not() -> None:
    bot = Bot()
    assert bot.kinds(SILENCE, SILENCE) == []
    assert bot.kinds(SOUND, SILENCE) == [STARTED, EventKind.AUDIO, EventKind.AUDIO]
    assert bot.kinds("bot-started-speaking", "bot-stopped-speaking")[-1] is DONE
    assert bot.kinds(SILENCE) == []


def test_an_interruption_clears_what_was_heard() -> None:
    bot = Bot()
    bot.speaks()
    cleared, done = bot.does("bot-interrupted")
    assert cleared.kind is EventKind.CLEAR
    assert (done.kind, done.status, done.message) == (DONE, "cancelled", "interrupted")
    assert bot.kinds("bot-interrupted", "bot-stopped-speaking", "bot-llm-stopped", "bot-tts-stopped") == []


def test_an_interruption_of_a_silent_bot_clears_nothing() -> None:
    bot = Bot()
    assert bot.kinds("bot-interrupted") == []
    bot.does("bot-llm-started")
    (done,) = bot.does("bot-interrupted")
    assert (done.kind, done.status) == (DONE, "cancelled")


def test_what_was_under_way_at_an_interruption_is_no_reply() -> None:
    bot = Bot()
    bot.speaks()
    bot.does("bot-interrupted")
    assert bot.kinds(SOUND) == []
    assert bot.kinds("bot-llm-text", text="late") == []
    assert bot.kinds("user-stopped-speaking", SOUND)[1:] == [STARTED, EventKind.AUDIO]


def test_a_stop_that_belongs_to_the_interrupted_reply_does_not_end_the_next() -> None:
    bot = Bot()
    bot.speaks()
    bot.does("bot-interrupted", "bot-stopped-speaking", "user-stopped-speaking", "bot-llm-started")
    assert bot.kinds("bot-llm-stopped") == []
    assert bot.kinds("bot-tts-started", SOUND, "bot-started-speaking")[0] is EventKind.AUDIO


def test_a_tool_call_without_speech_is_part_of_the_reply() -> None:
    bot = Bot()
    found = bot.kinds("bot-llm-started", "llm-function-call-started", "bot-llm-stopped", "llm-function-call-stopped")
    assert found == [STARTED]
    bot.speaks()
    (done,) = bot.does("bot-llm-stopped", "bot-tts-stopped", "bot-stopped-speaking")
    assert done.carried == {"audio", "tool_call"}
    assert not done.owes_response


def test_a_reply_that_called_a_tool_owes_another() -> None:
    bot = Bot()
    bot.speaks()
    (done,) = bot.does(
        "llm-function-call-started",
        "llm-function-call-in-progress",
        "bot-llm-stopped",
        "bot-tts-stopped",
        "bot-stopped-speaking",
    )
    assert done.owes_response
    assert bot.kinds("llm-function-call-stopped", "bot-llm-started") == [STARTED]


def test_an_older_bot_knows_only_the_names_of_its_time() -> None:
    bot = Bot()
    fields = {"text": "hello", "user_id": "u", "timestamp": "t", "final": True}
    assert bot.kinds("user-transcription", **fields) == [EventKind.ASR_FINAL]
    bot.does("bot-llm-started")
    assert [event.text for event in bot.does("bot-llm-text", "bot-llm-text", text="a")] == ["a", "a"]


def test_whichever_name_comes_first_counts() -> None:
    bot = Bot()
    fields = {"text": "hello", "input_type": "transcription", "final": True}
    assert bot.kinds("stt-raw-text", "user-input", "user-transcription", "stt-raw-text", **fields) == [
        EventKind.ASR_FINAL,
        EventKind.ASR_FINAL,
    ]


@pytest.mark.parametrize("input_type", ["chat", "backchannel"])
def test_what_was_typed_or_hummed_is_no_transcript(input_type: str) -> None:
    bot = Bot()
    fields = {"text": "mhm", "input_type": input_type, "final": True}
    assert bot.kinds("user-input", **fields) == []
    assert bot.kinds("user-transcription", **fields) == [EventKind.ASR_FINAL], "nor does it choose the name"


def test_partials_add_up_to_the_latest_and_begin_anew_after_a_final() -> None:
    bot = Bot()
    texts = [("tur", False), ("turn", False), ("turn", False), ("turn on", True), ("turn", False)]
    found = [bot.does("user-input", text=text, input_type="transcription", final=final) for text, final in texts]
    assert [[event.text for event in events] for events in found] == [["tur"], ["n"], [], ["turn on"], ["turn"]]


def test_the_first_of_several_channels_is_heard() -> None:
    session = RtviSession()
    left, right = b"\x01\x02", b"\xff\x7f"
    *_, event = session.audio("audio", (left + right) * 3, 48_000, 2)
    assert (event.audio, event.rate_hz) == (left * 3, 48_000)


def test_a_reply_goes_on_while_the_language_model_is_at_work() -> None:
    bot = Bot()
    bot.speaks()
    assert bot.kinds("bot-tts-stopped", "bot-stopped-speaking") == []
    assert bot.kinds("bot-llm-stopped") == [DONE]


def test_late_text_of_a_closed_reply_begins_no_other() -> None:
    bot = Bot()
    bot.speaks()
    bot.does("bot-llm-stopped", "bot-tts-stopped", "bot-stopped-speaking")
    assert bot.kinds("bot-llm-text", text="late") == []


def test_text_begins_a_reply_where_the_language_model_is_not_announced() -> None:
    assert Bot().kinds("llm-raw-text", text="hello") == [STARTED, EventKind.LLM_TEXT]


def test_an_interrupted_tool_call_owes_nothing() -> None:
    bot = Bot()
    bot.speaks()
    *_, done = bot.does("llm-function-call-started", "bot-interrupted")
    assert (done.status, done.owes_response) == ("cancelled", False)


def test_a_bot_is_ready_once() -> None:
    bot = Bot()
    assert bot.kinds("bot-ready", "bot-ready", version="2.2.0") == [EventKind.READY]


def test_a_message_of_the_bots_own_is_none_of_rtvi() -> None:
    found = RtviSession().receive(json.dumps({"type": "user-started-speaking"}))
    assert [event.kind for event in found] == [EventKind.UNKNOWN]

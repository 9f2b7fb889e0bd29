"""One stage service alone: what a turn is, and the replay of recorded partial transcripts."""

import json
from pathlib import Path
from typing import Any

import pytest

from loadtest.errors import UsageError
from loadtest.protocols.base import CallerOptions, EventKind, SpokenText
from tests.unit.loadtest.protocols.stages.services import FRAME_NS, Services, kinds


def test_the_language_model_alone_gets_the_text_that_the_caller_says() -> None:
    services = Services("llm")
    services.ready()
    services.say("turn it on")
    assert [request.url for request in services.requests] == ["http://gateway:4000/v1/chat/completions"]
    assert json.loads(services.last("completions").body)["messages"] == [{"role": "user", "content": "turn it on"}]
    services.begins()
    found = [*services.words("It is on.", why="stop"), *services.words_end()]
    assert kinds(found) == [EventKind.LLM_TEXT, EventKind.RESPONSE_DONE]
    hidden = services.caller.capabilities.not_observable
    assert {"voice_to_voice", "tts_first_chunk_latency", "asr_final_latency"} <= set(hidden)
    assert not {"llm_first_token_latency", "itl", "tokens_per_s", "time_to_first_sentence"} & set(hidden)


FRAME_MS = FRAME_NS / 1e6


def recorded(folder: Path, *lines: dict[str, Any]) -> Services:
    """A language model whose caller has a recording of these utterances."""
    file = folder / "partials.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    services = Services("llm", CallerOptions("manual", settings={"partials": str(file)}))
    services.ready()
    return services


def asked(services: Services, before: int) -> list[str]:
    return [json.loads(each.body)["messages"][-1]["content"] for each in services.requests[before:]]


def test_recorded_partials_are_sent_to_the_language_model_at_their_times(tmp_path: Path) -> None:
    partials = [[FRAME_MS, "turn"], [3 * FRAME_MS, "turn it"], [3 * FRAME_MS + 0.1, "turn it on"]]
    line = {"utterance": "u1", "partials": partials, "final": [4 * FRAME_MS, "turn it on please"]}
    services = recorded(tmp_path, line)
    services.take(services.caller.begin_turn(SpokenText("the reference", None, 2 * FRAME_NS, "u1")))
    sent: list[list[str]] = []
    for _ in range(8):
        before = len(services.requests)
        services.frame()
        sent.append(asked(services, before))
    # The first frame of speech is the third one; a partial is sent with the frame in which it was recognized.
    assert sent == [[], [], [], ["turn"], [], ["turn it on"], ["turn it on please"], []]
    assert len(services.canceled) == 2, "a newer partial gives up the answer to the one before it"
    services.take(services.caller.end_turn())
    assert asked(services, 0)[-1] == "turn it on please", "what was recognized, not what was said"
    assert len(services.requests) == 4


def test_a_recording_whose_last_words_came_after_the_speech_is_replayed_to_its_end(tmp_path: Path) -> None:
    services = recorded(tmp_path, {"utterance": "u1", "partials": [], "final": [4 * FRAME_MS, "turn it on"]})
    services.take(services.caller.begin_turn(SpokenText("turn it on", utterance_id="u1")))
    services.frame()
    services.take(services.caller.end_turn())
    assert services.requests == []
    for _ in range(3):
        services.frame()
    assert services.requests == []
    services.frame()
    assert asked(services, 0) == ["turn it on"]


def test_the_answer_to_a_part_is_no_reply(tmp_path: Path) -> None:
    partials = [[0.0, "turn"]]
    services = recorded(tmp_path, {"utterance": "u1", "partials": partials, "final": [3 * FRAME_MS, "turn it on"]})
    services.take(services.caller.begin_turn(SpokenText("turn it on", utterance_id="u1")))
    services.frame()
    services.take(services.caller.end_turn())
    early = [*services.begins(), *services.words("What shall I turn?", why="stop"), *services.words_end()]
    assert kinds(early) == [], "the turn is not over before its last words were recognized"
    for _ in range(3):
        services.frame()
    assert asked(services, 0) == ["turn", "turn it on"]
    found = [*services.begins(), *services.words("It is on.", why="stop"), *services.words_end()]
    assert kinds(found)[-2:] == [EventKind.LLM_TEXT, EventKind.RESPONSE_DONE]


def test_an_utterance_that_was_not_recorded_is_sent_as_it_is(tmp_path: Path) -> None:
    services = recorded(tmp_path, {"utterance": "u1", "partials": [], "final": [9000.0, "turn it on"]})
    services.take(services.caller.begin_turn(SpokenText("good night", utterance_id="u2")))
    services.frame()
    services.take(services.caller.end_turn())
    assert asked(services, 0) == ["good night"]


def test_other_protocols_have_nothing_to_replay(tmp_path: Path) -> None:
    recorded(tmp_path, {"utterance": "u1", "partials": [], "final": [1.0, "x"]})
    settings = {"partials": str(tmp_path / "partials.jsonl")}
    with pytest.raises(UsageError, match="http-cascade: the setting 'partials' is for the protocol llm alone"):
        Services("http-cascade", CallerOptions("manual", settings=settings))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "has no recorded utterance"),
        ("{}\n", "line 1 of .* is no recorded utterance"),
        ('\n{"utterance": "u", "partials": [["soon", "x"]], "final": [1, "x"]}', "line 2 of .*float.*str"),
        (
            '{"utterance": "u", "partials": [], "final": [1, "x"]}\n' * 2,
            "line 2 of .* there is a line for 'u' before it",
        ),
    ],
)
def test_a_file_that_is_no_recording_is_a_fault(content: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "partials.jsonl"
    file.write_text(content)
    with pytest.raises(UsageError, match=rf"llm: the setting 'partials' is not valid: .*{words}"):
        Services("llm", CallerOptions("manual", settings={"partials": str(file)}))
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        Services("llm", CallerOptions("manual", settings={"partials": str(tmp_path / "none")}))


def test_speech_synthesis_alone_speaks_the_text_of_the_turn() -> None:
    services = Services("tts")
    services.ready()
    services.say("It is on.")
    assert [request.url for request in services.requests] == ["http://gateway:4000/v1/audio/speech"]
    found = services.speech(b"\1\0" * 10)
    wanted = [EventKind.RESPONSE_STARTED, EventKind.AUDIO, EventKind.AUDIO_DONE, EventKind.RESPONSE_DONE]
    assert kinds(found) == wanted
    hidden = services.caller.capabilities.not_observable
    assert "voice_to_voice" not in hidden
    assert {"llm_first_token_latency", "wer", "asr_final_latency"} <= set(hidden)


def test_recognition_alone_ends_with_its_transcript() -> None:
    services = Services("asr")
    services.ready()
    services.say()
    found = services.heard("hello")
    assert kinds(found) == [EventKind.ASR_FINAL, EventKind.RESPONSE_STARTED, EventKind.RESPONSE_DONE]
    assert [request.url for request in services.requests] == ["http://gateway:4000/v1/audio/transcriptions"]
    hidden = services.caller.capabilities.not_observable
    assert "voice_to_voice" in hidden
    assert not {"asr_final_latency", "wer"} & set(hidden)


@pytest.mark.parametrize("limit", [None, 64, "64"])
def test_the_length_of_an_answer_can_be_limited(limit: int | str | None) -> None:
    settings = {} if limit is None else {"llm_max_tokens": limit}
    services = Services("llm", CallerOptions("manual", settings=settings))
    services.ready()
    services.say("turn it on")
    assert json.loads(services.last("completions").body).get("max_tokens") == (None if limit is None else 64)


def test_an_answer_has_at_least_one_token() -> None:
    with pytest.raises(
        UsageError, match=r"llm: the setting 'llm_max_tokens' is not valid: .*greater than or equal to 1"
    ):
        Services("llm", CallerOptions("manual", settings={"llm_max_tokens": 0}))

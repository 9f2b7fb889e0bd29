"""The caller of stage services, of a whole cascade and of one stage: which request follows from what."""

import email
import io
import json
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadtest.errors import UsageError
from loadtest.protocols.base import CallerOptions, EventKind, SpokenText
from loadtest.protocols.failure import Failure
from loadtest.protocols.http_items import HttpData, HttpEnd, HttpFailed, HttpHead
from loadtest.protocols.registry import make_caller
from tests.unit.loadtest.protocols.contract.line import kinds
from tests.unit.loadtest.protocols.stages.services import EVENT_STREAM, FRAME_NS, TRACE, Services, answering

# The session.


def test_each_service_is_asked_once_before_the_first_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPEECH_KEY", "own")
    options = CallerOptions(
        "manual", token="shared", settings={"tts_url": "https://speech.example/v1", "tts_key": "SPEECH_KEY"}
    )
    services = Services("http-cascade", options)
    urls = [request.url for request in services.requests]
    assert urls == ["http://gateway:4000/v1/models", "https://speech.example/v1/models"]
    keys = [dict(request.headers)["Authorization"] for request in services.requests]
    assert keys == ["Bearer shared", "Bearer own"]
    first, second = services.requests
    assert kinds(services.get(HttpHead(first.request_id, 200), HttpEnd(first.request_id))) == []
    assert kinds(services.get(HttpHead(second.request_id, 405))) == [EventKind.READY]


def test_a_service_that_cannot_be_reached_refuses_the_session() -> None:
    services = Services("llm")
    failure = Failure("tcp", "ECONNREFUSED")
    (error,) = services.get(HttpFailed(services.requests[0].request_id, "no service listens", failure))
    assert (error.kind, error.fatal, error.failure) == (EventKind.ERROR, True, failure)


def test_all_settings_faults_are_reported_without_values() -> None:
    settings = {"llm_url": "ftp://secret", "asr_rate_hz": 11_025, "tts_voise": "secret", "tts_rate_hz": "secret"}
    with pytest.raises(UsageError) as error:
        make_caller("http-cascade", CallerOptions("manual", settings=settings))
    lines = str(error.value).splitlines()
    assert len(lines) == 4
    assert any("there is no setting 'tts_voise'" in line and "tts_voice" in line for line in lines)
    assert any("'llm_url'" in line and "http://" in line for line in lines)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("given", ["NOT_SET_ANYWHERE", "sk-secret-itself", "BROKEN_KEY"])
def test_a_key_comes_from_the_environment_and_is_never_shown(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKEN_KEY", "sk-secret\n-itself")
    with pytest.raises(UsageError, match="'llm_key'") as error:
        make_caller("llm", CallerOptions("manual", settings={"llm_key": given}))
    assert "sk-" not in str(error.value)


# A turn of the cascade.


def test_utterance_is_sent_as_named_wav_file_with_trace() -> None:
    settings = {"asr_model": "whisper-1", "asr_language": "en", "asr_form": {"temperature": "0"}}
    services = Services("http-cascade", CallerOptions("manual", token="key", settings=settings))
    services.ready()
    services.frame()  # between turns: not a part of the utterance
    services.say(frames=4)
    request = services.last("/v1/audio/transcriptions")
    headers = dict(request.headers)
    assert headers["traceparent"] == TRACE
    assert headers["Authorization"] == "Bearer key"
    assert headers["X-Client-Request-Id"] == request.request_id == "0af7651916cd43dd8448eb211c80319c-1-asr"
    form = email.message_from_bytes(f"Content-Type: {headers['Content-Type']}\r\n\r\n".encode() + request.body)
    parts: dict[Any, Any] = {
        part.get_param("name", header="content-disposition"): part.get_payload(decode=True) for part in form.walk()
    }
    sent = {name: value.decode() for name, value in parts.items() if name not in (None, "file")}
    wanted = {"model": "whisper-1", "stream": "true", "response_format": "json", "language": "en", "temperature": "0"}
    assert sent == wanted
    with wave.open(io.BytesIO(parts["file"])) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (16_000, 1, 2)
        assert file.readframes(10_000) == np.tile(np.arange(320, dtype="<i2"), 4).tobytes()


def test_speech_begins_with_first_sentence_and_next_ones_wait() -> None:
    services = answering()
    services.words("It is mild")
    assert not [request for request in services.requests if request.url.endswith("speech")]
    services.words(" in Paris. Take")
    assert json.loads(services.last("speech").body)["input"] == "It is mild in Paris."
    first = services.last("speech")
    services.words(" a coat. Bye.", why="stop")
    services.words_end()
    assert services.last("speech") is first, "one sentence is spoken at a time"
    events = services.speech(b"\1\0" * 10)
    assert json.loads(services.last("speech").body)["input"] == "Take a coat."
    events += services.speech(b"\2\0" * 10)
    assert json.loads(services.last("speech").body)["input"] == "Bye."
    assert EventKind.RESPONSE_DONE not in kinds(events)
    events += services.speech(b"\3\0" * 10)
    assert b"".join(event.audio or b"" for event in events) == b"\1\0" * 10 + b"\2\0" * 10 + b"\3\0" * 10
    assert kinds(events)[-2:] == [EventKind.AUDIO_DONE, EventKind.RESPONSE_DONE]
    assert events[-1].carried == {"audio", "text"}
    assert len({event.response_id for event in events if event.response_id}) == 1
    for request in services.requests:
        assert dict(request.headers)["traceparent"] == TRACE
    names = [request.request_id for request in services.requests]
    assert len(set(names)) == len(names)


def test_gateway_report_and_usage_are_on_the_reply() -> None:
    services = Services("http-cascade")
    services.ready()
    services.say()
    services.heard("hi")
    name = services.last("completions").request_id
    headers = (*EVENT_STREAM, ("x-litellm-attempted-fallbacks", "2"), ("x-litellm-response-duration-ms", "12.5"))
    started, report = services.get(HttpHead(name, 200, headers))
    assert started.kind is EventKind.RESPONSE_STARTED
    assert started.metadata["voice.fallback"] == "model"
    assert report.kind is EventKind.SERVICE_REPORT
    assert report.service_ns == {"llm.response": 12_500_000}
    services.words("Yes.", why="stop")
    usage = {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
    services.words_end(usage)
    speech = services.last("speech").request_id
    cached = services.get(HttpHead(speech, 200, (("x-litellm-cache-key", "k"),)))
    done = services.get(HttpData(speech, b"\1\0"), HttpEnd(speech))[-1]
    assert (done.usage["cached_tokens"], done.usage["input_tokens"]) == (4, 9)
    assert done.usage["output_text_tokens"] == 2
    assert "voice.cache_hit" not in done.metadata, "a part of the prompt was cached, not an answer"
    assert "voice.route" not in done.metadata, "the route of a turn is that of its language model"
    assert cached[0].metadata["tts.x-litellm-cache-key"] == "k"


def test_the_language_model_gets_the_conversation_so_far() -> None:
    options = CallerOptions(
        "manual", model="m", settings={"llm_instructions": "Be brief.", "llm_body": {"temperature": 0}}
    )
    services = answering(options)
    services.words("Mild.", why="stop")
    services.words_end()
    services.speech(b"\1\0")
    services.say()
    services.heard("and tomorrow")
    body = json.loads(services.last("completions").body)
    assert body["model"] == "m"
    assert body["temperature"] == 0
    assert body["stream_options"] == {"include_usage": True}
    assert [(message["role"], message["content"]) for message in body["messages"]] == [
        ("system", "Be brief."),
        ("user", "what is the weather"),
        ("assistant", "Mild."),
        ("user", "and tomorrow"),
    ]


def test_stages_at_different_addresses_with_different_models() -> None:
    settings = {
        "asr_url": "http://asr:1/v1/",
        "llm_url": "http://llm:2/v1",
        "tts_url": "http://tts:3/api",
        "llm_model": "big",
        "tts_model": "loud",
        "tts_voice": "nova",
        "tts_stream_format": "sse",
    }
    services = answering(CallerOptions("manual", settings=settings))
    services.words("Yes. Or", why="stop")
    posts = [request.url for request in services.requests]
    assert posts == [
        "http://asr:1/v1/audio/transcriptions",
        "http://llm:2/v1/chat/completions",
        "http://tts:3/api/audio/speech",
    ]
    wanted = {"model": "loud", "voice": "nova", "input": "Yes.", "response_format": "pcm", "stream_format": "sse"}
    assert json.loads(services.last("speech").body) == wanted


# Interruptions.


def test_interruption_cancels_requests_and_reply_is_canceled() -> None:
    services = answering()
    services.words("One. Two. Three.")
    old, speech = services.last("completions").request_id, services.last("speech").request_id
    services.get(HttpHead(speech, 200), HttpData(speech, b"\1\0"))
    services.take(services.caller.interrupt(120))
    assert set(services.canceled) == {old, speech}
    services.say()
    events = services.heard("stop")
    assert (events[0].kind, events[0].status) == (EventKind.RESPONSE_DONE, "cancelled")
    assert kinds(services.get(HttpData(old, b"data: late\n\n"))) == []
    services.begins()
    assert kinds(services.words("Fine. ")) == [EventKind.LLM_TEXT]
    messages = json.loads(services.last("completions").body)["messages"]
    assert messages[1]["content"] == "One. Two. Three.", "what was begun to be said is part of the conversation"


def test_new_turn_cancels_answer_still_running_for_the_last() -> None:
    services = answering()
    running = services.last("completions").request_id
    services.say()
    assert services.canceled == [running]


def test_a_goodbye_cancels_what_runs() -> None:
    services = answering()
    services.take(services.caller.goodbye())
    assert services.canceled == [services.last("completions").request_id]


# What goes wrong.


def test_a_recognizer_that_fails_ends_the_turn_with_its_words() -> None:
    services = Services("http-cascade")
    services.ready()
    services.say()
    name = services.last("transcriptions").request_id
    body = HttpData(name, b'{"error": {"message": "too loud"}}')
    events = services.get(HttpHead(name, 400), body, HttpEnd(name))
    assert kinds(events) == [EventKind.ASR_FAILED, EventKind.RESPONSE_STARTED, EventKind.RESPONSE_DONE]
    assert events[-1].status == "failed"
    assert events[-1].failure == Failure("http_status", "400")
    assert "too loud" in (events[-1].message or "")


@pytest.mark.parametrize("stage", ["completions", "speech"])
def test_failed_stage_fails_reply_and_cancels_the_others(stage: str) -> None:
    services = answering()
    services.words("One. Two.")
    failure = Failure("tcp", "ECONNRESET")
    events = services.get(HttpFailed(services.last(stage).request_id, "the connection broke", failure))
    assert (events[-1].kind, events[-1].status, events[-1].failure) == (EventKind.RESPONSE_DONE, "failed", failure)
    other = {"completions": "speech", "speech": "completions"}[stage]
    assert services.canceled == [services.last(other).request_id]
    services.say()
    assert kinds(services.heard("again")) == [EventKind.ASR_FINAL], "the conversation goes on"


def test_a_key_that_is_refused_in_a_turn_ends_the_call() -> None:
    services = answering()
    services.words("One. Two.")
    name = services.last("speech").request_id
    events = services.get(HttpHead(name, 401), HttpEnd(name))
    assert [event.fatal for event in events if event.kind is EventKind.ERROR] == [True]
    assert [event.status for event in events if event.kind is EventKind.RESPONSE_DONE] == ["cancelled"]


def test_silence_recognized_as_nothing_gets_empty_reply() -> None:
    services = Services("http-cascade")
    services.ready()
    services.say()
    events = services.heard("  ")
    assert kinds(events) == [EventKind.ASR_FINAL, EventKind.RESPONSE_STARTED, EventKind.RESPONSE_DONE]
    assert events[-1].carried == frozenset()


def test_an_answer_that_was_cut_by_its_length_is_incomplete() -> None:
    services = Services("llm")
    services.ready()
    services.say("tell me everything")
    services.begins()
    services.words("It all", why="length")
    done = services.words_end()[0]
    assert (done.kind, done.status, done.message) == (EventKind.RESPONSE_DONE, "incomplete", "length")


def test_llm_protocol_sends_caller_text_to_model_only() -> None:
    services = Services("llm")
    services.ready()
    services.say("turn it on")
    assert [request.url for request in services.requests] == ["http://gateway:4000/v1/chat/completions"]
    assert json.loads(services.last("completions").body)["messages"] == [{"role": "user", "content": "turn it on"}]
    services.begins()
    events = [*services.words("It is on.", why="stop"), *services.words_end()]
    assert kinds(events) == [EventKind.LLM_TEXT, EventKind.RESPONSE_DONE]
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
    return [json.loads(request.body)["messages"][-1]["content"] for request in services.requests[before:]]


def test_recorded_partials_are_sent_to_model_at_their_times(tmp_path: Path) -> None:
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


def test_recording_that_outlasts_speech_is_replayed_to_its_end(tmp_path: Path) -> None:
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
    events = [*services.begins(), *services.words("It is on.", why="stop"), *services.words_end()]
    assert kinds(events)[-2:] == [EventKind.LLM_TEXT, EventKind.RESPONSE_DONE]


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
    events = services.speech(b"\1\0" * 10)
    wanted = [EventKind.RESPONSE_STARTED, EventKind.AUDIO, EventKind.AUDIO_DONE, EventKind.RESPONSE_DONE]
    assert kinds(events) == wanted
    hidden = services.caller.capabilities.not_observable
    assert "voice_to_voice" not in hidden
    assert {"llm_first_token_latency", "wer", "asr_final_latency"} <= set(hidden)


def test_recognition_alone_ends_with_its_transcript() -> None:
    services = Services("asr")
    services.ready()
    services.say()
    events = services.heard("hello")
    assert kinds(events) == [EventKind.ASR_FINAL, EventKind.RESPONSE_STARTED, EventKind.RESPONSE_DONE]
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

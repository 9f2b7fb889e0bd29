"""The ground-truth endpoint without sockets: the frames it receives, what it sends and when, and what it records."""

import itertools
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest
from numpy.typing import NDArray
from websockets.http11 import Request
from websockets.server import ServerProtocol

from corpora.annotation.bounds import SpeechBounds
from corpora.manifest.edges import set_edges
from corpora.manifest.library import open_corpus
from corpora.manifest.manifest import Edges
from corpora.rendering.render import Profile, render
from corpora.sources import authoring
from loadtest.calibration import calibration
from loadtest.calibration.annotation_errors import annotation_errors
from loadtest.conversation.prepared_clip import PreparedClip, prepare_positions
from loadtest.errors import UsageError
from loadtest.protocols.base import CallerOptions, EventKind, OpenRequest, VoiceEvent
from loadtest.protocols.openai_realtime.caller import OpenAIRealtimeCaller
from loadtest.protocols.transports.websocket import WebSocketClient
from loadtest.targets.ground_truth.command import parse_delays
from loadtest.targets.ground_truth.conversation import GroundTruthConversation, Send, reply_audio, samples_in
from loadtest.targets.ground_truth.frames import SILENCE, FrameCutter, Kind, audio_frame, samples_of
from loadtest.targets.ground_truth.plan import (
    BEHAVIORS,
    EARLIEST_NS,
    MS,
    Behavior,
    GroundTruthTurn,
    Player,
    ReplyPlanner,
    certain,
    check_behavior,
    spoken_at,
)
from loadtest.targets.ground_truth.speech import (
    BOUNDS,
    FRAME_SAMPLES,
    LEAD_FRAMES,
    RATE_HZ,
    SPEECH_FRAMES,
    burst,
    utterance_pcm,
    write_calibration_corpus,
)
from telemetry.model.turns import Turn

FRAME_NS = 20 * MS
DELAYS = (50 * MS, 800 * MS)


def speech_frames(number: int) -> list[bytes]:
    """Return the frames of an utterance that contain speech."""
    pcm, _, _ = utterance_pcm(number)
    frames = [audio_frame(pcm[at : at + FRAME_SAMPLES]) for at in range(0, len(pcm), FRAME_SAMPLES)]
    return frames[LEAD_FRAMES : LEAD_FRAMES + SPEECH_FRAMES]


def speak(
    conversation: GroundTruthConversation, number: int = 0, begin_perf_ns: int = 10**12
) -> tuple[list[Send], int]:
    """Send an utterance; return what the endpoint schedules, and when the last speech frame arrived."""
    sends: list[Send] = []
    moment = begin_perf_ns
    for index, frame in enumerate(speech_frames(number)):
        moment = begin_perf_ns + index * FRAME_NS
        sends += conversation.on_speech(frame, moment, True)
    return sends, moment


def conversation(behavior: Behavior = "plain") -> GroundTruthConversation:
    return GroundTruthConversation(0, "name", behavior, DELAYS, 1)


def decoded(sends: list[Send]) -> list[VoiceEvent]:
    """Decode the bytes with the callers' own protocol, in sending order."""
    client = WebSocketClient(OpenRequest("ws://127.0.0.1/"))
    server = ServerProtocol()
    server.receive_data(client.start())
    (upgrade,) = server.events_received()
    assert isinstance(upgrade, Request)
    server.send_response(server.accept(upgrade))
    client.receive(b"".join(server.data_to_send()))
    caller = OpenAIRealtimeCaller(CallerOptions())
    return [
        event
        for send in sorted(sends, key=lambda send: send.due_perf_ns)
        for item in client.receive(send.data)
        if isinstance(item, str)
        for event in caller.receive(item)
    ]


# Received frames.


class Corpora(Protocol):
    """Calibration corpora, each written once: those whose detector of ends is so late, with edges of a kind."""

    def __call__(self, late_ms: int = 0, edges: Edges | None = None) -> Path: ...


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Corpora:
    find = authoring.find_speech_bounds

    @cache
    def written(late_ms: int = 0, edges: Edges | None = None) -> Path:
        def late(samples: NDArray[np.float64], rate_hz: int) -> SpeechBounds:
            match = find(samples, rate_hz)
            return replace(match, end_sample=match.end_sample + late_ms * rate_hz // 1000)

        folder = tmp_path_factory.mktemp("calibration") / "corpus"
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(authoring, "find_speech_bounds", late)
            write_calibration_corpus(folder)
        if edges is not None:
            set_edges(folder, edges)
        return folder

    return written


@pytest.mark.parametrize("number", range(len(BOUNDS)))
def test_callers_send_the_utterance_sample_for_sample(corpora: Corpora, number: int) -> None:
    corpus = open_corpus(str(corpora()))
    rendered = render(corpus, corpus.utterances[number], Profile(), RATE_HZ, 1)
    nonzero = np.flatnonzero(rendered.pcm)
    _, first, last = utterance_pcm(number)
    assert (nonzero[0], nonzero[-1]) == (first, last)
    assert len(nonzero) == nonzero[-1] - nonzero[0] + 1  # no sample of the burst is silent, so no frame of it is
    assert nonzero[0] // FRAME_SAMPLES == LEAD_FRAMES
    assert nonzero[-1] // FRAME_SAMPLES == LEAD_FRAMES + SPEECH_FRAMES - 1


@pytest.mark.parametrize("size", [1, 7, len(SILENCE), 3000, 10**6])
def test_any_split_of_the_stream_gives_the_same_frames(size: int) -> None:
    speech, ping = audio_frame(burst(FRAME_SAMPLES, 3)), b"\x89\x80abcd"
    stream = SILENCE + speech + ping + SILENCE
    cutter = FrameCutter()
    frames = [frame for at in range(0, len(stream), size) for frame in cutter.cut(stream[at : at + size])]
    assert [frame.kind for frame in frames] == [Kind.SILENCE, Kind.SPEECH, Kind.OTHER, Kind.SILENCE]
    assert b"".join(frame.data for frame in frames) == stream
    assert frames[-1].is_last
    assert cutter.is_between_frames


def test_only_the_last_frame_of_a_read_has_its_own_timestamp() -> None:
    chunks = FrameCutter().cut(SILENCE + SILENCE + SILENCE[:5])
    assert [frame.is_last for frame in chunks] == [False, False]
    assert [frame.is_last for frame in FrameCutter().cut(SILENCE + SILENCE)] == [False, True]


def test_a_frame_decodes_to_its_samples() -> None:
    pcm = burst(FRAME_SAMPLES, 5)
    assert np.array_equal(samples_of(audio_frame(pcm)), pcm)


# The true end of speech.


def measured_turn(corpus_folder: Path, number: int) -> tuple[Turn, dict[str, Any]]:
    """Return a turn of a caller that relies on the corpus, and the ground truth from the frames that it sends.

    Nothing is late, and only the annotation can be wrong.
    """
    corpus = open_corpus(str(corpus_folder))
    utterance = corpus.utterances[number]
    rendered = render(corpus, utterance, Profile(), RATE_HZ, 1)
    starts, ends = prepare_positions(rendered, FRAME_SAMPLES)
    frames = [audio_frame(rendered.pcm[at : at + FRAME_SAMPLES]) for at in range(0, len(rendered.pcm), FRAME_SAMPLES)]
    clip = PreparedClip(rendered, frames, FRAME_SAMPLES, starts, ends)
    talk, sends = conversation(), list[Send]()
    sent = [10**12 + index * FRAME_NS for index in range(len(frames))]
    for cut, moment in zip(FrameCutter().cut(b"".join(frames)), sent, strict=True):
        if cut.kind is Kind.SPEECH:
            sends += talk.on_speech(cut.data, moment, True)
        else:
            talk.on_silence()
    for send in sends:
        for samples in send.chunks:
            send.turn.note_chunk(samples, send.due_perf_ns, send.due_perf_ns)
    known = sends[0].turn
    turn = Turn(
        run_id="run",
        call_id="call",
        turn_index=0,
        source="client",
        outcome="ok",
        started_unix_ns=10**18,
        started_perf_ns=sent[0],
        utterance_id=utterance.id,
        response_id=known.response_id,
        speech_start_perf_ns=clip.moment_perf_ns(rendered.speech_start_sample, starts, sent[starts]),
        speech_end_perf_ns=clip.moment_perf_ns(rendered.speech_end_sample, ends, sent[ends]),
        speech_start_uncertainty_ns=rendered.speech_start_uncertainty_ns,
        speech_end_uncertainty_ns=rendered.speech_end_uncertainty_ns,
        first_audio_perf_ns=known.first_audio_perf_ns,
    )
    return turn, known.row()


@pytest.mark.parametrize("edges", ["exact", "recorded"])
@pytest.mark.parametrize("number", range(len(BOUNDS)))
def test_a_correct_annotation_leaves_only_its_stated_error(corpora: Corpora, number: int, edges: Edges) -> None:
    turn, row = measured_turn(corpora(edges=edges), number)
    annotated = annotation_errors(corpora(edges=edges))[f"calibration-{number}"]
    samples = calibration.samples_of(turn, row, annotated)
    assert (turn.speech_end_uncertainty_ns == 0) == (edges == "exact")
    assert turn.speech_end_uncertainty_ns is not None
    rounding_ns = 10**9 // RATE_HZ
    assert abs(samples["voice_to_voice"].error_ns) <= turn.speech_end_uncertainty_ns + rounding_ns
    assert edges == "recorded" or annotated.end_ns == 0
    assert abs(samples["instrument"].error_ns) <= 10**9 // RATE_HZ  # rounding of samples to nanoseconds
    assert not calibration.is_beyond(turn, annotated)


@pytest.mark.parametrize("late_ms", [-50, 50])
@pytest.mark.parametrize("number", range(len(BOUNDS)))
def test_detector_50_ms_off_gives_50_ms_voice_to_voice_error(corpora: Corpora, number: int, late_ms: int) -> None:
    right = calibration.samples_of(*measured_turn(corpora(0, "recorded"), number))["voice_to_voice"].error_ns
    if late_ms > 0:
        # What follows the speech is digital silence, which is never certainly speech.
        exact = calibration.samples_of(*measured_turn(corpora(late_ms), number))["voice_to_voice"].error_ns
        assert abs(exact) <= 10**9 // RATE_HZ
    turn, row = measured_turn(corpora(late_ms, "recorded"), number)
    error_ns = calibration.samples_of(turn, row)["voice_to_voice"].error_ns
    assert error_ns - right == pytest.approx(-late_ms * MS, abs=2)
    # The report attributes the error to the annotation, and fails if it is larger than stated.
    annotated = annotation_errors(corpora(late_ms, "recorded"))[f"calibration-{number}"]
    samples = calibration.samples_of(turn, row, annotated)
    assert samples["annotation"].error_ns == pytest.approx(late_ms * MS, abs=2.1 * MS)
    assert abs(samples["instrument"].error_ns) <= 10**9 // RATE_HZ
    stated_ns = turn.speech_end_uncertainty_ns
    assert stated_ns is not None
    assert calibration.is_beyond(turn, annotated) == (abs(annotated.end_ns) > stated_ns)


# Answers and ground truth.


@pytest.mark.parametrize("number", range(len(BOUNDS)))
def test_the_truth_is_when_the_samples_were_spoken(number: int) -> None:
    begin = 10**12
    sends, end = speak(conversation(), number, begin)
    turn = sends[0].turn
    first, last = BOUNDS[number]
    assert turn.speech_start_perf_ns == begin - (FRAME_SAMPLES - first) * 10**9 // RATE_HZ
    assert turn.speech_end_perf_ns == end - (FRAME_SAMPLES - last) * 10**9 // RATE_HZ
    assert turn.unsure == []


def test_every_send_is_planned_from_the_last_speech_sample() -> None:
    sends, _ = speak(conversation())
    turn, plan = sends[0].turn, sends[0].turn.plan
    assert turn.speech_end_perf_ns is not None
    due = {mark: send.due_perf_ns - turn.speech_end_perf_ns for send in sends for mark in send.marks}
    assert due["endpoint"] == plan.endpoint_ns
    assert due["asr_final"] == plan.final_ns
    assert due["llm_first_token"] == plan.first_token_ns
    assert due["tts_first_chunk"] == plan.first_chunk_ns
    assert due["done"] == max(due.values())


@pytest.mark.parametrize("behavior", BEHAVIORS)
def test_callers_decode_every_behavior(behavior: Behavior) -> None:
    sends, _ = speak(conversation(behavior))
    turn = sends[0].turn
    events = decoded(sends)
    kinds = [event.kind for event in events]
    for kind in (EventKind.SPEECH_STARTED, EventKind.SPEECH_STOPPED, EventKind.ASR_PARTIAL, EventKind.ASR_FINAL):
        assert kinds.count(kind) == 1, kind
    assert {event.response_id for event in events if event.kind is EventKind.LLM_TEXT} == {turn.response_id}
    audio = b"".join(event.audio or b"" for event in events if event.kind is EventKind.AUDIO)
    samples = np.frombuffer(audio, "<i2")
    assert np.flatnonzero(samples)[0] == samples_in(turn.plan.leading_silence_ns)
    assert samples[-1] != 0
    assert events[-1].kind is EventKind.RESPONSE_DONE
    assert events[-1].status == "completed"


def test_an_answer_in_one_segment_is_one_send_with_every_mark() -> None:
    sends, _ = speak(conversation("coalesced"))
    answer = sends[-1]
    assert {"endpoint", "asr_final", "llm_first_token", "tts_first_chunk", "done"} <= set(answer.marks)
    assert len(answer.chunks) == 2


def test_a_timestamp_of_a_later_frame_is_not_certain() -> None:
    talk = conversation()
    frames = speech_frames(0)
    (first, *_) = talk.on_speech(frames[0], 1000, False)
    for frame in frames[1:-1]:
        assert talk.on_speech(frame, 2000, True) == []
    assert talk.on_speech(frames[-1], 3000, False)
    assert first.turn.unsure == ["speech_start", "speech_end"]
    assert first.turn.frames_perf_ns[0] is None


def test_incomplete_speech_is_counted_and_never_answered() -> None:
    talk = conversation()
    talk.on_silence()
    assert talk.broken_turns == 0
    talk.on_speech(speech_frames(0)[0], 1000, True)
    talk.on_silence()
    assert talk.broken_turns == 1
    sends, _ = speak(talk)
    assert sends[0].turn.number == 1


def planned_turn(behavior: Behavior = "plain", leading_ns: int | None = None) -> GroundTruthTurn:
    plan = ReplyPlanner(DELAYS, behavior, 1, 0).turn()
    if leading_ns is not None:
        plan = plan.__class__(
            **{**{name: getattr(plan, name) for name in plan.__slots__}, "leading_silence_ns": leading_ns}
        )
    return GroundTruthTurn("resp", 0, 0, behavior, plan, Player())


def test_the_first_audible_sample_may_be_in_a_later_chunk() -> None:
    turn = planned_turn(leading_ns=150 * MS)
    hundred_ms = RATE_HZ // 10
    turn.note_chunk(hundred_ms, 1_000_000_000, 1_000_010_000)
    assert turn.first_audio_perf_ns is None
    turn.note_chunk(hundred_ms, 1_050_000_000, 1_050_010_000)
    assert turn.first_audio_perf_ns == 1_150_000_000  # after the first chunk, 50 ms into the second
    assert turn.reply_end_perf_ns == 1_200_000_000 - 10**9 // RATE_HZ - 1
    assert turn.underruns_ns == []


def test_a_late_chunk_makes_the_player_run_dry() -> None:
    turn = planned_turn(leading_ns=0)
    turn.note_chunk(RATE_HZ // 10, 1_000_000_000, 1_000_010_000)
    turn.note_chunk(RATE_HZ // 10, 1_130_000_000, 1_130_010_000)
    assert turn.underruns_ns == [30_000_000]
    assert turn.row()["underrun_total_ns"] == 30_000_000


def test_a_reply_waits_for_the_one_that_is_playing() -> None:
    player = Player(until_perf_ns=5_000_000_000)
    turn = planned_turn(leading_ns=0)
    turn.player = player
    turn.note_chunk(RATE_HZ // 10, 4_900_000_000, 4_900_010_000)
    assert turn.first_audio_perf_ns == 5_000_000_000
    assert turn.row()["leading_silence_ns"] == 0


def test_a_wide_interval_is_not_certain() -> None:
    assert certain(0, 400_000)
    assert not certain(0, 600_000)
    assert not certain(0, None)
    turn = planned_turn(leading_ns=0)
    turn.note_sent("asr_final", 0, 700_000, 0)
    turn.note_sent("endpoint", 0, 7_000, 0)
    turn.note_chunk(10, 0, None)
    assert turn.row()["unsure"] == ["asr_final", "first_audio", "reply_end"]


def test_lateness_is_relative_to_the_most_punctual_frame() -> None:
    turn = planned_turn()
    turn.frames_perf_ns = [5 * MS, None, 5 * MS + 2 * FRAME_NS + 300_000]
    assert turn.lateness_ns() == [0, 300_000]


def test_a_sample_is_spoken_before_its_frame_is_sent() -> None:
    assert spoken_at(0, 100 * MS) == 80 * MS
    assert spoken_at(240, 100 * MS) == 90 * MS


# The plan.


def test_same_seed_gives_same_plan_with_balanced_delays() -> None:
    one, other = (ReplyPlanner(DELAYS, "plain", 7, 3) for _ in range(2))
    turns = [one.turn() for _ in range(20)]
    assert turns == [other.turn() for _ in range(20)]
    assert [sum(turn.voice_to_voice_ns == delay for turn in turns) for delay in DELAYS] == [10, 10]
    assert turns != [ReplyPlanner(DELAYS, "plain", 7, 4).turn() for _ in range(20)]


@pytest.mark.parametrize("behavior", BEHAVIORS)
def test_a_plan_is_consistent(behavior: Behavior) -> None:
    planner = ReplyPlanner((50 * MS, 200 * MS, 2000 * MS), behavior, 1, 0)
    for turn in (planner.turn() for _ in range(50)):
        assert EARLIEST_NS <= turn.endpoint_ns <= turn.final_ns <= turn.first_token_ns <= turn.first_chunk_ns
        assert turn.first_chunk_ns + turn.leading_silence_ns == turn.voice_to_voice_ns
        assert turn.leading_silence_ns % MS == 0
        assert turn.partial_ns < SPEECH_FRAMES * FRAME_NS
        assert turn.chunks[0].after_ns == 0
        assert all(a.after_ns <= b.after_ns for a, b in itertools.pairwise(turn.chunks))


def test_late_chunks_cause_underruns_and_punctual_ones_do_not() -> None:
    def runs_dry(behavior: Behavior) -> bool:
        turn = planned_turn(behavior)
        for chunk in turn.plan.chunks:
            turn.note_chunk(samples_in(chunk.audio_ns), chunk.after_ns, chunk.after_ns)
        return bool(turn.underruns_ns)

    assert runs_dry("jitter")
    assert not any(runs_dry(name) for name in ("plain", "burst", "long", "silence", "coalesced"))


def test_silence_only_precedes_a_reply() -> None:
    assert reply_audio(10, 0, 10) == reply_audio(99, 0, 10)
    assert reply_audio(0, 0, 10) == reply_audio(10, 10, 10)
    assert reply_audio(5, 0, 10) != reply_audio(0, 0, 10)


@pytest.mark.parametrize("text", ["", "50ms,", "x", "-50ms", "50ms;60ms", "50ms,soon"])
def test_invalid_delays_are_rejected(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--delays .* is not a duration: .*; separate several by commas$"):
        parse_delays(text)


@pytest.mark.parametrize("text", ["70", "5ms", "29ms", "50.5ms", "61s", "50ms,90000"])
def test_delays_out_of_range_are_rejected(text: str) -> None:
    with pytest.raises(UsageError, match=r"from 30ms to 1m in whole milliseconds, separated by commas$"):
        parse_delays(text)


def test_delays_and_behaviors_are_parsed() -> None:
    assert parse_delays("50ms, 200ms") == (50 * MS, 200 * MS)
    assert parse_delays("30ms,0.5,1m") == (30 * MS, 500 * MS, 60_000 * MS)
    assert check_behavior("burst") == "burst"
    with pytest.raises(UsageError, match="bursts"):
        check_behavior("bursts")

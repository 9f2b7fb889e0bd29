"""A finished exchange becomes a turn by the definitions of telemetry.model.metrics."""

from dataclasses import replace

import msgspec
import pytest

from corpora.rendering.profiles.impairments import Jitter, PacketLoss
from corpora.rendering.profiles.profile import Profile
from corpora.rendering.render import Obtained
from loadtest.conversation.evidence import Evidence, Pacing, ValidityLimits
from loadtest.conversation.exchange import Exchange
from loadtest.conversation.playout import PlayoutBuffer
from loadtest.conversation.record import CallInfo, RecordOptions, build_turn, fixed_cadence
from loadtest.conversation.timeline import Reply, Timeline
from loadtest.conversation.transcripts import word_errors
from loadtest.protocols.base import EventKind
from loadtest.protocols.failure import Failure
from loadtest.protocols.webrtc_items import PeerAudio, PeerReport
from telemetry.model import semconv
from telemetry.model.bounds import metric_bounds
from telemetry.model.metrics import METRICS
from tests.invalid_turns import assert_reasons_are_shown
from tests.unit.loadtest.conversation.world import MS, World, audio, event, make_plan, reply, silence, tone

T = 10_000 * MS  # speech_start
END = T + 1_000 * MS  # speech_end

CALL = CallInfo(
    run_id="run",
    call_id="call",
    scenario=None,
    noise_profile="clean",
    channel_profile="clean",
    protocol="openai-realtime",
    target="ws://127.0.0.1:1/v1/realtime",
    region=None,
    cohort=None,
    model=None,
    onset_preset="rms-10ms",
    connect_ns=12 * MS,
    start_late_ns=None,
    receive_stamp="kernel",
    pacer="timerfd",
    not_observable={},
)
OPTIONS = RecordOptions(
    ValidityLimits(), keep_transcripts=False, word_errors=word_errors, unix_ns=lambda perf: perf + 7
)


def paced(*lateness_ns: int) -> Pacing:
    """The pacing of an utterance whose frames of 20 ms went so late."""
    pacing = Pacing()
    pacing.begin(T, 20 * MS)
    pacing.lateness_ns += lateness_ns
    pacing.end_speech()
    return pacing


def exchange(index: int = 0) -> Exchange:
    """An exchange whose stages come at round times after speech_end."""
    speaker, timeline = PlayoutBuffer("rms-10ms"), Timeline(frozenset())
    timeline.speech_start_perf_ns, timeline.speech_end_perf_ns = T, END
    timeline.speech_end_audio_ns = 3_000 * MS
    for kind, after_ms, fields in (
        (EventKind.SPEECH_STARTED, -990, {}),
        (EventKind.ASR_PARTIAL, -600, {"text": "turn"}),
        (EventKind.SPEECH_STOPPED, 200, {"item_id": "i"}),
        (EventKind.ASR_FINAL, 260, {"text": "Turn the light off.", "item_id": "i"}),
        (EventKind.RESPONSE_STARTED, 270, {"response_id": "r1"}),
        (EventKind.LLM_TEXT, 360, {"response_id": "r1", "text": "The light"}),
        (EventKind.LLM_TEXT, 400, {"response_id": "r1", "text": " is on."}),
        (EventKind.LLM_TEXT, 450, {"response_id": "r1", "text": " Anything else?"}),
    ):
        timeline.note(event(kind, **fields), END + after_ms * MS)
    for after_ms, pcm in ((500, silence(50) + tone(950)), (700, tone(1_000))):
        chunk = audio(pcm)
        noted = timeline.note(chunk, END + after_ms * MS)
        assert noted is not None
        noted.hear(speaker, chunk, END + after_ms * MS)
    done = event(
        EventKind.RESPONSE_DONE,
        response_id="r1",
        status="completed",
        metadata={
            semconv.META_CACHE_TIER: "edge",
            semconv.META_CACHE_HIT: "true",
            semconv.META_ROUTE: "cache",
            semconv.META_COHORT: "treatment",
            semconv.META_USER: "user-7",
            semconv.META_FALLBACK: "nonsense",
        },
        usage={"output_text_tokens": 9},
    )
    timeline.note(done, END + 710 * MS)
    evidence = Evidence(start_later_ns=1_000, end_later_ns=3_000, unsent_bytes_at_speech_end=0)
    evidence.pacing.begin(T, 20 * MS)
    evidence.pacing.lateness_ns += [100_000] * 60 + [300_000]
    evidence.pacing.end_speech()
    evidence.pacing.lateness_ns.append(400_000)
    evidence.note_receive_lag(50_000)
    planned = make_plan().turns[0]
    return Exchange(
        index, planned, timeline, T - 100 * MS, evidence, outcome="ok", reason=None, ended_perf_ns=END + 2_600 * MS
    )


def test_each_stage_is_measured_by_its_definition() -> None:
    turn = build_turn(exchange(), CALL, OPTIONS)
    values = {name: metric.value(turn) for name, metric in METRICS.items()}
    ms = {name: value / MS for name, value in values.items() if value is not None and METRICS[name].unit == "ns"}
    assert ms.pop("voice_to_voice") == pytest.approx(550, abs=1)
    assert ms.pop("leading_silence") == pytest.approx(50, abs=1)
    assert ms == {
        "endpointing": 200,
        "asr_partial_latency": 400,
        "asr_final_latency": 260,
        "llm_first_token_latency": 360,
        "llm_ttft": 100,
        "tts_first_chunk_latency": 140,
        "time_to_first_sentence": 400,
        "connect": 12,
        "talk_over": 0,
        "underrun_worst": 0,
        "underrun_total": 0,
    }
    assert values["wer"] == 1 / 4
    assert (turn.wer_errors, turn.wer_reference_words, turn.wer_reference_characters) == (1, 4, 0)
    assert values["tokens_per_chunk"] == 3
    assert values["audio_rtfx"] == pytest.approx(2_000 / 200)
    assert turn.llm_chunk_gaps_ns == (40 * MS, 50 * MS)
    assert turn.outcome == "ok"
    assert turn.speech_end_audio_ns == 3_000 * MS
    assert turn.started_unix_ns == turn.started_perf_ns + 7


@pytest.mark.parametrize(
    ("usage", "share"),
    [
        ({"input_tokens": 50, "cached_tokens": 1}, 0.02),
        ({"input_tokens": 50, "cached_tokens": 0}, 0.0),
        ({"input_tokens": 50, "cached_tokens": 50}, 1.0),
        ({"input_tokens": 50}, None),
        ({"cached_tokens": 1}, None),
        ({"input_tokens": 0, "cached_tokens": 0}, None),
        ({"input_tokens": 4, "cached_tokens": 9}, None),
    ],
)
def test_the_cached_tokens_of_a_prompt_are_a_share_and_no_hit(usage: dict[str, int], share: float | None) -> None:
    answered = exchange()
    done = event(EventKind.RESPONSE_DONE, response_id="r1", status="completed", usage=usage)
    answered.timeline.note(done, END + 720 * MS)
    turn = build_turn(answered, CALL, OPTIONS)
    assert (turn.llm_input_tokens, turn.llm_cached_tokens) == (usage.get("input_tokens"), usage.get("cached_tokens"))
    assert METRICS["prompt_cached"].value(turn) == share


def test_end_of_speech_is_exact_where_words_are_sent_as_text() -> None:
    spoken = build_turn(exchange(), CALL, OPTIONS)
    assert spoken.speech_end_uncertainty_ns != 0
    turn = build_turn(exchange(), replace(CALL, sends_speech="as_text"), OPTIONS)
    assert (turn.speech_start_uncertainty_ns, turn.speech_end_uncertainty_ns) == (0, 0)
    assert build_turn(exchange(), replace(CALL, sends_speech="when_over"), OPTIONS).speech_end_uncertainty_ns != 0


def test_partial_has_no_latency_where_audio_is_sent_at_end() -> None:
    turn = build_turn(exchange(), replace(CALL, sends_speech="when_over"), OPTIONS)
    assert METRICS["asr_partial_latency"].value(turn) is None
    assert METRICS["asr_final_latency"].value(turn) == 260 * MS
    assert dict(zip(turn.withheld_metrics, turn.withheld_reasons, strict=True)) == {
        "asr_partial_latency": "this wire sends the audio when the caller has finished"
    }


def test_spoken_text_is_no_stage_of_language_model() -> None:
    world = World(make_plan()).speak()
    began, *rest = reply(300)
    spoken = [event(EventKind.SPOKEN_TEXT, response_id="r1", text=words) for words in ("It is on.", " Anything else?")]
    world.hear(began, *spoken, *rest).after(400)
    assert world.last.timeline.replies["r1"].text == "It is on. Anything else?"
    turn = build_turn(world.last, CALL, OPTIONS)
    assert (turn.outcome, turn.llm_chunks, turn.llm_chunk_gaps_ns) == ("ok", None, ())
    assert (turn.llm_first_token_perf_ns, turn.llm_first_sentence_perf_ns) == (None, None)


def test_endpoint_report_is_kept_and_invalid_values_are_dropped() -> None:
    turn = build_turn(exchange(), CALL, OPTIONS)
    assert (turn.cache_tier, turn.cache_hit, turn.route, turn.cohort) == ("edge", True, "cache", "treatment")
    assert turn.fallback is None
    assert turn.user_id == "user-7"
    assert build_turn(exchange(), replace(CALL, cohort="mine"), OPTIONS).cohort == "mine"


def test_a_callers_words_are_kept_only_when_asked_for() -> None:
    assert build_turn(exchange(), CALL, OPTIONS).transcript_pii is None
    kept = build_turn(exchange(), CALL, replace(OPTIONS, keep_transcripts=True))
    assert kept.transcript_pii == "Turn the light off."


@pytest.mark.parametrize(
    ("profile", "start_ns", "end_ns"),
    [
        (Profile(), 5 * MS, 20 * MS),
        (Profile("white", 10.0, channel=("telephone",), room=None), 5 * MS, 20 * MS),
        (Profile(speed=1.25), 5 * MS, 20 * MS),  # less within the speech, all of it in the silence around
        (Profile(speed=0.8), 6_250_000, 25 * MS),
        (Profile(speed=1.25, pitch=0.8), 6_250_000, 25 * MS),
    ],
)
def test_how_far_the_clips_bounds_may_be_off_is_on_the_turn(profile: Profile, start_ns: int, end_ns: int) -> None:
    finished = exchange()
    finished.evidence.pacing = paced(*[7] * 61)
    clip = finished.planned.clip
    assert clip is not None
    utterance = replace(clip.rendered.utterance, speech_start_uncertainty_ms=5.0, speech_end_uncertainty_ms=20.0)
    rendered = replace(clip.rendered, profile=profile, utterance=utterance)
    finished.planned = replace(finished.planned, clip=replace(clip, rendered=rendered))
    turn = build_turn(finished, CALL, OPTIONS)
    assert (turn.speech_start_uncertainty_ns, turn.speech_end_uncertainty_ns) == (start_ns, end_ns)


def test_bounds_of_unknown_uncertainty_stay_unknown() -> None:
    turn = build_turn(exchange(), CALL, OPTIONS)
    assert (turn.speech_start_uncertainty_ns, turn.speech_end_uncertainty_ns) == (None, None)


def test_requested_and_obtained_line_conditions_are_on_turn() -> None:
    finished = exchange()
    clip = finished.planned.clip
    assert clip is not None
    profile = Profile(
        "white", 10.0, channel=("telephone",), loss=PacketLoss(0.05, 2.0), jitter=Jitter(20, 60), gain_db=20
    )
    rendered = replace(clip.rendered, profile=profile, obtained=Obtained(-26.02, 10.01, 0.06, 0.04, 0.001, "a.wav"))
    rendered = replace(rendered, variant=3)
    finished.planned = replace(finished.planned, clip=replace(clip, rendered=rendered))
    turn = build_turn(finished, CALL, OPTIONS)
    assert (turn.snr_asked_db, turn.snr_obtained_db, turn.speech_level_dbov) == (10.0, 10.01, -26.02)
    assert (turn.loss_asked_ratio, turn.loss_obtained_ratio) == (0.05, 0.06)
    assert (turn.late_obtained_ratio, turn.clipped_ratio) == (0.04, 0.001)
    assert (turn.audio_variant, turn.room_response) == (3, "a.wav")
    plain = build_turn(exchange(), CALL, OPTIONS)
    assert (plain.audio_variant, plain.room_response) == (0, None)
    assert (plain.loss_asked_ratio, plain.loss_obtained_ratio, plain.clipped_ratio) == (None, None, None)


def test_connect_belongs_to_the_first_turn_only() -> None:
    assert build_turn(exchange(index=1), CALL, OPTIONS).connect_ns is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"pacing": paced(0, 60 * MS + 1, 0)}, "frame lateness"),
        ({"pacing": paced(*[0] * 10, *[20 * MS + 1] * 10)}, "drift"),
        ({"faults": ["clock step"]}, "clock step"),
    ],
)
def test_turn_over_limit_is_invalid_and_keeps_observed_outcome(change: dict[str, object], reason: str) -> None:
    late = exchange()
    for name, value in change.items():
        setattr(late.evidence, name, value)
    turn = build_turn(late, CALL, OPTIONS)
    assert (turn.outcome, turn.outcome_observed, turn.invalid_reasons) == ("invalid", "ok", (reason,))
    assert_reasons_are_shown(turn)


def test_at_the_limits_a_turn_is_valid() -> None:
    edge = exchange()
    edge.evidence.pacing = paced(*[0] * 9, 60 * MS, *[20 * MS] * 10)
    edge.evidence.receive_lag_worst_ns = 5_000 * MS
    edge.evidence.note_receive_lag_bound(END, 500 * MS)
    assert build_turn(edge, CALL, OPTIONS).outcome == "ok"


def test_reason_without_its_figure_is_detected() -> None:
    late = exchange()
    late.evidence.pacing.note_elsewhere(60 * MS + 1)
    unexplained = msgspec.structs.replace(build_turn(late, CALL, OPTIONS), frame_lateness_worst_ns=3 * MS)
    with pytest.raises(AssertionError, match="frame lateness"):
        assert_reasons_are_shown(unexplained)


def test_unobservable_metric_is_withheld_with_its_reason() -> None:
    turn = build_turn(exchange(), replace(CALL, not_observable={"llm_ttft": "no text on this wire"}), OPTIONS)
    assert (turn.withheld_metrics, turn.withheld_reasons) == (("llm_ttft",), ("no text on this wire",))


def test_leading_silence_is_not_recorded_if_wire_hides_it() -> None:
    assert build_turn(exchange(), CALL, OPTIONS).leading_silence_ns is not None
    hidden = replace(CALL, not_observable={"leading_silence": "the line carries silence all the time"})
    assert build_turn(exchange(), hidden, OPTIONS).leading_silence_ns is None


def test_network_figures_of_audio_are_on_turn() -> None:
    finished = exchange()
    turn = build_turn(finished, CALL, OPTIONS)
    assert (turn.rtp_packets_received, turn.rtp_packets_lost, turn.rtp_jitter_worst_ns) == (None, None, None)
    assert (METRICS["packet_loss"].value(turn), METRICS["jitter"].value(turn)) == (None, None)
    finished.evidence.note_rtp(PeerReport(5, 7 * MS))
    turn = build_turn(finished, CALL, OPTIONS)
    assert (turn.rtp_packets_received, turn.rtp_packets_lost, turn.rtp_jitter_worst_ns) == (0, None, None)
    assert METRICS["packet_loss"].value(turn) is None, "no packet, no share"
    for lost, jitter_ns in ((0, 1 * MS), (2, 4 * MS), (0, 3 * MS)):
        finished.evidence.note_rtp(PeerAudio(b"", 48_000, lost, jitter_ns))
    finished.evidence.note_rtp(PeerReport(6, 2 * MS))
    turn = build_turn(finished, CALL, OPTIONS)
    assert (turn.rtp_packets_received, turn.rtp_packets_lost, turn.rtp_jitter_worst_ns) == (3, 2, 4 * MS)
    assert (turn.rtp_reported_lost, turn.rtp_reported_jitter_ns) == (6, 2 * MS), "as the endpoint says it last"
    assert METRICS["packet_loss"].value(turn) == pytest.approx(2 / 5)
    assert METRICS["jitter"].value(turn) == 4 * MS


def test_partials_by_the_clock_say_nothing_of_the_recognizer() -> None:
    assert fixed_cadence([0, 100, 200, 300, 400])
    assert not fixed_cadence([0, 100, 200, 300])
    assert not fixed_cadence([0, 100, 250, 300, 400])
    ticking = exchange()
    ticking.timeline.partials_perf_ns = [T + k * 250 * MS for k in range(1, 7)]
    turn = build_turn(ticking, CALL, OPTIONS)
    assert turn.withheld_metrics == ("asr_partial_latency",)
    assert "fixed cadence" in turn.withheld_reasons[0]


def test_an_exchange_without_an_answer_measures_nothing_of_it() -> None:
    silent = exchange()
    silent.timeline.replies.clear()
    silent.outcome, silent.reason = "no_reply", "no answer within 10 s"
    turn = build_turn(silent, CALL, OPTIONS)
    assert METRICS["voice_to_voice"].value(turn) is None
    assert (turn.llm_chunks, turn.underrun_count, turn.response_id) == (None, None, None)


def test_talking_over_the_caller_is_negative_and_never_clamped() -> None:
    rude = exchange()
    playback = rude.timeline.replies["r1"].playback
    assert playback is not None
    playback.first_samples[0], playback.starts_perf_ns[0] = 0, END - 350 * MS
    turn = build_turn(rude, CALL, OPTIONS)
    value = METRICS["voice_to_voice"].value(turn)
    assert value is not None
    assert value / MS == pytest.approx(-300, abs=1)
    assert turn.talk_over_ns is not None
    assert turn.talk_over_ns / MS == pytest.approx(300, abs=1)


def test_a_running_exchange_has_no_record() -> None:
    running = exchange()
    running.outcome = None
    with pytest.raises(ValueError, match="still running"):
        build_turn(running, CALL, OPTIONS)


@pytest.mark.parametrize(
    ("pieces", "ends", "expected"),
    [
        ((" Sure", " thing"), True, 1),  # no boundary: the text is one sentence, whole with its last piece
        ((" Sure.", " Now"), True, 0),
        ((" Sure", " thing"), False, None),  # it goes on
    ],
)
def test_text_without_boundary_is_one_sentence_at_its_end(
    pieces: tuple[str, ...], ends: bool, expected: int | None
) -> None:
    reply = Reply("r1", 0)
    for number, text in enumerate(pieces):
        reply.note_text(text, number)
    reply.done_perf_ns = 9 if ends else None
    assert reply.sentence_known_perf_ns == expected


def test_request_failed_by_this_machine_makes_turn_invalid() -> None:
    """A stage service is such a case: its connection is opened with the request."""
    ended = exchange()
    sentence = "this process has used up all files it may open; raise the limit"
    ended.outcome, ended.reason = "error", sentence
    ended.timeline.note_errors((sentence, Failure("generator", "EMFILE")))
    turn = build_turn(ended, CALL, OPTIONS)
    assert (turn.outcome, turn.outcome_observed, turn.invalid_reasons) == ("invalid", "error", ("out of open files",))
    ended.timeline.failures[sentence] = Failure("tcp", "ECONNRESET")
    turn = build_turn(ended, CALL, OPTIONS)
    assert (turn.outcome, turn.invalid_reasons) == ("error", ())


def test_the_record_states_how_far_each_timestamp_may_be_off() -> None:
    heard = exchange()
    evidence = heard.evidence
    evidence.stamp_error_ns = 11
    evidence.note_doubt(END + 360 * MS, 9 * MS)  # the first token
    evidence.note_receive_lag_bound(END + 500 * MS, 4 * MS)  # the first chunk
    turn = build_turn(heard, replace(CALL, connect_earlier_ns=5), OPTIONS)
    assert (turn.speech_start_later_ns, turn.speech_end_later_ns) == (1_000, 3_000)
    assert (turn.endpoint_earlier_ns, turn.asr_first_partial_earlier_ns, turn.asr_final_earlier_ns) == (0, 0, 0)
    assert (turn.llm_first_token_earlier_ns, turn.llm_first_sentence_earlier_ns) == (9 * MS, 0)
    assert (turn.tts_first_chunk_earlier_ns, turn.tts_last_chunk_earlier_ns) == (4 * MS, 0)
    assert (turn.first_audio_earlier_ns, turn.reply_end_earlier_ns) == (4 * MS, 4 * MS)
    assert (turn.stamp_error_ns, turn.connect_earlier_ns) == (11, 5)
    assert turn.held_up_ns == 100_000, "the one frame after the end of speech was so much later than that with it"
    assert turn.held_up_speaking_ns == 0
    bounds = {name: metric_bounds(turn, METRICS[name]) for name in ("voice_to_voice", "endpointing", "connect")}
    headline = METRICS["voice_to_voice"].value(turn)
    assert headline is not None
    sure = msgspec.structs.replace(turn, speech_end_uncertainty_ns=2)
    assert metric_bounds(sure, METRICS["voice_to_voice"]) == (
        headline - 4 * MS - 11 - 3_000 - 2 - 100_000,
        headline + 11 + 2,
    )
    assert bounds["connect"] == (12 * MS - 5 - 11, 12 * MS + 11)


def test_a_pause_in_which_the_answer_came_counts_once() -> None:
    heard = exchange()
    # From 405 to 500 ms after the end of speech nothing ran; the last frame with speech was due after 200 ms. The first
    # chunk, with 50 ms of silence, came at the end of that or, if more came with it, at any moment of it.
    heard.evidence.pacing.lateness_ns = [0] * 61 + [0] * 10 + [80 * MS, 60 * MS, 40 * MS, 20 * MS, 0]
    heard.evidence.note_doubt(END + 500 * MS, 95 * MS)
    turn = build_turn(heard, CALL, OPTIONS)
    assert turn.held_up_ns == 0, "no frame that was due before 405 ms was late"
    heard.evidence.unsure_ns[END + 500 * MS] = 45 * MS
    assert build_turn(heard, CALL, OPTIONS).held_up_ns == 35 * MS, "the frame due at 420 had not gone by 455"
    heard.evidence.unsure_ns.clear()
    assert build_turn(heard, CALL, OPTIONS).held_up_ns == 80 * MS


def test_pause_that_begins_with_answer_leaves_turn_valid() -> None:
    heard = exchange()
    # Frames were due until 560 ms after the end of speech, the first audible sample came after 550.
    heard.evidence.pacing.lateness_ns = [0] * 61 + [0] * 17 + [100 * MS]
    turn = build_turn(heard, CALL, OPTIONS)
    assert (turn.outcome, turn.invalid_reasons, turn.frame_lateness_worst_ns) == ("ok", (), 0)
    heard.timeline.replies.clear()
    heard.outcome = "no_reply"
    assert build_turn(heard, CALL, OPTIONS).invalid_reasons == ("frame lateness",), "nobody answered before it"


def test_an_unanswered_turn_states_the_bounds_of_what_it_has() -> None:
    silent = exchange()
    silent.timeline.replies.clear()
    silent.outcome = "no_reply"
    turn = build_turn(silent, CALL, OPTIONS)
    assert (turn.first_audio_earlier_ns, turn.tts_first_chunk_earlier_ns) == (None, None)
    assert (turn.speech_end_later_ns, turn.asr_final_earlier_ns) == (3_000, 0)

"""A finished exchange as a `Turn`. Pure; the definitions are those of telemetry.model.metrics.

What a turn heard may have arrived earlier than it was stamped. The kernel stamps what arrives, but has one stamp for
all that is read at once: what is not the last of it came up to so long before, back to the moment when the program
last looked. Where user space stamps, data may have waited until then.

An interruption is one only if the caller's *speech* fell into the reply: it counts from the first speech sample, and a
reply that was over by then was not interrupted, whatever had been planned. Only a reply that the endpoint broke off has
a stop, and only where something on the wire shows that. Of all others it is said how they ended: by themselves while
the caller spoke, or not before the caller had spoken. Where the wire shows neither that a reply is broken off nor its
text, nothing is known about one that is over.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any, Final, TypeVar, get_args

from loadtest.conversation.evidence import Pacing, RtpFigures, ValidityLimits
from loadtest.conversation.exchange import Exchange, ServiceReports, WireNotes
from loadtest.conversation.outcome import failure_of, fault_of
from loadtest.conversation.prepared_clip import PreparedClip
from loadtest.conversation.timeline import Reply, Timeline
from loadtest.conversation.transcripts import reference_characters
from loadtest.protocols.base import SpeechSending
from loadtest.protocols.failure import Failure
from loadtest.protocols.headers import is_kept_header
from telemetry.model import semconv
from telemetry.model.foreign_text import one_line
from telemetry.model.semconv import BargeInEnd, TurnKind
from telemetry.model.turns import Turn

STILL_PLAYING: Final = "the reply was still playing when the turn ended"
SILENT_BY_THEN: Final = "the reply had fallen silent before the caller's first speech sample"
NOT_SPOKEN: Final = "the turn ended before the caller's first speech sample"
ENDED_BY_ITSELF: Final = "the reply ended by itself: nothing shows that the endpoint broke it off"
NEVER_STOPPED: Final = "the reply went on until the caller had spoken"
CANNOT_TELL: Final = "this wire shows neither that a reply is broken off nor its text"
BY_THE_CALLER: Final = "the caller's own client stops the reply under manual turns"

# Some fields of a turn; a type checker knows their names and types from the turn itself.
TurnFields = partial[Turn]
_NO_FIELDS: Final[TurnFields] = partial(Turn)
_Value = TypeVar("_Value", bound=str)


def behavior(exchange: Exchange) -> TurnFields:
    """The fields on how the caller behaved, of a finished exchange."""
    planned, timeline = exchange.planned, exchange.timeline
    is_silent, spoke_into = planned.clip is None, exchange.spoke_into
    kind: TurnKind = "silence" if is_silent else "question" if spoke_into is None else "barge_in"
    fields = partial(
        Turn,
        turn_kind=kind,
        patience_ns=planned.patience_ns,
        cut_short=exchange.reply_interrupted or None,
        talk_over_ns=_talk_over_ns(exchange),
        barge_in_reason=exchange.barge_in_missed,
        backchannel_stopped=_backchannel_stopped(exchange),
        conversation=planned.conversation,
        expected_intent=planned.expected_intent,
        silence_ns=planned.silence_ns if is_silent else None,
        reprompted=timeline.first_audio_perf_ns is not None if is_silent else None,
    )
    return fields if spoke_into is None else partial(fields, **_barge_in(exchange, spoke_into).keywords)


def _keywords(*fields: TurnFields) -> dict[str, Any]:
    """The fields of several; the last one counts for a field that several have."""
    keywords: dict[str, Any] = {}
    for turn_fields in fields:
        keywords |= turn_fields.keywords
    return keywords


def _barge_in(exchange: Exchange, reply: Reply) -> TurnFields:
    start, ended = exchange.timeline.speech_start_perf_ns, exchange.ended_perf_ns
    first = None if reply.playback is None else reply.playback.first_audio_perf_ns
    last = None if reply.playback is None else reply.playback.last_audio_perf_ns
    if start is None or ended is None or first is None or last is None:
        return partial(Turn, barge_in_reason=NOT_SPOKEN)
    if last < start and not exchange.stopped_by_client:
        return partial(Turn, barge_in_reason=SILENT_BY_THEN)
    end, reason = ("cannot_tell", BY_THE_CALLER) if exchange.stopped_by_client else _end_of(reply, exchange, last)
    return partial(
        Turn,
        barge_in_at_ns=start - first,
        barge_in_recovered=exchange.outcome == "ok",
        barge_in_end=end,
        barge_in_reason=reason,
        barge_in_stop_ns=last - start if end == "stopped" else None,
    )


def _end_of(reply: Reply, exchange: Exchange, last_perf_ns: int) -> tuple[BargeInEnd, str | None]:
    """Return how the reply ended that the caller interrupted, and why it has no stop; its last audible sample was
    played then.

    What was dropped here unasked would have been heard.
    """
    ended_perf_ns, spoken_perf_ns = exchange.ended_perf_ns or 0, exchange.timeline.speech_end_perf_ns
    if last_perf_ns > ended_perf_ns:
        return "never_stopped", STILL_PLAYING
    if reply.was_cut:
        return "stopped", None
    if not exchange.shows_cuts and not reply.text:
        return "cannot_tell", CANNOT_TELL
    if reply.was_sent_on or max(last_perf_ns, reply.dropped_until_perf_ns) >= (spoken_perf_ns or ended_perf_ns):
        return "never_stopped", NEVER_STOPPED
    return "ended_by_itself", ENDED_BY_ITSELF


def _backchannel_stopped(exchange: Exchange) -> bool | None:
    backchannel, answer = exchange.backchannel, exchange.timeline.answer
    if backchannel is None or backchannel.start_perf_ns is None or answer is None or answer.playback is None:
        return None
    last = answer.playback.last_audio_perf_ns
    if last is None or last < backchannel.start_perf_ns:
        return None
    return True if answer.was_cut else None if not exchange.shows_cuts and not answer.text else False


def _talk_over_ns(exchange: Exchange) -> int | None:
    """Return how long both spoke while this turn was the caller's: the question over any reply, a backchannel over its
    own."""
    timeline, backchannel = exchange.timeline, exchange.backchannel
    begin, end = timeline.speech_start_perf_ns, timeline.speech_end_perf_ns
    if begin is None or end is None:
        return None
    replies = [*timeline.replies.values(), *([] if exchange.spoke_into is None else [exchange.spoke_into])]
    total = _both_spoke_ns(replies, begin, end)
    if backchannel is not None and backchannel.start_perf_ns is not None and backchannel.end_perf_ns is not None:
        total += _both_spoke_ns(replies, backchannel.start_perf_ns, backchannel.end_perf_ns)
    return total


def _both_spoke_ns(replies: Iterable[Reply], begin_perf_ns: int, end_perf_ns: int) -> int:
    total = 0
    for reply in replies:
        if reply.playback is None:
            continue
        first, last = reply.playback.first_audio_perf_ns, reply.playback.last_audio_perf_ns
        if first is not None and last is not None:
            total += max(0, min(end_perf_ns, last) - max(begin_perf_ns, first))
    return total


# The timestamps of a turn that are stamps of something that arrived.
_ARRIVALS: Final = (
    *("endpoint", "asr_first_partial", "asr_final", "llm_first_token", "llm_first_sentence", "llm_last_token"),
    *("tts_first_chunk", "tts_last_chunk"),
)


def bounds(exchange: Exchange, answer: Reply | None, heard: Mapping[str, Any]) -> TurnFields:
    """The fields that say how far the timestamps may be off, of a finished exchange.

    `heard` has the fields of the turn with what arrived.
    """
    timeline, evidence = exchange.timeline, exchange.evidence
    earlier_of = evidence.doubt_ns
    partial_perf_ns = heard.get("asr_first_partial_perf_ns")
    stamped = {name: stamp for name in _ARRIVALS if (stamp := heard.get(f"{name}_perf_ns")) is not None}
    playback = None if answer is None else answer.playback
    until = exchange.ended_perf_ns or 0
    first_earlier_ns = reply_end_earlier_ns = None
    if playback is not None and playback.first_audio_perf_ns is not None:
        first_earlier_ns = playback.earlier_ns(playback.span.first_sample, earlier_of)
        # If the answer came at a later moment, frames that had not gone by then held it up by no more than that moment
        # is later: the bound is lowest if it came as early as it can have come.
        until = playback.chunk_start_perf_ns(playback.span.first_sample) - first_earlier_ns
        reply_end_earlier_ns = playback.earlier_ns(playback.span.last_sample, earlier_of)
    return partial(
        Turn,
        speech_start_later_ns=_later(evidence.start_later_ns, evidence.pacing.elsewhere_ns),
        speech_end_later_ns=_later(evidence.end_later_ns, evidence.pacing.worst_elsewhere_ns),
        stamp_error_ns=evidence.stamp_error_ns,
        held_up_speaking_ns=None
        if partial_perf_ns is None
        else evidence.pacing.held_up_speaking_ns(partial_perf_ns - earlier_of(partial_perf_ns)),
        first_audio_earlier_ns=first_earlier_ns,
        reply_end_earlier_ns=reply_end_earlier_ns,
        held_up_ns=None if timeline.speech_end_perf_ns is None else evidence.pacing.held_up_ns(until),
        **{f"{name}_earlier_ns": earlier_of(stamp_perf_ns) for name, stamp_perf_ns in stamped.items()},
    )


def _later(later_ns: int | None, elsewhere_ns: int) -> int | None:
    """Return how much later a frame may have gone, also where another process sends it, which says only how late it
    was."""
    return None if later_ns is None else later_ns + elsewhere_ns


WordErrors = Callable[[str, str, str], tuple[int, int]]
PhaseOf = Callable[[int], tuple[str, semconv.PhaseKind] | None]


def no_phase(perf_ns: int) -> None:
    """None: the phase of a call that belongs to no run with phases."""
    del perf_ns


@dataclass(frozen=True, slots=True)
class CallInfo:
    """The values that are the same for all turns of a call."""

    run_id: str
    call_id: str
    scenario: str | None
    noise_profile: str | None
    channel_profile: str | None
    protocol: str
    target: str
    region: str | None
    cohort: str | None
    model: str | None
    onset_preset: str
    connect_ns: int | None
    start_late_ns: int | None
    receive_stamp: str
    pacer: str
    not_observable: Mapping[str, str]
    sends_speech: SpeechSending = "as_spoken"
    connect_earlier_ns: int | None = None  # how much less connecting can have taken without our own delays
    prior_request_ns: int | None = None  # of the request over HTTP before the connection
    retry_wait_ns: int | None = None  # before the call, because the endpoint had asked for it
    endpoint_headers: Mapping[str, str] = field(default_factory=dict[str, str])  # of what led to the connection


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """The options of a record. `word_errors(reference, hypothesis, language)` gives (errors, reference words);
    None to go without."""

    limits: ValidityLimits
    keep_transcripts: bool
    word_errors: WordErrors | None
    unix_ns: Callable[[int], int]  # wall-clock time of a moment of the monotonic clock
    phase_of: PhaseOf = no_phase  # of the run, at a moment of the monotonic clock


_ROUTES: Final[tuple[semconv.Route, ...]] = get_args(semconv.Route)
_CACHE_TIERS: Final[tuple[semconv.CacheTier, ...]] = get_args(semconv.CacheTier)
_FALLBACKS: Final[tuple[semconv.Fallback, ...]] = get_args(semconv.Fallback)
MAX_EVENT_NAME_CHARS: Final = 60
MAX_PARTIALS: Final = 500

# With fewer partials, or gaps that vary more than this share of their median, the cadence is the recognizer's own.
CADENCE_MIN_PARTIALS: Final = 5
CADENCE_SPREAD: Final = 0.1


def fixed_cadence(stamps_perf_ns: list[int]) -> bool:
    """Return whether partials come by the clock: then their first one says nothing of the recognizer."""
    if len(stamps_perf_ns) < CADENCE_MIN_PARTIALS:
        return False
    gaps = [b - a for a, b in pairwise(stamps_perf_ns)]
    middle = median(gaps)
    return middle > 0 and max(gaps) - min(gaps) <= CADENCE_SPREAD * middle


def build_turn(exchange: Exchange, call: CallInfo, options: RecordOptions) -> Turn:
    """The record of a finished exchange. Raises ValueError for one that is still running."""
    if exchange.outcome is None or exchange.ended_perf_ns is None:
        raise ValueError("the exchange is still running")
    timeline, evidence, answer = exchange.timeline, exchange.evidence, exchange.timeline.nearest
    failure = failure_of(exchange)
    heard = _keywords(_recognition(exchange, options), _answer(answer, exchange.service, call.not_observable))
    fields = _keywords(
        _endpoint_reports(exchange.notes, exchange.service),
        bounds(exchange, answer, heard),
        _rtp(evidence.rtp),
        _withheld(timeline, call),
        _connection(call) if exchange.index == 0 else _NO_FIELDS,
        _headers(exchange, answer, call),
        _failed_by(failure),
        behavior(exchange),
        _speech(exchange.planned.clip, evidence.pacing, is_text=call.sends_speech == "as_text"),
        _served_by(answer, exchange.service, call),
    )
    phase, phase_kind = options.phase_of(exchange.began_perf_ns) or (None, None)
    invalid = _invalid_reasons(failure, evidence.reasons(options.limits, timeline.answer_began_perf_ns))
    return Turn(
        run_id=call.run_id,
        call_id=call.call_id,
        turn_index=exchange.index,
        source="client",
        outcome="invalid" if invalid else exchange.outcome,
        outcome_observed=exchange.outcome,
        outcome_reason=exchange.reason,
        cut_by=exchange.cut_by,
        invalid_reasons=invalid,
        started_perf_ns=exchange.began_perf_ns,
        started_unix_ns=options.unix_ns(exchange.began_perf_ns),
        speech_start_perf_ns=timeline.speech_start_perf_ns,
        speech_end_perf_ns=timeline.speech_end_perf_ns,
        speech_end_audio_ns=timeline.speech_end_audio_ns,
        hangup_perf_ns=exchange.hangup_perf_ns,
        scenario=call.scenario,
        noise_profile=call.noise_profile,
        channel_profile=call.channel_profile,
        protocol=call.protocol,
        target=call.target,
        region=call.region,
        onset_preset=call.onset_preset,
        frame_lateness_worst_ns=evidence.pacing.worst_before_ns(timeline.answer_began_perf_ns),
        drift_worst_ns=evidence.pacing.drift_worst_ns,
        unsent_bytes_at_speech_end=evidence.unsent_bytes_at_speech_end,
        send_blocked_worst_ns=evidence.blocked_worst_ns if evidence.sent else None,
        endpoint_did_not_read=evidence.endpoint_did_not_read(options.limits),
        loop_lag_worst_ns=evidence.loop_lag_worst_ns,
        receive_lag_worst_ns=evidence.receive_lag_worst_ns,
        arrival_uncertainty_worst_ns=evidence.arrival_uncertainty_worst_ns,
        start_late_ns=call.start_late_ns,
        receive_stamp=call.receive_stamp,
        pacer=call.pacer,
        phase=phase,
        phase_kind=phase_kind,
        **heard,
        **fields,
    )


def _invalid_reasons(failure: Failure | None, reasons: tuple[str, ...]) -> tuple[str, ...]:
    """The reasons why a turn is invalid: what failed, if that is the load generator's own, before what was measured."""
    fault = fault_of(failure)
    return reasons if fault is None or fault in reasons else (fault, *reasons)


def _connection(call: CallInfo) -> TurnFields:
    """The fields on how the call was connected, which its first turn has."""
    return partial(
        Turn,
        connect_ns=call.connect_ns,
        connect_earlier_ns=None if call.connect_ns is None else call.connect_earlier_ns,
        prior_request_ns=call.prior_request_ns,
        retry_wait_ns=call.retry_wait_ns,
    )


def _failed_by(failure: Failure | None) -> TurnFields:
    if failure is None:
        return _NO_FIELDS
    return partial(Turn, failure_kind=failure.kind, failure_code=failure.code, retry_after_ns=failure.retry_after_ns)


def _endpoint_reports(notes: WireNotes, service: ServiceReports) -> TurnFields:
    """The events that arrived outside the conversation, and what the service states of its own latencies, by name in
    the order of the alphabet."""
    stated = sorted((one_line(name, MAX_EVENT_NAME_CHARS), value_ns) for name, value_ns in service.latencies_ns.items())
    return partial(
        Turn,
        unknown_events=notes.unknown_events,
        unknown_event_names=tuple(one_line(name, MAX_EVENT_NAME_CHARS) for name in notes.unknown_names),
        duplicate_events=notes.duplicate_events,
        service_latency_reports=notes.service_latency_reports,
        service_reported=tuple(name for name, _ in stated),
        service_reported_ns=tuple(value_ns for _, value_ns in stated),
    )


def _rtp(figures: RtpFigures | None) -> TurnFields:
    """Return what the network did to the audio, on wires that carry it by RTP."""
    if figures is None:
        return _NO_FIELDS
    received = figures.packets_received > 0
    return partial(
        Turn,
        rtp_packets_received=figures.packets_received,
        rtp_packets_lost=figures.packets_lost if received else None,
        rtp_jitter_worst_ns=figures.jitter_worst_ns if received else None,
        rtp_reported_lost=figures.reported_lost,
        rtp_reported_jitter_ns=figures.reported_jitter_ns,
    )


def _headers(exchange: Exchange, answer: Reply | None, call: CallInfo) -> TurnFields:
    """The headers by which the endpoint says who answered: those of the connection belong to the first turn."""
    metadata = exchange.service.metadata | (answer.metadata if answer is not None else {})
    connection_headers = call.endpoint_headers if exchange.index == 0 else {}
    headers = {**connection_headers, **{name: value for name, value in metadata.items() if is_kept_header(name)}}
    return partial(Turn, endpoint_headers=tuple(headers), endpoint_header_values=tuple(headers.values()))


def _withheld(timeline: Timeline, call: CallInfo) -> TurnFields:
    """The metrics that this wire cannot show, each with the reason."""
    withheld = dict(sorted(call.not_observable.items()))
    if call.sends_speech == "when_over":
        withheld.setdefault("asr_partial_latency", "this wire sends the audio when the caller has finished")
    if fixed_cadence(timeline.partials_perf_ns):
        withheld.setdefault("asr_partial_latency", "this endpoint sends partial transcripts on a fixed cadence")
    return partial(Turn, withheld_metrics=tuple(withheld), withheld_reasons=tuple(withheld.values()))


def _speech(clip: PreparedClip | None, pacing: Pacing, *, is_text: bool) -> TurnFields:
    """Return what the caller said. Where its words are sent as text, the end of speech is the moment of that: exact,
    whatever is known of the clip."""
    if clip is None:
        return _NO_FIELDS
    rendered, utterance = clip.rendered, clip.rendered.utterance
    start_ns = 0 if is_text else pacing.widened_ns(rendered.speech_start_uncertainty_ns, at_end=False)
    end_ns = 0 if is_text else pacing.widened_ns(rendered.speech_end_uncertainty_ns, at_end=True)
    return partial(
        Turn,
        utterance_id=utterance.id,
        speaker=utterance.speaker,
        domain=utterance.domain,
        length_class=utterance.length,
        speech_ns=(rendered.speech_end_sample - rendered.speech_start_sample) * 1_000_000_000 // rendered.rate_hz,
        speech_start_uncertainty_ns=start_ns,
        speech_end_uncertainty_ns=end_ns,
        snr_asked_db=rendered.snr_asked_db,
        snr_obtained_db=rendered.snr_obtained_db,
        speech_level_dbov=rendered.obtained.level_dbov,
        loss_asked_ratio=None if rendered.profile.loss is None else rendered.profile.loss.ratio,
        loss_obtained_ratio=rendered.obtained.loss_ratio,
        late_obtained_ratio=rendered.obtained.late_ratio,
        clipped_ratio=rendered.obtained.clipped_ratio,
        audio_variant=rendered.variant,
        room_response=rendered.obtained.room_response,
    )


def _recognition(exchange: Exchange, options: RecordOptions) -> TurnFields:
    timeline, clip = exchange.timeline, exchange.planned.clip
    utterance = None if clip is None or not timeline.finals else clip.rendered.utterance
    errors = words = characters = None
    if options.word_errors is not None and utterance is not None and utterance.text:
        text, language = utterance.text, utterance.language
        errors, words = options.word_errors(text, timeline.transcript, language)
        characters = reference_characters(text, language)
    is_kept = options.keep_transcripts and bool(timeline.finals)
    fields = partial(
        Turn,
        endpoint_perf_ns=timeline.endpoints_perf_ns[-1] if timeline.endpoints_perf_ns else None,
        asr_first_partial_perf_ns=timeline.partials_perf_ns[0] if timeline.partials_perf_ns else None,
        asr_final_perf_ns=max((moment for _, _, moment in timeline.finals), default=None),
        wer_errors=errors,
        wer_reference_words=words,
        wer_reference_characters=characters,
        transcript_pii=timeline.transcript if is_kept else None,
    )
    return partial(fields, **_partials(timeline).keywords) if is_kept else fields


def _partials(timeline: Timeline) -> TurnFields:
    """Return what was recognized so far, each time that the endpoint said it, counted from the first speech sample."""
    start = timeline.speech_start_perf_ns
    if start is None:
        return _NO_FIELDS
    kept = slice(MAX_PARTIALS)
    return partial(
        Turn,
        asr_partials_pii=tuple(timeline.partial_texts[kept]),
        asr_partials_after_ns=tuple(at - start for at in timeline.partials_perf_ns[kept]),
    )


def _answer(answer: Reply | None, service: ServiceReports, not_observable: Mapping[str, str]) -> TurnFields:
    if answer is None:
        return _NO_FIELDS
    stamps, usage = answer.text_stamps_perf_ns, service.usage | answer.usage
    fields = partial(
        Turn,
        response_id=answer.id_on_the_wire,
        llm_first_token_perf_ns=stamps[0] if stamps else None,
        llm_last_token_perf_ns=stamps[-1] if stamps else None,
        llm_first_sentence_perf_ns=answer.sentence_known_perf_ns,
        llm_chunks=len(stamps) or None,
        llm_tokens=usage.get("output_text_tokens"),
        llm_input_tokens=usage.get("input_tokens"),
        llm_cached_tokens=usage.get("cached_tokens"),
        llm_chunk_gaps_ns=tuple(b - a for a, b in pairwise(stamps)),
    )
    playback = answer.playback
    if playback is None:
        return fields
    return partial(
        fields,
        tts_first_chunk_perf_ns=playback.first_arrival_perf_ns,
        tts_last_chunk_perf_ns=playback.last_arrival_perf_ns,
        first_audio_perf_ns=playback.first_audio_perf_ns,
        reply_end_perf_ns=playback.last_audio_perf_ns,
        leading_silence_ns=None if "leading_silence" in not_observable else playback.leading_silence_ns,
        reply_audio_ns=playback.audio_ns,
        underrun_count=len(playback.underruns_ns),
        underrun_total_ns=sum(playback.underruns_ns),
        underrun_worst_ns=max(playback.underruns_ns, default=0),
    )


def _served_by(answer: Reply | None, service: ServiceReports, call: CallInfo) -> TurnFields:
    """Return what the endpoint reports about how it answered; a value outside the vocabulary counts as not reported."""
    metadata = service.metadata | (answer.metadata if answer is not None else {})

    def one_of(key: str, allowed: tuple[_Value, ...]) -> _Value | None:
        return next((value for value in allowed if value == metadata.get(key)), None)

    hit = metadata.get(semconv.META_CACHE_HIT)
    return partial(
        Turn,
        cohort=call.cohort or metadata.get(semconv.META_COHORT) or None,
        user_id=metadata.get(semconv.META_USER) or None,
        route=one_of(semconv.META_ROUTE, _ROUTES),
        cache_tier=one_of(semconv.META_CACHE_TIER, _CACHE_TIERS),
        cache_hit={"true": True, "false": False}.get(hit or ""),
        fallback=one_of(semconv.META_FALLBACK, _FALLBACKS),
        model=metadata.get(semconv.META_MODEL) or call.model,
        intent=metadata.get(semconv.META_INTENT) or None,
    )

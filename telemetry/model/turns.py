"""The turn: the one type that crosses packages.

A turn is one exchange on a call: the caller speaks, the assistant answers. `source` says who saw it: `client` is what
the caller heard, `service` is what the endpoint reported of itself. Timestamps are integer nanoseconds of the monotonic
clock of the process that took them, never comparable across processes. None means unknown, never zero.
"""

from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Annotated, Any, Final, Literal

import msgspec

from telemetry.model import semconv
from telemetry.model.foreign_text import LONGEST_CHARS, one_line

NonNegative = Annotated[int, msgspec.Meta(ge=0)]


class Turn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything known of one turn; a `voice.turn` span carries all of it and decodes back to an equal value."""

    # Who and where. trace_id (32 hex digits) and span_id (16) are those of the turn's own span.
    run_id: str  # the run that the turn belongs to
    call_id: str  # the call that the turn belongs to
    turn_index: NonNegative  # position of the turn in its call, from 0
    source: semconv.Source  # who saw the turn
    outcome: semconv.Outcome  # how the turn ended
    trace_id: str = ""
    span_id: str = ""
    process_id: str = ""  # the process that wrote the turn
    sequence: int | None = None  # per process, from 0 and without gaps: what is missing can be counted

    # The wall clock serves for stamping and joining: it read `started_unix_ns` when the monotonic clock read
    # `started_perf_ns`, which is the beginning of the turn.
    started_unix_ns: int  # wall clock, ns
    started_perf_ns: int  # monotonic clock, ns

    # Timestamps of the turn (definitions: telemetry.model.metrics.TIMESTAMPS).
    speech_start_perf_ns: int | None = None
    speech_end_perf_ns: int | None = None
    endpoint_perf_ns: int | None = None  # the endpoint says that it closed the caller's turn
    asr_first_partial_perf_ns: int | None = None
    asr_final_perf_ns: int | None = None
    llm_first_token_perf_ns: int | None = None
    llm_first_sentence_perf_ns: int | None = None
    llm_last_token_perf_ns: int | None = None
    tts_first_chunk_perf_ns: int | None = None
    tts_last_chunk_perf_ns: int | None = None
    first_audio_perf_ns: int | None = None
    reply_end_perf_ns: int | None = None
    hangup_perf_ns: int | None = None
    # Position of the last speech sample on the audio clock of the session (0 = first sample sent on the call). Each
    # side states its own: the annotation of the clip, or what the endpoint's detector believed.
    speech_end_audio_ns: int | None = None  # end of the caller's speech on that clock

    # How far the clip's annotation of its speech may be off, as half-widths of 95 % intervals; None: not known.
    speech_start_uncertainty_ns: NonNegative | None = None  # of the start of speech
    speech_end_uncertainty_ns: NonNegative | None = None  # of the end of speech

    # How much earlier or later a timestamp may really have been than it says (telemetry.model.bounds); None: not known.
    # What arrived can only have come before it was stamped, and what was sent can only have gone after.
    speech_start_later_ns: NonNegative | None = None  # the frame with the first speech sample went that much later
    speech_end_later_ns: NonNegative | None = None  # likewise: the frame with the last one
    endpoint_earlier_ns: NonNegative | None = None  # arrived at most so much earlier, as all that follow
    asr_first_partial_earlier_ns: NonNegative | None = None  # first interim transcript
    asr_final_earlier_ns: NonNegative | None = None  # final transcript
    llm_first_token_earlier_ns: NonNegative | None = None  # first piece of answer text
    llm_first_sentence_earlier_ns: NonNegative | None = None  # first sentence boundary
    llm_last_token_earlier_ns: NonNegative | None = None  # last piece of answer text
    tts_first_chunk_earlier_ns: NonNegative | None = None  # first chunk of reply audio
    tts_last_chunk_earlier_ns: NonNegative | None = None  # last chunk of reply audio
    first_audio_earlier_ns: NonNegative | None = None  # first audible sample, by the arrival of its chunk
    reply_end_earlier_ns: NonNegative | None = None  # last audible sample, likewise
    connect_earlier_ns: NonNegative | None = None  # connecting took at most so much less without our own delays
    stamp_error_ns: NonNegative | None = None  # of every stamp of arrival, either way: that of converting clocks
    # Our own lateness can only have held the service up, whose true latencies are at most so much shorter.
    held_up_ns: NonNegative | None = None  # of frames between the end of speech and the first audible sample
    held_up_speaking_ns: NonNegative | None = None  # of frames between the start of speech and the first partial

    # Measured as such, not as a difference of two timestamps.
    connect_ns: int | None = None  # TCP, TLS, upgrade and session ready; on the first turn of a call
    prior_request_ns: int | None = None  # HTTP request before it (a voice webhook), answered whole; on that turn, too
    leading_silence_ns: int | None = None  # silence before the first audible sample of the reply
    talk_over_ns: int | None = None  # total time in which both spoke
    underrun_worst_ns: int | None = None  # longest starvation of a real-time player
    underrun_total_ns: int | None = None  # all starvation of that player
    underrun_count: int | None = None  # how often that player starved
    reply_audio_ns: int | None = None  # length of the reply audio that arrived
    llm_tokens: int | None = None  # as the endpoint counts them; None where it does not say
    llm_cached_tokens: int | None = None  # of the prompt, from the provider's prompt cache, as the endpoint says
    llm_input_tokens: int | None = None  # of the whole prompt, as the endpoint counts them
    llm_chunks: int | None = None  # pieces of answer text that arrived
    llm_chunk_gaps_ns: tuple[int, ...] = ()  # gaps between pieces of answer text
    wer_errors: int | None = None  # word errors of the final transcript
    wer_reference_words: int | None = None  # words of the clip's text; characters where it is written without spaces
    wer_reference_characters: int | None = None  # how many of them are characters; None where no reporter said so
    transcript_pii: str | None = None  # the caller's words; kept only when asked for
    asr_partials_pii: tuple[str, ...] = ()  # what was recognized by each partial transcript; likewise
    asr_partials_after_ns: tuple[int, ...] = ()  # when each arrived, counted from speech_start; likewise

    # How the caller behaved. A barge-in is recorded on the turn that interrupts: `barge_in_at_ns` is its first speech
    # sample counted from the first audible sample of the reply before it. The turn that was interrupted stays what it
    # was, an answered one (`cut_short`), so that a caller who breaks in neither improves nor worsens the service's
    # figures. A silent turn asks nothing, and counts neither for nor against the service.
    turn_kind: semconv.TurnKind | None = None  # what the caller did
    patience_ns: int | None = None  # how long this caller would have borne silence; None: never hangs up
    cut_short: bool | None = None  # the next turn began before the reply to this one had ended
    barge_in_at_ns: int | None = None  # when the caller interrupted
    barge_in_end: semconv.BargeInEnd | None = None  # how the reply ended that the caller interrupted
    barge_in_stop_ns: int | None = None  # where it was stopped: from that moment to the agent's last audible sample
    barge_in_recovered: bool | None = None  # the endpoint then answered what the caller had interrupted with
    barge_in_reason: str | None = None  # why a planned interruption was none, or has no stop
    backchannel_stopped: bool | None = None  # the reply stopped at a "mhm"; None where none was said into it
    silence_ns: int | None = None  # how long the caller of a silent turn says nothing
    reprompted: bool | None = None  # the endpoint spoke into the silence of a silent turn
    conversation: str | None = None  # the script that the turn comes from
    expected_intent: str | None = None  # the intent that the script names
    intent: str | None = None  # as the endpoint reports it

    # What the endpoint says that it injected on purpose (scripted engines), so the instrument can be checked.
    injected_endpointing_ns: int | None = None  # delay before the endpoint closes the turn
    injected_asr_ns: int | None = None  # delay before the final transcript
    injected_llm_ns: int | None = None  # delay before the first token
    injected_tts_ns: int | None = None  # delay before the first audio
    injected_leading_silence_ns: int | None = None  # silence at the beginning of the reply

    # Dimensions.
    scenario: str | None = None  # name of the scenario
    phase: str | None = None  # of the run, in which the turn began
    phase_kind: semconv.PhaseKind | None = None  # what kind of load that phase is
    utterance_id: str | None = None  # what the caller said, by its name in the corpus
    speaker: str | None = None  # who said it
    domain: str | None = None  # what it is about
    length_class: semconv.LengthClass | None = None  # by the length of the speech
    speech_ns: int | None = None  # length of the caller's speech, first to last speech sample
    noise_profile: str | None = None  # noise under the speech, by name
    channel_profile: str | None = None  # everything else that was done to the speech, by name
    snr_asked_db: float | None = None  # signal-to-noise ratio that was asked for
    snr_obtained_db: float | None = None  # signal-to-noise ratio that was obtained
    speech_level_dbov: float | None = None  # of the active speech, where it enters the caller's channel
    loss_asked_ratio: float | None = None  # packets lost on the caller's simulated channel, in the long run
    loss_obtained_ratio: float | None = None  # of the packets that carry this utterance's speech
    late_obtained_ratio: float | None = None  # likewise: those that came too late for the simulated receiver
    clipped_ratio: float | None = None  # samples of the active speech cut off by the caller's gain, clipping or DC
    audio_variant: int | None = None  # which drawing of the profile's noise, losses and room was said
    room_response: str | None = None  # the file of the impulse response that was drawn
    protocol: str | None = None  # the wire, by name
    target: str | None = None  # address of the endpoint, without credentials
    region: str | None = None  # as the flag --region says
    cohort: str | None = None  # as the flag --cohort or the endpoint says
    user_id: str | None = None  # who called, as the endpoint says; a store keeps a pseudonym of it
    route: semconv.Route | None = None  # where the answer was made, as the endpoint says
    cache_tier: semconv.CacheTier | None = None  # the cache that answered, as the endpoint says
    cache_hit: bool | None = None  # whether a cache answered, as the endpoint says
    fallback: semconv.Fallback | None = None  # the fallback that answered, as the endpoint says
    model: str | None = None  # the model, as the endpoint says or as it was asked for
    response_id: str | None = None  # the reply's id on the wire
    onset_preset: str | None = None  # how audible onset was found

    # Why the turn ended as it did, and which metrics this wire cannot show.
    outcome_observed: semconv.Outcome | None = None  # what `outcome` would be were the turn valid
    outcome_reason: str | None = None  # why the turn ended so
    failure_kind: semconv.FailureKind | None = None  # the cause of an outcome that is not ok (of the one observed)
    failure_code: str | None = None  # HTTP status, close code, error code, errno name: short, no free text
    retry_after_ns: int | None = None  # the wait before the next call that the endpoint asked for
    retry_wait_ns: int | None = None  # on a call's first turn: how long its caller had waited because of that
    cut_by: str | None = None  # what of the generator's ended the turn before its end (outcome `cut`)
    withheld_metrics: tuple[str, ...] = ()  # metrics that this wire cannot show, by name
    withheld_reasons: tuple[str, ...] = ()  # why not, in the same order
    # Metrics whose values contradict the turn's own timestamps or spans and are left out; judging leaves them open.
    contradicted_metrics: tuple[str, ...] = ()  # by name
    contradicted_causes: tuple[str, ...] = ()  # the causes, in the same order

    # What arrived outside the conversation, from the end of the turn before to the end of this one.
    unknown_events: NonNegative | None = None  # of types that the protocol does not know
    unknown_event_names: tuple[str, ...] = ()  # the first few of them
    duplicate_events: NonNegative | None = None  # sent twice, and heard once
    late_spans: NonNegative | None = None  # of a service's turn: came after it was first judged; it was judged again
    service_latency_reports: NonNegative | None = None  # responses with which the service stated its own latencies
    # A claim of the service's, never mixed with what was measured.
    service_reported: tuple[str, ...] = ()  # latencies that the service states of itself, by its own names for them
    service_reported_ns: tuple[int, ...] = ()  # their values, in the same order
    # Headers of the endpoint's responses that say who answered, from a fixed list of names. Before each name is which
    # response had it: on a call's first turn the `upgrade` or the `prior` request, on any turn a stage, such as `llm`.
    endpoint_headers: tuple[str, ...] = ()  # their names: `upgrade.server`, `llm.x-request-id`
    endpoint_header_values: tuple[str, ...] = ()  # their values, in the same order

    # Evidence of how well this turn was measured.
    frame_lateness_worst_ns: int | None = None  # worst lateness of an audio frame
    drift_worst_ns: int | None = None  # how much the utterance was stretched or squeezed
    unsent_bytes_at_speech_end: int | None = None  # bytes that the socket had not taken when the caller fell silent
    send_blocked_worst_ns: int | None = None  # the longest that the socket, being full, did not take a frame
    endpoint_did_not_read: bool | None = None  # what the caller said lay before the endpoint for too long
    loop_lag_worst_ns: int | None = None  # longest delay of the event loop
    receive_lag_worst_ns: int | None = None  # longest time from the kernel receiving a chunk to the program seeing it
    arrival_uncertainty_worst_ns: int | None = None  # how long a chunk can have come before its stamp, as far as known
    rtp_packets_received: NonNegative | None = None  # of the endpoint's audio; None on wires without RTP
    rtp_packets_lost: NonNegative | None = None  # of the endpoint's audio: missing when a later one came
    rtp_jitter_worst_ns: int | None = None  # worst interarrival jitter of the endpoint's audio (RFC 3550)
    rtp_reported_lost: NonNegative | None = None  # packets of the caller's audio, as the endpoint reports for the call
    rtp_reported_jitter_ns: int | None = None  # interarrival jitter of the caller's audio, as the endpoint reports it
    start_late_ns: int | None = None  # how late the call began after its intended start
    receive_stamp: str | None = None  # "kernel" or "user"
    pacer: str | None = None  # "timerfd" or "timer"
    invalid_reasons: tuple[str, ...] = ()  # why it was not said as recorded, or which fault of ours spoiled it


# What was said is longer than what is said of it.
LONGEST_TRANSCRIPT_CHARS: Final = 20_000
_LONGER: Final = {"transcript_pii": LONGEST_TRANSCRIPT_CHARS}
_NAMES: Final = Turn.__struct_fields__
_DESCRIBED: Final[Any] = msgspec.inspect.type_info(Turn)
_KINDS: Final = {
    field.name: field.type.types[0] if isinstance(field.type, msgspec.inspect.UnionType) else field.type
    for field in _DESCRIBED.fields
}
_texts_of: Final = attrgetter(*(name for name, kind in _KINDS.items() if isinstance(kind, msgspec.inspect.StrType)))
_lists_of: Final = attrgetter(
    *(
        name
        for name, kind in _KINDS.items()
        if isinstance(kind, msgspec.inspect.VarTupleType) and isinstance(kind.item_type, msgspec.inspect.StrType)
    )
)


def with_plain_texts(turn: Turn) -> Turn:
    """The turn with every text on one line, bounded, and with control characters written out. A text may come from an
    endpoint, from a service's telemetry, or from a user's name for something."""
    # What most turns are is seen at a glance.
    texts = [*filter(None, _texts_of(turn)), *chain.from_iterable(_lists_of(turn))]
    if "".join(texts).isprintable() and max(map(len, texts), default=0) <= LONGEST_CHARS:
        return turn
    changes: dict[str, Any] = {}
    for name, value in zip(_NAMES, msgspec.structs.astuple(turn), strict=True):
        shown = value
        if type(value) is str:
            shown = one_line(value, longest_chars(name))
        elif type(value) is tuple and value and type(value[0]) is str:
            shown = tuple(map(one_line, value))
        if shown is not value and shown != value:
            changes[name] = shown
    return msgspec.structs.replace(turn, **changes) if changes else turn


def longest_chars(field: str) -> int:
    """Return how many characters of a text of this field are kept."""
    return _LONGER.get(field, LONGEST_CHARS)


# Dimensions of a turn: the one table of what turns are narrowed, grouped, compared and explained by.
# filter: of any question to the store. choice: offered by the selectors of a page. objective: an objective can be about
# one of its values. slice: of a rollout or of two runs. explanation: may explain the slow turns.
DimensionUse = Literal["filter", "choice", "objective", "slice", "explanation"]


@dataclass(frozen=True, slots=True)
class TurnDimension:
    """A dimension by its `name` for people, links and files, and by the turn's field that holds its value, which is
    also the store's column; None where the value is made of several fields."""

    name: str
    field: str | None
    uses: frozenset[DimensionUse]


def _dimension(name: str, field: str | None, *uses: DimensionUse) -> TurnDimension:
    return TurnDimension(name, field, frozenset(uses))


# In the order in which people read them.
DIMENSIONS: Final = (
    _dimension("cohort", "cohort", "filter", "choice", "objective", "explanation"),
    _dimension("target", "target", "filter", "slice"),
    _dimension("domain", "domain", "slice", "explanation"),
    _dimension("length", "length_class", "filter", "choice", "objective", "slice", "explanation"),
    _dimension("noise", "noise_profile", "filter", "choice", "objective", "slice", "explanation"),
    _dimension("channel", "channel_profile", "filter", "objective", "slice", "explanation"),
    _dimension("route", "route", "filter", "choice", "objective", "slice", "explanation"),
    _dimension("phase", "phase", "filter", "choice"),
    _dimension("cache", None, "explanation"),
    _dimension("model", "model", "explanation"),
    _dimension("region", "region", "slice", "explanation"),
    _dimension("utterance", "utterance_id", "explanation"),
    _dimension("worker", None, "explanation"),
)


def fields_for(*uses: DimensionUse) -> tuple[str, ...]:
    """The fields of a turn whose dimensions have all of these uses."""
    return tuple(
        dimension.field for dimension in DIMENSIONS if dimension.field is not None and dimension.uses.issuperset(uses)
    )


FILTERED: Final = fields_for("filter")
OF_OBJECTIVES: Final = fields_for("objective")
SLICES: Final = fields_for("slice")
# The field of each dimension that has one, by the name for people; and the other way.
FIELD_OF: Final[dict[str, str]] = {
    dimension.name: dimension.field for dimension in DIMENSIONS if dimension.field is not None
}
NAME_OF: Final[dict[str, str]] = {field: name for name, field in FIELD_OF.items()}

"""The turn: the one type that crosses rooms.

A turn is one exchange on a call: the caller speaks, the assistant answers. `source` says who saw it: `client` is what
the caller heard, `service` is what the endpoint reported of itself. Points are integer nanoseconds of the monotonic
clock of the process that took them, never comparable across processes. None means unknown, never zero.
"""

from typing import Annotated

import msgspec

from telemetry import semconv

NonNegative = Annotated[int, msgspec.Meta(ge=0)]


class Turn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything known of one turn; a `voice.turn` span carries all of it and decodes back to an equal value."""

    # Who and where. trace_id (32 hex digits) and span_id (16) are those of the turn's own span.
    run_id: str
    call_id: str
    turn_index: NonNegative
    source: semconv.Source
    outcome: semconv.Outcome
    trace_id: str = ""
    span_id: str = ""
    process_id: str = ""
    sequence: int | None = None  # per process, from 0 and without gaps: what is missing can be counted

    # The wall clock serves for stamping and joining: it read `started_unix_ns` when the monotonic clock read
    # `started_perf_ns`, which is the beginning of the turn.
    started_unix_ns: int
    started_perf_ns: int

    # Points of the turn (definitions: telemetry.metrics.POINTS).
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
    # Position of the last voiced sample on the audio clock of the session (0 = first sample sent on the call). Each
    # side states its own: the annotation of the clip, or what the endpoint's detector believed.
    speech_end_audio_ns: int | None = None

    # Measured as such, not as a difference of two points.
    connect_ns: int | None = None
    leading_silence_ns: int | None = None
    talk_over_ns: int | None = None
    underrun_worst_ns: int | None = None
    underrun_total_ns: int | None = None
    underrun_count: int | None = None
    reply_audio_ns: int | None = None  # length of the reply audio that arrived
    llm_tokens: int | None = None  # as the endpoint counts them; None where it does not say
    llm_chunks: int | None = None  # pieces of answer text that arrived
    llm_chunk_gaps_ns: tuple[int, ...] = ()
    wer_errors: int | None = None
    wer_reference_words: int | None = None
    transcript_pii: str | None = None  # the caller's words; kept only when asked for

    # How the caller behaved. A barge-in is told on the turn that interrupts: `barge_in_at_ns` is its first speech
    # sample counted from the first audible sample of the reply before it. The turn that was interrupted stays what it
    # was, an answered one (`cut_short`), so that a caller who breaks in neither improves nor worsens the service's
    # figures. A silent turn asks nothing, and counts neither for nor against the service.
    turn_kind: semconv.TurnKind | None = None
    patience_ns: int | None = None  # how long this caller would have borne silence; None: never hangs up
    cut_short: bool | None = None  # the next turn began before the reply to this one had ended
    barge_in_at_ns: int | None = None
    barge_in_stop_ns: int | None = None
    barge_in_recovered: bool | None = None  # the endpoint then answered what the caller had interrupted with
    barge_in_reason: str | None = None  # why a planned interruption was none, or has no stop
    backchannel_stopped: bool | None = None  # the reply stopped at a "mhm"; None where none was said into it
    silence_ns: int | None = None  # how long the caller of a silent turn says nothing
    reprompted: bool | None = None  # the endpoint spoke into the silence of a silent turn
    conversation: str | None = None  # the script that the turn comes from
    expected_intent: str | None = None
    intent: str | None = None  # as the endpoint reports it

    # What the endpoint says that it injected on purpose (scripted engines), so the instrument can be checked.
    injected_endpointing_ns: int | None = None
    injected_asr_ns: int | None = None
    injected_llm_ns: int | None = None
    injected_tts_ns: int | None = None
    injected_leading_silence_ns: int | None = None

    # Dimensions.
    scenario: str | None = None
    phase: str | None = None  # of the run, in which the turn began
    phase_kind: semconv.PhaseKind | None = None
    utterance_id: str | None = None
    speaker: str | None = None
    domain: str | None = None
    length_class: semconv.LengthClass | None = None
    speech_ns: int | None = None  # length of the caller's speech, first to last voiced sample
    noise_profile: str | None = None
    channel_profile: str | None = None
    snr_asked_db: float | None = None
    snr_obtained_db: float | None = None
    speech_level_dbov: float | None = None  # of the active speech, where it enters the caller's channel
    loss_asked_ratio: float | None = None  # packets lost on the caller's simulated channel, in the long run
    loss_obtained_ratio: float | None = None  # of the packets that carry this utterance's speech
    late_obtained_ratio: float | None = None  # likewise: those that came too late for the simulated receiver
    clipped_ratio: float | None = None  # samples of the active speech cut off by the caller's gain, clipping or DC
    protocol: str | None = None
    target: str | None = None
    region: str | None = None
    cohort: str | None = None
    route: semconv.Route | None = None
    cache_tier: semconv.CacheTier | None = None
    cache_hit: bool | None = None
    fallback: semconv.Fallback | None = None
    model: str | None = None
    response_id: str | None = None
    onset_preset: str | None = None

    # Why the turn ended as it did, and which metrics this wire cannot show ("metric: reason").
    outcome_observed: semconv.Outcome | None = None  # what `outcome` would be were the turn valid
    outcome_reason: str | None = None
    withheld: tuple[str, ...] = ()

    # Evidence that the instrument told the truth on this turn.
    frame_lateness_worst_ns: int | None = None
    drift_worst_ns: int | None = None
    unsent_bytes_at_speech_end: int | None = None
    send_blocked_worst_ns: int | None = None  # the longest that a full socket held up a frame of the turn
    loop_lag_worst_ns: int | None = None
    receive_lag_worst_ns: int | None = None
    start_late_ns: int | None = None
    receive_stamp: str | None = None  # "kernel" or "user"
    pacer: str | None = None  # "timerfd" or "timer"
    invalid_reasons: tuple[str, ...] = ()

"""Whatever the lateness, the pauses and the reads: the true latency lies within the bounds of the figure.

The truth comes from a model of its own: an endpoint that hears frames when they arrive and answers after so many frames
of silence and a while, a network that takes no time, and a kernel that stamps only the last of what is read at once.
"""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.conversation.evidence import Evidence, Pacing
from loadtest.conversation.playout import PlayoutBuffer
from telemetry.model.bounds import metric_bounds, timestamp_bounds
from telemetry.model.metrics import METRICS
from telemetry.model.turns import Turn
from tests.unit.loadtest.conversation.world import RATE_HZ, silence, tone

MS = 1_000_000
FRAME = 20 * MS
BYTES_PER_MS = 2 * RATE_HZ // 1000
VOICE_TO_VOICE = METRICS["voice_to_voice"]


@dataclass(frozen=True)
class Heard:
    """The endpoint's events on its own clock, and what the caller's program observes of them."""

    spoken_ns: int  # the frame with the last speech sample was in the network
    answered_ns: int  # the first audible sample was
    undisturbed_ns: int  # from the one to the other, had every frame after the end of speech been as late as that one
    turn: Turn


@st.composite
def turns(draw: st.DrawFn) -> Heard:
    """A turn of which any frame may be late, and any moment a pause of the program."""
    frames = draw(st.integers(1, 6))
    silent = draw(st.integers(0, 12))
    after = silent + draw(st.integers(0, 5))
    gone: list[int] = []
    began: list[int] = []
    for index in range(frames + after):
        due = index * FRAME
        begin = max(due + draw(st.integers(0, 3 * MS)) + draw(st.sampled_from([0, 0, 0, 45 * MS])), *gone[-1:], 0)
        began.append(begin)
        gone.append(begin + draw(st.sampled_from([2_000, 9_000, 30 * MS])))  # the program may be paused as it writes
    sent = [draw(st.integers(begin, end)) for begin, end in zip(began, gone, strict=True)]
    last = frames - 1
    thinks_ns = draw(st.integers(0, 300 * MS))
    heard_until = max(sent[last : last + silent + 1])
    answered = heard_until + thinks_ns
    late_stamp_ns = draw(st.sampled_from([0, 0, 500_000, 70 * MS]))  # more came, and all of it was read at once
    looked_before_ns = late_stamp_ns + draw(st.integers(0, 2 * MS)) if late_stamp_ns else 0
    wrong_by_ns = draw(st.integers(-40_000, 40_000))  # of the conversion of the kernel's stamp
    stamp = answered + late_stamp_ns + wrong_by_ns
    evidence = Evidence(stamp_error_ns=40_000)
    if looked_before_ns:
        evidence.note_doubt(stamp, looked_before_ns)
    # What was offered before the stamp counts; the tick comes before reading.
    pacing = Pacing()
    pacing.begin(0, FRAME)
    for index, (begin, end) in enumerate(zip(began, gone, strict=True)):
        if index > last and begin > stamp:
            pacing.lateness_ns.append(end - index * FRAME)
            break
        pacing.lateness_ns.append(end - index * FRAME)
        if index == last:
            pacing.end_speech()
    turn = Turn(
        run_id="r",
        call_id="c",
        turn_index=0,
        source="client",
        outcome="ok",
        started_unix_ns=0,
        started_perf_ns=0,
        speech_end_perf_ns=began[last],
        speech_end_uncertainty_ns=0,
        speech_end_later_ns=gone[last] - began[last],
        first_audio_perf_ns=stamp,
        first_audio_earlier_ns=evidence.doubt_ns(stamp),
        stamp_error_ns=evidence.stamp_error_ns,
        held_up_ns=pacing.held_up_ns(stamp - evidence.doubt_ns(stamp)),
    )
    return Heard(sent[last], answered, silent * FRAME + thinks_ns, turn)


@pytest.mark.slow
@given(turns())
def test_measured_latency_of_endpoint_lies_within_bounds(heard: Heard) -> None:
    """Frames later than the one with the end of speech can have held the service up by as much as the bound allows."""
    bounds = metric_bounds(heard.turn, VOICE_TO_VOICE)
    assert bounds is not None
    assert bounds[0] <= heard.answered_ns - heard.spoken_ns <= bounds[1]
    assert bounds[0] <= heard.undisturbed_ns
    for name, true_ns in (("speech_end", heard.spoken_ns), ("first_audio", heard.answered_ns)):
        bounds = timestamp_bounds(heard.turn, name)
        assert bounds is not None
        assert bounds[0] <= true_ns <= bounds[1]


Chunks = list[tuple[int, int, int]]


@given(
    st.lists(
        st.tuples(st.integers(0, 90), st.integers(1, 60), st.integers(0, 70)),
        min_size=1,
        max_size=8,
    ),
    st.integers(0, 300),
)
def test_played_audio_was_due_no_earlier_than_its_bound(chunks: Chunks, silent_ms: int) -> None:
    """A player that got each chunk when it really came plays each sample within the bounds of one that got it late."""
    evidence, late, true = Evidence(), PlayoutBuffer("rms-10ms"), PlayoutBuffer("rms-10ms")
    arrived_ms = stamp_ms = 1_000
    seen, real = late.begin(RATE_HZ), true.begin(RATE_HZ)
    total_ms = sum(length for _, length, _ in chunks)
    audio = silence(min(silent_ms, total_ms - 1)) + tone(total_ms)
    for gap_ms, length_ms, doubt_ms in chunks:
        arrived_ms = max(arrived_ms + gap_ms, stamp_ms)
        stamp_ms = arrived_ms + doubt_ms
        piece, audio = audio[: length_ms * BYTES_PER_MS], audio[length_ms * BYTES_PER_MS :]
        if doubt_ms:
            evidence.note_doubt(stamp_ms * MS, doubt_ms * MS)
        late.feed(seen, piece, stamp_ms * MS)
        true.feed(real, piece, arrived_ms * MS)
    for sample in (seen.span.first_sample, seen.span.last_sample):
        if sample is None:
            continue
        shown, played = seen.played_at(sample), real.played_at(sample)
        assert shown is not None
        assert played is not None
        assert shown - seen.earlier_ns(sample, evidence.doubt_ns) <= played <= shown

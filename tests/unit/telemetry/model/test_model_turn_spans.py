"""A turn as attributes, and as a waterfall on one clock."""

import msgspec
import pytest

from telemetry.model import semconv
from telemetry.model.turn_spans import SpanEvent, SpanRow, TurnDecodeError, decode_turn, turn_attributes
from telemetry.model.turns import Turn
from telemetry.model.waterfall import PARTIAL, Bar, waterfall

TURN = Turn(
    run_id="run",
    call_id="call",
    turn_index=2,
    source="client",
    outcome="ok",
    started_unix_ns=1_700_000_000_000_000_000,
    started_perf_ns=5_000,
    asr_final_perf_ns=10_000_000,
    llm_first_token_perf_ns=260_000_000,
    llm_chunk_gaps_ns=(1, 2),
    cache_hit=False,
    model="tiny",
)
TRACE, SPAN = "0" * 31 + "1", "0" * 15 + "2"


@pytest.mark.parametrize("side", ["start", "end"])
def test_a_negative_uncertainty_is_refused_by_name(side: str) -> None:
    turn = Turn(
        run_id="r", call_id="c", turn_index=0, source="client", outcome="ok", started_unix_ns=1, started_perf_ns=0
    )
    name = f"voice.turn.speech_{side}_uncertainty_ns"
    assert decode_turn(turn_attributes(turn) | {name: "5"}, "", "").turn != turn
    with pytest.raises(TurnDecodeError, match=f"{name} is -1, but it cannot be negative"):
        decode_turn(turn_attributes(turn) | {name: -1}, "", "")


def test_names_are_prefixed_and_unknown_is_left_out() -> None:
    assert turn_attributes(TURN) == {
        "voice.schema_version": 3,
        "voice.turn.run_id": "run",
        "voice.turn.call_id": "call",
        "voice.turn.turn_index": 2,
        "voice.turn.source": "client",
        "voice.turn.outcome": "ok",
        "voice.turn.started_unix_ns": 1_700_000_000_000_000_000,
        "voice.turn.started_perf_ns": 5_000,
        "voice.turn.asr_final_perf_ns": 10_000_000,
        "voice.turn.llm_first_token_perf_ns": 260_000_000,
        "voice.turn.llm_chunk_gaps_ns": (1, 2),
        "voice.turn.cache_hit": False,
        "voice.turn.model": "tiny",
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.conversation.id": "call",
        "gen_ai.request.model": "tiny",
        "gen_ai.response.time_to_first_chunk": 0.25,
    }


def _required() -> dict[str, object]:
    return {
        "run_id": "r",
        "call_id": "c",
        "turn_index": 0,
        "source": "service",
        "outcome": "error",
        "started_unix_ns": 1,
        "started_perf_ns": 2,
    }


def test_text_that_is_no_unicode_still_travels() -> None:
    attributes = turn_attributes(Turn(**{**_required(), "transcript_pii": "a\ud800b"}))
    assert attributes["voice.turn.transcript_pii"] == "a\ufffdb"


@pytest.mark.parametrize(
    ("field", "value", "read"),
    [
        ("speech_end_perf_ns", 7.0, 7),
        ("speech_end_perf_ns", -7.0, -7),
        ("speech_end_perf_ns", "-12", -12),
        ("snr_asked_db", 10, 10.0),
        ("snr_asked_db", "-0.5", -0.5),
        ("cache_hit", "true", True),
        ("cache_hit", "false", False),
        ("llm_chunk_gaps_ns", ["3", 4.0], (3, 4)),
        ("cohort", None, None),
    ],
)
def test_other_encoders_spellings_are_read(field: str, value: object, read: object) -> None:
    attributes = {**turn_attributes(TURN), f"voice.turn.{field}": value}
    assert getattr(decode_turn(attributes, TRACE, SPAN).turn, field) == read


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("speech_end_perf_ns", 7.5, "is 7.5, but a whole number is expected"),
        ("speech_end_perf_ns", float(2**60), "a whole number is expected"),
        ("speech_end_perf_ns", float("nan"), "a whole number is expected"),
        ("speech_end_perf_ns", True, "is True, but a whole number is expected"),
        ("speech_end_perf_ns", "1_000", "a whole number is expected"),
        ("speech_end_perf_ns", "٣", "a whole number is expected"),
        ("turn_index", -1, "is -1, but it cannot be negative"),
        ("cache_hit", 1, "is 1, but true or false is expected"),
        ("outcome", "fine", "is 'fine', but one of abandoned, cut, error"),
        ("source", ["client"], "one of client, service is expected"),
        ("route", "", "one of cache, cloud, local, rule is expected"),
        ("snr_asked_db", "loud", "is 'loud', but a number is expected"),
        ("snr_asked_db", False, "is False, but a number is expected"),
        ("cohort", 3, "is 3, but text is expected"),
        ("withheld_metrics", "a: b", "is 'a: b', but an array is expected"),
        ("withheld_reasons", [1], "is 1, but text is expected"),
        ("llm_chunk_gaps_ns", [0, None], "is None, but a whole number is expected"),
        ("run_id", b"x" * 200, "..., but text is expected"),
    ],
)
def test_ambiguous_value_is_refused_by_name(field: str, value: object, problem: str) -> None:
    with pytest.raises(TurnDecodeError) as caught:
        decode_turn({**turn_attributes(TURN), f"voice.turn.{field}": value}, TRACE, SPAN)
    assert caught.value.attribute == f"voice.turn.{field}"
    assert str(caught.value).startswith(f"attribute voice.turn.{field} ")
    assert problem in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("field", list(_required()))
def test_a_missing_required_field_is_named(field: str) -> None:
    attributes = {name: value for name, value in turn_attributes(TURN).items() if name != f"voice.turn.{field}"}
    with pytest.raises(TurnDecodeError, match=rf"attribute voice\.turn\.{field} is missing"):
        decode_turn(attributes, TRACE, SPAN)


def test_all_fields_fit_into_a_span() -> None:
    assert len(Turn.__struct_fields__) + 8 < 512
    assert semconv.TURN_PREFIX == "voice.turn."


MS = 1_000_000
END = 50_000 * MS

CLIENT = Turn(
    run_id="r",
    call_id="c",
    turn_index=0,
    source="client",
    outcome="ok",
    span_id="ab",
    started_unix_ns=1_700_000_000_000 * MS,
    started_perf_ns=END - 3_000 * MS,
    speech_start_perf_ns=END - 2_000 * MS,
    speech_end_perf_ns=END,
    endpoint_perf_ns=END + 200 * MS,
    asr_final_perf_ns=END + 300 * MS,
    llm_first_token_perf_ns=END + 450 * MS,
    tts_first_chunk_perf_ns=END + 550 * MS,
    first_audio_perf_ns=END + 580 * MS,
    reply_end_perf_ns=END + 2_000 * MS,
    leading_silence_ns=20 * MS,
    speech_end_audio_ns=2_300 * MS,
)
FAR = 9_000_000 * MS
SERVICE = Turn(
    run_id="r",
    call_id="c",
    turn_index=0,
    source="service",
    outcome="ok",
    started_unix_ns=5,
    started_perf_ns=FAR,
    speech_end_perf_ns=FAR,
    endpoint_perf_ns=FAR + 170 * MS,
    asr_final_perf_ns=FAR + 270 * MS,
    llm_first_token_perf_ns=FAR + 420 * MS,
    tts_first_chunk_perf_ns=FAR + 515 * MS,
    first_audio_perf_ns=FAR + 535 * MS,
    speech_end_audio_ns=2_325 * MS,
)


def bar(bars: tuple[Bar, ...], name: str, source: str) -> tuple[float, float]:
    shown_bar = next(b for b in bars if b.name == name and b.source == source)
    return shown_bar.start_ns / MS, shown_bar.end_ns / MS


def test_end_of_speech_is_zero_and_stages_are_consecutive() -> None:
    bars = waterfall(CLIENT, None).bars
    assert [b.name for b in bars] == [
        "speech", "endpointing", "asr", "llm", "tts", "unexplained", "leading_silence", "playing",
    ]  # fmt: skip
    assert bar(bars, "speech", "client") == (-2000, 0)
    assert bar(bars, "endpointing", "client") == (0, 200)
    assert bar(bars, "asr", "client") == (200, 300)
    assert bar(bars, "llm", "client") == (300, 450)
    assert bar(bars, "tts", "client") == (450, 550)
    assert bar(bars, "unexplained", "client") == (550, 560)
    assert bar(bars, "leading_silence", "client") == (560, 580)
    assert bar(bars, "playing", "client") == (580, 2000)


def test_the_service_is_placed_by_the_audio_never_by_its_clock() -> None:
    picture = waterfall(CLIENT, SERVICE)
    assert picture.service_offset_ns == 25 * MS
    assert bar(picture.bars, "endpointing", "service") == (25, 195)
    assert bar(picture.bars, "tts", "service") == (445, 540)
    assert picture.client_voice_to_voice_ns == 580 * MS
    assert picture.service_voice_to_voice_ns == 535 * MS


def test_unexplained_is_rest_after_service_and_silence() -> None:
    picture = waterfall(CLIENT, SERVICE)
    assert picture.unexplained_ns == (580 - 25 - 515 - 20) * MS
    assert bar(picture.bars, "unexplained", "client") == (540, 560)


def test_a_negative_rest_is_kept_as_a_figure_and_not_drawn() -> None:
    late = msgspec.structs.replace(SERVICE, tts_first_chunk_perf_ns=FAR + 600 * MS)
    picture = waterfall(CLIENT, late)
    assert picture.unexplained_ns == -65 * MS
    assert all(b.name != "unexplained" for b in picture.bars)


def test_transcript_during_answer_is_no_stage_before_it() -> None:
    reply_first = msgspec.structs.replace(CLIENT, asr_final_perf_ns=END + 500 * MS)
    bars = waterfall(reply_first, None).bars
    assert all(b.name != "asr" for b in bars)
    assert bar(bars, "llm", "client") == (200, 450)


def test_service_without_end_of_speech_starts_at_zero() -> None:
    blind = msgspec.structs.replace(SERVICE, speech_end_audio_ns=None)
    picture = waterfall(CLIENT, blind)
    assert picture.service_offset_ns is None
    assert bar(picture.bars, "endpointing", "service") == (0, 170)


def test_a_service_without_an_end_of_speech_cannot_be_placed() -> None:
    lost = msgspec.structs.replace(SERVICE, speech_end_perf_ns=None)
    assert {b.source for b in waterfall(CLIENT, lost).bars} == {"client"}
    assert {m.source for m in waterfall(CLIENT, lost).marks} == {"client"}


def test_a_turn_without_a_reply_keeps_what_it_has() -> None:
    silent = msgspec.structs.replace(
        CLIENT, outcome="no_reply", llm_first_token_perf_ns=None, tts_first_chunk_perf_ns=None,
        first_audio_perf_ns=None, reply_end_perf_ns=None, leading_silence_ns=None, hangup_perf_ns=END + 9_000 * MS,
    )  # fmt: skip
    picture = waterfall(silent, None)
    assert [b.name for b in picture.bars] == ["speech", "endpointing", "asr"]
    assert picture.unexplained_ns is None
    assert picture.client_voice_to_voice_ns is None
    assert picture.marks[-1].name == "hangup"


def test_turn_that_ended_before_its_speech_counts_from_its_start() -> None:
    broken = msgspec.structs.replace(
        CLIENT, outcome="error", speech_end_perf_ns=None, endpoint_perf_ns=None, asr_final_perf_ns=None,
        llm_first_token_perf_ns=None, tts_first_chunk_perf_ns=None, first_audio_perf_ns=None, reply_end_perf_ns=None,
    )  # fmt: skip
    picture = waterfall(broken, None)
    assert picture.origin == "started"
    assert [(m.name, m.at_ns) for m in picture.marks] == [("speech_start", 1_000 * MS)]


def test_service_alone_has_its_own_zero() -> None:
    picture = waterfall(None, SERVICE)
    assert bar(picture.bars, "endpointing", "service") == (0, 170)
    assert picture.unexplained_ns is None


def test_only_partials_under_caller_turn_are_marks() -> None:
    at = CLIENT.started_unix_ns + 1_400 * MS
    events = (SpanEvent(semconv.EVENT_ASR_PARTIAL, at), SpanEvent("other", at))
    spans = [
        SpanRow("t", "s", parent, semconv.SPAN_ASR, "x", at, at, {}, events) for parent in (CLIENT.span_id, "elsewhere")
    ]
    partials = [m for m in waterfall(CLIENT, SERVICE, spans).marks if m.name == PARTIAL]
    assert [m.at_ns for m in partials] == [(1_400 - 3_000) * MS]


def test_a_turn_without_any_side_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one side"):
        waterfall(None, None)

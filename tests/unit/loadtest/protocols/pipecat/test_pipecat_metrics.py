"""What is read from a bot's `metrics`, and what is not."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from loadtest.protocols.base import EventKind, VoiceEvent
from loadtest.protocols.pipecat.rtvi import RtviSession


def report(**data: Any) -> VoiceEvent:
    (event,) = RtviSession().receive(json.dumps({"label": "rtvi-ai", "type": "metrics", "data": data}))
    return event


def test_the_first_of_a_session_holds_nothing() -> None:
    first = [{"processor": name, "value": 0.0} for name in ("STT#0", "LLM#0", "TTS#0")]
    assert report(ttfb=first, processing=first).kind is EventKind.OTHER
    assert report().kind is EventKind.OTHER
    tokens = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    assert report(tokens=[tokens]).kind is EventKind.OTHER


def test_a_latency_carries_the_class_of_its_processor() -> None:
    event = report(
        ttfb=[
            {"processor": "LLM#12", "model": "m", "value": 0.25},
            {"processor": "LLM#13", "value": 0.5},
            {"processor": "LLM#1", "value": 0.1},
        ],
        ttfat=[{"processor": "LLM#12", "ttfat": 0.75, "ttfb": 0.25, "thinking_time": 0.5}],
        ttfa=[{"processor": "TTS#3", "ttfa": 0.3, "ttfb": 0.1, "leading_silence": 0.2}],
        processing=[{"processor": "TTS#3", "value": 1}],
    )
    assert event.service_ns == {
        "LLM.ttfb": 500_000_000,
        "LLM.ttfat": 750_000_000,
        "LLM.thinking_time": 500_000_000,
        "TTS.ttfa": 300_000_000,
        "TTS.leading_silence": 200_000_000,
        "TTS.processing": 1_000_000_000,
    }


def test_usage_is_added_up() -> None:
    event = report(
        tokens=[
            {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12, "cache_read_input_tokens": 0},
            {"prompt_tokens": 20, "completion_tokens": 3, "total_tokens": 23, "reasoning_tokens": 1},
            {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
        ],
        characters=[{"processor": "TTS#1", "value": 30}, {"processor": "TTS#1", "value": 12}],
        stt_usage=[{"processor": "STT#1", "value": {"audio_seconds": 1.5}}],
    )
    assert event.usage == {
        "input_tokens": 30,
        "output_tokens": 5,
        "total_tokens": 35,
        "cached_tokens": 0,
        "output_reasoning_tokens": 1,
        "tts_characters": 42,
        "stt_audio_ms": 1500,
    }


def test_what_is_no_latency_is_left_out() -> None:
    wrong = [-1, None, "1", True, 1e300]
    assert report(ttfb=[{"processor": "LLM", "value": value} for value in wrong]).kind is EventKind.OTHER
    assert (
        report(ttfb=[{"value": 1}, {"processor": 3, "value": 1}], tokens=[{"prompt_tokens": -1}]).kind
        is EventKind.OTHER
    )


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(["processor", "value", "ttfa", "leading_silence", "prompt_tokens", "audio_seconds"])
lists = st.sampled_from(["ttfb", "ttfa", "ttfat", "processing", "tokens", "characters", "stt_usage"])


@given(st.dictionaries(lists, anything | st.lists(st.dictionaries(names, anything, max_size=4), max_size=3)))
def test_whatever_a_bot_reports_is_no_zero_and_raises_nothing(data: dict[str, Any]) -> None:
    event = report(**data)
    assert all(value > 0 for value in event.service_ns.values())
    assert all(value >= 0 for value in event.usage.values())

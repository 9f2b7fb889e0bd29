"""Turns whose values lie within a few ms of a threshold, with stamps that may each be off by as much."""

import random
from typing import Final

from telemetry.model.metrics import TIMESTAMPS
from telemetry.model.turns import Turn
from telemetry.objectives.objective import Objective
from tests.fixtures_turns import MS, client_turn

# Moments of a turn in ms of its clock, and durations that are measured as such.
_MOMENTS: Final = {
    "speech_start": 1_000,
    "speech_end": 3_000,
    "endpoint": 3_200,
    "asr_first_partial": 1_400,
    "asr_final": 3_300,
    "llm_first_token": 3_450,
    "llm_first_sentence": 3_500,
    "llm_last_token": 3_950,
    "tts_first_chunk": 3_600,
    "tts_last_chunk": 4_100,
    "first_audio": 3_620,
}
_DURATIONS: Final = {
    "connect_ns": 40,
    "leading_silence_ns": 20,
    "barge_in_stop_ns": 300,
    "talk_over_ns": 100,
    "underrun_worst_ns": 50,
    "underrun_total_ns": 60,
}
_WIDTHS: Final = (
    *(name for stem in TIMESTAMPS for kind in ("earlier", "later") for name in (f"{stem}_{kind}_ns",)),
    *("connect_earlier_ns", "stamp_error_ns", "held_up_ns", "held_up_speaking_ns", "arrival_uncertainty_worst_ns"),
    *("speech_start_uncertainty_ns", "speech_end_uncertainty_ns"),
)
_THRESHOLDS: Final = {
    "voice_to_voice": 620.0 * MS,
    "endpointing": 200.0 * MS,
    "asr_partial_latency": 400.0 * MS,
    "asr_final_latency": 300.0 * MS,
    "llm_first_token_latency": 450.0 * MS,
    "llm_ttft": 150.0 * MS,
    "tts_first_chunk_latency": 150.0 * MS,
    "leading_silence": 20.0 * MS,
    "time_to_first_sentence": 500.0 * MS,
    "connect": 40.0 * MS,
    "barge_in_stop": 300.0 * MS,
    "talk_over": 100.0 * MS,
    "underrun_worst": 50.0 * MS,
    "underrun_total": 60.0 * MS,
    "tokens_per_s": 9 / 0.5,
    "tokens_per_s_wall": 10 / 0.65,
    "audio_rtfx": 2 / 0.5,
}
OBJECTIVES: Final = [
    *(Objective(name, "metric", 0.9, name, threshold) for name, threshold in _THRESHOLDS.items()),
    Objective("slower", "metric", 0.9, "tokens_per_s_wall", 10 / 0.95),  # of turns without a final transcript
    Objective("later", "metric", 0.9, "voice_to_voice", 621.0 * MS),
    Objective("answered", "outcome", 0.9, outcomes=("ok",)),
]


def turns_near_thresholds(seed: int, count: int = 400) -> list[Turn]:
    """Turns of one run, some of them without a stage, cut or interrupted."""
    dice = random.Random(seed)
    return [client_turn(index, **_changes(dice)) for index in range(count)]


def _changes(dice: random.Random) -> dict[str, object]:
    def off() -> int:
        return dice.randint(-2, 2) * MS

    changes: dict[str, object] = {f"{name}_perf_ns": at * MS + off() for name, at in _MOMENTS.items()}
    changes |= {name: length * MS + off() for name, length in _DURATIONS.items()}
    changes |= {"llm_tokens": 10, "llm_chunks": 10, "reply_audio_ns": 2_000 * MS}
    often = dice.choice((0, 0, 1, 2)) * MS
    widths = {name: dice.choice((0, 0, often, 2 * MS)) for name in _WIDTHS if name in Turn.__struct_fields__}
    changes |= widths
    if dice.random() < 0.2:
        changes |= dict.fromkeys(dice.sample(sorted(widths), 3))
    if dice.random() < 0.2:
        changes["asr_final_perf_ns"] = None
    if dice.random() < 0.3:
        metric = dice.choice(("voice_to_voice", "asr_partial_latency", "llm_first_token_latency"))
        since = 1_000 if metric == "asr_partial_latency" else 3_000
        missing = ("asr_first_partial_perf_ns", "first_audio_perf_ns", "llm_first_token_perf_ns", "asr_final_perf_ns")
        changes |= dict.fromkeys(missing) | {"outcome": dice.choice(("cut", "interrupted"))}
        changes["hangup_perf_ns"] = since * MS + round(_THRESHOLDS[metric]) + off()
    return changes

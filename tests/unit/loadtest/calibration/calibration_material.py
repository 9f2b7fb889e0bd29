"""Turns, truths and steps made up for the tests of the calibration."""

from collections.abc import Sequence
from typing import Any

from loadtest.calibration.calibration import CalibrationStep, ProcessorUsage, measure_fault, measure_step
from loadtest.calibration.json_object import Calibration
from telemetry.model.turns import Turn

MS = 1_000_000
MACHINE = {
    "cpu": "a processor",
    "cores": "2",
    "priority": "real-time",
    "kernel": "Linux 6",
    "python": "3.11.7",
    "engine": "0.1.0+abcdef12",
    "gevent": "25",
    "locust": "2",
}
_POINTS = {
    "asr_first_partial": -300,
    "endpoint": 100,
    "asr_final": 120,
    "llm_first_token": 150,
    "tts_first_chunk": 190,
}


def truth(number: int, *, unsure: Sequence[str] = (), behavior: str = "plain", **changes: Any) -> dict[str, Any]:
    """Make the endpoint's record of a turn that ends its speech at second `number`."""
    end = number * 1000 * MS
    return {
        "kind": "turn",
        "response_id": f"resp-{number}",
        "behavior": behavior,
        "planned": {"voice_to_voice_ns": 200 * MS},
        "speech_start_perf_ns": end - 600 * MS,
        "speech_end_perf_ns": end,
        "sent": {name: end + after_ms * MS for name, after_ms in _POINTS.items()},
        "unsure": list(unsure),
        "first_audio_perf_ns": end + 200 * MS,
        "first_audio_within_ns": 0,
        "reply_end_perf_ns": end + 600 * MS,
        "leading_silence_ns": 10 * MS,
        "underrun_total_ns": 0,
        "lags_ns": [20_000] * 10,
        "lateness_ns": [30_000] * 30,
    } | changes


def truths(count: int, **changes: Any) -> dict[str, dict[str, Any]]:
    """Make the endpoint's records of so many turns, by their responses."""
    return {row["response_id"]: row for row in (truth(number, **changes) for number in range(1, count + 1))}


def turn(number: int, *, error_ns: int = 0, call: int = 0, outcome: str = "ok", **changes: Any) -> Turn:
    """The same turn as the callers measured it, every moment off by an error but the end of the speech."""
    known = truth(number)
    measured: dict[str, Any] = {f"{name}_perf_ns": moment + error_ns for name, moment in known["sent"].items()}
    fields: dict[str, Any] = {
        "run_id": "run",
        "call_id": f"call-{call}",
        "turn_index": number,
        "source": "client",
        "outcome": outcome,
        "outcome_observed": "ok",
        "started_unix_ns": 10**18 + number,
        "started_perf_ns": known["speech_start_perf_ns"] - 100 * MS,
        "speech_start_perf_ns": known["speech_start_perf_ns"],
        "speech_end_perf_ns": known["speech_end_perf_ns"],
        "first_audio_perf_ns": known["first_audio_perf_ns"] + error_ns,
        "reply_end_perf_ns": known["reply_end_perf_ns"] + error_ns,
        "leading_silence_ns": 10 * MS,
        "underrun_total_ns": 0,
        # Voice-to-voice may truly be shorter by half a millisecond.
        "speech_end_uncertainty_ns": 0,
        "speech_end_later_ns": 100_000,
        "first_audio_earlier_ns": 300_000,
        "held_up_ns": 100_000,
        "stamp_error_ns": 0,
        "response_id": known["response_id"],
        "invalid_reasons": ("frame lateness",) if outcome == "invalid" else (),
    }
    return Turn(**(fields | measured | changes))


def step(
    callers: int,
    *,
    turns: int = 120,
    error_ns: int = 40_000,
    attempt: int = 1,
    processes: int = 1,
    cpu: float | None = 0.4,
    **rows: Any,
) -> CalibrationStep:
    """A step of one call after the other's turns; `rows` change every truth."""
    # A ramp before; after it the callers leave one by one, and the first of them is still heard out.
    last = turns + 2 * (callers - 1) - (callers > 1)
    heard = [turn(number, error_ns=error_ns, call=number % callers) for number in range(1, last + 1)]
    usage = ProcessorUsage(cpu, 0.2, 12_000.0)
    return measure_step(callers, attempt, heard, truths(last, **rows), usage, processes=processes)


def calibration(*steps: CalibrationStep, **changes: Any) -> Calibration:
    """A calibration with those steps."""
    heard = [turn(number, error_ns=50_000) for number in range(1, 9)]
    rows = truths(8, behavior="burst")
    fields: dict[str, Any] = {
        "calibration_id": "20261121-080000-abcdef",
        "started_unix_ns": 1_795_248_000 * 10**9,
        "elapsed_s": 61.0,
        "quick": False,
        "interrupted": False,
        "machine": MACHINE,
        "steps": steps,
        "faults": (
            measure_fault("burst", "all chunks at once", heard, rows, answered=True),
            measure_fault("stall", "stops reading", [], rows, answered=False),
        ),
    }
    return Calibration(**(fields | changes))

"""The Prometheus series about objectives and rollouts, by which the sidecar and the rules over its series know each
other. Pure."""

from typing import Final

from telemetry.objectives.objective import Objective

LABELS: Final = ("objective", "stage", "source", "service_name", "cohort")
ELIGIBLE: Final = "voice_objective_eligible_turns"
GOOD: Final = "voice_objective_good_turns"
BAD_TURNS: Final = "voice_objective_bad_turns"
OPEN_TURNS: Final = "voice_objective_open_turns"
TARGET: Final = "voice_objective_target_ratio"
TARGET_LABELS: Final = ("objective", "stage", "promise")
SERVICE_TURNS: Final = "voice_service_turns"
SERVICE_LABEL: Final = "service_name"
RECEIVED: Final = "voice_telemetry_received_items"
REJECTED: Final = "voice_telemetry_rejected_items"
REFUSED: Final = "voice_telemetry_refused_requests"
BAD: Final = "voice_telemetry_bad_requests"
MISSING: Final = "voice_telemetry_missing_turns"

ROLLOUT_LABEL: Final = "rollout"
ROLLOUT_VERDICT: Final = "voice_rollout_verdict"
ROLLOUT_STAGE: Final = "voice_rollout_stage"
ROLLOUT_SHARE: Final = "voice_rollout_share_ratio"
ROLLOUT_NEEDED: Final = "voice_rollout_needed_turns"
ROLLOUT_EVALUATED: Final = "voice_rollout_last_verdict_timestamp_seconds"
ROLLOUT_EVERY: Final = "voice_rollout_evaluation_interval_seconds"
ROLLOUT_DIFFERENCE: Final = "voice_rollout_primary_difference_seconds"
ROLLOUT_BEYOND_MARGIN: Final = "voice_rollout_primary_beyond_margin_ratio"
ROLLOUT_ALLOWED: Final = "voice_rollout_primary_allowed_ratio"
ROLLOUT_EXCESS: Final = "voice_rollout_primary_excess_ratio"
ROLLOUT_MARGIN: Final = "voice_rollout_primary_margin_seconds"

_STAGES: Final = ("endpointing", "asr", "llm", "tts", "connect")


def stage_of(objective: Objective) -> str:
    """The part of a turn that an objective is about: `endpointing`, `asr`, `llm`, `tts` or `connect`, else `turn`."""
    first_word = (objective.metric or "").partition("_")[0]
    return first_word if first_word in _STAGES else "turn"

"""Reads `--window`, which every benchmark has: how long each measurement lasts."""

from telemetry.model.durations import Duration, DurationError


def read_window(text: str, shortest: Duration, longest: Duration, faults: list[str]) -> Duration:
    """Return the duration; adds a sentence to `faults` for a text that is not a duration, or out of range."""
    try:
        found = Duration.parse(text)
    except DurationError as error:
        faults.append(f"--window {error}")
        return Duration()
    if not shortest <= found <= longest:
        faults.append(f"--window {text}: give a duration from {shortest} to {longest}")
    return found

"""Errors that telemetry raises on purpose, each as one sentence a person can act on.

TelemetryError
├── ConfigError      a file, flag or objective that cannot be used; the command line ends with code 2
├── TurnDecodeError  a `voice.turn` span that does not hold a turn (telemetry.model.turn_spans)
└── StoreError       the store cannot be read or written where it was asked for
"""


class TelemetryError(Exception):
    """Base of all errors that telemetry raises on purpose; the text says what is wrong, where, and how to fix it."""


class ConfigError(TelemetryError):
    """Raised for an unusable configuration. `faults` holds every fault, one sentence each."""

    def __init__(self, where: str, faults: list[str]) -> None:
        self.where = where
        self.faults = faults
        super().__init__(f"{where}: " + "; ".join(faults))


class StoreError(TelemetryError):
    """Raised if a store cannot be opened, read or written."""

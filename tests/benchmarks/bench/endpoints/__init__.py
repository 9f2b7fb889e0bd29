"""What callers and telemetry are sent to, each module a process of its own."""

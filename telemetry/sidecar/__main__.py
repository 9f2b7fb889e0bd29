"""Runs the sidecar: `python -m telemetry.sidecar`."""

from telemetry.sidecar.app import app

if __name__ == "__main__":
    app()

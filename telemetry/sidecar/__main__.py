"""`python -m telemetry.sidecar`: the sidecar as a process of its own."""

from telemetry.sidecar.app import app

if __name__ == "__main__":
    app()

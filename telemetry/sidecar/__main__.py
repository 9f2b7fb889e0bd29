"""Runs the sidecar: `python -m telemetry.sidecar`."""

from telemetry.store.without_pandas import refuse_pandas

if __name__ == "__main__":
    refuse_pandas()  # before modules are imported that make arrays
    from telemetry.sidecar.app import app

    app(prog_name="voiceprobe sidecar")

"""Runs the sidecar: `python -m telemetry.sidecar`."""

import gc
import sys

from telemetry.store.without_pandas import refuse_pandas

# While one thread decodes, those that commit, receive and answer get their turn after this: five milliseconds, which is
# the default, for each of a commit's statements would be most of the time until an answer.
_SWITCH_S = 0.0005
# A request makes thousands of objects, few of which stay.
_COLLECTED_AFTER = 20_000

if __name__ == "__main__":
    refuse_pandas()  # before modules are imported that make arrays
    sys.setswitchinterval(_SWITCH_S)
    gc.set_threshold(_COLLECTED_AFTER, 20, 20)
    from telemetry.sidecar.app import app

    app(prog_name="voiceprobe sidecar")

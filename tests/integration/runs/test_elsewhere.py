"""The callers on a system without timerfd, kernel stamps, fcntl, resource and priorities: they work, and say so."""

import json
import subprocess
import sys

from tests.integration.quick_endpoint import quick_endpoint

# The libraries are imported as this system has them; then it becomes a system that has nothing of Linux, and only then
# our own modules see it.
_PROGRAM = """
import os, socket, ssl, sys, asyncio, uuid, shutil, tempfile, pathlib, ctypes, selectors
import gevent, gevent.queue, gevent.event, gevent.socket, numpy, soxr, soundfile, msgspec, orjson, platformdirs, psutil
import opentelemetry.sdk.trace, websockets.client, jiwer, subprocess, rich.console, multiprocessing, scipy.signal, av
sys.platform = "darwin"
for missing in ("fcntl", "resource"):
    sys.modules[missing] = None
for missing in ("setpriority", "getpriority", "getsid", "timerfd_create"):
    if hasattr(os, missing):
        delattr(os, missing)
if hasattr(socket, "TCP_NOTSENT_LOWAT"):
    del socket.TCP_NOTSENT_LOWAT
from loadtest.engine import connection, local_limits, ticker
from loadtest.swarm.priority import ask_for_priority
seams = [connection.fcntl, local_limits.resource, ticker._open_timerfd(0), ask_for_priority()]
seams.append(connection._KERNEL_STAMPS)
import json
from tests.integration.calling import Callers
callers = Callers(sys.argv[1], 2, turns_per_call=1, clips=1, manual_turns=True, think_s=0.05)
turns = [turn for turns in callers.call() for turn in turns]
print(json.dumps({
    "seams": seams,
    "turns": [
        [turn.outcome, turn.outcome_reason, turn.pacer, turn.receive_stamp, turn.receive_lag_worst_ns,
         turn.unsent_bytes_at_speech_end, turn.frame_lateness_worst_ns is not None]
        for turn in turns
    ],
}))
"""


def test_callers_work_without_linux_features_as_evidence_shows() -> None:
    with quick_endpoint() as endpoint:
        command = [sys.executable, "-c", _PROGRAM, endpoint.url]
        done = subprocess.run(command, capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    output = json.loads(done.stdout)
    assert output["seams"] == [None, None, None, None, False]
    # What nobody measured is not known: neither how much was unsent, nor how long the kernel had had it.
    assert output["turns"] == [["ok", None, "timer", "user", None, None, True]] * 2

"""A worker joins its frames as it prepared them: the settings' masks reach both."""

import base64
import json
import subprocess
import sys

import pytest

from loadtest.protocols.transports.masked_frames import MASKS
from loadtest.run.processes import ROOT
from tests.properties.test_framings_properties import decoded

# In a process of its own: a worker's module patches the process.
PROGRAM = """
import base64, json, sys
from types import SimpleNamespace
from loadtest.swarm.worker import Worker
from loadtest.engine.transports.opening import make_transport
from loadtest.protocols import registry
from loadtest.protocols.base import CallerOptions
from loadtest.scenario.settings import SwarmSettings
settings = SwarmSettings(host="ws://127.0.0.1:1/", protocol="twilio", length="short", clips=1, mask=sys.argv[1])
worker = Worker(settings)
protocol = registry.make_caller("twilio", CallerOptions())
transport = make_transport(worker.engine._transport_parts, protocol, protocol.upgrade(settings.host, None))
sent = []
transport.connection = SimpleNamespace(send=lambda frame: sent.append(frame) or True)
(clip,) = worker.prepared.clips
for frame in clip.frames[:3]:
    assert transport.send_frame(frame)
print(json.dumps([base64.b64encode(frame).decode() for frame in sent]))
"""


@pytest.mark.nightly
@pytest.mark.parametrize("mask", MASKS)
def test_frames_are_joined_as_they_were_masked(mask: str) -> None:
    command = [sys.executable, "-c", PROGRAM, mask]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    frames = [base64.b64decode(load) for load in json.loads(done.stdout.splitlines()[-1])]
    messages = [json.loads(payload) for _, payload in decoded(b"".join(frames), [])]
    assert [message["sequenceNumber"] for message in messages] == ["1", "2", "3"]
    assert [len(base64.b64decode(message["media"]["payload"])) for message in messages] == [160] * 3

"""A declared wire: the example's spec, with a server that speaks OpenAI Realtime as its reference describes it."""

import json
from pathlib import Path
from typing import ClassVar

from loadtest.protocols.base import CallerOptions
from tests.unit.loadtest.protocols.contract.scripts.openai_realtime import OpenAIRealtimeScript
from tests.unit.loadtest.protocols.contract.wire_script import Messages, Refused, WireScript

EXAMPLE = Path(__file__).parents[6] / "examples" / "protocols" / "openai-realtime.yaml"


class DeclaredScript(OpenAIRealtimeScript):
    """The wire that the example's spec declares; it lacks what a spec cannot declare."""

    options: ClassVar[CallerOptions] = CallerOptions(settings={"spec": str(EXAMPLE)})

    def broken_off(self) -> Messages:
        return self.speech_started()

    fatal_error = WireScript.fatal_error

    def capacity(self) -> Refused:
        error = {"type": "session_limit_reached", "code": "rate_limit_exceeded", "message": "All sessions are taken."}
        return Refused([self._message("error", error=error)], "endpoint_error", "rate_limit_exceeded")

    def malformed(self) -> Messages:
        without_audio = json.dumps({"type": self.audio_delta, "delta": "*"})
        return ["{", json.dumps({"type": self.text_delta}), without_audio, b"\0\1"]


SCRIPTS = {"declared": DeclaredScript}

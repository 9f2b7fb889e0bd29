"""Records messages as the official `deepgram-sdk` makes them, for tests/fixtures/deepgram: `record_deepgram.py FILE`.

What the service sends is made with the package's own types, what a client sends by the package's own client. Run by an
interpreter that has the package (tests/peers/vendors.lock). Nothing here comes from this project.
"""

import importlib.metadata
import json
import sys
import typing
from pathlib import Path
from typing import Any

from deepgram.agent.v1 import types
from deepgram.agent.v1.socket_client import V1SocketClient, V1SocketClientResponse, _sanitize_numeric_types

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
CALL = {"id": "call_1", "name": "light", "arguments": '{"on": true}', "client_side": True}
SERVER = {
    "welcome": types.AgentV1Welcome(request_id="550e8400-e29b-41d4-a716-446655440000"),
    "settings-applied": types.AgentV1SettingsApplied(),
    "user-started-speaking": types.AgentV1UserStartedSpeaking(),
    "user-text": types.AgentV1ConversationText(
        role="user", content="Turn the light on – bitte.", languages_hinted=["en"], languages=["en", "de"]
    ),
    "agent-text": types.AgentV1ConversationText(role="assistant", content="It is on."),
    "agent-filler": types.AgentV1ConversationText(
        role="assistant", content="One moment.", conversational_behavior="filler"
    ),
    "agent-thinking": types.AgentV1AgentThinking(content="The light is meant."),
    "agent-started-speaking": types.AgentV1AgentStartedSpeaking(total_latency=1.25, tts_latency=0.5, ttt_latency=0.75),
    "latency-report": types.AgentV1LatencyReport(
        stt_latency=0.020000457763671875,
        ttt_token_latency=0.34,
        ttt_text_latency=0.36,
        ttt_tool_latency=0.41,
        ttt_thinking_latency=0.29,
        tts_latency=0.068118692,
        total_latency=2,
    ),
    "latency-report-of-one": types.AgentV1LatencyReport(stt_latency=0),
    "agent-audio-done": types.AgentV1AgentAudioDone(),
    "function-call-request": types.AgentV1FunctionCallRequest(
        functions=[
            types.AgentV1FunctionCallRequestFunctionsItem(**CALL),
            types.AgentV1FunctionCallRequestFunctionsItem(**{**CALL, "id": "call_2", "name": "door"}),
            types.AgentV1FunctionCallRequestFunctionsItem(**{**CALL, "id": "call_3", "client_side": False}),
        ]
    ),
    "function-call-cancelled": types.AgentV1FunctionCallCancelled(
        functions=[types.AgentV1FunctionCallCancelledFunctionsItem(id="call_1", name="light")]
    ),
    "function-call-response": types.AgentV1ReceiveFunctionCallResponse(id="call_3", name="light", content="on"),
    "error": types.AgentV1Error(description="The agent could not speak.", code="FAILED_TO_SPEAK"),
    "warning": types.AgentV1Warning(description="We have now waited 5 seconds.", code="SLOW_THINK_REQUEST"),
    "injection-refused": types.AgentV1InjectionRefused(message="The agent is speaking."),
    "history-text": types.AgentV1HistoryContent(role="assistant", content="It is on."),
    "history-call": types.AgentV1HistoryFunctionCalls(
        function_calls=[types.AgentV1HistoryFunctionCallsFunctionCallsItem(**CALL, response="on")]
    ),
    "listen-updated": types.AgentV1ListenUpdated(),
    "think-updated": types.AgentV1ThinkUpdated(),
    "think-live-updated": types.AgentV1ThinkLiveUpdated(),
    "prompt-updated": types.AgentV1PromptUpdated(),
    "speak-updated": types.AgentV1SpeakUpdated(),
    "frustration-detected": types.AgentV1FrustrationDetected(count=1, escalated=False),
    "from-think-provider": types.AgentV1CustomFromThinkProvider(content={"next": "continue"}),
}


def settings(audio: dict[str, Any], agent: Any, **more: Any) -> types.AgentV1Settings:
    """The message `Settings`."""
    return types.AgentV1Settings(audio=types.AgentV1SettingsAudio(**audio), agent=agent, **more)


def linear(rate_hz: int, **more: Any) -> dict[str, Any]:
    """A format of plain samples."""
    return {"encoding": "linear16", "sample_rate": rate_hz, **more}


def agent(listen: dict[str, Any], think: dict[str, Any], speak: str) -> types.AgentV1SettingsAgent:
    """An agent in full."""
    return types.AgentV1SettingsAgent(
        listen={"provider": {"type": "deepgram", **listen}},
        think=think,
        speak={"provider": {"type": "deepgram", "model": speak}},
    )


FLUX = {"version": "v2", "model": "flux-general-en"}
THINKS = {"provider": {"type": "open_ai", "model": "gpt-4o-mini"}}
G711 = {"encoding": "mulaw", "sample_rate": 8000}
CLIENT = {
    "usual": settings(
        {"input": linear(16000), "output": linear(24000, container="none")}, agent(FLUX, THINKS, "aura-2-thalia-en")
    ),
    "everything": settings(
        {"input": linear(48000), "output": linear(16000, container="none")},
        agent(
            {"version": "v1", "model": "nova-3"},
            {"provider": {"type": "open_ai", "model": "gpt-4.1-mini"}, "prompt": "Be brief."},
            "aura-2-apollo-en",
        ),
        tags=["nightly", f"traceparent={TRACE}"],
        experimental=True,
        flags=types.AgentV1SettingsFlags(history=False),
        mip_opt_out=True,
    ),
    "manual-g711": settings(
        {"input": G711, "output": {**G711, "container": "none"}},
        agent({**FLUX, "eot_threshold": 1.0}, THINKS, "aura-2-thalia-en"),
    ),
    "agent-id": settings(
        {"input": linear(24000), "output": linear(48000, container="none")}, "0198b1c6-4b0e-7a6b-9d3c-2f3f0d1c5a11"
    ),
}


class Line:
    """The stream to which the package's client writes."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def send(self, message: Any) -> None:
        self.sent.append(message)


def sent(kind: str, *args: Any) -> dict[str, Any]:
    """The message that the package's client sends."""
    line = Line()
    getattr(V1SocketClient(websocket=line), f"send_{kind}")(*args)
    (message,) = line.sent
    return json.loads(message)


def main(out: str) -> None:
    """Write all of them to a file."""
    answer = types.AgentV1SendFunctionCallResponse(id="call_1", name="light", content="on")
    result = {
        "recorded": {"deepgram-sdk": importlib.metadata.version("deepgram-sdk")},
        "types": sorted(kind.__name__ for kind in typing.get_args(V1SocketClientResponse)),
        "made": sorted({type(message).__name__ for message in SERVER.values()}),
        "server": {name: _sanitize_numeric_types(message.dict()) for name, message in SERVER.items()},
        "client": {
            **{name: sent("settings", message) for name, message in CLIENT.items()},
            "force-end-turn": sent("force_end_turn"),
            "function-call-response": sent("function_call_response", answer),
        },
    }
    Path(out).write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])

"""The table of the protocols in this package: where the code of each is, and what it is, without loading it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from loadtest.protocols.description import Description, ShownStage

_ALL: Final[tuple[ShownStage, ...]] = ("end of speech", "partial transcripts", "transcripts", "text", "speech")
_AFTER_SPEECH: Final = _ALL[1:]  # the caller ends its turns itself


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A protocol of this package. Importing `module` registers it."""

    module: str
    description: Description


def _telephony(name: str, provider: str, *proved_against: str) -> BuiltIn:
    summary = f"a telephone call as {provider} streams it to an agent"
    described = Description(name=name, summary=summary, shows=("speech",), proved_against=proved_against)
    return BuiltIn("loadtest.protocols.telephony.providers", described)


_PIPECAT_PEER: Final = "pipecat-ai 1.14.0"
_LIVEKIT_PEER: Final = "livekit-agents 1.8.9"
_REALTIME: Final = "loadtest.protocols.openai_realtime.wires"
_STAGES: Final = "loadtest.protocols.stages.wires"
_PIPECAT: Final = "loadtest.protocols.pipecat.caller"
_ROWS: Final = (
    BuiltIn(
        _REALTIME,
        Description(
            name="openai-realtime",
            summary="OpenAI Realtime and its dialects: Azure, xAI, LocalAI, Speaches, speech-to-speech",
            shows=_ALL,
            proved_against=(
                "speech-to-speech 1.1.0",
                "openai 3.52.0 (types of messages)",
                "pipecat-ai 1.14.0 (types of xAI's messages)",
            ),
            url_hints=("ws*://*/v1/realtime", "ws*://api.openai.com/*", "ws*://*.openai.azure.com/*"),
        ),
    ),
    BuiltIn(
        _REALTIME,
        Description(
            name="openai-realtime-beta",
            summary="OpenAI Realtime's beta events",
            shows=_ALL,
            proved_against=("openai 3.52.0 (types of messages)",),
        ),
    ),
    BuiltIn(
        _STAGES,
        Description(
            name="http-cascade",
            summary="recognition, language model and speech synthesis by OpenAI's HTTP API, one after the other",
            shows=_AFTER_SPEECH,
            proved_against=("litellm 1.106.2 (without partial transcripts)",),
            transport="http",
            url_hints=("http*://*/v1", "http*://*/v1/"),
        ),
    ),
    BuiltIn(
        _STAGES,
        Description(
            name="asr",
            summary="recognition alone, by OpenAI's HTTP API",
            shows=("partial transcripts", "transcripts"),
            proved_against=("litellm 1.106.2 (without partial transcripts)",),
            transport="http",
        ),
    ),
    BuiltIn(
        _STAGES,
        Description(
            name="llm",
            summary="a language model alone, by OpenAI's HTTP API: turns are text",
            shows=("text",),
            proved_against=("litellm 1.106.2",),
            transport="http",
        ),
    ),
    BuiltIn(
        _STAGES,
        Description(
            name="tts",
            summary="speech synthesis alone, by OpenAI's HTTP API: turns are text",
            shows=("speech",),
            proved_against=("litellm 1.106.2",),
            transport="http",
        ),
    ),
    _telephony("twilio", "Twilio", _PIPECAT_PEER),
    _telephony("telnyx", "Telnyx", _PIPECAT_PEER),
    _telephony("plivo", "Plivo", _PIPECAT_PEER),
    _telephony("exotel", "Exotel", _PIPECAT_PEER),
    _telephony("vonage", "Vonage", "pipecat-ai 1.14.0 (serializer)"),
    BuiltIn(
        _PIPECAT,
        Description(
            name="pipecat",
            summary="Pipecat's WebSocket transport with protobuf and RTVI",
            shows=_ALL,
            proved_against=(_PIPECAT_PEER,),
            url_hints=("ws*://*/ws-client",),
        ),
    ),
    BuiltIn(
        _PIPECAT,
        Description(
            name="pipecat-eval",
            summary="Pipecat's evaluation transport, in JSON with RTVI",
            shows=_ALL,
            proved_against=(_PIPECAT_PEER,),
        ),
    ),
    BuiltIn(
        "loadtest.protocols.deepgram.caller",
        Description(
            name="deepgram-agent",
            summary="Deepgram's Voice Agent",
            shows=("transcripts", "speech"),
            proved_against=("deepgram-sdk 7.17.0 (types of messages, and its client)",),
            url_hints=("ws*://agent.deepgram.com*", "ws*://*/v1/agent/converse"),
        ),
    ),
    BuiltIn(
        "loadtest.protocols.smallwebrtc.caller",
        Description(
            name="smallwebrtc",
            summary="Pipecat's SmallWebRTC: audio by WebRTC, RTVI over its data channel (needs the extra `webrtc`)",
            shows=_ALL,
            proved_against=(_PIPECAT_PEER,),
            transport="webrtc",
            url_hints=("http*://*/api/offer",),
        ),
    ),
    BuiltIn(
        "loadtest.protocols.livekit.console",
        Description(
            name="livekit-console",
            summary="the console link of LiveKit's agents: one agent process connects to the caller, without a server",
            shows=("end of speech", "partial transcripts", "transcripts", "speech"),
            transport="tcp-listen",
            proved_against=(_LIVEKIT_PEER,),
            url_hints=("tcp-listen://*",),
        ),
    ),
    BuiltIn(
        "loadtest.protocols.livekit.room",
        Description(
            name="livekit",
            summary="agents in rooms, by LiveKit's SDK (needs the extra `livekit`); never run against a LiveKit server",
            shows=("end of speech", "partial transcripts", "transcripts", "speech"),
            transport="livekit-room",
            proved_against=("livekit 1.2.1 (SDK, without a server)",),
            url_hints=("ws*://*.livekit.cloud",),
        ),
    ),
    BuiltIn(
        "loadtest.protocols.declared.wire",
        Description(
            name="declared",
            summary="any other wire over WebSocket, described by a YAML file, which says what it shows",
            shows=_ALL,
            proved_against=(),
        ),
    ),
    BuiltIn(
        "loadtest.protocols.elevenlabs.caller",
        Description(
            name="elevenlabs",
            summary="ElevenLabs Agents; which events come is the agent's configuration",
            shows=_AFTER_SPEECH,
            proved_against=("elevenlabs 2.78.0 (its client, and types of messages)",),
            url_hints=("ws*://*/v1/convai/conversation", "ws*://api.elevenlabs.io/*", "ws*://api.*.elevenlabs.io/*"),
        ),
    ),
    BuiltIn(
        "loadtest.protocols.vllm.caller",
        Description(
            name="vllm-realtime",
            summary="realtime transcription of vLLM and SGLang: recognition alone",
            shows=("partial transcripts", "transcripts"),
            proved_against=(),
        ),
    ),
    BuiltIn(
        "loadtest.protocols.gemini.caller",
        Description(
            name="gemini-live",
            summary="Gemini Live, of the Gemini API and of the Enterprise Agent Platform (Vertex AI)",
            shows=("partial transcripts", "transcripts", "speech"),
            proved_against=("google-genai 3.4.0 (client)",),
            url_hints=(
                "ws*://generativelanguage.googleapis.com*",
                "ws*://*/ws/google.ai.generativelanguage.*",
                "ws*://*aiplatform.googleapis.com*",
                "ws*://*/ws/google.cloud.aiplatform.*",
            ),
        ),
    ),
    BuiltIn(
        "loadtest.protocols.wyoming.caller",
        Description(
            name="wyoming",
            summary="Home Assistant's Wyoming over TCP: transcribe, handle, synthesize",
            shows=_AFTER_SPEECH,
            proved_against=("wyoming 1.10.2",),
            transport="tcp",
            url_hints=("tcp://*", "tls://*"),
        ),
    ),
)


BUILT_IN: Final[Mapping[str, BuiltIn]] = {row.description.name: row for row in _ROWS}

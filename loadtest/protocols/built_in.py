"""The protocols of this package: what each is, and where its code is, without loading it."""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, Literal
from urllib.parse import urlsplit

from loadtest.protocols.base import TransportKind

# The stages of a turn that a wire may show the caller.
ShownStage = Literal["end of speech", "partial transcripts", "transcripts", "text", "speech"]

# The metric that cannot be without its stage: what a description says is checked against what a caller declares.
METRIC_OF: Final[Mapping[ShownStage, str]] = {
    "end of speech": "endpointing",
    "partial transcripts": "asr_partial_latency",
    "transcripts": "asr_final_latency",
    "text": "llm_first_token_latency",
    "speech": "voice_to_voice",
}
_WILDCARD: Final = "*"
_ALL: Final = tuple(METRIC_OF)
_AFTER_SPEECH: Final = _ALL[1:]  # the caller ends its turns itself
_NO_TEXT: Final[tuple[ShownStage, ...]] = ("end of speech", "partial transcripts", "transcripts", "speech")


@dataclass(frozen=True, slots=True)
class Description:
    """One protocol in words.

    `proved_against` names the packages of others with which the tests check it: "NAME VERSION", the version as pinned,
    and in parentheses what of the package was used unless whole calls are made to it; none if it was checked only with
    servers of this project. `url_hints` are patterns of addresses that this protocol is taken for, without port and
    query; `*` is any text. `code` is "MODULE:NAME", within this package, of what makes its callers.
    """

    name: str
    summary: str
    shows: tuple[ShownStage, ...]
    proved_against: tuple[str, ...] = ()
    transport: TransportKind = "websocket"
    url_hints: tuple[str, ...] = ()
    code: str | None = None  # None: the package of others that registers it

    @property
    def shown(self) -> str:
        """The stages in words."""
        return "every stage" if len(self.shows) == len(METRIC_OF) else ", ".join(self.shows)

    @property
    def proof(self) -> str:
        """The peers that it was checked with, in words."""
        return ", ".join(self.proved_against) or "scripted servers only"

    def fit(self, url: str) -> int:
        """Return how many characters of a pattern the address fits literally, by the longest one; 0: it fits none."""
        try:
            parts = urlsplit(url)
            host = parts.hostname
        except ValueError:
            return 0
        plain = f"{parts.scheme}://{host}{parts.path}"
        fits = [hint for hint in self.url_hints if fnmatchcase(plain, hint)]
        return max((len(hint.replace(_WILDCARD, "")) for hint in fits), default=0)


_PIPECAT: Final = ("pipecat-ai 1.14.0",)
_LITELLM: Final = ("litellm 1.106.2 (without partial transcripts)",)
_TYPES: Final = "openai 3.52.0 (types of messages)"


def _telephony(provider: str, proved_against: tuple[str, ...] = _PIPECAT) -> Description:
    name, summary = provider.lower(), f"a telephone call as {provider} streams it to an agent"
    return Description(name, summary, ("speech",), proved_against, code=f"telephony.caller:{name}")


_ROWS: Final = (
    Description(
        "openai-realtime",
        "OpenAI Realtime and its dialects: Azure, xAI, LocalAI, Speaches, speech-to-speech",
        _ALL,
        ("speech-to-speech 1.1.0", _TYPES, "pipecat-ai 1.14.0 (types of xAI's messages)"),
        url_hints=("ws*://*/v1/realtime", "ws*://api.openai.com/*", "ws*://*.openai.azure.com/*"),
        code="openai_realtime.caller:OpenAIRealtimeCaller",
    ),
    Description(
        "openai-realtime-beta",
        "OpenAI Realtime's beta events",
        _ALL,
        (_TYPES,),
        code="openai_realtime.caller:beta",
    ),
    Description(
        "http-cascade",
        "recognition, language model and speech synthesis by OpenAI's HTTP API, one after the other",
        _AFTER_SPEECH,
        _LITELLM,
        "http",
        ("http*://*/v1", "http*://*/v1/"),
        "stages.caller:http_cascade",
    ),
    Description(
        "asr",
        "recognition alone, by OpenAI's HTTP API",
        ("partial transcripts", "transcripts"),
        _LITELLM,
        "http",
        code="stages.caller:asr_alone",
    ),
    Description(
        "llm",
        "a language model alone, by OpenAI's HTTP API: turns are text",
        ("text",),
        ("litellm 1.106.2",),
        "http",
        code="stages.caller:llm_alone",
    ),
    Description(
        "tts",
        "speech synthesis alone, by OpenAI's HTTP API: turns are text",
        ("speech",),
        ("litellm 1.106.2",),
        "http",
        code="stages.caller:tts_alone",
    ),
    *map(_telephony, ("Twilio", "Telnyx", "Plivo", "Exotel")),
    _telephony("Vonage", ("pipecat-ai 1.14.0 (serializer)",)),
    Description(
        "pipecat",
        "Pipecat's WebSocket transport with protobuf and RTVI",
        _ALL,
        _PIPECAT,
        url_hints=("ws*://*/ws-client",),
        code="pipecat.caller:PipecatCaller",
    ),
    Description(
        "pipecat-eval",
        "Pipecat's evaluation transport, in JSON with RTVI",
        _ALL,
        _PIPECAT,
        code="pipecat.caller:PipecatEvalCaller",
    ),
    Description(
        "deepgram-agent",
        "Deepgram's Voice Agent",
        ("transcripts", "speech"),
        ("deepgram-sdk 7.17.0 (types of messages, and its client)",),
        url_hints=("ws*://agent.deepgram.com*", "ws*://*/v1/agent/converse"),
        code="deepgram.caller:DeepgramCaller",
    ),
    Description(
        "smallwebrtc",
        "Pipecat's SmallWebRTC: audio by WebRTC, RTVI over its data channel (needs the extra `webrtc`)",
        _ALL,
        _PIPECAT,
        "webrtc",
        ("http*://*/api/offer",),
        "smallwebrtc.caller:SmallWebRtcCaller",
    ),
    Description(
        "livekit-console",
        "the console link of LiveKit's agents: one agent process connects to the caller, without a server",
        _NO_TEXT,
        ("livekit-agents 1.8.9",),
        "tcp-listen",
        ("tcp-listen://*",),
        "livekit.console:ConsoleCaller",
    ),
    Description(
        "livekit",
        "agents in rooms, by LiveKit's SDK (needs the extra `livekit`); never run against a LiveKit server",
        _NO_TEXT,
        ("livekit 1.2.1 (SDK, without a server)",),
        "livekit-room",
        ("ws*://*.livekit.cloud",),
        "livekit.room:RoomCaller",
    ),
    Description(
        "declared",
        "any other wire over WebSocket, described by a YAML file, which says what it shows",
        _ALL,
        code="declared.caller:declared",
    ),
    Description(
        "elevenlabs",
        "ElevenLabs Agents; which events come is the agent's configuration",
        _AFTER_SPEECH,
        ("elevenlabs 2.78.0 (its client, and types of messages)",),
        url_hints=("ws*://*/v1/convai/conversation", "ws*://api.elevenlabs.io/*", "ws*://api.*.elevenlabs.io/*"),
        code="elevenlabs.caller:ElevenLabsCaller",
    ),
    Description(
        "vllm-realtime",
        "realtime transcription of vLLM and SGLang: recognition alone",
        ("partial transcripts", "transcripts"),
        code="vllm.caller:VllmCaller",
    ),
    Description(
        "gemini-live",
        "Gemini Live, of the Gemini API and of the Enterprise Agent Platform (Vertex AI)",
        ("partial transcripts", "transcripts", "speech"),
        ("google-genai 3.4.0 (client)",),
        url_hints=(
            "ws*://generativelanguage.googleapis.com*",
            "ws*://*/ws/google.ai.generativelanguage.*",
            "ws*://*aiplatform.googleapis.com*",
            "ws*://*/ws/google.cloud.aiplatform.*",
        ),
        code="gemini.caller:GeminiCaller",
    ),
    Description(
        "wyoming",
        "Home Assistant's Wyoming over TCP: transcribe, handle, synthesize",
        _AFTER_SPEECH,
        ("wyoming 1.10.2",),
        "tcp",
        ("tcp://*", "tls://*"),
        "wyoming.caller:WyomingCaller",
    ),
)
BUILT_IN: Final[Mapping[str, Description]] = {row.name: row for row in _ROWS}

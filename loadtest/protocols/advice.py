"""Advice on a refusal, a closed connection or an error, by its cause and by the endpoint's own words. Pure.

An endpoint names the same mistake in many ways: by a status, by a code of its close frame, by a sentence. What it says
counts before the code, because one code covers many mistakes: Gemini closes with 1007 for a key that is not valid.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import urlsplit

from loadtest.protocols.failure import Failure
from loadtest.protocols.headers import TOKEN_VARIABLE

Topic = Literal["limit", "key", "agent", "model", "audio", "path"]
# In the order in which they count: a sentence about a key may also name the model that it is for.
_TOPICS: Final[tuple[tuple[Topic, re.Pattern[str]], ...]] = (
    (
        "limit",
        re.compile(
            r"rate.?limit|quota|too many|resource.{0,10}exhausted|concurren|capacity|overloaded|session_limit",
            re.IGNORECASE,
        ),
    ),
    (
        "key",
        re.compile(
            r"api.?key|unauthori[sz]ed|unauthenticated|authenticat|authori[sz]ation|credential|\btoken\b|permission"
            r"|unregistered callers|invalid.auth|access denied|not signed|signature|missing.*\bkey\b"
            r"|\bkey\b.*(?:missing|invalid)",
            re.IGNORECASE,
        ),
    ),
    (
        "agent",
        re.compile(
            r"agent.?id\b|\bagent\b.{0,40}(?:not found|not exist|unknown)|unknown agent|no such agent", re.IGNORECASE
        ),
    ),
    (
        "model",
        re.compile(r"\bmodels?\b|model_|_model\b|\bdeployment\b|not found for api version", re.IGNORECASE),
    ),
    (
        "audio",
        re.compile(
            r"sample.?rate|encoding|audio.?format|\bformats?\b|codec|\bmime|\bpcm|mu-?law|\bopus\b|unsupported media"
            r"|could not be decoded|decode audio|\bHz\b",
            re.IGNORECASE,
        ),
    ),
    (
        "path",
        re.compile(
            r"not found|no such (?:path|route)|invalid url|cannot (?:get|post)|unknown (?:path|route)", re.IGNORECASE
        ),
    ),
)
_OF_STAGES: Final = (
    "name one that it has: for asr with --transcription-model, for llm with --model, for tts with "
    "--protocol-option tts_model=…"
)
_OF_THE_AGENT: Final = "the agent's own configuration names it"
_NO_MODEL: Final[Mapping[str, str]] = {
    "elevenlabs": _OF_THE_AGENT,
    **dict.fromkeys(("pipecat", "pipecat-eval", "smallwebrtc", "livekit", "livekit-console"), _OF_THE_AGENT),
    **dict.fromkeys(("twilio", "telnyx", "plivo", "exotel", "vonage"), _OF_THE_AGENT),
}
_AGENTS: Final[Mapping[str, str]] = {
    "elevenlabs": "name the agent in the address: ?agent_id=…",
    "deepgram-agent": "name an agent that the project has with --protocol-option agent=…",
}
# What each wire's settings can say of the audio.
_AUDIO: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("openai-realtime", "openai-realtime-beta"),
        "callers send 16-bit PCM at 24 kHz: let the endpoint take that, or name its --protocol-option dialect=…",
    ),
    "deepgram-agent": "set --protocol-option input_encoding=…, input_rate_hz=…, output_encoding=… or output_rate_hz=…",
    "elevenlabs": "set --protocol-option user_input_audio_format=… to the agent's",
    "gemini-live": "callers send 16-bit PCM at 16 kHz, which the service documents: check what is in front of it",
    **dict.fromkeys(("pipecat", "pipecat-eval"), "set --protocol-option input_rate_hz=… to the bot's"),
    **dict.fromkeys(
        ("twilio", "telnyx", "plivo", "exotel", "vonage"),
        "set --protocol-option encoding=… and rate_hz=… to the agent's",
    ),
    **dict.fromkeys(("vllm-realtime", "wyoming"), "set --protocol-option rate_hz=… to the server's"),
    "asr": "set --protocol-option asr_rate_hz=… to the service's",
    "tts": "set --protocol-option tts_format=pcm (or wav), and tts_rate_hz=… to the service's",
    "llm": "this wire carries text: check the fields in --protocol-option llm_body=…",
}
_ANY_AUDIO: Final = "set the --protocol-option of this protocol that names the audio"
_CODES: Final[Mapping[str, str]] = {
    "1000": "it ended the call by itself: check --protocol, and see its log",
    "1001": "the endpoint goes away: is it being stopped or deployed?",
    "1002": "it takes what the caller sent for no WebSocket of its kind: check the path and --protocol",
    "1003": "it takes no messages of this kind: check --protocol",
    "1007": "it could not read what the caller sent: check the model{model}, the audio format and --protocol",
    "1008": "its rules do not allow the call: check the key, the model{model} and the path",
    "1009": "a message of the caller was longer than it takes: check its limit",
    "1011": "it failed by itself: see its log",
    "1012": "it restarts: try again later",
    "1013": "it has no room: try again later",
    "1014": "a proxy before it got no answer: is the service behind it running?",
}
_STATUSES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("404", "410"), "it has nothing there: check {path}, and --protocol"),
    **dict.fromkeys(("405", "426", "501"), "what is there takes other requests: check {path}, and --protocol"),
    **dict.fromkeys(("200", "204"), "what is there is no WebSocket: check {path}, and --protocol"),
    **dict.fromkeys(("429", "503"), "it takes no more calls now: try again later, or ask for fewer --users"),
    **dict.fromkeys(("502", "504"), "a proxy answered, and the service behind it did not: is it running?"),
    "500": "it failed by itself: see its log",
}


@dataclass(frozen=True, slots=True)
class Attempt:
    """A failed attempt. `has_key` is None where that is not known; `url` has neither credentials nor a query."""

    protocol: str | None = None
    url: str = ""
    has_key: bool | None = None
    model: str | None = None

    @property
    def path(self) -> str:
        """The path of the address."""
        return urlsplit(self.url).path or "/"


def topic_of(sentence: str) -> Topic | None:
    """Return what a sentence of an endpoint is about, None where it names nothing of the kind."""
    return next((topic for topic, pattern in _TOPICS if pattern.search(sentence)), None)


def advice(failure: Failure | None, sentence: str, attempt: Attempt) -> str | None:
    """Return what to do about a failure that `sentence` is about, None for no advice."""
    if failure is None or "--protocol" in sentence:  # the sentence says it already
        return None
    topic, code = topic_of(sentence), failure.code or ""
    if failure.kind == "http_status":
        return _status_advice(code, topic, attempt)
    if failure.kind == "close_code":
        asked = " (none was named: --model NAME)" if attempt.protocol is not None and attempt.model is None else ""
        named = _CODES.get(code, "").format(model="" if attempt.protocol in _NO_MODEL else asked)
        return _topic_advice(topic, attempt) or named or _application_advice(code, attempt)
    if failure.kind in ("endpoint_error", "protocol_violation", "bad_audio"):
        if failure.kind == "bad_audio":
            return _audio(attempt)
        return _topic_advice(topic, attempt)
    place = "port" if attempt.url.startswith(("tcp:", "tls:")) else "path"
    if (failure.kind, code) == ("timeout", "session"):
        return f"check the {place} and --protocol: an endpoint of another protocol waits for other messages"
    if (failure.kind, code) == ("tcp", "EOF"):
        return f"check the {place} and --protocol: a server of another protocol hangs up on what it cannot read"
    return None


def _topic_advice(topic: Topic | None, attempt: Attempt) -> str | None:
    match topic:
        case "key":
            return _key(attempt)
        case "agent":
            return _AGENTS.get(attempt.protocol or "", "check which agent the address names")
        case "model":
            return _model(attempt)
        case "audio":
            return _audio(attempt)
        case "limit":
            return "it has a limit of its own: ask for fewer --users, or for a higher limit"
        case "path":
            return f"check the path {attempt.path}" if attempt.url else "check the address"
        case None:
            return None


def _status_advice(code: str, topic: Topic | None, attempt: Attempt) -> str | None:
    path = f"the path {attempt.path}" if attempt.url else "the path"
    if code in ("401", "407"):
        return _key(attempt)
    if code == "403":
        return _forbidden_advice(topic, attempt, path)
    if code in ("404", "410") and topic == "model":
        return _model(attempt)
    if code == "415":
        return _audio(attempt)
    if code in _STATUSES:
        return _STATUSES[code].format(path=path)
    if code.startswith("3"):
        return "give the address that it leads to"
    if code.startswith("4"):
        return _topic_advice(topic, attempt) or f"check {path}, its query, the model and --protocol"
    return None


def _forbidden_advice(topic: Topic | None, attempt: Attempt, path: str) -> str:
    if topic == "key" or attempt.url.startswith(("http:", "https:")):
        return f"{_key(attempt)}; if the key is right, check {path}"
    both = "WebSocket servers answer so for a path that they do not have as well as for a key"
    sent = "" if attempt.has_key is not False else "; none was sent"
    return f"{both}: check {path} first, then the key ({TOKEN_VARIABLE}, or --header{sent})"


def _application_advice(code: str, attempt: Attempt) -> str | None:
    """Return advice on a close code of the application: many end with the HTTP status that they mean."""
    if len(code) != 4 or code[0] not in "34":
        return None
    same = {"3000": "401", "3003": "403", "3008": "504"}.get(code) or (code[1:] if code[0] == "4" else "")
    if same in ("401", "403", "404", "429", "503"):
        return _status_advice(same, None, attempt)
    return "the code is the endpoint's own: look it up there, and check the key, the model and --protocol"


def _key(attempt: Attempt) -> str:
    if attempt.has_key is None:
        return f"check the key in {TOKEN_VARIABLE} (or --header)"
    if attempt.has_key:
        return f"it does not accept the key: check {TOKEN_VARIABLE} (or --header), and what the key is allowed to use"
    return f"no key was sent: put it into the environment variable {TOKEN_VARIABLE} (or see --header)"


def _model(attempt: Attempt) -> str:
    if (decided := _NO_MODEL.get(attempt.protocol or "")) is not None:
        return decided
    if attempt.protocol == "http-cascade":
        return _OF_STAGES
    if attempt.protocol is None:
        return "name a model that it has with --model NAME"
    asked = "no model was named" if attempt.model is None else f"the model asked for is {attempt.model!r}"
    return f"{asked}: name one that it has with --model NAME"


def _audio(attempt: Attempt) -> str:
    return _AUDIO.get(attempt.protocol or "", _ANY_AUDIO)

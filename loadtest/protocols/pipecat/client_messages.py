"""Creates the RTVI messages that a caller sends."""

from typing import Final

import orjson

VERSION: Final = "2.2.0"
LIBRARY: Final = "voiceprobe"
READY_ID: Final = "voiceprobe-ready"
TRACE_ID: Final = "voiceprobe-trace"
EVAL_CONNECT: Final = "eval-connect"


def rtvi(kind: str, message_id: str, data: object) -> str:
    """Create a message of any type."""
    return orjson.dumps({"label": "rtvi-ai", "type": kind, "id": message_id, "data": data}).decode()


def client_ready(version: str) -> str:
    """State the version of RTVI, which decides what the bot sends; it answers with `bot-ready`."""
    return rtvi("client-ready", READY_ID, {"version": version, "about": {"library": LIBRARY}})


def trace(traceparent: str | None, turn: int, metadata: tuple[tuple[str, str], ...]) -> str:
    """Tell the bot's own code to which trace the next turn belongs."""
    data: dict[str, object] = {"turn": turn}
    if traceparent is not None:
        data["traceparent"] = traceparent
    if metadata:
        data["metadata"] = dict(metadata)
    return rtvi("client-message", f"{TRACE_ID}-{turn}", {"t": "trace", "d": data})


def disconnect() -> str:
    """Ask the bot to end its pipeline."""
    return rtvi("disconnect-bot", "voiceprobe-disconnect", None)


def eval_connect() -> str:
    """Choose the evaluation transport of Pipecat's runner, with speech; must come first."""
    flags = {"skip_tts": False, "capture_bot_audio": True, "capture_bot_images": False}
    return rtvi("client-message", EVAL_CONNECT, {"t": EVAL_CONNECT, "d": flags})

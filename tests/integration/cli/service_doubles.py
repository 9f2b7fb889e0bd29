"""Doubles of services that refuse callers as the services do: their statuses, bodies, events and close codes.

One web application plays all of them, each under its own paths, on a thread of the test: as FastAPI's do, it answers an
upgrade to a path that it does not have with 403. `RIGHT_KEY` and `RIGHT_MODEL` are what they take.
"""

import contextlib
import json
import socket
import threading
from collections.abc import Generator
from typing import Any

import uvicorn
from fastapi import FastAPI, Request, WebSocket
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.websockets import WebSocketDisconnect

from tests.integration.waiting import wait_until

RIGHT_KEY = "sk-the-right-key-0123456789"
RIGHT_MODEL = "gpt-right"
FAULTS = {"1": "the model is unknown", "2": "the sample rate of the audio is not supported"}
app = FastAPI()


def _bearer(headers: Any) -> str | None:
    kind, _, key = (headers.get("authorization") or "").partition(" ")
    return key if kind.lower() in ("bearer", "token") else None


async def _deny(socket: WebSocket, status: int, body: dict[str, Any]) -> None:
    await socket.send_denial_response(JSONResponse(body, status))


async def _wait_for_the_end(socket: WebSocket) -> None:
    with contextlib.suppress(WebSocketDisconnect):
        while True:
            await socket.receive()
            if socket.client_state.name == "DISCONNECTED":
                return


# OpenAI Realtime.


def _openai_error(message: str, code: str | None, param: str | None = None) -> dict[str, Any]:
    return {"message": message, "type": "invalid_request_error", "code": code, "param": param}


@app.websocket("/v1/realtime")
async def realtime(socket: WebSocket) -> None:
    key = _bearer(socket.headers)
    if key is None:
        text = "Missing bearer or basic authentication in header"
        await _deny(socket, 401, {"error": _openai_error(text, None)})
        return
    await socket.accept()
    if key != RIGHT_KEY:
        error = _openai_error(f"Incorrect API key provided: {key[:8]}***.", "invalid_api_key")
        await socket.send_json({"type": "error", "event_id": "e", "error": error})
        await socket.close(3000, "invalid_request_error.invalid_api_key")
        return
    if "model" not in socket.query_params:
        error = _openai_error("You must provide a model parameter.", "missing_model")
        await socket.send_json({"type": "error", "event_id": "e", "error": error})
        await socket.close(4000, "invalid_request_error.missing_model")
        return
    await socket.send_json({"type": "session.created", "session": {"id": "s"}})
    update = json.loads(await socket.receive_text())
    asked = update["session"]["audio"]["input"]["format"]["type"]
    text = f"Invalid value: '{asked}'. Supported values are: 'audio/pcmu' and 'audio/pcma'."
    error = _openai_error(text, "invalid_value", "session.audio.input.format") | {"event_id": update.get("event_id")}
    await socket.send_json({"type": "error", "event_id": "e", "error": error})
    await _wait_for_the_end(socket)


# OpenAI's HTTP API, as LiteLLM and vLLM answer.


@app.get("/v1/models")
async def models() -> dict[str, Any]:
    return {"object": "list", "data": [{"id": RIGHT_MODEL}]}


def _http_refusal(request: Request, model: str | None) -> Response | None:
    key = _bearer(request.headers)
    if key is None:
        text = "Authentication Error, No api key passed in."
        return JSONResponse({"error": {"message": text, "type": "auth_error", "param": "None", "code": "401"}}, 401)
    if key != RIGHT_KEY:
        text = "Authentication Error, Invalid proxy server token passed."
        return JSONResponse({"error": {"message": text, "type": "token_not_found_in_db", "code": "401"}}, 401)
    if model is None:
        return JSONResponse({"detail": [{"type": "missing", "loc": ["body", "model"], "msg": "Field required"}]}, 422)
    if model != RIGHT_MODEL:
        text = f"The model `{model}` does not exist."
        return JSONResponse({"object": "error", "message": text, "type": "NotFoundError", "code": 404}, 404)
    return None


@app.post("/v1/chat/completions")
async def chat(request: Request) -> Response:
    body = await request.json()
    if (refusal := _http_refusal(request, body.get("model"))) is not None:
        return refusal
    chunk = {"choices": [{"index": 0, "delta": {"content": "Yes."}, "finish_reason": "stop"}]}
    return StreamingResponse(
        iter([f"data: {json.dumps(chunk)}\n\n", "data: [DONE]\n\n"]), media_type="text/event-stream"
    )


@app.post("/v1/audio/speech")
async def speech(request: Request) -> Response:
    body = await request.json()
    if (refusal := _http_refusal(request, body.get("model"))) is not None:
        return refusal
    return Response(b"ID3\x04" + bytes(4000), media_type="audio/mpeg")  # whatever format was asked for


@app.post("/v1/audio/transcriptions")
async def transcriptions(request: Request) -> Response:
    form = await request.body()
    named = f'name="model"\r\n\r\n{RIGHT_MODEL}\r\n'.encode() in form
    missing = b'name="model"' not in form
    if (refusal := _http_refusal(request, None if missing else RIGHT_MODEL if named else "another")) is not None:
        return refusal
    text = "Audio file might be corrupted or unsupported: the sample rate is not supported"
    return JSONResponse({"error": _openai_error(text, "invalid_value", "file")}, 400)


# Deepgram's Voice Agent.


@app.websocket("/v1/agent/converse")
async def converse(socket: WebSocket) -> None:
    key = _bearer(socket.headers)
    if key != RIGHT_KEY:
        await _deny(socket, 401, {"err_code": "INVALID_AUTH", "err_msg": "Invalid credentials.", "request_id": "r"})
        return
    await socket.accept()
    await socket.send_json({"type": "Welcome", "request_id": "r"})
    settings = json.loads(await socket.receive_text())
    think = settings["agent"]["think"]["provider"]["model"]
    if think != RIGHT_MODEL:
        text = f"Failed to think: the model {think} is not available. Check the agent.think settings."
        await socket.send_json({"type": "Error", "description": text, "code": "FAILED_TO_THINK"})
    else:
        text = "Error parsing client message. Check the audio.input.encoding field against the API spec."
        await socket.send_json({"type": "Error", "description": text, "code": "UNPARSABLE_CLIENT_MESSAGE"})
    await _wait_for_the_end(socket)


# Gemini Live.

GEMINI = "/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent"


@app.websocket(GEMINI)
async def live(socket: WebSocket) -> None:
    await socket.accept()
    key = socket.headers.get("x-goog-api-key")
    setup = json.loads(await socket.receive_text())["setup"]
    if key is None:
        text = "Method doesn't allow unregistered callers (callers without established identity). Please use API Key or"
        await socket.close(1008, text)
    elif key != RIGHT_KEY:
        await socket.close(1007, "API key not valid. Please pass a valid API key.")
    elif "model" not in setup:
        await socket.close(1007, "Request contains an invalid argument.")
    elif setup["model"] != f"models/{RIGHT_MODEL}":
        text = f"{setup['model']} is not found for API version v1beta, or is not supported for bidiGenerateContent."
        await socket.close(1008, text)
    else:
        await socket.close(1007, "Unsupported audio format: sample rate 16000 is not supported.")


# ElevenLabs.


@app.websocket("/v1/convai/conversation")
async def convai(socket: WebSocket) -> None:
    key = socket.headers.get("xi-api-key")
    if key is None:
        await socket.accept()
        await socket.close(1008, "This agent requires conversation authorization.")
        return
    if key != RIGHT_KEY:
        await _deny(socket, 401, {"detail": {"status": "invalid_api_key", "message": "Invalid API key"}})
        return
    await socket.accept()
    if "agent_id" not in socket.query_params:
        await socket.close(1008, "Missing required query parameter: agent_id")
        return
    event = {"conversation_id": "c", "agent_output_audio_format": "pcm_16000", "user_input_audio_format": "ulaw_8000"}
    await socket.send_json(
        {"type": "conversation_initiation_metadata", "conversation_initiation_metadata_event": event}
    )
    await _wait_for_the_end(socket)


# Pipecat's evaluation transport, and a telephone provider's stream.


@app.websocket("/eval")
async def evaluate(socket: WebSocket) -> None:
    if _bearer(socket.headers) != RIGHT_KEY:
        await socket.close(1008)  # before it is accepted: HTTP 403
        return
    await socket.accept()
    await socket.receive_text()
    error = {"error": FAULTS[socket.query_params.get("f") or "1"], "fatal": True}
    await socket.send_json({"label": "rtvi-ai", "type": "error", "id": "e", "data": error})
    await _wait_for_the_end(socket)


@app.websocket("/twilio")
async def media_stream(socket: WebSocket) -> None:
    if socket.headers.get("x-twilio-signature") is None:
        await socket.close(1008)
        return
    await socket.accept()
    await socket.receive_text()
    await socket.receive_text()
    fault = FAULTS.get(socket.query_params.get("f") or "")
    await socket.close(4401 if fault is None else 1003, fault or "signature validation failed")


# What greets as another protocol does, or not at all.


@app.websocket("/openai")
async def greeting(socket: WebSocket) -> None:
    await socket.accept()
    await socket.send_json({"type": "session.created", "event_id": "e", "session": {}})
    await _wait_for_the_end(socket)


@app.websocket("/waiting")
async def waiting(socket: WebSocket) -> None:
    await socket.accept()
    await _wait_for_the_end(socket)


@app.get("/moved/{path:path}")
@app.post("/moved/{path:path}")
async def moved(path: str) -> Response:
    return RedirectResponse(f"/new/{path}?token=secret", 307)


@contextlib.contextmanager
def services() -> Generator[int]:
    """Serve all of them on a free port of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off", ws="websockets-sansio"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        wait_until(lambda: server.started)
        yield listening.getsockname()[1]
        server.should_exit = True
        thread.join(30)

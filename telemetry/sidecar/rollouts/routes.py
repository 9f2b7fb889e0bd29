"""Answers of a sidecar about its rollouts: verdicts for Argo Rollouts, yes or no for Flagger's webhooks, and whether a
stage may begin.

A verdict is answered only while the last evaluation is recent; otherwise the answer is a status that neither promotes
nor rolls back.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from telemetry.rollout.plan import Decision
from telemetry.sidecar.otlp.access import Access, Denial, is_authorized
from telemetry.sidecar.rollouts.evaluation import BEGUN, REFUSED, UNAVAILABLE, UNKNOWN, RolloutState
from telemetry.sidecar.rollouts.states import RolloutStates

BODY_BYTES_MAX: Final = 64 << 10
BODY_WITHIN_S: Final = 10.0
_RETRY_AFTER_S: Final = 5
_Answer = Callable[[Request, dict[str, Any]], Awaitable[Response]]


def routes(states: RolloutStates, access: Access) -> list[Route]:
    """Create the routes, which require the same credentials as the receivers; Flagger, whose webhooks have no such
    header, may put the token into their metadata."""

    async def listed(_request: Request, _body: dict[str, Any]) -> Response:
        return _json(200, {"rollouts": [_row(states, name) for name in states.names]})

    async def verdict(request: Request, _body: dict[str, Any]) -> Response:
        state = _state_of(states, request)
        if isinstance(state, Response):
            return state
        stage = request.query_params.get("stage")
        if stage is None or stage == state.stage:
            return _json(200, state.verdict)
        return _stage_answer(state, stage)

    def webhook(wanted: Decision) -> _Answer:
        async def answer(request: Request, _body: dict[str, Any]) -> Response:
            state = _state_of(states, request)
            if isinstance(state, Response):
                return state
            content = {"verdict": state.decision, "sentence": state.sentence, "stage": state.stage}
            return _json(200 if state.decision == wanted else REFUSED, content)

        return answer

    async def stage(request: Request, body: dict[str, Any]) -> Response:
        asked = body.get("stage", _metadata(body).get("stage"))
        if not isinstance(asked, str) or not asked:
            return _refused(400, 'say which stage begins: {"stage": "NAME"}')
        is_settled = body.get("settled", False)
        if not isinstance(is_settled, bool):
            return _refused(400, '"settled" is true where the share of a stage that has begun is in effect, or false')
        return await _begun(states, request, asked, is_settled=is_settled)

    async def advance(request: Request, _body: dict[str, Any]) -> Response:
        return await _begun(states, request, None)

    path = "/v1/rollouts/{name}"
    return [
        Route("/v1/rollouts", _reading(listed, access)),
        Route(f"{path}/verdict", _reading(verdict, access)),
        Route(f"{path}/confirm", _posted(webhook("promote"), access), methods=["POST"]),
        Route(f"{path}/rollback", _posted(webhook("roll_back"), access), methods=["POST"]),
        Route(f"{path}/stage", _posted(stage, access), methods=["POST"]),
        Route(f"{path}/advance", _posted(advance, access), methods=["POST"]),
    ]


def _row(states: RolloutStates, name: str) -> dict[str, Any]:
    state = states.state(name)
    if isinstance(state, str):
        return {"rollout": name, "verdict": None, "sentence": state}
    return {
        "rollout": name,
        "verdict": state.decision,
        "sentence": state.sentence,
        "stage": state.stage,
        "stages": state.stages,
        "share": state.verdict.share,
        "turns_needed": state.verdict.turns_needed,
        "at_unix_ns": state.verdict.at_unix_ns,
        "is_kept": state.is_kept,
    }


def _state_of(states: RolloutStates, request: Request) -> RolloutState | Response:
    name = request.path_params["name"]
    if name not in states.names:
        return _unknown(states, name)
    state = states.state(name)
    return state if isinstance(state, RolloutState) else _refused(UNAVAILABLE, state)


def _unknown(states: RolloutStates, name: str) -> Response:
    known = f"known are {', '.join(states.names)}" if states.names else "the sidecar was started without any"
    return _refused(UNKNOWN, f"there is no rollout {name!r:.80}; {known}")


def _stage_answer(state: RolloutState, stage: str) -> Response:
    """Answer for a stage that is not the current one: a promoted stage remains promoted during the rollout, and a stage
    that has not begun holds."""
    rollout = state.verdict.rollout
    if stage not in state.stages:
        known = ", ".join(state.stages)
        return _refused(UNKNOWN, f"{rollout} has no stage {stage!r:.80}; known are {known}")
    decision: Decision = "promote" if stage in state.promoted else "hold"
    if decision == "hold" and state.decision != "promote":
        return _json(200, state.verdict)
    sentence, needed = f"the stage {stage} has not begun: the rollout is at {state.stage}", None
    if decision == "promote":
        sentence, needed = f"the stage {stage} was promoted, and the rollout is at {state.stage}", 0
    answered = msgspec.structs.replace(
        state.verdict, verdict=decision, turns_needed=needed, stage=stage, sentence=sentence, reasons=(sentence,)
    )
    return _json(200, answered)


async def _begun(states: RolloutStates, request: Request, stage: str | None, *, is_settled: bool = False) -> Response:
    state = _state_of(states, request)
    if isinstance(state, Response):
        return state
    answered = await states.begin(state.verdict.rollout, stage, is_settled=is_settled)
    if answered.status != BEGUN:
        return _refused(answered.status, answered.sentence)
    return _json(200, {"rollout": state.verdict.rollout, "stage": answered.stage, "sentence": answered.sentence})


def _reading(answer: _Answer, access: Access) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        denial = access.denial(request)
        return await answer(request, {}) if denial is None else _denied(denial)

    return endpoint


def _posted(answer: _Answer, access: Access) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        denial = access.denial(request)
        if denial is not None and not _may_be_in_body(request, denial):
            return _denied(denial)
        try:
            body = await _body(request)
        except TimeoutError:
            return _refused(408, "the body did not arrive in time", {"connection": "close"})
        except ClientDisconnect:
            return Response(status_code=400)
        if isinstance(body, Response):
            return body if denial is None else _denied(denial)
        if denial is not None and not is_authorized(f"Bearer {_metadata(body).get('token', '')}", access.token):
            return _denied(denial)
        return await answer(request, body)

    return endpoint


def _may_be_in_body(request: Request, denial: Denial) -> bool:
    """Return whether only the token is missing."""
    return denial.status == 401 and "authorization" not in request.headers


def _metadata(body: dict[str, Any]) -> dict[str, Any]:
    metadata = body.get("metadata")
    return cast("dict[str, Any]", metadata) if isinstance(metadata, dict) else {}


async def _body(request: Request) -> dict[str, Any] | Response:
    """The object in a body, {} for an empty body, or the answer to an invalid one. Raises TimeoutError,
    ClientDisconnect."""
    content = bytearray()
    async with asyncio.timeout(BODY_WITHIN_S):
        async for chunk in request.stream():
            content += chunk
            if len(content) > BODY_BYTES_MAX:
                return _refused(413, f"a body is at most {BODY_BYTES_MAX >> 10} KiB", {"connection": "close"})
    try:
        return msgspec.json.decode(bytes(content) or b"{}", type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return _refused(400, "the body is not a JSON object")


def _denied(denial: Denial) -> Response:
    return _refused(denial.status, denial.sentence, denial.headers)


def _refused(status: int, sentence: str, headers: dict[str, str] | None = None) -> Response:
    retry = {"retry-after": str(_RETRY_AFTER_S)} if status == UNAVAILABLE else {}
    return _json(status, {"error": sentence}, {**retry, **(headers or {})})


def _json(status: int, content: object, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(content), status, headers, "application/json")

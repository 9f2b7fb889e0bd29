"""Why no session opened, in one sentence for the terminal: what happened, where, and what to do about it."""

import re
from dataclasses import replace
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from corpora.manifest.errors import CorpusError
from loadtest.conversation.exchange import Exchange
from loadtest.conversation.failures import failure_of
from loadtest.conversation.plan import SECOND_NS, Limits
from loadtest.engine.engine import Engine
from loadtest.errors import EndpointUnreachable
from loadtest.protocols import registry
from loadtest.protocols.address import public_target
from loadtest.protocols.advice import Attempt, advice
from loadtest.protocols.base import CallerProtocol, OpenRequest
from loadtest.protocols.failure import Failure, SessionRefused
from loadtest.run.request import CheckedRun
from loadtest.scenario.behavior import CallerBehavior, parse_think
from loadtest.scenario.settings import SwarmSettings
from loadtest.speech.preparation import choose, prepare
from loadtest.swarm.planner import CallPlanner

_OF_A_KEY: Final = re.compile(r"key|token|secret|signature|auth", re.IGNORECASE)
# Of what was never reached, no protocol and no key is to blame.
_NOT_REACHED: Final = frozenset({"dns", "tls", "generator"})
# Answers to a whole turn that every later turn would get as well: the path, the model, the key or the format is wrong.
_FINAL_STATUSES: Final = frozenset(
    {"301", "302", "303", "307", "308", "400", "401", "403", "404", "405", "415", "422", "501"}
)
_FINAL_CAUSES: Final = frozenset({("bad_audio", "format"), ("protocol_violation", "content_type")})


def refused(error: EndpointUnreachable, checked: CheckedRun, request: OpenRequest) -> EndpointUnreachable:
    """Return the error with the address, with what to do, and with the protocol that was spoken. Shows no secret."""
    failure = error.failure if isinstance(error, SessionRefused) else None
    sentence = explained(str(error), failure, checked, request.url)
    return EndpointUnreachable(checked.request.settings.redactor.text(sentence))


def explained(sentence: str, failure: Failure | None, checked: CheckedRun, url: str) -> str:
    """Return what an endpoint did with what to do about it."""
    if failure is not None and (failure.kind in _NOT_REACHED or _is_unreached(failure)):
        return sentence
    settings = checked.request.settings
    shown = public_target(url)
    where = "" if shown in sentence else f"{shown}: "
    what_to_do = advice(failure, sentence, Attempt(settings.protocol, shown, _has_key(settings), _model(settings)))
    return "; ".join(part for part in (f"{where}{sentence}", what_to_do, _spoken(checked)) if part)


def _is_unreached(failure: Failure) -> bool:
    return (failure.kind == "tcp" and failure.code != "EOF") or (failure.kind, failure.code) == ("timeout", "connect")


def _model(settings: SwarmSettings) -> str | None:
    """Return the model that was asked for, also where a setting of the protocol names it."""
    recognizes = settings.protocol in ("asr", "vllm-realtime")
    named = [settings.model, settings.transcription_model if recognizes else None]
    named += [value for name, value in settings.protocol_settings.items() if name.endswith("model")]
    return next((str(name) for name in named if name is not None), None)


def _has_key(settings: SwarmSettings) -> bool:
    """Whether anything lets callers in: a token, a header, or something in the address."""
    query = urlsplit(settings.host).query
    in_query = any(_OF_A_KEY.search(name) for name, _ in parse_qsl(query, keep_blank_values=True))
    return settings.token is not None or bool(settings.headers) or in_query or "@" in settings.host


def _spoken(checked: CheckedRun) -> str:
    """Return which protocol was spoken, and how another one is chosen."""
    settings, request = checked.request.settings, checked.request
    is_guessed = "protocol" not in request.given and settings.scenario.protocol is None
    if is_guessed and registry.guess(settings.host) == settings.protocol:
        return f"the protocol {settings.protocol} was guessed from the address: --protocol names another"
    return f"the protocol was {settings.protocol}: --protocol names another"


def refused_turn(checked: CheckedRun, protocol: CallerProtocol, engine: Engine) -> str | None:
    """Say one utterance as a caller of the run would; return why every turn would be refused as this one was, if so.

    Over HTTP a session shows only that a service is there. Its path, its model and its format are those of the requests
    of a turn. What may be otherwise at the next turn (no answer in time, no room, a fault inside) is left to the run.
    """
    settings = checked.request.settings
    # Whether it is refused shows before any of the answer is heard: the rest of it is not waited for.
    limits = Limits(reply_ns=min(settings.reply_timeout.ns, Limits().reply_ns), longest_reply_ns=SECOND_NS)
    prepared = prepare(_one_clip(settings), protocol)
    planner = CallPlanner(
        prepared.lines,
        behavior=CallerBehavior(turns=1, think=parse_think(0.0)),
        conversations=(),
        limits=limits,
        manual_turns=protocol.capabilities.caller_ends_turns,
        seed=1,
    )
    request = protocol.upgrade(settings.target_url, None)
    exchanges = [exchange for _, exchange in engine.call(planner.plan("first"), protocol, request)]
    return next((reason for exchange in exchanges if (reason := _refusal(exchange, checked, request.url))), None)


def _one_clip(settings: SwarmSettings) -> SwarmSettings:
    """Return the settings with one short utterance, or one of any length where there is no short one."""
    one = replace(settings, clips=1, variants=1, mix=None, conversations=False)
    short = replace(one, length=settings.length or "short")
    try:
        choose(short)
    except CorpusError:
        return one
    return short


def _refusal(exchange: Exchange, checked: CheckedRun, url: str) -> str | None:
    failure = failure_of(exchange)
    if failure is None or not _is_final(failure):
        return None
    sentence = exchange.reason or exchange.outcome or "refused"
    return checked.request.settings.redactor.text(explained(sentence, failure, checked, url))


def _is_final(failure: Failure) -> bool:
    if failure.kind == "http_status":
        return failure.code in _FINAL_STATUSES
    return (failure.kind, failure.code) in _FINAL_CAUSES

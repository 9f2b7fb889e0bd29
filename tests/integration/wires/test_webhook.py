"""A call that asks a voice webhook first: signed, answered, and refused in each way of its own."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import gevent
import pytest

from loadtest.engine.engine import Engine
from loadtest.engine.tls import tls_client
from telemetry.model.turns import Turn
from tests.integration.calling import Callers
from tests.integration.certificates import authority
from tests.integration.engine.tls_door import served, tls_door
from tests.integration.peers import processes
from tests.integration.wires.test_telephony_wire import Agent, agent
from tests.integration.wires.voice_webhook import Answer, twiml, voice_webhook

TOKEN = "12345"
UNUSED = "ws://127.0.0.1:9/unused"
MS = 1_000_000


@pytest.fixture(scope="module")
def an_agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with agent(tmp_path_factory.mktemp("agent"), wire="twilio", delay_ms=100) as peer:
        yield peer


def first_turn(webhook: str, token: str | None = None, **more: float) -> Turn:
    settings = {"webhook": webhook}
    callers = Callers(UNUSED, 1, protocol="twilio", wire_settings=settings, token=token, endpointing_ms=None, **more)  # pyright: ignore[reportArgumentType] - all of them are floats
    ((turn, *_),) = callers.call()
    return turn


def test_signed_webhook_leads_to_stream_with_its_parameters(an_agent: Agent) -> None:
    with voice_webhook(twiml(an_agent.url, customer="Ada"), TOKEN) as hook:
        callers = Callers(
            UNUSED, 2, 2, protocol="twilio", wire_settings={"webhook": hook.url}, token=TOKEN, endpointing_ms=None
        )
        calls = callers.call()
    assert [[(turn.outcome, turn.outcome_reason) for turn in turns] for turns in calls] == [[("ok", None)] * 2] * 2
    assert len(hook.asked) == 2, "once for each call"
    for number, asked in enumerate(hook.asked):
        call = asked.form["CallSid"]
        (start,) = [
            line["fields"]["start"] for line in an_agent.lines(call, "message") if line["fields"]["event"] == "start"
        ]
        assert start["customParameters"]["customer"] == "Ada"
        assert start["customParameters"]["traceparent"] == asked.headers["traceparent"], number
    for turns in calls:
        first, second = turns
        assert first.prior_request_ns is not None
        assert first.prior_request_ns > 0
        assert second.prior_request_ns is None


def test_the_webhooks_time_is_no_part_of_connecting(an_agent: Agent) -> None:
    with voice_webhook(replace(twiml(an_agent.url), after_s=0.2)) as hook:
        turn = first_turn(hook.url)
    assert turn.outcome == "ok", turn.outcome_reason
    assert turn.prior_request_ns is not None
    assert turn.prior_request_ns >= 200 * MS
    assert turn.connect_ns is not None
    assert turn.connect_ns <= turn.started_perf_ns - hook.answered_perf_ns[0], "counted from the webhook's answer"


XML = (("Content-Type", "text/xml"),)
CASES: tuple[tuple[str, Answer, str, str, str], ...] = (
    ("no-stream", Answer(b"<Response><Say>Hello</Say></Response>"), "protocol_violation", "no_stream", "<Say>"),
    ("reject", Answer(b"<Response><Reject/></Response>"), "endpoint_error", "call_reject", "refused the call"),
    ("malformed", Answer(b"<Response><Connect>"), "protocol_violation", "malformed_xml", "did not answer with TwiML"),
    (
        "not-xml",
        Answer(b"{}", headers=(("Content-Type", "application/json"),)),
        "protocol_violation",
        "content_type",
        "json",
    ),
    ("redirect", Answer(status=302, headers=(("Location", "/elsewhere"),)), "http_status", "302", "a redirect"),
    ("busy", Answer(b"later", 503, (("Retry-After", "7"),)), "http_status", "503", "HTTP 503: later"),
    ("no-address", twiml("wss://127.0.0.1:0/media"), "protocol_violation", "bad_address", "no valid port"),
    ("endless", Answer(b" " * 2**21, headers=XML), "protocol_violation", "answer_too_long", "more than 1048576 bytes"),
    ("silent", Answer(silent=True), "timeout", "prior_request", "no answer within 1 s"),
    ("unfinished", Answer(b"<Response>", promised_bytes=99), "timeout", "prior_request", "was not complete in time"),
)


@pytest.mark.parametrize(("answer", "kind", "code", "words"), [pytest.param(*case[1:], id=case[0]) for case in CASES])
def test_answer_without_stream_is_refused_call_with_its_cause(answer: Answer, kind: str, code: str, words: str) -> None:
    with voice_webhook(answer) as hook:
        turn = first_turn(hook.url, ready_s=1.0 if kind == "timeout" else 60.0)
    assert (turn.outcome, turn.failure_kind, turn.failure_code) == ("error", kind, code), turn.outcome_reason
    assert words in (turn.outcome_reason or "")
    assert turn.retry_after_ns == (7_000 * MS if code == "503" else None)
    assert turn.connect_ns is None, "what counts the call as refused"
    assert (turn.prior_request_ns is None) == (kind == "timeout" or code == "answer_too_long")


def test_a_wrong_signature_is_refused_and_the_token_is_not_shown() -> None:
    with voice_webhook(twiml("wss://127.0.0.1:9/"), TOKEN) as hook:
        turn = first_turn(hook.url, token="another-token")
        unsigned = first_turn(hook.url)
    for refused in (turn, unsigned):
        assert (refused.outcome, refused.failure_kind, refused.failure_code) == ("error", "http_status", "403")
        assert "HTTP 403: wrong signature" in (refused.outcome_reason or "")
    assert "another-token" not in repr(hook.asked)


def test_webhook_without_listener_fails_first_turn() -> None:
    turn = first_turn(f"http://127.0.0.1:{processes.free_port()}/voice")
    assert (turn.outcome, turn.failure_kind, turn.failure_code) == ("error", "tcp", "ECONNREFUSED")


def test_a_call_that_is_broken_off_does_not_wait_for_its_webhook() -> None:
    """The engine ends while the webhook is silent: the caller's greenlet must not stay for the time-out."""
    with voice_webhook(Answer(silent=True)) as hook:

        def break_off(engine: Engine) -> None:
            while not hook.asked:
                gevent.sleep(0.01)
            engine.break_off_all()

        callers = Callers(
            UNUSED, 1, protocol="twilio", wire_settings={"webhook": hook.url}, endpointing_ms=None, ready_s=3600.0
        )
        callers.meanwhile = break_off
        ((turn,),) = callers.call()
    assert turn.outcome == "cut", turn.outcome_reason


@pytest.mark.nightly
@pytest.mark.parametrize("wire", ["twilio", "plivo"])
def test_pipecats_runner_answers_with_its_xml_over_tls(wire: str, tmp_path: Path) -> None:
    """The runner's document names a wss address: the webhook and the stream go through the same door."""
    ca = authority(tmp_path / "ca")
    port, door = processes.free_port(), processes.free_port()
    account = {"TWILIO_ACCOUNT_SID": "ACtest", "TWILIO_AUTH_TOKEN": "none", "TELNYX_API_KEY": "none"}
    account |= {"PLIVO_AUTH_ID": "none", "PLIVO_AUTH_TOKEN": "none"}
    command = processes.pipecat_runner(port, "-t", wire, "--proxy", f"localhost:{door}")
    with (
        processes.running(command, port, tmp_path / "pipecat.log", environment=account),
        tls_door(port, served(ca.sign("localhost")), door),
    ):
        callers = Callers(
            UNUSED,
            1,
            protocol=wire,
            wire_settings={"webhook": f"https://localhost:{door}/"},
            token=TOKEN,
            endpointing_ms=None,
            length="medium",
            tls=tls_client(str(ca.cert)),
        )
        ((turn,),) = callers.call()
    assert (turn.outcome, turn.outcome_reason) == ("ok", None)
    assert turn.prior_request_ns is not None
    assert turn.connect_ns is not None

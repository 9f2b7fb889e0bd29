"""Our callers against a real Pipecat bot, on every wire of its runner."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from loadtest.protocols.base import CallerOptions, SpokenText
from loadtest.protocols.registry import make_caller
from loadtest.protocols.smallwebrtc.caller import SmallWebRtcCaller
from telemetry.model.metrics import METRICS
from telemetry.model.turns import Turn
from tests.integration.calling import Callers, in_order, interrupting, reasons
from tests.integration.peers import processes
from tests.nightly import nightly_after

ROOT = Path(__file__).parents[3]
MS = 1_000_000
PATHS = {"pipecat": "/ws-client", "smallwebrtc": "/api/offer", "pipecat-eval": "/ws"}
both = pytest.mark.parametrize("protocol", nightly_after(1, ["pipecat", "pipecat-eval"]))
CLIPS = 4  # the next one is a question whose end Pipecat's detector of turns does not believe for 3 s
TURN = SpokenText("hello")


def callers(
    port: int,
    protocol: str,
    count: int,
    path: str | None = None,
    asks: Mapping[str, str] = MappingProxyType({}),
    **settings: Any,
) -> Callers:
    """Callers of the bot; `asks` are settings of the bot for their session."""
    is_webrtc = protocol == "smallwebrtc"
    url = f"{'http' if is_webrtc else 'ws'}://127.0.0.1:{port}{path or PATHS[protocol]}"
    given: dict[str, Any] = (
        {"wire_settings": {"request_data": dict(asks)}} if is_webrtc else {"headers": tuple(asks.items())}
    )
    return Callers(url, count, protocol=protocol, endpointing_ms=None, clips=CLIPS, **given | settings)


@pytest.mark.parametrize("protocol", nightly_after(2, PATHS))
def test_conversations_have_every_stage(pipecat_port: int, protocol: str) -> None:
    run = callers(pipecat_port, protocol, 2, turns_per_call=2)
    calls = run.call()
    for turns in calls:
        assert [turn.outcome for turn in turns] == ["ok", "ok"], reasons(turns)
        for turn in turns:
            assert_stages(turn)
            (assert_packets if protocol == "smallwebrtc" else assert_synthesis)(turn)
    for exchange in run.exchanges:
        reported = exchange.service.latencies_ns
        line = exchange.timeline
        (_, _, final_perf_ns) = line.finals[-1]
        first_token_perf_ns = line.answer.text_stamps_perf_ns[0] if line.answer is not None else 0
        # The bot's language model starts after its recognizer, and takes 80 ms by its own clock.
        assert reported["ScriptedLLM.ttfb"] >= 79 * MS
        # Packets and messages of WebRTC come by different ways.
        assert protocol == "smallwebrtc" or reported["ScriptedLLM.ttfb"] <= first_token_perf_ns - final_perf_ns
        assert reported["ToneTTS.leading_silence"] == pytest.approx(100 * MS, abs=11 * MS)
        assert reported["ToneTTS.ttfa"] > reported["ToneTTS.ttfb"] > 0
        assert exchange.service.usage["output_tokens"] == 6
        # The second answer of a session comes from the prompt cache.
        assert exchange.service.usage["cached_tokens"] == 32 * exchange.index


def assert_stages(turn: Turn) -> None:
    """Each stage is there, in the order in which the bot's parts work, and the reply is what the bot said."""
    known = in_order(
        turn.asr_final_perf_ns,
        turn.endpoint_perf_ns,
        turn.llm_first_token_perf_ns,
        turn.first_audio_perf_ns,
        turn.reply_end_perf_ns,
    )
    assert turn.asr_first_partial_perf_ns is not None
    assert turn.asr_first_partial_perf_ns < known[0]
    # Six words of a quarter of a second each. The bot paces them: a busy machine may stretch them, nothing shortens.
    assert known[-1] - known[-2] >= 1485 * MS
    assert (turn.unknown_events, turn.duplicate_events) == (0, 0)


def assert_synthesis(turn: Turn) -> None:
    """The first chunk, and before the words a tenth of a second of silence, come between the stages."""
    in_order(turn.llm_first_token_perf_ns, turn.tts_first_chunk_perf_ns, turn.first_audio_perf_ns)
    leading = METRICS["leading_silence"].value(turn)
    assert leading is not None
    assert leading >= 89 * MS


def assert_packets(turn: Turn) -> None:
    """Packets come all the time, at 50 a second."""
    assert turn.receive_stamp == "user"
    assert "leading_silence" in turn.withheld_metrics
    assert turn.rtp_packets_received is not None
    assert turn.rtp_packets_received > 1500 / 20
    assert turn.rtp_packets_lost == 0
    assert turn.rtp_jitter_worst_ns is not None
    assert turn.rtp_reported_lost == 0
    assert turn.rtp_reported_jitter_ns is not None


@pytest.mark.parametrize(
    ("wire", "count"), nightly_after(1, [("twilio", 2), ("telnyx", 1), ("plivo", 1), ("exotel", 1)])
)
def test_telephone_calls(wire: str, count: int, pipecat_port: int) -> None:
    url = f"ws://127.0.0.1:{pipecat_port}/ws"
    (turns,) = Callers(url, 1, turns_per_call=count, endpointing_ms=None, protocol=wire, length="medium").call()
    assert [(turn.outcome, turn.outcome_reason) for turn in turns] == [("ok", None)] * count
    for turn in turns:
        assert turn.tts_first_chunk_perf_ns is not None
        assert turn.leading_silence_ns is not None
        # The bot's replies begin with 100 ms of silence, which Pipecat resamples to the telephone's rate.
        assert 80 * MS <= turn.leading_silence_ns <= 130 * MS
        assert turn.reply_end_perf_ns is not None
        assert turn.first_audio_perf_ns is not None
        assert turn.asr_final_perf_ns is None
        assert "asr_final_latency" in turn.withheld_metrics


@pytest.mark.nightly
@pytest.mark.parametrize("protocol", PATHS)
def test_interrupting_caller_stops_the_bot(pipecat_port: int, protocol: str) -> None:
    run = callers(pipecat_port, protocol, 1, behavior=interrupting("500ms"), asks={"x-reply-words": "14"})
    (turns,) = run.call()
    assert [turn.turn_kind for turn in turns] == ["question", "barge_in"], reasons(turns)
    stopped_ns = turns[1].barge_in_stop_ns
    # The detector needs 0.2 s of speech; the reply would have gone on for three seconds.
    assert stopped_ns is not None
    assert 0 < stopped_ns < 2_500 * MS
    assert turns[1].outcome == "ok", reasons(turns)


@pytest.mark.nightly
def test_an_error_of_the_bot_is_part_of_the_turn_and_not_its_end(pipecat_port: int) -> None:
    run = callers(pipecat_port, "pipecat", 1, asks={"x-error": "1"})
    (turns,) = run.call()
    assert [turn.outcome for turn in turns] == ["ok"], reasons(turns)
    assert any("out of reach" in error for error in run.exchanges[0].timeline.errors)


@pytest.mark.nightly
@both
def test_trace_reaches_bot_by_header_and_message_until_goodbye(pipecat_port: int, protocol: str) -> None:
    trace = f"00-{7:032x}-{9:016x}-01"
    caller = make_caller(protocol, CallerOptions())
    request = caller.upgrade(f"ws://127.0.0.1:{pipecat_port}{PATHS[protocol]}", trace)
    with connect(request.url, additional_headers=dict(request.headers), compression=None) as line:

        def until(wanted: str) -> str:
            while True:
                message = line.recv(timeout=120.0)
                raw = message if isinstance(message, str) else message.decode(errors="replace")
                if f'"{wanted}"' in raw:
                    return raw

        for message in caller.opened():
            line.send(message)
        assert trace in until("server-message"), "the header of the upgrade"
        for message in caller.begin_turn(TURN):
            line.send(message)
        assert trace in until("server-response"), "the message before a turn"
        for message in caller.goodbye():
            line.send(message)
        with pytest.raises(ConnectionClosed):
            until("nothing of the kind")


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("protocol", "failures"),
    [("pipecat", ("close_code", "tcp")), ("smallwebrtc", (("close_code", "peerLeft"), ("tcp", "EOF")))],
)
def test_a_bot_that_hangs_up_fails_the_turn(pipecat_port: int, protocol: str, failures: tuple[Any, ...]) -> None:
    (turns,) = callers(pipecat_port, protocol, 1, asks={"x-hang-up-s": "1"}).call()
    assert [turn.outcome for turn in turns] == ["error"], reasons(turns)
    kind = turns[0].failure_kind
    assert (kind if protocol == "pipecat" else (kind, turns[0].failure_code)) in failures


@pytest.mark.nightly
def test_session_is_started_first_and_trace_reaches_bot(pipecat_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    receive = SmallWebRtcCaller.receive

    def listened(caller: SmallWebRtcCaller, message: Any) -> Any:
        heard.append(str(message) if isinstance(message, str) else "")
        return receive(caller, message)

    monkeypatch.setattr(SmallWebRtcCaller, "receive", listened)
    (turns,) = callers(pipecat_port, "smallwebrtc", 1, "/start").call()
    assert [turn.outcome for turn in turns] == ["ok"], reasons(turns)
    trace = f"00-{1:032x}-{1:016x}-01"
    assert any("server-message" in message and trace in message for message in heard), "the body of the session"
    assert any("server-response" in message and trace in message for message in heard), "the message before a turn"


@pytest.mark.nightly
def test_a_runner_that_wants_a_token(tmp_path: Path) -> None:
    port = processes.free_port()
    with processes.running(processes.pipecat_runner(port, "--ws-auth", "token"), port, tmp_path / "log"):
        (refused,) = callers(port, "pipecat", 1).call()
        assert [(turn.outcome, turn.failure_kind, turn.failure_code) for turn in refused] == [
            ("error", "http_status", "403")
        ]
        token = httpx.post(f"http://127.0.0.1:{port}/start", json={"transport": "websocket"}).json()["token"]
        (turns,) = callers(port, "pipecat", 1, headers=(("Authorization", f"Bearer {token}"),)).call()
        assert [turn.outcome for turn in turns] == ["ok"], reasons(turns)

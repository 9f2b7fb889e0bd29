"""Stage services over real sockets: a server with known delays, LiteLLM's proxy, and a Wyoming server."""

import contextlib
import json
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from telemetry.model.turns import Turn
from tests.integration.calling import Callers
from tests.integration.peers import processes
from tests.integration.waiting import wait_for_lines
from tests.integration.wires.brackets import Bracket, assert_measured

MS = 1_000_000
STAGES = ("asr_final", "llm_first_token", "tts_first_chunk")
PEERS = Path(__file__).parents[1] / "peers"


@pytest.fixture
def stages_port(tmp_path: Path) -> Generator[int]:
    port = processes.free_port()
    command = [sys.executable, str(PEERS.with_name("servers") / "stage_server.py"), str(port)]
    with processes.running(command, port, tmp_path / "stages.log"):
        yield port


def calls(wire: str, url: str, turns: int = 1, **settings: Any) -> list[Turn]:
    """The turns of one caller."""
    callers = Callers(url, 1, turns, protocol=wire, manual_turns=True, wire_settings=settings)
    (call,) = callers.call()
    return call


def assert_timed(turns: list[Turn], sent: dict[str, list[Bracket]]) -> None:
    """Each stage of these turns against the moments around what each service sent."""
    firsts = sent | {"tts_first_chunk": sent["tts_first_chunk"][::2]}  # an answer has two sentences
    timed = [{name: getattr(turn, f"{name}_perf_ns") for name in STAGES} for turn in turns]
    assert_measured(timed, [dict(zip(STAGES, stamps, strict=True)) for stamps in zip(*firsts.values(), strict=True)])


def test_each_stage_of_a_cascade_is_timed_as_the_services_were(stages_port: int) -> None:
    turns = calls("http-cascade", f"http://127.0.0.1:{stages_port}/v1", 3)
    assert [turn.outcome for turn in turns] == ["ok"] * 3, [turn.outcome_reason for turn in turns]
    sent = httpx.get(f"http://127.0.0.1:{stages_port}/sent").json()
    assert {entry["traceparent"] for entry in sent} == {f"00-{1:032x}-{1:016x}-01"}
    assert len({entry["x-client-request-id"] for entry in sent}) == len(sent) == 3 * 4, "two sentences in each turn"
    assert all(entry["has_wav"] for entry in sent if "has_wav" in entry)
    assert_timed(turns, {name: [entry[name] for entry in sent if name in entry] for name in STAGES})
    for turn in turns:
        assert turn.asr_final_perf_ns is not None
        assert turn.llm_first_token_perf_ns is not None
        assert turn.tts_first_chunk_perf_ns is not None
        assert turn.llm_first_token_perf_ns - turn.asr_final_perf_ns >= 80 * MS
        assert turn.tts_first_chunk_perf_ns - turn.llm_first_token_perf_ns >= 70 * MS
        assert turn.llm_tokens == 8
        assert "endpointing" in turn.withheld_metrics
    assert [len(entry["messages"]) for entry in sent if "messages" in entry] == [1, 3, 5]


@pytest.mark.nightly
def test_one_stage_alone(stages_port: int) -> None:
    url = f"http://127.0.0.1:{stages_port}/v1"
    (heard,), (answered,), (spoken,) = (calls(wire, url) for wire in ("asr", "llm", "tts"))
    for turn in (heard, answered, spoken):
        assert turn.outcome == "ok", turn.outcome_reason
    assert (heard.asr_final_perf_ns or 0) - (heard.speech_end_perf_ns or 0) >= 60 * MS
    assert heard.llm_first_token_perf_ns is None
    assert (answered.llm_first_token_perf_ns or 0) - (answered.speech_end_perf_ns or 0) >= 80 * MS
    assert answered.tts_first_chunk_perf_ns is None
    assert (spoken.tts_first_chunk_perf_ns or 0) - (spoken.speech_end_perf_ns or 0) >= 70 * MS
    assert spoken.asr_final_perf_ns is None
    paths = [entry["path"] for entry in httpx.get(f"http://127.0.0.1:{stages_port}/sent").json()]
    assert paths == ["/v1/audio/transcriptions", "/v1/chat/completions", "/v1/audio/speech"]


LITELLM: dict[str, Any] = {
    "model_list": [
        {
            "model_name": name,
            "litellm_params": {"model": f"openai/gpt-{name}", "api_key": "none", "mock_response": answer},
        }
        for name, answer in (
            ("good", "It is mild in Paris. Take a light coat with you."),
            ("bad", "litellm.InternalServerError"),
            ("limited", "litellm.RateLimitError"),
        )
    ],
    "litellm_settings": {"cache": True, "cache_params": {"type": "local"}, "num_retries": 0},
    "router_settings": {"fallbacks": [{"bad": ["good"]}], "num_retries": 0},
}


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """The base of the scripted services behind LiteLLM's proxy."""
    port = processes.free_port()
    command = [sys.executable, str(PEERS.with_name("servers") / "stage_server.py"), str(port)]
    with processes.running(command, port, tmp_path_factory.mktemp("services") / "stages.log"):
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def litellm_url(tmp_path_factory: pytest.TempPathFactory, services: str) -> Generator[str]:
    """LiteLLM's proxy with answers of its own, a local cache and a fallback, and with three services behind it."""
    folder, port = tmp_path_factory.mktemp("litellm"), processes.free_port()
    behind = [
        {
            "model_name": name,
            "litellm_params": {"model": f"openai/{name}", "api_key": "none", "api_base": f"{services}/v1"},
            "model_info": {"mode": mode},
        }
        for name, mode in (("hears", "audio_transcription"), ("thinks", "chat"), ("speaks", "audio_speech"))
    ]
    config = LITELLM | {"model_list": [*LITELLM["model_list"], *behind]}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    script = str(Path(processes.python_of("litellm")).with_name("litellm"))
    command = [script, "--config", str(folder / "config.yaml"), "--host", "127.0.0.1", "--port", str(port)]
    environment = {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
    }
    with processes.running(command, port, folder / "litellm.log", environment=environment):
        yield f"http://127.0.0.1:{port}/v1"


def test_litellm_relays_a_whole_cascade(litellm_url: str, services: str) -> None:
    # LiteLLM takes the events of a streaming recognizer for the transcript.
    models = {
        "asr_stream": False,
        "asr_model": "hears",
        "llm_model": "thinks",
        "tts_model": "speaks",
        "tts_voice": "alloy",
    }
    (turn,) = calls("http-cascade", litellm_url, **models)
    assert turn.outcome == "ok", turn.outcome_reason
    assert turn.transcript_pii == "what is the weather like"
    stages = [turn.speech_end_perf_ns, turn.asr_final_perf_ns, turn.llm_first_token_perf_ns, turn.first_audio_perf_ns]
    assert None not in stages
    assert stages == sorted(stages, key=lambda moment: moment or 0)
    sent = httpx.get(f"{services}/sent").json()
    assert [entry["path"].rpartition("/")[2] for entry in sent] == [
        "transcriptions",
        "completions",
        *["speech"] * 2,
    ]
    assert [entry["text"] for entry in sent if "text" in entry] == ["It is mild in Paris.", "Take a coat."]
    (heard,), (spoken,) = (
        calls(wire, litellm_url, **{name: value for name, value in models.items() if name.startswith(wire)})
        for wire in ("asr", "tts")
    )
    assert (heard.outcome, heard.transcript_pii) == ("ok", "what is the weather like")
    assert (spoken.outcome, spoken.first_audio_perf_ns is not None) == ("ok", True)


@pytest.mark.nightly
def test_litellm_answers_and_says_of_its_cache_and_its_fallback(litellm_url: str) -> None:
    (first,) = calls("llm", litellm_url, llm_model="good")
    (second,) = calls("llm", litellm_url, llm_model="good")
    (fallen_back,) = calls("llm", litellm_url, llm_model="bad")
    (limited,) = calls("llm", litellm_url, llm_model="limited")
    for turn in (first, second, fallen_back):
        assert turn.outcome == "ok", turn.outcome_reason
        assert turn.llm_tokens == 13
        assert turn.model == "openai/gpt-good"
    assert (first.cache_hit, first.route, first.fallback) == (None, "cloud", None)
    assert (second.cache_hit, second.route, second.fallback) == (True, "cache", None)
    assert fallen_back.fallback == "model"
    assert (limited.outcome, limited.failure_kind, limited.failure_code) == ("error", "http_status", "429")


def test_a_wyoming_server_recognizes_handles_and_synthesizes(tmp_path: Path) -> None:
    port = processes.free_port()
    command = [processes.python_of("wyoming"), str(PEERS / "wyoming_server.py"), str(port)]
    with processes.running(command, port, tmp_path / "wyoming.log"):
        turns = calls("wyoming", f"tcp://127.0.0.1:{port}", 3)
        sent = wait_for_lines(tmp_path / "wyoming.log", "sent_ns", 3 * 4)
    assert_timed(turns, {name: [line["sent_ns"] for line in sent if line["stage"] == name] for name in STAGES})
    trace = f"00-{1:032x}-{1:016x}-01"
    for turn in turns:
        assert turn.outcome == "ok", turn.outcome_reason
        assert turn.asr_final_perf_ns is not None
        assert turn.llm_first_token_perf_ns is not None
        assert turn.tts_first_chunk_perf_ns is not None
        assert turn.asr_final_perf_ns - (turn.speech_end_perf_ns or 0) >= 50 * MS
        assert turn.llm_first_token_perf_ns - turn.asr_final_perf_ns >= 80 * MS
        assert turn.tts_first_chunk_perf_ns - turn.llm_first_token_perf_ns >= 60 * MS
        word, heard_bytes, carried = (turn.transcript_pii or "").split()
        assert (word, carried) == ("turn", trace)
        # What the recognizer got is the utterance and the little that surrounds it, not the time between the turns.
        assert 0 < int(heard_bytes) <= ((turn.speech_ns or 0) / 1e9 + 1.0) * 32_000


@contextlib.contextmanager
def wyoming_server(folder: Path, stages: str, *flags: str) -> Generator[tuple[str, Path]]:
    """A Wyoming server of some stages by the official package: its address and its log."""
    port, log = processes.free_port(), folder / f"wyoming-{stages}.log"
    command = [processes.python_of("wyoming"), str(PEERS / "wyoming_server.py"), str(port), stages, *flags]
    with processes.running(command, port, log):
        yield f"tcp://127.0.0.1:{port}", log


def logged(log: Path, key: str) -> list[dict[str, Any]]:
    """The lines of a server's log that have a key."""
    return [json.loads(line) for line in log.read_text().splitlines() if f'"{key}"' in line]


@pytest.mark.nightly
def test_wyoming_servers_per_stage_may_close_after_each_turn(tmp_path: Path) -> None:
    with (
        wyoming_server(tmp_path, "asr", "closing") as (asr_url, asr_log),
        wyoming_server(tmp_path, "handle") as (handle_url, handle_log),
        wyoming_server(tmp_path, "tts", "closing") as (tts_url, tts_log),
    ):
        turns = calls("wyoming", asr_url, 4, handle_url=handle_url, tts_url=tts_url)
        wait_for_lines(tts_log, "sent_ns", 4 * 2)
        logs = {"asr": asr_log, "handle": handle_log, "tts": tts_log}
        opened = {stage: len(logged(log, "connection")) for stage, log in logs.items()}
        sent = [entry for log in logs.values() for entry in logged(log, "sent_ns")]
    assert [turn.outcome for turn in turns] == ["ok"] * 4, [turn.outcome_reason for turn in turns]
    assert_timed(turns, {name: [entry["sent_ns"] for entry in sent if entry["stage"] == name] for name in STAGES})
    assert opened["handle"] == 2, "of a test whether it runs, and of the call"
    assert opened["asr"] >= 1 + 4
    assert opened["tts"] >= 1 + 4 * 2, "an answer has two sentences"
    for turn in turns:
        assert (turn.asr_final_perf_ns or 0) - (turn.speech_end_perf_ns or 0) >= 50 * MS
        heard_bytes = int((turn.transcript_pii or "").split()[1])
        assert 0.9 * (turn.speech_ns or 0) / 1e9 * 32_000 <= heard_bytes <= ((turn.speech_ns or 0) / 1e9 + 1.0) * 32_000
        assert turn.turn_index == 0 or turn.connect_ns is None


@pytest.mark.nightly
@pytest.mark.parametrize("stages", ["asr", "tts", "asr,handle,tts"])
def test_wyoming_server_at_one_address_may_close_per_event(tmp_path: Path, stages: str) -> None:
    with wyoming_server(tmp_path, stages, "closing") as (url, _):
        turns = calls("wyoming", url, 3, stages=stages.split(","))
    assert [turn.outcome for turn in turns] == ["ok"] * 3, [turn.outcome_reason for turn in turns]


@pytest.mark.nightly
@pytest.mark.parametrize("is_there", [True, False])
def test_a_wyoming_service_that_is_missing_is_named(tmp_path: Path, is_there: bool) -> None:
    gone = f"127.0.0.1:{processes.free_port()}"
    with wyoming_server(tmp_path, "asr", "closing") as (asr_url, _):
        (turn,) = calls("wyoming", asr_url, 1, stages=["asr", "tts"], tts_url=asr_url if is_there else f"tcp://{gone}")
    assert turn.outcome == "error"
    lacking = "offers no tts; set --protocol-option stages=[…] to what it offers, or tts_url to a server"
    assert (lacking if is_there else gone) in (turn.outcome_reason or "")

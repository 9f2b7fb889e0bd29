"""A declared wire over real sockets: the example's spec against the reference assistant whose wire it describes."""

import io
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from loadtest.exit_codes import ExitCode
from loadtest.run.trial import TrialRequest, carry_out
from tests.integration.assistant.assistant_process import hosted
from tests.integration.calling import Callers
from tests.integration.commands import carried_out

EXAMPLE = Path(__file__).parents[3] / "examples" / "protocols" / "openai-realtime.yaml"
METRICS_SEEN = ("speech_end", "endpoint", "asr_first_partial", "asr_final", "llm_first_token", "tts_first_chunk")


@pytest.mark.nightly
def test_declared_wire_is_measured_like_the_wire_it_describes() -> None:
    with hosted() as url:
        (turns,) = Callers(
            url, 1, 2, protocol="declared", endpointing_ms=None, wire_settings={"spec": str(EXAMPLE)}
        ).call()
    assert [turn.outcome for turn in turns] == ["ok", "ok"], [turn.outcome_reason for turn in turns]
    for turn in turns:
        missing = [name for name in METRICS_SEEN if getattr(turn, f"{name}_perf_ns") is None]
        assert not missing
        assert turn.withheld_metrics == ()
        assert turn.unknown_events == 0


def shown(url: str, spec: Path) -> tuple[ExitCode, str]:
    """Return the output of trying an endpoint, and its exit code."""
    output = io.StringIO()
    code = carry_out(TrialRequest(url, spec), Console(file=output, soft_wrap=True))
    return code, output.getvalue()


def test_try_shows_what_was_recognized_and_what_was_not(tmp_path: Path) -> None:
    spec = yaml.safe_load(EXAMPLE.read_text())
    spec["events"] = [rule for rule in spec["events"] if rule["is"] not in ("final", "speech_started")]
    changed = tmp_path / "changed.yaml"
    changed.write_text(yaml.safe_dump(spec))
    with hosted() as url:
        code, text = shown(url, changed)
        refused, reason = shown(url.replace("/v1/", "/elsewhere/"), changed)
    assert code is ExitCode.OK, text
    for meaning in ("ready", "speech_stopped", "asr_partial", "llm_text", "audio", "response_done"):
        assert any(f"s  {meaning} " in line for line in text.splitlines()), text
    assert "NOT RECOGNIZED     conversation.item.input_audio_transcription.completed" in text
    assert "input_audio_buffer.speech_started (1)" in text
    assert "Never came, though the spec names it: asr_failed, error." in text
    assert refused is ExitCode.UNREACHABLE, reason
    assert "HTTP 404" in reason


def test_try_reports_every_fault_of_spec_without_calling(tmp_path: Path) -> None:
    spec = tmp_path / "wire.yaml"
    spec.write_text("name: x\nevents:\n  - when: {$.type: a}\n    is: nonsense\n  - is: ready\n")
    done = carried_out("protocol", "try", "ws://127.0.0.1:1/", "--spec", str(spec), cwd=tmp_path)
    assert done.returncode == 2
    assert [line.partition(": ")[2].split(": ")[1] for line in done.stderr.splitlines()] == [
        "events.0.is",
        "events.1.when",
    ]
    assert f"{spec}:4: " in done.stderr

"""The assistant takes cohorts from a file of flags, by OpenFeature and flagd's provider, in a real process."""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loadtest.exit_codes import ExitCode
from loadtest.flag_file import Split, encode_flags, read_flags, with_split
from loadtest.targets.assistant.flags import FlagAssigner
from telemetry.store.answers import Filter
from telemetry.store.reader import StoreReader
from tests.fixtures_sidecar import running_sidecar
from tests.integration.assistant.assistant_process import assistant, call, refused
from tests.integration.waiting import wait_until
from tests.nightly import nightly_after

VARIANTS = '[streaming]\nllm_stream = false\nllm_answer = "Streamed."\n\n[broken]\nfault = "never-answer"\n'


def flags(share: float) -> bytes:
    voice = {
        "state": "ENABLED",
        "variants": {"stable": "stable", "streaming": "streaming"},
        "defaultVariant": "stable",
    }
    return encode_flags(
        with_split({"flags": {"voice": voice}}, "voice", Split("stable", "streaming", 1 - share, share), "flags.json")
    )


def replace(file: Path, content: bytes) -> None:
    """Replace a file as a deployment does: the name always holds a whole file."""
    updated = file.with_suffix(".new")
    updated.write_bytes(content)
    updated.replace(file)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    flag_file = tmp_path / "flags.json"
    flag_file.write_bytes(flags(0.25))
    return flag_file


@pytest.fixture
def assigner(file: Path) -> Iterator[FlagAssigner]:
    flag_assigner = FlagAssigner(file, "voice", "stable", {"stable", "streaming"})
    flag_assigner.start()
    yield flag_assigner
    flag_assigner.stop()


def cohorts(assigner: FlagAssigner, callers: int = 1000) -> Counter[str | None]:
    return Counter(assigner.assign(f"caller-{number}").cohort for number in range(callers))


def test_assignment_is_fractional_and_sticky_by_the_caller_key(assigner: FlagAssigner) -> None:
    first = [assigner.assign(f"caller-{number}").cohort for number in range(1000)]
    assert first == [assigner.assign(f"caller-{number}").cohort for number in range(1000)]
    assert first.count("streaming") == pytest.approx(250, abs=60)


def test_a_decision_is_reported_by_the_names_of_the_convention(assigner: FlagAssigner) -> None:
    assignment = assigner.assign("caller-1")
    assert assignment.flag == {
        "feature_flag.key": "voice",
        "feature_flag.provider.name": "FlagdProvider",
        "feature_flag.result.variant": assignment.cohort,
        "feature_flag.result.reason": "targeting_match",
    }


def test_changed_flag_file_is_detected(assigner: FlagAssigner, file: Path) -> None:
    replace(file, flags(1.0))
    wait_until(lambda: cohorts(assigner)["stable"] == 0)
    replace(file, flags(0.0))
    wait_until(lambda: cohorts(assigner)["streaming"] == 0)


@pytest.mark.parametrize(
    ("content", "sentence"),
    nightly_after(
        2,
        [
            (flags(1.0)[:80], "is not JSON"),
            (None, "cannot be read"),
            (b'{"flags": {}}', "has no flag 'voice'"),
            (flags(1.0).replace(b"streaming", b"turbo"), "'turbo', which has no settings"),
            (flags(1.0).replace(b'"fractional"', b'"no_such_operation"'), "cannot be evaluated"),
        ],
    ),
)
def test_unusable_flag_file_leaves_last_good_one_in_force(
    assigner: FlagAssigner, file: Path, content: bytes | None, sentence: str, caplog: pytest.LogCaptureFixture
) -> None:
    before = cohorts(assigner)
    with caplog.at_level(logging.WARNING):
        if content is None:
            file.unlink()
        else:
            replace(file, content)
        wait_until(lambda: caplog.records)
        assert cohorts(assigner) == before
        # It is looked at again and again, and reported once: another fault is what comes next.
        replace(file, b"[]")
        wait_until(lambda: len(caplog.records) > 1)
        replace(file, flags(0.0))
        wait_until(lambda: cohorts(assigner)["streaming"] == 0)
        wait_until(lambda: len(caplog.records) > 2)
    lines = [record.getMessage() for record in caplog.records]
    assert sentence in lines[0]
    assert lines[0].endswith("the flags read before stay in force.")
    assert "flagd's format is expected" in lines[1]
    assert lines[2:] == [f"{file} can be used again, and its flags are in force."]
    assert not any(record.exc_info for record in caplog.records)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"{", "is not JSON"),
        (b'{"flags": {}}', "has no flag 'voice'"),
        (flags(0.5).replace(b'"streaming"', b'"fast"'), "'fast'"),
    ],
)
def test_unusable_flag_file_at_start_is_sentence_and_exit_code(tmp_path: Path, content: bytes, sentence: str) -> None:
    (tmp_path / "flags.json").write_bytes(content)
    (tmp_path / "variants.toml").write_text(VARIANTS)
    given = ("--flags", "flags.json", "--variants", "variants.toml", "--cohort-control", "stable")
    done = refused(*given, cwd=tmp_path)
    assert done.returncode == ExitCode.USAGE
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


async def _reply(url: str, query: str) -> dict[str, Any]:
    async with call(f"{url}?{query}") as caller:
        await caller.update(None)
        await caller.send(
            type="conversation.item.create",
            item={"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello there"}]},
        )
        await caller.send(type="response.create", response={"output_modalities": ["text"]})
        done = await caller.until("response.done")
        text = "".join(e["delta"] for e in caller.events if e["type"] == "response.output_text.delta")
        return {"cohort": done["response"]["metadata"]["voice.cohort"], "text": text}


def test_callers_get_their_variant_and_a_change_without_restart(file: Path, tmp_path: Path) -> None:
    (tmp_path / "variants.toml").write_text(VARIANTS)
    store = tmp_path / "store"
    with running_sidecar(store) as sidecar:
        _calls(sidecar.http, file, tmp_path)
    with StoreReader(store) as reader:
        turns = reader.turns(Filter(run_id="flags"), source="service")
        spans = [span for turn in turns for span in reader.spans(turn.trace_id) if span.name == "voice.call"]
    cohorts = Counter(turn.cohort for turn in turns)
    assert cohorts["streaming"] >= 12
    assert cohorts["stable"] >= 12
    of_trace = {turn.trace_id: turn.cohort for turn in turns}
    events = [(span, event) for span in spans for event in span.events if event.name == "feature_flag.evaluation"]
    assert len(events) == len(spans) > 0
    for span, event in events:
        assert event.attributes["feature_flag.key"] == "voice"
        assert event.attributes["feature_flag.provider.name"] == "FlagdProvider"
        assert event.attributes["feature_flag.result.variant"] == of_trace[span.trace_id]


def _calls(sidecar_url: str, file: Path, folder: Path) -> None:
    given = ("--flags", str(file), "--variants", str(folder / "variants.toml"), "--cohort-control", "stable")
    with assistant(*given, "--otlp", sidecar_url, "--run-id", "flags") as url:

        async def replies(query: str, count: int = 40) -> list[dict[str, Any]]:
            return [await _reply(url, f"{query}{number}") for number in range(count)]

        first = asyncio.run(replies("call_id=c"))
        assert {turn["cohort"] for turn in first} == {"stable", "streaming"}
        # What a variant means is its settings.
        assert {turn["text"] for turn in first if turn["cohort"] == "streaming"} == {"Streamed."}
        assert "Streamed." not in {turn["text"] for turn in first if turn["cohort"] == "stable"}
        # A user keeps its cohort in every call.
        assert len({asyncio.run(_reply(url, f"user_id=u1&call_id={n}"))["cohort"] for n in range(10)}) == 1
        replace(file, flags(1.0))
        wait_until(lambda: asyncio.run(_reply(url, "call_id=c1"))["cohort"] == "streaming" and all_streaming(url))
        # Whatever is wrong with the file then, calls go on.
        replace(file, b"{")
        assert asyncio.run(_reply(url, "call_id=c2"))["cohort"] == "streaming"


def all_streaming(url: str) -> bool:
    return all(asyncio.run(_reply(url, f"call_id=c{number}"))["cohort"] == "streaming" for number in range(12))


def test_settings_of_variants_are_checked_together(tmp_path: Path) -> None:
    (tmp_path / "variants.toml").write_text('[fast]\nllm_ttft = "soon"\nport = 8080\n\n[slow]\nllm_deadline = "1h"\n')
    done = refused("--variants", "variants.toml", cwd=tmp_path)
    assert done.returncode == ExitCode.USAGE
    lines = done.stderr.splitlines()
    assert len(lines) == 3
    assert all(part in done.stderr for part in ("fast.llm_ttft", "fast.port: is not a setting", "slow.llm_deadline"))


def test_json_of_flags_is_read_as_written() -> None:
    assert read_flags(flags(0.05), "f") == json.loads(flags(0.05))

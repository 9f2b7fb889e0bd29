"""Our figures beside those of aiperf and guidellm, on the same server in the same run, and llama.cpp's own times.

    .venv/bin/python -m tests.benchmarks.llm.peers [REQUESTS]

First on a server that declares its times, so that it shows who is how late, then on llama.cpp with a small model. Each
tool asks one request after the other, in turns. The peers are installed on first use from their locks, by hash, each
into an environment of its own in VOICEPROBE_PEERS (1 GB).
"""

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any

from loadtest.llm.answers import LlmAnswer, LlmRequest, Message
from loadtest.llm.client import LlmClient, run
from loadtest.llm.target import LlmTarget
from loadtest.targets.assistant.real import environment
from tests.benchmarks.llm.accuracy import declared_server, go_first
from tests.integration.llm.declared_server import Plan

HERE = Path(__file__).parent
PLACES = Path(os.environ.get("VOICEPROBE_PEERS") or Path(sys.prefix) / "peers")
TOKENS, ROUNDS = 40, 3
PLAN = Plan()  # what the server does where a request declares nothing
# guidellm reads its prompts with two classes of PyTorch, which would be 3 GB; nothing of its measuring uses it.
NO_TORCH = {
    "torch/__init__.py": """from . import nn, utils
class Tensor: pass
class Generator:
    def manual_seed(self, _): pass
""",
    "torch/nn/__init__.py": "class Module: pass\n",
    "torch/utils/__init__.py": "from . import data\n",
    "torch/utils/data/__init__.py": "def get_worker_info(): return None\n",
    "torch/utils/data/dataset.py": "import typing\nclass IterableDataset(typing.Generic[typing.TypeVar('T')]): pass\n",
    "torch/utils/data/dataloader.py": """import typing
class DataLoader(typing.Generic[typing.TypeVar('T')]):
    def __init__(self, dataset, collate_fn, **_): self.dataset, self.collate_fn = dataset, collate_fn
    def __iter__(self): return (self.collate_fn([one]) for one in self.dataset)
""",
}
# Both peers insist on a tokenizer, whose counts are not used here.
TOKENIZER = """
import sys, tokenizers, transformers
words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"?": 0}, unk_token="?"))
words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="?", eos_token="?").save_pretrained(sys.argv[1])
"""
Figures = Mapping[str, list[float]]  # all in ms, or tokens a second
NAMES = ("first token", "gap", "wall", "tokens/s")


def binary(peer: str, name: str) -> str:
    """Return a program of a peer's environment, which is made first where it is missing."""
    place, lock = PLACES / peer, HERE / f"{peer}.lock"
    stamp = place / ".installed"
    if not stamp.exists() or stamp.read_text() != lock.read_text():
        uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
        print(f"installing {peer} into {place}", flush=True)
        subprocess.run([uv, "venv", "-q", "--clear", "--python", sys.executable, str(place)], check=True)
        python = str(place / "bin" / "python")
        subprocess.run([uv, "pip", "sync", "-q", "--require-hashes", "--python", python, str(lock)], check=True)
        stamp.write_text(lock.read_text())
    return str(place / "bin" / name)


def ran(command: list[str], folder: Path, **environment_of: str) -> None:
    """Run a peer without a network, and show the end of its log where it fails."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    with (folder / "log").open("w") as log:
        done = subprocess.run(
            command,
            env=kept | environment_of,
            cwd=folder,
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=300,
        )
    if done.returncode:
        print((folder / "log").read_text()[-2_000:])
        raise SystemExit(f"{command[0]} failed")


def aiperf(target: LlmTarget, folder: Path, prompts: list[str]) -> Figures:
    """Measure with aiperf: one request at a time, counts by the server."""
    (folder / "prompts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in prompts))
    base = target.url.removesuffix("/v1")
    command = [binary("aiperf", "aiperf"), "profile", "-m", target.model or "", "-u", base, "--endpoint-type", "chat"]
    command += [
        "--streaming",
        "--use-server-token-count",
        "--use-legacy-max-tokens",
        "--tokenizer",
        str(folder / "words"),
    ]
    command += ["--extra-inputs", f"max_tokens:{TOKENS}", "--extra-inputs", "ignore_eos:true", "--concurrency", "1"]
    command += ["--input-file", "prompts.jsonl", "--custom-dataset-type", "single_turn", "--ui", "simple"]
    command += ["--request-count", str(len(prompts)), "--output-artifact-dir", "aiperf", "--export-level", "records"]
    ran(command, folder)
    lines = (folder / "aiperf" / "profile_export.jsonl").read_text().splitlines()
    records = [json.loads(line)["metrics"] for line in lines]

    def each(name: str) -> list[Any]:
        return [record[name]["value"] for record in records if name in record]

    gaps = [gap for record in each("inter_chunk_latency") for gap in record]
    values = (each("time_to_first_token"), gaps, each("request_latency"), each("output_token_throughput_per_user"))
    return dict(zip(NAMES, values, strict=True))


def guidellm(target: LlmTarget, folder: Path, prompts: list[str]) -> Figures:
    """Measure with guidellm: one request at a time, counts by the server."""
    (folder / "rows.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in prompts))
    for name, text in NO_TORCH.items():
        (folder / "stub" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "stub" / name).write_text(text)
    extras = json.dumps({"body": {"max_tokens": TOKENS, "ignore_eos": True}})
    backend = {"kind": "openai_http", "target": target.url.removesuffix("/v1"), "model": target.model}
    backend |= {"request_format": "/v1/chat/completions", "extras": json.loads(extras)}
    command = [binary("guidellm", "guidellm"), "run", "--backend", json.dumps(backend), "--profile", "kind=synchronous"]
    command += ["--constraint", f"kind=max_requests,count={len(prompts)}", "--data", "kind=json_file,path=rows.jsonl"]
    command += ["--tokenizer", "kind=hf_auto,model=words", "--output", "kind=json,path=guide.json"]
    ran([*command, "--disable-console-interactive"], folder, PYTHONPATH="stub", HF_HUB_OFFLINE="1")
    (benchmark,) = json.loads((folder / "guide.json").read_text())["benchmarks"]
    requests: list[dict[str, Any]] = benchmark["requests"]["successful"]
    times = [request["info"]["timings"] for request in requests]
    first = [(at["first_token_iteration"] - at["request_start"]) * 1e3 for at in times]
    writing = [at["last_token_iteration"] - at["first_token_iteration"] for at in times]
    counts = [request["output_metrics"]["text_tokens"] for request in requests]
    # It keeps no single gaps: these are one mean a request.
    gaps = [span / (at["token_iterations"] - 1) * 1e3 for span, at in zip(writing, times, strict=True)]
    wall = [(at["request_end"] - at["request_start"]) * 1e3 for at in times]
    rates = [(count - 1) / span for count, span in zip(counts, writing, strict=True)]
    return dict(zip(NAMES, (first, gaps, wall, rates), strict=True))


def ours(target: LlmTarget, kept: list[LlmAnswer], prompts: list[str]) -> Figures:
    """Measure with our own client."""

    async def main() -> list[LlmAnswer]:
        async with LlmClient() as client:
            requests = [
                LlmRequest(kind="peers", messages=(Message("user", text),), max_tokens=TOKENS, exact_length=True)
                for text in prompts
            ]
            return [await client.ask(target, request) for request in requests]

    answers = run(main())
    kept += answers
    assert all(answer.fault is None for answer in answers), [answer.fault for answer in answers if answer.fault]
    first = [(answer.first_token_s or 0) * 1e3 for answer in answers]
    gaps = [gap * 1e3 for answer in answers for gap in answer.gaps_s]
    wall = [(answer.wall_s or 0) * 1e3 for answer in answers]
    return dict(zip(NAMES, (first, gaps, wall, [answer.tokens_per_s or 0 for answer in answers]), strict=True))


@contextlib.contextmanager
def llama() -> Generator[LlmTarget]:
    """Run llama.cpp's server with the small model until the block ends."""
    environment.install(print)
    command = environment.command("loadtest.targets.assistant.real.llama_server", "1", "1", "2048")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        # The same core for every tool's turn: what else the machine does may not fall on one of them.
        os.sched_setaffinity(process.pid, {(os.cpu_count() or 1) - 1})
        go_first(process.pid)
        assert process.stdin is not None
        assert process.stdout is not None
        fields = json.loads(process.stdout.readline())
        yield LlmTarget(fields["url"], fields["model"], key=None)
        process.stdin.close()


def compare(title: str, target: LlmTarget, folder: Path, requests: int) -> list[LlmAnswer]:
    """Print each tool's figures; return our answers."""
    kept: list[LlmAnswer] = []
    tools: dict[str, Callable[[list[str]], Figures]] = {
        "ours": lambda prompts: ours(target, kept, prompts),
        "aiperf": lambda prompts: aiperf(target, folder, prompts),
        "guidellm": lambda prompts: guidellm(target, folder, prompts),
    }
    found: dict[str, dict[str, list[float]]] = {tool: {name: [] for name in NAMES} for tool in tools}
    ours(target, [], ["warm up"])  # else the first turn alone would find nothing of the chat's template in the cache
    for turn in range(ROUNDS):
        for place, (tool, measure) in enumerate(tools.items()):
            # As long for each tool, and never the same: llama.cpp keeps the prompts that it has seen.
            prompts = [f"{place} {turn} {number}: tell me about the sea." for number in range(requests)]
            for name, values in measure(prompts).items():
                found[tool][name] += values
    print(f"\n{title}: {ROUNDS} turns of {requests} requests of each tool; ms, p50 and p90")
    print(f"{'':12}" + "".join(f"{name:>22}" for name in NAMES))
    for tool, figures in found.items():
        cells = [f"{statistics.median(values):10.2f} {at(values, 0.9):9.2f}" for values in figures.values()]
        print(f"{tool:12}" + "".join(f"{cell:>22}" for cell in cells))
    for peer in ("aiperf", "guidellm"):
        later = statistics.median(found["ours"]["first token"]) - statistics.median(found[peer]["first token"])
        print(f"our first token is {abs(later):.2f} ms {'LATER' if later > 0 else 'earlier'} than {peer}'s")
    return kept


def at(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def beside_timings(answers: list[LlmAnswer]) -> None:
    """Print what our figures add to llama.cpp's own times, which are those of its computing alone."""
    pairs = [(answer, answer.timings) for answer in answers if answer.timings is not None]
    first = [(answer.first_token_s or 0) * 1e3 - (own.prompt_ms or 0) for answer, own in pairs]
    wall = [(answer.wall_s or 0) * 1e3 - (own.prompt_ms or 0) - (own.predicted_ms or 0) for answer, own in pairs]
    print("\nour figures - llama.cpp's timings, ms: p50, p90")
    print(f"first token - prompt_ms                {statistics.median(first):8.2f} {at(first, 0.9):8.2f}")
    print(f"wall - prompt_ms - predicted_ms        {statistics.median(wall):8.2f} {at(wall, 0.9):8.2f}")


EXPLAINED = """
Why they differ: all count from before the request is sent. Ours leaves out opening a connection (llama.cpp closes each)
and takes the kernel's stamp of the last byte of an event. aiperf and guidellm take the time when their own loop has
read and decoded it, and include opening the connection; guidellm's clock is the wall clock, and its gap is one mean a
request, so that its p90 hides stalls. llama.cpp's prompt_ms ends before its first token is on the wire, one gap
earlier."""


def main() -> None:
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        subprocess.run([binary("aiperf", "python"), "-c", TOKENIZER, str(folder / "words")], check=True)
        with declared_server() as target:
            title = f"declared ({PLAN.first_ms:g} ms, then {PLAN.tokens - 1} tokens {PLAN.gap_ms:g} ms apart)"
            compare(title, target, folder, requests)
        with llama() as target:
            answers = compare(f"llama.cpp, {TOKENS} tokens", target, folder, requests)
        beside_timings(answers)
    print(EXPLAINED)
    print(f"in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()

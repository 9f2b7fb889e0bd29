"""Our figures compared with those of aiperf and guidellm, on the same server in the same run, and llama.cpp's own
times.

    .venv/bin/python -m tests.benchmarks.llm.peers [REQUESTS] [ROUNDS]

First on a server that declares its times, then on llama.cpp with a small model. Each tool asks one request after the
other, in rounds whose order is drawn. All ask through a relay that says when each answer really passed, so that a
tool's lateness is known request by request, whatever the model took for each. The peers are installed on first use
from their locks, by hash, each into an environment of its own in VOICEPROBE_PEERS (1 GB).
"""

import contextlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from itertools import product
from pathlib import Path
from typing import IO, Any

from loadtest.llm.answers import LlmAnswer, LlmRequest, Message
from loadtest.llm.bodies import LlmTarget
from loadtest.llm.client import LlmClient, run
from loadtest.llm.figures import Percentile, figure
from loadtest.targets.assistant.real import environment
from tests.benchmarks.llm.accuracy import declared_server, go_first
from tests.integration.llm.declared_server import Plan

HERE = Path(__file__).parent
PLACES = Path(os.environ.get("VOICEPROBE_PEERS") or Path(sys.prefix) / "peers")
TOKENS = 40
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
LATE = ("first token - relay's", "wall - relay's")


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

    def per_request(name: str) -> list[Any]:
        return [record[name]["value"] for record in records if name in record]

    gaps = [gap for record in per_request("inter_chunk_latency") for gap in record]
    values = (
        per_request("time_to_first_token"),
        gaps,
        per_request("request_latency"),
        per_request("output_token_throughput_per_user"),
    )
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
                LlmRequest(messages=(Message("user", text),), max_tokens=TOKENS, exact_length=True) for text in prompts
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
    command = environment.command("loadtest.targets.assistant.real.llama_server", "1", "1", "2048", "0")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        # The same core for every tool's turn: what else the machine does may not fall on one of them.
        os.sched_setaffinity(process.pid, {(os.cpu_count() or 1) - 1})
        go_first(process.pid)
        assert process.stdin is not None
        assert process.stdout is not None
        fields = json.loads(process.stdout.readline())
        yield LlmTarget(fields["url"], fields["model"], key=None)
        process.stdin.close()


@contextlib.contextmanager
def relayed(target: LlmTarget) -> Generator[tuple[LlmTarget, IO[str]]]:
    """Run the relay before a server until the block ends: its address, and its lines."""
    command = [sys.executable, str(HERE / "relay.py"), str(target.address.port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        go_first(process.pid)
        assert process.stdout is not None
        try:
            url = target.url.replace(f":{target.address.port}", f":{int(process.stdout.readline())}")
            yield LlmTarget(url, target.model, key=None), process.stdout
        finally:
            process.terminate()


def compare(title: str, server: LlmTarget, folder: Path, requests: int, rounds: int) -> list[LlmAnswer]:
    """Print each tool's figures; return our answers."""
    kept: list[LlmAnswer] = []
    chance = random.Random(1)
    with relayed(server) as (target, passed):
        tools: dict[str, Callable[[list[str]], Figures]] = {
            "ours": lambda prompts: ours(target, kept, prompts),
            "aiperf": lambda prompts: aiperf(target, folder, prompts),
            "guidellm": lambda prompts: guidellm(target, folder, prompts),
        }
        names = (*NAMES, *LATE)
        by_tool: dict[str, dict[str, list[float]]] = {tool: {name: [] for name in names} for tool in tools}
        # Else the first round alone would find nothing of the chat's template in the cache.
        ours(target, [], ["warm up"])
        passed.readline()
        for turn in range(rounds):
            for tool in chance.sample(sorted(tools), len(tools)):
                # As long for each tool, and never the same: llama.cpp keeps the prompts that it has seen.
                prompts = [f"{tool[0]} {turn} {number}: tell me about the sea." for number in range(requests)]
                figures = tools[tool](prompts)
                true = [json.loads(passed.readline()) for _ in prompts]
                for name, values in figures.items():
                    by_tool[tool][name] += values
                for name, of, by in zip(LATE, ("first token", "wall"), ("first", "wall"), strict=True):
                    by_tool[tool][name] += [value - one[by] for value, one in zip(figures[of], true, strict=True)]
    print(f"\n{title}: {rounds} rounds of {requests} requests of each tool; ms, p50 and p90 [95 % interval]")
    for name in names:
        print(f"{name}:")
        for tool, figures in by_tool.items():
            of = figure(figures[name])
            cells = [with_interval(of.at(statistic)) for statistic in ("p50", "p90")]
            print(f"  {tool:10}" + "".join(f"{cell:>30}" for cell in cells))
    for peer, statistic in product(("aiperf", "guidellm"), ("p50", "p90")):
        mine, other = (figure(by_tool[tool][LATE[0]]).at(statistic) for tool in ("ours", peer))
        if mine is not None and other is not None:
            print(f"{statistic} of our first token is {later(mine, other)} than {peer}'s, by the relay")
    return kept


def with_interval(of: Percentile | None) -> str:
    return "too few" if of is None else f"{of.value:.2f} [{_side(of.lower)}, {_side(of.upper)}]"


def _side(of: float | None) -> str:
    return "-" if of is None else f"{of:.2f}"


def later(mine: Percentile, other: Percentile) -> str:
    """Return how much later one is than another, and whether the intervals are apart."""
    by, bounds = mine.value - other.value, (mine.lower, mine.upper, other.lower, other.upper)
    apart = None not in bounds and (bounds[1] < bounds[2] or bounds[0] > bounds[3])  # type: ignore[operator]
    sure = "" if apart else " (intervals overlap)"
    return f"{abs(by):.2f} ms {'LATER' if by > 0 else 'earlier'}{sure}"


def at(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def compare_timings(answers: list[LlmAnswer]) -> None:
    """Print what our figures add to llama.cpp's own times, which are those of its computing alone."""
    pairs = [(answer, answer.timings) for answer in answers if answer.timings is not None]
    first = [(answer.first_token_s or 0) * 1e3 - (own.prompt_ms or 0) for answer, own in pairs]
    wall = [(answer.wall_s or 0) * 1e3 - (own.prompt_ms or 0) - (own.predicted_ms or 0) for answer, own in pairs]
    print("\nour figures - llama.cpp's timings, ms: p50, p90")
    print(f"first token - prompt_ms                {statistics.median(first):8.2f} {at(first, 0.9):8.2f}")
    print(f"wall - prompt_ms - predicted_ms        {statistics.median(wall):8.2f} {at(wall, 0.9):8.2f}")


EXPLAINED = """
Why they differ: all count from before the request is sent. Ours leaves out opening a connection (llama.cpp closes each)
and takes the kernel's stamp of the last byte of an event, before it is decoded. aiperf and guidellm take the time when
their own loop has read and decoded it, and include opening the connection; guidellm's clock is the wall clock, and its
gap is one mean a request, so that its p90 hides stalls. The first tokens themselves differ by what the model took for
each tool's requests; less the relay's own time of the same request, only the tool is left. llama.cpp's prompt_ms ends
before its first token is on the wire, one gap earlier."""


def main() -> None:
    requests, rounds = (
        int(sys.argv[place]) if len(sys.argv) > place else default for place, default in ((1, 12), (2, 3))
    )
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        subprocess.run([binary("aiperf", "python"), "-c", TOKENIZER, str(folder / "words")], check=True)
        with declared_server() as target:
            title = f"declared ({PLAN.first_ms:g} ms, then {PLAN.tokens - 1} tokens {PLAN.gap_ms:g} ms apart)"
            compare(title, target, folder, requests, rounds)
        with llama() as target:
            answers = compare(f"llama.cpp, {TOKENS} tokens", target, folder, requests, rounds)
        compare_timings(answers)
    print(EXPLAINED)
    print(f"in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()

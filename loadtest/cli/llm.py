"""`voiceprobe llm`."""

from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console

from loadtest.cli.flags import Json, Out, flag
from telemetry.model.durations import METAVAR

EXAMPLE: Final = "Example: voiceprobe llm http://127.0.0.1:8000/v1 --model small --samples 36 --html llm.html"
_LIST: Final = "<list>"


Urls = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="URL",
        help="endpoints side by side: the base of an OpenAI-compatible API, or Anthropic's or Gemini's own",
    ),
]
Models = Annotated[list[str] | None, flag("target", help="model: one for all, one for each URL, or several at one URL")]
Keys = Annotated[
    list[str] | None,
    flag(
        "target",
        help="environment variable with the key: one for all or one for each (default: the wire's usual one)",
        metavar="VARIABLE",
    ),
]
Wires = Annotated[
    list[str] | None, flag("target", help="openai, anthropic or gemini, likewise (default: by the address)")
]
Cohorts = Annotated[
    list[str] | None,
    flag(
        "target", help="cohort of each target's turns in the store (default: of its address and model)", metavar="NAME"
    ),
]
CaFile = Annotated[
    str | None,
    flag("target", help="PEM file of a private certificate authority for https; no other is trusted", metavar="FILE"),
]
Only = Annotated[
    str,
    flag(
        "load",
        help="experiments: lengths, network, cache, structured, agent, quality, concurrency",
        metavar=_LIST,
    ),
]
Samples = Annotated[
    int,
    flag(
        "load",
        help="answers of each length, cache state and structured form: p90 needs 10, p95 20, p99 100; an upper "
        "bound of p90 needs 36, of p95 72, of p99 368",
    ),
]
Lengths = Annotated[
    str, flag("load", help="output lengths in tokens; a row holds answers within 10 % of it", metavar=_LIST)
]
Prompts = Annotated[
    Path | None, flag("load", help="prompts with checkable answers, TOML or .jsonl (default: a small set)")
]
Concurrency = Annotated[str, flag("load", help="callers at the same time (default: 1,2,4,8)", metavar=_LIST)]
Rates = Annotated[str, flag("load", help="open arrivals a second, after the callers or alone", metavar=_LIST)]
LevelTime = Annotated[str, flag("load", help="length of each load level", metavar=METAVAR)]
Loops = Annotated[str, flag("load", help="calls of an agent's loop (default: 3,10,25,50)", metavar=_LIST)]
Timeout = Annotated[str, flag("load", help="time that an answer may take as a whole", metavar=METAVAR)]
Seed = Annotated[int, flag("load", help="seed of the order and of open arrivals")]
Endpointing = Annotated[str, flag("objectives", help="of the voice turn that is predicted", metavar=METAVAR)]
Asr = Annotated[str, flag("objectives", help="likewise: after the end of the turn", metavar=METAVAR)]
Tts = Annotated[str, flag("objectives", help="likewise: until the first audio", metavar=METAVAR)]
FromRun = Annotated[
    str | None, flag("objectives", help="take these from a run instead: its folder, its id, or STORE#RUN")
]
Within = Annotated[
    str, flag("objectives", help="a good answer of goodput has its first token within this", metavar=METAVAR)
]
Prices = Annotated[Path | None, flag("objectives", help="prices of a million tokens by model, TOML")]
Slo = Annotated[
    Path | None, flag("objectives", "--slo", help="objectives, an OpenSLO file (default: nothing is judged)")
]
Html = Annotated[Path | None, flag("output", "--html", help="write the result as one HTML file")]


def llm(
    urls: Urls = None,
    *,
    model: Models = None,
    key: Keys = None,
    wire: Wires = None,
    cohort: Cohorts = None,
    ca_file: CaFile = None,
    only: Only = "lengths,network",
    samples: Samples = 15,
    lengths: Lengths = "20,50,100,200,400,800,1500",
    prompts: Prompts = None,
    concurrency: Concurrency = "",
    rates: Rates = "",
    level_time: LevelTime = "20s",
    loops: Loops = "",
    timeout: Timeout = "120s",
    seed: Seed = 1,
    endpointing: Endpointing = "200ms",
    asr: Asr = "150ms",
    tts: Tts = "200ms",
    from_run: FromRun = None,
    within: Within = "500ms",
    prices: Prices = None,
    slo: Slo = None,
    out: Out = None,
    json_file: Json = None,
    html_file: Html = None,
) -> None:
    """Measure language models for a voice: how long one call in ten stalls, by output length, cache state and load.

    Any number of endpoints side by side, their samples interleaved. Without --slo nothing is judged. Exit code 0:
    measured, and every objective is met; 3: an objective is missed; 6: undecided, too few answers; 5: an endpoint
    cannot be reached or refuses; 2: a flag or file cannot be used; 130: interrupted, with the figures so far.
    """
    given: dict[str, Any] = dict(locals())
    from loadtest.llm.job import LlmBenchRequest, run_bench
    from loadtest.run.request import out_folder

    given["out"] = out_folder(out)
    raise typer.Exit(int(run_bench(LlmBenchRequest(**given), Console())))

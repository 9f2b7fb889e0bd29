"""`voiceprobe pair`: the same utterances to each target in turn, until the difference is decided.

The callers are a process of their own, which asks for nothing but the next utterance; their turns go to a sidecar,
where each target is a cohort of one run. The first target is the control.
"""

import contextlib
import json
import math
import subprocess
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, cast

import numpy as np
from rich.console import Console

from loadtest.errors import UsageError
from loadtest.exit_codes import ExitCode
from loadtest.pairing.differences import (
    QUANTILES,
    Decision,
    Measured,
    PairedDifference,
    difference,
    paired,
    pairs_needed,
)
from loadtest.run import processes
from loadtest.run.artifacts import keep_objectives
from loadtest.run.interruption import Interruption
from loadtest.run.request import CheckedRun
from loadtest.run.sidecars import start_sidecar
from loadtest.scenario.document import write_settings
from loadtest.swarm.worker import new_run_id
from telemetry.comparison.missing import could_turn, more_missing, owes_value
from telemetry.model.metrics import CONNECT, HEADLINE, METRICS, NOT_OF_AN_ANSWER
from telemetry.model.semconv import UNANSWERED

LOOK_EVERY: Final = 5
# The stages whose difference is shown, where both variants have them.
STAGES: Final = (
    HEADLINE,
    "asr_final_latency",
    "llm_first_token_latency",
    "time_to_first_sentence",
    "tts_first_chunk_latency",
)
_NEVER: Final[Measured] = (math.inf, math.inf, math.inf)
_MOST_WORK: Final = 32
AUDIBLE_GAP_NS: Final = 100_000_000  # an underrun from which on a listener hears a gap, as in `measurement.md`


@dataclass(frozen=True, slots=True)
class Variant:
    """One target by its name."""

    name: str
    url: str


@dataclass(frozen=True, slots=True)
class PairRequest:
    """The request for a comparison. It is decided by the metric at the quantile: when its interval leaves out 0, or
    lies within the smallest difference worth having on both sides."""

    checked: CheckedRun  # settings, corpus and folder; its target is the first variant
    variants: tuple[Variant, ...]
    store: Path
    metric: str
    quantile: float
    smallest_ms: float
    most_pairs: int
    hears_out: bool = True  # else callers hang up once an answer is audible and has arrived whole


@dataclass(frozen=True, slots=True)
class PairOfTurns:
    """One utterance, said to every variant: the turns in the order of the variants, None where none was recorded."""

    utterance: str
    turns: tuple[dict[str, Any] | None, ...]

    @property
    def is_valid(self) -> bool:
        """Whether every variant's turn was recorded and said as recorded."""
        return all(turn is not None and turn["outcome"] != "invalid" for turn in self.turns)


@dataclass
class PairedRun:
    """Everything that was said, and what follows from it."""

    run_id: str
    variants: tuple[Variant, ...]
    request: PairRequest
    pairs: list[PairOfTurns] = field(default_factory=list[PairOfTurns])
    interrupted: bool = False

    def difference(self, variant: int, metric: str, quantile: float) -> PairedDifference | None:
        """Variant minus the first one, in the metric's unit; None where no turn of both has the metric."""
        rows = [
            (pair.utterance, control, value)
            for pair, control, value in self._values(variant, metric)
            if control is not None and value is not None
        ]
        if not any(math.isfinite(control[0]) and math.isfinite(value[0]) for _, control, value in rows):
            return None
        return difference(paired(rows), quantile)

    def _values(self, variant: int, metric: str) -> list[tuple[PairOfTurns, Measured | None, Measured | None]]:
        """Each pair with what the control and the variant measured."""
        return [(pair, _value(pair.turns[0], metric), _value(pair.turns[variant], metric)) for pair in self.pairs]

    def headline(self, variant: int) -> PairedDifference | None:
        """The difference that decides."""
        return self.difference(variant, self.request.metric, self.request.quantile)

    def decision(self, variant: int) -> Decision:
        """The decision on one variant."""
        return self.judged(self.headline(variant), variant)[0]

    def judged(self, headline: PairedDifference | None, variant: int) -> tuple[Decision, str | None]:
        """Return the decision that a variant's headline gives. Where turns without a value could turn it, it is
        undecided, and half a sentence says so."""
        smallest = self.request.smallest_ms * 1e6
        decided = "undecided" if headline is None else headline.decision(smallest)
        sides = {"faster": (1,), "slower": (0,), "undecided": ()}.get(decided, (0, 1))
        for side in sides if owes_value(self.request.metric) else ():
            rows, missing = self._with_missing(variant, side)
            if missing and difference(paired(rows), self.request.quantile).decision(smallest) != decided:
                of, other = (self.variants[place].name for place in ((0, variant) if side == 0 else (variant, 0)))
                return "undecided", could_turn(missing, of, other)
        return decided, None

    def _with_missing(self, variant: int, side: int) -> tuple[list[tuple[str, Measured, Measured]], int]:
        """The rows of a difference with the turns without a value that a side (0 the control, 1 the variant) has more
        of than the other as longer than any wait, and how many these are."""
        known = self._values(variant, self.request.metric)
        lacking = [np.array([row[place] is None for row in known], np.bool_) for place in (1 + side, 2 - side)]
        utterances = np.array([pair.utterance for pair, _, _ in known])
        alone = lacking[0] & ~lacking[1], lacking[1] & ~lacking[0]
        chosen = set(more_missing(*alone, (len(known), len(known)), utterances).tolist())
        rows = [
            (pair.utterance, control or _NEVER, value or _NEVER)
            for place, (pair, control, value) in enumerate(known)
            if place in chosen or (control is not None and value is not None)
        ]
        return rows, len(chosen)

    @property
    def is_enough(self) -> bool:
        """Whether the requested number of pairs was spoken: of valid ones, or, so that it ends where too many turns
        are invalid, a quarter more of any."""
        most = self.request.most_pairs
        return len(self.pairs) >= most + most // 4 or sum(pair.is_valid for pair in self.pairs) >= most

    @property
    def decided(self) -> bool:
        """Whether every variant is decided."""
        return all(self.decision(variant) != "undecided" for variant in range(1, len(self.variants)))

    def word_error_rate(self, variant: int) -> float | None:
        """The word errors of all turns with a transcript, per word that was said; None without one."""
        known = [turn for turn in self._turns(variant) if turn["wer_errors"] is not None and turn["wer_words"]]
        words = sum(turn["wer_words"] for turn in known)
        return sum(turn["wer_errors"] for turn in known) / words if words else None

    def mean(self, variant: int, number: Callable[[dict[str, Any]], float | None]) -> float | None:
        """The mean of a number over the turns that have it; None where none has."""
        known = [value for turn in self._turns(variant) if (value := number(turn)) is not None]
        return sum(known) / len(known) if known else None

    def work(self, variant: int) -> dict[str, float]:
        """Return what an answer took, as the endpoint reports it: the mean of each number."""
        names = dict.fromkeys(name for turn in self._turns(variant) for name in turn["work"])
        means = {name: self.mean(variant, lambda turn, name=name: turn["work"].get(name)) for name in names}
        return {name: mean for name, mean in means.items() if mean is not None}

    def hits_by_tier(self, variant: int) -> dict[str, float]:
        """The share of turns that each tier of a cache answered, of those that say whether one did."""
        known = [turn for turn in self._turns(variant) if turn["cache_hit"] is not None]
        tiers = [turn["cache_tier"] for turn in known if turn["cache_hit"] and turn["cache_tier"]]
        return {tier: tiers.count(tier) / len(known) for tier in sorted(set(tiers))}

    def share(self, variant: int, holds: Callable[[dict[str, Any]], bool | None]) -> tuple[int, int]:
        """Return for how many turns `holds` is true, and for how many it is known."""
        known = [value for turn in self._turns(variant) if (value := holds(turn)) is not None]
        return sum(known), len(known)

    def unanswered(self, variant: int) -> tuple[int, int]:
        """Return how many turns had no answer, of how many."""
        return self.share(variant, lambda turn: turn["outcome"] in UNANSWERED)

    def _turns(self, variant: int) -> Iterator[dict[str, Any]]:
        return (turn for pair in self.pairs if (turn := pair.turns[variant]) is not None)


def _value(turn: dict[str, Any] | None, metric: str) -> Measured | None:
    """The metric of a turn with its bounds, infinite where it was not answered; None where it is open or has none."""
    if turn is None or turn["outcome"] == "invalid":
        return None
    is_unanswered = turn["outcome"] in UNANSWERED
    if metric == HEADLINE and is_unanswered:
        return _NEVER
    is_owed = metric not in NOT_OF_AN_ANSWER or metric == CONNECT
    return turn["values"].get(metric, _NEVER if is_unanswered and is_owed else None)


def named_variants(targets: Sequence[str]) -> tuple[Variant, ...]:
    """Targets as NAME=URL, or URLs that are named after their place. Raises UsageError with a line for each fault."""
    variants: list[Variant] = []
    faults: list[str] = []
    for number, text in enumerate(targets):
        name, sign, url = text.partition("=")
        is_named = bool(sign) and "://" not in name
        variant = Variant(name, url) if is_named else Variant(chr(ord("a") + number), text)
        if "://" not in variant.url or not variant.name:
            faults.append(f"the target {text!r:.80} is not an address; write ws://HOST/PATH or NAME=ws://HOST/PATH")
        elif any(variant.name == other.name for other in variants):
            faults.append(f"the name {variant.name!r:.40} is given twice; give each target one of its own")
        variants.append(variant)
    if len(targets) < 2:
        faults.append("two targets are needed to compare; name another one")
    if faults:
        raise UsageError("\n".join(faults))
    return tuple(variants)


def check_decision(metric: str, quantile: float, smallest_ms: float, most_pairs: int) -> list[str]:
    """Return what is wrong with how it is to be decided: one sentence each."""
    faults: list[str] = []
    if metric not in METRICS or METRICS[metric].unit != "ns":
        known = ", ".join(name for name in STAGES if name in METRICS)
        faults.append(f"--metric {metric!r:.40} is not a duration of a turn; choose one such as {known}")
    if quantile not in QUANTILES:
        faults.append(f"--quantile {quantile:g} is not one of {', '.join(f'{known:g}' for known in QUANTILES)}")
    elif most_pairs < pairs_needed(quantile):
        faults.append(f"--pairs {most_pairs} is too few: p{100 * quantile:g} needs {pairs_needed(quantile)}")
    if not smallest_ms > 0:
        faults.append(f"--smallest {smallest_ms:g} is too small; give milliseconds above 0")
    return faults


def pair(request: PairRequest, console: Console) -> PairedRun:
    """Speak utterances to every variant until all are decided, or the requested number was spoken. Raises
    ProcessFailedError and UsageError."""
    out, run_id = request.checked.request.out, new_run_id()
    run = PairedRun(run_id, request.variants, request)
    with ExitStack() as stack:
        slo = keep_objectives(out, request.checked.objectives_text)
        keeps_text = request.checked.request.settings.keep_transcripts
        child, sidecar = start_sidecar(request.store, out / "logs", slo=slo, keeps_text=keeps_text)
        stack.enter_context(processes.ending(child))
        files = [_settings_file(request.checked, variant, run_id, sidecar.url, out) for variant in request.variants]
        callers = stack.enter_context(_callers(request, files))
        interruption = stack.enter_context(Interruption())
        estimate = ""
        with console.status("preparing the speech") as status:
            for turns in callers:
                run.pairs.append(turns)
                is_look = len(run.pairs) % LOOK_EVERY == 0
                estimate = _estimate(run) if is_look else estimate
                status.update(f"{len(run.pairs)} pairs{estimate}")
                run.interrupted = interruption.wait(0)
                if run.interrupted or run.is_enough or (is_look and run.decided):
                    break
    return run


def exit_code(run: PairedRun) -> ExitCode:
    """The exit code: 0 where every variant is decided, 6 where one is not, 130 where somebody interrupted it."""
    if run.interrupted:
        return ExitCode.INTERRUPTED
    return ExitCode.OK if run.decided else ExitCode.UNDECIDED


def _estimate(run: PairedRun) -> str:
    headline = run.headline(1)
    if headline is None or headline.lower is None or headline.upper is None:
        return ""
    shown = METRICS[run.request.metric].format
    return f": {shown(headline.value)} ({shown(headline.lower)} to {shown(headline.upper)})"


def _settings_file(checked: CheckedRun, variant: Variant, run_id: str, sidecar_url: str, out: Path) -> Path:
    settings = checked.request.settings.replaced(
        host=variant.url,
        cohort=variant.name,
        corpus=str(checked.corpus.path),
        run_id=run_id,
        spool=str(out / "spool"),
        sidecar=sidecar_url,
        turns=1,
    )
    file = out / f"settings-{run_id}-{variant.name}.json"
    write_settings(settings, file)
    return file


@contextmanager
def _callers(request: PairRequest, files: Sequence[Path]) -> Generator[Iterator[PairOfTurns]]:
    """The process of the callers: each item is one utterance, said to every variant when it is asked for. Raises
    ProcessFailedError and UsageError where it cannot begin or ends too early."""
    seed, logs = request.checked.request.settings.seed, request.checked.request.out / "logs"
    arguments = ["-m", "loadtest.swarm.paired_callers", str(seed), str(int(request.hears_out)), *map(str, files)]
    child = processes.start("callers", arguments, logs, says_ready=False, takes_orders=True, bystander=False)
    orders, answers = child.process.stdin, child.process.stdout
    assert orders is not None  # noqa: S101 - they are pipes
    assert answers is not None  # noqa: S101
    with answers, orders, processes.ending(child):
        _read(child, answers)  # it is ready
        yield _pairs_of(child, orders, answers)
        orders.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.process.wait(processes.END_TIMEOUT_S)


def _pairs_of(child: processes.Child, orders: IO[bytes], answers: IO[bytes]) -> Iterator[PairOfTurns]:
    while True:
        with contextlib.suppress(BrokenPipeError):
            orders.write(b"\n")
            orders.flush()
        row = _read(child, answers)
        for turn in row["turns"]:
            if turn is not None:
                turn["work"] |= work_of(turn.pop("reported_work"))
        yield PairOfTurns(row["utterance"] or "", tuple(row["turns"]))


def work_of(text: str) -> dict[str, float]:
    """The numbers that an endpoint reports of its work, as a JSON object; any other text counts as not reported."""
    try:
        fields: Any = json.loads(text or "{}")
    except ValueError:
        return {}
    if not isinstance(fields, dict):
        return {}
    named = cast("dict[str, Any]", fields).items()
    numbers = [(name, float(value)) for name, value in named if type(value) in (int, float) and math.isfinite(value)]
    return dict(numbers[:_MOST_WORK])


def _read(child: processes.Child, answers: IO[bytes]) -> dict[str, Any]:
    if line := answers.readline():
        return json.loads(line)
    if child.process.wait() == ExitCode.USAGE:
        raise UsageError(child.last_words())
    raise processes.ProcessFailedError(f"the callers ended: {child.last_words()} (log: {child.log})")

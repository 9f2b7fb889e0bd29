"""`voiceprobe audit`: says a corpus's personal data to the reference assistant, and looks for it everywhere after."""

import tempfile
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from corpora.manifest.excerpt import write_excerpt
from corpora.manifest.library import open_corpus
from loadtest.audit import framework_telemetry
from loadtest.audit.places import Leak, Places
from loadtest.audit.search import Search, needles_of_texts, needles_of_value
from loadtest.errors import UsageError
from loadtest.exit_codes import ExitCode
from loadtest.run import processes
from loadtest.run.job import run
from loadtest.run.json_file import write_json
from loadtest.run.request import CheckedRun, RunRequest, check
from loadtest.run.sidecars import Sidecar, start_sidecar
from loadtest.scenario.behavior import parse_think
from loadtest.scenario.sections import RunLoad
from loadtest.scenario.settings import SwarmSettings
from telemetry.model.durations import Duration
from telemetry.store.database import read_only

READY_S: Final = 60.0
# Every third question is answered too late, so that the rules answer it; the others are cached.
ASSISTANT: Final = (
    *("--asr", "scripted", "--asr-delay", "constant:20ms", "--tts", "scripted", "--tts-delay", "constant:20ms"),
    *("--llm-ttft", "constant:30ms;tail=0.3:3s", "--llm-deadline", "200ms", "--cache-ttl", "10m"),
)
_LOOK_EVERY_S: Final = 0.2
CORPUS: Final = "voiceprobe-en"
Plant = Callable[["Audited"], None]


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """The request for an audit. `corpus` is a name or a folder; `redis_url` a server that is used and searched,
    None: one of our own where the program is installed."""

    corpus: str | None
    load: RunLoad
    out: Path
    json_file: Path | None
    redis_url: str | None = None


@dataclass(frozen=True, slots=True)
class Audited:
    """The places of an audit's parts while they run."""

    folder: Path
    sidecar: Sidecar
    redis_url: str | None


@dataclass(frozen=True, slots=True)
class Coverage:
    """The work that was really done: an audit of less says nothing."""

    utterances: int
    utterances_answered: int
    cached_turns: int
    fallback_turns: int
    framework_spans: int
    redis: bool

    def missing(self) -> list[str]:
        """Return what was not done, a sentence each."""
        missing: list[str] = []
        if self.utterances_answered < self.utterances:
            missing.append(
                f"{self.utterances - self.utterances_answered} of {self.utterances} utterances were never answered"
            )
        if not self.cached_turns:
            missing.append("no answer came from the assistant's cache")
        if not self.fallback_turns:
            missing.append("no answer came from the assistant's fallback")
        return missing


def audit(request: AuditRequest, console: Console, *, plant: Plant = lambda _audited: None) -> ExitCode:
    """Run the audit. `plant` is called before the last search, for tests that put a leak somewhere.

    Raises UsageError, CorpusError, OutputError, ProcessFailedError.
    """
    with ExitStack() as stack:
        # Outside of what is searched: the corpus holds what is looked for.
        corpus = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="voiceprobe-audit-")))
        utterances = _personal_utterances(request.corpus, corpus)
        checked = check(_run_request(request, corpus))
        console.print(
            f"{len(utterances)} utterances with personal data; everything of this audit is kept in {request.out}",
            soft_wrap=True,
        )
        forms = needles_of_texts(utterances).union(
            *(needles_of_value(source, value) for source, value in framework_telemetry.VALUES.items())
        )
        places = Places(Search(forms), there_before=[*request.out.rglob("*")])
        redis_url = request.redis_url or stack.enter_context(
            processes.redis_server(request.out / "redis", "--appendonly", "yes")
        )
        audited, pids = _start_parts(request, checked, redis_url, stack)
        with _watching(places, audited.folder):
            target = replace(checked, request=checked.request.with_settings(host=pids.target))
            run(target, console, sidecar=audited.sidecar)
            sent = framework_telemetry.send(audited.sidecar.url, utterances)
        plant(audited)
        console.print("searching files, tables, pages, answers, caches and processes", soft_wrap=True)
        places.pages(audited.sidecar.url)
        if redis_url is not None:
            places.redis(redis_url)
        places.processes(pids.pids)
    # What is flushed at the end is searched as well.
    places.folder(request.out)
    coverage = _coverage(request.out / "store", len(utterances), sent.spans, redis=redis_url is not None)
    return _report(places, coverage, request, console)


@dataclass(frozen=True, slots=True)
class _Parts:
    target: str
    pids: tuple[int, ...]


def _personal_utterances(corpus: str | None, folder: Path) -> list[tuple[str, str]]:
    """Make a corpus of those utterances that have personal data; gives their names and texts. Raises CorpusError, and
    UsageError when there are none."""
    opened = open_corpus(corpus or CORPUS, check_clips=False)
    personal = [utterance for utterance in opened.utterances if utterance.pii and utterance.text]
    if not personal:
        raise UsageError(
            f"the corpus {opened.name} has no utterance whose pii_kinds name personal data; annotate some, or use "
            "the bundled corpus"
        )
    write_excerpt(opened, personal, folder)
    return [(utterance.id, utterance.text or "") for utterance in personal]


def _run_request(request: AuditRequest, corpus: Path) -> RunRequest:
    settings = SwarmSettings(
        host="ws://127.0.0.1:1/v1/realtime",
        corpus=str(corpus),
        think=parse_think(0.1),
        endpointing=Duration.parse("200ms"),
        scenario_name="audit",
    )
    at_once = request.load.model_copy(update={"spawn_rate": float(request.load.users or 1)})
    return RunRequest(settings, at_once, None, request.out, request.json_file)


def _start_parts(
    request: AuditRequest, checked: CheckedRun, redis_url: str | None, stack: ExitStack
) -> tuple[Audited, _Parts]:
    logs, store = request.out / "logs", request.out / "store"
    child, sidecar = start_sidecar(store, logs, slo=None)
    stack.enter_context(processes.ending(child))
    flags = ["--port", "0", "--otlp", sidecar.url, *ASSISTANT, "--corpus", str(checked.corpus.path)]
    flags += [] if redis_url is None else ["--cache-url", redis_url]
    assistant = processes.start_assistant(stack, logs, *flags)
    target = str(processes.wait_until_ready(assistant, READY_S)["url"])
    parts = _Parts(target, (child.process.pid, assistant.process.pid))
    return Audited(request.out, sidecar, redis_url), parts


@contextmanager
def _watching(places: Places, folder: Path) -> Generator[None]:
    """Search files again and again: what is soon removed, such as the database's log, is on the disk too."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_LOOK_EVERY_S):
            places.folder(folder, tables=False)

    thread = threading.Thread(target=watch, name="audit-watch")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _coverage(store: Path, utterances: int, framework_spans: int, *, redis: bool) -> Coverage:
    with read_only(store) as database, database.snapshot() as cursor:
        ((answered, cached, fallback),) = cursor.execute(
            "SELECT count(DISTINCT utterance_id) FILTER (outcome = 'ok'), count(*) FILTER (cache_hit), "
            "count(*) FILTER (fallback IS NOT NULL) FROM turns WHERE source = 'client'"
        ).fetchall()
    return Coverage(utterances, answered, cached, fallback, framework_spans, redis)


def _report(places: Places, coverage: Coverage, request: AuditRequest, console: Console) -> ExitCode:
    leaks, missing = sorted(places.leaks), coverage.missing()
    code = ExitCode.OBJECTIVE_MISSED if leaks else ExitCode.UNDECIDED if missing else ExitCode.OK
    by_place: dict[str, list[Leak]] = {}
    for leak in leaks:
        by_place.setdefault(leak.place, []).append(leak)
    for place, place_leaks in by_place.items():
        sources = ", ".join(sorted({leak.source for leak in place_leaks}))
        console.print(f"LEAK {place}: {sources}", soft_wrap=True, markup=False, highlight=False)
    searched = ", ".join(f"{count} × {kind}" for kind, count in sorted(places.searched.items()))
    console.print(f"searched: {searched}", soft_wrap=True)
    for sentence in missing:
        console.print(f"not covered: {sentence}; use a longer --run-time", soft_wrap=True)
    if not coverage.redis:
        console.print("Redis was not searched: redis-server is not installed; --redis names a server", soft_wrap=True)
    console.print(_verdict(leaks, missing, coverage), soft_wrap=True)
    if request.json_file is not None:
        write_json(request.json_file, _as_object(by_place, places, coverage, code))
    return code


def _verdict(leaks: Sequence[Leak], missing: Sequence[str], coverage: Coverage) -> str:
    if leaks:
        return f"personal data was found in {len({leak.place for leak in leaks})} places"
    if missing:
        return "undecided: nothing was found, but not all was tried"
    return (
        f"no personal data was found: {coverage.utterances} utterances, {coverage.cached_turns} answers from a cache, "
        f"{coverage.fallback_turns} from the fallback, {coverage.framework_spans} spans as frameworks send them"
    )


def _as_object(by_place: dict[str, list[Leak]], places: Places, coverage: Coverage, code: ExitCode) -> dict[str, Any]:
    return {
        "exit_code": int(code),
        "leaks": [
            {"place": place, "utterances": sorted({leak.source for leak in leaks})} for place, leaks in by_place.items()
        ],
        "searched": dict(sorted(places.searched.items())),
        "coverage": {
            "utterances": coverage.utterances,
            "utterances_answered": coverage.utterances_answered,
            "cached_turns": coverage.cached_turns,
            "fallback_turns": coverage.fallback_turns,
            "framework_spans": coverage.framework_spans,
            "redis": coverage.redis,
            "missing": coverage.missing(),
        },
    }

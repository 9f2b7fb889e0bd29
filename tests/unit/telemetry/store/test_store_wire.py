"""Every question comes over the wire as it is asked in the folder; what is no question is refused with a sentence."""

import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from telemetry.objectives.slo import default_objectives
from telemetry.sidecar import queries
from telemetry.sidecar.queries import Asked, reply_to
from telemetry.sidecar_client import SidecarAnswer, SidecarClient
from telemetry.store.answers import Filter
from telemetry.store.questions.cohorts import CohortsQuestion
from telemetry.store.questions.explanation import ExplanationQuestion, TurnSelection
from telemetry.store.questions.pages import PageQuestion, ViewQuestion
from telemetry.store.questions.turns import TurnSearch, TurnsQuestion
from telemetry.store.reader import RemoteStore, StoreReader
from telemetry.store.wire import MOST_TOGETHER, QUERY_PATH, BadQuestionError, answer, question_named, questions
from tests.fixtures_rollouts import keep_verdicts
from tests.fixtures_turns import SECOND, START_UNIX_NS, fill_store, synthetic_run
from tests.nightly import nightly_after
from tests.unit.dashboard.rollout_scenes import Rollout, fill_rollout

NOW = START_UNIX_NS + 10_000 * SECOND
# None, all parts together, each part by itself, and a run that is not there.
FILTERS = [
    Filter(),
    Filter("run-1", cohort="streaming", noise_profile="babble", since_unix_ns=START_UNIX_NS + 30 * SECOND),
    Filter(run_id="run-1"),
    Filter(run_id="gone"),
    Filter(cohort="streaming"),
    Filter(noise_profile="babble"),
    Filter(since_unix_ns=START_UNIX_NS + 30 * SECOND),
]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreReader]:
    store = fill_store(tmp_path_factory.mktemp("store"), synthetic_run("run-1", turns=120), synthetic_run("run-2", 30))
    keep_verdicts(store, 12)
    with StoreReader(store, wall_clock_ns=lambda: NOW) as opened:
        yield opened


class Client(SidecarClient):
    """Its requests go to the sidecar's own code instead of a socket."""

    def __init__(self, reader: StoreReader, *, is_msgpack: bool) -> None:
        super().__init__("http://nowhere:1", None)
        self.reader = reader
        self.is_msgpack = is_msgpack

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> SidecarAnswer:
        assert (method, headers) == ("POST", {"Accept": "application/vnd.msgpack"})
        name = path.removeprefix(QUERY_PATH).removeprefix("/") or None
        replied = reply_to(self.reader, Asked(name, body or b"", self.is_msgpack))
        return SidecarAnswer(replied.status, replied.body)


class Wire(RemoteStore):
    """A RemoteStore with that client."""

    def __init__(self, reader: StoreReader, *, is_msgpack: bool = True) -> None:
        super().__init__("http://nowhere:1", None)
        self._sidecar._sidecar = Client(reader, is_msgpack=is_msgpack)


def test_every_question_of_a_reader_can_be_asked_from_elsewhere() -> None:
    # What is no question: `count` gives a function, nothing for a network.
    kept_here = {"close", "elsewhere", "count", "together"}
    public = {name for name, _ in inspect.getmembers(StoreReader, callable) if not name.startswith("_")}
    assert set(questions()) == public - kept_here


def _as_json(page: object) -> object:
    """A page's answer as plain values, where a tuple and the list that it comes over the wire as are the same."""
    return msgspec.json.decode(msgspec.json.encode(page))


@pytest.mark.slow
@pytest.mark.parametrize("f", nightly_after(2, FILTERS), ids=str)
def test_each_answer_is_that_of_the_folder(reader: StoreReader, f: Filter) -> None:
    wire = Wire(reader)
    objectives = tuple(default_objectives())
    asked: list[tuple[str, dict[str, Any]]] = [
        *((name, {}) for name in ("state", "runs")),
        *((name, {"f": f}) for name in ("summary", "stage_budget", "dimension_values", "calls", "generator_points")),
        ("timeline", {"f": f, "metric": "llm_ttft", "buckets": 7}),
        ("slowest", {"f": f, "metric": "itl", "limit": 3}),
        ("turns", {"f": f, "limit": 9, "offset": 2, "source": "client", "outcome": "ok"}),
        ("objective_counts", {"f": f, "objectives": objectives}),
        ("run_verdict", {"f": f, "objectives": objectives}),
        ("explanation", {"asked": ExplanationQuestion(TurnSelection(objectives[0]), f)}),
        ("page", {"asked": PageQuestion(f, 60 * SECOND, objectives=objectives)}),
        ("turns_page", {"asked": TurnsQuestion(f, 60 * SECOND, TurnSearch("1", outcome="ok"), order="newest")}),
        ("cache_page", {"asked": ViewQuestion(f)}),
        ("instrument_page", {"asked": ViewQuestion(f)}),
        ("cohorts_page", {"asked": CohortsQuestion(ViewQuestion(f), turns="chosen")}),
        ("processes", {"run_id": f.run_id or "run-2"}),
        *((name, {"objectives": objectives, "f": f}) for name in ("burn_rates", "objectives_page")),
        ("run_list", {"objectives": objectives}),
        ("rollouts", {"most_entries": 5}),
    ]
    for name, parameters in asked:
        here, there = (getattr(source, name)(**parameters) for source in (reader, wire))
        if name in ("page", "cache_page", "instrument_page", "cohorts_page"):
            assert _as_json(there) == _as_json(here), name
        else:
            assert there == here, name


@pytest.mark.slow
def test_the_pages_of_a_rollout_come_as_they_are(tmp_path: Path) -> None:
    now = 1_795_000_000 * SECOND
    store = fill_rollout(tmp_path, Rollout(slower_ms=180, turns=1600, looks=2), now)
    with StoreReader(store, wall_clock_ns=lambda: now) as reader:
        wire = Wire(reader)
        here, there = (source.cohorts_page(CohortsQuestion()) for source in (reader, wire))
        assert there.rollout is not None
        assert there.rollout.verdict is not None
        assert _as_json(there) == _as_json(here)
        assert _as_json(wire.rollout_page("streaming")) == _as_json(reader.rollout_page("streaming"))
        assert wire.state() == reader.state()


@pytest.mark.slow
def test_turns_and_spans_come_as_they_are(reader: StoreReader) -> None:
    wire = Wire(reader)
    for turn in reader.turns(Filter(run_id="run-1"), 6):
        assert wire.turn(turn.trace_id, turn.turn_index) == reader.turn(turn.trace_id, turn.turn_index)
        assert wire.spans(turn.trace_id) == reader.spans(turn.trace_id) != []


def test_the_log_of_a_rollout_comes_as_it_is(reader: StoreReader) -> None:
    (record,) = reader.rollouts()
    assert [entry.sequence for entry in record.entries] == list(range(13))
    assert Wire(reader).rollouts() == Wire(reader, is_msgpack=True).rollouts() == (record,)


def test_an_answer_can_be_had_in_json(reader: StoreReader) -> None:
    replied = reply_to(reader, Asked("summary", b'{"f": {"run_id": "run-1"}}', False))
    decoded = msgspec.json.decode(replied.body, type=question_named("summary").type_of_answer)
    assert (replied.status, decoded) == (200, reader.summary(Filter(run_id="run-1")))


@pytest.mark.parametrize(
    ("name", "parameters", "why"),
    [
        ("secrets", b"{}", "there is no question 'secrets'"),
        ("__class__", b"{}", "there is no question"),
        ("summary", b"{", "summary: "),
        ("summary", b"[" * 100_000, "summary: "),
        ("summary", b"\xff\xfe", "summary: "),
        ("summary", b'{"f": {"run": 3}}', "summary: there is no 'run' to ask by"),
        ("summary", b'{"f": {"run_id": 3}}', "summary: Expected `str | null`"),
        ("page", b'{"asked": {"filter": {"runs": "x"}}}', "page: there is no 'runs' to ask by"),
        (
            "objective_counts",
            b'{"f": {}, "objectives": [{"name": "x", "kind": "cache", "target": 0.9, "goal": 1}]}',
            "there is no 'goal' to ask by",
        ),
        ("summary", b'{"g": {}}', "unknown field `g`"),
        ("turns", b'{"limit": 10001}', "turns: Expected `int` <= 10000"),
        ("turns", b'{"source": "x"}', "turns: Invalid enum value"),
        ("timeline", b'{"buckets": 0}', "timeline: Expected `int` >= 1"),
        ("timeline", b'{"metric": "1; DROP TABLE turns"}', "there is no metric '1; DROP TABLE turns'"),
        ("slowest", b'{"metric": "speed"}', "there is no metric 'speed'"),
        ("page", b'{"asked": {"metric": "speed"}}', "there is no metric 'speed'"),
        ("page", b'{"asked": {"slowest": 1000000000}}', "page: Expected `int` <= 10000 - at `$.asked.slowest`"),
        ("page", b'{"asked": {"slowest": -1}}', "page: Expected `int` >= 0 - at `$.asked.slowest`"),
        ("rollouts", b'{"most_entries": 1001}', "rollouts: Expected `int` <= 1000"),
        ("turn", b'{"trace_id": "x"}', "missing required field `turn_index`"),
        (
            "rollout_turns",
            msgspec.json.encode({"asked": {"candidate": "a", "control": "b", "metrics": ["wer"] * 201}}),
            "rollout_turns: Expected `array` of length <= 200 - at `$.asked.metrics`",
        ),
        (
            "run_turns",
            msgspec.json.encode({"asked": {"run_id": "run-1", "objectives": [default_objectives()[0]] * 201}}),
            "run_turns: Expected `array` of length <= 200 - at `$.asked.objectives`",
        ),
    ],
)
def test_invalid_question_is_refused_with_a_sentence(
    reader: StoreReader, name: str, parameters: bytes, why: str
) -> None:
    with pytest.raises(BadQuestionError) as caught:
        answer(reader, name, parameters)
    assert why in str(caught.value)
    replied = reply_to(reader, Asked(name, parameters, True))
    assert replied.status == 400
    assert len(replied.body) < 1000


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("summary", b'{"f": {"since_unix_ns": 99999999999999999999999999}}'),
        ("objective_counts", b'{"objectives": [{"name": "x", "kind": "metric", "target": 0.9, "metric": "speed"}]}'),
        ("objective_counts", b'{"objectives": [{"name": "x", "kind": "metric", "target": 0.9}]}'),
    ],
)
def test_unanswerable_question_does_not_affect_the_next(
    reader: StoreReader, name: str, parameters: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reply_to(reader, Asked(name, parameters, True)).status in (400, 500)
    assert reply_to(reader, Asked("runs", b"", True)).status == 200
    capsys.readouterr()


def test_questions_in_one_request_are_answered_in_order(reader: StoreReader) -> None:
    f = Filter(run_id="run-2")
    asked = (
        StoreReader.calls.of(f),
        StoreReader.runs.of(),
        StoreReader.timeline.of(f, buckets=7),
        StoreReader.rollouts.of(most_entries=5),
    )
    apart = [reader.calls(f), reader.runs(), reader.timeline(f, buckets=7), reader.rollouts(5)]
    for source in (reader, Wire(reader)):
        assert list(source.together(*asked)) == apart
    names = [{"name": question.name, "parameters": question.parameters} for question in asked]
    replied = reply_to(reader, Asked(None, msgspec.json.encode(names), False))
    assert (replied.status, msgspec.json.decode(replied.body)) == (200, _as_json(apart))


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (b"", "give a list of questions"),
        (b"{}", "give a list of questions"),
        (b"[]", "give a list of questions"),
        (b"[" * 100_000, "give a list of questions"),
        (b'[{"name": "runs"}, {}]', "missing required field `name`"),
        (b'[{"name": "runs", "filter": {}}]', "unknown field `filter`"),
        (b'[{"name": "runs"}, {"name": "secrets"}]', "there is no question 'secrets'"),
        (b'[{"name": "runs"}, {"name": "turns", "parameters": {"limit": -1}}]', "turns: Expected `int` >= 0"),
        (b'[{"name": "runs"}, {"name": "summary", "parameters": [1]}]', "summary: Expected `object`"),
        (b'[{"name": "runs"}, {"name": "slowest", "parameters": {"metric": "speed"}}]', "there is no metric 'speed'"),
        (b"[" + b",".join([b'{"name": "runs"}'] * (MOST_TOGETHER + 1)) + b"]", f"length <= {MOST_TOGETHER}"),
    ],
)
def test_one_invalid_question_of_several_refuses_all(reader: StoreReader, asked: bytes, why: str) -> None:
    replied = reply_to(reader, Asked(None, asked, True))
    assert replied.status == 400
    assert why in msgspec.json.decode(replied.body)["error"]


def test_an_answer_that_is_too_long_is_refused(reader: StoreReader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "ANSWER_BYTES_MAX", 1 << 20)
    turns = {"name": "turns", "parameters": {"limit": 150}}
    for several, status in ((1, 200), (MOST_TOGETHER, 400)):
        replied = reply_to(reader, Asked(None, msgspec.json.encode([turns] * several), True))
        assert replied.status == status, replied.body[:200]
    assert b"longer than 1 MiB; ask for less at once" in replied.body

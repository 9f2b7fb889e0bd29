"""The Turns page's answers are those of plain loops over the turns; the page of one turn has its call and its audio."""

from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
import pytest
import soundfile

from telemetry.model.metrics import HEADLINE, METRICS
from telemetry.model.turns import Turn
from telemetry.store.answers import Filter
from telemetry.store.questions.explanation import ExplanationQuestion, TurnSelection
from telemetry.store.questions.turns import EDGES_MS, TurnsAnswer, TurnSearch, TurnsQuestion, band_limits_ms
from telemetry.store.reader import StoreReader
from telemetry.store.recordings.kept_call import FOLDER, KeptCall, KeptTurn, MissingAudio, file_stem, run_folder
from telemetry.store.wire import BadQuestionError, answer
from tests.unit.dashboard.scenes import MS, S, Scene, fill, turns_of

NOW = 1_800_000_000 * S
SCENE = Scene(400, NOW, invalid_share=0.05)


def value(turn: Turn) -> int | None:
    value_ns = METRICS[HEADLINE].value(turn)
    return None if value_ns is None else int(value_ns)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    fill(folder, SCENE)
    return folder


@pytest.fixture(scope="module")
def reader(store: Path) -> StoreReader:
    return StoreReader(store, wall_clock_ns=lambda: NOW)


@pytest.fixture(scope="module")
def clients() -> list[Turn]:
    return [turn for turn in turns_of(SCENE) if turn.source == "client"]


def page(reader: StoreReader, search: TurnSearch | None = None, **asked: object) -> TurnsAnswer:
    return reader.turns_page(TurnsQuestion(search=search or TurnSearch(), **asked))  # pyright: ignore[reportArgumentType]


@pytest.mark.slow
def test_the_heat_map_counts_every_measured_turn_once(reader: StoreReader, clients: list[Turn]) -> None:
    turns_page = page(reader)
    measured = [turn for turn in clients if turn.outcome != "invalid" and value(turn) is not None]
    assert (turns_page.total, turns_page.with_value) == (len(clients), len(measured))
    expected = Counter(
        (
            turn.started_unix_ns // turns_page.width_ns * turns_page.width_ns,
            sum((value(turn) or 0) >= edge * MS for edge in EDGES_MS),
        )
        for turn in measured
    )
    assert {(cell.start_unix_ns, cell.band): cell.n for cell in turns_page.cells} == expected
    assert sum(turns_page.distribution) == len(measured)
    assert len({cell.start_unix_ns for cell in turns_page.cells}) <= 60
    for cell in turns_page.cells:
        low, high = band_limits_ms(cell.band)
        assert low is None or high is None or low < high


@pytest.mark.slow
@pytest.mark.parametrize("order", ["slowest", "fastest", "newest", "oldest"])
def test_pages_of_the_table_hold_each_turn_once_in_order(reader: StoreReader, clients: list[Turn], order: str) -> None:
    first = page(reader, order=order, page_size=100)
    assert first.pages == 4
    listed = [row for number in range(4) for row in page(reader, order=order, page_size=100, page=number).turns]
    assert len({(row.trace_id, row.turn_index) for row in listed}) == len(clients)
    if order in ("slowest", "fastest"):
        known = [row.value_ns for row in listed if row.value_ns is not None]
        assert known == sorted(known, reverse=order == "slowest")
        assert all(row.value_ns is None for row in listed[len(known) :])
    else:
        began = [row.started_unix_ns for row in listed]
        assert began == sorted(began, reverse=order == "newest")
    assert page(reader, page=99).page == page(reader).pages - 1


@pytest.mark.slow
def test_search_matches_ids_utterances_outcomes_and_latencies(reader: StoreReader, clients: list[Turn]) -> None:
    trace, call = clients[17].trace_id, clients[17].call_id
    wanted: list[tuple[TurnSearch, list[Turn]]] = [
        (TurnSearch(trace), [turn for turn in clients if turn.trace_id == trace]),
        (TurnSearch(call.upper()), [turn for turn in clients if turn.call_id.startswith(call)]),
        (TurnSearch("utt-07"), [turn for turn in clients if turn.utterance_id == "utt-07"]),
        (TurnSearch(outcome="abandoned"), [turn for turn in clients if turn.outcome == "abandoned"]),
        (TurnSearch(model="responder-1"), clients),
        (TurnSearch(model="nobody"), []),
        (
            TurnSearch(from_ns=600 * MS, below_ns=700 * MS),
            [turn for turn in clients if 600 * MS <= (value(turn) or 0) < 700 * MS],
        ),
        (TurnSearch("' OR 1=1 --"), []),
        (TurnSearch("%"), []),
    ]
    for search, expected in wanted:
        assert page(reader, search).total == len(expected), search


def test_a_run_that_is_not_there_is_empty(reader: StoreReader) -> None:
    turns_page = page(reader, filter=Filter(run_id="gone"))
    assert (turns_page.run, turns_page.total, turns_page.cells) == (None, 0, ())


@pytest.mark.parametrize(
    "asked", [{"order": "random"}, {"page_size": 101}, {"page": -1}, {"page": 10**6}, {"metric": "speed"}]
)
def test_invalid_question_over_network_is_refused(reader: StoreReader, asked: dict[str, object]) -> None:
    with pytest.raises(BadQuestionError):
        answer(reader, "turns_page", msgspec.json.encode({"asked": asked}))


def keep_audio(store: Path, turn: Turn) -> Path:
    """Ten seconds of a call, silent but for the last of them."""
    rate, folder = 8_000, run_folder(store / FOLDER, turn.run_id)
    folder.mkdir(parents=True, exist_ok=True)
    stem = file_stem(turn.call_id, NOW, NOW + 3_600 * S)
    samples = np.zeros((10 * rate, 2), np.int16)
    samples[2 * rate : 3 * rate, 1] = 16_384
    soundfile.write(folder / f"{stem}.flac", samples, rate)
    call = KeptCall(
        run_id=turn.run_id,
        call_id=turn.call_id,
        trace_id=turn.trace_id,
        created_unix_ns=NOW,
        keep_until_unix_ns=NOW + 3_600 * S,
        turns=(KeptTurn(turn_index=turn.turn_index, started_perf_ns=0, ended_perf_ns=1, asked="pass the Salt"),),
        rate_hz=rate,
        samples=10 * rate,
        began_perf_ns=turn.started_perf_ns,
        missing=(MissingAudio(4 * rate, 5 * rate, "the disk was too slow"),),
    )
    (folder / f"{stem}.json").write_bytes(msgspec.json.encode(call))
    return folder / f"{stem}.flac"


@pytest.mark.slow
def test_a_turn_comes_with_its_call_its_audio_and_its_words(tmp_path: Path) -> None:
    store = tmp_path
    fill(store, Scene(8, NOW))
    turn = next(turn for turn in turns_of(Scene(8, NOW)) if turn.source == "client" and turn.turn_index == 1)
    audio = keep_audio(store, turn)
    with StoreReader(store, wall_clock_ns=lambda: NOW) as reader:
        view = reader.turn_view(turn.trace_id, turn.turn_index)
        assert [entry.turn_index for entry in view.call] == [0, 1, 2, 3]
        assert view.call[0].start_ns <= view.call[1].start_ns
        kept = view.excerpt
        assert kept is not None
        assert (kept.fault, kept.turn is not None and kept.turn.asked) == (None, "pass the Salt")
        assert turn.speech_start_perf_ns is not None
        assert turn.reply_end_perf_ns is not None
        assert kept.first_perf_ns == max(turn.started_perf_ns, turn.speech_start_perf_ns - S // 2)
        assert abs(kept.end_perf_ns - min(turn.reply_end_perf_ns + S // 2, turn.started_perf_ns + 10 * S)) < 2 * MS
        # The loud second of the service is where it is in the file.
        caller, service = kept.peaks
        assert max(caller) == 0
        loud = [at for at, peak in enumerate(service) if peak > 0.4]
        length = kept.end_perf_ns - kept.first_perf_ns
        begins = kept.first_perf_ns + loud[0] * length // len(service)
        assert abs(begins - (turn.started_perf_ns + 2 * S)) <= 2 * length // len(service)
        # The words are found by a search, in whatever case.
        assert page(reader, TurnSearch("the salt")).total == 1
        assert page(reader, TurnSearch("the salt")).words.calls == 1
        for damage in (b"", audio.read_bytes()[: audio.stat().st_size // 2], b"RIFF" + bytes(100)):
            audio.write_bytes(damage)
            kept = reader.turn_view(turn.trace_id, turn.turn_index).excerpt
            assert kept is not None
            assert kept.fault is not None
            assert kept.turn is not None
        audio.unlink()
        kept = reader.turn_view(turn.trace_id, turn.turn_index).excerpt
        assert kept is not None
        assert "is missing" in (kept.fault or "")


def test_turn_without_recording_or_missing_turn_has_no_audio(reader: StoreReader) -> None:
    assert reader.turn_view("ab" * 16, 3).client is None
    row = page(reader).turns[0]
    assert reader.turn_view(row.trace_id, row.turn_index).excerpt is None


@pytest.mark.slow
def test_searched_turns_are_explained_against_rest_of_filter(tmp_path: Path) -> None:
    """The question about explanations, with its own independent test, answers the same for this selection."""
    scene = Scene(400, NOW, ended=True)
    fill(tmp_path, scene)
    measured = [turn for turn in turns_of(scene) if turn.outcome != "invalid" and value(turn) is not None]
    began = sorted(turn.started_unix_ns for turn in measured)
    since, until, low, high = began[100], began[300], 500 * MS, 700 * MS
    picked = [turn for turn in measured if since <= turn.started_unix_ns < until and low <= (value(turn) or 0) < high]
    with StoreReader(tmp_path, wall_clock_ns=lambda: NOW) as reader:
        assert page(reader).explanation is None
        search = TurnSearch(from_ns=low, below_ns=high, since_unix_ns=since, until_unix_ns=until)
        explanation = page(reader, search).explanation
        selection = TurnSelection(None, HEADLINE, low, high, since, until)
        asked = reader.explanation(ExplanationQuestion(selection, Filter(run_id=scene.run_id)))
        named = page(reader, TurnSearch(text="utt-07")).explanation
    assert explanation is not None
    assert named is not None
    assert (explanation.selected, explanation.dimensions) == (len(picked), asked.dimensions)
    assert explanation.others == sum(turn.outcome != "invalid" for turn in turns_of(scene)) - len(picked)
    assert named.selected == sum(turn.utterance_id == "utt-07" for turn in turns_of(scene) if turn.outcome != "invalid")


@pytest.mark.slow
def test_a_run_that_claims_nothing_explains_nothing(tmp_path: Path) -> None:
    fill(tmp_path, Scene(400, NOW - 3_600 * 10**9))  # its processes never announced their end
    with StoreReader(tmp_path, wall_clock_ns=lambda: NOW) as reader:
        assert page(reader, TurnSearch(text="utt-07")).explanation is None

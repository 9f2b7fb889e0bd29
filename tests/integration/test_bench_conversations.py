"""Callers and endpoint in C hold real conversations, with each other and with ours: both sides count the same turns."""

from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.bench import native
from tests.benchmarks.bench.cases import CONTROL, OURS
from tests.benchmarks.bench.conversations.figures import ConversationFigures, TruthColumn, TurnColumn, TurnState
from tests.benchmarks.bench.conversations.rounds import ConversationBench
from tests.benchmarks.bench.native import Native
from tests.benchmarks.bench.processes import Cores, PartFailedError
from tests.benchmarks.bench.senders import BenchSetup
from tests.programs import needed

CALLERS = 6


@pytest.fixture(scope="module")
def conversation_bench(tmp_path_factory: pytest.TempPathFactory) -> ConversationBench:
    needed("cc")
    folder = tmp_path_factory.mktemp("conversations")
    setup = BenchSetup(folder, native.build(folder), Cores(None, None), 1.0, 5.0, None)
    setup.prepare()
    bench = ConversationBench(setup, "plain")
    bench.prepare()
    return bench


def agreed(bench: ConversationBench, found: ConversationFigures) -> None:
    """What callers recorded, the endpoint sent; and of what it sent in the window, nothing is missing."""
    folder = bench.setup.folder
    turns = np.fromfile(folder / "turns", np.int64).reshape(-1, len(TurnColumn))
    truths = np.fromfile(folder / "truth", np.int64).reshape(-1, len(TruthColumn))
    answered = turns[turns[:, TurnColumn.STATE] != TurnState.UNANSWERED]
    sent = {(row[TruthColumn.CALLER], row[TruthColumn.TURN]) for row in truths.tolist()}
    assert {(row[TurnColumn.CALLER], row[TurnColumn.TURN]) for row in answered.tolist()} <= sent
    assert found.missing == 0
    assert found.unanswered == 0
    assert 0 < found.turns <= len(turns)
    for caller in range(CALLERS):  # nobody hears an answer twice, or one that is not there
        mine = sorted(row[TurnColumn.TURN] for row in answered.tolist() if row[TurnColumn.CALLER] == caller)
        assert mine == list(range(len(mine)))
    ordered = [TruthColumn.SPEECH_END, TruthColumn.FIRST_CHUNK, TruthColumn.FIRST_AUDIO, TruthColumn.REPLY_END]
    assert (np.diff(truths[:, ordered], axis=1) >= 0).all()
    assert found.error.turns + found.error.unsure + found.invalid == found.turns
    assert found.sent > 0
    assert found.cpu_us_per_caller_s > 0


@pytest.mark.nightly
def test_callers_in_c_and_the_endpoint_count_the_same_turns(conversation_bench: ConversationBench) -> None:
    found = conversation_bench.measure(CONTROL, CALLERS)
    agreed(conversation_bench, found)
    assert found.widths.turns == 0, "callers in C state no interval"


@pytest.mark.nightly
def test_our_callers_and_the_endpoint_count_the_same_turns(conversation_bench: ConversationBench) -> None:
    found = conversation_bench.measure(OURS, CALLERS)
    agreed(conversation_bench, found)
    assert found.widths.turns == found.error.turns, "every valid turn states an interval"


@pytest.mark.nightly
def test_a_caller_that_fails_leaves_a_sentence_and_no_figures(
    conversation_bench: ConversationBench, tmp_path: Path
) -> None:
    refuses = tmp_path / "caller"
    refuses.write_text("#!/bin/sh\necho no speech >&2\nexit 3\n")
    refuses.chmod(0o755)
    setup = conversation_bench.setup
    endpoint = setup.native.conversation_endpoint
    broken = Native(None, None, None, (), str(refuses), endpoint)
    bench = ConversationBench(
        BenchSetup(setup.folder, broken, setup.cores, setup.warm_up_s, setup.window_s, None), "plain"
    )
    with pytest.raises(PartFailedError, match="control callers ended with code 3: no speech"):
        bench.measure(CONTROL, CALLERS)


def test_without_a_compiler_there_are_no_conversations(tmp_path: Path) -> None:
    setup = BenchSetup(tmp_path, Native(None, None, None, ()), Cores(None, None), 1.0, 1.0, None)
    with pytest.raises(PartFailedError, match="not compiled"):
        ConversationBench(setup, "plain").prepare()

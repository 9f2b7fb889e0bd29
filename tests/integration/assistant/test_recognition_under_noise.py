"""The curve of hearing: noise must hurt a real recognizer as it hurts people, and the store must show it."""

from pathlib import Path

import msgspec
import pytest

from telemetry.model.turns import Turn
from telemetry.store.reader import StoreReader
from telemetry.store.schema import Batch
from telemetry.store.writer import StoreWriter
from tests.integration.calling import Callers, assistant

pytestmark = pytest.mark.nightly

LEVELS_DB = (None, 20.0, 0.0)
REAL_EARS = ("--asr", "pocketsphinx", "--asr-workers", "2", "--cache", "off", "--llm-ttft", "constant:5ms")


def test_word_errors_rise_as_noise_does(tmp_path: Path) -> None:
    turns: list[Turn] = []
    with assistant(tmp_path / "logs", *REAL_EARS) as url:
        for snr_db in LEVELS_DB:
            noise = None if snr_db is None else "white"
            callers = Callers(
                url, 2, turns_per_call=2, length="short", noise=noise, snr_db=snr_db, manual_turns=True, reply_s=120.0
            )
            turns += [turn for call in callers.call() for turn in call]
    with StoreWriter(tmp_path / "store") as writer:
        # A turn is known by its span, which these did not travel in.
        known = [msgspec.structs.replace(t, trace_id=f"{i:032x}", span_id=f"{i:016x}") for i, t in enumerate(turns, 1)]
        writer.append(Batch(turns=known))
    with StoreReader(tmp_path / "store") as reader:
        rows = reader.summary().wer_by_condition
    rates = {row.snr_asked_db: row.wer for row in rows}
    shown = [f"{'clean' if snr is None else f'{snr:g} dB'}: {rate:.0%}" for snr, rate in rates.items()]
    print("\nword error rate over SNR: " + ", ".join(shown))
    assert [row.snr_asked_db for row in rows] == list(LEVELS_DB), [turn.outcome_reason for turn in turns]
    assert rates[None] < 0.7, "clean speech is understood for the most part"
    assert rates[0.0] > rates[None] + 0.2, "at 0 dB next to nothing is"
    assert rates[20.0] <= rates[0.0] + 0.05

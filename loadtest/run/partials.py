"""`voiceprobe protocol partials`: the transcripts of an earlier run as a file, to be replayed into a language model."""

from pathlib import Path

from rich.console import Console

from corpora.output_paths import unwritable
from loadtest.errors import OutputError, UsageError
from loadtest.exit_codes import ExitCode
from loadtest.protocols.stages.recorded_partials import RecordedUtterance, written
from loadtest.run.report import choose_run, opened_store
from telemetry.model.turns import Turn
from telemetry.store.answers import Filter

_TURNS_AT_ONCE = 10_000
_NS_PER_MS = 1_000_000


def write_partials(store: str, out: Path, console: Console, run_id: str | None = None) -> ExitCode:
    """Write what the recognizer of a run sent of each utterance: of its first turn that has a final transcript.

    Raises UsageError, StoreError, OutputError.
    """
    if fault := unwritable(out):
        raise UsageError(fault)
    found: dict[str, RecordedUtterance] = {}
    with opened_store(store) as reader:
        chosen = choose_run(reader, run_id, store).run_id
        offset = 0
        while turns := reader.turns(Filter(run_id=chosen), _TURNS_AT_ONCE, offset, source="client"):
            for recorded in filter(None, map(_recorded, turns)):
                found.setdefault(recorded.utterance, recorded)
            offset += len(turns)
    if not found:
        raise UsageError(
            f"the run {chosen} has no transcripts: run it with --keep-transcripts, over a wire that has them"
        )
    try:
        out.write_bytes(b"".join(map(written, found.values())))
    except OSError as error:
        raise OutputError(f"{out} cannot be written: {error.strerror}; give another file") from error
    partials = sum(len(recorded.partials) for recorded in found.values())
    console.print(f"{out}: {len(found)} utterances of run {chosen}, {partials} partial transcripts", soft_wrap=True)
    return ExitCode.OK


def _recorded(turn: Turn) -> RecordedUtterance | None:
    start, final = turn.speech_start_perf_ns, turn.asr_final_perf_ns
    if turn.utterance_id is None or start is None or final is None or not turn.transcript_pii:
        return None
    heard = zip(turn.asr_partials_after_ns, turn.asr_partials_pii, strict=True)
    partials = tuple((after_ns / _NS_PER_MS, text) for after_ns, text in heard)
    return RecordedUtterance(turn.utterance_id, partials, ((final - start) / _NS_PER_MS, turn.transcript_pii))

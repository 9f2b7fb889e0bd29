"""What processes left in their write-ahead logs, brought to the collector after they have ended."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, TraceFlags

from telemetry.export.spool import SpoolRecord, export_request
from telemetry.export.wal import ForeignLogError, LogFile, LogRecord, logs_in
from telemetry.model import semconv
from telemetry.model.metrics import TIMESTAMPS, timestamp
from telemetry.model.turn_spans import turn_attributes
from telemetry.model.turns import Turn

_logger = logging.getLogger(__name__)

_BATCH: Final = 64
_decoder = msgspec.json.Decoder(Turn)
_MAX_UNIX_NS: Final = 2**64 - 1


@dataclass(slots=True)
class ReplayResult:
    """What `replay` did: `left` records were not taken and stay on disk.

    Records, spans and turns are those of export requests, whose turns are counted as `replay` was given to count them.
    Last turns of processes that were killed are counted by logs: `turn_logs` held some, and `left_turn_logs` of these
    stay. `foreign` logs were written by another version, and stay, too.
    """

    records: int = 0
    spans: int = 0
    left: int = 0
    turns: int = 0
    left_spans: int = 0
    left_turns: int = 0
    turn_logs: int = 0
    left_turn_logs: int = 0
    foreign: tuple[Path, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether everything that this version can read was taken."""
        return not (self.left or self.left_turn_logs)

    def add(self, request: SpoolRecord, turns: int, *, is_taken: bool) -> None:
        """Count a request of the spool."""
        spans = request.items if request.signal == "traces" else 0
        if is_taken:
            self.records += 1
            self.spans += spans
            self.turns += turns
        else:
            self.left += 1
            self.left_spans += spans
            self.left_turns += turns


def replay(
    directory: Path, sink: Callable[[SpoolRecord], bool], turns_in: Callable[[SpoolRecord], int] = lambda _: 0
) -> ReplayResult:
    """Hand everything in the logs of `directory` to `sink`, oldest first; each log is deleted once `sink` returned True
    for all of it. A turn is handed over as the span that it was: receivers know it by that, and once more does no harm.

    Call it when the processes that write there have ended. A record that is not taken ends its log and stays on disk
    with all after it. `turns_in` counts the turns of a record. A directory that does not exist holds nothing, and a log
    of another version stays as it is, with a warning. Raises OSError, and whatever `sink` raises (the record stays).
    """
    result = ReplayResult()
    for path in logs_in(directory):
        try:
            with closing(LogFile.open(path)) as log:
                if _hand_over(log, sink, turns_in, result):
                    path.unlink()
        except ForeignLogError as error:
            _logger.warning("%s; it stays where it is", error)
            result.foreign += (path,)
    return result


def _hand_over(
    log: LogFile, sink: Callable[[SpoolRecord], bool], turns_in: Callable[[SpoolRecord], int], result: ReplayResult
) -> bool:
    """Hand over one log; whether all of it was taken."""
    is_taken, holds_turns = True, False
    for request, until, is_of_turns in _requests(log):
        holds_turns = holds_turns or is_of_turns
        if is_taken and (is_taken := sink(request)):
            log.take(until)
        if not is_of_turns:
            result.add(request, turns_in(request), is_taken=is_taken)
    result.turn_logs += holds_turns
    result.left_turn_logs += holds_turns and not is_taken
    return is_taken


def _requests(log: LogFile) -> Iterator[tuple[SpoolRecord, int, bool]]:
    """The records of a log as export requests, with the offset behind each and whether it is made of turns: the turns
    of a log are put together in batches."""
    turns: list[Turn] = []
    until = log.taken
    for record, behind in log.pending():
        request = export_request(record)
        if turns and (request is not None or len(turns) == _BATCH):
            yield _request_of(turns), until, True
            turns = []
        if request is None:
            turns.append(_turn(record, log.path))
        else:
            yield request, behind, False
        until = behind
    if turns:
        yield _request_of(turns), until, True


def _turn(record: LogRecord, path: Path) -> Turn:
    try:
        return _decoder.decode(record.payload)
    except msgspec.MsgspecError as error:
        raise ForeignLogError(f"{path} holds a turn that this version of voiceprobe cannot read ({error})") from None


def _request_of(turns: Sequence[Turn]) -> SpoolRecord:
    spans = [_span(turn) for turn in turns]
    return SpoolRecord("traces", len(spans), encode_spans(spans).SerializeToString())


def _span(turn: Turn) -> ReadableSpan:
    known = [at for name in TIMESTAMPS if (at := timestamp(turn, name)) is not None]
    lasted_ns = max(0, max(known, default=turn.started_perf_ns) - turn.started_perf_ns)
    began = min(max(turn.started_unix_ns, 0), _MAX_UNIX_NS)
    identity = SpanContext(
        int(turn.trace_id or "0", 16), int(turn.span_id or "0", 16), False, TraceFlags(TraceFlags.SAMPLED)
    )
    return ReadableSpan(
        semconv.SPAN_TURN,
        context=identity,
        resource=Resource({"service.name": "voiceprobe-caller", "service.instance.id": turn.process_id}),
        instrumentation_scope=InstrumentationScope(semconv.SCOPE),
        attributes=turn_attributes(turn),
        start_time=began,
        end_time=min(began + lasted_ns, _MAX_UNIX_NS),
    )

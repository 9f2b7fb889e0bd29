"""The audio and the texts of a worker's calls, where a run was asked to keep them."""

from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from loadtest.conversation.exchange import Exchange
from loadtest.conversation.plan import CallPlan
from loadtest.engine.call import Call
from loadtest.engine.call_audio.keeper import CallAudioKeeper, CallAudioTap
from loadtest.engine.call_audio.messages import CallOpened
from loadtest.engine.engine import Engine
from loadtest.errors import UsageError
from loadtest.scenario.settings import SwarmSettings
from loadtest.speech.preparation import PreparedCorpus
from telemetry.model.foreign_text import one_line
from telemetry.model.turns import LONGEST_TRANSCRIPT_CHARS, Turn
from telemetry.store.recordings.kept_call import KeptTurn, PartialText

MOST_PARTIALS: Final = 500


class KeptCalls:
    """Gives each call a tap, and closes it when the call has ended."""

    def __init__(self, settings: SwarmSettings, prepared: PreparedCorpus, engine: Engine, run_id: str) -> None:
        """Raises UsageError where nothing names a folder to keep them in, or it cannot be written."""
        if settings.recordings is None:
            raise UsageError(
                "--keep-audio and --keep-text require --recordings under plain Locust: give the folder to keep calls in"
            )
        self._settings, self._run_id, self._engine = settings, run_id, engine
        self._rate_hz = prepared.clips[0].rendered.rate_hz
        self._frame_samples = prepared.clips[0].frame_samples
        folder = Path(settings.recordings)
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._keeper = CallAudioKeeper(folder)
        except OSError as error:
            raise UsageError(
                f"--recordings {folder} cannot be written: {error.strerror}; give another folder"
            ) from None
        engine.keeper = self._keeper
        for number, line in enumerate(prepared.lines):
            if line.background_pcm is not None:
                self._keeper.background(number, self._rate_hz, line.background_pcm)

    def tap(self, plan: CallPlan, trace_id: str) -> CallAudioTap:
        """The tap of a new call."""
        opened = CallOpened(
            run_id=self._run_id.encode("utf-8", "backslashreplace").decode(),
            call_id=plan.call_id,
            trace_id=trace_id,
            rate_hz=self._rate_hz,
            frame_samples=self._frame_samples,
            line=plan.line,
            background_first=plan.background_first,
            keep_for_ns=self._settings.keep_for.ns,
            keeps_audio=self._settings.keep_audio,
        )
        return self._keeper.tap(opened)

    def began(self, call: Call, tap: CallAudioTap) -> None:
        """A call is about to connect: what it sends and hears goes to its tap."""
        if tap.keeps_audio:
            call.track.tap = call.playout.tap = tap

    def recorded(self, tap: CallAudioTap, exchange: Exchange, turn: Turn) -> None:
        """A turn has been recorded."""
        tap.recorded(_kept_turn(exchange, turn.turn_index, keep_text=self._settings.keep_text))

    def close(self) -> str | None:
        """Write everything; a sentence about what is missing, if anything is."""
        self._engine.keeper = None
        return self._keeper.close()


def _kept_turn(exchange: Exchange, turn_index: int, *, keep_text: bool) -> KeptTurn:
    """A turn, with its texts where they are kept: what was said, and how the wire shows it understood and answered."""
    turn = KeptTurn(
        turn_index=turn_index,
        started_perf_ns=exchange.began_perf_ns,
        ended_perf_ns=exchange.ended_perf_ns or exchange.began_perf_ns,
    )
    if not keep_text:
        return turn
    timeline, clip, answer = exchange.timeline, exchange.planned.clip, exchange.timeline.nearest
    since = timeline.speech_start_perf_ns
    partials = () if since is None else zip(timeline.partials_perf_ns, timeline.partial_texts, strict=False)
    return msgspec.structs.replace(
        turn,
        asked=None if clip is None else clip.rendered.utterance.text,
        partials=tuple(PartialText(at - (since or 0), one_line(text)) for at, text in islice(partials, MOST_PARTIALS)),
        transcript=one_line(timeline.transcript, LONGEST_TRANSCRIPT_CHARS) if timeline.finals else None,
        reply=one_line(answer.text, LONGEST_TRANSCRIPT_CHARS) if answer is not None and answer.text else None,
    )

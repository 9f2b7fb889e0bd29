"""Says one utterance to an endpoint over a declared wire and shows live what is recognized of its answers."""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from rich.console import Console

from loadtest.conversation.exchange import Exchange
from loadtest.conversation.plan import SECOND_NS, Limits
from loadtest.engine.engine import Engine
from loadtest.exit_codes import ExitCode
from loadtest.protocols.base import CallerOptions, CallerProtocol, EventKind, Incoming, OpenRequest, VoiceEvent
from loadtest.protocols.declared.caller import declared, read_spec
from loadtest.protocols.declared.recognition import KINDS
from loadtest.protocols.declared.spec import Spec
from loadtest.scenario.behavior import CallerBehavior, parse_think
from loadtest.scenario.settings import SwarmSettings
from loadtest.speech.preparation import prepare
from loadtest.swarm.planner import CallPlanner
from telemetry.model.foreign_text import one_line

CORPUS: Final = "voiceprobe-en"
_TEXT_CHARS: Final = 70
_NOT_SHOWN: Final = frozenset({EventKind.OTHER})


@dataclass(frozen=True, slots=True)
class TrialRequest:
    """The request for a trial: the endpoint, the file that describes its wire, and how long to wait for a reply."""

    url: str
    spec: Path
    model: str | None = None
    wait_s: float = 10.0
    header: tuple[str, ...] = ()


@dataclass
class Sightings:
    """The events of one call: printed as it comes, audio once for each run of it."""

    console: Console
    clean: Any  # SecretRedactor.text
    perf_ns: Any  # Clocks.perf_ns
    began_perf_ns: int = 0
    recognized: Counter[EventKind] = field(default_factory=Counter[EventKind])
    unknown: Counter[str] = field(default_factory=Counter[str])
    _audio_ns: int = 0
    _audio_messages: int = 0

    def note(self, events: Sequence[VoiceEvent]) -> None:
        """Show the events of one message."""
        for event in events:
            self.recognized[event.kind] += 1
            if event.kind is EventKind.AUDIO and event.audio and event.rate_hz:
                if not self._audio_messages:
                    self.line("audio", f"{event.raw_type}: the first of it, at {event.rate_hz} Hz")
                self._audio_messages += 1
                self._audio_ns += len(event.audio) // 2 * SECOND_NS // event.rate_hz
                continue
            if event.kind in _NOT_SHOWN:
                continue
            self.end_audio()
            if event.kind is EventKind.UNKNOWN:
                self.unknown[event.raw_type] += 1
            text = event.text if event.text is not None else event.message
            shown = event.raw_type if text is None else f"{event.raw_type}: {text[:_TEXT_CHARS]!r}"
            self.line("NOT RECOGNIZED" if event.kind is EventKind.UNKNOWN else event.kind.value, shown)

    def end_audio(self) -> None:
        """Show how much audio came without anything else between."""
        if self._audio_messages > 1:
            self.line("audio", f"{self._audio_ns / 1e9:.2f} s in {self._audio_messages} messages")
        self._audio_messages, self._audio_ns = 0, 0

    def line(self, name: str, text: str) -> None:
        """Show one line with the time since the call began."""
        elapsed_s = (self.perf_ns() - self.began_perf_ns) / 1e9
        safe = one_line(self.clean(text))
        self.console.print(f"{elapsed_s:8.3f} s  {name:<18} {safe}", markup=False, highlight=False)


class WatchedCaller:
    """A caller's protocol that shows what it recognizes. Everything else is the protocol's own."""

    def __init__(self, caller: CallerProtocol, sightings: Sightings) -> None:
        self._caller = caller
        self._sightings = sightings

    def __getattr__(self, name: str) -> Any:
        return getattr(self._caller, name)

    def receive(self, message: Incoming) -> Sequence[VoiceEvent]:
        """Decode one message, and show what it means."""
        events = self._caller.receive(message)
        self._sightings.note(events)
        return events

    def end_turn(self) -> Sequence[Any]:
        """End the turn, and show that it has ended."""
        self._sightings.line("caller", "ends its turn")
        return self._caller.end_turn()


def carry_out(request: TrialRequest, console: Console) -> ExitCode:
    """Make one call of one turn. Raises UsageError for a spec or an address that cannot be used.

    The exit code is UNREACHABLE where no session opened, and UNDECIDED where no reply was heard.
    """
    spec = read_spec(os.fspath(request.spec))
    settings = SwarmSettings(host=request.url, corpus=CORPUS, length="short", clips=1, header=request.header)
    options = CallerOptions(
        spec.turn.control,
        model=request.model,
        token=settings.token,
        headers=settings.headers,
        settings={"spec": os.fspath(request.spec)},
    )
    caller = declared(options)
    prepared = prepare(settings, caller)
    planner = CallPlanner(
        prepared.lines,
        behavior=CallerBehavior(turns=1, think=parse_think(0.2)),
        conversations=(),
        limits=Limits(reply_ns=round(request.wait_s * SECOND_NS)),
        manual_turns=spec.turn.control == "manual",
        seed=1,
    )
    engine = Engine(
        frame_ns=caller.capabilities.frame_ms * 1_000_000,
        onset_preset="rms-10ms",
        tls=settings.tls,
        mask=settings.mask,
    )
    sightings = Sightings(console, settings.redactor.text, engine.clocks.perf_ns, engine.clocks.perf_ns())
    watched = cast(CallerProtocol, WatchedCaller(caller, sightings))
    text = prepared.clips[0].rendered.utterance.text
    sightings.line("caller", f"says {text!r}")
    try:
        ended = [
            exchange
            for _, exchange in engine.call(planner.plan("trial"), watched, _opening(caller, settings.target_url))
        ]
    finally:
        engine.close()
    sightings.end_audio()
    return _conclude(ended[0], spec, sightings)


def _opening(caller: CallerProtocol, url: str) -> OpenRequest:
    trace_id, span_id = os.urandom(16).hex(), os.urandom(8).hex()
    return caller.upgrade(url, f"00-{trace_id}-{span_id}-01")


def _conclude(exchange: Exchange, spec: Spec, sightings: Sightings) -> ExitCode:
    reason = "" if exchange.reason is None else f": {exchange.reason}"
    sightings.line("turn", f"{exchange.outcome}{reason}")
    meanings = {rule.is_: KINDS[rule.is_] for rule in spec.events if rule.is_ != "ignored"}
    missing = [meaning for meaning, kind in meanings.items() if not sightings.recognized[kind]]
    print_ = sightings.console.print
    if missing:
        print_(f"Never came, though the spec names it: {', '.join(missing)}.", markup=False, highlight=False)
    if sightings.unknown:
        counts = ", ".join(f"{one_line(sightings.clean(name))} ({n})" for name, n in sightings.unknown.most_common())
        print_(f"Not recognized: {counts}.", markup=False, highlight=False)
    if exchange.outcome == "ok":
        return ExitCode.OK
    reached = exchange.timeline.speech_start_perf_ns is not None
    return ExitCode.UNDECIDED if reached else ExitCode.UNREACHABLE

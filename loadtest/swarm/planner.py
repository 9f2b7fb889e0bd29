"""The plan of each call, decided by the seed alone: a run can be repeated, and two cohorts can hear the same audio.

A call is planned from the seed and its number in the run. Nothing depends on what earlier calls did, or when; and what
one kind of behavior draws is not drawn from another's source: the same seed gives the same words with barge-ins and
without. Which variant of a clip is said (its noise, its losses) is drawn for each turn; all of them are said before one
is said again.
"""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from corpora.manifest.conversations import ScriptedConversation
from corpora.rendering.mix import largest_remainder
from loadtest.conversation.plan import SECOND_NS, Backchannel, CallPlan, Limits, PlannedTurn, ReplyPoint
from loadtest.conversation.prepared_clip import PreparedClip
from loadtest.distributions import random_source
from loadtest.scenario.arrivals import WHOLE, Share
from loadtest.scenario.behavior import INTO_REPLY, CallerBehavior
from loadtest.speech.preparation import PreparedLine

# A sign of attention is short: the shortest clips there are, if they are no longer than this.
BACKCHANNEL_NS: Final = 1_500_000_000
BACKCHANNEL_CLIPS: Final = 3
LINE_DECK: Final = 100


class CallPlanner:
    """Plans calls one after the other. Clips are dealt like cards: all are said before one is said again."""

    def __init__(
        self,
        lines: Sequence[PreparedLine],
        *,
        behavior: CallerBehavior,
        limits: Limits,
        manual_turns: bool,
        seed: int,
        conversations: Sequence[ScriptedConversation] = (),
        share: Share = WHOLE,
        calls: int | None = None,
    ) -> None:
        """Plan the `share` of the one sequence that the seed gives, among the first `calls` calls. Every line
        carries the same clips in the same order."""
        self._lines = tuple(_Line(line) for line in lines)
        self._line_shares = {str(number): line.share for number, line in enumerate(lines)}
        self._conversations = tuple(conversations) if behavior.conversations else ()
        self._behavior = behavior
        self._limits = limits
        self._manual_turns = manual_turns
        self._scope = (seed, share.late)
        self._random = random_source(*self._scope, "clips")
        self._deck: list[int] = []
        self._round = -1  # how often the deck has been dealt out
        self._share = share
        self._left = None if calls is None else share.count(calls)
        self._number = 0  # of the next call in the sequence

    @property
    def exhausted(self) -> bool:
        """Whether all calls that were asked for have been planned."""
        return self._left == 0

    def plan(self, call_id: str) -> CallPlan:
        """The next call of this share. Raises RuntimeError when none is left."""
        if self.exhausted:
            raise RuntimeError("all calls have been planned")
        if self._left is not None:
            self._left -= 1
        for _ in range(self._share.next_from(self._number) - self._number):
            self._deal()  # another process makes this call; the clips that it takes are taken here too
            self._number += 1
        number = self._line_number(self._number)
        line = self._lines[number]
        clips = [line.variants[self._variant(line, *card)][card[0]] for card in self._deal()]
        turns = self._turns(line, clips, self._number)
        first = self._source(self._number, "background").randrange(len(line.background))
        # Begun anywhere: no two callers hear the same noise at once.
        background = line.background[first:] + line.background[:first]
        pause = self._behavior.call_pause
        pause_ns = 0 if pause is None else pause.draw_ns(self._source(self._number, "call pause"))
        self._number += 1
        return CallPlan(
            call_id,
            turns,
            background,
            self._limits,
            self._manual_turns,
            pause_after_ns=pause_ns,
            line=number,
            background_first=first,
        )

    def _line_number(self, call: int) -> int:
        """A caller has one line for the whole call. Of each hundred calls, every line has its share exactly."""
        if len(self._lines) == 1:
            return 0
        counts = largest_remainder(self._line_shares, LINE_DECK)
        deck = [int(number) for number, many in counts.items() for _ in range(many)]
        self._source("lines", call // LINE_DECK).shuffle(deck)
        return deck[call % LINE_DECK]

    def _deal(self) -> list[tuple[int, int]]:
        """The clips of one call by number, also where it will leave some unsaid: the same over whichever line. With how
        often each was dealt before."""
        dealt: list[tuple[int, int]] = []
        for _ in range(self._behavior.turns):
            if not self._deck:
                self._deck = list(range(len(self._lines[0].variants[0])))
                self._random.shuffle(self._deck)
                self._round += 1
            dealt.append((self._deck.pop(), self._round))
        return dealt

    def _variant(self, line: "_Line", clip: int, times: int) -> int:
        """The variant in which a clip is said that was dealt so many times before."""
        count = len(line.variants)
        if count == 1:
            return 0
        order = list(range(count))
        self._source("variants", clip, times // count).shuffle(order)
        return order[times % count]

    def _turns(self, line: "_Line", clips: list[PreparedClip], call: int) -> tuple[PlannedTurn, ...]:
        if self._conversations:
            chosen = self._source(call, "conversation").choice(self._conversations)
            turns = [self._scripted(line, chosen, position, call) for position in range(len(chosen.turns))]
        else:
            turns = [self._free(clip, position, call) for position, clip in enumerate(clips)]
        return tuple(self._with_backchannel(line, turns, position, call) for position in range(len(turns)))

    def _scripted(self, line: "_Line", conversation: ScriptedConversation, position: int, call: int) -> PlannedTurn:
        """A turn as its script has it; what the script leaves open is drawn."""
        script = conversation.turns[position]
        after_s, think_s = script.barge_in_after_s, script.think_s
        return PlannedTurn(
            self._drawn(line, script.utterance, call, position, "variant"),
            self._think_ns(call, position) if think_s is None else round(think_s * SECOND_NS),
            self._patience_ns(call, position),
            barge_in=None if after_s is None else ReplyPoint(after_ns=round(after_s * SECOND_NS)),
            conversation=conversation.id,
            expected_intent=script.intent,
        )

    def _free(self, clip: PreparedClip, position: int, call: int) -> PlannedTurn:
        think_ns = self._think_ns(call, position)
        if self._is_silent(call, position):
            silence_ns = self._behavior.silence_for.draw_ns(self._source(call, position, "silence for"))
            return PlannedTurn(None, think_ns, None, silence_ns=silence_ns)
        # Neither the first turn nor one after a silence has a reply before it.
        answered = position > 0 and not self._is_silent(call, position - 1)
        barge_in = self._barge_in(call, position) if answered else None
        return PlannedTurn(clip, think_ns, self._patience_ns(call, position), barge_in=barge_in)

    def _is_silent(self, call: int, position: int) -> bool:
        return self._source(call, position, "silence").random() < self._behavior.silence

    def _barge_in(self, call: int, position: int) -> ReplyPoint | None:
        source = self._source(call, position, "barge-in")
        drawn = source.random()
        for barge_in in self._behavior.barge_in:
            if drawn < barge_in.share:
                return barge_in.after.draw(source)
            drawn -= barge_in.share
        return None

    def _with_backchannel(self, line: "_Line", turns: list[PlannedTurn], position: int, call: int) -> PlannedTurn:
        """The turn, perhaps with a sign of attention said into its reply, unless that will be interrupted."""
        turn = turns[position]
        following = turns[position + 1] if position + 1 < len(turns) else None
        interrupted = following is not None and following.barge_in is not None
        if turn.clip is None or interrupted or not line.asides:
            return turn
        source = self._source(call, position, "backchannel")
        if source.random() >= self._behavior.talk_over:
            return turn
        name, point = source.choice(line.asides), INTO_REPLY.draw(source)
        clip = self._drawn(line, name, call, position, "backchannel variant")
        return replace(turn, backchannel=Backchannel(clip, point))

    def _drawn(self, line: "_Line", utterance: str, *scope: int | str) -> PreparedClip:
        """One of the variants of an utterance."""
        return line.by_id[utterance][self._source(*scope).randrange(len(line.variants))]

    def _think_ns(self, call: int, position: int) -> int:
        return self._behavior.think.draw_ns(self._source(call, position, "think"))

    def _patience_ns(self, call: int, position: int) -> int | None:
        patience = self._behavior.patience
        return None if patience is None else patience.draw_ns(self._source(call, position, "patience"))

    def _source(self, *scope: int | str) -> random.Random:
        return random_source(*self._scope, *scope)


class _Line:
    """A line, and what can be said over it."""

    def __init__(self, line: PreparedLine) -> None:
        self.variants, self.background = line.variants, line.background
        # Of each utterance, every variant in order.
        self.by_id = {takes[0].rendered.utterance.id: takes for takes in zip(*line.variants, strict=True)}
        shortest = sorted(self.by_id, key=lambda name: self.by_id[name][0].duration_ns)[:BACKCHANNEL_CLIPS]
        self.asides = tuple(name for name in shortest if self.by_id[name][0].duration_ns <= BACKCHANNEL_NS)

"""Timed events of one exchange, gathered into a `Turn`. Pure: every moment is a parameter.

Which reply answers the question: the first audible one that the endpoint did not cancel, in whichever response it
comes, among those whose first event arrived after the caller began to speak. A response with a tool call or with text
alone is no answer: the caller heard nothing. Nor is a reply which the endpoint cancelled because the caller went on
speaking. One that the caller spoke into on purpose, after hearing it begin, is an answer also when it was then
cancelled. The times of the answer's text are those of the answer's own response: words that only ever were text (with
a tool call, for example) were never spoken.
"""

import re
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Final

from loadtest.conversation.plan import ReplyPoint
from loadtest.conversation.playout import Playback, PlayoutBuffer
from loadtest.protocols.base import SUPERSEDED, Content, EventKind, VoiceEvent
from loadtest.protocols.failure import Failure

SENTENCE_END: Final = re.compile(r"[.!?…](?=[\s\"')\]]|$)|\n")

# Speech of any language stays within these bounds of characters a second; a reply far outside them is audio at another
# rate than was declared. Short replies are not judged.
PLAUSIBLE_CHARACTERS_PER_S: Final = (3.0, 30.0)
JUDGED_FROM_CHARACTERS: Final = 40

# What an endpoint has sent when it stops may still be under way.
STOP_IN_FLIGHT_NS: Final = 300_000_000
# A reply that ends by itself ends in a little silence.
MAX_TAIL_NS: Final = 20_000_000

UNNAMED: Final = "#"
# In the name of a reply whose id was used before: what follows is that id.
USED_BEFORE: Final = " "


@dataclass(slots=True)
class Reply:
    """One response of the endpoint, as it arrived."""

    response_id: str
    first_event_perf_ns: int
    playback: Playback | None = None
    text_stamps_perf_ns: list[int] = field(default_factory=list[int])
    text: str = ""
    first_sentence_perf_ns: int | None = None
    done_perf_ns: int | None = None
    audio_done: bool = False  # the endpoint says that no more of its audio comes
    status: str | None = None
    why: str | None = None  # what the endpoint says of that status
    carried: frozenset[Content] = frozenset()
    owes_response: bool = False  # another response is to follow, before the endpoint has answered
    metadata: dict[str, str] = field(default_factory=dict[str, str])
    usage: dict[str, int] = field(default_factory=dict[str, int])
    item_id: str | None = None
    spoken_into: bool = False  # on purpose, by the caller's next turn or by a backchannel
    cleared: bool = False  # the endpoint asked to play no more of it
    stop_asked: bool = False  # the endpoint asked to play no more of it when it had been stopped here
    speech_stops: bool = False  # it was stopped here because the endpoint heard speech, which asks for it on this wire
    ended_by_silence: bool = False  # nothing more of it came: the wire does not say when a reply ends

    @property
    def id_on_the_wire(self) -> str | None:
        """The endpoint's name of it, None where it gives none."""
        if self.response_id.startswith(UNNAMED):
            return self.response_id.partition(USED_BEFORE)[2] or None
        return self.response_id or None

    @property
    def id_was_used_before(self) -> bool:
        """Whether the endpoint gave it the id of an earlier reply."""
        return self.response_id.startswith(UNNAMED) and USED_BEFORE in self.response_id

    @property
    def cancelled(self) -> bool:
        """Whether the endpoint broke it off of its own accord: it says so, or began another one in the place of one
        that the caller, who went on speaking, had stopped."""
        silenced = self.playback is not None and self.playback.stopped_perf_ns is not None
        broken_off = self.status == "cancelled" or self.cleared or (self.status == SUPERSEDED and silenced)
        return broken_off and not self.spoken_into

    @property
    def first_audio_perf_ns(self) -> int | None:
        """The time at which the caller hears it begin; None while nothing audible of it has arrived."""
        return None if self.playback is None else self.playback.first_audio_perf_ns

    @property
    def is_over(self) -> bool:
        """Whether nothing more of it is owed."""
        return self.done_perf_ns is not None

    @property
    def stopped(self) -> bool:
        """Whether it was broken off at all: cancelled, or no longer played."""
        broken_off = self.status == "cancelled" or self.cleared
        return broken_off or (self.playback is not None and self.playback.stopped_perf_ns is not None)

    @property
    def was_cut(self) -> bool:
        """Whether anything shows that the endpoint broke it off, and that it was not just over.

        The endpoint says so, or asks to drop what has not been played; or its audio ends in a sound while its text goes
        on. What was dropped here without being asked for shows nothing.
        """
        playback = self.playback
        if playback is None:
            return self.status == "cancelled"
        if self.status == "cancelled" or (self.stop_asked and playback.stopped_perf_ns is not None):
            return True
        dropped_perf_ns, last_perf_ns = playback.stopped_perf_ns, playback.last_audio_perf_ns
        if self.cleared and dropped_perf_ns is not None and last_perf_ns is not None:
            # Many endpoints clear at the beginning of each turn of the caller, also when a reply has been over a while.
            return playback.until_perf_ns > dropped_perf_ns or dropped_perf_ns - last_perf_ns <= STOP_IN_FLIGHT_NS
        if dropped_perf_ns is not None and (self.speech_stops or self.status == SUPERSEDED):
            return not self.was_sent_on
        return dropped_perf_ns is None and self._breaks_off_in_a_sound(playback)

    def _breaks_off_in_a_sound(self, playback: Playback) -> bool:
        """Return whether its audio ends in a sound, while more of its text came than that audio can hold."""
        last = playback.span.last_sample
        if last is None or (playback.samples - last) * 1_000_000_000 > MAX_TAIL_NS * playback.rate_hz:
            return False
        return len(self.text) * 1e9 > PLAUSIBLE_CHARACTERS_PER_S[1] * playback.audio_ns

    @property
    def dropped_until_perf_ns(self) -> int:
        """The time until which its dropped audio would have played; 0 if none was dropped."""
        playback = self.playback
        if playback is None or playback.stopped_perf_ns is None or not playback.starts_perf_ns:
            return 0
        return max(playback.until_perf_ns, playback.starts_perf_ns[0] + playback.audio_ns)

    @property
    def was_sent_on(self) -> bool:
        """Whether the endpoint sent on what was no longer played, beyond what may have been under way."""
        playback = self.playback
        if playback is None or playback.stopped_perf_ns is None:
            return False
        return (playback.last_arrival_perf_ns or 0) > playback.stopped_perf_ns + STOP_IN_FLIGHT_NS

    @property
    def quiet_since_perf_ns(self) -> int:
        """Since when nothing of it has arrived or played, as far as is known; later than now while it plays."""
        since = self.text_stamps_perf_ns[-1] if self.text_stamps_perf_ns else self.first_event_perf_ns
        playback = self.playback
        if playback is None or playback.last_arrival_perf_ns is None:
            return since
        played = playback.until_perf_ns if playback.stopped_perf_ns is None else playback.stopped_perf_ns
        return max(since, playback.last_arrival_perf_ns, played)

    def end_by_silence(self) -> None:
        """Nothing more of it comes: it ended with the last of its audio, or of its text where it has no audio."""
        self.ended_by_silence = True
        last = None if self.playback is None else self.playback.last_arrival_perf_ns
        self.done_perf_ns = self.quiet_since_perf_ns if last is None else last

    def goes_on(self, now_perf_ns: int) -> bool:
        """Return whether any of it, silence included, is still to be heard, as far as is known: it may only starve."""
        if self.playback is None or self.playback.stopped_perf_ns is not None:
            return False
        return self.done_perf_ns is None or self.playback.until_perf_ns > now_perf_ns

    def has_more_speech(self, now_perf_ns: int) -> bool:
        """Return whether anything audible of it is still to be heard, as far as is known: a pause does not end it."""
        if self.playback is None or not self.goes_on(now_perf_ns):
            return False
        return self.done_perf_ns is None or (self.playback.last_audio_perf_ns or 0) > now_perf_ns

    def speech_begins_at(self, point: ReplyPoint) -> int | None:
        """The moment of a point of this reply; None while it is not known, or if the reply is over by then."""
        playback = self.playback
        first = None if playback is None else playback.first_audio_perf_ns
        if playback is None or first is None or playback.stopped_perf_ns is not None:
            return None
        if self.done_perf_ns is None:
            return None if point.after_ns is None else first + point.after_ns
        last = playback.last_audio_perf_ns or first
        moment = first + (round((point.share or 0.0) * (last - first)) if point.after_ns is None else point.after_ns)
        return None if last <= moment else moment

    def note_text(self, text: str, arrival_perf_ns: int) -> None:
        """One piece of answer text."""
        if not text:
            return
        self.text_stamps_perf_ns.append(arrival_perf_ns)
        tail = self.text[-1:]
        self.text += text
        if self.first_sentence_perf_ns is None and SENTENCE_END.search(tail + text):
            self.first_sentence_perf_ns = arrival_perf_ns

    @property
    def sentence_known_perf_ns(self) -> int | None:
        """The time at which the first sentence was complete: at its boundary, else at the end of the text."""
        if self.first_sentence_perf_ns is None and self.is_over and self.text_stamps_perf_ns:
            return self.text_stamps_perf_ns[-1]
        return self.first_sentence_perf_ns

    def hear(self, playout: PlayoutBuffer, event: VoiceEvent, arrival_perf_ns: int) -> None:
        """Queue a chunk of its audio for playback."""
        if event.audio is None or event.rate_hz is None:
            return
        if self.playback is None:
            self.playback = playout.begin(event.rate_hz)
        if self.done_perf_ns is not None and (self.ended_by_silence or self.first_audio_perf_ns is None):
            # What was closed before it was heard goes on all the same, and ends by silence.
            self.done_perf_ns, self.ended_by_silence = None, False
        playout.feed(self.playback, event.audio, arrival_perf_ns)

    @property
    def file_header(self) -> str | None:
        """The header of a file that its audio begins with, where raw audio was agreed: `a WAV header`."""
        opening = None if self.playback is None else self.playback.opening
        return None if opening is None else opening.header

    @property
    def foreign_file(self) -> str | None:
        """A sentence when its audio is a file that holds none of the samples that were agreed."""
        opening = None if self.playback is None else self.playback.opening
        if opening is None or opening.fault is None:
            return None
        return f"the reply's audio is {opening.fault}: the endpoint must send raw samples, without a header"

    def implausible_rate(self) -> str | None:
        """A sentence when the length of the audio cannot belong to its text."""
        if self.stopped:
            return None  # the text may run ahead of audio that was never sent
        if self.playback is None or not self.playback.audio_ns or len(self.text) < JUDGED_FROM_CHARACTERS:
            return None
        characters_per_s = len(self.text) * 1e9 / self.playback.audio_ns
        low, high = PLAUSIBLE_CHARACTERS_PER_S
        if low <= characters_per_s <= high:
            return None
        return (
            f"the reply's audio runs at {characters_per_s:.0f} characters a second when played at the declared "
            f"{self.playback.rate_hz} Hz: the endpoint sends another sample rate than it declared"
        )


class Timeline:
    """The events between the beginning of an utterance and the end of its answer."""

    def __init__(self, known_replies: frozenset[str], *, closes_questions: bool = True, speaks: bool = True) -> None:
        self._known = known_replies  # replies that began before the question
        self.speaks = speaks  # replies have audio; else the answer is text, or the transcript itself
        self._closes_questions = closes_questions  # the wire says when the endpoint closes the caller's turn
        self.replies: dict[str, Reply] = {}
        self.early_replies = 0
        self.speech_start_perf_ns: int | None = None
        self.speech_end_perf_ns: int | None = None
        self.speech_end_audio_ns: int | None = None
        self.silent = False  # the caller says nothing: whatever reply begins belongs to this turn
        self.overlapped = False  # the caller has spoken into the reply: other items are no longer this turn's question
        self.items: dict[str, None] = {}  # the wire's names for what the caller said, in the order in which they came
        self.announced: set[str] = set()  # of these: named by the detection of speech, or by its end
        self._closed: set[str] = set()  # of these: the endpoint has closed what the caller said
        self._transcribed: set[str | None] = set()  # of these: the transcript, or its failure, came; None: without one
        self.heard_open = False  # the endpoint hears speech and has not closed the turn
        self.endpoints_perf_ns: list[int] = []
        self.overheard_perf_ns: int | None = None  # the endpoint closed a turn that was not the question
        self._forget_transcripts()
        self.errors: list[str] = []
        self.last_error_perf_ns: int | None = None
        self.failures: dict[str, Failure] = {}  # the causes behind these, by their sentence
        self.fatal_perf_ns: int | None = None

    def _forget_transcripts(self) -> None:
        self._recognized: list[tuple[VoiceEvent, int]] = []  # all of what follows
        self.partials_perf_ns: list[int] = []
        self._partial = ""
        self.partial_texts: list[str] = []  # what was recognized by each partial, from the beginning of the turn
        self.finals: list[tuple[str | None, str, int]] = []
        self.asr_failure: str | None = None

    def note(self, event: VoiceEvent, arrival_perf_ns: int) -> Reply | None:
        """Account for one event; the reply it belongs to, if it is part of one that may answer this turn."""
        kind = event.kind
        if kind in REPLY_KINDS:
            return self._note_reply(event, arrival_perf_ns)
        if kind is EventKind.ERROR:
            self._note_error(event, arrival_perf_ns)
        elif self.speech_start_perf_ns is None:
            pass  # of an earlier exchange
        elif self.overlapped and event.item_id not in self.items:
            self._note_overheard(event, arrival_perf_ns)
        else:
            self.note_question(event, arrival_perf_ns)
        return None

    def owns(self, event: VoiceEvent) -> bool:
        """Return whether the event is about a reply of this exchange."""
        return event.kind in REPLY_KINDS and (event.response_id or "") in self.replies

    def note_question(self, event: VoiceEvent, arrival_perf_ns: int) -> None:
        """Account for an event about what the caller said in this exchange, however late it comes."""
        kind, item_id = event.kind, event.item_id
        if kind in QUESTION_KINDS and item_id is not None:
            self.items.setdefault(item_id)
            if kind not in TRANSCRIPT_KINDS:
                self.announced.add(item_id)
            if kind in _CLOSING_KINDS:
                self._closed.add(item_id)
        if kind is EventKind.SPEECH_STARTED:
            self.heard_open = self._closes_questions
        elif kind is EventKind.SPEECH_STOPPED:
            self.heard_open = False
            self.endpoints_perf_ns.append(arrival_perf_ns)
        elif kind in TRANSCRIPT_KINDS:
            self._note_transcript(event, arrival_perf_ns)

    def _note_transcript(self, event: VoiceEvent, arrival_perf_ns: int) -> None:
        kind = event.kind
        self._recognized.append((event, arrival_perf_ns))
        if kind is EventKind.ASR_PARTIAL:
            if event.text:
                self.partials_perf_ns.append(arrival_perf_ns)
                self._partial += event.text
                self.partial_texts.append(" ".join([*(text for _, text, _ in self.finals), self._partial]))
        elif kind is EventKind.ASR_FINAL:
            self.finals.append((event.item_id, event.text or "", self.moment_of(event, arrival_perf_ns)))
            self._partial = ""
            self._transcribed.add(event.item_id)
        elif kind is EventKind.ASR_FAILED:
            self.asr_failure = event.message or "the endpoint could not transcribe"
            self._transcribed.add(event.item_id)

    def moment_of(self, event: VoiceEvent, arrival_perf_ns: int) -> int:
        """Return when a transcript was final: on its arrival, or with the last partial where nothing marks it as
        final."""
        return self.partials_perf_ns[-1] if event.dated_by_partial and self.partials_perf_ns else arrival_perf_ns

    def give_transcript(self, item_id: str | None) -> list[tuple[VoiceEvent, int]]:
        """Remove what was recognized under a name, and return it with its arrivals: it is of another exchange."""
        recognized = self._recognized
        self._forget_transcripts()
        self._transcribed.clear()
        if item_id is not None:
            self.items.pop(item_id, None)
        for event, arrival_perf_ns in recognized:
            if event.item_id != item_id:
                self._note_transcript(event, arrival_perf_ns)
        return [result for result in recognized if result[0].item_id == item_id]

    @property
    def transcript(self) -> str:
        """The final transcripts in the order of what the caller said, in whichever order they came."""
        order = list(self.items)
        ranked = sorted(self.finals, key=lambda final: order.index(final[0]) if final[0] in self.items else len(order))
        return " ".join(text for _, text, _ in ranked if text)

    @property
    def names_transcripts(self) -> bool:
        """Whether all that was recognized came under a name, by which the rest is known however late it comes."""
        return bool(self.items) and all(event.item_id is not None for event, _ in self._recognized)

    @property
    def awaits_transcript(self) -> bool:
        """Whether the caller has said something of which neither a transcript nor its failure has come."""
        if self.speech_end_perf_ns is None or None in self._transcribed:
            return False
        return not self._transcribed.issuperset(self.items) if self.items else not self._transcribed

    @property
    def awaits_text(self) -> bool:
        """Whether the answer has a name, by which its text is known however late it comes, and no text."""
        answer = self.answer
        return answer is not None and answer.id_on_the_wire is not None and not answer.text_stamps_perf_ns

    def has_closed(self, item_id: str) -> bool:
        """Return whether the endpoint has closed, or transcribed, what the caller said under this name."""
        return item_id in self._closed or item_id in self._transcribed

    def has_transcribed(self, item_id: str) -> bool:
        """Return whether the transcript of what the caller said under this name has come, or its failure."""
        return item_id in self._transcribed

    def _note_overheard(self, event: VoiceEvent, arrival_perf_ns: int) -> None:
        """Handle the endpoint's response to a backchannel: an answer to it may follow, its words are no question."""
        if event.kind is EventKind.SPEECH_STARTED:
            self.heard_open = self._closes_questions
        elif event.kind is EventKind.SPEECH_STOPPED:
            self.heard_open = False
            self.overheard_perf_ns = arrival_perf_ns

    def note_errors(self, *reported: tuple[str, Failure | None]) -> None:
        """Keep errors that the endpoint reported, or breaches of its protocol: they explain a missing answer."""
        for sentence, failure in reported:
            self.errors.append(sentence)
            if failure is not None:
                self.failures[sentence] = failure

    def _note_error(self, event: VoiceEvent, arrival_perf_ns: int) -> None:
        self.note_errors((event.message or event.raw_type, event.failure))
        self.last_error_perf_ns = arrival_perf_ns
        if event.fatal and self.fatal_perf_ns is None:
            self.fatal_perf_ns = arrival_perf_ns

    def _note_reply(self, event: VoiceEvent, arrival_perf_ns: int) -> Reply | None:
        key = event.response_id or ""
        if key in self._known:
            return None
        reply = self.replies.get(key)
        if reply is None:
            before = self.speech_start_perf_ns is None and not self.silent
            if before or event.kind is EventKind.RESPONSE_DONE:
                self._known |= {key}
                self.early_replies += 1
                return None
            reply = self.replies[key] = Reply(key, arrival_perf_ns)
        if event.metadata:
            reply.metadata.update(event.metadata)
        if event.item_id and event.kind is EventKind.AUDIO:
            reply.item_id = event.item_id
        if event.kind is EventKind.LLM_TEXT:
            reply.note_text(event.text or "", arrival_perf_ns)
        elif event.kind is EventKind.SPOKEN_TEXT:
            reply.text += event.text or ""
        elif event.kind is EventKind.AUDIO_DONE:
            reply.audio_done = True
        elif event.kind is EventKind.RESPONSE_DONE:
            self._note_end(reply, event, arrival_perf_ns)
        return reply

    def _note_end(self, reply: Reply, event: VoiceEvent, arrival_perf_ns: int) -> None:
        if reply.done_perf_ns is None:
            reply.done_perf_ns = arrival_perf_ns
        reply.status, reply.why = event.status, event.message
        reply.carried |= event.carried
        reply.owes_response = event.owes_response
        reply.usage.update(event.usage)
        if event.message and event.status == "failed":
            self.note_errors((event.message, event.failure))

    @property
    def answer(self) -> Reply | None:
        """The reply that counts: the first audible one that the endpoint did not break off itself, else None.

        On a wire without audio it is the first one that is over, unless it says nothing to a question of which nothing
        was recognized either.
        """
        if not self.speaks:
            return next((reply for reply in self._candidates() if reply.is_over and self._says_anything(reply)), None)
        earliest: Reply | None = None
        earliest_perf_ns = 0
        for reply in self.replies.values():  # asked several times for each event: so no list is made of them
            first_perf_ns = None if reply.playback is None else reply.playback.first_audio_perf_ns
            if first_perf_ns is None or (earliest is not None and first_perf_ns >= earliest_perf_ns):
                continue
            if not reply.cancelled:
                earliest, earliest_perf_ns = reply, first_perf_ns
        return earliest

    @property
    def nearest(self) -> Reply | None:
        """The answer; without one, the reply that came nearest to one, for the record of the turn: the first
        that sent audio, else the first with text, else the first."""
        return self.answer or max(
            self._candidates(), key=lambda reply: (reply.playback is not None, bool(reply.text)), default=None
        )

    def _says_anything(self, reply: Reply) -> bool:
        return bool(reply.text or self.finals) or reply.status == "failed"

    def _candidates(self) -> list[Reply]:
        return [reply for reply in self.replies.values() if not reply.cancelled]

    @property
    def first_audio_perf_ns(self) -> int | None:
        """The time at which the caller hears the answer begin; None while there is none."""
        answer = self.answer
        return None if answer is None else answer.first_audio_perf_ns

    @property
    def text_began_perf_ns(self) -> int | None:
        """The arrival of the first piece of a text answer; None while none has arrived, and on a wire with audio.

        For a recognizer that streams its transcript, it is the first part after the caller's speech.
        """
        if self.speaks or self.speech_end_perf_ns is None:
            return None
        stamps = [reply.text_stamps_perf_ns[0] for reply in self._candidates() if reply.text_stamps_perf_ns]
        first = bisect_left(self.partials_perf_ns, self.speech_end_perf_ns)
        return min([*stamps, *self.partials_perf_ns[first : first + 1]], default=None)

    @property
    def answer_began_perf_ns(self) -> int | None:
        """The time at which the answer began for the caller: its first audible sample, or its first piece of text."""
        return self.first_audio_perf_ns if self.speaks else self.text_began_perf_ns

    @property
    def asked(self) -> bool:
        """Whether the endpoint may answer by now: the caller has spoken, or says nothing."""
        return self.silent or self.speech_end_perf_ns is not None

    @property
    def answered(self) -> bool:
        """The endpoint has sent all of an answer to what the caller said."""
        answer = self.answer
        return answer is not None and answer.is_over and self.asked

    @property
    def owes_response(self) -> bool:
        """Whether the last response says that another one is to follow."""
        return bool(self.replies) and next(reversed(self.replies.values())).owes_response

    @property
    def complete(self) -> bool:
        """The endpoint has sent all of the answer and owes no other reply, be it announced by a tool call or to speech
        closed since."""
        if not self.answered or self.heard_open or not all(reply.is_over for reply in self.replies.values()):
            return False
        if self.owes_response:
            return False
        newest = max(reply.first_event_perf_ns for reply in self.replies.values())
        closed = [*self.endpoints_perf_ns[-1:], *([] if self.overheard_perf_ns is None else [self.overheard_perf_ns])]
        return not closed or max(closed) <= newest


TRANSCRIPT_KINDS: Final = frozenset({EventKind.ASR_PARTIAL, EventKind.ASR_FINAL, EventKind.ASR_FAILED})
_CLOSING_KINDS: Final = frozenset({EventKind.SPEECH_STOPPED, EventKind.QUESTION_NAMED})
QUESTION_KINDS: Final = TRANSCRIPT_KINDS | _CLOSING_KINDS | {EventKind.SPEECH_STARTED}
REPLY_KINDS: Final = frozenset(
    {
        EventKind.RESPONSE_STARTED,
        EventKind.LLM_TEXT,
        EventKind.SPOKEN_TEXT,
        EventKind.REASONING_TEXT,
        EventKind.SPEECH_SYNTHESIS_STARTED,
        EventKind.AUDIO,
        EventKind.AUDIO_DONE,
        EventKind.RESPONSE_DONE,
    }
)

"""Each figure of an answer, against values worked out by hand."""

import pytest

from loadtest.llm.answers import LlmAnswer, LlmChunk, LlmFault, LlmUsage
from loadtest.protocols.sentences import SentenceSplitter

MS = 1_000_000


def answer(*chunks: LlmChunk, **fields: object) -> LlmAnswer:
    given: dict[str, object] = {
        "target": "t",
        "started_ns": 0,
        "asked_ns": 100 * MS,
        "finished_ns": 1_100 * MS,
        "chunks": chunks,
    }
    return LlmAnswer(**given | fields)  # pyright: ignore[reportArgumentType]


def at(ms: int, text: str = "", *, tokens: int | None = None, reasoning: str = "") -> LlmChunk:
    return LlmChunk(ms * MS, ms * MS, text, reasoning, tokens=tokens)


def test_rates_and_gaps_of_chunks_of_several_tokens() -> None:
    result = answer(
        at(300, "a", tokens=1), at(500, "b", tokens=4), at(1_100, "c", tokens=6), usage=LlmUsage(completion=11)
    )
    assert result.first_token_s == 0.2
    assert result.wall_s == 1.0
    assert result.tokens_per_s == 10 / 0.8
    assert result.tokens_per_s_wall == 11.0
    assert result.tokens_per_chunk == pytest.approx(11 / 3)
    assert result.gaps_s == (0.2, 0.6)
    assert result.token_gaps_s == (0.05, pytest.approx(0.1))


def test_reasoning_is_a_first_token_and_no_answer() -> None:
    result = answer(at(200, reasoning="hm"), at(700, "Yes. "), at(800, "No"))
    assert (result.first_token_s, result.first_answer_token_s, result.first_sentence_s) == (0.1, 0.6, 0.6)
    assert result.text == "Yes. No"


def test_first_sentence_is_known_at_following_text_or_at_end() -> None:
    assert answer(at(300, "It costs 3."), at(400, "5 euros."), at(600, " And"), at(900, " so")).first_sentence_s == 0.5
    assert answer(at(300, "Only one."), at(400, "")).first_sentence_s == 1.0
    assert answer(at(300, "今日は"), at(400, "晴れ。"), at(600, "はい。")).first_sentence_s == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("Mr. Fox pays 3.5 dollars. Yes. No", ["Mr. Fox pays 3.5 dollars.", "Yes.", "No"]),
        ("The change is made. Is it No. 5? Yes", ["The change is made.", "Is it No. 5?", "Yes"]),
        ("是。好的！真的？", ["是。", "好的！", "真的？"]),  # noqa: RUF001
        ("1. First of all. Then", ["1. First of all.", "Then"]),
        ("U.S. troops left. They", ["U.S. troops left.", "They"]),
        ("यह क्या है। हाँ", ["यह क्या है।", "हाँ"]),
        ("هل هذا؟ نعم", ["هل هذا؟", "نعم"]),
        ("z.B. morgen um 10.30 Uhr. Gut", ["z.B. morgen um 10.30 Uhr.", "Gut"]),
        ("… 。 Ja, gern. Gut", ["… 。 Ja, gern.", "Gut"]),
    ],
)
def test_sentences_of_several_languages_however_the_text_is_cut(text: str, sentences: list[str]) -> None:
    for size in (1, 2, 5, len(text)):
        splitter = SentenceSplitter()
        split = [one for begin in range(0, len(text), size) for one in splitter.feed(text[begin : begin + size])]
        assert [*split, *filter(None, [splitter.end()])] == sentences


def test_an_answer_with_a_fault_has_no_figures() -> None:
    fault = LlmFault("cut_off", "it ended")
    result = answer(at(300, "One. "), at(400, "Two"), usage=LlmUsage(completion=5), fault=fault)
    figures = ("first_token_s", "first_answer_token_s", "first_sentence_s", "wall_s", "tokens", "tokens_per_s")
    assert [getattr(result, name) for name in (*figures, "tokens_per_s_wall", "tokens_per_chunk")] == [None] * 8
    assert result.gaps_s == result.token_gaps_s == ()


def test_one_token_has_no_rate() -> None:
    assert answer(at(300, "a"), usage=LlmUsage(completion=1)).tokens_per_s is None
    assert answer(at(300, "a"), at(300, "b"), usage=LlmUsage(completion=2)).tokens_per_s is None

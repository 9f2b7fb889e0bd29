"""The techniques: each is one option of the assistant, off and on, with everything else equal."""

from dataclasses import dataclass
from typing import Final

_CONCISE: Final = "You are a voice assistant. Answer in one sentence of at most eight words."
# Long enough that reading it again costs something: about 500 tokens.
_RULE: Final = "Rule {}: be polite, be brief, say numbers in words, and never invent a price or a time."
_RULES: Final = " ".join(_RULE.format(number) for number in range(1, 22))
_LONG: Final = f"You are the voice assistant of a house. Answer in one or two short spoken sentences. {_RULES}"


@dataclass(frozen=True, slots=True)
class Technique:
    """One row. `off` and `on` are flags of `voiceprobe assistant`; `real` names the parts that do real work, `declared`
    what is a timing model instead."""

    name: str
    title: str
    off: tuple[str, ...]
    on: tuple[str, ...]
    real: str
    declared: str = "nothing"
    few_utterances: int | None = None  # so few that they come again, where repetition is what helps
    is_quick: bool = False


TECHNIQUES: Final = (
    Technique("no-op", "Nothing: both assistants are the same", (), (), "ASR, LLM, TTS", is_quick=True),
    Technique(
        "streaming",
        "Speak sentence by sentence instead of the whole answer",
        ("--llm-stream", "false"),
        ("--llm-stream", "true"),
        "LLM, TTS",
        is_quick=True,
    ),
    Technique(
        "concise",
        "Ask for a concise answer",
        (),
        ("--llm-instructions", _CONCISE),
        "LLM, TTS",
        is_quick=True,
    ),
    Technique("length-limit", "Limit the answer to 12 tokens", (), ("--llm-max-tokens", "12"), "LLM, TTS"),
    Technique("batch-20", "Pass tokens on in batches of 20", (), ("--llm-batch", "20"), "LLM, TTS"),
    Technique("batch-50", "Pass tokens on in batches of 50", (), ("--llm-batch", "50"), "LLM, TTS"),
    Technique(
        "edge-cache",
        "Keep answers in the memory of the assistant",
        ("--cache", "off"),
        ("--cache", "memory", "--cache-ttl", "1h", "--cache-delay", "constant:0ms"),
        "cache, LLM",
        few_utterances=10,
        is_quick=True,
    ),
    Technique(
        "prefix-cache",
        "Let the model keep what it has read of the prompt",
        ("--llm-instructions", _LONG, "--llm-prefix-cache", "false"),
        ("--llm-instructions", _LONG, "--llm-prefix-cache", "true"),
        "LLM",
    ),
    Technique(
        "quantized-asr",
        "Recognize in int8 instead of float32",
        ("--asr-precision", "float32"),
        ("--asr-precision", "int8"),
        "ASR",
    ),
    Technique(
        "fallback",
        "Answer by a rule when the model takes longer than 400 ms",
        (),
        ("--llm-deadline", "400ms"),
        "LLM, rule",
    ),
)
# A short answer keeps a call short: its caller listens to the end.
COMMON: Final = ("--engines", "real", "--cache", "off", "--llm-deadline", "20s", "--llm-max-tokens", "24")


def named(only: str | None, quick: bool) -> tuple[Technique, ...]:
    """The techniques of a list of names, the quick ones, or all. Raises KeyError with the first unknown name."""
    if only is None:
        return tuple(each for each in TECHNIQUES if each.is_quick or not quick)
    by_name = {each.name: each for each in TECHNIQUES}
    return tuple(by_name[name.strip()] for name in only.split(",") if name.strip())

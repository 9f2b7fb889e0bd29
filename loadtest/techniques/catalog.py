"""The techniques: each is one option of the assistant, off and on, with everything else equal."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

_CONCISE: Final = ("--llm-instructions", "You are a voice assistant. Answer in one sentence of at most eight words.")
_EXPLAINS: Final = (
    "--llm-instructions",
    "You are a voice assistant. Explain in three spoken sentences, without markup.",
)
_LONG_ANSWER: Final = ("--llm-max-tokens", "60")
# Answers of several sentences: how an answer is passed on matters only to these.
_SENTENCES: Final = (*_LONG_ANSWER, *_EXPLAINS)
# Long enough that reading it again costs something: about 500 tokens.
_RULE: Final = "Rule {}: be polite, be brief, say numbers in words, and never invent a price or a time."
_RULES: Final = " ".join(_RULE.format(number) for number in range(1, 22))
_LONG: Final = f"You are the voice assistant of a house. Answer in one or two short spoken sentences. {_RULES}"
_EARLY: Final = ("--asr-early", "true")
_HOUR: Final = ("--cache-ttl", "1h")
_NO_DELAY: Final = ("--cache-delay", "constant:0ms")
_CACHE: Final = (*_HOUR, *_NO_DELAY)
_CLOUD: Final = "the cloud model (lognormal, median 744 ms, p90 4.1 s)"
# Under noise the same question is recognized in other words now and then, as if the caller asked again.
_NOISY: Final = {"noise": "babble", "snr": 12.0}
# Silero takes babble for speech, and does not hear the end of a turn in it.
_NOISY_CACHE: Final = ("--vad", "energy", "--cache", "memory", *_CACHE)
# So few that a question comes again soon, and enough to tell how unlike questions are.
FEW_UTTERANCES: Final = 8
# An answer of the declared cloud costs so much: 300 tokens read and 60 written, at 0.50 and 5 dollars a million.
CLOUD_ANSWER_USD: Final = 0.00045


@dataclass(frozen=True, slots=True)
class Technique:
    """One row. `off` and `on` are flags of `voiceprobe assistant`; `real` names the parts that do real work, `declared`
    what is a timing model instead. `missing` says why a row cannot be measured with the models of the packages."""

    name: str
    title: str
    off: tuple[str, ...] = ()
    on: tuple[str, ...] = ()
    real: str = "ASR, LLM, TTS"
    declared: str = "nothing"
    spoken: Mapping[str, object] = field(default_factory=dict[str, object])  # how the callers of this row differ
    few_utterances: int | None = None  # so few that they come again, where repetition is what helps
    needs_redis: bool = False
    is_quick: bool = False
    missing: str | None = None


def _similar(threshold: str, *flags: str, title: str = "") -> Technique:
    return Technique(
        f"similar-{threshold}{'-slots' if title else ''}",
        f"Answer similar questions from the cache, from a cosine of {threshold}{title}",
        _NOISY_CACHE,
        (*_NOISY_CACHE, "--cache-similarity", threshold, *flags),
        "embeddings, cache, LLM",
        spoken=_NOISY,
        few_utterances=FEW_UTTERANCES,
    )


def _routed(by: str, threshold: str, title: str, real: str) -> Technique:
    return Technique(
        f"route-{by}",
        title,
        ("--llm", "cloud"),
        ("--llm", "routed", "--route-by", by, "--route-threshold", threshold),
        real,
        _CLOUD,
    )


def _late(name: str, title: str) -> Technique:
    """A row on what is said at a deadline: the declared cloud has the tail that needs it."""
    return Technique(
        f"fallback-{name}",
        title,
        ("--llm", "cloud"),
        ("--llm", "cloud", "--llm-deadline", "1s", "--llm-late", name),
        "ASR, TTS, fallback",
        _CLOUD,
        spoken={"patience": "4s"},
    )


TECHNIQUES: Final = (
    Technique("no-op", "Nothing: both assistants are the same", is_quick=True),
    Technique(
        "streaming",
        "Speak sentence by sentence instead of the whole answer",
        (*_SENTENCES, "--llm-stream", "false"),
        (*_SENTENCES, "--llm-stream", "true"),
        is_quick=True,
    ),
    Technique("batch-20", "Pass tokens on in batches of 20", _SENTENCES, (*_SENTENCES, "--llm-batch", "20")),
    Technique("batch-50", "Pass tokens on in batches of 50", _SENTENCES, (*_SENTENCES, "--llm-batch", "50")),
    Technique(
        "lookahead-3",
        "Have the voice wait for 3 tokens after a sentence",
        _SENTENCES,
        (*_SENTENCES, "--tts-lookahead", "3"),
    ),
    Technique(
        "early-exit", "Stop the model after its first sentence", _SENTENCES, (*_SENTENCES, "--llm-sentences", "1")
    ),
    Technique(
        "concise",
        "Ask for a concise answer instead of three sentences",
        _SENTENCES,
        (*_LONG_ANSWER, *_CONCISE),
    ),
    Technique("length-limit", "Limit the answer to 12 tokens", _SENTENCES, (*_EXPLAINS, "--llm-max-tokens", "12")),
    Technique(
        "early-transcript",
        "Recognize as soon as the caller pauses, before the turn has ended",
        on=_EARLY,
    ),
    Technique(
        "partial-start",
        "Begin answers on transcripts made before the turn has ended",
        _EARLY,
        (*_EARLY, "--llm-speculate", "true"),
    ),
    Technique(
        "device-cache",
        "Keep answers on the device",
        ("--cache", "off"),
        ("--cache", "memory", "--cache-tier", "device", *_CACHE),
        "cache, LLM",
        few_utterances=FEW_UTTERANCES,
        is_quick=True,
    ),
    Technique(
        "edge-cache",
        "Keep answers in Redis on the host",
        ("--cache", "off"),
        ("--cache", "memory", "--cache-url", "{redis}/0", "--cache-tier", "edge", *_CACHE),
        "Redis, LLM",
        few_utterances=FEW_UTTERANCES,
        needs_redis=True,
    ),
    Technique(
        "central-cache",
        "Keep answers in Redis in another region",
        ("--cache", "off"),
        ("--cache", "memory", "--cache-url", "{redis}/3", *_HOUR, "--cache-delay", "constant:35ms"),
        "Redis, LLM",
        "the way to the other region (35 ms)",
        few_utterances=FEW_UTTERANCES,
        needs_redis=True,
    ),
    Technique(
        "cache-tiers",
        "Keep answers on the device before Redis, instead of in Redis alone",
        ("--cache", "memory", "--cache-url", "{redis}/1", *_CACHE),
        ("--cache", "tiers", "--cache-url", "{redis}/2", "--cache-tier", "device", *_CACHE),
        "cache, Redis, LLM",
        few_utterances=FEW_UTTERANCES,
        needs_redis=True,
    ),
    Technique(
        "cache-keys",
        "Take questions of the same words and times for the same, not of the same text alone",
        (*_NOISY_CACHE, "--cache-keys", "exact"),
        (*_NOISY_CACHE, "--cache-keys", "times"),
        "ASR, cache, LLM",
        spoken=_NOISY,
        few_utterances=FEW_UTTERANCES,
    ),
    Technique(
        "cache-lifetime",
        "Keep answers for 30 seconds instead of an hour",
        ("--cache", "memory", *_CACHE),
        ("--cache", "memory", "--cache-ttl", "30s", *_NO_DELAY),
        "cache, LLM",
        "how soon an answer is stale",
        spoken={"mix": "domain.travel=50 domain.banking=50"},  # where the right answer to half of the questions changes
        few_utterances=FEW_UTTERANCES,
    ),
    _similar("0.8", "--cache-slots", "false"),
    _similar("0.9", "--cache-slots", "false"),
    _similar("0.95", "--cache-slots", "false"),
    _similar("0.8", "--cache-slots", "true", title=", and the same numbers, days and opposites"),
    _routed("similarity", "0.9", "Keep questions here that are like an example by 0.9", "embeddings, LLM here"),
    _routed("confidence", "0.8", "Keep questions here of which a classifier is sure by 0.8", "classifier, LLM here"),
    _routed("privacy", "0.9", "Keep questions with private items here", "detector, LLM here"),
    Technique(
        "route-parallel",
        "Begin the answer here while the route is decided",
        ("--llm", "routed", "--route-by", "confidence", "--route-threshold", "0.8"),
        ("--llm", "routed", "--route-by", "confidence", "--route-threshold", "0.8", "--route-parallel", "true"),
        "classifier, LLM here",
        _CLOUD,
    ),
    Technique(
        "parallel-calls",
        "Have the model check a question during its answer instead of before it",
        ("--llm-parallel", "2", "--llm-guard", "before"),
        ("--llm-parallel", "2", "--llm-guard", "beside"),
        "LLM",
    ),
    _late("rule", "Answer by a rule when the model takes longer than a second"),
    _late("last", "Say the last answer again when the model takes longer than a second"),
    _late("append", "Say a word and a question after a second, and then the answer"),
    _late("replace", "Say a word and a question after a second, until the answer replaces the rest"),
    Technique(
        "prefix-cache",
        "Let the model keep what it has read of the prompt",
        ("--llm-instructions", _LONG, "--llm-prefix-cache", "false"),
        ("--llm-instructions", _LONG, "--llm-prefix-cache", "true"),
        "LLM",
        is_quick=True,
    ),
    Technique(
        "quantized-asr",
        "Recognize in int8 instead of float32",
        ("--asr-precision", "float32"),
        ("--asr-precision", "int8"),
        "ASR",
    ),
    Technique(
        "quantized-llm",
        "Compute the language model in fewer bits",
        missing="not available here: the packages have SmolLM2-135M in one precision, Q4_1",
    ),
    Technique(
        "small-model",
        "A smaller language model",
        missing="not available here: SmolLM2-135M is the one language model among the packages of the lock file",
    ),
    Technique("draft", "Draft tokens from what the prompt has said before", on=("--llm-draft", "true"), real="LLM"),
    Technique(
        "co-location",
        "Recognizer, model and voice on one host instead of in two regions",
        ("--hop", "constant:35ms"),
        ("--hop", "constant:0.1ms"),
        declared="each call between them",
    ),
    Technique(
        "co-location-rack",
        "Recognizer, model and voice on one host instead of in one rack",
        ("--hop", "constant:0.5ms"),
        ("--hop", "constant:0.1ms"),
        declared="each call between them",
    ),
    Technique(
        "streaming-of-hits",
        "Speak sentence by sentence, where answers come from the cache",
        (*_SENTENCES, "--cache", "memory", *_CACHE, "--llm-stream", "false"),
        (*_SENTENCES, "--cache", "memory", *_CACHE, "--llm-stream", "true"),
        "cache, LLM, TTS",
        few_utterances=FEW_UTTERANCES,
    ),
    Technique(
        "concise-whole",
        "Ask for a concise answer, where it is spoken as a whole",
        (*_SENTENCES, "--llm-stream", "false"),
        (*_LONG_ANSWER, *_CONCISE, "--llm-stream", "false"),
    ),
)
# Short answers, sent as fast as they are spoken, keep a call short: its caller hangs up when it has the whole answer.
COMMON: Final = (
    *("--engines", "real", "--cache", "off", "--llm-max-tokens", "24", "--tts-pace", "0"),
    *("--llm-deadline", "20s", "--llm-stall", "20s"),
)


def named(only: str | None, quick: bool) -> tuple[Technique, ...]:
    """The techniques of a list of names, the quick ones, or all. Raises KeyError with the first unknown name."""
    if only is None:
        return tuple(technique for technique in TECHNIQUES if technique.is_quick or not quick)
    by_name = {technique.name: technique for technique in TECHNIQUES}
    return tuple(by_name[name.strip()] for name in only.split(",") if name.strip())

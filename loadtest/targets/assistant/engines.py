"""Creates the engines that a configuration selects. They are started and stopped together and shared by sessions."""

import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from corpora.annotation.exact_end import find_exact_end
from corpora.manifest.errors import CorpusError
from corpora.manifest.library import BUNDLED, Corpus, open_corpus
from corpora.manifest.manifest import Utterance
from loadtest.audio.pcm import from_float
from loadtest.distributions import Delay
from loadtest.errors import UsageError
from loadtest.targets.assistant.answering import Answering, Guard, Late
from loadtest.targets.assistant.asr.base import AsrEngine
from loadtest.targets.assistant.asr.known_clips import KnownClip
from loadtest.targets.assistant.asr.recognition import PartialTiming
from loadtest.targets.assistant.asr.scripted import ScriptedAsr
from loadtest.targets.assistant.asr.worker_asr import WorkerAsr
from loadtest.targets.assistant.cache.base import MemoryCache, PromptCache, TieredCache
from loadtest.targets.assistant.clock import Clock
from loadtest.targets.assistant.config import AssistantConfig
from loadtest.targets.assistant.embeddings import Embedder, ExampleRouter, SimilarQuestions, WorkerEmbedder
from loadtest.targets.assistant.faults import FaultPlan
from loadtest.targets.assistant.llm.base import Llm
from loadtest.targets.assistant.llm.routed import RoutedLlm
from loadtest.targets.assistant.llm.rules import RuleLlm
from loadtest.targets.assistant.questions import marked_items, normalize, normalize_times
from loadtest.targets.assistant.real import environment
from loadtest.targets.assistant.session import SessionParts
from loadtest.targets.assistant.tts.base import TtsEngine
from loadtest.targets.assistant.tts.scripted import ScriptedTts
from loadtest.targets.assistant.tts.speaking import VoiceSettings
from loadtest.targets.assistant.tts.worker_tts import WorkerTts
from loadtest.targets.assistant.turn import TurnParts
from loadtest.toml_text import parse_toml
from telemetry.model import semconv
from telemetry.model.addresses import TOKEN_RULE, is_token
from telemetry.model.errors import ConfigError


def variant_configs(config: AssistantConfig) -> dict[str, AssistantConfig]:
    """Configurations by the name of their variant; the control has the assistant's own. A `cohort` without settings of
    its own has the other `llm_stream`. Raises UsageError with a line for every fault."""
    found = {} if config.variants is None else _of_file(config, config.variants)
    if config.cohort is not None:
        other = config.model_copy(update={"llm_stream": not config.llm_stream})
        found.setdefault(config.cohort.treatment, other)
    found.setdefault(config.cohort_control, config)
    return found


def _of_file(config: AssistantConfig, file: Path) -> dict[str, AssistantConfig]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The variants {file} cannot be read: {error}.") from error
    found: dict[str, AssistantConfig] = {}
    faults: list[str] = []
    for name, table in parse_toml(text, str(file)).table.items():
        if not isinstance(table, dict):
            faults.append(f"{file}: {name} is not a table; write the settings of a variant under [{name}].")
            continue
        try:
            found[name] = config.with_variant(cast("Mapping[str, object]", table), f"{file}: {name}")
        except ConfigError as error:
            faults += [f"{error.where}.{fault}." for fault in error.faults]
    if faults:
        raise UsageError("\n".join(faults))
    return found


_NS_PER_MS = 1_000_000
_THREADS = 2  # of the local model, which shares the machine with the other engines
_POCKETSPHINX = "loadtest.targets.assistant.asr.pocketsphinx_worker"
_WHISPER = "loadtest.targets.assistant.real.whisper_worker"
_ESPEAK = "loadtest.targets.assistant.tts.espeak_worker"
_PIPER = "loadtest.targets.assistant.real.piper_worker"
_MINILM = "loadtest.targets.assistant.real.minilm_worker"
_EXAMPLES = Path(__file__).with_name("routing_examples.toml")
CLOUD_MODEL = "declared-cloud"
_ANSWER = (
    "llm",
    "llm_url",
    "llm_model",
    "llm_answer",
    "llm_instructions",
    "llm_max_tokens",
    "llm_sentences",
)  # what an answer depends on


@dataclass(frozen=True, slots=True)
class Engines:
    """The engines to start and stop, and the parts of sessions that use them: those of each variant."""

    asr: AsrEngine
    llms: tuple[Llm, ...]
    tts: TtsEngine
    cache: PromptCache | None
    embedder: Embedder | None
    parts: SessionParts
    of_variant: Mapping[str, SessionParts]
    faults: Mapping[str, FaultPlan]

    def parts_for(self, cohort: str | None) -> SessionParts:
        """The parts of a call in this cohort."""
        return self.parts if cohort is None else self.of_variant.get(cohort, self.parts)

    async def start(self) -> None:
        """Start the engines. Raises UsageError for an engine that cannot work on this machine."""
        await self.asr.start()
        await self.tts.start()
        if self.embedder is not None:
            await self.embedder.start()
        for llm in self.llms:
            await llm.start()

    async def stop(self) -> None:
        """Stop the engines."""
        await self.asr.stop()
        await self.tts.stop()
        if self.embedder is not None:
            await self.embedder.stop()
        for llm in self.llms:
            await llm.stop()
        if self.cache is not None:
            await self.cache.stop()


def known_clips(corpora: str | None) -> list[KnownClip]:
    """Load the clips of corpora (names or folders, separated by commas) for the scripted recognizer.

    None loads the bundled corpus and the callers' default corpus. Raises UsageError if one cannot be opened.
    """
    try:
        if corpora is None:
            by_path = {opened.path: opened for opened in (open_corpus(BUNDLED), open_corpus())}
            chosen = list(by_path.values())
        else:
            chosen = [open_corpus(name.strip()) for name in corpora.split(",")]
        return [
            _known_clip(opened, utterance, utterance.text)
            for opened in chosen
            for utterance in opened.utterances
            if utterance.text is not None
        ]
    except CorpusError as error:
        raise UsageError(f"The scripted recognizer cannot load its corpus: {error}") from error


def _known_clip(corpus: Corpus, utterance: Utterance, text: str) -> KnownClip:
    samples = corpus.read(utterance)
    exact_end = find_exact_end(samples, utterance) if corpus.edges == "exact" else None
    return KnownClip(
        text,
        from_float(samples),
        utterance.sample_rate_hz,
        utterance.speech_start_sample,
        utterance.speech_end_sample if exact_end is None else exact_end,
    )


def build_engines(config: AssistantConfig, clock: Clock) -> Engines:
    """Create the engines that a configuration selects; its variants share recognizer, voice and cache. Raises
    UsageError."""
    configs = variant_configs(config)
    asr, cache = _asr(config), _cache(config)
    tts = _tts(config)
    embedder = embedding_model() if config.embeds else None
    shared = _Shared(asr, tts, cache, embedder, clock)
    llm = _llm(config, shared)
    parts = _parts(config, llm, shared)
    llms, of_variant = [llm], {}
    for name, each in configs.items():
        if each is config:
            of_variant[name] = parts
            continue
        llms.append(_llm(each, shared))
        # What another model answered is no answer of this one.
        answers_alike = all(getattr(each, part) == getattr(config, part) for part in _ANSWER)
        of_variant[name] = _parts(each, llms[-1], shared, "" if answers_alike else f"{name}\n")
    faults = {name: FaultPlan(each.fault, each.fault_share, each.fault_seed) for name, each in configs.items()}
    return Engines(asr, tuple(llms), tts, cache, embedder, parts, of_variant, faults)


@dataclass(frozen=True, slots=True)
class _Shared:
    """What the variants of one assistant have in common."""

    asr: AsrEngine
    tts: TtsEngine
    cache: PromptCache | None
    embedder: Embedder | None
    clock: Clock


def _parts(config: AssistantConfig, llm: Llm, shared: _Shared, cache_space: str = "") -> SessionParts:
    clock = shared.clock
    answering = Answering(
        llm=llm,
        cache=shared.cache,
        cache_delay=config.cache_delay,
        deadline_ns=config.llm_deadline.ns,
        stall_ns=config.llm_stall.ns,
        clock=clock,
        cache_space=cache_space,
        normalized=_NORMAL_FORMS[config.cache_keys],
        similar=_similar(config, shared.embedder),
        late=cast("Late", config.llm_late),
        guard=cast("Guard", config.llm_guard),
        sentences=config.llm_sentences,
    )
    voice = VoiceSettings(
        tts=shared.tts,
        chunk_ms=config.tts_chunk.ns // _NS_PER_MS,
        pace=config.tts_pace,
        delay=config.tts_delay,
        leading_silence=config.tts_leading_silence,
        clock=clock,
    )
    return SessionParts(
        turn=TurnParts(answering, voice, config.asr_delay, clock, config.seed, config.hop, config.tts_lookahead),
        asr=shared.asr,
        partials=PartialTiming(config.asr_partial_delay, config.asr_partial_every),
        endpoint_delay=config.endpoint_delay,
        llm_stream=config.llm_stream,
        speculates=config.llm_speculate,
    )


def _similar(config: AssistantConfig, embedder: Embedder | None) -> SimilarQuestions | None:
    if embedder is None or config.cache_similarity is None:
        return None
    return SimilarQuestions(embedder, config.cache_similarity, compare_slots=config.cache_slots)


def embedding_model() -> WorkerEmbedder:
    """The model of embeddings, in a process of its own; the environment of real models must be installed."""
    return WorkerEmbedder(environment.command(_MINILM))


def example_router(embedder: Embedder, by: str, threshold: float) -> ExampleRouter:
    """The router that decides by the examples of this package."""
    examples = parse_toml(_EXAMPLES.read_text(encoding="utf-8"), _EXAMPLES.name).table
    return ExampleRouter(embedder, by, threshold, *(cast("list[str]", examples[kind]) for kind in ("local", "cloud")))


async def stays_by_privacy(question: str) -> bool:
    """Return whether a question has something in it that must not leave this machine."""
    return bool(marked_items(question))


def _asr(config: AssistantConfig) -> AsrEngine:
    if config.asr == "pocketsphinx":
        files = (str(config.asr_lm or ""), str(config.asr_dict or ""))
        command = (sys.executable, "-m", _POCKETSPHINX, *files)
        return WorkerAsr("pocketsphinx", command, config.asr_workers, "check --asr-lm and --asr-dict")
    if config.asr == "whisper":
        command = environment.command(_WHISPER, config.asr_precision, "1")
        return WorkerAsr("Whisper", command, config.asr_workers, "choose --asr scripted")
    return ScriptedAsr(known_clips(config.corpus))


def _tts(config: AssistantConfig) -> TtsEngine:
    if config.tts == "espeak":
        return WorkerTts("espeak-ng", (sys.executable, "-m", _ESPEAK, config.tts_voice))
    if config.tts == "piper":
        return WorkerTts("Piper", environment.command(_PIPER))
    return ScriptedTts()


def _llm(config: AssistantConfig, shared: _Shared) -> Llm:
    if config.llm in ("cloud", "routed") and config.llm_url is None:
        cloud = RuleLlm(config.cloud_ttft, config.cloud_gap, model=CLOUD_MODEL, route="cloud")
        if config.llm == "cloud":
            return cloud
        if config.route_by == "privacy" or shared.embedder is None:
            stays = stays_by_privacy
        else:
            stays = example_router(shared.embedder, config.route_by, config.route_threshold).stays
        local = _llm(config.model_copy(update={"llm": "local"}), shared)
        return RoutedLlm(local, cloud, stays, shared.clock.perf_ns, in_parallel=config.route_parallel)
    if config.llm_url is None and config.llm == "rules":
        return RuleLlm(config.llm_ttft or Delay(), config.llm_gap or Delay(), config.llm_parallel, config.llm_answer)
    # Imported only if used, like the cache below, so that the assistant starts quickly.
    from loadtest.targets.assistant.llm.http_engine import HttpLlm, HttpLlmOptions

    asked: dict[str, Any] = {
        "max_tokens": config.llm_max_tokens,
        "instructions": config.llm_instructions,
        "batch": config.llm_batch,
    }
    if config.llm_url is None:
        from loadtest.targets.assistant.real.llama_llm import LlamaLlm

        body = {
            "cache_prompt": config.llm_prefix_cache,
            "temperature": 0.2,
            "seed": config.seed % 2**31,
            "stream_options": {"include_usage": True},
        }
        options = HttpLlmOptions("", "", body=body, **asked)
        return LlamaLlm(config.llm_parallel or 1, _THREADS, options, drafts=config.llm_draft)
    token = os.environ.get(config.llm_token_env, "").strip() or None
    if token is not None and not is_token(token):
        raise UsageError(f"{config.llm_token_env} holds no token: {TOKEN_RULE}.")
    return HttpLlm(HttpLlmOptions(config.llm_url, config.llm_model, token, **asked))


_NORMAL_FORMS: Mapping[str, Callable[[str], str]] = {"exact": str, "words": normalize, "times": normalize_times}


def _cache(config: AssistantConfig) -> PromptCache | None:
    named = cast("semconv.CacheTier | None", config.cache_tier)
    memory = MemoryCache(config.cache_ttl.ns, time.perf_counter_ns, tier=named or "edge")
    if config.cache_url is None:
        return None if config.cache == "off" else memory
    from loadtest.targets.assistant.cache.redis_cache import RedisCache

    redis = RedisCache(config.cache_url, config.cache_ttl.ns, time.perf_counter_ns)
    if config.cache == "tiers":
        return TieredCache(memory, redis)
    redis.tier = named or redis.tier
    return redis

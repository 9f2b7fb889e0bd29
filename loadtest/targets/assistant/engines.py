"""Creates the engines that a configuration selects. They are started and stopped together and shared by sessions."""

import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from loadtest.distributions import Delay
from loadtest.errors import UsageError
from loadtest.targets.assistant.cache import MemoryCache, RedisCache, TieredCache
from loadtest.targets.assistant.clock import Clock
from loadtest.targets.assistant.config import AssistantConfig
from loadtest.targets.assistant.endpointing import EnergyVad
from loadtest.targets.assistant.interfaces import AsrEngine, AssistantEngine, Embedder, Llm, PromptCache, TtsEngine
from loadtest.targets.assistant.llm import RoutedLlm, RuleLlm
from loadtest.targets.assistant.questions import ExampleRouter, SimilarQuestions, marked_items
from loadtest.targets.assistant.real import environment
from loadtest.targets.assistant.scripted import ScriptedAsr, ScriptedTts, known_clips
from loadtest.targets.assistant.turn import ServedVariant
from loadtest.targets.assistant.workers import EngineWorker, WorkerAsr, WorkerEmbedder, WorkerTts, WorkerVads
from loadtest.toml_text import parse_toml
from telemetry.model.addresses import TOKEN_RULE, is_token
from telemetry.model.errors import ConfigError

CLOUD_MODEL: Final = "declared-cloud"
_EXAMPLES: Final = Path(__file__).with_name("routing_examples.toml")
_PROGRAMS: Final = "loadtest.targets.assistant.real"
_ANSWER: Final = (  # what an answer depends on
    *("llm", "llm_url", "llm_model", "llm_answer", "llm_instructions", "llm_max_tokens", "llm_sentences"),
)


@dataclass(frozen=True, slots=True)
class Engines:
    """The engines to start and stop, and what serves the calls of each cohort."""

    default: ServedVariant
    variants: Mapping[str, ServedVariant]
    running: tuple[AssistantEngine, ...]

    def variant(self, cohort: str | None) -> ServedVariant:
        """The variant that serves a call of this cohort."""
        return self.default if cohort is None else self.variants.get(cohort, self.default)

    async def start(self) -> None:
        """Start the engines. Raises UsageError for an engine that cannot work on this machine."""
        for engine in self.running:
            await engine.start()

    async def stop(self) -> None:
        """Stop the engines."""
        for engine in self.running:
            await engine.stop()


def build_engines(config: AssistantConfig, clock: Clock) -> Engines:
    """Create the engines that a configuration selects; its variants share recognizer, voice and cache. Raises
    UsageError."""
    configs = variant_configs(config)
    asr, tts, cache = _asr(config), _tts(config), _cache(config)
    vads = _vads() if config.vad == "silero" else None
    embedder = embedding_model() if config.embeds else None
    similar = None
    if embedder is not None and config.cache_similarity is not None:
        similar = SimilarQuestions(embedder, config.cache_similarity, compare_slots=config.cache_slots)

    def variant(own: AssistantConfig, space: str) -> ServedVariant:
        llm, open_vad = _llm(own, embedder, clock), EnergyVad if vads is None else vads.open
        return ServedVariant(own, clock, asr, llm, tts, cache, space, similar, open_vad)

    default = variant(config, "")
    variants: dict[str, ServedVariant] = {}
    for name, own in configs.items():
        # What another model answered is no answer of this one.
        answers_alike = all(getattr(own, setting) == getattr(config, setting) for setting in _ANSWER)
        variants[name] = default if own is config else variant(own, "" if answers_alike else f"{name}\n")
    llms = {id(served.llm): served.llm for served in (default, *variants.values())}
    running = (vads, asr, tts, embedder, *llms.values(), cache)
    return Engines(default, variants, tuple(engine for engine in running if engine is not None))


def variant_configs(config: AssistantConfig) -> dict[str, AssistantConfig]:
    """Configurations by the name of their variant; the control has the assistant's own. A `cohort` without settings of
    its own has the other `llm_stream`. Raises UsageError with a line for every fault."""
    configs = {} if config.variants is None else _read_variants(config, config.variants)
    if config.cohort is not None:
        other = config.model_copy(update={"llm_stream": not config.llm_stream})
        configs.setdefault(config.cohort.treatment, other)
    configs.setdefault(config.cohort_control, config)
    return configs


def _read_variants(config: AssistantConfig, file: Path) -> dict[str, AssistantConfig]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The variants {file} cannot be read: {error}.") from error
    configs: dict[str, AssistantConfig] = {}
    faults: list[str] = []
    for name, table in parse_toml(text, str(file)).table.items():
        if not isinstance(table, dict):
            faults.append(f"{file}: {name} is not a table; write the settings of a variant under [{name}].")
            continue
        try:
            configs[name] = config.with_variant(cast("Mapping[str, object]", table), f"{file}: {name}")
        except ConfigError as error:
            faults += [f"{error.where}.{fault}." for fault in error.faults]
    if faults:
        raise UsageError("\n".join(faults))
    return configs


def embedding_model() -> Embedder:
    """The model of embeddings, in a process of its own; the environment of real models must be installed."""
    command = environment.command(f"{_PROGRAMS}.minilm_worker")
    return WorkerEmbedder(
        EngineWorker("The model of embeddings", command, "use neither --cache-similarity nor --llm routed")
    )


def stays_here(by: str, threshold: float, embedder: Embedder | None) -> Callable[[str], Awaitable[bool]]:
    """Decide whether a question stays on this machine: by the examples of this package or, by privacy, by whether it
    has something in it that must not leave."""

    async def by_privacy(question: str) -> bool:
        return bool(marked_items(question))

    if by == "privacy" or embedder is None:
        return by_privacy
    examples = parse_toml(_EXAMPLES.read_text(encoding="utf-8"), _EXAMPLES.name).table
    local, cloud = (cast("list[str]", examples[kind]) for kind in ("local", "cloud"))
    return ExampleRouter(embedder, by, threshold, local, cloud).stays


def _asr(config: AssistantConfig) -> AsrEngine:
    if config.asr == "scripted":
        return ScriptedAsr(known_clips(config.corpus))
    if config.asr == "pocketsphinx":
        files = (str(config.asr_lm or ""), str(config.asr_dict or ""))
        command = (sys.executable, "-m", f"{_PROGRAMS}.pocketsphinx_worker", *files)
        name, mend = "pocketsphinx", "check --asr-lm and --asr-dict"
    else:
        command = environment.command(
            f"{_PROGRAMS}.whisper_worker", config.asr_precision, "1", str(int(config.asr_early))
        )
        name, mend = "Whisper", "choose --asr scripted"
    return WorkerAsr([EngineWorker(name, command, mend) for _ in range(config.asr_workers)])


def _vads() -> WorkerVads:
    command = environment.command(f"{_PROGRAMS}.silero_worker")
    return WorkerVads(EngineWorker("Silero", command, "choose --vad energy"))


def _tts(config: AssistantConfig) -> TtsEngine:
    if config.tts == "scripted":
        return ScriptedTts()
    if config.tts == "espeak":
        name, command = "espeak-ng", (sys.executable, "-m", f"{_PROGRAMS}.espeak_worker", config.tts_voice)
    else:
        name, command = "Piper", environment.command(f"{_PROGRAMS}.piper_worker")
    return WorkerTts(EngineWorker(name, command, "choose --tts scripted"))


def _llm(config: AssistantConfig, embedder: Embedder | None, clock: Clock) -> Llm:
    if config.llm in ("cloud", "routed") and config.llm_url is None:
        cloud = RuleLlm(config.cloud_ttft, config.cloud_gap, model=CLOUD_MODEL, route="cloud")
        if config.llm == "cloud":
            return cloud
        stays = stays_here(config.route_by, config.route_threshold, embedder)
        local = _llm(config.model_copy(update={"llm": "local"}), embedder, clock)
        return RoutedLlm(local, cloud, stays, clock.perf_ns, in_parallel=config.route_parallel)
    if config.llm_url is None and config.llm == "rules":
        return RuleLlm(config.llm_ttft or Delay(), config.llm_gap or Delay(), config.llm_parallel, config.llm_answer)
    # Imported only if used, so that the assistant starts quickly.
    from loadtest.targets.assistant.http_llm import HttpLlm, LlamaLlm

    body: dict[str, Any] = {} if config.llm_max_tokens is None else {"max_tokens": config.llm_max_tokens}
    instructions, batch = config.llm_instructions, config.llm_batch
    if config.llm_url is None:
        body |= {"cache_prompt": config.llm_prefix_cache, "temperature": 0.2, "seed": config.seed % 2**31}
        body["stream_options"] = {"include_usage": True}
        slots, drafts = config.llm_parallel or 1, config.llm_draft
        return LlamaLlm(slots, drafts=drafts, body=body, instructions=instructions, batch=batch)
    token = os.environ.get(config.llm_token_env, "").strip() or None
    if token is not None and not is_token(token):
        raise UsageError(f"{config.llm_token_env} holds no token: {TOKEN_RULE}.")
    model = config.llm_model
    return HttpLlm(config.llm_url, model, token=token, body=body, instructions=instructions, batch=batch)


def _cache(config: AssistantConfig) -> PromptCache | None:
    memory = MemoryCache(config.cache_ttl.ns, time.perf_counter_ns, tier=config.cache_tier or "edge")
    if config.cache_url is None:
        return None if config.cache == "off" else memory
    redis = RedisCache(config.cache_url, config.cache_ttl.ns, time.perf_counter_ns)
    if config.cache == "tiers":
        return TieredCache(memory, redis)
    redis.tier = config.cache_tier or redis.tier
    return redis

"""The assistant's configuration: every setting once, read from flags and a TOML file, all faults reported together.

A setting is called the same everywhere: the flag `--asr-delay` is the key `asr_delay` of the file. Flags win.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, StringConstraints

from loadtest.distributions import Delay, parse_delay
from loadtest.errors import UsageError
from loadtest.toml_text import TomlText, parse_toml
from telemetry.model.addresses import TOKEN_RULE, is_loopback, is_token
from telemetry.model.durations import Duration
from telemetry.model.errors import ConfigError
from telemetry.model.file_faults import FaultAt, nearest, path_text, shown
from telemetry.model.validation import CheckedTable, refused, validated

_MS: Final = 1_000_000
LLM_TOKEN_VARIABLE: Final = "VOICEPROBE_LLM_TOKEN"  # noqa: S105 - the name of a variable, not a token
Fault = Literal[
    "never-answer",  # accepts everything and answers nothing once the session has begun
    "garbage",  # sends invalid events instead of the reply's audio
    "drop-mid-turn",  # drops the connection in the middle of a reply
    "oversized-message",  # sends one message of 20 MiB before the reply's audio
    "unknown-messages",  # sends events of unknown types between the known ones
    "answer-before-question",  # speaks before the caller has spoken
    "wrong-rate",  # sends 8 kHz audio and declares another rate
    "half-open",  # accepts the TCP connection and never completes the upgrade
    "refuse",  # answers the upgrade with HTTP 503
    "slow-accept",  # waits three seconds before it completes the upgrade
]


def _is_drawn(key: str, share: float) -> bool:
    """Return whether a key is among a share of all keys: the same key always is or is not."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8]) < share * 2**64


@dataclass(frozen=True, slots=True)
class Assignment:
    """The cohort of a call; None without cohorts. `flag` is what is reported of the decision, by OpenTelemetry's names
    for the evaluation of a feature flag."""

    cohort: str | None = None
    flag: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class CohortSplit:
    """The split of calls: a `share` of them (0 to 1) is in `treatment`, the others are in `control`."""

    treatment: str
    share: float
    control: str = "control"
    salt: int = 0

    def assign(self, key: str) -> Assignment:
        """Return the cohort of a caller: the same key and salt always give the same cohort."""
        return Assignment(self.treatment if _is_drawn(f"{self.salt}:{key}", self.share) else self.control)


def _from_text(convert: Callable[[str], Any]) -> BeforeValidator:
    """A flag's value is text; what cannot be converted is refused with the sentence of the setting."""

    def read(value: object) -> object:
        return convert(value) if isinstance(value, str) else value

    return BeforeValidator(read)


def _read_token(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise refused("is empty or not text; text in quotes is expected (what is there is not shown, it may be secret)")
    token = value.strip()
    if not is_token(token):
        raise refused(f"holds no token: {TOKEN_RULE} (what is there is not shown, it may be secret)")
    return token


def _read_switch(value: object) -> bool:
    if value in (True, "true", "on", "yes"):
        return True
    if value in (False, "false", "off", "no"):
        return False
    raise ValueError("neither true nor false")


def _read_delay(value: object) -> Delay:
    if isinstance(value, Delay):
        return value
    if not isinstance(value, str) or not value:
        raise ValueError("not text")
    try:
        return parse_delay(value)
    except UsageError as error:
        raise refused(str(error)) from None


def _within(limits: tuple[Duration, Duration]) -> AfterValidator:
    def check(duration: Duration) -> Duration:
        low, high = limits
        if not low <= duration <= high:
            raise ValueError("out of range")
        return duration

    return AfterValidator(check)


def _whole_ms(duration: Duration) -> Duration:
    if duration.ns % _MS:
        raise ValueError("a fraction of a millisecond")
    return duration


def _read_url(*schemes: str) -> AfterValidator:
    def read(text: str) -> str:
        parts = urlsplit(text)
        if parts.scheme not in schemes or not parts.hostname:
            raise ValueError("not a URL")
        return text

    return AfterValidator(read)


def _read_cohort(value: object) -> CohortSplit:
    if not isinstance(value, str):
        raise ValueError("not text")  # noqa: TRY004 - pydantic asks for a ValueError
    name, _, share_text = value.partition("=")
    share = float(share_text)
    if not name or not 0 <= share <= 1:
        raise ValueError("not a name and a share")
    return CohortSplit(name, share)


def _read_file(value: object) -> Path:
    if not isinstance(value, str) or not value:
        raise ValueError("not text")
    try:
        path = Path(value).expanduser()
    except RuntimeError:  # ~nobody, where there is no such user
        path = Path(value)
    if not path.is_file():
        raise ValueError("not a file")
    return path


_Text = Annotated[str, StringConstraints(min_length=1)]
_Whole = Annotated[int, _from_text(int)]
_Number = Annotated[float, _from_text(float)]
_Switch = Annotated[bool, PlainValidator(_read_switch)]
_Delay = Annotated[Delay, PlainValidator(_read_delay)]
_HttpUrl = Annotated[_Text, _read_url("http", "https")]
_RedisUrl = Annotated[_Text, _read_url("redis", "rediss")]
_Duration = Annotated[Duration, PlainValidator(Duration.of_value)]
_File = Annotated[Path, PlainValidator(_read_file)]
_Token = Annotated[str, PlainValidator(_read_token)]
_Cohort = Annotated[CohortSplit, PlainValidator(_read_cohort)]

_Engines = Literal["scripted", "real"]
_Vad = Literal["energy", "silero"]
_Asr = Literal["scripted", "pocketsphinx", "whisper"]
_Precision = Literal["int8", "float32"]
_Llm = Literal["rules", "local", "cloud", "routed"]
_RouteBy = Literal["similarity", "confidence", "privacy"]
_Late = Literal["rule", "last", "append", "replace"]
_Guard = Literal["off", "before", "beside"]
_Tts = Literal["scripted", "espeak", "piper"]
_Cache = Literal["memory", "tiers", "off"]
_CacheTier = Literal["device", "edge", "central"]
_CacheKeys = Literal["exact", "words", "times"]

_A_DELAY: Final = "a distribution of times such as constant:60ms or lognormal:60ms:0.3 is expected"
_A_URL: Final = "a URL that begins with http:// or https:// is expected"
_A_REDIS_URL: Final = "a URL that begins with redis:// or rediss:// is expected"
_A_SWITCH: Final = "true or false is expected"
_A_COHORT: Final = "NAME=SHARE with a share from 0 to 1 is expected, such as treatment=0.5"
_A_FILE: Final = "a file that exists is expected"


def _setting(default: object, help_text: str, expected: str = "text is expected", **limits: Any) -> Any:
    return Field(default=default, title=help_text, description=expected, **limits)


def _whole(default: int | None, low: int, high: int, help_text: str) -> Any:
    return _setting(default, help_text, f"a whole number from {low} to {high} is expected", ge=low, le=high)


def _number(default: float, low: float, high: float, help_text: str) -> Any:
    return _setting(default, help_text, f"a number from {low:g} to {high:g} is expected", ge=low, le=high)


def _duration(default: str, limits: tuple[Duration, Duration], help_text: str, more: str = "") -> Any:
    low, high = limits
    return _setting(Duration.parse(default), help_text, f"a duration from {low} to {high}{more} is expected")


def _choice(names: Any, default: str | None, help_text: str) -> Any:
    return _setting(default, help_text, f"one of {', '.join(get_args(names))} is expected")


def _delay(default: Delay | None, help_text: str) -> Any:
    return _setting(default, help_text, _A_DELAY)


_LLM_WAIT: Final = (Duration.parse("1ms"), Duration.parse("10m"))
_TTS_CHUNK: Final = (Duration.parse("10ms"), Duration.parse("2s"))
_CACHE_TTL: Final = (Duration.parse("1ms"), Duration.parse("100000h"))

_ENDPOINT_DELAY: Final = Delay("constant", 30 * _MS)
_ASR_PARTIAL_DELAY: Final = Delay("lognormal", 450 * _MS, 0.25)
_ASR_PARTIAL_EVERY: Final = Delay("uniform", 200 * _MS, 400 * _MS)
_CACHE_DELAY: Final = Delay("constant", 5 * _MS)
# A model in the cloud has a tail: median 744 ms, and one answer in ten begins after 4.1 s.
_CLOUD_TTFT: Final = Delay("lognormal", 744 * _MS, 1.33)
_CLOUD_GAP: Final = Delay("constant", 15 * _MS)


class AssistantConfig(CheckedTable):
    """All settings with their defaults. Delays of None leave an engine's own duration."""

    kind_of_value = "table"

    host: _Text = _setting("127.0.0.1", "address to listen at; wider than loopback needs a token")
    port: _Whole = _whole(0, 0, 65535, "TCP port; 0 takes a free one, which the ready line names")
    share_port: _Switch = _setting(False, "let others listen on --port too; the system spreads calls", _A_SWITCH)
    token: _Token | None = _setting(None, "callers must present it as a bearer token (also VOICEPROBE_TOKEN)")
    max_sessions: _Whole = _whole(200, 1, 100_000, "calls at the same time; more are refused")
    seed: _Whole = _whole(1, 0, 2**63 - 1, "of everything that is drawn")
    run_id: _Text = _setting("", "run that service spans name where the caller does not say")
    otlp: _HttpUrl | None = _setting(None, "OTLP/HTTP collector for service spans", _A_URL)
    endpoint_delay: _Delay = _delay(_ENDPOINT_DELAY, "from the end of the silence waited for to the end of the turn")
    engines: _Engines = _choice(
        _Engines, "scripted", "real: Silero, Whisper, a small language model and Piper, unless chosen otherwise below"
    )
    vad: _Vad = _choice(_Vad, "energy", "what tells speech from other sound: levels, or the network Silero")
    asr: _Asr = _choice(_Asr, "scripted", "recognizer")
    asr_precision: _Precision = _choice(_Precision, "int8", "numbers that Whisper computes in")
    asr_early: _Switch = _setting(
        False, "recognize as soon as the caller pauses, before the turn has ended; of Whisper", _A_SWITCH
    )
    corpus: _Text | None = _setting(None, "corpora that the scripted recognizer knows (names or folders, by commas)")
    asr_delay: _Delay | None = _delay(None, "end of turn to final transcript, scripted")
    asr_partial_delay: _Delay = _delay(_ASR_PARTIAL_DELAY, "beginning of speech to the first partial transcript")
    asr_partial_every: _Delay = _delay(_ASR_PARTIAL_EVERY, "between further partial transcripts")
    asr_workers: _Whole = _whole(1, 1, 64, "recognizer processes; pocketsphinx: one for 10 to 15 callers")
    asr_lm: _File | None = _setting(None, "pocketsphinx language model instead of the general English one", _A_FILE)
    asr_dict: _File | None = _setting(None, "pocketsphinx dictionary instead of the general English one", _A_FILE)
    llm: _Llm = _choice(
        _Llm, "rules", "what answers without llm_url: rules, a small model, a cloud of declared timing, or both of them"
    )
    llm_url: _HttpUrl | None = _setting(None, "OpenAI-compatible endpoint that answers", _A_URL)
    llm_model: _Text = _setting("default", "model to ask for at --llm-url")
    llm_instructions: _Text | None = _setting(None, "the model's instructions, if the caller sends none")
    llm_max_tokens: _Whole | None = _whole(None, 1, 100_000, "tokens of an answer at most, of a model")
    llm_batch: _Whole = _whole(1, 1, 1_000, "pieces of a model's answer that are passed on together")
    llm_prefix_cache: _Switch = _setting(True, "let the local model keep what it has read of a prompt", _A_SWITCH)
    llm_draft: _Switch = _setting(
        False, "let the local model draft tokens from what its prompt has said before (speculative decoding)", _A_SWITCH
    )
    llm_sentences: _Whole | None = _whole(None, 1, 100, "sentences of an answer at most; the model is stopped then")
    llm_speculate: _Switch = _setting(False, "begin answers on partial transcripts, before the final one", _A_SWITCH)
    llm_guard: _Guard = _choice(
        _Guard, "off", "have the model check a question: before it answers, or during its answer"
    )
    llm_late: _Late = _choice(
        _Late,
        "rule",
        "said at llm_deadline: a rule's answer, the last answer again, or two sentences to which the answer is "
        "appended, or whose rest it replaces",
    )
    route_by: _RouteBy = _choice(
        _RouteBy, "similarity", "what decides with --llm routed which questions stay on this machine"
    )
    route_threshold: _Number = _number(0.9, 0, 1, "similarity or confidence from which on a question stays")
    route_parallel: _Switch = _setting(False, "let the local model begin while the route is decided", _A_SWITCH)
    cloud_ttft: _Delay = _delay(_CLOUD_TTFT, "final transcript to first token, of the declared cloud")
    cloud_gap: _Delay = _delay(_CLOUD_GAP, "between tokens, of the declared cloud")
    hop: _Delay | None = _delay(None, "declared cost of each call from the recognizer to the model to the voice")
    llm_token_env: _Text = _setting(LLM_TOKEN_VARIABLE, "environment variable with the endpoint's token")
    llm_ttft: _Delay | None = _delay(None, "final transcript to first token, of the rules")
    llm_gap: _Delay | None = _delay(None, "between tokens, of the rules")
    llm_parallel: _Whole | None = _whole(
        None, 1, 100_000, "answers written at the same time, of the rules or the local model; others wait"
    )
    llm_answer: _Text | None = _setting(None, "answer every question with these words, of the rules")
    llm_stream: _Switch = _setting(
        True, "feed the voice sentence by sentence; off waits for the whole answer", _A_SWITCH
    )
    llm_deadline: Annotated[_Duration, _within(_LLM_WAIT)] = _duration(
        "3s", _LLM_WAIT, "a first token later than this is a rule's answer"
    )
    llm_stall: Annotated[_Duration, _within(_LLM_WAIT)] = _duration(
        "5s", _LLM_WAIT, "an answer that stalls this long ends where it is"
    )
    tts: _Tts = _choice(_Tts, "scripted", "voice")
    tts_voice: _Text = _setting("en-us", "voice of espeak-ng")
    tts_delay: _Delay | None = _delay(None, "sentence to its first audio, scripted")
    tts_leading_silence: _Delay | None = _delay(None, "silence before the first audible sample, scripted")
    tts_chunk: Annotated[_Duration, _within(_TTS_CHUNK), AfterValidator(_whole_ms)] = _duration(
        "100ms", _TTS_CHUNK, "audio in one message", " in whole milliseconds"
    )
    tts_lookahead: _Whole = _whole(0, 0, 100, "tokens after a sentence that the voice waits for, for its melody")
    tts_pace: _Number = _number(1.5, 0, 1000, "times real time at which audio is sent; 0 sends at once")
    cache: _Cache = _choice(_Cache, "memory", "prompt cache in this process (tier edge); tiers: before cache_url")
    cache_tier: _CacheTier | None = _choice(
        _CacheTier, None, "tier that the first cache is (default: edge in this process, central in Redis)"
    )
    cache_keys: _CacheKeys = _choice(
        _CacheKeys, "words", "what is the same question: the same text, the same words, or the same words and times"
    )
    cache_similarity: _Number | None = _setting(
        None,
        "cosine from which on a similar question has the same answer",
        "a number from 0 to 1 is expected",
        ge=0,
        le=1,
    )
    cache_slots: _Switch = _setting(
        True, "a similar question needs the same numbers, days and opposites, too", _A_SWITCH
    )
    cache_url: _RedisUrl | None = _setting(None, "prompt cache in Redis instead (tier central)", _A_REDIS_URL)
    cache_ttl: Annotated[_Duration, _within(_CACHE_TTL)] = _duration("5m", _CACHE_TTL, "how long an answer is kept")
    cache_delay: _Delay = _delay(_CACHE_DELAY, "final transcript to first token on a hit")
    cohort: _Cohort | None = _setting(
        None,
        "NAME=SHARE of calls get the other --llm-stream",
        _A_COHORT,
    )
    cohort_control: _Text = _setting("control", "name of the other cohort")
    flags: _File | None = _setting(
        None, "file of flags (flagd) that assigns callers to cohorts, read again when changed", _A_FILE
    )
    flag: _Text = _setting("voice", "key of the flag in --flags whose variants are the cohorts")
    variants: _File | None = _setting(None, "TOML file: a table of settings for each cohort that has its own", _A_FILE)
    fault: Fault | None = _choice(Fault, None, "misbehave on purpose")
    fault_share: _Number = _number(1.0, 0, 1, "share of calls that misbehave")
    fault_seed: _Whole = _whole(1, 0, 2**63 - 1, "which calls those are")

    @property
    def asks_for_token(self) -> bool:
        """Whether the address can be reached from elsewhere."""
        return not is_loopback(self.host)

    @property
    def needs_models(self) -> bool:
        """Whether the environment of real models is needed."""
        local = self.llm in ("local", "routed") and self.llm_url is None
        return self.vad == "silero" or self.asr == "whisper" or self.tts == "piper" or local or self.embeds

    @property
    def embeds(self) -> bool:
        """Whether the model of embeddings is needed."""
        return self.cache_similarity is not None or (self.llm == "routed" and self.route_by != "privacy")

    @property
    def split(self) -> CohortSplit | None:
        """The cohorts, with the control's name and the seed."""
        if self.cohort is None:
            return None
        return CohortSplit(self.cohort.treatment, self.cohort.share, self.cohort_control, self.seed)

    def fault_of(self, call_index: int) -> Fault | None:
        """The fault of the n-th call of a server, or None; a repeated run affects the same calls."""
        return self.fault if _is_drawn(f"{self.fault_seed}:{call_index}", self.fault_share) else None

    def with_variant(self, table: Mapping[str, object], where: str) -> "AssistantConfig":
        """The configuration of a cohort whose settings of its own are in `table`. Raises ConfigError with every fault;
        `where` names the table."""
        known = {name: value for name, value in table.items() if name in VARIANT_SETTINGS}
        faults = [
            f"{name}: is not a setting of a variant{nearest(name, VARIANT_SETTINGS)}"
            for name in table
            if name not in known
        ]
        config, wrong = validated(AssistantConfig, known)
        faults += [f"{path_text(fault.path)}: {fault.sentence}" for fault in wrong]
        if faults or config is None:
            raise ConfigError(where, faults)
        own = {name: getattr(config, name) for name in known}
        if "llm_url" in own or own.get("llm", "rules") != "rules":
            own = {**dict.fromkeys(_RULES_ONLY), **own}
        config = self.model_copy(update=own)
        faults += [f"{path_text(fault.path)}: {fault.sentence}" for fault in _contradictions(config)]
        if faults:
            raise ConfigError(where, faults)
        return config


_REAL: Final = {"vad": "silero", "asr": "whisper", "llm": "local", "tts": "piper"}
_SCRIPTED_ONLY: Final = (
    ("asr_delay", "asr", "scripted"),
    ("tts_delay", "tts", "scripted"),
    ("tts_leading_silence", "tts", "scripted"),
)
_RULES_ONLY: Final = ("llm_ttft", "llm_gap", "llm_answer")
_OF_THE_CACHE: Final = ("cache_tier", "cache_similarity", "cache_url")
# What a variant may change; the other settings belong to the process.
VARIANT_SETTINGS: Final = (
    *("endpoint_delay", "asr_delay", "asr_partial_delay", "asr_partial_every"),
    *("llm_instructions", "llm_max_tokens", "llm_batch", "llm_prefix_cache", "llm_sentences", "llm_late"),
    *("llm", "llm_url", "llm_model", "llm_ttft", "llm_gap", "llm_parallel", "llm_answer"),
    *("llm_stream", "llm_deadline", "llm_stall", "tts_delay", "tts_leading_silence", "tts_pace"),
    *("cache_delay", "fault", "fault_share"),
)
_DEFAULT_DELAYS: Final[dict[str, Delay]] = {
    "asr_delay": Delay("lognormal", 60 * _MS, 0.3),
    "llm_ttft": Delay("lognormal", 220 * _MS, 0.3),
    "llm_gap": Delay("lognormal", 18 * _MS, 0.4),
    "tts_delay": Delay("lognormal", 70 * _MS, 0.3),
    "tts_leading_silence": Delay("constant", 20 * _MS),
}


def read_file(path: Path) -> TomlText:
    """The settings of a TOML file. Raises UsageError where it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The configuration {path} cannot be read: {error}.") from error
    return parse_toml(text, str(path))


def build_config(flags: Mapping[str, object], file: TomlText | None = None) -> AssistantConfig:
    """A configuration from settings by name; those of the file hold where no flag is given.

    Raises UsageError with one line for every fault there is.
    """
    given = {
        name: value for name, value in flags.items() if value is not None or name not in AssistantConfig.model_fields
    }
    table = file.table if file is not None else {}
    values = {**table, **given}
    if values.get("engines") == "real":
        values = {**_REAL, **values}
    checked, faults = validated(AssistantConfig, values)
    # What contradicts itself is looked for among the settings that can be used.
    faulty = {fault.path[0] for fault in faults}
    config = checked or AssistantConfig.model_validate({k: v for k, v in values.items() if k not in faulty})
    faults += _contradictions(config)
    if faults:
        file_faults = [fault for fault in faults if fault.path[0] in table and fault.path[0] not in given]
        lines = file.sentences(file_faults) if file is not None else []
        lines += [f"{path_text(fault.path)}: {fault.sentence}" for fault in faults if fault not in file_faults]
        raise UsageError("\n".join(line if line.endswith(".") else f"{line}." for line in lines))
    return config.model_copy(
        update={
            name: delay
            for name, delay in _DEFAULT_DELAYS.items()
            if getattr(config, name) is None and _applies(config, name)
        }
    )


def _applies(config: AssistantConfig, name: str) -> bool:
    if name in _RULES_ONLY:
        return config.llm_url is None and config.llm == "rules"
    return all(getattr(config, engine) == wanted for owned, engine, wanted in _SCRIPTED_ONLY if owned == name)


def _contradictions(config: AssistantConfig) -> list[FaultAt]:
    faults: list[FaultAt] = []
    if config.asks_for_token and config.token is None:
        sentence = f"is {shown(config.host)}, which can be reached from elsewhere; set a token, or listen at 127.0.0.1"
        faults.append(FaultAt(("host",), sentence))
    for name, engine, wanted in _SCRIPTED_ONLY:
        if getattr(config, name) is not None and not _applies(config, name):
            sentence = f"belongs to the {wanted} engine; leave it out, or set {engine} = '{wanted}'"
            faults.append(FaultAt((name,), sentence))
    faults += [
        FaultAt((name,), "belongs to the embedded rules; leave it out, or leave llm_url and llm out")
        for name in _RULES_ONLY
        if getattr(config, name) is not None and not _applies(config, name)
    ]
    if config.asr_early and config.asr != "whisper":
        faults.append(FaultAt(("asr_early",), f"has no effect with asr = {shown(config.asr)}; leave it out"))
    if config.cache == "off":
        needless = [name for name in _OF_THE_CACHE if getattr(config, name) is not None]
        faults += [FaultAt((name,), "has no effect with cache = 'off'; leave one of them out") for name in needless]
    if config.cache == "tiers" and config.cache_url is None:
        faults.append(FaultAt(("cache",), "needs a second tier; set cache_url, or choose memory"))
    if config.llm_parallel is not None and config.llm_url is not None:
        faults.append(FaultAt(("llm_parallel",), "is not for an endpoint, which decides itself; leave it out"))
    if config.flags is not None and config.cohort is not None:
        faults.append(FaultAt(("cohort",), "cannot be used with flags, which assign callers; leave one of them out"))
    if config.cohort is not None and config.cohort.treatment == config.cohort_control:
        sentence = f"names {shown(config.cohort_control)}, as cohort_control does; give them two names"
        faults.append(FaultAt(("cohort",), sentence))
    return faults

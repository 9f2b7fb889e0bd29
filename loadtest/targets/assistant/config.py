"""The assistant's configuration: every setting once, read from flags and from a TOML file, all faults told together.

A setting is called the same everywhere: the flag `--asr-delay` is the key `asr_delay` of the file. Flags win.
"""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final, get_type_hints
from urllib.parse import urlsplit

from loadtest.distributions import Delay, parse_delay
from loadtest.errors import UsageError
from loadtest.targets.assistant.cohorts import CohortSplit
from loadtest.targets.assistant.faults import FAULTS

_MS: Final = 1_000_000
_LLM_TOKEN_ENV: Final = "VOICEPROBE_LLM_TOKEN"  # noqa: S105 - the name of a variable, not a token
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise UsageError("is a text")
    return value


def _whole(low: int, high: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        try:
            number = value if isinstance(value, int) and not isinstance(value, bool) else int(str(value))
        except ValueError:
            number = low - 1
        if not low <= number <= high:
            raise UsageError(f"is a whole number from {low} to {high}")
        return number

    return read


def _number(low: float, high: float) -> Callable[[object], float]:
    def read(value: object) -> float:
        try:
            number = float(str(value))
        except ValueError:
            number = low - 1
        if not low <= number <= high:
            raise UsageError(f"is a number from {low:g} to {high:g}")
        return number

    return read


def _one_of(*names: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        if value not in names:
            raise UsageError(f"is one of {', '.join(names)}")
        return str(value)

    return read


def _switch(value: object) -> bool:
    if value in (True, "true", "on", "yes"):
        return True
    if value in (False, "false", "off", "no"):
        return False
    raise UsageError("is true or false")


def _delay(value: object) -> Delay:
    return parse_delay(_text(value))


def _url(*schemes: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        text = _text(value)
        parts = urlsplit(text)
        if parts.scheme not in schemes or not parts.hostname:
            raise UsageError(f"is a URL that begins with {' or '.join(f'{scheme}://' for scheme in schemes)}")
        return text

    return read


def _cohort(value: object) -> CohortSplit:
    name, _, share_text = _text(value).partition("=")
    try:
        share = float(share_text)
    except ValueError:
        share = -1.0
    if not name or not 0 <= share <= 1:
        raise UsageError("is NAME=SHARE with a share from 0 to 1, such as treatment=0.5")
    return CohortSplit(name, share)


def _file(value: object) -> Path:
    path = Path(_text(value)).expanduser()
    if not path.is_file():
        raise UsageError("is a file that exists")
    return path


@dataclass(frozen=True, slots=True)
class _Setting:
    """How a setting is read, and what it is."""

    read: Callable[[object], Any]
    help: str


_ENDPOINT_DELAY: Final = Delay("constant", 30 * _MS)
_ASR_PARTIAL_DELAY: Final = Delay("lognormal", 450 * _MS, 0.25)
_ASR_PARTIAL_EVERY: Final = Delay("uniform", 200 * _MS, 400 * _MS)
_CACHE_DELAY: Final = Delay("constant", 5 * _MS)


@dataclass(frozen=True, kw_only=True)
class AssistantConfig:
    """All settings with their defaults. Delays of None stand for an engine that takes the time it takes."""

    host: Annotated[str, _Setting(_text, "address to listen at; wider than loopback needs a token")] = "127.0.0.1"
    port: Annotated[int, _Setting(_whole(0, 65535), "TCP port; 0 takes a free one, which the ready line names")] = 0
    token: Annotated[
        str | None, _Setting(_text, "callers must present it as a bearer token (also VOICEPROBE_TOKEN)")
    ] = None
    max_sessions: Annotated[int, _Setting(_whole(1, 100_000), "calls at the same time; more are refused")] = 200
    seed: Annotated[int, _Setting(_whole(0, 2**63 - 1), "of everything that is drawn")] = 1
    run_id: Annotated[str, _Setting(_text, "run that service spans name where the caller does not say")] = ""
    otlp: Annotated[str | None, _Setting(_url("http", "https"), "OTLP/HTTP collector for service spans")] = None
    endpoint_delay: Annotated[
        Delay, _Setting(_delay, "from the end of the silence waited for to the end of the turn")
    ] = _ENDPOINT_DELAY
    asr: Annotated[str, _Setting(_one_of("scripted", "pocketsphinx"), "recognizer")] = "scripted"
    corpus: Annotated[
        str | None, _Setting(_text, "corpora that the scripted recognizer knows (names or folders, by commas)")
    ] = None
    asr_delay: Annotated[Delay | None, _Setting(_delay, "end of turn to final transcript, scripted")] = None
    asr_partial_delay: Annotated[Delay, _Setting(_delay, "beginning of speech to the first partial transcript")] = (
        _ASR_PARTIAL_DELAY
    )
    asr_partial_every: Annotated[Delay, _Setting(_delay, "between further partial transcripts")] = _ASR_PARTIAL_EVERY
    asr_workers: Annotated[int, _Setting(_whole(1, 64), "pocketsphinx processes; one holds 10 to 15 callers")] = 1
    asr_lm: Annotated[
        Path | None, _Setting(_file, "pocketsphinx language model instead of the general English one")
    ] = None
    asr_dict: Annotated[Path | None, _Setting(_file, "pocketsphinx dictionary instead of the general English one")] = (
        None
    )
    llm_url: Annotated[
        str | None, _Setting(_url("http", "https"), "OpenAI-compatible endpoint; without it, rules answer")
    ] = None
    llm_model: Annotated[str, _Setting(_text, "model to ask for at --llm-url")] = "default"
    llm_token_env: Annotated[str, _Setting(_text, "environment variable with the endpoint's token")] = _LLM_TOKEN_ENV
    llm_ttft: Annotated[Delay | None, _Setting(_delay, "final transcript to first token, of the rules")] = None
    llm_gap: Annotated[Delay | None, _Setting(_delay, "between tokens, of the rules")] = None
    llm_parallel: Annotated[
        int | None, _Setting(_whole(1, 100_000), "answers written at the same time, of the rules; others wait")
    ] = None
    llm_stream: Annotated[
        bool, _Setting(_switch, "feed the voice sentence by sentence; off waits for the whole answer")
    ] = True
    llm_deadline_ms: Annotated[
        int, _Setting(_whole(1, 600_000), "a first token later than this is a rule's answer")
    ] = 3000
    llm_stall_ms: Annotated[int, _Setting(_whole(1, 600_000), "an answer that stalls this long ends where it is")] = (
        5000
    )
    tts: Annotated[str, _Setting(_one_of("scripted", "espeak"), "voice")] = "scripted"
    tts_voice: Annotated[str, _Setting(_text, "voice of espeak-ng")] = "en-us"
    tts_delay: Annotated[Delay | None, _Setting(_delay, "sentence to its first audio, scripted")] = None
    tts_leading_silence: Annotated[
        Delay | None, _Setting(_delay, "silence before the first audible sample, scripted")
    ] = None
    tts_chunk_ms: Annotated[int, _Setting(_whole(10, 2000), "audio in one message")] = 100
    tts_pace: Annotated[
        float, _Setting(_number(0, 1000), "times real time at which audio is sent; 0 sends at once")
    ] = 1.5
    cache: Annotated[str, _Setting(_one_of("memory", "off"), "prompt cache in this process (tier edge)")] = "memory"
    cache_url: Annotated[
        str | None, _Setting(_url("redis", "rediss"), "prompt cache in Redis instead (tier central)")
    ] = None
    cache_ttl_s: Annotated[float, _Setting(_number(0.001, 1e9), "how long an answer is kept")] = 300.0
    cache_delay: Annotated[Delay, _Setting(_delay, "final transcript to first token on a hit")] = _CACHE_DELAY
    cohort: Annotated[CohortSplit | None, _Setting(_cohort, "NAME=SHARE of calls get the other --llm-stream")] = None
    cohort_control: Annotated[str, _Setting(_text, "name of the other cohort")] = "control"
    fault: Annotated[str | None, _Setting(_one_of(*FAULTS), "misbehave on purpose")] = None
    fault_share: Annotated[float, _Setting(_number(0, 1), "share of calls that misbehave")] = 1.0
    fault_seed: Annotated[int, _Setting(_whole(0, 2**63 - 1), "which calls those are")] = 1

    @property
    def asks_for_token(self) -> bool:
        """Whether the address can be reached from elsewhere."""
        return self.host not in _LOOPBACK

    @property
    def split(self) -> CohortSplit | None:
        """The cohorts, with the control's name and the seed."""
        if self.cohort is None:
            return None
        return CohortSplit(self.cohort.treatment, self.cohort.share, self.cohort_control, self.seed)


_SCRIPTED_ONLY: Final = (
    ("asr_delay", "asr", "scripted"),
    ("tts_delay", "tts", "scripted"),
    ("tts_leading_silence", "tts", "scripted"),
)
_RULES_ONLY: Final = ("llm_ttft", "llm_gap", "llm_parallel")
_DEFAULT_DELAYS: Final[dict[str, Delay]] = {
    "asr_delay": Delay("lognormal", 60 * _MS, 0.3),
    "llm_ttft": Delay("lognormal", 220 * _MS, 0.3),
    "llm_gap": Delay("lognormal", 18 * _MS, 0.4),
    "tts_delay": Delay("lognormal", 70 * _MS, 0.3),
    "tts_leading_silence": Delay("constant", 20 * _MS),
}


def _settings() -> dict[str, _Setting]:
    hints = get_type_hints(AssistantConfig, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items()}


def help_texts() -> dict[str, str]:
    """What each setting is, by its name in the file."""
    return {name: setting.help for name, setting in _settings().items()}


def read_file(path: Path) -> dict[str, object]:
    """The settings of a TOML file. Raises UsageError where it cannot be read."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The configuration {path} cannot be read: {error}.") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"The configuration {path} is not TOML: {error}.") from error


def build_config(values: Mapping[str, object]) -> AssistantConfig:
    """A configuration from settings by name. Raises UsageError with one line for every fault there is."""
    known = _settings()
    faults = [f"{name} is no setting of the assistant; `--help` lists them." for name in values if name not in known]
    read: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known or value is None:
            continue
        try:
            read[name] = known[name].read(value)
        except UsageError as error:
            shown = "…" if name == "token" else repr(value)
            faults.append(f"{name} = {shown}: {_sentence(str(error))}")
    config = AssistantConfig(**read)
    faults += _contradictions(config)
    if faults:
        raise UsageError("\n".join(faults))
    defaults: dict[str, Any] = {
        name: delay
        for name, delay in _DEFAULT_DELAYS.items()
        if getattr(config, name) is None and _applies(config, name)
    }
    return replace(config, **defaults)


def _applies(config: AssistantConfig, name: str) -> bool:
    if name in _RULES_ONLY:
        return config.llm_url is None
    return all(getattr(config, engine) == wanted for owned, engine, wanted in _SCRIPTED_ONLY if owned == name)


def _contradictions(config: AssistantConfig) -> list[str]:
    faults: list[str] = []
    if config.asks_for_token and config.token is None:
        faults.append(f"host = {config.host!r} can be reached from elsewhere: set a token, or listen at 127.0.0.1.")
    for name, engine, wanted in _SCRIPTED_ONLY:
        if getattr(config, name) is not None and not _applies(config, name):
            faults.append(f"{name} belongs to the {wanted} engine: leave it out, or set {engine} = '{wanted}'.")
    faults += [
        f"{name} belongs to the embedded rules: leave it out, or leave llm_url out."
        for name in _RULES_ONLY
        if getattr(config, name) is not None and config.llm_url is not None
    ]
    if config.cohort is not None and config.cohort.treatment == config.cohort_control:
        faults.append(f"cohort and cohort_control are both called '{config.cohort_control}': give them two names.")
    return faults


def _sentence(text: str) -> str:
    if text.startswith("is "):
        return f"this setting {text}."
    return text

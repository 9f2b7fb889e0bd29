"""Takes the cohort of a caller from a feature flag: OpenFeature, with flagd's provider reading the file of flags.

The provider looks at the file twice a second, in a thread of its own. A decision is a computation in memory. A file
that cannot be used leaves the last good one in force, and is reported once.
"""

import logging
import threading
import uuid
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final

from openfeature import api
from openfeature.client import OpenFeatureClient
from openfeature.contrib.provider.flagd import FlagdProvider
from openfeature.contrib.provider.flagd.config import ResolverType
from openfeature.contrib.tools.flagd.core import FlagdCore
from openfeature.evaluation_context import EvaluationContext
from openfeature.event import EventDetails, ProviderEvent
from openfeature.exception import OpenFeatureError
from openfeature.flag_evaluation import FlagEvaluationDetails, FlagResolutionDetails

from loadtest.errors import UsageError
from loadtest.flag_file import flag_of, read_flags, unknown_variants, variants_of
from loadtest.targets.assistant.config import Assignment
from telemetry.model import semconv
from telemetry.model.errors import ConfigError

_logger = logging.getLogger(__name__)
LOOK_EVERY_MS: Final = 500
_PROBES: Final = 32  # callers that a file is tried with: a rule that fails for some is no good file
# The provider reports a file that it cannot read at every look, with a stack; one sentence is ours to give.
_PROVIDER_LOGGER: Final = "openfeature.contrib"

_Details = FlagEvaluationDetails[Any] | FlagResolutionDetails[Any]


class FlagAssigner:
    """Assigns callers by the flag `key` of a file; `start` must be called first.

    `control` is the cohort of those for whom the flag says nothing; `variants` have settings.
    """

    def __init__(self, file: Path, key: str, control: str, variants: Collection[str]) -> None:
        self._file = file
        self._key = key
        self._control = control
        self._variants = frozenset(variants)
        self._domain = f"assistant-{uuid.uuid4().hex}"
        self._client: OpenFeatureClient = api.get_client(self._domain)
        self._provider = ""
        self._fault: str | None = None
        self._kind = "string"
        # What is in force while the provider has a file that cannot be used.
        self._last_good = FlagdCore()
        self._lock = threading.Lock()

    def start(self) -> None:
        """Read the file. Raises UsageError with every fault of it."""
        try:
            self._load()
        except ConfigError as error:
            raise UsageError("\n".join(f"{error.where}: {fault}." for fault in error.faults)) from None
        logging.getLogger(_PROVIDER_LOGGER).setLevel(logging.CRITICAL + 1)
        provider = FlagdProvider(
            resolver_type=ResolverType.FILE,
            offline_flag_source_path=str(self._file),
            deadline_ms=LOOK_EVERY_MS,
        )
        api.set_provider_and_wait(provider, self._domain)
        self._provider = self._client.provider.get_metadata().name
        for event in (ProviderEvent.PROVIDER_CONFIGURATION_CHANGED, ProviderEvent.PROVIDER_ERROR):
            self._client.add_handler(event, self._file_changed)

    def assign(self, key: str) -> Assignment:
        """Return the cohort of a caller. Called on the event loop: it neither waits nor reads files."""
        context = EvaluationContext(targeting_key=key)
        details = None
        if self._fault is None:
            getter: Callable[..., _Details] = getattr(self._client, f"get_{self._kind}_details")
            details = getter(self._key, _DEFAULTS[self._kind], context)
        if (
            details is None
            or details.error_code is not None
            or (details.variant or self._control) not in self._variants
        ):
            details = _resolved(self._last_good, self._kind, self._key, context)
        return Assignment(details.variant or self._control, self._reported(details))

    def stop(self) -> None:
        """Stop the provider."""
        for event in (ProviderEvent.PROVIDER_CONFIGURATION_CHANGED, ProviderEvent.PROVIDER_ERROR):
            self._client.remove_handler(event, self._file_changed)
        self._client.provider.shutdown()

    def _reported(self, details: _Details) -> Mapping[str, str]:
        reported = {
            semconv.FEATURE_FLAG_KEY: self._key,
            semconv.FEATURE_FLAG_PROVIDER_NAME: self._provider,
            semconv.FEATURE_FLAG_RESULT_VARIANT: details.variant or self._control,
        }
        if details.reason is not None:
            reported[semconv.FEATURE_FLAG_RESULT_REASON] = str(details.reason).lower()
        return reported

    def _file_changed(self, details: EventDetails) -> None:
        """Accept the new file as the last good one, or report its faults once. Runs in the provider's thread."""
        del details
        with self._lock:
            try:
                self._load()
            except ConfigError as error:
                fault = str(error)
                if fault != self._fault:
                    _logger.warning("%s; the flags read before stay in force.", fault)
                self._fault = fault
                return
            if self._fault is not None:
                _logger.warning("%s can be used again, and its flags are in force.", self._file)
            self._fault = None

    def _load(self) -> None:
        """Keep the file as the last good one. Raises ConfigError if it is not."""
        where = str(self._file)
        try:
            document = read_flags(self._file.read_bytes(), where)
        except OSError as error:
            raise ConfigError(where, [f"cannot be read: {error.strerror or error}"]) from None
        flag = flag_of(document, self._key, where)
        faults = unknown_variants(flag, self._key, self._variants)
        kind = _kind_of(flag["variants"].values())
        if kind is None:
            faults.append(f"flags.{self._key}.variants have values of several types; flagd wants one type")
        if faults or kind is None:
            raise ConfigError(where, faults)
        core = FlagdCore()
        try:
            core.set_flags(document)
            for probe in range(_PROBES):
                _resolved(core, kind, self._key, EvaluationContext(targeting_key=f"probe-{probe}"))
        except (OpenFeatureError, ValueError, TypeError, KeyError, ReferenceError) as error:
            reason = getattr(error, "error_message", None) or error
            raise ConfigError(where, [f"flags.{self._key} cannot be evaluated: {reason}"]) from None
        known = ", ".join(variants_of(flag))
        _logger.info("Flag %s has the variants %s.", self._key, known)
        self._last_good, self._kind = core, kind


_DEFAULTS: Final[dict[str, Any]] = {"string": "", "boolean": False, "float": 0.0, "object": {}}


def _kind_of(values: Collection[object]) -> str | None:
    """The type that flagd's getters have for such values; None where they have several."""
    kinds = {
        "boolean"
        if isinstance(value, bool)
        else "float"
        if isinstance(value, int | float)
        else "string"
        if isinstance(value, str)
        else "object"
        for value in values
    }
    return kinds.pop() if len(kinds) == 1 else None


def _resolved(core: FlagdCore, kind: str, key: str, context: EvaluationContext) -> FlagResolutionDetails[Any]:
    resolve: Callable[..., FlagResolutionDetails[Any]] = getattr(core, f"resolve_{kind}_value")
    return resolve(key, _DEFAULTS[kind], context)

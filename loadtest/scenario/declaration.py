"""Declaration of a run by one of its processes in its `voice.run` span: all that a report needs and no turn carries.
Pure.

Values are plain or JSON text, as span attributes are; what was not asked for is left out.
"""

import json
import math
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from corpora.annotation.exact_end import FADE_S
from corpora.manifest.library import Corpus
from loadtest.distributions import Delay
from loadtest.protocols.address import public_target
from loadtest.scenario.options import OPTIONS
from loadtest.scenario.sections import CitationSection
from loadtest.scenario.settings import SwarmSettings

Declared = dict[str, str | int | float | bool]
_PACKAGES: Final = ("voiceprobe", "locust", "gevent", "opentelemetry-sdk", "duckdb")


@dataclass(frozen=True, slots=True)
class AskedLoad:
    """The load asked of the whole run: callers, time (None where nothing bounds it), processes that share them."""

    users: int = 1
    run_time_s: float | None = None
    processes: int = 1


NOT_ASKED: Final = AskedLoad()


def declaration(settings: SwarmSettings, corpus: Corpus, utterances: int, load: AskedLoad) -> Declared:
    """Return what every process of the run declares alike."""
    phases = settings.phases
    users, run_time_s = load.users, load.run_time_s
    if settings.scenario.phases:
        run_time_s = phases[-1].end_s
        if not settings.has_open_arrivals:
            users = math.ceil(max(max(phase.level_from, phase.level_to) for phase in phases))
    if settings.has_open_arrivals:
        users = max(1, load.processes)  # Locust's users only wait: one in each process
    declared: dict[str, str | int | float | bool | None] = {
        **_values(settings),
        "target": public_target(settings.host),
        "corpus": corpus.name,
        "corpus_kind": corpus.kind,
        "edges": corpus.edges,
        "fade_ms": FADE_S * 1000 if corpus.edges == "exact" else None,
        "licenses": json.dumps(sorted({utterance.license for utterance in corpus.utterances})),
        "utterances": utterances,
        "profile": settings.profile_label,
        **_profile(settings),
        "users": users,
        "run_time_s": None if run_time_s is None else float(run_time_s),
        "processes": load.processes,
        "arrivals": settings.arrivals_label,
        "max_calls": settings.max_calls if settings.has_open_arrivals else None,
        "keep_for_s": settings.keep_for.seconds if settings.keep_audio or settings.keep_text else None,
        "recordings": settings.recordings if settings.keep_audio or settings.keep_text else None,
        "versions": json.dumps(_versions()),
    }
    return {name: value for name, value in declared.items() if value is not None}


def _values(settings: SwarmSettings) -> dict[str, Any]:
    """The values by the names that their fields give, plain or as text; None where one asks for nothing."""
    values: dict[str, Any] = {name: getattr(settings, name) for name in CitationSection.model_fields}
    for option in OPTIONS:
        value = getattr(settings, option.name)
        if isinstance(value, Delay):
            value = str(value)
        if option.declared:
            values[option.declared] = None if isinstance(value, bool | float) and not value else value
    return {**values, "barge_in_share": sum(barge_in.share for barge_in in settings.behavior.barge_in) or None}


def _profile(settings: SwarmSettings) -> dict[str, str | float | None]:
    """The one profile in parts; of several, each is named with its share, and turns say which was theirs."""
    profiles = settings.profiles
    if len(profiles) != 1:
        return {"channel": settings.profile_label}
    profile = profiles[0][0]
    noise = None if profile.noise is None else profile.noise_label
    return {"noise": noise, "snr_db": profile.snr_db, "channel": profile.channel_label}


def _versions() -> dict[str, str]:
    versions: dict[str, str] = {}
    for name in _PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions

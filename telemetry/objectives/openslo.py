"""Objectives from a file in the OpenSLO format (openslo/v1, kind SLO, `ratioMetric`); every fault is reported at once.

good.metricSource:  type: voiceprobe, spec: one of
    metric: voice_to_voice   with   threshold: 800ms        a duration, or a number for a metric without unit s
    outcome: ok   or   outcome: [ok, interrupted]
    fallback: none                                          answered without a fallback
    cache: hit                                              answered from a cache, of the turns that say
  and optionally  cohort, length, noise, channel, route     only such turns count
total.metricSource: type: voiceprobe, spec: {turns: eligible}
objectives: one, with  target: 0.95  or  targetPercent: 95
timeWindow: one, rolling, of 28 days, or none

Documents of OpenSLO's other kinds, and alertPolicies, are passed over, with a line in the log.
"""

from __future__ import annotations

import logging
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING

from telemetry.model.errors import ConfigError
from telemetry.objectives.error_budgets import PERIOD
from telemetry.objectives.objective import Objective

if TYPE_CHECKING:
    from telemetry.objectives.openslo_document import SloDocument
    from telemetry.objectives.yaml_documents import Document

_log = logging.getLogger(__name__)


def parse_objectives(text: str, where: str) -> list[Objective]:
    """The objectives of a multi-document OpenSLO text. Raises ConfigError with every fault; `where` names the file."""
    # Imported when a file is read: pydantic takes as long as a tenth of all that `voiceprobe --help` does.
    from telemetry.objectives.openslo_document import (
        faults_with_places,
        no_objective,
        not_read,
        other_kind,
        read_document,
    )
    from telemetry.objectives.yaml_documents import read_documents

    faults: list[str] = []
    objectives: list[Objective] = []
    first_use: dict[str, int] = {}
    passed_over: list[str] = []
    others: list[Document] = []
    for document in read_documents(text, where):
        if (kind := other_kind(document.value)) is not None:
            others.append(document)
            passed_over.append(f"{kind} (document {document.number})")
            continue
        model, found = read_document(document, first_use)
        faults += faults_with_places(document, found)
        if model is not None:
            objectives.append(_objective(model))
            passed_over += [f"{key} of {model.metadata.name}" for key in not_read(model)]
    if not objectives and not faults:
        faults += [fault for other in others for fault in faults_with_places(other, [no_objective(other)])]
    if not objectives and not faults:
        faults.append("holds no objective; add a document with apiVersion: openslo/v1 and kind: SLO")
    if faults:
        raise ConfigError(where, faults)
    if passed_over:
        _say_once(f"{where}: passed over, as no objective is in it: {', '.join(passed_over)}")
    return objectives


@cache
def _say_once(sentence: str) -> None:
    """A file is read again whenever a page or a command needs it."""
    _log.warning("%s", sentence)


def _objective(document: SloDocument) -> Objective:
    spec, metadata = document.spec, document.metadata
    good = spec.indicator.spec.ratio_metric.good.metric_source.spec
    wanted = spec.objectives[0]
    target, whole = (wanted.target, 1) if "target" in wanted.model_fields_set else (wanted.target_percent, 100)
    return Objective(
        name=metadata.name,
        kind=good.kind,
        target=float(Fraction(str(target)) / whole),
        metric=good.metric or None,
        threshold=good.bound,
        outcomes=tuple(good.outcome),
        cohort=good.cohort or None,
        length_class=good.length or None,
        noise_profile=good.noise or None,
        channel_profile=good.channel or None,
        route=good.route or None,
        display_name=metadata.display_name,
        description=spec.description,
        window=PERIOD if spec.time_window else None,
    )

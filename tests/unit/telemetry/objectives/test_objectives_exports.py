"""Objectives as documents of Sloth and of Pyrra: by the rules of their published schemas, and with names that fit."""

import re
from typing import Any

import pytest
import yaml

from telemetry.objectives.error_budgets import window_ms
from telemetry.objectives.exports import identifier, pyrra_text, sloth_text
from telemetry.objectives.objective import Objective
from telemetry.objectives.slo import default_objectives

ODD = Objective('a"}\n{{ $x }} É', "outcome", 0.999, outcomes=("ok",), window="7d")
OBJECTIVES = [*default_objectives(), ODD]
# A metric with matchers and nothing else: the only thing that Pyrra takes.
SELECTOR = re.compile(r'[a-z_:][a-z0-9_:]*\{(?:[a-z_]+="(?:[^"\\]|\\.)*",?)*\}')
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
# github.com/slok/sloth, pkg/prometheus/api/v1: names of fields with their types, of what is written.
SLOTH: dict[str, Any] = {
    "version": str,
    "service": str,
    "labels": {"source": str},
    "slos": [
        {
            "name": str,
            "objective": float,
            "description": str,
            "sli": {"events": {"error_query": str, "total_query": str}},
            "alerting": {
                "name": str,
                "labels": {"objective": str},
                "annotations": {"summary": str},
                "page_alert": {"labels": {"severity": str}},
                "ticket_alert": {"labels": {"severity": str}},
            },
        }
    ],
}
# github.com/pyrra-dev/pyrra, config/crd/bases/pyrra.dev_servicelevelobjectives.yaml.
PYRRA: dict[str, Any] = {
    "apiVersion": str,
    "kind": str,
    "metadata": {"name": str, "namespace": str, "labels": {"prometheus": str, "role": str}},
    "spec": {
        "description": str,
        "target": str,
        "window": str,
        "indicator": {"ratio": {"errors": {"metric": str}, "total": {"metric": str}}},
        "alerting": {"name": str, "absentName": str},
    },
}


def _fits(found: Any, expected: Any, where: str) -> None:
    if isinstance(expected, dict):
        assert set(found) == set(expected), where
        for name, part in expected.items():
            _fits(found[name], part, f"{where}.{name}")
    elif isinstance(expected, list):
        assert found, where
        for each in found:
            _fits(each, expected[0], f"{where}[]")
    else:
        assert isinstance(found, expected), (where, found)


def test_sloths_document_is_one_of_its_version() -> None:
    document = yaml.safe_load(sloth_text(OBJECTIVES))
    _fits(document, SLOTH, "sloth")
    assert document["version"] == "prometheus/v1"
    names = [each["name"] for each in document["slos"]]
    assert len(set(names)) == len(names) == len(OBJECTIVES)
    for slo, objective in zip(document["slos"], OBJECTIVES, strict=True):
        assert NAME.fullmatch(slo["name"])
        assert slo["objective"] == pytest.approx(objective.target * 100)
        assert 0 < slo["objective"] <= 100
        for query in slo["sli"]["events"].values():
            assert query.count("{{.window}}") == 1
            # Whatever else looks like a template of Go stands for its own braces.
            assert "{{ $x" not in query.replace('{{ "{{" }} $x', "")
    assert document["slos"][-1]["objective"] == 99.9


def test_pyrras_documents_are_of_its_kind() -> None:
    documents = list(yaml.safe_load_all(pyrra_text(OBJECTIVES)))
    assert len(documents) == len(OBJECTIVES)
    for document, objective in zip(documents, OBJECTIVES, strict=True):
        _fits(document, PYRRA, "pyrra")
        assert (document["apiVersion"], document["kind"]) == ("pyrra.dev/v1alpha1", "ServiceLevelObjective")
        assert NAME.fullmatch(document["metadata"]["name"])
        spec = document["spec"]
        assert float(spec["target"]) == pytest.approx(objective.target * 100)
        assert window_ms(spec["window"]) == window_ms(objective.window or "28d")
        metrics = [part["metric"] for part in spec["indicator"]["ratio"].values()]
        assert all(SELECTOR.fullmatch(metric) for metric in metrics), metrics
        assert metrics[0] != metrics[1]


def test_names_that_differ_stay_different() -> None:
    given = ["voice-to-voice", "Voice to voice", "voice--to-voice", "é", "è", "", "x" * 70, "x" * 71, "-a"]
    found = [identifier(each) for each in given]
    assert found[0] == given[0]
    assert len(set(found)) == len(given)
    assert all(NAME.fullmatch(each) for each in found), found


def test_without_objectives_there_is_no_document() -> None:
    for write in (sloth_text, pyrra_text):
        with pytest.raises(ValueError, match="no objectives"):
            write([])

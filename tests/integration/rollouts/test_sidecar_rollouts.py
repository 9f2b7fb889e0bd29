"""A real sidecar evaluates rollouts; what Argo Rollouts and Flagger make of its answers by their documented rules.

Their rules are written here independently: Argo's measurement of a web metric, and what Flagger makes of the status of
a webhook.
"""

import ast
import json
import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import yaml

from telemetry.store.reader import RemoteStore, StoreReader
from tests.fixtures_rollouts import PLAN_FILE, fill_rollout_store, read_rollouts
from tests.fixtures_sidecar import ROOT, SidecarProcess, running_sidecar
from tests.integration.waiting import wait_until
from tests.nightly import nightly_after

TOKEN = "a-token-for-this-test"
EXAMPLES = ROOT / "examples" / "rollouts"


@contextmanager
def evaluating(folder: Path, kind: str) -> Generator[SidecarProcess]:
    """A sidecar whose rollout is to be promoted, rolled back or held."""
    store = folder / "store"
    if not store.exists():
        fill_rollout_store(store, kind)
    (folder / "rollout.toml").write_text(PLAN_FILE)
    arguments = ("--rollout", str(folder / "rollout.toml"), "--rollout-every", "1")
    with running_sidecar(store, *arguments, token=TOKEN) as sidecar:
        yield sidecar


def ask(sidecar: SidecarProcess, method: str, path: str, **request: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    return httpx.request(method, f"{sidecar.http}/v1/rollouts/streaming/{path}", headers=headers, timeout=60, **request)


def evaluated(sidecar: SidecarProcess) -> dict[str, Any]:
    wait_until(lambda: ask(sidecar, "GET", "verdict").status_code == 200, what="a verdict")
    return ask(sidecar, "GET", "verdict").json()


def holds(condition: str, result: Any) -> bool:
    """A condition of Argo: members of `result`, texts, `==`, `!=`, and `&&` before `||`, as Python parses them."""
    tree = ast.parse(condition.replace("&&", " and ").replace("||", " or "), mode="eval")
    return _value(tree.body, result)


def _value(node: ast.expr, result: Any) -> Any:
    match node:
        case ast.BoolOp(op=op, values=values):
            return (all if isinstance(op, ast.And) else any)([_value(value, result) for value in values])
        case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq() as op], comparators=[right]):
            return (_value(left, result) == _value(right, result)) == isinstance(op, ast.Eq)
        case ast.Attribute(value=value, attr=name):
            return _value(value, result)[name]
        case ast.Name(id="result"):
            return result
        case ast.Constant(value=text):
            return text
        case _:
            raise AssertionError(f"{ast.dump(node)} is no part of a condition")


def measured(metric: dict[str, Any], arguments: dict[str, str]) -> str:
    """The phase of one measurement of a web metric."""

    def filled(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: filled(member) for name, member in value.items()}
        if isinstance(value, list):
            return [filled(element) for element in value]
        return re.sub(r"{{\s*args\.([\w-]+)\s*}}", lambda match: arguments[match[1]], str(value))

    metric = filled(metric)
    web = metric["provider"]["web"]
    assert web["jsonPath"] == "{$}"
    headers = {header["key"]: header["value"] for header in web["headers"]}
    content = None if "jsonBody" not in web else json.dumps(web["jsonBody"])
    answer = httpx.request(web.get("method", "GET"), web["url"], headers=headers, content=content, timeout=60)
    if not 200 <= answer.status_code < 300:
        return "Error"
    is_success = holds(metric["successCondition"], answer.json())
    # Without a failure condition, what is no success has failed.
    is_failure = holds(metric["failureCondition"], answer.json()) if "failureCondition" in metric else not is_success
    return "Failed" if is_failure else "Successful" if is_success else "Inconclusive"


def _argo_metric(name: str) -> dict[str, Any]:
    template = yaml.safe_load((EXAMPLES / "argo-analysis.yaml").read_text())
    (metric,) = [candidate for candidate in template["spec"]["metrics"] if candidate["name"] == name]
    return metric


def _flagger_passes(sidecar: SidecarProcess, type_: str, token: str = TOKEN) -> bool:
    """Whether a webhook of the example passes: any status up to 202."""
    canary = yaml.safe_load((EXAMPLES / "flagger-canary.yaml").read_text())
    (hook,) = [webhook for webhook in canary["spec"]["analysis"]["webhooks"] if webhook["type"] == type_]
    payload = {"name": "assistant", "namespace": "voice", "phase": "Progressing", "checksum": "1"}
    path = hook["url"].removeprefix("http://voiceprobe-sidecar.voice:4318")
    metadata = {**hook["metadata"], "token": token}
    answer = httpx.post(sidecar.http + path, json={**payload, "metadata": metadata}, timeout=60)
    return answer.status_code <= 202


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "verdict", "phase", "passing"),
    nightly_after(
        1,
        [
            ("worse", "roll_back", "Failed", {"rollback"}),
            ("equal", "promote", "Successful", {"confirm-promotion"}),
            ("few", "hold", "Inconclusive", set[str]()),
        ],
    ),
)
def test_argo_and_flagger_do_what_the_verdict_says(
    tmp_path: Path, kind: str, verdict: str, phase: str, passing: set[str]
) -> None:
    with evaluating(tmp_path, kind) as sidecar:
        assert evaluated(sidecar)["verdict"] == verdict
        arguments = {"rollout": "streaming", "stage": "canary", "sidecar": sidecar.http, "token": TOKEN}
        assert measured(_argo_metric("verdict"), arguments) == phase
        assert measured(_argo_metric("verdict"), {**arguments, "token": "another"}) == "Error"
        # Of a stage that has not begun, a promotion says nothing.
        later = measured(_argo_metric("verdict"), {**arguments, "stage": "half"})
        assert later == ("Inconclusive" if phase == "Successful" else phase)
        assert {gate for gate in ("confirm-promotion", "rollback") if _flagger_passes(sidecar, gate)} == passing
        assert not _flagger_passes(sidecar, "confirm-promotion", "another")
        # What was rolled back begins no stage, also not the one at which it is.
        canary = "Error" if kind == "worse" else "Successful"
        begun = {"canary": canary, "half": "Successful" if kind == "equal" else "Error"}
        for stage, expected in begun.items():
            assert measured(_argo_metric("begin"), {**arguments, "stage": stage}) == expected, stage


@pytest.mark.slow
def test_flaggers_weight_goes_up_with_a_promotion_and_then_waits(tmp_path: Path) -> None:
    with evaluating(tmp_path, "equal") as sidecar:
        evaluated(sidecar)
        assert _flagger_passes(sidecar, "confirm-traffic-increase")
        assert evaluated(sidecar)["stage"] == "half"
        assert not _flagger_passes(sidecar, "confirm-traffic-increase")
        assert not _flagger_passes(sidecar, "confirm-promotion")
        with RemoteStore(sidecar.http, TOKEN) as there, StoreReader(tmp_path / "store") as here:
            (record,) = there.rollouts()
            common = min(len(record.entries), len(here.rollouts()[0].entries))
            assert record.entries[:common] == here.rollouts()[0].entries[:common]
            assert [entry.stage for entry in record.entries if entry.verdict is None] == ["canary", "half"]


@pytest.mark.nightly
def test_a_full_volume_holds_and_what_was_kept_stays(tmp_path: Path) -> None:
    with evaluating(tmp_path, "equal") as sidecar:
        assert evaluated(sidecar)["verdict"] == "promote"
        process = psutil.Process(sidecar.process.pid)
        unlimited = process.rlimit(psutil.RLIMIT_FSIZE)
        # No file of the process may grow beyond this: the kernel refuses as it does on a full volume.
        process.rlimit(psutil.RLIMIT_FSIZE, (1024, unlimited[1]))
        held = wait_until(
            lambda: (answer := ask(sidecar, "GET", "verdict").json()).get("sequence", 0) is None and answer,
            what="a verdict that is not kept",
        )
        assert held["verdict"] == "hold"
        assert re.search("verdicts cannot be kept there|the store cannot be read|opened again", held["sentence"])
        assert ask(sidecar, "POST", "confirm").status_code == 409
        assert ask(sidecar, "POST", "stage", json={"stage": "half"}).status_code == 409
        process.rlimit(psutil.RLIMIT_FSIZE, unlimited)
        again = wait_until(lambda: evaluated(sidecar)["sequence"], what="a verdict that is kept again")
        (record,) = read_rollouts(tmp_path / "store")
        assert [entry.sequence for entry in record.entries][: again + 1] == [*range(again + 1)]
        assert record.verdicts[0].decision == "promote"
        assert ask(sidecar, "POST", "stage", json={"stage": "half"}).status_code == 200


@pytest.mark.nightly
def test_a_killed_sidecar_loses_no_verdict(tmp_path: Path) -> None:
    last = 0
    for _ in range(3):
        with evaluating(tmp_path, "worse") as sidecar:
            answer = wait_until(
                lambda before=last: (now := evaluated(sidecar)).get("sequence") and now["looks"] > before and now,
                what="another verdict that is kept",
            )
            assert answer["verdict"] == "roll_back"
            assert ask(sidecar, "POST", "rollback").status_code == 200
            last = ask(sidecar, "GET", "verdict").json()["sequence"]
            sidecar.kill()
        (record,) = read_rollouts(tmp_path / "store")
        assert record.entries[-1].sequence >= last

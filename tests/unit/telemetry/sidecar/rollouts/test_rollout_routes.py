"""Routes of rollouts, status by status: only a current verdict promotes or rolls back."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import httpx
import msgspec
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from starlette.applications import Starlette

from telemetry.rollout.checks import BeyondShares
from telemetry.rollout.plan import Decision
from telemetry.rollout.verdict import CheckVerdict, VerdictPlan
from telemetry.sidecar.counts.exposition import Exposition
from telemetry.sidecar.otlp.access import Access
from telemetry.sidecar.rollouts.evaluation import EvaluatedVerdict, RolloutState
from telemetry.sidecar.rollouts.routes import routes
from telemetry.sidecar.rollouts.settings import RolloutSetting
from telemetry.sidecar.rollouts.states import FAMILIES, RolloutStates, rollout_families

TOKEN = "a-token-for-this-test"
STAGES = ("canary", "quarter", "half")


def state(decision: Decision, **changes: Any) -> RolloutState:
    """`changes` are of the state, or of its verdict."""
    shares = BeyondShares(0.9, 0.05, 0.06, 0.04, -0.01, 0.03, 0.045)
    verdict = EvaluatedVerdict(
        rollout="streaming",
        at_unix_ns=1_790_000_000_500_000_000,
        sequence=4,
        verdict=decision,
        sentence=f"{decision} it",
        reasons=("x",),
        turns_needed=3,
        plan=VerdictPlan("streaming", "f"),
        stage="quarter",
        share=0.25,
        cohorts=None,
    )
    primary = CheckVerdict(
        name="p95",
        kind="quantile",
        status="open",
        unit="s",
        candidate=None,
        control=None,
        difference=0.02,
        lower=-0.01,
        upper=0.05,
        margin=0.1,
        shares=shares,
    )
    promoted = ("canary",) if decision != "roll_back" else ()
    made = RolloutState(verdict, "quarter", STAGES, verdict.at_unix_ns, promoted, primary)
    of_state = {name: changes.pop(name) for name in [*changes] if name in RolloutState.__struct_fields__}
    of_state.setdefault("verdict", msgspec.structs.replace(verdict, **changes))
    return msgspec.structs.replace(made, **of_state)


class Answers:
    """The routes over rollouts that nobody looks at; `now_s` is the clock."""

    def __init__(self, token: str | None = None, *names: str) -> None:
        self.now_s = 0.0
        settings = tuple(RolloutSetting(name, f"{name}.toml") for name in names or ("streaming",))
        evaluator = SimpleNamespace(settings=settings, every_s=60.0)
        self.states = RolloutStates(cast(Any, evaluator), monotonic_s=lambda: self.now_s)
        self.app = Starlette(routes=routes(self.states, Access(token)))

    def ask(self, method: str, path: str, **request: Any) -> httpx.Response:
        async def asked() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://sidecar") as client:
                return await client.request(method, f"/v1/rollouts{path}", **request)

        return asyncio.run(asked())

    def statuses(self) -> dict[str, int]:
        posted = {name: self.ask("POST", f"/streaming/{name}", json={}).status_code for name in ("confirm", "rollback")}
        return {"verdict": self.ask("GET", "/streaming/verdict").status_code, **posted}


@pytest.mark.parametrize(
    ("decision", "confirm", "rollback"), [("promote", 200, 409), ("hold", 409, 409), ("roll_back", 409, 200)]
)
def test_each_verdict_has_its_statuses(decision: Decision, confirm: int, rollback: int) -> None:
    answers = Answers()
    answers.states.keep(state(decision))
    assert answers.statuses() == {"verdict": 200, "confirm": confirm, "rollback": rollback}
    assert answers.ask("GET", "/streaming/verdict").json()["verdict"] == decision
    (row,) = answers.ask("GET", "").json()["rollouts"]
    assert (row["verdict"], row["stage"], row["share"], row["is_kept"]) == (decision, "quarter", 0.25, True)


def test_nothing_is_decided_before_first_or_on_stale_evaluation() -> None:
    answers = Answers()
    unavailable = dict.fromkeys(("verdict", "confirm", "rollback"), 503)
    assert answers.statuses() == unavailable
    assert (
        "has not been evaluated since the sidecar started" in answers.ask("GET", "/streaming/verdict").json()["error"]
    )
    for decision in ("promote", "roll_back"):
        answers.states.keep(state(decision))
        answers.now_s += 210
        assert answers.statuses() != unavailable
        answers.now_s += 1
        assert answers.statuses() == unavailable
        refused = answers.ask("GET", "/streaming/verdict")
        assert refused.json()["error"] == "the last evaluation of streaming is 211 s old, so nothing is known of it now"
        assert refused.headers["retry-after"] == "5"
        (row,) = answers.ask("GET", "").json()["rollouts"]
        assert row["verdict"] is None
    assert answers.ask("POST", "/streaming/stage", json={"stage": "half"}).status_code == 503
    assert answers.ask("POST", "/streaming/advance").status_code == 503


def test_unknown_rollout_is_404() -> None:
    answers = Answers()
    answers.states.keep(state("promote"))
    for method, path in (("GET", "verdict"), ("POST", "confirm"), ("POST", "rollback"), ("POST", "advance")):
        refused = answers.ask(method, f"/elsewhere/{path}")
        assert (refused.status_code, refused.json()["error"]) == (
            404,
            "there is no rollout 'elsewhere'; known are streaming",
        )
    assert answers.ask("GET", "/streaming/confirm").status_code == 405


@pytest.mark.parametrize(
    ("decision", "of_stages"),
    [
        ("promote", {"canary": "promote", "quarter": "promote", "half": "hold"}),
        ("hold", {"canary": "promote", "quarter": "hold", "half": "hold"}),
        ("roll_back", dict.fromkeys(STAGES, "roll_back")),
    ],
)
def test_a_verdict_can_be_asked_of_a_stage(decision: Decision, of_stages: dict[str, str]) -> None:
    answers = Answers()
    answers.states.keep(state(decision))
    verdicts = {stage: answers.ask("GET", f"/streaming/verdict?stage={stage}").json()["verdict"] for stage in STAGES}
    assert verdicts == of_stages
    assert answers.ask("GET", "/streaming/verdict?stage=all").status_code == 404


def test_token_is_required_and_flagger_may_send_it_in_metadata() -> None:
    answers = Answers(TOKEN)
    answers.states.keep(state("promote"))
    header = {"Authorization": f"Bearer {TOKEN}"}
    for path in ("", "/streaming/verdict"):
        assert answers.ask("GET", path).status_code == 401
        assert answers.ask("GET", path, headers=header).status_code == 200
    with_token = {"name": "x", "namespace": "y", "phase": "Progressing", "metadata": {"token": TOKEN}}
    for name in ("confirm", "rollback", "advance", "stage"):
        path = f"/streaming/{name}"
        for body in ({}, {"metadata": {}}, {"metadata": {"token": "another"}}, {"metadata": None}, {"token": TOKEN}):
            assert answers.ask("POST", path, json=body).status_code == 401
        wrong = {"Authorization": "Bearer another"}
        assert answers.ask("POST", path, json=with_token, headers=wrong).status_code == 401
        for content in (b"{", b"x" * 100_000):
            assert answers.ask("POST", path, content=content).status_code == 401
        assert answers.ask("POST", path, json=with_token).status_code != 401
        assert answers.ask("POST", path, headers=header).status_code != 401
    assert answers.ask("POST", "/streaming/confirm", json=with_token).status_code == 200


def test_a_body_has_a_size_and_a_form() -> None:
    answers = Answers()
    answers.states.keep(state("promote"))
    for content, status in ((b"x" * 65_537, 413), (b"[]", 400), (b"{", 400), (b"[" * 60_000, 400), (b"", 200)):
        assert answers.ask("POST", "/streaming/confirm", content=content).status_code == status
    for body in ({}, {"stage": 3}, {"metadata": {"stage": ""}}):
        refused = answers.ask("POST", "/streaming/stage", json=body)
        assert (refused.status_code, refused.json()["error"]) == (400, 'say which stage begins: {"stage": "NAME"}')
    refused = answers.ask("POST", "/streaming/stage", json={"stage": "canary", "settled": "yes"})
    assert refused.status_code == 400
    assert '"settled" is true where' in refused.json()["error"]


def _samples(answers: Answers) -> dict[str, float]:
    page, _ = Exposition(shown=[lambda: rollout_families(answers.states)]).render(
        "application/openmetrics-text; version=1.0.0"
    )
    samples: dict[str, float] = {}
    for family in text_string_to_metric_families(page.decode()):
        if not family.name.startswith("voice_rollout_"):
            continue
        for sample in family.samples:
            labels = ",".join(value for name, value in sample.labels.items() if name != "rollout")
            samples[f"{sample.name.removeprefix('voice_rollout_')}/{labels}"] = sample.value
    return samples


def test_gauges_are_openmetrics_and_never_promote_when_stale() -> None:
    answers = Answers()
    nothing = {"verdict/promote": 0, "verdict/hold": 1, "verdict/roll_back": 0, "evaluation_interval_seconds/": 60}
    assert _samples(answers) == {**nothing, "last_verdict_timestamp_seconds/": 0}
    answers.states.keep(state("promote"))
    samples = _samples(answers)
    assert samples == {
        "verdict/promote": 1,
        "verdict/hold": 0,
        "verdict/roll_back": 0,
        "stage/canary": 0,
        "stage/quarter": 1,
        "stage/half": 0,
        "share_ratio/": 0.25,
        "needed_turns/": 3,
        "last_verdict_timestamp_seconds/": 1_790_000_000.5,
        "evaluation_interval_seconds/": 60,
        "primary_beyond_margin_ratio/estimate": 0.03,
        "primary_beyond_margin_ratio/upper": 0.045,
        "primary_allowed_ratio/": 0.05,
        "primary_excess_ratio/lower": -0.01,
        "primary_excess_ratio/estimate": pytest.approx(0.02),
        "primary_difference_seconds/lower": -0.01,
        "primary_difference_seconds/estimate": 0.02,
        "primary_difference_seconds/upper": 0.05,
        "primary_margin_seconds/": 0.1,
    }
    assert {name.partition("/")[0] for name in samples} == {
        family.name.removeprefix("voice_rollout_") for family in FAMILIES
    }
    answers.now_s += 211
    stale = _samples(answers)
    assert {name: stale[name] for name in nothing} == nothing
    assert stale["last_verdict_timestamp_seconds/"] == 1_790_000_000.5
    assert not [name for name in stale if name.startswith("primary_")]


def test_a_page_without_rollouts_stays_as_it_is() -> None:
    answers = Answers()
    answers.states = RolloutStates(None)
    assert list(rollout_families(answers.states)) == []
    answers.app = Starlette(routes=routes(answers.states, Access(None)))
    assert answers.ask("GET", "/x/verdict").json()["error"].endswith("the sidecar was started without any")


def test_rollouts_are_evaluated_in_turn_and_unkept_ones_soon() -> None:
    answers = Answers(None, "a", "b")

    def looked_at(name: str, at_s: float, sequence: int | None) -> tuple[str, float]:
        answers.now_s = at_s
        answers.states.keep(state("hold", rollout=name, sequence=sequence))
        return answers.states.next_look()

    assert answers.states.next_look() == ("a", float("-inf"))
    assert looked_at("a", 100, 1) == ("b", float("-inf"))
    assert looked_at("b", 101, None) == ("b", 5)
    assert looked_at("b", 106, 1) == ("a", 54)

"""Every query of the Grafana dashboard over the store, asked of a real sidecar as its data source asks it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import asking
from tests.fixtures_sidecar import running_sidecar, turns_request
from tests.fixtures_turns import synthetic_run
from tests.grafana import store_dashboard

TOKEN = "a-token-of-the-test"


def _targets() -> Iterator[tuple[str, dict[str, Any]]]:
    board = store_dashboard()
    for panel in board["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target
    yield "variable", board["templating"]["list"][1]["query"]["infinityQuery"]


def _selected(value: Any, selector: str) -> Any:
    for name in selector.split(".") if selector else ():
        value = value[name]
    return value


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_sidecar(tmp_path_factory.mktemp("store") / "store", token=TOKEN) as running:
        headers = {"content-type": "application/x-protobuf", "authorization": f"Bearer {TOKEN}"}
        body = turns_request(synthetic_run(turns=160).turns).SerializeToString()
        assert asking.post(f"{running.http}/v1/traces", content=body, headers=headers).status_code == 200
        yield running.http


def test_a_store_without_a_run_gives_tables_without_rows(tmp_path: Path) -> None:
    with running_sidecar(tmp_path / "store", token=TOKEN) as empty:
        headers = {"content-type": "application/json", "authorization": f"Bearer {TOKEN}"}
        for title, target in _targets():
            body = target["url_options"]["data"].replace("${run}", "")  # as Grafana fills in a variable without values
            answer = asking.post(f"{empty.http}{target['url']}", content=body.encode(), headers=headers)
            assert answer.status_code == 200, (title, answer.content)
            selected = _selected(json.loads(answer.content), target["root_selector"])
            assert isinstance(selected, dict) or selected == [], title


@pytest.mark.parametrize(("title", "target"), [*_targets()], ids=lambda part: part if isinstance(part, str) else "")
def test_each_column_is_in_the_answer(sidecar: str, title: str, target: dict[str, Any]) -> None:
    headers = {"content-type": target["url_options"]["body_content_type"], "authorization": f"Bearer {TOKEN}"}
    asked = asking.post(f"{sidecar}/v1/query/runs", content=b"{}", headers=headers)
    assert asked.status_code == 200, asked.content
    runs = json.loads(asked.content)
    body = target["url_options"]["data"].replace("${run}", runs[0]["run_id"])
    answer = asking.post(f"{sidecar}{target['url']}", content=body.encode(), headers=headers)
    assert answer.status_code == 200, answer.content
    selected = _selected(json.loads(answer.content), target["root_selector"])
    items = selected if isinstance(selected, list) else [selected]
    assert items or title == "Why turns failed"
    for item in items:
        for column in target["columns"]:
            value = _selected(item, column["selector"])
            if column["type"] == "number":
                assert value is None or isinstance(value, int | float), (column, value)
    filled = {column["text"] for item in items for column in target["columns"] if _selected(item, column["selector"])}
    assert filled or not items, title

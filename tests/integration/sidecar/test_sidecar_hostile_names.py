"""Names that senders and askers choose: none becomes the name of a file."""

from pathlib import Path
from urllib.parse import quote

import httpx

from telemetry.store.reader import StoreReader
from tests.fixtures_sidecar import running_sidecar, turns_request
from tests.fixtures_turns import client_turn

NAMES = (
    "../../escaped",
    "/escaped",
    "..\\escaped",
    "escaped\0.parquet",
    "$(touch escaped)",
    "escaped\n",
)
PROTOBUF = {"content-type": "application/x-protobuf"}


def _files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_a_name_from_the_network_is_never_one_of_a_file(tmp_path: Path) -> None:
    store = tmp_path / "deep" / "below" / "store"
    with running_sidecar(store) as sidecar, httpx.Client(base_url=sidecar.http, timeout=60) as client:
        for index, name in enumerate(NAMES):
            turn = client_turn(index, run_id=name, call_id=name, scenario=name)
            body = turns_request([turn], service=name).SerializeToString()
            assert client.post("/v1/traces", content=body, headers=PROTOBUF).status_code == 200
        runs = client.post("/v1/query/runs", json={})
        assert runs.status_code == 200
        assert len({run["run_id"] for run in runs.json()}) == len(NAMES)
        for name in NAMES:
            asked = client.post("/v1/query/summary", json={"filter": {"run_id": name}})
            assert asked.status_code in (200, 400)
            assert client.post(f"/v1/query/{quote(name, safe='')}", json={}).status_code in (400, 404, 405)
            assert client.get(f"/{quote(name, safe='')}").status_code == 404
        assert sidecar.terminate() == 0
    with StoreReader(store) as reader:
        assert len({turn.run_id for turn in reader.turns()}) == len(NAMES)
    assert [file for file in _files(tmp_path) if not file.startswith("deep/below/store/")] == []
    assert [file for file in _files(tmp_path) if "escaped" in file] == []
    assert not any(Path(folder, "escaped").exists() for folder in (".", "/"))

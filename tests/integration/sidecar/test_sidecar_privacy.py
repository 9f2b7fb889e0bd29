"""Nothing of what frameworks report of personal data is on the disk, whenever a sidecar is killed; joins still work."""

import stat
from pathlib import Path

import pytest

from loadtest.audit.framework_telemetry import CARD, PHONE, VALUES, send
from loadtest.audit.places import Places
from loadtest.audit.search import Search, needles_of_texts, needles_of_value
from telemetry.model import semconv
from telemetry.model.personal_data import is_pseudonym
from telemetry.model.turn_spans import SpanRow
from telemetry.sidecar.privacy import KEY_NAME
from telemetry.store.database import read_only
from telemetry.store.reader import StoreReader
from telemetry.store.schema import span_from_row
from tests.asking import post
from tests.fixtures_sidecar import running_sidecar, turns_request
from tests.fixtures_turns import client_turn

TEXTS = [("first", "My name is Margaret Ellsworth, and my card was stolen."), ("second", f"My card is {CARD}, I said.")]
USER = "+49 170 1234567"
FORMS = (needles_of_texts(TEXTS) | needles_of_value("user", USER)).union(
    *(needles_of_value(name, value) for name, value in VALUES.items())
)


def spans(store: Path) -> list[SpanRow]:
    """Every span of a store that nobody writes."""
    with read_only(store) as database, database.snapshot() as cursor:
        return [span_from_row(row) for row in cursor.sql("SELECT * FROM spans").to_arrow_table().to_pylist()]


def send_everything(http: str) -> None:
    """Send spans of frameworks, and turns with the number of their user as our own exporters do."""
    send(http, TEXTS)
    turns = [client_turn(index, user_id=USER) for index in range(3)]
    headers = {"Content-Type": "application/x-protobuf"}
    content = turns_request(turns).SerializeToString()
    assert post(f"{http}/v1/traces", content=content, headers=headers).status_code == 200


def leaks(folder: Path) -> list[str]:
    """Where something of it is."""
    places = Places(Search(FORMS))
    places.folder(folder)
    assert places.searched["file"] >= 2
    return sorted({leak.place for leak in places.leaks})


def test_nothing_is_left_but_pseudonyms_that_outlive_a_kill(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with running_sidecar(store) as sidecar:
        send_everything(sidecar.http)
        sidecar.kill()
    assert leaks(store) == []
    assert stat.S_IMODE((store / KEY_NAME).stat().st_mode) == 0o600
    with running_sidecar(store) as sidecar:
        send_everything(sidecar.http)
        places = Places(Search(FORMS))
        places.pages(sidecar.http)
        assert places.leaks == set()
        assert sidecar.terminate() == 0
    assert leaks(store) == []
    names = ("user.id", "user_id", "gen_ai.conversation.id")
    foreign = [span.attributes for span in spans(store) if span.scope_name != semconv.SCOPE]
    ids = {value for attributes in foreign for name in names if (value := attributes.get(name)) is not None}
    with StoreReader(store) as reader:
        users = {turn.user_id for turn in reader.turns(limit=10, source="client")}
    for pseudonyms in (ids, users):
        assert len(pseudonyms) == 1, "one person has one pseudonym in a store"
        assert is_pseudonym(str(pseudonyms.pop()))


def test_kept_text_has_no_personal_data(tmp_path: Path) -> None:
    names = tmp_path / "names.txt"
    names.write_text("Ellsworth\n")
    store = tmp_path / "store"
    with running_sidecar(store, "--keep-transcripts", "--redact-names", str(names)) as sidecar:
        send(sidecar.http, TEXTS)
        assert sidecar.terminate() == 0
    rows = str(spans(store))
    assert "my card was stolen" in rows
    assert "My card is [redacted:card], I" in rows
    assert "Ellsworth" not in rows
    places = Places(Search(needles_of_value("card", CARD) | needles_of_value("phone", PHONE)))
    places.folder(store)
    assert places.leaks == set()


def test_a_list_of_names_that_is_not_there_is_one_sentence(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with (
        pytest.raises(AssertionError, match="ended with 2"),
        running_sidecar(tmp_path, "--redact-names", str(tmp_path / "missing")),
    ):
        pass
    assert "the list of names cannot be read" in capfd.readouterr().err

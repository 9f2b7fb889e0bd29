"""The words of a manifest, its edges, and finding corpora and choosing from them: every fault is named at once."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from corpora.manifest.edges import set_edges
from corpora.manifest.errors import CorpusError, ManifestError, SourceError
from corpora.manifest.library import BUNDLED, available, installed_root, open_corpus
from corpora.manifest.manifest import Utterance, read_manifest, write_manifest
from corpora.sources import install as installing
from tests.unit.corpora.conftest import Ran, Workshop


def utterance(**changes: Any) -> Utterance:
    fields: dict[str, Any] = {
        "id": "one",
        "path": "clips/one.flac",
        "text": "hello",
        "speaker": "a",
        "language": "en",
        "domain": "home",
        "license": "CC0-1.0",
        "source": "test",
        "sha256": "0" * 64,
        "sample_rate_hz": 16_000,
        "samples": 200_000,
        "speech_start_sample": 100,
        "speech_end_sample": 199_000,
    }
    return Utterance(**(fields | changes))


def faults(folder: Path) -> tuple[str, ...]:
    with pytest.raises(ManifestError) as caught:
        read_manifest(folder)
    return caught.value.faults


def test_written_manifest_is_read_back(tmp_path: Path) -> None:
    given = (
        utterance(),
        utterance(id="two", path="b.wav", consent="signed", bounds_confidence_db=52.5, pii_kinds=("name", "phone")),
        utterance(id="three", path="c.wav", speech_start_uncertainty_ms=5.0, speech_end_uncertainty_ms=12.5),
        utterance(id="four", path="d.wav", text=None, processing="resampled from 44100 Hz", reviewed=True),
    )
    write_manifest(tmp_path, "mine", "recorded human", given, edges="exact")
    manifest = read_manifest(tmp_path)
    assert (manifest.name, manifest.kind, manifest.utterances) == ("mine", "recorded human", given)
    assert manifest.lines == (2, 3, 4, 5)
    assert [u.pii for u in manifest.utterances] == [False, True, False, False]


@pytest.mark.parametrize(
    ("speech_samples", "length"),
    [(31_999, "short"), (32_000, "medium"), (96_000, "medium"), (96_001, "long")],
)
def test_the_length_class_goes_by_speech_alone(speech_samples: int, length: str) -> None:
    spoken = utterance(speech_start_sample=1_000, speech_end_sample=1_000 + speech_samples - 1)
    assert spoken.length == length
    assert spoken.speech_s == speech_samples / 16_000


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("id", "../up", "id is '../up'; it must be 1 to 100 letters"),
        ("id", 7, "id is 7; it must be"),
        ("text", "  ", "text is '  '; it must be one line of 1 to 10000 characters, not blank"),
        ("text", "two\nlines", "text is 'two\\nlines'; it must be one line"),
        ("text", 7, "text is 7; it must be one line"),
        ("text", "x" * 10_001, "it must be one line of 1 to 10000 characters"),
        ("text", "a\x7f", "without control characters, or null"),
        ("speaker", "", "speaker is ''; it must be one line"),
        ("consent", "", "consent is ''; it must be"),
        ("sha256", "ABC", "sha256 is 'ABC'; it must be 64"),
        ("sample_rate_hz", 4_000, "sample_rate_hz is 4000; it must be a whole number from 8000 to 48000."),
        ("sample_rate_hz", "16000", "sample_rate_hz is '16000'; it must be a whole number"),
        ("samples", True, "samples is true; it must be a whole number"),
        ("samples", -1, "samples is -1; it must be a whole number"),
        ("samples", 1.5, "samples is 1.5; it must be a whole number"),
        ("speech_end_sample", 22_400, "do not lie within its 22400 samples"),
        ("speech_start_sample", 19_199, "do not lie within"),
        ("bounds_confidence_db", "high", "bounds_confidence_db is 'high'; it must be a number"),
        ("bounds_confidence_db", 10**400, "bounds_confidence_db is a number of more than 60 digits"),
        (
            "speech_start_uncertainty_ms",
            True,
            "speech_start_uncertainty_ms is true; it must be a number of milliseconds",
        ),
        ("speech_end_uncertainty_ms", "5", "or null if it is not known"),
        ("speech_end_uncertainty_ms", 1e300, "from 0 to 600000"),
        ("pii_kinds", "name", "pii_kinds is 'name'; it must be a list"),
        ("pii_kinds", ["name", "shoe_size"], "pii_kinds[1] is 'shoe_size'; it must be one of name, address"),
        ("path", "/etc/passwd", "path is '/etc/passwd'; it must be a file in the corpus folder, relative to it"),
        ("path", "clips/../../x.flac", "path is 'clips/../../x.flac'; it must be a file in the corpus folder"),
        ("path", "..", "it must be a file in the corpus folder"),
        ("path", "clips\\one.flac", "with forward slashes, such as clips/one.flac"),
        ("path", "clips//one.flac", "such as clips/one.flac"),
        ("path", "C:one.flac", "'.', '..', colons and control characters are not allowed"),
        ("path", "a\x00b", "path is 'a\\x00b'; it must be"),
        ("path", 3, "path is 3; it must be"),
        ("reviewed", "yes", "reviewed is 'yes'; it must be true or false"),
        ("speach_start", 1, "the field 'speach_start' is unknown; did you mean speech_start_sample?"),
        ("gender\n", 1, "the field 'gender\\n' is unknown; check its spelling or remove it."),
    ],
)
def test_each_wrong_field_is_named_with_file_line_and_utterance(
    workshop: Any, field: str, value: object, says: str
) -> None:
    workshop.add("good")
    workshop.add("bad", **{field: value})
    lines = faults(workshop.save())
    assert len(lines) == 1
    assert says in lines[0]
    assert lines[0].startswith(f"{workshop.folder}/manifest.jsonl:3: {value if field == 'id' else 'bad'}: ")


def test_all_faults_come_at_once(workshop: Any) -> None:
    workshop.header = {"corpus": "", "kind": "robots", "format": "2"}
    workshop.add("a", text="", sha256="x")
    workshop.add("b")
    del workshop.rows[1]["speaker"], workshop.rows[1]["samples"]
    workshop.rows.append([1, 2])
    lines = faults(workshop.save())
    assert len(lines) == 8
    for part in ("header: corpus is ''", "kind is 'robots'", "format is '2'", "text is ''", "sha256 is"):
        assert sum(part in fault for fault in lines) == 1
    assert any("the field speaker is missing" in fault for fault in lines)
    assert any("the field samples is missing" in fault for fault in lines)
    assert any("manifest.jsonl:4: is not a JSON object" in fault for fault in lines)


def test_another_format_is_the_one_fault_that_is_named(workshop: Any) -> None:
    workshop.add("a", text="")
    workshop.header["format"] = 1
    assert [fault.partition(": ")[2] for fault in faults(workshop.save())] == [
        "has format 1, but this version reads format 2; install, import or build the corpus again."
    ]


def test_the_same_id_or_file_twice_is_a_fault_whatever_the_case(workshop: Any) -> None:
    workshop.add("one")
    workshop.rows.append(workshop.rows[0] | {"id": "ONE", "path": "CLIPS/one.flac"})
    first, second = faults(workshop.save())
    assert "id 'ONE' is already used in line 2" in first
    assert "path 'CLIPS/one.flac' is already used in line 2" in second


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'{"corpus": "a", "kind": "generated", "format": 2}\n', "contains no utterance"),
        (b"\n", "manifest.jsonl:1: is not the header of a manifest"),
        (b'{"corpus": "a", "kind": "generated", "format": 2}\n{"id": NaN}\n', "manifest.jsonl:2: is not JSON"),
        (b'{"corpus": "a", "kind": "generated", "format": 2}\n\xff\xfe\n', "manifest.jsonl:2: is not JSON"),
        (b'{"corpus": "a", "kind": "generated", "format": 2}\n' + b"[" * 100_000, "manifest.jsonl:2: is not JSON"),
    ],
)
def test_content_that_is_not_a_manifest_is_rejected(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "manifest.jsonl").write_bytes(content)
    assert any(says in fault for fault in faults(tmp_path))


def test_all_faults_of_a_row_come_at_once_with_its_duplicates(workshop: Any) -> None:
    workshop.add("one")
    changes = {"text": 7, "sample_rate_hz": True, "speech_start_sample": 22_399, "pii_kinds": [None, "name", [1]]}
    workshop.rows.append(workshop.rows[0] | {"path": "other.flac"} | changes)
    assert [fault.partition("manifest.jsonl:3: one: ")[2].partition(";")[0] for fault in faults(workshop.save())] == [
        "text is 7",
        "sample_rate_hz is true",
        "pii_kinds[0] is null",
        "pii_kinds[2] is [1]",
        "speech_start_sample 22399 and speech_end_sample 19199 do not lie within its 22400 samples",
        "id 'one' is already used in line 2",
    ]


def test_a_fault_is_one_short_line_whatever_the_row_contains(workshop: Any) -> None:
    long = "\x1b[2J\u202e\n" * 10_000
    workshop.add("good")
    workshop.rows.append(workshop.rows[0] | {"id": long, long: 1, "text": long, "sha256": [[[long] * 3] * 3] * 3})
    lines = [fault.removeprefix(str(workshop.folder)) for fault in faults(workshop.save())]
    assert len(lines) == 5
    assert all(fault.isprintable() and len(fault) < 400 for fault in lines)


def test_whole_numbers_may_be_larger_than_64_bits(workshop: Any) -> None:
    workshop.add("one", samples=10**30)
    assert read_manifest(workshop.save()).utterances[0].samples == 10**30


def test_pydantic_is_imported_with_the_first_row_only(workshop: Any) -> None:
    workshop.add("one")
    script = (
        "import sys; from pathlib import Path; import corpora; from corpora.manifest.manifest import read_manifest; "
        "before = 'pydantic' in sys.modules; read_manifest(Path(sys.argv[1])); print(before, 'pydantic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script, workshop.save()], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_a_folder_without_manifest_says_so(tmp_path: Path) -> None:
    assert faults(tmp_path) == (
        f"{tmp_path}: contains no manifest.jsonl, so it is not a corpus; give a folder that has one.",
    )


def test_the_text_shows_twenty_faults_and_counts_the_rest() -> None:
    error = ManifestError(Path("x/manifest.jsonl"), [f"fault {number}." for number in range(25)])
    text = str(error)
    assert "25 faults" in text
    assert "fault 19." in text
    assert "fault 20." not in text
    assert "and 5 more: `voiceprobe corpus check x`" in text
    assert str(ManifestError(Path("x"), ["only this."])) == "only this."


def test_a_source_shows_a_hundred_faults_and_counts_the_rest() -> None:
    lines = str(SourceError("tape", [f"fault {number}." for number in range(102)], "Nothing is kept.")).splitlines()
    assert lines[0].startswith("tape: 102 faults; Nothing is kept. Mend them")
    assert lines[1:101] == [f"  fault {number}." for number in range(100)]
    assert lines[101:] == ["  ... and 2 more: --json FILE lists them all"]
    assert str(SourceError("tape", ["only this."], "Nothing is kept.")).splitlines()[1:] == ["  only this."]


Command = Callable[..., Ran]


@pytest.fixture
def folder(workshop: Workshop) -> Path:
    workshop.add("one", seconds=0.4, seed=1)
    workshop.add("two", seconds=0.4, seed=2)
    return workshop.save()


def test_a_manifest_without_edges_is_exact(folder: Path) -> None:
    assert "edges" not in (folder / "manifest.jsonl").read_text()
    assert read_manifest(folder).edges == "exact"
    assert open_corpus(folder).edges == "exact"


@pytest.mark.parametrize("edges", ["exact", "recorded"])
def test_the_edges_are_written_and_read(folder: Path, edges: Any) -> None:
    manifest = read_manifest(folder)
    write_manifest(folder, manifest.name, manifest.kind, manifest.utterances, edges=edges)
    header = json.loads((folder / "manifest.jsonl").read_text().splitlines()[0])
    assert header == {"corpus": "made", "kind": "generated", "format": 2, "edges": edges}
    again = read_manifest(folder)
    assert (again.edges, again.utterances) == (edges, manifest.utterances)
    assert open_corpus(folder).edges == edges


@pytest.mark.parametrize("value", ["sharp", "Exact", "", 1, None, ["exact"], True])
def test_other_edges_are_a_fault_of_the_header(workshop: Workshop, value: Any) -> None:
    workshop.add("one", seconds=0.4)
    workshop.header["edges"] = value
    with pytest.raises(ManifestError, match=r":1: header: edges is .*; it must be exact or recorded\."):
        read_manifest(workshop.save())


def test_changing_the_edges_changes_nothing_else(folder: Path) -> None:
    file = folder / "manifest.jsonl"
    before = file.read_bytes()
    head, rest = before.split(b"\n", 1)
    # As another tool may have written it: a key of its own, blank lines, and Windows line endings.
    kept = b"\r\n" + rest.replace(b"\n", b"\r\n") + b"\r\n\r\n"
    file.write_bytes(head.replace(b"}", b', "mine": [1, 2]}') + kept)
    clips = {clip: clip.stat().st_mtime_ns for clip in (folder / "clips").iterdir()}
    assert set_edges(folder, "recorded")
    assert file.read_bytes().split(b"\r\n", 1)[1] == kept[2:]
    header = json.loads(file.read_bytes().split(b"\r\n")[0])
    assert header == {"corpus": "made", "kind": "generated", "format": 2, "mine": [1, 2], "edges": "recorded"}
    assert open_corpus(folder).edges == "recorded"
    written = file.stat().st_mtime_ns
    assert not set_edges(folder, "recorded")
    assert file.stat().st_mtime_ns == written, "nothing is written if nothing changes"
    assert set_edges(folder, "exact")
    assert read_manifest(folder).edges == "exact"
    assert clips == {clip: clip.stat().st_mtime_ns for clip in (folder / "clips").iterdir()}


def test_the_command_shows_and_changes_them(folder: Path, command: Command) -> None:
    for arguments, shown in (((), "exact"), (("recorded",), "recorded"), ((), "recorded"), (("exact",), "exact")):
        assert command("edges", folder, *arguments) == Ran(0, f"made: {shown} edges\n", "")
        assert read_manifest(folder).edges == shown


def test_unknown_edges_corpora_and_bundled_corpus_are_refused(folder: Path, command: Command) -> None:
    bundled = open_corpus(BUNDLED, check_clips=False).path
    for given, edges, says in (
        (folder, "sharp", "The value 'sharp' is unknown; use exact or recorded.\n"),
        (folder / "nowhere", "exact", "is neither a folder nor one of"),
        (BUNDLED, "recorded", "belongs to the installation and is not changed; copy it (cp -r "),
    ):
        before = [(path / "manifest.jsonl").read_bytes() for path in (folder, bundled)]
        ran = command("edges", given, edges)
        assert ran.code == 2
        assert says in ran.err
        assert [(path / "manifest.jsonl").read_bytes() for path in (folder, bundled)] == before
    assert command("edges", BUNDLED).out == f"{BUNDLED}: exact edges\n"


def test_a_folder_that_cannot_be_written_is_one_sentence(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("corpora.manifest.edges.replace_file", full)
    with pytest.raises(CorpusError, match=r"manifest\.jsonl: cannot be written \(No space left on device\); check"):
        set_edges(folder, "recorded")


def test_an_installed_corpus_is_changed_without_a_download(
    workshop: Workshop, home: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    workshop.header["corpus"] = "pocketsphinx-testdata"
    workshop.add("one", seconds=0.4)
    installed = home / "corpora" / "pocketsphinx-testdata"
    installed.parent.mkdir(parents=True)
    workshop.save().rename(installed)

    def no_download(*_: object) -> list[Path]:
        raise AssertionError("nothing may be downloaded")

    monkeypatch.setattr(installing, "_download", no_download)
    for given, shown in (((), "exact"), (("--edges", "recorded"), "recorded"), ((), "recorded")):
        ran = command("install", "pocketsphinx-testdata", *given)
        assert ran.code == 0
        assert f"1 utterance in {installed}, {shown} edges\n" in ran.out
        assert open_corpus("pocketsphinx-testdata").edges == shown
    ran = command("install", "pocketsphinx-testdata", "--edges", "sharp")
    assert (ran.code, ran.err) == (2, "--edges 'sharp' is unknown; use exact or recorded.\n")
    assert command("edges", "pocketsphinx-testdata", "exact").code == 0
    assert {info.name: info.edges for info in available()} == {BUNDLED: "exact", "pocketsphinx-testdata": "exact"}


def test_the_list_states_them(workshop: Workshop, home: Path, command: Command) -> None:
    workshop.with_edges("recorded").add("one", seconds=0.4)
    (home / "corpora").mkdir(parents=True)
    workshop.save().rename(home / "corpora" / "made")
    rows = json.loads(command("list", "--json").out)
    assert {row["name"]: row["edges"] for row in rows} == {BUNDLED: "exact", "made": "recorded"}
    printed = " ".join(command("list").out.split())
    assert "exact edges" in printed
    assert "recorded edges" in printed


def test_the_table_of_a_corpus_states_them(folder: Path, command: Command) -> None:
    assert "exact edges: speech ends where its fade of 5 ms begins" in command("show", folder).out
    set_edges(folder, "recorded")
    assert "recorded edges: speech ends known to ±5 ms (median)" in command("show", folder).out


@pytest.fixture
def mixed(workshop: Any) -> Any:
    workshop.add("short-home", seconds=1.0, seed=1)
    workshop.add("medium-bank", seconds=2.5, seed=2, domain="banking", pii_kinds=["name"])
    workshop.add("long-home", seconds=6.5, seed=3)
    return open_corpus(workshop.save())


def ids(utterances: tuple[Any, ...]) -> list[str]:
    return [utterance.id for utterance in utterances]


def test_select_by_length_domain_and_pii(mixed: Any) -> None:
    assert ids(mixed.select()) == ["short-home", "medium-bank", "long-home"]
    assert ids(mixed.select(length="long")) == ["long-home"]
    assert ids(mixed.select(domains=["home"])) == ["short-home", "long-home"]
    assert ids(mixed.select(include_pii=False)) == ["short-home", "long-home"]
    assert ids(mixed.select(length="medium", domains=["banking", "home"])) == ["medium-bank"]


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"length": "tiny"}, "The length 'tiny' is unknown; use one of short, medium, long."),
        ({"domains": ["space"]}, "The corpus made has no domain space; it has banking, home."),
        ({"length": "long", "domains": ["banking"]}, "The corpus made has no utterance that is long, banking;"),
        ({"domains": ["banking"], "include_pii": False}, "no utterance that is banking, free of PII;"),
        ({"domains": []}, "The corpus made has no utterance"),
    ],
)
def test_nothing_matches_in_one_sentence(mixed: Any, asked: dict[str, Any], says: str) -> None:
    with pytest.raises(CorpusError) as caught:
        mixed.select(**asked)
    assert says in str(caught.value)
    assert str(caught.value).count(".") == 1


def test_without_recorded_speech_the_bundled_set_is_used(home: Path) -> None:
    corpus = open_corpus()
    assert (corpus.name, corpus.kind) == ("voiceprobe-en", "generated")
    assert open_corpus("voiceprobe-en").path == corpus.path


def test_installed_recorded_speech_is_preferred_and_named(home: Path, workshop: Any) -> None:
    workshop.header["corpus"], workshop.header["kind"] = "pocketsphinx-testdata", "recorded human"
    workshop.add("one")
    folder = home / "corpora" / "pocketsphinx-testdata"
    shutil.copytree(workshop.save(), folder)
    assert open_corpus().path == folder
    assert open_corpus(None).kind == "recorded human"
    assert open_corpus("pocketsphinx-testdata").path == folder
    names = [info.name for info in available()]
    assert names == ["voiceprobe-en", "pocketsphinx-testdata"]
    corpus = available()[1]
    assert (corpus.kind, corpus.utterance_count, corpus.short_count, corpus.licenses) == (
        "recorded human",
        1,
        1,
        ("CC0-1.0",),
    )
    assert corpus.speech_s == pytest.approx(1.0)


def test_a_broken_installed_corpus_is_listed_with_its_fault(home: Path) -> None:
    folder = home / "corpora" / "asterisk-core-sounds-en"
    folder.mkdir(parents=True)
    (folder / "manifest.jsonl").write_text("nonsense")
    info = available()[1]
    assert info.utterance_count == 0
    assert info.fault is not None
    assert "is not JSON" in info.fault


def test_a_folder_opens_as_text_or_path(workshop: Any) -> None:
    workshop.add("one")
    folder = workshop.save()
    assert open_corpus(folder).path == open_corpus(str(folder)).path == folder


def test_an_unknown_name_lists_what_there_is(home: Path) -> None:
    with pytest.raises(CorpusError) as caught:
        open_corpus("nowhere")
    assert str(caught.value) == "The corpus 'nowhere' is neither a folder nor one of voiceprobe-en."


def test_the_home_of_installed_corpora(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("VOICEPROBE_HOME", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert installed_root().parts[-2:] == ("voiceprobe", "corpora")
    monkeypatch.setenv("VOICEPROBE_HOME", "~/somewhere")
    assert installed_root() == Path.home() / "somewhere" / "corpora"

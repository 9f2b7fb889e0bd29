"""The words of a manifest: what is accepted, and that every fault is named at once."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from corpora.manifest.errors import ManifestError, SourceError
from corpora.manifest.manifest import Utterance, read_manifest, write_manifest


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


def test_what_is_written_is_read(tmp_path: Path) -> None:
    given = (
        utterance(),
        utterance(id="two", path="b.wav", consent="signed", bounds_confidence_db=52.5, pii_kinds=("name", "phone")),
        utterance(id="three", path="c.wav", speech_start_uncertainty_ms=5.0, speech_end_uncertainty_ms=12.5),
    )
    write_manifest(tmp_path, "mine", "recorded human", given, edges="exact")
    manifest = read_manifest(tmp_path)
    assert (manifest.name, manifest.kind, manifest.utterances) == ("mine", "recorded human", given)
    assert manifest.lines == (2, 3, 4)
    assert [u.pii for u in manifest.utterances] == [False, True, False]


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
        ("speach_start", 1, "the field 'speach_start' is unknown; did you mean speech_start_sample?"),
        ("gender\n", 1, "the field 'gender\\n' is unknown; check its spelling or remove it."),
    ],
)
def test_each_wrong_field_is_named_with_file_line_and_utterance(
    workshop: Any, field: str, value: object, says: str
) -> None:
    workshop.add("good")
    workshop.add("bad", **{field: value})
    found = faults(workshop.save())
    assert len(found) == 1
    assert says in found[0]
    assert found[0].startswith(f"{workshop.folder}/manifest.jsonl:3: {value if field == 'id' else 'bad'}: ")


def test_all_faults_come_at_once(workshop: Any) -> None:
    workshop.header = {"corpus": "", "kind": "robots", "format": "2"}
    workshop.add("a", text="", sha256="x")
    workshop.add("b")
    del workshop.rows[1]["speaker"], workshop.rows[1]["samples"]
    workshop.rows.append([1, 2])
    found = faults(workshop.save())
    assert len(found) == 8
    for part in ("header: corpus is ''", "kind is 'robots'", "format is '2'", "text is ''", "sha256 is"):
        assert sum(part in fault for fault in found) == 1
    assert any("the field speaker is missing" in fault for fault in found)
    assert any("the field samples is missing" in fault for fault in found)
    assert any("manifest.jsonl:4: is not a JSON object" in fault for fault in found)


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
    found = [fault.removeprefix(str(workshop.folder)) for fault in faults(workshop.save())]
    assert len(found) == 5
    assert all(fault.isprintable() and len(fault) < 400 for fault in found)


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


def test_what_was_done_to_a_clip_and_who_looked_at_it_travels(tmp_path: Path) -> None:
    given = (utterance(text=None, processing="resampled from 44100 Hz", reviewed=True),)
    write_manifest(tmp_path, "mine", "recorded human", given, edges="exact")
    assert read_manifest(tmp_path).utterances == given


def test_reviewed_must_be_true_or_false(tmp_path: Path) -> None:
    write_manifest(tmp_path, "mine", "recorded human", (utterance(reviewed=True),), edges="exact")
    file = tmp_path / "manifest.jsonl"
    file.write_text(file.read_text().replace('"reviewed":true', '"reviewed":"yes"'))
    assert "reviewed is 'yes'; it must be true or false" in faults(tmp_path)[0]

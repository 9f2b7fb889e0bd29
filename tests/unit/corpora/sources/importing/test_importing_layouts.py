"""Each layout of a source, recorded calls among them: detected, read, and every wrong line reported."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corpora.manifest.conversations import ScriptedConversation
from corpora.manifest.errors import CorpusError, SourceError
from corpora.manifest.library import Corpus
from corpora.sources.importing.layouts import layout_of
from corpora.sources.importing.tree import open_tree
from tests.unit.corpora.sources.importing.sources import (
    RATE_HZ,
    Samples,
    faults_of,
    import_source,
    opened,
    put,
    speech,
    texts,
)

UMLAUT = "schöne Grüße, “ja”"
RECORDING = {"id": "rec", "sources": [{"type": "file", "channels": [0], "source": "a.wav"}]}
CUT = {"id": "cut-1", "start": 0.0, "duration": 0.9, "channel": 0, "recording": RECORDING}
SUPERVISION = {"id": "sup-1", "recording_id": "rec", "start": 0.0, "duration": 0.9, "channel": 0, "text": "good day"}
HUGGING_FACE = ({"file_name": "data/a.wav"}, "first, one"), ({"file_name": "b.flac"}, UMLAUT)


def json_lines(*rows: Any) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def hugging_face(kind: str, field: str) -> str:
    if kind == "jsonl":
        return json_lines(*(row | {field: text} for row, text in HUGGING_FACE))
    return "\n".join([f"file_name,{field}", *(f'{row["file_name"]},"{text}"' for row, text in HUGGING_FACE)])


def put_all(source: Path, recordings: tuple[str, ...], lists: dict[str, str]) -> None:
    for number, name in enumerate(recordings):
        put(source / name, speech(number))
    for name, content in lists.items():
        data = content.encode()
        (source / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)


def detected_layout(source: Path) -> str:
    return layout_of(open_tree(source), None).name


@pytest.mark.parametrize(
    ("layout", "recordings", "lists", "expected"),
    [
        ("folder", ("a/yes.wav", "b/yes.flac", "no.ogg"),
         {"a/yes.txt": "yes please", "b/yes.txt": "of course\nyes", "readme.md": "not audio"},
         {"no": None, "a-yes": "yes please", "b-yes": "of course yes"}),
        ("librispeech", ("Libri/84/121/84-121-0000.flac", "Libri/84/121/84-121-0001.flac"),
         {"Libri/84/121/84-121.trans.txt": "84-121-0000 GO ON\n84-121-0001 STOP HERE\n"},
         {"84-121-0000": "GO ON", "84-121-0001": "STOP HERE"}),
        ("common-voice", ("cv/clips/de_1.mp3", "cv/clips/de_2.mp3"),
         {"cv/validated.tsv": 'client_id\tpath\tsentence\nabc\tde_1.mp3\tEr sagte "ja\nxyz\tde_2\tNein.\n'},
         {"de_1": 'Er sagte "ja', "de_2": "Nein."}),
        ("nemo", ("wavs/a.wav",),
         {"train.json": json_lines({"audio_filepath": "wavs/a.wav", "text": "hello", "duration": 9.0, "channel": "x"})},
         {"a": "hello"}),
        ("kaldi", ("wav/call.wav",),
         {"wav.scp": "call wav/call.wav\n", "segments": "utt1 call 0.0 0.95\n", "text": "utt1 turn it off\n"},
         {"utt1": "turn it off"}),
        *(("lhotse", ("a.wav",),
           {f"recordings_dev.jsonl{gz}": json_lines(RECORDING), f"supervisions_dev.jsonl{gz}": json_lines(SUPERVISION)},
           {"sup-1": "good day"}) for gz in ("", ".gz")),
        ("lhotse", ("a.wav",), {"cuts.jsonl": json_lines(CUT | {"supervisions": [{"text": "good"}, {"text": "day"}]})},
         {"cut-1": "good day"}),
        *(("huggingface", ("train/data/a.wav", "train/b.flac"),
           {f"train/metadata.{kind}": hugging_face(kind, field), "README.md": "a data set"},
           {"train-data-a": "first, one", "train-b": UMLAUT})
          for kind in ("csv", "jsonl") for field in ("transcription", "text", "sentence")),
        ("huggingface", ("test/a.wav", "train/a.wav"),
         {f"{split}/metadata.csv": f"file_name,text,start,end\na.wav,in {split},8,9\n" for split in ("test", "train")},
         {"test-a": "in test", "train-a": "in train"}),
        ("ljspeech", ("LJ/wavs/LJ001-0001.wav", "LJ/wavs/LJ001-0002.wav"),
         {"LJ/metadata.csv": 'LJ001-0001|in 1455, he "said|in fourteen fifty-five, he "said\nLJ001-0002|plain|\n'},
         {"LJ001-0001": 'in fourteen fifty-five, he "said', "LJ001-0002": "plain"}),
        ("csv", ("a.wav",), {"list.csv": 'file,text\na.wav,"one,\ntwo, ""three"""\n'}, {"a": 'one, two, "three"'}),
    ],
)  # fmt: skip
def test_a_layout_is_detected_and_read(
    source: Path, layout: str, recordings: tuple[str, ...], lists: dict[str, str], expected: dict[str, str | None]
) -> None:
    put_all(source, recordings, lists)
    assert detected_layout(source) == layout
    assert texts(import_source(source, source.parent / "out")) == expected


@pytest.mark.parametrize(("table", "text"), [("list.csv", "said"), ("metadata.csv", "heard")])
def test_usual_text_column_of_layout_is_used_among_several(source: Path, table: str, text: str) -> None:
    put_all(source, ("a.wav",), {table: "file_name,transcription,text\na.wav,heard,said\n"})
    assert texts(import_source(source, source.parent / "out")) == {"a": text}


def test_the_usual_format_of_librispeech_is_preferred(source: Path) -> None:
    put_all(source, ("84-1-0.wav", "84-1-0.flac"), {"84-1.trans.txt": "84-1-0 YES\n"})
    (utterance,) = import_source(source, source.parent / "out").imported
    assert utterance.source == "in: 84-1-0.flac"


def test_speakers_and_languages_of_publishers(source: Path) -> None:
    lists = {"validated.tsv": "client_id\tpath\tsentence\tlocale\nabc\ta\tx\tde\nxyz\tb\ty\tde\nabc\tc\tz\tde\n"}
    put_all(source, ("clips/a.mp3", "clips/b.mp3", "clips/c.mp3"), lists)
    first, second, third = import_source(source, source.parent / "out").imported
    assert (first.language, first.domain) == ("de", "reading")
    assert first.speaker == third.speaker != second.speaker
    assert "abc" not in first.speaker
    put_all(source.parent / "libri", ("84-1-0.flac",), {"84-1.trans.txt": "84-1-0 YES\n"})
    (utterance,) = import_source(source.parent / "libri", source.parent / "other").imported
    assert (utterance.speaker, utterance.language) == ("librispeech-84", "en")


def test_nemo_manifest_cuts_at_offsets_and_allows_absolute_paths(source: Path) -> None:
    put(source / "wavs" / "a.wav", speech(0))
    row = {"audio_filepath": "wavs/a.wav", "text": "hello there", "duration": 1.0, "speaker": 7, "license": "MIT"}
    absolute = {"audio_filepath": str(source / "wavs" / "a.wav"), "text": "again", "offset": 0.0, "duration": 0.9}
    (source / "train.json").write_text(json_lines(row, absolute))
    assert detected_layout(source / "train.json") == "nemo"
    first, second = opened(import_source(source / "train.json", source.parent / "out")).utterances
    assert (first.text, first.speaker, first.license) == ("hello there", "7", "MIT")
    assert (second.text, second.samples, second.license) == ("again", round(0.9 * RATE_HZ), "CC0-1.0")


@pytest.mark.parametrize("gap", [" ", "\t", " \t ", "\u3000"])
def test_kaldi_separates_key_and_text_by_any_whitespace(source: Path, gap: str) -> None:
    lists = {
        "wav.scp": f"u1{gap}a.wav\nu2{gap}b.wav\n",
        "text": f"u1{gap}turn it off\nu2{gap}line\u2028separator and \x0b tab\r\nu7 lost words\n",
        "utt2spk": f"u1{gap}anna\nu2{gap}bo\n",
    }
    put_all(source, ("a.wav", "b.wav", "more.wav"), lists)
    outcome = import_source(source, source.parent / "out")
    assert texts(outcome) == {"u1": "turn it off", "u2": "line separator and tab"}
    assert [clip.speaker for clip in outcome.imported] == ["anna", "bo"]
    assert outcome.skipped == (
        "text:3: the text of u7 is not used because no recording or segment has this name.",
        "more.wav: no list names it.",
    )


def test_a_kaldi_segment_may_go_to_the_end_of_its_recording(source: Path) -> None:
    segments = "whole rec 0 -1\nalso rec 0 -1.00\npart rec 0.2 -1.0\nfirst rec 0.0 0.9 0\n"
    put_all(source, ("a.wav",), {"wav.scp": "rec a.wav\n", "segments": segments})
    outcome = import_source(source, source.parent / "out", loudness="none")
    samples = {utterance.id: utterance.samples for utterance in outcome.imported}
    whole = len(speech(0))
    assert samples == {"whole": whole, "also": whole, "part": whole - RATE_HZ // 5, "first": round(0.9 * RATE_HZ)}


@pytest.mark.parametrize(
    "times", ["0.5", "0.5 -2", "-1 -1", "0.5 0.5", "0 1 left", "0 1 -1", "0 1 0 more", "nan 1", "0 nan"]
)
def test_other_times_of_a_kaldi_segment_are_refused(source: Path, times: str) -> None:
    put_all(source, ("a.wav",), {"wav.scp": "rec a.wav\n", "segments": f"one rec {times}\n"})
    (fault,) = faults_of(source)
    assert fault.startswith("segments:1: one: does not name a recording of wav.scp with a start and an end in seconds")


@pytest.mark.parametrize("entry", ["sox a.wav -t wav - |", "sox a.wav -t wav - | ", "| cat a.wav", "touch made |"])
def test_a_kaldi_entry_that_is_a_command_is_never_run(source: Path, entry: str) -> None:
    put_all(source, ("a.wav",), {"wav.scp": f"ok a.wav\nrec {entry}\nark c.ark:17\n"})
    command, missing = faults_of(source)
    assert "wav.scp:2: is a command, and commands are never run; write its output to a file" in command
    assert missing.startswith("wav.scp:3: c.ark:17: is missing")
    assert not (source / "made").exists()


def test_a_table_with_its_own_licenses_and_conversations(source: Path) -> None:
    table = (
        "file;text;speaker;license;consent;conversation;think_s;intent\n"
        'a.wav;"one; two";eve;MIT;by contract;first;;greet\n'
        "b.wav;three;;;;first;0.8;\n"
    )
    put_all(source, ("a.wav", "b.wav"), {"list.csv": table})
    corpus = opened(import_source(source, source.parent / "out", speaker="somebody"))
    assert [
        (utterance.text, utterance.speaker, utterance.license, utterance.consent) for utterance in corpus.utterances
    ] == [
        ("one; two", "eve", "MIT", "by contract"),
        ("three", "somebody", "CC0-1.0", "asked by a test"),
    ]
    (conversation,) = corpus.conversations
    assert [(turn.utterance, turn.think_s, turn.intent) for turn in conversation.turns] == [
        ("a", None, "greet"),
        ("b", 0.8, None),
    ]


COMMAND = RECORDING | {"sources": [{"type": "command", "channels": [0], "source": "cat a.wav"}]}


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("list.csv", "file,text,start_s\na.wav,fine,\ngone.wav,x,\n../../x.wav,x,\na.wav,x,soon\n,x,\ntext.wav,x,\n",
         ("list.csv:3: gone.wav: is missing", "list.csv:4: ../../x.wav: leads out of",
          "list.csv:5: start_s is 'soon'; it must be", "list.csv:6: ''", "text.wav: is not audio in a supported")),
        ("cuts.jsonl", json_lines(CUT | {"recording": COMMAND}, {"id": "x"}, 5),
         ("cuts.jsonl:1: its recording has the type 'command'", "cuts.jsonl:2: has no recording of its own",
          "cuts.jsonl:3: is not a JSON object")),
        ("metadata.jsonl", json_lines({"file_name": "a.wav"}, {"file_name": "gone.wav"}, {"text": "y"}, 5),
         ("metadata.jsonl:2: gone.wav: is missing", "metadata.jsonl:3: ''", "metadata.jsonl:4: is not a JSON object")),
        ("list.jsonl", json_lines({"audio_filepath": "a.wav", "text": "half \ud83d"}), ("list.jsonl:1: is not",)),
    ],
)  # fmt: skip
def test_all_wrong_rows_are_reported_at_once_and_none_written(
    source: Path, name: str, content: str, says: tuple[str, ...]
) -> None:
    put_all(source, ("a.wav",), {name: content, "text.wav": "this is not audio"})
    faults = faults_of(source, form="nemo" if name == "list.jsonl" else None)
    assert len(faults) == len(says)
    for fault, beginning in zip(faults, says, strict=True):
        assert fault.startswith(beginning)


def test_invalid_ljspeech_rows_are_reported(source: Path) -> None:
    put_all(source, ("wavs/a.wav",), {"metadata.csv": "a|x|y\nb|x|y\na|1|2|3\n"})
    missing, cells = faults_of(source)
    assert missing.startswith("metadata.csv:2: b.wav: is missing")
    assert cells.startswith("metadata.csv:3: has 4 cells")


@pytest.mark.parametrize("name", ["/", ".", "./", "..", "../a.wav"])
def test_a_file_name_of_hugging_face_that_is_no_file_is_a_fault(source: Path, name: str) -> None:
    put_all(source, ("a.wav",), {"metadata.csv": f"file_name,text\n{name},x\na.wav,y\n"})
    (fault,) = faults_of(source)
    assert fault.startswith(f"metadata.csv:2: {name}: ")


def test_bad_recordings_can_be_skipped_and_are_reported(source: Path) -> None:
    put(source / "a.wav", speech(0), text="fine")
    (source / "broken.wav").write_bytes(b"RIFF\x00\x00")
    outcome = import_source(source, source.parent / "out", skip_bad=True)
    assert texts(outcome) == {"a": "fine"}
    (fault,) = outcome.faults
    assert fault.startswith("broken.wav: cannot be decoded")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_table_in_the_encodings_that_spreadsheets_write(source: Path, encoding: str, end: str) -> None:
    put(source / "a.wav", speech(0))
    (source / "list.csv").write_bytes(f'file;text{end}a.wav;"{UMLAUT}"{end}'.encode(encoding))
    assert detected_layout(source) == "csv"
    assert texts(import_source(source, source.parent / "out")) == {"a": UMLAUT}


def test_text_file_of_recording_may_be_utf_16_but_has_no_nul(source: Path) -> None:
    put(source / "a.wav", speech(0))
    (source / "a.txt").write_bytes(UMLAUT.encode("utf-16"))
    assert texts(import_source(source, source.parent / "other")) == {"a": UMLAUT}
    (source / "a.txt").write_bytes(b"he\0llo and so on")
    assert faults_of(source)[0].startswith("a.txt: contains NUL characters")


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        (['a.wav,"never closed', "b.wav,fine", "c.wav,fine"], 2),
        (["a.wav,fine", 'b.wav,"never closed', "c.wav,fine"], 3),
        (["a.wav,fine", "b.wav,fine", 'c.wav,"'], 4),
        (['a.wav,"open', 'b.wav,"closed"', "c.wav,fine"], 2),
        (['a.wav,"open', 'b.wav,closed"', "c.wav,fine"], 2),
        (["a.wav,fine", '"b.wav,open', 'c.wav,"', "d.wav,fine"], 3),
        ([*["a.wav,a long text of a line"] * 17, 'a.wav,"open', *["a.wav,a long text of a line"] * 10_000], 19),
    ],
)
def test_an_open_quotation_mark_is_reported_with_its_line(source: Path, rows: list[str], line: int) -> None:
    put_all(source, ("a.wav", "b.wav", "c.wav"), {"list.csv": "\n".join(["file,text", *rows]) + "\n"})
    with pytest.raises(CorpusError) as caught:
        import_source(source, source.parent / "out")
    assert str(caught.value).startswith(f"list.csv:{line}: ")
    assert "quot" in str(caught.value) or "contains a row that names a recording" in str(caught.value)


def test_every_unused_file_is_reported_with_the_reason(source: Path) -> None:
    put(source / "a.wav", speech(0), text="used")
    for name in ("b.txt", "labels.csv", "notes.docx", "c.g729", os.fsdecode(b"notiz\xe9.doc")):
        (source / name).write_text("id,words\n1,x\n")
    outcome = import_source(source, source.parent / "out")
    assert texts(outcome) == {"a": "used"}
    no_suffix = "it does not have the suffix of a supported recording."
    assert dict(sentence.split(": ", 1) for sentence in outcome.skipped) == {
        "b.txt": "there is no recording with this name next to it.",
        "c.g729": no_suffix,
        "labels.csv": "it was not recognized as a list of recordings; if it is one, give its path or use --format.",
        "notes.docx": no_suffix,
        "notiz\\xe9.doc": no_suffix,
    }
    assert import_source(source / "a.wav", source.parent / "one").skipped == (), "of one file, no neighbors are"


def test_a_file_with_a_fault_is_not_also_reported_as_unused(source: Path) -> None:
    put(source / "a.wav", speech(0))
    (source / "link.wav").symlink_to("/etc/hostname")
    outcome = import_source(source, source.parent / "out", skip_bad=True)
    assert len(outcome.faults) == 1
    assert outcome.skipped == ()


# The caller's and the agent's speech as (start, end) in seconds. The fourth utterance interrupts the agent.
CALLER = ((2.0, 3.0), (5.0, 6.2), (7.1, 8.0), (10.0, 11.0))
AGENT = ((0.2, 1.5), (3.5, 4.5), (8.4, 10.5))


def speech_rows(spans: tuple[tuple[float, float], ...], seed: int, seconds: float = 12.0) -> Samples:
    rng = np.random.default_rng(seed)
    line = rng.standard_normal(round(seconds * RATE_HZ)) * 1e-4
    for start_s, end_s in spans:
        first, end = round(start_s * RATE_HZ), round(end_s * RATE_HZ)
        line[first:end] = rng.standard_normal(end - first) * 0.08
    return line


@pytest.fixture
def call(tmp_path: Path) -> Path:
    echo = speech_rows(AGENT, 2)
    # The echo is more than 50 dB below the speech; a louder one could not be distinguished from soft speech.
    caller = speech_rows(CALLER, 1) + 0.002 * echo
    return put(tmp_path / "in" / "call.wav", np.stack((caller, echo), axis=1))


def cut(call: Path, **changes: float) -> tuple[Corpus, ScriptedConversation]:
    corpus = opened(import_source(call.parent, call.parent.parent / "out", caller_channel=0, **changes))
    (conversation,) = corpus.conversations
    return corpus, conversation


def test_a_call_is_cut_at_the_pauses_and_kept_in_order(call: Path) -> None:
    corpus, conversation = cut(call)
    assert conversation.id == "call"
    assert [turn.utterance for turn in conversation.turns] == ["call-001", "call-002", "call-003", "call-004"]
    spoken_s = [utterance.speech_s for utterance in corpus.utterances]
    assert spoken_s == pytest.approx([1.0, 1.2, 0.9, 1.0], abs=0.03)


def test_think_times_are_measured_from_end_of_agent_speech(call: Path) -> None:
    _, conversation = cut(call)
    think_s = [turn.think_s for turn in conversation.turns]
    # The third follows a pause of the caller without a reply, so its think time is unknown. The fourth interrupts.
    assert think_s[:2] == [pytest.approx(0.5, abs=0.03), pytest.approx(0.5, abs=0.03)]
    assert think_s[2:] == [None, None]
    barge_in = [turn.barge_in_after_s for turn in conversation.turns]
    assert barge_in == [None, None, None, pytest.approx(1.6, abs=0.03)]


def test_a_longer_pause_setting_joins_utterances(call: Path) -> None:
    corpus, _ = cut(call, pause_s=1.0)
    assert [utterance.speech_s for utterance in corpus.utterances] == pytest.approx([1.0, 3.0, 1.0], abs=0.03)


def test_texts_come_from_transcript_next_to_call(call: Path) -> None:
    segments = [
        {"start": 2.1, "end": 2.5, "text": "hello", "channel": 0},
        {"start": 2.5, "end": 2.9, "text": "there", "channel": 0},
        {"start": 3.6, "end": 4.4, "text": "how can I help", "channel": 1},
        {"start": 5.0, "end": 6.1, "text": "my card is gone"},
    ]
    call.with_suffix(".json").write_text(json.dumps({"segments": segments}))
    corpus, _ = cut(call)
    assert [utterance.text for utterance in corpus.utterances] == ["hello there", "my card is gone", None, None]


def test_a_call_with_one_channel_or_a_silent_caller_is_a_fault(tmp_path: Path) -> None:
    put(tmp_path / "in" / "mono.wav", speech())
    put(tmp_path / "in" / "silent.wav", np.stack((np.zeros(RATE_HZ), speech_rows(AGENT, 2)[:RATE_HZ]), axis=1))
    with pytest.raises(SourceError) as caught:
        import_source(tmp_path / "in", tmp_path / "out", caller_channel=0)
    mono, silent = caught.value.faults
    assert mono.startswith("mono.wav: has 1 channel, so it has no channel 0 for the caller")
    assert silent.startswith("silent.wav: nobody speaks on channel 0")


def test_a_caller_without_pauses_is_a_fault_with_the_times(tmp_path: Path) -> None:
    line = np.stack((speech_rows(((0.5, 11.0),), 1), speech_rows(AGENT, 2) * 0.1), axis=1)
    put(tmp_path / "in" / "long.wav", line)
    with pytest.raises(SourceError, match=r"from 0\.5 to 11\.0 s without a pause of 0\.7 s"):
        import_source(tmp_path / "in", tmp_path / "out", caller_channel=0, max_s=5.0)

"""The corpus of the demo, made from the real packages."""

from pathlib import Path

import pytest

from corpora.cli import main
from corpora.manifest.library import available, open_corpus
from tests.corpus_faults import find_faults

pytestmark = pytest.mark.nightly


def test_corpus_of_demo_installs_and_has_speech_of_every_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VOICEPROBE_HOME", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["voiceprobe corpus", "install", "recorded-en"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code in (None, 0), capsys.readouterr().err
    (info,) = (info for info in available() if info.name == "recorded-en")
    assert (info.kind, info.utterance_count) == ("recorded human", 77)
    assert min(info.short_count, info.medium_count) >= 30
    assert info.long_count >= 5
    assert info.speakers == ("asterisk-allison", "cmu-cards", "cmu-commands", "librivox-austen")
    assert info.licenses == ("BSD-2-Clause", "CC-BY-SA-3.0")
    corpus = open_corpus()
    assert corpus.name == "recorded-en"
    assert len({utterance.domain for utterance in corpus.utterances}) == 12
    assert len({utterance.text for utterance in corpus.utterances}) == 77, "a transcript names one clip"
    assert {utterance.source.split(", ")[0] for utterance in corpus.utterances} == {
        "pocketsphinx test data",
        "asterisk-core-sounds-en",
    }
    assert find_faults(corpus.path) == ()

"""The registry: what it loads and when, protocols of other packages, and the protocol that an address is for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from loadtest.errors import UsageError
from loadtest.protocols import registry
from loadtest.protocols.base import CallerOptions, CallerProtocol
from loadtest.protocols.built_in import BUILT_IN

ROOT = Path(__file__).parents[4]
SMALL = """
from loadtest.protocols.base import CallerProtocol, Capabilities
from loadtest.protocols.registry import register


@register("small-wire", summary="a small wire", shows=("speech",), transport="tcp", url_hints=("ws*://*/small",))
class SmallWire(CallerProtocol):
    def __init__(self, options):
        self.capabilities = Capabilities(input_rate_hz=16_000, frame_ms=20, not_observable={})
"""


def python(code: str, *folders: Path) -> str:
    """Run code in a process of its own, in which nothing has been imported, and return what it prints."""
    path = os.pathsep.join(map(str, (ROOT, *folders)))
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def install(folder: Path, module: str, entry_points: str, package: str = "small-wires") -> Path:
    """Lay out a package as an installer does: a module next to the metadata with its entry points."""
    metadata = folder / f"{package.replace('-', '_')}-1.2.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
    (metadata / "entry_points.txt").write_text(f"[voiceprobe.protocols]\n{entry_points}\n")
    (folder / "small_wire.py").write_text(module)
    return folder


def test_a_wire_is_loaded_when_its_name_is_asked_for() -> None:
    code = (
        "import sys\n"
        "from loadtest.protocols import registry\n"
        "from loadtest.protocols.base import CallerOptions\n"
        "wires = lambda: {name.split('.')[2] for name in sys.modules if name.startswith('loadtest.protocols.')}\n"
        "registry.names(), registry.describe('twilio'), registry.guess('tcp://h:1')\n"
        "before = wires()\n"
        "registry.make_caller('vllm-realtime', CallerOptions())\n"
        "print(sorted(before & {'declared', 'openai_realtime', 'pipecat', 'telephony', 'vllm', 'wyoming'}))\n"
        "print('vllm' in wires(), 'pipecat' in wires())"
    )
    assert python(code).splitlines() == ["[]", "True False"]


def test_every_built_in_protocol_has_own_name_and_summary() -> None:
    assert list(registry.names()) == sorted(BUILT_IN)
    summaries = [registry.describe(name).summary for name in registry.names()]
    assert len(set(summaries)) == len(summaries)


def test_a_package_adds_a_protocol_by_an_entry_point(tmp_path: Path) -> None:
    folder = install(tmp_path, SMALL, "small-wire = small_wire")
    code = (
        "import sys\n"
        "from loadtest.protocols import registry\n"
        "from loadtest.protocols.base import CallerOptions\n"
        "print('small-wire' in registry.names(), 'small_wire' in sys.modules)\n"
        "print(*(line for line in registry.lines() if 'small-wire' in line), 'small_wire' in sys.modules)\n"
        "print(registry.guess('ws://h/v1/realtime'), 'small_wire' in sys.modules)\n"
        "print(registry.guess('wss://h/small'), registry.describe('small-wire').transport)\n"
        "print(registry.make_caller('small-wire', CallerOptions()).capabilities.input_rate_hz)"
    )
    assert python(code, folder).splitlines() == [
        "True False",
        "small-wire: of the package small-wires 1.2 False",
        "openai-realtime False",
        "small-wire tcp",
        "16000",
    ]


def test_a_package_cannot_take_the_name_of_a_built_in_protocol(tmp_path: Path) -> None:
    folder = install(tmp_path, "raise RuntimeError('loaded')", "wyoming = small_wire")
    code = (
        "from loadtest.protocols import registry\n"
        "from loadtest.protocols.base import CallerOptions\n"
        "print(type(registry.make_caller('wyoming', CallerOptions())).__name__)"
    )
    assert python(code, folder) == "WyomingCaller"


@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        ("import voiceprobe_sdk_that_is_missing", "of the package small-wires 1.2 cannot be loaded: ModuleNotFound"),
        ("", "has an entry point for the protocol 'small-wire', but does not register it"),
    ],
)
def test_a_package_that_cannot_be_loaded(module: str, sentence: str, tmp_path: Path) -> None:
    folder = install(tmp_path, module, "small-wire = small_wire")
    assert sentence in python(REFUSED, folder)


def test_two_packages_with_one_name(tmp_path: Path) -> None:
    install(tmp_path / "one", SMALL, "small-wire = small_wire")
    install(tmp_path / "two", SMALL, "small-wire = small_wire", "other-wires")
    refusal = python(REFUSED, tmp_path / "one", tmp_path / "two")
    assert refusal == (
        "the protocol 'small-wire' is in the package small-wires 1.2 and the package other-wires 1.2: "
        "remove all but one of them"
    )


REFUSED = (
    "from loadtest.errors import UsageError\n"
    "from loadtest.protocols import registry\n"
    "try:\n"
    "    registry.describe('small-wire')\n"
    "except UsageError as error:\n"
    "    print(error)"
)


def speech_alone(options: CallerOptions) -> CallerProtocol:
    return registry.make_caller("tts", options)


def test_a_name_is_registered_once() -> None:
    with pytest.raises(ValueError, match="'twilio' is registered twice"):
        registry.register("twilio", summary="another", shows=())(speech_alone)
    with pytest.raises(UsageError, match="unknown protocol 'sip'; known: asr, declared, "):
        registry.describe("sip")


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("ws://127.0.0.1:8765/v1/realtime", "openai-realtime"),
        ("wss://api.openai.com/v1/realtime?model=gpt-realtime", "openai-realtime"),
        ("wss://corner.openai.azure.com/openai/v1/realtime?api-version=1", "openai-realtime"),
        ("ws://127.0.0.1:7860/ws-client", "pipecat"),
        ("http://127.0.0.1:7860/api/offer", "smallwebrtc"),
        ("https://bots.example.org/sessions/1/api/offer?k=1", "smallwebrtc"),
        ("wss://generativelanguage.googleapis.com?key=k", "gemini-live"),
        (
            "wss://gateway.example/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent",
            "gemini-live",
        ),
        ("wss://us-central1-aiplatform.googleapis.com", "gemini-live"),
        ("http://127.0.0.1:4000/v1", "http-cascade"),
        ("https://user:password@gateway.example/team/v1/", "http-cascade"),
        ("tcp://127.0.0.1:10300", "wyoming"),
        ("tls://127.0.0.1:10300", "wyoming"),
        ("wss://agent.deepgram.com", "deepgram-agent"),
        ("wss://agent.deepgram.com/v1/agent/converse", "deepgram-agent"),
        ("ws://127.0.0.1:8080/v1/agent/converse", "deepgram-agent"),
        ("tcp-listen://127.0.0.1:7777", "livekit-console"),
        ("ws://127.0.0.1:1/anything", "openai-realtime"),
        ("ws://127.0.0.1:1/ws-client?next=/v1/realtime", "pipecat"),
        ("", "openai-realtime"),
        ("ws://[", "openai-realtime"),
    ],
)
def test_the_protocol_that_an_address_is_for(url: str, name: str) -> None:
    assert registry.guess(url) == name

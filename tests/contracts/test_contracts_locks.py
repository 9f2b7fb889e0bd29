"""The locks hold exactly what pyproject.toml asks for, by hash, and nothing of the machine that made them."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from loadtest.protocols.built_in import BUILT_IN

ROOT = Path(__file__).parents[2]
PEERS = tuple(sorted(path.stem for path in (ROOT / "tests" / "peers").glob("*.in")))
LOCKS = (
    "requirements.lock",
    "requirements-dev.lock",
    "requirements-bootstrap.lock",
    "tests/peers.lock",
    "loadtest/targets/assistant/real/models.lock",
    *(f"tests/peers/{peer}.lock" for peer in PEERS),
)
PIN = re.compile(r"^([A-Za-z0-9._-]+)(\[[^\]]*\])?==([^\s;\\]+)")


def pins(lock: str) -> dict[str, list[Version]]:
    """Versions by name; a name may be pinned more than once, under different markers."""
    found: dict[str, list[Version]] = {}
    for line in (ROOT / lock).read_text().splitlines():
        if match := PIN.match(line):
            found.setdefault(canonicalize_name(match[1]), []).append(Version(match[3]))
    return found


def asked(extra: str | None) -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = project["dependencies"] if extra is None else project["optional-dependencies"][extra]
    return [Requirement(text) for text in named]


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_names_nothing_but_pins_and_hashes(lock: str) -> None:
    for number, line in enumerate((ROOT / lock).read_text().splitlines(), start=1):
        code = line.partition("#")[0].strip().removesuffix("\\").strip()
        assert not code or PIN.match(code) or re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", code), (
            f"{lock}:{number}: {line}"
        )
        assert "://" not in line, f"{lock}:{number} holds an address"
        assert not re.search(r"(^|\s)/\w", line), f"{lock}:{number} holds a path of some machine"


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pin_has_a_hash(lock: str) -> None:
    blocks = re.split(r"\n(?=[A-Za-z0-9])", (ROOT / lock).read_text())
    without = [block.splitlines()[0] for block in blocks if PIN.match(block) and "--hash=sha256:" not in block]
    assert not without


@pytest.mark.parametrize(
    ("lock", "extra"), [("requirements.lock", None), ("requirements-dev.lock", None), ("requirements-dev.lock", "dev")]
)
def test_what_the_project_asks_for_is_pinned_within_its_range(lock: str, extra: str | None) -> None:
    pinned = pins(lock)
    for requirement in asked(extra):
        versions = pinned.get(canonicalize_name(requirement.name))
        assert versions, f"{requirement.name} is not in {lock}: compile it again"
        for version in versions:
            assert requirement.specifier.contains(version, prereleases=True), f"{lock}: {requirement} against {version}"


def test_the_suite_runs_on_the_very_versions_that_users_get() -> None:
    dev = pins("requirements-dev.lock")
    assert {name: dev.get(name) for name in pins("requirements.lock")} == pins("requirements.lock")


def test_peers_and_installer_are_pinned_once() -> None:
    assert list(pins("tests/peers.lock")) == ["speech-to-speech"]
    assert list(pins("requirements-bootstrap.lock")) == ["uv"]


@pytest.mark.parametrize("peer", PEERS)
def test_a_peer_is_pinned_at_the_version_that_it_is_tested_at(peer: str) -> None:
    pinned = pins(f"tests/peers/{peer}.lock")
    for line in (ROOT / "tests" / "peers" / f"{peer}.in").read_text().splitlines():
        requirement = Requirement(line)
        assert [spec.operator for spec in requirement.specifier] == ["=="], f"{peer}.in: {line} names no version"
        assert pinned[canonicalize_name(requirement.name)] == [Version(next(iter(requirement.specifier)).version)]


def test_every_lock_of_a_peer_has_its_source() -> None:
    assert {path.stem for path in (ROOT / "tests" / "peers").glob("*.lock")} == set(PEERS)


@pytest.mark.parametrize("protocol", sorted(BUILT_IN))
def test_what_proves_a_protocol_is_pinned_in_the_version_that_it_states(protocol: str) -> None:
    pinned = {(name, version) for lock in LOCKS for name, versions in pins(lock).items() for version in versions}
    for stated in BUILT_IN[protocol].proved_against:
        match = re.fullmatch(r"([a-z0-9-]+) ([0-9][0-9a-z.]*)( \([^()]+\))?", stated)
        assert match is not None, stated
        assert (canonicalize_name(match[1]), Version(match[2])) in pinned, stated

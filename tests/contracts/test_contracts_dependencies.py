"""Dependencies and their locks: versions, licenses, hashes, and the job that audits what needs a network."""

import re
import shlex
import tomllib
from collections import Counter
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from loadtest.protocols.built_in import BUILT_IN

ROOT = Path(__file__).parents[2]
AUDIT = ROOT / ".github" / "workflows" / "dependency-audit.yml"
# As they are named in expressions, classifiers and free text; weak copyleft included, which a library's user may use.
ALLOWED = re.compile(
    r"0BSD|BSD(?:-\d-Clause)?|BSD License|Apache(?:-2\.0| Software License| License 2\.0)|MIT(?:-0|-CMU)?|MIT License|"
    r"ISC License \(ISCL\)|Zlib|CC0-1\.0|PSF-2\.0|Python Software Foundation License|ZPL-2\.1|Unlicense|"
    r"\d-Clause BSD License|MPL-2\.0|Mozilla Public License 2\.0 \(MPL 2\.0\)|LGPL-2\.1-or-later|"
    r"GNU Lesser General Public License v2 or later \(LGPLv2\+\)",
    re.IGNORECASE,
)
EXCEPTIONS = {
    "espeakng-loader": "names none itself; the library that it carries, espeak-ng, is under GPL-3.0-or-later",
}


def pinned(lock: str) -> list[Requirement]:
    """The pins of a lock, with their markers."""
    lines = (ROOT / lock).read_text(encoding="utf-8").splitlines()
    return [Requirement(line.removesuffix("\\").strip()) for line in lines if re.match(r"[A-Za-z0-9]", line)]


def licenses(package: Distribution) -> list[str]:
    """The licenses that a package names, one by one."""
    metadata = package.metadata
    if expression := metadata.get("License-Expression"):
        return re.findall(r"[^()\s]+", re.sub(r"\b(?:AND|OR|WITH [\w-]+-exception)\b", " ", expression))
    of_classifiers = [
        classifier.rpartition("::")[2].strip()
        for classifier in metadata.get_all("Classifier") or ()
        if classifier.startswith("License ::")
    ]
    return of_classifiers or [line.strip() for line in (metadata.get("License") or "").splitlines()[:1]]


def applies(requirement: Requirement) -> bool:
    return requirement.marker is None or requirement.marker.evaluate()


RUNTIME = [requirement for requirement in pinned("requirements.lock") if applies(requirement)]


def test_the_locks_are_read() -> None:
    assert len(RUNTIME) > 80


@pytest.mark.parametrize("requirement", RUNTIME, ids=lambda requirement: requirement.name)
def test_installed_packages_match_lock_and_allowed_licenses(requirement: Requirement) -> None:
    try:
        installed = distribution(requirement.name)
    except PackageNotFoundError:
        pytest.fail(f"{requirement.name} is locked and not installed")
    assert requirement.specifier.contains(installed.version, prereleases=True)
    named = licenses(installed)
    if requirement.name in EXCEPTIONS:
        assert not named, "it names one now: take it out of the exceptions"
        return
    assert named, f"{requirement.name} names no license"
    assert [text for text in named if not ALLOWED.fullmatch(text)] == []


@pytest.mark.parametrize("name", ["GPL-3.0-only", "AGPL-3.0-or-later", "Other/Proprietary License", "BUSL-1.1"])
def test_other_licenses_are_not_allowed(name: str) -> None:
    assert not ALLOWED.fullmatch(name)


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-dev.lock"])
def test_package_is_pinned_twice_only_under_exclusive_markers(lock: str) -> None:
    every = pinned(lock)
    count = Counter(canonicalize_name(requirement.name) for requirement in every)
    for name in (name for name, number in count.items() if number > 1):
        markers = [requirement.marker for requirement in every if canonicalize_name(requirement.name) == name]
        assert all(markers), f"{name} is pinned without a marker and again"
        for version in ("3.11", "3.12", "3.13", "3.14"):
            environment = {"python_version": version, "python_full_version": f"{version}.1"}
            assert sum(_holds(marker, environment) for marker in markers) <= 1, (name, version)


def _holds(marker: Marker | None, environment: dict[str, str]) -> bool:
    return marker is not None and marker.evaluate(environment)


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-dev.lock"])
def test_no_version_is_a_release_before_its_release(lock: str) -> None:
    pins = {requirement.name: next(iter(requirement.specifier)) for requirement in pinned(lock)}
    early = {name: pin.version for name, pin in pins.items() if re.search(r"(a|b|rc|dev)\d+$", pin.version)}
    # opentelemetry publishes its conventions and instrumentations as betas only.
    assert [name for name in early if not name.startswith("opentelemetry-")] == []


def test_audit_job_checks_every_installed_lock_without_skips() -> None:
    job: Any = yaml.safe_load(AUDIT.read_text(encoding="utf-8"))
    assert job["permissions"] == {"contents": "read"}
    commands = [shlex.split(step["run"]) for step in job["jobs"]["audit"]["steps"] if "run" in step]
    audits = [command for command in commands if command[0] == "pip-audit"]
    audited = {command[command.index("-r") + 1] for command in audits}
    assert audited == {path.name for path in ROOT.glob("requirements*.lock")}
    for command in audits:
        assert {"--strict", "--disable-pip", "--require-hashes"} <= set(command)
    (install,) = [command for command in commands if "install" in command]
    assert re.fullmatch(r"pip-audit==[\d.]+", install[-1])


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
    versions: dict[str, list[Version]] = {}
    for line in (ROOT / lock).read_text().splitlines():
        if match := PIN.match(line):
            versions.setdefault(canonicalize_name(match[1]), []).append(Version(match[3]))
    return versions


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
def test_requirements_of_project_are_pinned_within_their_range(lock: str, extra: str | None) -> None:
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
def test_proof_of_protocol_is_pinned_in_the_version_it_states(protocol: str) -> None:
    pinned = {(name, version) for lock in LOCKS for name, versions in pins(lock).items() for version in versions}
    for stated in BUILT_IN[protocol].proved_against:
        match = re.fullmatch(r"([a-z0-9-]+) ([0-9][0-9a-z.]*)( \([^()]+\))?", stated)
        assert match is not None, stated
        assert (canonicalize_name(match[1]), Version(match[2])) in pinned, stated

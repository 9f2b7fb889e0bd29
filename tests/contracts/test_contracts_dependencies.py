"""What can be audited of the dependencies without a network: versions, licenses, and the job that does the rest."""

import re
import shlex
from collections import Counter
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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


def licenses(found: Distribution) -> list[str]:
    """The licenses that a package names, one by one."""
    metadata = found.metadata
    if expression := metadata.get("License-Expression"):
        return re.findall(r"[^()\s]+", re.sub(r"\b(?:AND|OR|WITH [\w-]+-exception)\b", " ", expression))
    of_classifiers = [
        each.rpartition("::")[2].strip()
        for each in metadata.get_all("Classifier") or ()
        if each.startswith("License ::")
    ]
    return of_classifiers or [line.strip() for line in (metadata.get("License") or "").splitlines()[:1]]


def applies(requirement: Requirement) -> bool:
    return requirement.marker is None or requirement.marker.evaluate()


RUNTIME = [each for each in pinned("requirements.lock") if applies(each)]


def test_the_locks_are_read() -> None:
    assert len(RUNTIME) > 80


@pytest.mark.parametrize("requirement", RUNTIME, ids=lambda each: each.name)
def test_what_is_installed_is_what_is_locked_under_a_license_that_is_allowed(requirement: Requirement) -> None:
    try:
        found = distribution(requirement.name)
    except PackageNotFoundError:
        pytest.fail(f"{requirement.name} is locked and not installed")
    assert requirement.specifier.contains(found.version, prereleases=True)
    named = licenses(found)
    if requirement.name in EXCEPTIONS:
        assert not named, "it names one now: take it out of the exceptions"
        return
    assert named, f"{requirement.name} names no license"
    assert [each for each in named if not ALLOWED.fullmatch(each)] == []


@pytest.mark.parametrize("name", ["GPL-3.0-only", "AGPL-3.0-or-later", "Other/Proprietary License", "BUSL-1.1"])
def test_other_licenses_are_not_allowed(name: str) -> None:
    assert not ALLOWED.fullmatch(name)


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-dev.lock"])
def test_a_package_is_pinned_twice_only_under_markers_that_exclude_each_other(lock: str) -> None:
    every = pinned(lock)
    count = Counter(canonicalize_name(each.name) for each in every)
    for name in (name for name, number in count.items() if number > 1):
        markers = [each.marker for each in every if canonicalize_name(each.name) == name]
        assert all(markers), f"{name} is pinned without a marker and again"
        for version in ("3.11", "3.12", "3.13", "3.14"):
            environment = {"python_version": version, "python_full_version": f"{version}.1"}
            assert sum(_holds(marker, environment) for marker in markers) <= 1, (name, version)


def _holds(marker: Marker | None, environment: dict[str, str]) -> bool:
    return marker is not None and marker.evaluate(environment)


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-dev.lock"])
def test_no_version_is_a_release_before_its_release(lock: str) -> None:
    pins = {each.name: next(iter(each.specifier)) for each in pinned(lock)}
    early = {name: pin.version for name, pin in pins.items() if re.search(r"(a|b|rc|dev)\d+$", pin.version)}
    # opentelemetry publishes its conventions and instrumentations as betas only.
    assert [name for name in early if not name.startswith("opentelemetry-")] == []


def test_the_job_with_a_network_audits_every_lock_that_we_install_and_skips_nothing() -> None:
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

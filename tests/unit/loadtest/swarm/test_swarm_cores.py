"""The cores that may be used are no more than affinity and control groups allow."""

import os
from pathlib import Path

import pytest

from loadtest.swarm.cores import most_processes, usable_cores


@pytest.fixture(autouse=True)
def _eight(monkeypatch: pytest.MonkeyPatch) -> None:
    def affinity(pid: int) -> set[int]:
        del pid
        return set(range(8))

    monkeypatch.setattr(os, "sched_getaffinity", affinity, raising=False)


def test_without_a_control_group_affinity_decides(tmp_path: Path) -> None:
    assert usable_cores(tmp_path / "none", tmp_path / "none") == 8


@pytest.mark.parametrize(
    ("text", "cores"),
    [("max 100000", 8), ("250000 100000", 2), ("50000 100000", 1), ("9900000 100000", 8), ("nonsense", 8), ("", 8)],
)
def test_a_limit_of_cpu_time_counts_in_whole_cores(tmp_path: Path, text: str, cores: int) -> None:
    (tmp_path / "cgroups" / "a").mkdir(parents=True)
    (tmp_path / "cgroups" / "a" / "cpu.max").write_text(text)
    (tmp_path / "own").write_text("0::/a\n")
    assert usable_cores(tmp_path / "cgroups", tmp_path / "own") == cores


def test_the_tightest_of_the_groups_around_a_process_counts(tmp_path: Path) -> None:
    inner = tmp_path / "cgroups" / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "cpu.max").write_text("400000 100000")
    (inner.parent / "cpu.max").write_text("300000 100000")
    (tmp_path / "own").write_text("0::/a/b\n")
    assert usable_cores(tmp_path / "cgroups", tmp_path / "own") == 3


@pytest.mark.parametrize(("quota", "cores"), [("200000", 2), ("-1", 8)])
def test_limits_of_the_first_version_count_too(tmp_path: Path, quota: str, cores: int) -> None:
    folder = tmp_path / "cgroups" / "cpu,cpuacct" / "job"
    folder.mkdir(parents=True)
    (folder / "cpu.cfs_quota_us").write_text(f"{quota}\n")
    (folder / "cpu.cfs_period_us").write_text("100000\n")
    (tmp_path / "own").write_text("5:memory:/job\n4:cpu,cpuacct:/job\n")
    assert usable_cores(tmp_path / "cgroups", tmp_path / "own") == cores


@pytest.mark.parametrize(("cores", "most"), [(1, 1), (2, 2), (3, 2), (4, 3), (64, 63)])
def test_the_endpoint_keeps_a_core_where_there_are_more_than_two(cores: int, most: int) -> None:
    assert most_processes(cores) == most

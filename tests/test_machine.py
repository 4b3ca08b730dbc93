"""The number of processors: the affinity of the process, and the quotas of its cgroups in both versions."""

import os

import pytest

from halfseen import _machine
from halfseen._machine import count_processors


@pytest.fixture
def system(tmp_path, monkeypatch):
    """Writes files below a root of their own; the affinity of the process is 8 processors."""
    monkeypatch.setattr(_machine, "_count_affinity", lambda: 8)

    def write(files):
        for name, content in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
        return tmp_path

    return write


V2 = {"proc/self/cgroup": "0::/\n"}
V1 = {"proc/self/cgroup": "5:memory:/a\n4:cpu,cpuacct:/docker/abc\n0::/\n"}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({}, 8, id="no cgroups"),
        pytest.param(V2 | {"sys/fs/cgroup/cpu.max": "max 100000\n"}, 8, id="version 2 without a quota"),
        pytest.param(V2 | {"sys/fs/cgroup/cpu.max": "200000 100000\n"}, 2, id="version 2"),
        pytest.param(V2 | {"sys/fs/cgroup/cpu.max": "50000 100000\n"}, 1, id="half a processor"),
        pytest.param(V2 | {"sys/fs/cgroup/cpu.max": "150000 100000\n"}, 2, id="one and a half"),
        pytest.param(V2 | {"sys/fs/cgroup/cpu.max": "9000000 100000\n"}, 8, id="more than the affinity"),
        pytest.param(V2 | {"sys/fs/cgroup/cpu.max": "unknown\n"}, 8, id="not numbers"),
        pytest.param(
            {
                "proc/self/cgroup": "0::/user.slice/own\n",
                "sys/fs/cgroup/user.slice/own/cpu.max": "max 100000\n",
                "sys/fs/cgroup/user.slice/cpu.max": "300000 100000\n",
            },
            3,
            id="of a group around that of the process",
        ),
        pytest.param(
            V1 | {"sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us": "-1\n",
                  "sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us": "100000\n"},
            8,
            id="version 1 without a quota",
        ),
        pytest.param(
            V1 | {"sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us": "400000\n",
                  "sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us": "100000\n"},
            4,
            id="version 1",
        ),
        pytest.param(
            V1 | {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "400000\n",
                  "sys/fs/cgroup/cpu/cpu.cfs_period_us": "200000\n"},
            2,
            id="version 1 in a container",
        ),
    ],
)  # fmt: skip
def test_no_more_processors_are_counted_than_are_granted(system, files, expected):
    assert count_processors(system(files)) == expected


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system knows no affinity")
def test_the_affinity_of_the_process_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 5, 7})
    assert count_processors(tmp_path) == 3

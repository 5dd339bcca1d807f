"""Free memory from a tree of files: the kernel's estimate, or the control group's limit."""

import os

import pytest

from edgescope.devices.cpu.limits import Memory


@pytest.fixture
def tree(tmp_path):
    def write(files):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    write({"proc/meminfo": "MemTotal:  8000 kB\nMemFree:  100 kB\nMemAvailable:   4000 kB\n"})
    return write


def test_without_a_control_group(tree):
    with Memory(tree({})) as memory:
        assert memory.total == 8000 * 1024
        assert memory.available() == 4000 * 1024


@pytest.mark.parametrize(
    ("line", "folder", "limit", "use", "stat"),
    [
        ("0::/box\n", "sys/fs/cgroup/box", "memory.max", "memory.current", "inactive_file 50000\n"),
        (
            "4:memory:/box\n",
            "sys/fs/cgroup/memory/box",
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
            # version 1 counts the group with all below it: only the total fits the use
            "inactive_file 0\ntotal_rss 5\ntotal_inactive_file 50000\n",
        ),
    ],
)
def test_the_control_groups_limit_counts(tree, line, folder, limit, use, stat):
    files = {limit: "2000000", use: "1500000", "memory.stat": "anon 7\n" + stat}
    root = tree({"proc/self/cgroup": line} | {f"{folder}/{name}": text for name, text in files.items()})
    with Memory(root) as memory:
        assert memory.total == 2_000_000
        assert memory.available() == 550_000


def test_no_limit_is_no_limit(tree):
    files = {"memory.max": "max\n", "memory.current": "5", "memory.stat": ""}
    root = tree(
        {"proc/self/cgroup": "0::/\n"} | {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    )
    with Memory(root) as memory:
        assert memory.available() == 4000 * 1024


def test_a_group_without_statistics_sets_no_limit_and_leaves_no_file_open(tree):
    files = {"memory.max": "2000000", "memory.current": "5"}
    root = tree(
        {"proc/self/cgroup": "0::/\n"} | {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    )
    before = os.listdir("/proc/self/fd")
    with Memory(root) as memory:
        assert memory.available() == 4000 * 1024
    assert os.listdir("/proc/self/fd") == before

"""How long an emulated medium lets a reader wait, what a test of a folder reads, and what the page cache holds.

A limit of reads by a control group, in a tree of files that stands for the kernel's.
"""

import errno
import mmap
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from edgescope.errors import UnsupportedError
from edgescope.wings.training import medium
from edgescope.wings.training import medium as io_limit
from edgescope.wings.training.medium import MEDIA, Medium, Speed, Throttle, speed

SLOW = Medium(bytes_s=1e6, latency_s=4e-3, depth=2)
"""A megabyte a second, and 4 ms a read, two at once."""


class Clock:
    """Time that passes only in sleep, and by `tick_s` at each look."""

    def __init__(self, monkeypatch, tick_s=0.0):
        self.s, self.tick_s, self.slept = 100.0, tick_s, []
        told = {"monotonic": self.now, "monotonic_ns": lambda: round(self.now() * 1e9), "sleep": self.sleep}
        monkeypatch.setattr(medium, "time", SimpleNamespace(**told))

    def now(self):
        self.s += self.tick_s
        return self.s

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.s += seconds


def test_a_read_alone_waits_for_latency_and_bytes_and_several_share_the_medium(monkeypatch):
    clock, throttle = Clock(monkeypatch), Throttle(SLOW)
    throttle.serve(10_000)
    assert clock.slept == pytest.approx([0.014])
    clock.s = 100.0  # two more that ask at the same moment: each adds 2 ms and its bytes
    throttle.serve(10_000)
    clock.s = 100.0
    throttle.serve(0)
    assert clock.slept[1:] == pytest.approx([0.024, 0.026])
    clock.s = 200.0
    throttle.serve(0)
    assert clock.slept[-1] == pytest.approx(0.004)


def test_what_took_longer_than_the_medium_waits_no_more(monkeypatch):
    clock, throttle = Clock(monkeypatch, tick_s=1.0), Throttle(SLOW)
    throttle.serve(10_000)
    assert clock.slept == [0]


@pytest.mark.parametrize(("held", "size", "served"), [(0, 9, [9]), (4, 9, [5]), (9, 9, []), (0, 0, [])])
def test_only_what_the_page_cache_lacks_is_waited_for(monkeypatch, held, size, served):
    found = []
    monkeypatch.setattr(medium, "resident_bytes", lambda path: (held, size))
    throttle = Throttle(SLOW)
    monkeypatch.setattr(throttle, "serve", found.append)
    throttle.wait("a")
    assert found == served


def test_media_are_of_these_classes():
    assert [(name, m.bytes_s / 1e6, m.latency_s * 1e3, m.depth) for name, m in medium.MEDIA.items()] == [
        ("sd", 80.0, 1.2, 1),
        ("emmc", 250.0, 0.25, 2),
        ("hdd", 120.0, 12.0, 1),
        ("nvme", 2000.0, 0.08, 32),
    ]


@pytest.fixture
def files(tmp_path):
    made = [tmp_path / f"{k:02d}" for k in range(10)]
    for k, path in enumerate(made):
        path.write_bytes(bytes(100 * k + 9000))
    return made


def test_the_speed_of_a_folder_is_of_its_files_read_cold_one_after_another(files, monkeypatch):
    dropped, looked = [], []
    monkeypatch.setattr(medium, "drop", lambda paths: dropped.append(len(paths)))
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, n, at: looked.append((n, at)) or real(fd, n, at))
    clock = Clock(monkeypatch, tick_s=0.01)
    found = speed(files, most=4, seconds=9.0)
    assert dropped == [4, 4] and looked == [(4096, 4096)] * 4
    read = sum(100 * k + 9000 for k in (0, 2, 4, 6))
    assert found == Speed(pytest.approx(read / 0.05), pytest.approx(0.01), 4) and not clock.slept


def test_a_test_of_a_slow_folder_ends_in_its_time(files, monkeypatch):
    """Half of it for single reads, with three looks at the clock each; half for whole files, with one."""
    monkeypatch.setattr(medium, "drop", lambda paths: None)
    reads, whole, real = [], [], Path.read_bytes
    monkeypatch.setattr(os, "pread", lambda fd, n, at: reads.append(n))
    monkeypatch.setattr(Path, "read_bytes", lambda self: whole.append(self) or real(self))
    Clock(monkeypatch, tick_s=1.0)
    found = speed(files, seconds=10.0)
    assert (len(reads), len(whole), found.files) == (2, 6, 6)


def test_the_middle_of_the_waits_is_told_and_no_file_is_refused(files, monkeypatch):
    monkeypatch.setattr(medium, "drop", lambda paths: None)
    clock, waits = Clock(monkeypatch), iter([0.5, 0.1, 0.3, 0.2])

    def pread(fd, n, at):
        clock.s += next(waits)

    monkeypatch.setattr(os, "pread", pread)
    monkeypatch.setattr(Path, "read_bytes", lambda self: clock.sleep(0.25) or b"12345")
    assert speed(files[:4], seconds=99.0) == Speed(pytest.approx(20.0), pytest.approx(0.3), 4)
    with pytest.raises(ValueError, match="no files"):
        speed([])


# -- the page cache --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, mmap.PAGESIZE, 2 * mmap.PAGESIZE + 1])
def test_a_file_that_was_just_written_is_held_to_its_last_byte(tmp_path, size):
    path = tmp_path / "a"
    path.write_bytes(bytes(size))
    assert medium.resident_bytes(path) == (size, size)
    assert medium.residency([path]) == (1.0 if size else None)


def test_pages_that_are_not_resident_do_not_count_whatever_other_bits_say(tmp_path, monkeypatch):
    path = tmp_path / "a"
    path.write_bytes(bytes(4 * mmap.PAGESIZE))

    def told(address, size, flags):
        assert size == 4 * mmap.PAGESIZE
        (medium.ctypes.c_ubyte * 4).from_address(flags)[:] = [1, 2, 3, 0]
        return 0

    monkeypatch.setattr(medium, "_mincore", lambda: told)
    assert medium.resident_bytes(path) == (2 * mmap.PAGESIZE, 4 * mmap.PAGESIZE)
    monkeypatch.setattr(medium, "_mincore", lambda: lambda *about: -1)
    with pytest.raises(OSError, match="which pages"):
        medium.resident_bytes(path)
    assert medium.residency([path, path]) is None


@pytest.mark.parametrize(("count", "asked"), [(3, 3), (256, 256), (511, 511), (512, 256), (600, 300)])
def test_of_many_files_every_second_third_is_asked_for(monkeypatch, count, asked):
    seen = []

    def resident(path):
        seen.append(path)
        if path == 0:
            raise OSError("gone")
        return 10, 40

    monkeypatch.setattr(medium, "resident_bytes", resident)
    assert medium.residency(range(count)) == 0.25 and len(seen) == asked


def test_files_are_written_and_dropped_one_by_one(files, monkeypatch):
    told = []
    monkeypatch.setattr(os, "fdatasync", lambda fd: told.append("written"))
    monkeypatch.setattr(os, "posix_fadvise", lambda fd, *how: told.append(how))
    medium.drop(iter(files[:2]))
    assert told == ["written", (0, 0, os.POSIX_FADV_DONTNEED)] * 2


def test_a_disk_is_told_as_iostat_tells_it(tmp_path, monkeypatch):
    """Two looks a second apart: 4 reads of 8 ms, busy for a quarter of it, 3 requests under way for half."""
    number = tmp_path.stat().st_dev
    major, minor = os.major(number), os.minor(number)
    monkeypatch.setattr(medium.time, "monotonic_ns", iter((0, 10**9)).__next__)
    other = f"{major} {minor + 1} sda 9 9 9 9 9 9 9 9 9 9 9\n"
    assert medium.traffic(tmp_path, tmp_path) is None
    (tmp_path / "diskstats").write_text(other)
    assert medium.traffic(tmp_path, tmp_path) is None
    (tmp_path / "vmstat").write_text("nr_free_pages 1\npswpin 100\npswpout 7\n")
    (tmp_path / "diskstats").write_text(
        f"{other}{major} {minor} sdb 10 0 100 40 5 0 50 20 0 300 700 0 0 0 0\n"
    )
    before = medium.traffic(tmp_path, tmp_path)
    (tmp_path / "vmstat").write_text("pswpin 103\n")
    (tmp_path / "diskstats").write_text(
        f"{other}{major} {minor} sdb 14 0 111 72 5 0 50 20 3 550 2200 0 0 0 0\n"
    )
    found = medium.traffic(tmp_path, tmp_path).since(before)
    assert found == {
        "device_bytes": 11 * 512,
        "device_await_s": 0.008,
        "device_queue": 1.5,
        "device_use": 0.25,
        "swapped_bytes": 3 * os.sysconf("SC_PAGESIZE"),
    }


def test_a_disk_without_reads_has_no_wait():
    one = medium.Traffic(0, 5, 5, 5, 5, 5, None)
    found = replace(one, at_ns=10**9).since(one)
    assert found["device_await_s"] is None and found["device_use"] == 0 and found["swapped_bytes"] is None


# -- the group that limits reads -------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "tries"), [(errno.EBUSY, 60), (errno.ENOENT, 1)])
def test_a_group_that_is_busy_is_tried_again_for_three_seconds(monkeypatch, number, tries):
    tried, slept = [], []

    def rmdir(self):
        tried.append(self)
        raise OSError(number, "not now")

    monkeypatch.setattr(Path, "rmdir", rmdir)
    monkeypatch.setattr(io_limit, "time", SimpleNamespace(sleep=slept.append))
    io_limit._remove(Path("group"))
    assert len(tried) == tries and sum(slept) == pytest.approx(3.0 if tries > 1 else 0.0)


def test_a_disk_without_partitions_is_its_own_and_a_process_may_be_in_no_group(tmp_path):
    number = tmp_path.stat().st_dev
    block = tmp_path / f"sys/dev/block/{os.major(number)}:{os.minor(number)}"
    block.mkdir(parents=True)
    (block / "dev").write_text("259:3\n")
    assert io_limit.disk(tmp_path, tmp_path) == "259:3"
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("1:name=systemd:/x\n")
    assert io_limit._group_of(tmp_path) == ""


@pytest.fixture
def tree(tmp_path):
    """A kernel whose disk 8:0 has the partition that tmp_path lies on, and that may limit reads."""
    number = tmp_path.stat().st_dev
    part = tmp_path / "sys/devices/sda/sda1"
    part.mkdir(parents=True)
    (part / "partition").write_text("1\n")
    (part.parent / "dev").write_text("8:0\n")
    (tmp_path / "sys/dev/block").mkdir(parents=True)
    (tmp_path / f"sys/dev/block/{os.major(number)}:{os.minor(number)}").symlink_to(part)
    groups = tmp_path / "sys/fs/cgroup"
    (groups / "user.slice").mkdir(parents=True)
    (groups / "cgroup.controllers").write_text("cpu io memory\n")
    (groups / "cgroup.subtree_control").write_text("")
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("1:name=systemd:/x\n0::/user.slice\n")
    return tmp_path


def test_the_whole_disk_is_limited_while_the_run_lasts(tree):
    groups = tree / "sys/fs/cgroup"
    with medium.limited(tree, MEDIA["sd"], tree) as limit:
        group = groups / f"edgescope-io-{os.getpid()}"
        assert limit == (group / "io.max").read_text() == "8:0 rbps=80000000 riops=833"
        assert (groups / "cgroup.subtree_control").read_text() == "+io"
        assert (group / "cgroup.procs").read_text() == str(os.getpid())
        for file in group.iterdir():  # the kernel's files go with their folder
            file.unlink()
    assert (groups / "user.slice/cgroup.procs").read_text() == str(os.getpid())
    assert not group.exists()


@pytest.mark.parametrize("missing", ["sys/dev/block", "io", "rights", "another group"])
def test_what_it_cannot_do_is_said(tree, missing, monkeypatch):
    groups = tree / "sys/fs/cgroup"
    if missing == "io":
        (groups / "cgroup.controllers").write_text("cpu memory\n")
    elif missing == "rights":
        (groups / "cgroup.subtree_control").unlink()
        (groups / "cgroup.subtree_control").mkdir()
    elif missing == "another group":  # a mode's quota, which the move would end
        (tree / "proc/self/cgroup").write_text("0::/edgescope-7\n")
    else:
        monkeypatch.setattr(medium.os, "major", lambda number: 999)
    with (
        pytest.raises(UnsupportedError, match="E-MEDIUM-1") as caught,
        medium.limited(tree, MEDIA["hdd"], tree),
    ):
        pass
    assert caught.value.fix == "--workload-option medium_by=delay" and caught.value.evidence
    assert not (groups / f"edgescope-io-{os.getpid()}").exists()

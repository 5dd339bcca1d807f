"""Counters of the kernel for the process's threads: through the real call, by events that every kernel counts."""

import errno
import mmap
import os
import threading

import pytest

from edgescope.bench import cache_misses
from edgescope.bench.cache_misses import CALL, CacheMisses
from edgescope.records import Absent, Measured

FAULTS = {"faults": dict.fromkeys(CALL, (1, 2))}
"""Page faults: an event of the kernel's own, which a virtual machine counts, too."""
PAGES = 400


def touch(pages=PAGES):
    area = mmap.mmap(-1, pages * mmap.PAGESIZE)
    for page in range(pages):
        area[page * mmap.PAGESIZE] = 1
    area.close()


@pytest.fixture
def faults():
    one = CacheMisses(FAULTS)
    one.mark()
    if isinstance(one.opened["faults"], Absent):
        pytest.skip(one.opened["faults"].reason)
    return one


def test_what_lies_between_two_looks_is_counted(faults):
    files = list(faults.opened["faults"])
    touch()
    faults.mark()
    found = faults.metrics(2.0)["faults"]
    assert isinstance(found, Measured) and PAGES / 2 <= found.value <= PAGES * 5 and found.unit == "1/s"
    for file in files:
        with pytest.raises(OSError):
            os.fstat(file)


def test_a_count_is_told_by_the_second():
    counted = CacheMisses(FAULTS, counts={"faults": 600.0})
    assert counted.metrics(2.0) == {"faults": Measured(300.0, "1/s")}


def test_threads_that_run_already_and_those_to_come_are_counted():
    begin, end = threading.Event(), threading.Event()

    def wait():
        begin.wait()
        touch()
        end.set()

    running = threading.Thread(target=wait)
    running.start()
    one = CacheMisses(FAULTS)
    one.mark()
    if isinstance(one.opened["faults"], Absent):
        begin.set()
        pytest.skip(one.opened["faults"].reason)
    assert len(one.opened["faults"]) >= 2
    begin.set()
    end.wait()
    later = threading.Thread(target=touch)
    later.start()
    later.join()
    running.join()
    one.mark()
    assert one.metrics(1.0)["faults"].value >= 2 * PAGES


def test_each_level_is_counted_or_says_why_not():
    one = CacheMisses()
    one.mark()
    sum(range(100_000))
    one.mark()
    found = one.metrics(1.0)
    assert set(found) == {"l1_misses_per_s", "l2_misses_per_s", "llc_misses_per_s"}
    for name, field in found.items():
        assert isinstance(field, Measured) or field.reason.startswith("unsupported"), name


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (errno.EACCES, "perf_event_paranoid is 4"),
        (errno.EPERM, "perf_event_paranoid is 4"),
        (errno.ENOENT, "no such counter"),
        (errno.ENOSYS, "perf_event_open"),
    ],
)
def test_what_the_kernel_refuses_is_told(tmp_path, monkeypatch, error, said):
    (tmp_path / "proc/sys/kernel").mkdir(parents=True)
    (tmp_path / "proc/self/task/1").mkdir(parents=True)
    (tmp_path / cache_misses.PARANOID).write_text("4\n")

    def refused(*given):
        cache_misses.ctypes.set_errno(error)
        return -1

    monkeypatch.setattr(cache_misses, "_opened", refused)
    one = CacheMisses(root=tmp_path)
    one.mark()
    one.mark()
    field = one.metrics(1.0)["l1_misses_per_s"]
    assert isinstance(field, Absent) and field.reason.startswith("unsupported") and said in field.reason


def test_a_machine_of_another_kind_has_no_event():
    one = CacheMisses(machine="riscv64")
    one.mark()
    assert all("riscv64" in absent.reason for absent in one.opened.values())
    assert cache_misses.EVENTS["l2_misses_per_s"] == {"aarch64": (4, 0x17)}


def test_a_counter_that_had_the_processor_for_half_of_the_time_counts_twice(tmp_path):
    def counter(*numbers):
        reader, writer = os.pipe()
        os.write(writer, b"".join(n.to_bytes(8, "little") for n in numbers))
        os.close(writer)
        return reader

    assert cache_misses._read([counter(30, 100, 50), counter(5, 100, 100), counter(0, 0, 0)]) == 65
    assert isinstance(cache_misses._read([counter(0, 100, 0)]), Absent)


def test_the_attribute_is_the_kernels_first_version():
    assert cache_misses.ATTRIBUTE.size == 64

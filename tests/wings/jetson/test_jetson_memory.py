from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope.devices.base import Failed, Unsupported
from edgescope.devices.cpu.sources import PAGE_BYTES
from edgescope.wings.jetson.soc import JetsonMemory, largest_block, process_bytes
from fake_board import write

MEMINFO = "MemTotal: 7802880 kB\nSwapTotal: 3901440 kB\nSwapFree: {free} kB\nNvMapMemUsed: {nvmap} kB\n"
CLIENTS = """\
CLIENT                        PROCESS      PID        SIZE
user                         gpu_burn     7979   23525644K
user                  VLLM::EngineCor  1792595      12M
user                    two words here     42        7K
total                                            23549320K
"""
"""The layout of R36, as public reports show it."""


def values(root, pid=7979):
    source = JetsonMemory(str(root), pid)
    got = {name: value for name, _, value in source.read()}
    assert set(got) == {c.name for c in source.channels()}
    return got


def test_the_four_amounts(tmp_path):
    write(tmp_path, {"proc/meminfo": MEMINFO.format(free=901440, nvmap=1024)})
    write(tmp_path, {"sys/kernel/debug/nvmap/iovmm/clients": CLIENTS})
    write(tmp_path, {"proc/buddyinfo": "Node 0, zone   Normal    216     55    189      0      3      0\n"})
    got = values(tmp_path)
    assert (got["nvmap_used_bytes"], got["swap_used_bytes"]) == (1024 * 1024, 3000000 * 1024)
    assert got["process_gpu_bytes"] == 23525644 * 1024
    assert got["largest_free_block_bytes"] == PAGE_BYTES * 16


def test_swap_that_is_full_is_all_of_it(tmp_path):
    write(tmp_path, {"proc/meminfo": MEMINFO.format(free=0, nvmap=0)})
    assert values(tmp_path)["swap_used_bytes"] == 3901440 * 1024


def test_thor_has_no_nvmap(tmp_path):
    write(tmp_path, {"proc/meminfo": "MemTotal: 1 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n"})
    zeros = "user      python3     7979       0K\nuser      Xorg     12       0K\ntotal      0K\n"
    write(tmp_path, {"sys/kernel/debug/nvmap/iovmm/clients": zeros})
    got = values(tmp_path)
    assert "NvMapMemUsed" in got["nvmap_used_bytes"].reason
    assert isinstance(got["process_gpu_bytes"], Unsupported)
    assert got["swap_used_bytes"] == 0.0


def test_a_process_that_is_not_listed_is_not_given_the_total():
    got = process_bytes(CLIENTS, 99)
    assert isinstance(got, Unsupported) and "not attributable" in got.reason
    assert process_bytes(CLIENTS, 42) == 7 * 1024
    assert process_bytes(CLIENTS, 1792595) == 12 << 20


def test_without_root_the_reason_says_what_unlocks_it(tmp_path):
    got = values(tmp_path)["process_gpu_bytes"]
    assert isinstance(got, Unsupported) and "not attributable" in got.reason and "chmod" in got.reason


def test_no_block_is_free():
    assert isinstance(largest_block("Node 0, zone Normal 0 0 0\n"), Failed)
    assert isinstance(largest_block(""), Failed)


@given(st.text(), st.integers(0, 10**7))
def test_no_text_breaks_the_parsers(text, pid):
    for value in (process_bytes(text, pid), largest_block(text)):
        assert isinstance(value, float | Unsupported | Failed)


@given(st.lists(st.tuples(st.integers(1, 99999), st.integers(1, 10**6)), min_size=1, max_size=9))
@pytest.mark.slow
def test_a_client_with_several_rows_holds_their_sum(rows):
    text = "\n".join(f"user   python3   {pid}   {size}K" for pid, size in rows)
    for pid in {pid for pid, _ in rows}:
        expected = sum(size for other, size in rows if other == pid) * 1024
        assert process_bytes(text, pid) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("size", "found"), [("7", 7), ("7B", 7), ("7K", 7 << 10), ("7M", 7 << 20), ("7G", 7 << 30)]
)
def test_a_size_is_in_bytes_or_has_a_letter(size, found):
    assert process_bytes(f"user some 42 {size}\n", 42) == found


@pytest.mark.parametrize(
    ("line", "order"),
    [
        ("Node 0, zone DMA 1 0 0\n", 0),
        ("Node 0, zone DMA 0 0 3 0\nNode 0, zone Normal 9 9 0 0\n", 2),
        ("Node 0, zone DMA " + "0 " * 31 + "1\n", 31),
        ("Node 0, zone DMA " + "0 " * 32 + "1\n", None),
        ("Node 0, zone DMA 0 0\n", None),
    ],
)
def test_the_largest_block_is_of_the_highest_order_that_is_free(line, order):
    found = largest_block(line)
    assert found == float(PAGE_BYTES << order) if order is not None else isinstance(found, Failed)


@pytest.mark.parametrize(("before", "read"), [((1 << 16) - 13, True), ((1 << 16) - 12, False)])
def test_of_a_list_of_clients_64_kib_are_read(tmp_path, before, read):
    """The row of the process ends with what is read, or one letter after it."""
    row = "user me 42 7K"
    first = "user other 1 1K\n"
    text = first + "#" * (before - len(first) - 1) + "\n" + row
    write(tmp_path, {"proc/meminfo": "", "sys/kernel/debug/nvmap/iovmm/clients": text + "\n"})
    found = values(tmp_path, 42)["process_gpu_bytes"]
    assert found == (7 << 10 if read else 7)
